/* convert_bits.h - number formats opened by arithmetic instead of cases.
 *
 * The functions of src/num take a format apart as its definition does, with a case for subnormals. A
 * GPU thread would execute every case of its warp. Here the bits of a code are moved to where fp32
 * or fp16 has exponent and mantissa, which gives the value times a power of two (of subnormals too,
 * since both formats keep theirs), and one exact product corrects the power. For host and device,
 * so that the CPU's tests walk all codes; convert.cuh uses them where a GPU has no instruction.
 */
#ifndef MMLA_GPU_CONVERT_BITS_H
#define MMLA_GPU_CONVERT_BITS_H

#include "num/bits.h"

/* The value of an e4m3 code, 0 .. 255, like mmla_e4m3_to_f32. Exponent field and mantissa of the
 * code become the lowest four and the highest three bits of fp32's: 2^(7 - 127) times the value. */
MMLA_INLINE float mmla_e4m3_to_f32_by_bits(uint32_t code) {
    const uint32_t sign = (code & 0x80u) << 24;
    const float x = mmla_f32_of_bits(sign | (code & 0x7Fu) << 20) * 0x1p120f;
    return (code & 0x7Fu) == 0x7Fu ? mmla_f32_of_bits(sign | 0x7FC00000u) : x;
}

/* Codes i and i + 4 of eight e2m1 codes as two bf16, i from 0 to 3, a constant: 2^-126 times their
 * values. A product puts both the magnitude and, six bits further on, the sign in their places. */
MMLA_INLINE uint32_t mmla_e2m1x2_to_bf16x2_times_2_126th(uint32_t codes, const int i) {
    const uint32_t word = i < 2 ? codes : codes >> 8;
    return (i % 2 == 0 ? (word & 0x000F000Fu) * 0x1040u : (word & 0x00F000F0u) * 0x0104u) &
           0x81C081C0u;
}

/* Two fp16 magnitudes, 2^-14 times numbers that are at most 6, to the nearest e2m1
 * codes, ties to even; their signs are the highest bits of the halves of `signs`. As fp16, e2m1's
 * codes are the multiples of 2^9, and subnormals begin in both formats at the same place. */
MMLA_INLINE uint32_t mmla_e2m1x2_from_f16x2_times_2_14th(uint32_t magnitudes, uint32_t signs) {
    const uint32_t rounded = magnitudes + 0x00FF00FFu + (magnitudes >> 9 & 0x00010001u);
    const uint32_t codes = (rounded >> 9 & 0x00070007u) | (signs >> 12 & 0x00080008u);
    return (codes | codes >> 12) & 0xFFu;
}

/* The highest bit of each half that is a bf16 NaN; all other bits 0. */
MMLA_INLINE uint32_t mmla_bf16x2_nans(uint32_t halves) {
    return ((halves & 0x7FFF7FFFu) + 0x007F007Fu) & 0x80008000u;
}

/* The value of a ue8m0 byte, 0 .. 255, like mmla_ue8m0_to_f32. */
MMLA_INLINE float mmla_ue8m0_to_f32_by_bits(uint32_t byte) {
    const uint32_t bits = byte << 23 > 0x00400000u ? byte << 23 : 0x00400000u; /* 0 is 2^-127 */
    return mmla_f32_of_bits(byte == 255u ? 0x7FC00000u : bits);
}

#endif
