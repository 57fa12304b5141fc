/* attend_mma_out.cuh - the end of attend_mma_kernel.cu: from sums in registers to codes and scales.
 *
 *     O^T fragments --rotate back, scale, cast--> codes --movmatrix--> smem [head][64 dims] --16 B--> out
 */
#ifndef MMLA_GPU_ATTEND_MMA_OUT_CUH
#define MMLA_GPU_ATTEND_MMA_OUT_CUH

#include "gpu/attend_mma.h"
#include "gpu/attend_mma_math.cuh"
#include "num/quant.h"

#define GPU_DEVICE static __device__ __forceinline__

#define ATTEND_MMA_LN_2 0.693147180559945309f
#define ATTEND_MMA_LOG2_E 1.44269504088896341f

/* lse, max_logits and the factor of O of every head (state.factor). NaN throughout without a legal
 * position. All threads come here; the factors may be read when it returns. */
GPU_DEVICE void attend_mma_finish_heads(const attend_mma_params *p,
                                        const attend_mma_task *task,
                                        float *state,
                                        const int32_t keys,
                                        const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t h = threadIdx.x, head = task->first_head + h;
    if (h < 8 * n_tiles) {
        float factor = 0.0f, lse = INFINITY, max_logit = -INFINITY;
        if (task->position < 0) {
            factor = lse = max_logit = NAN;
        } else if (task->has_keys) {
            const float m = state[at.maximum + h];
            /* Keys whose scores are all -inf are not "no key". */
            const float sum = state[at.sum + h] == 0.0f ? NAN : state[at.sum + h];
            const float logit = m * state[at.logit + h]; /* base 2 */
            const bool exists = head < p->n_heads;
            const float sink =
                p->sink == NULL || !exists ? -INFINITY : p->sink[head] * ATTEND_MMA_LOG2_E;
            factor = 1.0f / (sum + exp2f(sink - logit));
            lse = fmaf(logit, ATTEND_MMA_LN_2, logf(sum));
            max_logit = isnan(sum) ? NAN : logit * ATTEND_MMA_LN_2;
        }
        state[at.factor + h] = factor;
        if (head < p->n_heads && (task->pairs & 1) != 0) { /* one CTA of a cluster */
            const int64_t i = task->token * p->n_heads + head;
            if (p->lse != NULL) {
                p->lse[i] = lse;
            }
            if (p->max_logits != NULL) {
                p->max_logits[i] = max_logit;
            }
        }
    }
    __syncthreads();
}

/* The inverse rotation of the warp that holds the last 64 dims: a pair's two dims are in neighbouring
 * rows of a fragment, four lanes apart. */
GPU_DEVICE void
attend_mma_rotate_back(attend_mma_output *out, const float *cos_sin, const int32_t n_tiles) {
    enum { PAIRS = MMLA_ROPE_DIM / 2 };
    static_assert(MMLA_ROPE_DIM == ATTEND_MMA_WARP_DIMS, "the last warp holds what is rotated");
    const int32_t lane = threadIdx.x % 32;
    const bool is_odd = (lane / 4) % 2 != 0;
#pragma unroll
    for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
#pragma unroll
        for (int32_t half = 0; half < 2; half++) {
            const int32_t pair = (16 * b + 8 * half + lane / 4) / 2;
            const float c = cos_sin[pair], s = cos_sin[PAIRS + pair];
#pragma unroll
            for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
                for (int32_t j = 0; j < 2; j++) {
                    float *x = &out->o[b][t][2 * half + j];
                    const float other = __shfl_xor_sync(~0u, *x, 4);
                    float even = is_odd ? other : *x, odd = is_odd ? *x : other;
                    mmla_rope_rotate_back(c, s, &even, &odd);
                    *x = is_odd ? odd : even;
                }
            }
        }
    }
}

/* Largest magnitudes of 32 dims (blocks b and b + 1) of the two heads of group t. */
GPU_DEVICE float2 attend_mma_amax(const attend_mma_output *out, const int32_t b, const int32_t t) {
    float m[2];
#pragma unroll
    for (int32_t j = 0; j < 2; j++) {
        m[j] = fmaxf(fmaxf(fabsf(out->o[b][t][j]), fabsf(out->o[b][t][j + 2])),
                     fmaxf(fabsf(out->o[b + 1][t][j]), fabsf(out->o[b + 1][t][j + 2])));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 4));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 8));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 16));
        m[j] = fmaxf(m[j], 0.0f); /* of NaN alone: no magnitude */
    }
    return make_float2(m[0], m[1]);
}

/* Codes of one 16-dim block of group t, into the warp's rows of shared memory [head][64 dims]. The
 * fragment has heads side by side; movmatrix turns it, two codes (dims x and x + 8) an element. */
