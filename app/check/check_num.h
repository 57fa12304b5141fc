/* check_num.h - reading the formats of results and writing bf16 inputs.
 *
 * The command is a client of include/megamla, so these few lines are its own: a second opinion on
 * what the bytes of a result mean, independent of the library's conversions.
 */
#ifndef APP_CHECK_NUM_H
#define APP_CHECK_NUM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float check_f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t check_bits_of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float check_bf16_to_f32(uint16_t x) {
    return check_f32_of_bits((uint32_t)x << 16);
}

/* Nearest, ties to even; a NaN stays one. */
static inline uint16_t check_bf16_of_f32(float x) {
    const uint32_t u = check_bits_of_f32(x);
    if (isnan(x)) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* Sign, 4 exponent bits of bias 7, 3 mantissa bits; all seven low bits set is NaN. */
static inline float check_e4m3_to_f32(uint8_t code) {
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    const float sign = (code & 0x80) != 0 ? -1.0f : 1.0f;
    if ((code & 0x7F) == 0x7F) {
        return NAN;
    }
    return sign * (exponent == 0 ? ldexpf((float)mantissa, -9)
                                 : ldexpf((float)(8 + mantissa), exponent - 10));
}

/* 2^(byte - 127); 255 is NaN. */
static inline float check_ue8m0_to_f32(uint8_t byte) {
    return byte == 255 ? NAN : ldexpf(1.0f, (int)byte - 127);
}

#endif
