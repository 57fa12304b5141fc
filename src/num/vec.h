/* vec.h - one vector type for every instruction set.
 *
 * A file written against this header is compiled once per instruction set (its name ends with the
 * set, cmake/flags.cmake gives it the flags) and is correct with none. Arithmetic, comparison and
 * integer work use the compiler's vector extensions; only what they cannot say, or say slowly, has
 * intrinsics here: fused multiply-add, maximum with a defined NaN rule, and the decoders of 8-bit
 * and 4-bit floats.
 *
 * A vector has VEC_LANES elements: 16 with AVX-512, else 8 (two registers on SSE2 and NEON).
 */
#ifndef MMLA_NUM_VEC_H
#define MMLA_NUM_VEC_H

/* A portable implementation defines VEC_PORTABLE first: on aarch64, where every file may use NEON,
 * it then stays the generic code. */
#if defined(__aarch64__) && !defined(VEC_PORTABLE)
#define VEC_NEON 1
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(VEC_NEON)
#include <arm_neon.h>
#endif

#include "num/bits.h"

#if defined(__AVX512F__)
#define VEC_LANES 16
#else
#define VEC_LANES 8
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * VEC_LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * VEC_LANES)));
typedef uint8_t vec_bytes __attribute__((vector_size(VEC_LANES)));
typedef uint16_t vec_halves __attribute__((vector_size(2 * VEC_LANES)));

VEC_INLINE vf vf_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE void vf_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}

VEC_INLINE vf vf_set1(float x) {
#if defined(__AVX512F__)
    return (vf)_mm512_set1_ps(x);
#elif defined(__AVX2__)
    return (vf)_mm256_set1_ps(x);
#else
    return x - (vf){0}; /* keeps the sign of zero, unlike a sum */
#endif
}

VEC_INLINE vu vu_set1(uint32_t x) {
    return x | (vu){0};
}

/* Bits of mask lanes all ones: a, all zeros: b. */
VEC_INLINE vf vf_select(vi mask, vf a, vf b) {
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

VEC_INLINE vu vu_select(vi mask, vu a, vu b) {
    return ((vu)mask & a) | (~(vu)mask & b);
}

/* Lanes where a < b, and where x is NaN. gcc 12 compares lane by lane where a vector is two
 * registers (SSE2, NEON), ten times slower, so there it is given one register at a time. */
VEC_INLINE vi vf_less(vf a, vf b) {
#if defined(__AVX2__)
    return (vi)(a < b);
#else
    typedef float quad __attribute__((vector_size(16)));
    typedef int32_t mask __attribute__((vector_size(16)));
    quad x[VEC_LANES / 4], y[VEC_LANES / 4];
    mask less[VEC_LANES / 4];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    for (int i = 0; i < VEC_LANES / 4; i++) {
        less[i] = x[i] < y[i];
    }
    vi result;
    memcpy(&result, less, sizeof result);
    return result;
#endif
}

VEC_INLINE vi vf_is_nan(vf x) {
#if defined(__AVX2__)
    return (vi)(x != x);
#else
    return (vi)(vu_set1(0x7F800000u) - ((vu)x & vu_set1(0x7FFFFFFFu))) >> 31;
#endif
}

/* a * b + c, rounded once where the set has it: VEC_FMA_IS_EXACT. */
#if defined(__FMA__) || defined(VEC_NEON)
#define VEC_FMA_IS_EXACT 1
#else
#define VEC_FMA_IS_EXACT 0
#endif

VEC_INLINE vf vf_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(VEC_NEON)
    float32x4_t x[2], y[2], z[2];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    memcpy(z, &c, sizeof c);
    z[0] = vfmaq_f32(z[0], x[0], y[0]);
    z[1] = vfmaq_f32(z[1], x[1], y[1]);
    memcpy(&c, z, sizeof c);
    return c;
#else
    return a * b + c;
#endif
}

/* The same, rounded once on every set: slow where VEC_FMA_IS_EXACT is 0. */
VEC_INLINE vf vf_fma_exact(vf a, vf b, vf c) {
#if VEC_FMA_IS_EXACT
    return vf_fma(a, b, c);
#else
    for (int i = 0; i < VEC_LANES; i++) {
        c[i] = fmaf(a[i], b[i], c[i]);
    }
    return c;
#endif
}

/* The larger; the second when either is NaN. So vf_max(x, limit) ignores a NaN x and
 * vf_max(limit, x) keeps it. */
VEC_INLINE vf vf_max(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select(vf_less(b, a), a, b);
#endif
}

