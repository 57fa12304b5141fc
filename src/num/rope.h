/* rope.h - the rotation of one adjacent pair, with its rounding points fixed: the inner product is
 * rounded to fp32, then one fused multiply-add. */
#ifndef MMLA_NUM_ROPE_H
#define MMLA_NUM_ROPE_H

#include <math.h>

#include "base/inline.h"

MMLA_INLINE void mmla_rope_rotate(float c, float s, float *even, float *odd) {
    const float x0 = *even, x1 = *odd;
    *even = fmaf(x0, c, -(x1 * s));
    *odd = fmaf(x0, s, x1 * c);
}

/* The same by the negative angle. A result of zero is +0, so that a row of zeros stays all +0. */
MMLA_INLINE void mmla_rope_rotate_back(float c, float s, float *even, float *odd) {
    mmla_rope_rotate(c, -s, even, odd);
    *even += 0.0f;
    *odd += 0.0f;
}

#endif
