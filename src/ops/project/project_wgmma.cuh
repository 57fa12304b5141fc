/* project_wgmma.cuh - what project's Hopper kernels share: codes to fp16, a row's scales, the
 * products of a step, and the results of odd rows.
 *
 * NaN needs no care: a NaN code becomes a NaN operand, a NaN scale a NaN factor, and either reaches
 * the results of its row or token and no other.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_CUH
#define MMLA_OPS_PROJECT_WGMMA_CUH

#include "gpu/async.cuh"
#include "gpu/convert.cuh"
#include "gpu/wgmma.cuh"
#include "ops/project/project_rows.cuh"
#include "ops/project/project_wgmma_map.h"

/* The 16 codes of a unit times their scale, in pairs. */
PROJECT_DEVICE void
project_wg_convert(uint32_t pairs[MMLA_PROJECT_WG_PAIRS], const uint4 codes, uint32_t exponent) {
    const uint32_t scale = mmla_project_wg_scale_pair(exponent);
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        uint32_t first, second;
        gpu_f16x4_from_e4m3x4(words[i], &first, &second);
        pairs[2 * i] = gpu_mul_f16x2(first, scale);
        pairs[2 * i + 1] = gpu_mul_f16x2(second, scale);
    }
}

/* A step of a thread's two rows of the operand that comes from registers: what its four instructions take. */
typedef struct project_wg_step {
    uint32_t a[MMLA_PROJECT_STEP_UNITS][4];
} project_wg_step;

/* Of its first row, `half` 0, or its second. */
PROJECT_DEVICE void project_wg_half_convert(project_wg_step *step,
                                            const uint4 codes,
                                            uint32_t exponent,
                                            const int32_t half) {
    uint32_t pairs[MMLA_PROJECT_WG_PAIRS];
    project_wg_convert(pairs, codes, exponent);
#pragma unroll
    for (int32_t pair = 0; pair < MMLA_PROJECT_WG_PAIRS; pair++) {
        step->a[pair / 2][mmla_project_wg_register(pair, half)] = pairs[pair];
    }
}

PROJECT_DEVICE void project_wg_step_convert(project_wg_step *step,
                                            const uint4 codes[2],
                                            uint32_t exponent,
                                            uint32_t exponent_8) {
    project_wg_half_convert(step, codes[0], exponent, 0);
    project_wg_half_convert(step, codes[1], exponent_8, 1);
}

/* Begins the products of a step with a tile of n rows of the other operand, by its descriptor; the first of a chain
 * starts the sums anew. */
PROJECT_DEVICE void project_wg_step_multiply(
    float *sums, const project_wg_step *step, uint64_t tile, const bool is_first, const int32_t n) {
    gpu_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < MMLA_PROJECT_STEP_UNITS; i++) {
        gpu_wgmma_f16(sums, step->a[i], tile + i * GPU_WGMMA_STEP, !is_first || i != 0, n);
    }
    gpu_wgmma_commit();
}

/* Which groups of a row's segment have no code but +-0. Rare, so it is no loop of many loads at
 * once. */
PROJECT_DEVICE uint32_t project_wg_zeros(const project_row *r, int32_t segment) {
    uint32_t zeros = 0;
#pragma unroll 1
    for (int32_t i = 0; i < MMLA_PROJECT_WG_SCALES && r->exists; i++) {
        const uint4 *at = (const uint4 *)(r->codes + segment * MMLA_PROJECT_SEGMENT) + 2 * i;
        const uint4 a = __ldg(at), b = __ldg(at + 1);
        const uint32_t any = a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
        zeros |= (uint32_t)((any & 0x7F7F7F7Fu) == 0) << i;
    }
    return zeros;
}

/* Scale bytes of a row's segment; of a row that does not exist any plain ones. Loads of words stand
 * in a branch of their own: chosen one by one, each would wait for the one before. */
