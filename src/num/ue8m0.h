/* ue8m0.h - a scale byte: 2^(byte - 127). Byte 0 is 2^-127, byte 255 is NaN. */
#ifndef MMLA_NUM_UE8M0_H
#define MMLA_NUM_UE8M0_H

#include "num/bits.h"

enum { MMLA_UE8M0_BIAS = 127, MMLA_UE8M0_NAN = 255 };

MMLA_INLINE float mmla_ue8m0_to_f32(uint8_t byte) {
    if (byte == MMLA_UE8M0_NAN) {
        return mmla_f32_of_bits(0x7FC00000u);
    }
    return mmla_f32_of_bits(byte == 0 ? 0x00400000u : (uint32_t)byte << 23);
}

/* The smallest power of two not below s, as a byte: exponent + 1 unless the mantissa is 0. s is a
 * positive normal fp32 or +infinity (byte 255). Exact where a logarithm would be off by one. */
MMLA_INLINE uint8_t mmla_ue8m0_ceil(float s) {
    return (uint8_t)(((mmla_bits_of_f32(s) - 1u) >> 23) + 1u);
}

/* 2^(127 - byte), the factor a quantiser multiplies with; exact for every byte (subnormal at 254
 * and 255). */
MMLA_INLINE float mmla_ue8m0_inverse(uint8_t byte) {
    if (byte == MMLA_UE8M0_NAN) {
        return mmla_f32_of_bits(0x00200000u);
    }
    return mmla_ue8m0_to_f32((uint8_t)(254 - byte));
}

#endif