GPU_DEVICE void
attend_mma_put_codes(const float o[4], float mul0, float mul1, uint8_t *row, int b) {
    const int32_t lane = threadIdx.x % 32;
    const uint32_t first = gpu_e4m3x2_from_f32x2(o[0] * mul0, o[2] * mul0);
    const uint32_t second = gpu_e4m3x2_from_f32x2(o[1] * mul1, o[3] * mul1);
    const uint32_t turned = gpu_transpose_b16(first | second << 16);
    uint8_t *to = row + 16 * b + 2 * (lane % 4);
    *(uint16_t *)to = (uint16_t)__byte_perm(turned, 0, 0x4420);       /* dims 2u, 2u + 1 */
    *(uint16_t *)(to + 8) = (uint16_t)__byte_perm(turned, 0, 0x4431); /* 8 later */
}

GPU_DEVICE void attend_mma_put_bf16(const float o[4], float mul0, float mul1, uint8_t *row, int b) {
    const int32_t lane = threadIdx.x % 32;
    uint8_t *to = row + 2 * (16 * b + 2 * (lane % 4));
    *(uint32_t *)to = gpu_transpose_b16(gpu_bf16x2_from_f32x2(o[0] * mul0, o[1] * mul1));
    *(uint32_t *)(to + 16) = gpu_transpose_b16(gpu_bf16x2_from_f32x2(o[2] * mul0, o[3] * mul1));
}

/* Scale bytes of chunk c of 8 heads: lanes 0 .. 3 hold two heads each. */
GPU_DEVICE void attend_mma_store_ue8m0(
    const attend_mma_params *p, int64_t token, int32_t head, int32_t c, uint32_t b0, uint32_t b1) {
    const int32_t lane = threadIdx.x % 32;
    const uint32_t pair = b0 | b1 << 8;
    const uint32_t word = pair | __shfl_xor_sync(~0u, pair, 1) << 16;
    if (lane >= 4) {
        return;
    }
    if (p->out_form == MMLA_OUT_FP8_PERMUTED) { /* four heads a word */
        if (lane % 2 == 0) {
            const int64_t at = mmla_out_scale_offset(p->scale_strides, token, head + 2 * lane, c);
            *(uint32_t *)(p->out_scale + at) = word;
        }
        return;
    }
    enum { CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM };
    uint8_t *to = p->out_scale + (token * p->n_heads + head + 2 * lane) * CHUNKS + c;
    to[0] = (uint8_t)b0;
    to[CHUNKS] = (uint8_t)b1;
}

/* One chunk pair's two heads under ue8m0 scales: the bytes, and what o is multiplied with. */
GPU_DEVICE float attend_mma_out_mul(float amax, float factor, uint32_t *byte) {
    const float a = fmaxf(MMLA_AMAX_FLOOR, amax * factor);
    *byte = mmla_ue8m0_ceil(a / MMLA_E4M3_MAX);
    return factor * mmla_ue8m0_inverse((uint8_t)*byte);
}

/* Rows of shared memory [heads][64 dims] of this warp to out. */
GPU_DEVICE void attend_mma_copy_out(const attend_mma_params *p,
                                    int64_t token,
                                    int32_t first_head,
                                    const uint8_t *rows,
                                    const int32_t element_bytes,
                                    const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_chunks = ATTEND_MMA_WARP_DIMS * element_bytes / ATTEND_MMA_CHUNK_BYTES;
    uint8_t *out = p->out + token * p->n_heads * MMLA_LATENT_DIM * element_bytes;
#pragma unroll 2
    for (int32_t i = lane; i < 8 * n_tiles * row_chunks; i += 32) {
        const int32_t h = i / row_chunks, c = i % row_chunks, head = first_head + h;
        if (head < p->n_heads) {
            const int32_t x =
                ATTEND_MMA_WARP_DIMS * warp + c * ATTEND_MMA_CHUNK_BYTES / element_bytes;
            const int64_t at = p->out_form == MMLA_OUT_FP8_PERMUTED
                                   ? mmla_out_permuted_index(head, x)
                                   : (int64_t)head * MMLA_LATENT_DIM + x;
            *(uint4 *)(out + at * element_bytes) =
                *(const uint4 *)(rows + h * attend_mma_out_pitch(element_bytes) +
                                 c * ATTEND_MMA_CHUNK_BYTES);
        }
    }
}

