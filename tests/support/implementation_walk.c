#include "support/implementation_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
