/* quant.h - the scalar quantisers: what every vector and GPU version must match byte for byte.
 *
 * docs/numerics.md states the rules; the golden vectors in tests pin them.
 */
#ifndef MMLA_NUM_QUANT_H
#define MMLA_NUM_QUANT_H

#include <math.h>
#include <stdint.h>

#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"

#define MMLA_AMAX_FLOOR 1e-4f       /* of a group that gets a ue8m0 or fp32 scale */
#define MMLA_E2M1_RAW_FLOOR 0x1p-9f /* smallest e4m3 scale of an e2m1 group */

/* Largest magnitude, NaN ignored; 0 for n == 0. A comparison, not fmaxf: of a signalling NaN, which
 * a bf16 row may hold, fmaxf makes a NaN and forgets the maximum so far. */
MMLA_INLINE float mmla_quant_amax(const float *x, int n) {
    float amax = 0.0f;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        amax = a > amax ? a : amax;
    }
    return amax;
}

/* Scale byte of an e4m3 group of a cache record. floor_scale: apply the floor to the scale, not to
 * the maximum. The factor is fp32(1/448) = 0x3B124925. */
MMLA_INLINE uint8_t mmla_quant_ue8m0_byte(float amax, int floor_scale) {
    const float inv448 = 1.0f / 448.0f;
    return mmla_ue8m0_ceil(floor_scale ? fmaxf(amax * inv448, MMLA_AMAX_FLOOR)
                                       : fmaxf(amax, MMLA_AMAX_FLOOR) * inv448);
}

/* n values to e4m3 codes under one ue8m0 scale, which is returned. */
MMLA_INLINE uint8_t mmla_quant_e4m3_group(const float *x, int n, int floor_scale, uint8_t *codes) {
    const uint8_t byte = mmla_quant_ue8m0_byte(mmla_quant_amax(x, n), floor_scale);
    const float inverse = mmla_ue8m0_inverse(byte);
    for (int i = 0; i < n; i++) {
        codes[i] = mmla_e4m3_from_f32(x[i] * inverse);
    }
    return byte;
}

/* Scale code (e4m3) of an e2m1 group of 16. */
MMLA_INLINE uint8_t mmla_quant_e2m1_scale(float amax) {
    return mmla_e4m3_from_f32(
        fminf(fmaxf(amax / MMLA_E2M1_MAX, MMLA_E2M1_RAW_FLOOR), MMLA_E4M3_MAX));
}

/* 16 values to 8 bytes of e2m1 codes under one e4m3 scale, which is returned. A NaN makes the scale
 * NaN and its own code 0. Division, not multiplication: the reciprocal misses exact ties. */
MMLA_INLINE uint8_t mmla_quant_e2m1_group(const float *x, uint8_t *bytes) {
    int has_nan = 0;
    for (int i = 0; i < 16; i++) {
        has_nan |= isnan(x[i]);
    }
    const uint8_t scale = mmla_quant_e2m1_scale(mmla_quant_amax(x, 16));
    const float divisor = mmla_e4m3_to_f32(scale);
    for (int i = 0; i < 8; i++) {
        const uint8_t low = mmla_e2m1_from_f32(x[2 * i] / divisor);
        const uint8_t high = mmla_e2m1_from_f32(x[2 * i + 1] / divisor);
        bytes[i] = (uint8_t)(low | (high << 4));
    }
    return has_nan ? MMLA_E4M3_NAN : scale;
}

/* Scale byte (ue8m0) of an e2m1 group of 32, as index keys have it: 2^ceil(log2(amax / 6)), not
 * below 2^-126. */
MMLA_INLINE uint8_t mmla_quant_e2m1_ue8m0_byte(float amax) {
    return mmla_ue8m0_ceil(fmaxf(amax, MMLA_E2M1_MAX * 0x1p-126f) / MMLA_E2M1_MAX);
}

/* Scale byte of a result's chunk with largest magnitude a: the smallest 2^e with 448 * 2^e not below a.
 * 448 is 1.75 * 2^8, so the mantissa is compared with that of 1.75, and nothing is divided. a is a
 * positive normal fp32 not below MMLA_AMAX_FLOOR, or +infinity (byte 255). */
MMLA_INLINE uint8_t mmla_quant_out_byte(float a) {
    enum { MANTISSA_BITS = 23, MANTISSA_MAX = 0x7FFFFF, OF_448 = 0x600000, EXPONENT_OF_448 = 8 };
    const uint32_t bits = mmla_bits_of_f32(a);
    return a == INFINITY
               ? MMLA_UE8M0_NAN
               : (uint8_t)(((bits + (MANTISSA_MAX - OF_448)) >> MANTISSA_BITS) - EXPONENT_OF_448);
}

/* 32 values of an attention result, o times `scale`, to e4m3 codes and a ue8m0 byte (returned). The
 * normalised value is never formed: codes come from o * (scale * 2^-e), one fp32 product each. */
MMLA_INLINE uint8_t mmla_quant_out_ue8m0(const float *o, float scale, uint8_t *codes) {
    const float a = fmaxf(MMLA_AMAX_FLOOR, mmla_quant_amax(o, 32) * scale);
    const uint8_t byte = mmla_quant_out_byte(a);
    const float mul = scale * mmla_ue8m0_inverse(byte);
    for (int i = 0; i < 32; i++) {
        codes[i] = mmla_e4m3_from_f32(o[i] * mul);
    }
    return byte;
}

/* 128 values likewise under one fp32 scale (returned), not rounded to a power of two. */
MMLA_INLINE float mmla_quant_out_f32(const float *o, float scale, uint8_t *codes) {
    const float s = fmaxf(MMLA_AMAX_FLOOR, mmla_quant_amax(o, 128) * scale) / MMLA_E4M3_MAX;
    const float mul = scale / s;
    for (int i = 0; i < 128; i++) {
        codes[i] = mmla_e4m3_from_f32(o[i] * mul);
    }
    return s;
}

#endif