/* FP8_128: a scale spans the dims of two warps, which meet in shared memory. All threads come here. */
GPU_DEVICE void attend_mma_put_wide(const attend_mma_params *p,
                                    const attend_mma_task *task,
                                    const attend_mma_output *out,
                                    float *state,
                                    uint8_t *rows,
                                    const int32_t keys,
                                    const int32_t n_tiles) {
    enum { WARPS = MMLA_OUT_WIDE_DIM / ATTEND_MMA_WARP_DIMS };
    static_assert(WARPS == ATTEND_MMA_WARPS / ATTEND_MMA_PAIRS, "the warps of a scale are a pair");
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = 8 * n_tiles;
    const int32_t wide = warp / WARPS;
    const float *factors = state + at.factor;
    float *amax = state + at.sum; /* [warps][heads] */
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        const float2 a = attend_mma_amax(out, 0, t), b = attend_mma_amax(out, 2, t);
        if (lane < 4) {
            amax[warp * heads + 8 * t + 2 * lane] = fmaxf(a.x, b.x);
            amax[warp * heads + 8 * t + 2 * lane + 1] = fmaxf(a.y, b.y);
        }
    }
    __syncthreads();
    if ((task->pairs >> wide & 1) == 0) {
        return;
    }
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        float mul[2];
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            const int32_t h = 8 * t + 2 * (lane % 4) + j, head = task->first_head + h;
            const float *a = amax + WARPS * wide * heads + h;
            const float s =
                fmaxf(MMLA_AMAX_FLOOR, fmaxf(a[0], a[heads]) * factors[h]) / MMLA_E4M3_MAX;
            mul[j] = factors[h] / s;
            if (warp % WARPS == 0 && lane < 4 && head < p->n_heads) {
                const int64_t row = task->token * p->n_heads + head;
                ((float *)p->out_scale)[row * (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) + wide] = s;
            }
        }
        uint8_t *row = rows + (8 * t + lane / 4) * attend_mma_out_pitch(1);
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            attend_mma_put_codes(out->o[b][t], mul[0], mul[1], row, b);
        }
    }
}

/* FP8 and FP8_PERMUTED: a scale spans half of a warp's dims. */
GPU_DEVICE void attend_mma_put_fp8(const attend_mma_params *p,
                                   const attend_mma_task *task,
                                   const attend_mma_output *out,
                                   const float *factors,
                                   uint8_t *rows,
                                   const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        const float2 f = *(const float2 *)(factors + 8 * t + 2 * (lane % 4));
        uint8_t *row = rows + (8 * t + lane / 4) * attend_mma_out_pitch(1);
        const int32_t head = task->first_head + 8 * t;
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b += 2) {
            const float2 amax = attend_mma_amax(out, b, t);
            uint32_t byte[2];
            const float mul0 = attend_mma_out_mul(amax.x, f.x, &byte[0]);
            const float mul1 = attend_mma_out_mul(amax.y, f.y, &byte[1]);
            if (head < p->n_heads) { /* the same for all lanes */
                attend_mma_store_ue8m0(p, task->token, head, 2 * warp + b / 2, byte[0], byte[1]);
            }
            attend_mma_put_codes(out->o[b][t], mul0, mul1, row, b);
            attend_mma_put_codes(out->o[b + 1][t], mul0, mul1, row, b + 1);
        }
    }
}

GPU_DEVICE void attend_mma_put_bf16_rows(const attend_mma_output *out,
                                         const float *factors,
                                         uint8_t *rows,
                                         const int32_t n_tiles) {
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        const float2 f = *(const float2 *)(factors + 8 * t + 2 * (lane % 4));
        uint8_t *row = rows + (8 * t + lane / 4) * attend_mma_out_pitch(2);
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            attend_mma_put_bf16(out->o[b][t], f.x, f.y, row, b);
        }
    }
}

/* O of the warps of task->pairs to out and out_scale. `smem` is free from the K tile on. All threads
 * come here. */
GPU_DEVICE void attend_mma_store(const attend_mma_params *p,
                                 const attend_mma_task *task,
                                 const attend_mma_output *out,
                                 float *state,
                                 uint8_t *smem,
                                 const int32_t keys,
                                 const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, heads = 8 * n_tiles;
    const float *factors = state + attend_mma_state_get(keys, n_tiles).factor;
    const bool is_bf16 = p->out_form == MMLA_OUT_BF16;
    uint8_t *rows = smem + warp * heads * attend_mma_out_pitch(is_bf16 ? 2 : 1);
    if (p->out_form == MMLA_OUT_FP8_128) {
        attend_mma_put_wide(p, task, out, state, rows, keys, n_tiles);
    }
    if ((task->pairs >> (warp / 2) & 1) == 0) {
        return;
    }
    if (is_bf16) {
        attend_mma_put_bf16_rows(out, factors, rows, n_tiles);
        __syncwarp();
        attend_mma_copy_out(p, task->token, task->first_head, rows, 2, n_tiles);
        return;
    }
    if (p->out_form != MMLA_OUT_FP8_128) {
        attend_mma_put_fp8(p, task, out, factors, rows, n_tiles);
    }
    __syncwarp();
    attend_mma_copy_out(p, task->token, task->first_head, rows, 1, n_tiles);
}

#undef GPU_DEVICE

#endif
