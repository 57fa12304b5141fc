/* nearest.h - rounding to a small float format by search: the oracle the conversions are held to.
 *
 * It knows nothing of bit patterns: among the format's values, given in code order, it takes the
 * one at the smallest distance and, of two, the one with the even code; beyond the last value it
 * saturates. Distances are exact where they matter: inputs have 24 significant bits, values at most
 * 8, and doubles hold 53.
 */
#ifndef MMLA_TESTS_NEAREST_H
#define MMLA_TESTS_NEAREST_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* values[0 .. n-1] ascend from 0; the code of the one nearest to |x|. x is not NaN. */
static inline int test_nearest_code(const double *values, int n, double x) {
    const double magnitude = fmin(fabs(x), values[n - 1]);
    int best = 0;
    for (int code = 1; code < n; code++) {
        const double best_off = fabs(magnitude - values[best]),
                     off = fabs(magnitude - values[code]);
        if (off < best_off || (off == best_off && code % 2 == 0)) {
            best = code;
        }
    }
    return best;
}

/* x moved by `steps` floats away from 0 (toward it when negative); x > 0. */
static inline float test_float_step(float x, int steps) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += steps;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