/* The smaller; the second when either is NaN. */
VEC_INLINE vf vf_min(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select(vf_less(a, b), a, b);
#endif
}

VEC_INLINE vf vf_abs(vf x) {
    return (vf)((vu)x & vu_set1(0x7FFFFFFFu));
}

VEC_INLINE vf vf_from_bf16(const uint16_t *p) {
    vec_halves h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* VEC_LANES bytes, one a lane. */
VEC_INLINE vu vu_from_bytes(const uint8_t *p) {
#if defined(__SSE2__) && VEC_LANES == 8
    const __m128i zero = _mm_setzero_si128();
    const __m128i halves = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)p), zero);
    const __m128i quads[2] = {_mm_unpacklo_epi16(halves, zero), _mm_unpackhi_epi16(halves, zero)};
    vu v;
    memcpy(&v, quads, sizeof v);
    return v;
#else
    vec_bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, vu);
#endif
}

/* 2^x for x <= 0: relative error below 2.1e-8 before the last rounding (with FMA); 0 below -126; NaN for NaN.
 * The polynomial is the minimax one of degree 6 on [-1/2, 1/2]. */
VEC_INLINE vf vf_exp2(vf x) {
    const vf clamped = vf_max(vf_set1(-126.0f), x);
    const vf magic = vf_set1(0x1.8p23f); /* adding it rounds to an integer, left in the low bits */
    const vf shifted = clamped + magic;
    const vf f = clamped - (shifted - magic);
    vf p = vf_set1(0x1.41d32ep-13f);
    p = vf_fma(p, f, vf_set1(0x1.5f456ap-10f));
    p = vf_fma(p, f, vf_set1(0x1.3b2dbcp-7f));
    p = vf_fma(p, f, vf_set1(0x1.c6aed4p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ebfbdap-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    const vf scaled = (vf)((vi)p + ((vi)shifted << 23));
    const vi zero = vf_less(x, vf_set1(-126.0f));
    const vf result = (vf)((vi)scaled & ~zero);
    return vf_select(vf_is_nan(x), x, result);
}

/* e4m3 codes of x, one in the low byte of each lane: round to nearest even, saturating, NaN 0x7F.
 * Matches mmla_e4m3_from_f32. */
VEC_INLINE vu vu_e4m3_from_f32(vf x) {
    const vu sign = ((vu)x >> 24) & vu_set1(0x80u);
    const vf a = vf_min(vf_abs(x), vf_set1(448.0f)); /* NaN becomes 448 here, and 0x7F below */
    const vu m = (vu)a;
    const vu normal = ((m + vu_set1(0x7FFFFu) + ((m >> 20) & vu_set1(1u))) >> 20) - vu_set1(960u);
    const vu subnormal = (vu)(a + vf_set1(0x1p14f)) & vu_set1(0xFFu);
    const vu code = sign | vu_select(vf_less(a, vf_set1(0x1p-6f)), subnormal, normal);
    return vu_select(vf_is_nan(x), vu_set1(0x7Fu), code);
}

/* 16 e4m3 codes, times 2^-8, times scale_256, to dst; the caller puts 2^8 into scale_256, which
 * must be finite. The codes pass through half precision at 2^-8 of their value, which holds every
 * one of them exactly, subnormal or not. */
VEC_INLINE void vec_decode_e4m3_x16(const uint8_t *p, float scale_256, float *dst) {
#if defined(__AVX2__)
    __m128i codes;
    memcpy(&codes, p, sizeof codes);
    const __m256i wide = _mm256_cvtepu8_epi16(codes);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7F)), 7);
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3F80)),
                                         _mm256_set1_epi16(0x7C00));
    const __m256i half = _mm256_or_si256(_mm256_or_si256(sign, magnitude), nan);
#if defined(__AVX512F__)
    _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(scale_256)));
#else
    const __m256 s = _mm256_set1_ps(scale_256);
    _mm256_storeu_ps(dst, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), s));
    _mm256_storeu_ps(dst + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), s));
#endif
#elif defined(VEC_NEON)
    const uint8x16_t codes = vld1q_u8(p);
    const uint8x8_t eight[2] = {vget_low_u8(codes), vget_high_u8(codes)};
    const float32x4_t s = vdupq_n_f32(scale_256);
    for (int i = 0; i < 2; i++) {
        const uint16x8_t wide = vmovl_u8(eight[i]);
        const uint16x8_t sign = vshlq_n_u16(vandq_u16(wide, vdupq_n_u16(0x80)), 8);
        const uint16x8_t magnitude = vshlq_n_u16(vandq_u16(wide, vdupq_n_u16(0x7F)), 7);
        const uint16x8_t nan =
            vandq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x3F80)), vdupq_n_u16(0x7C00));
        const float16x8_t half = vreinterpretq_f16_u16(vorrq_u16(vorrq_u16(sign, magnitude), nan));
        vst1q_f32(dst + 8 * i, vmulq_f32(vcvt_f32_f16(vget_low_f16(half)), s));
        vst1q_f32(dst + 8 * i + 4, vmulq_f32(vcvt_high_f32_f16(half), s));
    }
