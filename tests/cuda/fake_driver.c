/* fake_driver.c - a libcuda.so.1 to see what is said of it; FAKE_DRIVER says what ails it: "old", of
 * a CUDA that no build of ours is of; "empty", without a device; or "broken". NVIDIA's runtime asks
 * for the version and starts the driver before all else. Every other function is there and fails. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OLD = 11040, NEW = 99000, NO_DEVICE = 100, UNKNOWN = 999 };

static int is_driver(const char *kind) {
    const char *driver = getenv("FAKE_DRIVER");
    return driver != NULL && strcmp(driver, kind) == 0;
}

int cuDriverGetVersion(int *version) {
    *version = is_driver("old") ? OLD : NEW;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return is_driver("empty") ? NO_DEVICE : is_driver("broken") ? UNKNOWN : 0;
}

static int nothing(void) {
    return UNKNOWN;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    if (status != NULL) {
        *status = 0;
    }
    uintptr_t function = (uintptr_t)nothing;
    if (strcmp(name, "cuDriverGetVersion") == 0) {
        function = (uintptr_t)cuDriverGetVersion;
    } else if (strcmp(name, "cuInit") == 0) {
        function = (uintptr_t)cuInit;
    } else if (strncmp(name, "cuGetProcAddress", strlen("cuGetProcAddress")) == 0) {
        function = (uintptr_t)cuGetProcAddress_v2;
    }
    *out = (void *)function;
    return 0;
}
