/* bf16.h - bfloat16: the upper half of an fp32. */
#ifndef MMLA_NUM_BF16_H
#define MMLA_NUM_BF16_H

#include <math.h>

#include "num/bits.h"

enum { MMLA_BF16_NAN = 0x7FFF }; /* the one NaN we write, as the GPU's conversion does */

MMLA_INLINE float mmla_bf16_to_f32(uint16_t code) {
    return mmla_f32_of_bits((uint32_t)code << 16);
}

/* Round to nearest, ties to even; overflow goes to infinity. */
MMLA_INLINE uint16_t mmla_bf16_from_f32(float x) {
    if (isnan(x)) {
        return MMLA_BF16_NAN;
    }
    const uint32_t u = mmla_bits_of_f32(x);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* x rounded to the nearest bf16. */
MMLA_INLINE float mmla_bf16_round(float x) {
    return mmla_bf16_to_f32(mmla_bf16_from_f32(x));
}

#endif
