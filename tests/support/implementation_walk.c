#include "support/implementation_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/gpu_memory.h"

const char *test_implementation(const mmla_context *ctx, const char *op, size_t idx) {
    mmla_implementation impl;
    size_t n = 0;
    for (int32_t i = 0; mmla_implementation_get(ctx, i, &impl, NULL) == MMLA_OK; i++) {
        if (strcmp(impl.op, op) == 0 && impl.available && n++ == idx) {
            return impl.name;
        }
    }
    assert_true(n >= 2); /* portable and reference run everywhere */
    return NULL;
}

const char *test_implementation_anywhere(const mmla_context *ctx, const char *op, size_t idx) {
    if (mmla_gpu_count() == 0) {
        return test_implementation(ctx, op, idx);
    }
    return idx == 0 ? "cuda" : test_implementation(ctx, op, idx - 1);
}

bool test_implementation_is_cuda(const char *name) {
    return strcmp(name, "cuda") == 0;
}
