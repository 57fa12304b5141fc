/* e4m3.h - 8-bit float, "fn" flavour: sign, 4 exponent bits of bias 7, 3 mantissa bits; no
 * infinity, codes 0x7F and 0xFF are NaN, largest 448, smallest subnormal 2^-9. */
#ifndef MMLA_NUM_E4M3_H
#define MMLA_NUM_E4M3_H

#include <math.h>

#include "num/bits.h"

enum { MMLA_E4M3_NAN = 0x7F, MMLA_E4M3_MAX_CODE = 0x7E };

#define MMLA_E4M3_MAX 448.0f

MMLA_INLINE float mmla_e4m3_to_f32(uint8_t code) {
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    if (magnitude == MMLA_E4M3_NAN) {
        return mmla_f32_of_bits(sign | 0x7FC00000u);
    }
    if (magnitude < 8) { /* subnormal: magnitude * 2^-9 */
        return mmla_f32_of_bits(mmla_bits_of_f32((float)magnitude * 0x1p-9f) | sign);
    }
    return mmla_f32_of_bits(sign | ((magnitude << 20) + (120u << 23)));
}

/* Round to nearest, ties to even, saturating: every |x| > 448, infinity too, gives +-448. */
MMLA_INLINE uint8_t mmla_e4m3_from_f32(float x) {
    if (isnan(x)) {
        return MMLA_E4M3_NAN;
    }
    const uint32_t u = mmla_bits_of_f32(x);
    const uint8_t sign = (uint8_t)((u >> 24) & 0x80u);
    const float a = fabsf(x);
    if (a >= MMLA_E4M3_MAX) {
        return sign | MMLA_E4M3_MAX_CODE;
    }
    if (a <
        0x1p-6f) { /* below the smallest normal: the grid is 2^-9, and adding 2^14 rounds to it */
        return sign | (uint8_t)(mmla_bits_of_f32(a + 0x1p14f) & 0xFFu);
    }
    const uint32_t m = u & 0x7FFFFFFFu;
    const uint32_t rounded = m + 0x7FFFFu + ((m >> 20) & 1u);
    return sign | (uint8_t)((rounded >> 20) - (120u << 3));
}

#endif
