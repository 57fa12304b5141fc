/* vec_quant.h - the quantisers of num/quant.h, by vectors, with the same bytes.
 *
 * A row is quantised in three sweeps, each over memory that stays in the first cache level: the
 * maximum of every group to a small array; scales of all groups from that array, a vector at a
 * time; codes. Groups of 16 would otherwise spend most of their time on one scalar scale each.
 */
#ifndef MMLA_NUM_VEC_QUANT_H
#define MMLA_NUM_VEC_QUANT_H

#include "num/bf16.h"
#include "num/quant.h"
#include "num/vec.h"

enum { VEC_GROUPS_MAX = 32 }; /* groups of one row; a multiple of VEC_LANES */

/* The low byte of each lane to VEC_LANES bytes; lanes hold at most 255. */
VEC_INLINE void vec_store_bytes(uint8_t *p, vu v) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm512_cvtepi32_epi8((__m512i)v);
#elif defined(__AVX2__)
    const __m128i low = _mm256_castsi256_si128((__m256i)v);
    const __m128i halves = _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)v, 1));
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves));
#elif defined(__SSE2__)
    __m128i half[2];
    memcpy(half, &v, sizeof v);
    const __m128i halves = _mm_packs_epi32(half[0], half[1]);
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves));
#elif defined(VEC_NEON)
    uint32x4_t half[2];
    memcpy(half, &v, sizeof v);
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(vmovn_u32(half[0]), vmovn_u32(half[1])));
#else
    const vec_bytes bytes = __builtin_convertvector(v, vec_bytes);
#endif
    memcpy(p, &bytes, VEC_LANES);
}

/* The low half of each lane; lanes hold at most 65535. */
VEC_INLINE void vec_store_halves(uint16_t *p, vu v) {
#if defined(__AVX512F__)
    const __m256i halves = _mm512_cvtepi32_epi16((__m512i)v);
#elif defined(__AVX2__)
    const __m128i low = _mm256_castsi256_si128((__m256i)v);
    const __m128i halves = _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)v, 1));
#elif defined(__SSE2__)
    __m128i half[2]; /* sign-extended, because SSE2 packs signed numbers only */
    const vi extended = (vi)(v << 16) >> 16;
    memcpy(half, &extended, sizeof v);
    const __m128i halves = _mm_packs_epi32(half[0], half[1]);
#elif defined(VEC_NEON)
    uint32x4_t half[2];
    memcpy(half, &v, sizeof v);
    const uint16x8_t halves = vcombine_u16(vmovn_u32(half[0]), vmovn_u32(half[1]));
#else
    const vec_halves halves = __builtin_convertvector(v, vec_halves);
#endif
    memcpy(p, &halves, 2 * VEC_LANES);
}

/* The low nibble of each lane to VEC_LANES / 2 bytes, even lanes in the low nibble; lanes hold at
 * most 15. Bytes in memory would cost a stall: two stores, then one load over both. */
VEC_INLINE void vec_store_nibbles(uint8_t *p, vu v) {
#if defined(__AVX2__)
    typedef uint64_t pairs_of_lanes __attribute__((vector_size(4 * VEC_LANES)));
    const pairs_of_lanes pairs = (pairs_of_lanes)v | (pairs_of_lanes)v >> 28; /* low bytes count */
#endif
#if defined(__AVX512F__)
    const __m128i bytes = _mm512_cvtepi64_epi8((__m512i)pairs);
#elif defined(__AVX2__)
    /* Bytes 0 and 8 of each half, then both halves one after the other. */
    const __m256i two = _mm256_shuffle_epi8((__m256i)pairs, _mm256_set1_epi16(0x0800));
    const __m128i bytes =
        _mm_unpacklo_epi16(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
#else
    uint64_t bytes;
    vec_store_bytes((uint8_t *)&bytes, v);
    bytes = (bytes | bytes >> 4) & 0x00FF00FF00FF00FFu;
    bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFFu;
    bytes = bytes | bytes >> 16;
#endif
    memcpy(p, &bytes, VEC_LANES / 2);
}

/* The largest lane; no lane is NaN. */
VEC_INLINE float vec_max_lanes(vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#elif defined(__AVX2__)
    __m128 half =
        _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
    float lane[VEC_LANES];
    vf_store(lane, v);
    for (int width = VEC_LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
        }
    }
    return lane[0];
#endif
}

/* bf16 codes of x, one in the low half of each lane. Matches mmla_bf16_from_f32. */
VEC_INLINE vu vu_bf16_from_f32(vf x) {
    const vu u = (vu)x;
    const vu code = (u + vu_set1(0x7FFFu) + ((u >> 16) & vu_set1(1u))) >> 16;
    return vu_select(vf_is_nan(x), vu_set1(MMLA_BF16_NAN), code);
}

/* e2m1 codes of x, one in the low nibble of each lane. Matches mmla_e2m1_from_f32 but for NaN. The
 * same shape as the e4m3 conversion: from 1 on the grid follows the exponent and one mantissa bit,
 * below it is 0.5, the spacing of floats at 2^22. */
