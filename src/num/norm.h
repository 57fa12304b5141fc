/* norm.h - RMSNorm with its order of summation fixed: every implementation gives the same bytes.
 *
 *     sum   sixteen partial sums, number j over elements j, j + 16, j + 32, ..., each square
 *           rounded to fp32 before it is added; then halved: j + (j + 8), j + (j + 4), ..., 0 + 1
 *     r     1 / sqrt(sum / n + eps)
 *     y     (x * r) * weight, rounded to bf16 once
 *
 * Sixteen is the widest vector we have: eight lanes take two registers, one register serves
 * sixteen. n is a power of two, so the division by n is exact. eps may be 1e-20, far below the
 * precision of any mean but a normal fp32: an all-zero row has r = 1e10 and gives zeros.
 */
#ifndef MMLA_NUM_NORM_H
#define MMLA_NUM_NORM_H

#include <math.h>

#include "num/bf16.h"

enum { MMLA_NORM_PARTIALS = 16 };

/* The last steps of the sum; overwrites partial. */
MMLA_INLINE float mmla_norm_reduce(float *partial) {
    for (int width = MMLA_NORM_PARTIALS / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            partial[j] += partial[j + width];
        }
    }
    return partial[0];
}

MMLA_INLINE float mmla_norm_factor(float sum, int n, float eps) {
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* x[0 .. n-1] in place; n is a power of two, at least 16. */
MMLA_INLINE void mmla_norm_rms(float *x, const float *weight, int n, float eps) {
    float partial[MMLA_NORM_PARTIALS] = {0};
    for (int i = 0; i < n; i++) {
        partial[i % MMLA_NORM_PARTIALS] += x[i] * x[i];
    }
    const float r = mmla_norm_factor(mmla_norm_reduce(partial), n, eps);
    for (int i = 0; i < n; i++) {
        x[i] = mmla_bf16_round(x[i] * r * weight[i]);
    }
}

#endif
