#include "app/report/report_cpu.h"

#include <string.h>

static const char KEY[] = "model name";

void report_cpu_name_read(FILE *from, char out[REPORT_CPU_BYTES]) {
    char line[512];
    out[0] = '\0';
    while (out[0] == '\0' && fgets(line, sizeof line, from) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, KEY, sizeof KEY - 1) == 0) {
            const char *name = colon + 1 + strspn(colon + 1, " \t");
            snprintf(out, REPORT_CPU_BYTES, "%.*s", (int)strcspn(name, "\n"), name);
        }
    }
}

void report_cpu_name(char out[REPORT_CPU_BYTES]) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    if (file != NULL) {
        report_cpu_name_read(file, out);
        fclose(file);
    }
}