VEC_INLINE vu vu_e2m1_from_f32(vf x) {
    const vu sign = ((vu)x >> 28) & vu_set1(8u);
    const vf a = vf_min(vf_abs(x), vf_set1(MMLA_E2M1_MAX));
    const vu m = (vu)a;
    const vu normal = ((m + vu_set1(0x1FFFFFu) + ((m >> 22) & vu_set1(1u))) >> 22) - vu_set1(252u);
    const vu below_one = (vu)(a + vf_set1(0x1p22f)) & vu_set1(3u);
    return sign | vu_select(vf_less(a, vf_set1(1.0f)), below_one, normal);
}

/* mmla_quant_amax of every group; n and group are multiples of VEC_LANES. */
VEC_INLINE void vec_quant_amax(const float *x, int n, int group, float *amax) {
    for (int g = 0; g < n / group; g++) {
        vf m = vf_set1(0.0f);
        for (int i = 0; i < group; i += VEC_LANES) {
            m = vf_max(vf_abs(vf_load(x + g * group + i)), m);
        }
        amax[g] = vec_max_lanes(m);
    }
}

/* n values in groups of e4m3 codes under a ue8m0 byte each: mmla_quant_e4m3_group on all of them.
 */
VEC_INLINE void
vec_quant_e4m3(const float *x, int n, int group, int floor_scale, uint8_t *codes, uint8_t *scale) {
    float amax[VEC_GROUPS_MAX];
    vec_quant_amax(x, n, group, amax);
    for (int g = 0; g < n / group; g++) {
        const uint8_t byte = mmla_quant_ue8m0_byte(amax[g], floor_scale);
        const vf inverse = vf_set1(mmla_ue8m0_inverse(byte));
        for (int i = g * group; i < (g + 1) * group; i += VEC_LANES) {
            vec_store_bytes(codes + i, vu_e4m3_from_f32(vf_load(x + i) * inverse));
        }
        scale[g] = byte;
    }
}

/* Whether x[0 .. n-1] are all finite. The e2m1 quantisers leave other rows to the scalar code: e2m1
 * has no NaN, so its group must be found and marked, and nobody needs that to be fast. */
VEC_INLINE int vec_all_finite(const float *x, int n) {
    vu outside = vu_set1(0);
    for (int i = 0; i < n; i += VEC_LANES) {
        outside |= vu_set1(0x7F7FFFFFu) - ((vu)vf_load(x + i) & vu_set1(0x7FFFFFFFu));
    }
    uint32_t any = 0;
    for (int lane = 0; lane < VEC_LANES; lane++) {
        any |= outside[lane];
    }
    return any >> 31 == 0;
}

/* 16 values divided by a scale to 8 bytes of e2m1 codes. */
VEC_INLINE void vec_quant_e2m1_x16(const float *x, float scale, uint8_t *bytes) {
    for (int i = 0; i < 16; i += VEC_LANES) {
        vec_store_nibbles(bytes + i / 2, vu_e2m1_from_f32(vf_load(x + i) / vf_set1(scale)));
    }
}

/* n values in groups of 16 e2m1 codes under an e4m3 scale each: mmla_quant_e2m1_group on all of
 * them. n is at most 512, n / 16 a multiple of 16; all are finite. */
VEC_INLINE void vec_quant_e2m1(const float *x, int n, uint8_t *bytes, uint8_t *scale) {
    enum { GROUP = 16 };
    float amax[VEC_GROUPS_MAX], divisor[VEC_GROUPS_MAX];
    vec_quant_amax(x, n, GROUP, amax);
    for (int g = 0; g < n / GROUP; g += VEC_LANES) {
        const vf raw = vf_load(amax + g) / vf_set1(MMLA_E2M1_MAX); /* beyond 448 it saturates */
        vec_store_bytes(scale + g, vu_e4m3_from_f32(vf_max(raw, vf_set1(MMLA_E2M1_RAW_FLOOR))));
    }
    for (int g = 0; g < n / GROUP; g += 16) {
        vec_decode_e4m3_x16(scale + g, 256.0f, divisor + g);
    }
    for (int g = 0; g < n / GROUP; g++) {
        vec_quant_e2m1_x16(x + g * GROUP, divisor[g], bytes + g * (GROUP / 2));
    }
}

/* n values in groups of 32 e2m1 codes under a ue8m0 byte each. The scale is a power of two, so
 * dividing by it is exact, like multiplying with its inverse. All values are finite. */
VEC_INLINE void vec_quant_e2m1_ue8m0(const float *x, int n, uint8_t *bytes, uint8_t *scale) {
    enum { GROUP = 32 };
    float amax[VEC_GROUPS_MAX];
    vec_quant_amax(x, n, GROUP, amax);
    for (int g = 0; g < n / GROUP; g++) {
        scale[g] = mmla_quant_e2m1_ue8m0_byte(amax[g]);
        for (int i = g * GROUP; i < (g + 1) * GROUP; i += 16) {
            vec_quant_e2m1_x16(x + i, mmla_ue8m0_to_f32(scale[g]), bytes + i / 2);
        }
    }
}

#endif