PROJECT_DEVICE void project_wg_scales_load(uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4],
                                           const project_row *r,
                                           int32_t segment) {
    static_assert(MMLA_PROJECT_WG_SCALES == 4 * 4, "four words");
    const uint8_t *at = r->scales + 4 * segment * r->word_stride;
    if (!r->exists) {
        bytes[0] = bytes[1] = bytes[2] = bytes[3] = MMLA_UE8M0_BIAS * 0x01010101u;
    } else if (r->in_words) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            bytes[i] = __ldg((const uint32_t *)(at + i * r->word_stride));
        }
    } else {
        bytes[1] = bytes[2] = bytes[3] = 0;
#pragma unroll 1
        for (int32_t i = 0; i < 4; i++) { /* rare: small instead of fast */
            bytes[0] = bytes[1];
            bytes[1] = bytes[2];
            bytes[2] = bytes[3];
            bytes[3] = project_scales_load(r, 4 * segment + i);
        }
    }
}

/* What a row's segment becomes, of its scale bytes. */
PROJECT_DEVICE mmla_project_wg_segment project_wg_segment_of(
    const uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4], const project_row *r, int32_t segment) {
    mmla_project_wg_segment s;
    if (!mmla_project_wg_segment_quick(bytes, &s)) {
        s = mmla_project_wg_segment_get(bytes, project_wg_zeros(r, segment));
    }
    return s;
}

/* sum + the four products of codes of two words, as mmla_project_dot_word. */
PROJECT_DEVICE float project_wg_dot_word(float sum, uint32_t x, uint32_t w) {
#pragma unroll
    for (int32_t i = 0; i < 4; i += 2) {
        const float2 a = gpu_f32x2_from_e4m3x2(x >> 8 * i), b = gpu_f32x2_from_e4m3x2(w >> 8 * i);
        sum = fmaf(a.y, b.y, fmaf(a.x, b.x, sum));
    }
    return sum;
}

/* One result of an odd row, by a warp: lane l takes groups l, l + 32, .. in turn, then lanes are
 * added in pairs. */
PROJECT_DEVICE uint16_t project_wg_odd_result(const project_row *w, const project_row *x) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    float acc = 0.0f;
#pragma unroll 1
    for (int32_t group = lane; group < MMLA_PROJECT_SCALES; group += MMLA_PROJECT_WARP) {
        const uint4 *w_codes = (const uint4 *)(w->codes + group * MMLA_PROJECT_GROUP);
        const uint4 *x_codes = (const uint4 *)(x->codes + group * MMLA_PROJECT_GROUP);
        float sum = 0.0f;
#pragma unroll
        for (int32_t i = 0; i < MMLA_PROJECT_GROUP / MMLA_PROJECT_UNIT; i++) {
            const uint4 a = __ldg(x_codes + i), b = __ldg(w_codes + i);
            sum = project_wg_dot_word(sum, a.x, b.x);
            sum = project_wg_dot_word(sum, a.y, b.y);
            sum = project_wg_dot_word(sum, a.z, b.z);
            sum = project_wg_dot_word(sum, a.w, b.w);
        }
        acc = mmla_project_scale_add(acc, sum,
                                     project_scales_load(x, group / 4) >> 8 * (group % 4) & 0xFFu,
                                     project_scales_load(w, group / 4) >> 8 * (group % 4) & 0xFFu);
    }
    for (int32_t apart = MMLA_PROJECT_WARP / 2; apart > 0; apart /= 2) {
        acc += __shfl_xor_sync(PROJECT_ALL_LANES, acc, apart);
    }
    return mmla_bf16_from_f32(acc);
}

/* That result of a row and a token of a tile, which has so many rows, to z. */
PROJECT_DEVICE void project_wg_odd_store(const mmla_project_params *p,
                                         const mmla_project_tile *tile,
                                         int32_t row,
                                         int32_t token,
                                         const int32_t n_weight) {
    const project_row w = project_row_get(p, tile, row, n_weight);
    const project_row x = project_row_get(p, tile, n_weight + token, n_weight);
    const uint16_t z = project_wg_odd_result(&w, &x);
    if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
        p->z[project_z_index(p, tile, row, token)] = z;
    }
}

#endif
