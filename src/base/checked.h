/* checked.h - 64-bit products and sums that say when they do not fit. */
#ifndef MMLA_BASE_CHECKED_H
#define MMLA_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"

/* *out = a * b for non-negative a, b; false when it exceeds INT64_MAX. */
MMLA_INLINE bool mmla_mul_i64(int64_t a, int64_t b, int64_t *out) {
    if (a != 0 && b > INT64_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

/* *out = a + b for non-negative a, b; false when it exceeds INT64_MAX. */
MMLA_INLINE bool mmla_add_i64(int64_t a, int64_t b, int64_t *out) {
    if (a > INT64_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

/* a + b for counters: stays at INT32_MAX rather than overflow. a, b >= 0 but for what a caller left
 * in its counter. */
MMLA_INLINE int32_t mmla_add_count(int32_t a, int64_t b) {
    return (int64_t)a + b > INT32_MAX ? INT32_MAX : (int32_t)(a + b);
}

/* a rounded up to a multiple of b; a >= 0, b > 0, and the result must fit. */
MMLA_INLINE int64_t mmla_round_up_i64(int64_t a, int64_t b) {
    return (a + b - 1) / b * b;
}

MMLA_INLINE int64_t mmla_min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

MMLA_INLINE int64_t mmla_max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

MMLA_INLINE int64_t mmla_clamp_i64(int64_t x, int64_t low, int64_t high) {
    return mmla_min_i64(mmla_max_i64(x, low), high);
}

#endif
