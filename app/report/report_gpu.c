#include "app/report/report_gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/gpu_memory.h"

/* Where NVIDIA's kernel module tells its version on Linux. */
static const char module_version[] = "/sys/module/nvidia/version";

void report_gpu_version(int32_t version, char *out, size_t bytes) {
    snprintf(out, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

static void driver_of(int32_t supported, char *out, size_t bytes) {
    char cuda[16];
    report_gpu_version(supported, cuda, sizeof cuda);
    snprintf(out, bytes, "CUDA %s", cuda);
    FILE *file = fopen(module_version, "r");
    char line[64];
    if (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n') {
        snprintf(out, bytes, "%.*s", (int)strcspn(line, "\n"), line);
    }
    if (file != NULL) {
        fclose(file);
    }
}

report_gpu report_gpu_of(const mmla_gpu *gpu) {
    report_gpu r = {0};
    mmla_gpu_facts facts;
    if (mmla_gpu_facts_get(gpu, &facts, NULL) == MMLA_OK) {
        snprintf(r.name, sizeof r.name, "%s", facts.name);
        driver_of(facts.driver_cuda, r.driver, sizeof r.driver);
        report_gpu_version(facts.runtime_cuda, r.cuda, sizeof r.cuda);
    }
    return r;
}