#else
    for (int i = 0; i < 16; i += VEC_LANES) {
        const vu u = vu_from_bytes(p + i);
        const vu magnitude = u & vu_set1(0x7Fu);
        const vu sign = (u & vu_set1(0x80u)) << 24;
        const vu normal = (magnitude << 20) + vu_set1(112u << 23); /* 2^-8 of the value */
        /* The integer in the low bits of 2^23 and subtracted from it: a conversion that the
         * compiler does not take apart. */
        const vf number = (vf)(magnitude | vu_set1(0x4B000000u)) - vf_set1(0x1p23f);
        const vf subnormal = number * vf_set1(0x1p-17f);
        /* Masks by arithmetic, for the reason given at vf_less. */
        const vi is_subnormal = (vi)(magnitude - vu_set1(8u)) >> 31;
        const vi is_nan = -(vi)((magnitude + vu_set1(1u)) >> 7);
        vu bits = vu_select(is_subnormal, (vu)subnormal, normal);
        bits = vu_select(is_nan, vu_set1(0x7FC00000u), bits);
        vf_store(dst + i, (vf)(bits | sign) * vf_set1(scale_256));
    }
#endif
}

/* 16 e2m1 codes (8 bytes, low nibble first) times scale, to dst. */
VEC_INLINE void vec_decode_e2m1_x16(const uint8_t *p, float scale, float *dst) {
#if defined(__AVX2__)
    /* Upper byte of each magnitude in half precision; the lower byte is zero. */
    const __m128i table =
        _mm_setr_epi8(0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, (char)0x80, (char)0xB8,
                      (char)0xBC, (char)0xBE, (char)0xC0, (char)0xC2, (char)0xC4, (char)0xC6);
    const __m128i packed = _mm_loadl_epi64((const __m128i *)p);
    const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), _mm_set1_epi8(15));
    const __m128i upper = _mm_shuffle_epi8(table, _mm_unpacklo_epi8(low, high));
    const __m128i zero = _mm_setzero_si128();
    const __m128i half0 = _mm_unpacklo_epi8(zero, upper), half1 = _mm_unpackhi_epi8(zero, upper);
#if defined(__AVX512F__)
    const __m256i half = _mm256_set_m128i(half1, half0);
    _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(scale)));
#else
    const __m256 s = _mm256_set1_ps(scale);
    _mm256_storeu_ps(dst, _mm256_mul_ps(_mm256_cvtph_ps(half0), s));
    _mm256_storeu_ps(dst + 8, _mm256_mul_ps(_mm256_cvtph_ps(half1), s));
#endif
#elif defined(VEC_NEON)
    /* As above: upper bytes in half precision. */
    static const uint8_t upper_bytes[16] = {0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46,
                                            0x80, 0xB8, 0xBC, 0xBE, 0xC0, 0xC2, 0xC4, 0xC6};
    const uint8x8_t packed = vld1_u8(p);
    const uint8x8x2_t nibbles = vzip_u8(vand_u8(packed, vdup_n_u8(15)), vshr_n_u8(packed, 4));
    const uint8x16_t upper =
        vqtbl1q_u8(vld1q_u8(upper_bytes), vcombine_u8(nibbles.val[0], nibbles.val[1]));
    const float32x4_t s = vdupq_n_f32(scale);
    const uint8x8_t eight[2] = {vget_low_u8(upper), vget_high_u8(upper)};
    for (int i = 0; i < 2; i++) {
        const float16x8_t half = vreinterpretq_f16_u16(vshll_n_u8(eight[i], 8));
        vst1q_f32(dst + 8 * i, vmulq_f32(vcvt_f32_f16(vget_low_f16(half)), s));
        vst1q_f32(dst + 8 * i + 4, vmulq_f32(vcvt_high_f32_f16(half), s));
    }
#else
    static const float value[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    for (int i = 0; i < 8; i++) {
        dst[2 * i] = value[p[i] & 15] * scale;
        dst[2 * i + 1] = value[p[i] >> 4] * scale;
    }
#endif
}

#endif
