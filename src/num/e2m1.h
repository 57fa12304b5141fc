/* e2m1.h - 4-bit float: sign and the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Two codes a byte, the
 * even element in the low nibble. */
#ifndef MMLA_NUM_E2M1_H
#define MMLA_NUM_E2M1_H

#include <math.h>
#include <stdint.h>

#include "base/inline.h"

#define MMLA_E2M1_MAX 6.0f

MMLA_INLINE float mmla_e2m1_to_f32(uint8_t code) {
    static const float value[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return value[code & 15];
}

/* Round to nearest, ties to the even code, saturating at 6; keeps the sign of zero. NaN gives 0:
 * the caller marks the group. */
MMLA_INLINE uint8_t mmla_e2m1_from_f32(float x) {
    const uint8_t sign = signbit(x) ? 8 : 0;
    const float a = fabsf(x);
    if (isnan(x)) {
        return 0;
    }
    /* Midpoints between neighbours; a tie goes up exactly where the upper code is even. */
    return sign | (uint8_t)((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                            (a >= 3.5f) + (a > 5.0f));
}

#endif
