/* replay.c - runs a fuzz target over its corpus without a fuzzer, so that it is a plain test.
 *
 *     fuzz_x_replay FILE_OR_FOLDER...
 *
 * Each input is run as it is, cut off at a few places, and with a few bytes changed; the changes
 * are the same on every run. An input that crashes is named on the last line of the output.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_CUTS = 16, N_CHANGES = 200, BYTES_MAX = 1 << 20, PATH_BYTES = 4096 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A copy of exactly this size, so that a sanitizer sees a read past the input. */
static void run_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        exit(1);
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_input(uint8_t *data, size_t size) {
    run_copy(data, size);
    for (size_t i = 0; i < N_CUTS; i++) {
        run_copy(data, size * i / N_CUTS);
    }
    uint32_t state = 1;
    for (int i = 0; i < N_CHANGES && size > 0; i++) {
        const size_t at = next_random(&state) % size;
        const uint8_t old = data[at];
        data[at] = (uint8_t)next_random(&state);
        run_copy(data, size);
        if (i % 4 != 0) { /* every fourth change stays, so that they add up */
            data[at] = old;
        }
    }
}

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(BYTES_MAX);
    if (file == NULL || data == NULL) {
        perror(path);
        exit(1);
    }
    const size_t size = fread(data, 1, BYTES_MAX, file);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout); /* said before it runs: a crash leaves the name behind */
    run_input(data, size);
    free(data);
    return 1;
}

static int run_path(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(info.st_mode)) {
        return run_file(path);
    }
    struct dirent **entries;
    const int n = scandir(path, &entries, NULL, alphasort);
    int ran = 0;
    for (int i = 0; i < n; i++) {
        char inner[PATH_BYTES];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            ran += run_path(inner);
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return ran;
}

int main(int argc, char **argv) {
    int ran = 0;
    for (int i = 1; i < argc; i++) {
        ran += run_path(argv[i]);
    }
    printf("%d inputs\n", ran);
    return ran > 0 ? 0 : 1; /* an empty corpus proves nothing */
}
