/* attend_mma_out.cuh - the end of attend_mma_kernel.cu: from sums in registers to codes and scales.
 *
 *     O^T (registers) --> slots (smem, each thread its own) --rotate back, scale, cast, movmatrix-->
 *     codes [head][64 dims] in the slots' place --16 B--> out
 *
 * The detour through shared memory lets one short loop serve all groups of heads. Unrolled over the
 * registers it was some 45 KB of code that every CTA runs once, and took an eighth of the time of a call.
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

GPU_DEVICE void
attend_mma_park(const attend_mma_output *out, uint8_t *slots, const int32_t n_tiles) {
    float4 *to = (float4 *)slots + threadIdx.x % 32;
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            const float *o = out->o[b][t];
            to[(t * ATTEND_MMA_WARP_BLOCKS + b) * 32] = make_float4(o[0], o[1], o[2], o[3]);
        }
    }
}

/* This thread's fragments of group t: block b, its element i. */
GPU_DEVICE void
attend_mma_unpark(float o[ATTEND_MMA_WARP_BLOCKS][4], const uint8_t *slots, int32_t t) {
    const float4 *from = (const float4 *)(slots + t * ATTEND_MMA_SLOT_BYTES) + threadIdx.x % 32;
#pragma unroll
    for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
        const float4 x = from[b * 32];
        o[b][0] = x.x;
        o[b][1] = x.y;
        o[b][2] = x.z;
        o[b][3] = x.w;
    }
}

/* The inverse rotation, in the slots, by the warp that holds the last 64 dims: a pair's two dims are in
 * neighbouring rows of a fragment, four lanes apart. */
GPU_DEVICE void
attend_mma_rotate_back(uint8_t *slots, const float *cos_sin, const int32_t n_tiles) {
    enum { PAIRS = MMLA_ROPE_DIM / 2 };
    static_assert(MMLA_ROPE_DIM == ATTEND_MMA_WARP_DIMS, "the last warp holds what is rotated");
    const int32_t lane = threadIdx.x % 32;
    const bool is_odd = (lane / 4) % 2 != 0;
    float c[ATTEND_MMA_WARP_BLOCKS][2], s[ATTEND_MMA_WARP_BLOCKS][2];
#pragma unroll
    for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
#pragma unroll
        for (int32_t half = 0; half < 2; half++) {
            const int32_t pair = (16 * b + 8 * half + lane / 4) / 2;
            c[b][half] = cos_sin[pair];
            s[b][half] = cos_sin[PAIRS + pair];
        }
    }
#pragma unroll 1
    for (int32_t t = 0; t < n_tiles; t++) {
        float o[ATTEND_MMA_WARP_BLOCKS][4];
        attend_mma_unpark(o, slots, t);
        float4 *to = (float4 *)(slots + t * ATTEND_MMA_SLOT_BYTES) + lane;
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
#pragma unroll
            for (int32_t i = 0; i < 4; i++) {
                const float other = __shfl_xor_sync(~0u, o[b][i], 4);
                float even = is_odd ? other : o[b][i], odd = is_odd ? o[b][i] : other;
                mmla_rope_rotate_back(c[b][i / 2], s[b][i / 2], &even, &odd);
                o[b][i] = is_odd ? odd : even;
            }
            to[b * 32] = make_float4(o[b][0], o[b][1], o[b][2], o[b][3]);
        }
    }
}

/* Largest magnitudes of 32 dims (blocks b and b + 1) of a thread's two heads. */
GPU_DEVICE float2 attend_mma_amax(float o[ATTEND_MMA_WARP_BLOCKS][4], const int32_t b) {
    float m[2];
#pragma unroll
    for (int32_t j = 0; j < 2; j++) {
        m[j] = fmaxf(fmaxf(fabsf(o[b][j]), fabsf(o[b][j + 2])),
                     fmaxf(fabsf(o[b + 1][j]), fabsf(o[b + 1][j + 2])));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 4));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 8));
        m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], 16));
        m[j] = fmaxf(m[j], 0.0f); /* of NaN alone: no magnitude */
    }
    return make_float2(m[0], m[1]);
}

/* Codes of one 16-dim block into a head's row. The fragment has heads side by side; movmatrix turns it,
 * two codes (dims x and x + 8) an element. */
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

/* What a chunk's o is multiplied with under a ue8m0 scale, and the scale's byte. */
GPU_DEVICE float attend_mma_out_mul(float amax, float factor, uint32_t *byte) {
    const float a = fmaxf(MMLA_AMAX_FLOOR, amax * factor);
    *byte = mmla_quant_out_byte(a);
    return factor * mmla_ue8m0_inverse((uint8_t)*byte);
}

/* FP8_128: a scale spans the dims of two warps. Leaves the magnitudes of a warp's 64 dims in amax. */
GPU_DEVICE void attend_mma_wide_amax(const uint8_t *slots, float *amax, const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int32_t t = 0; t < n_tiles; t++) {
        float o[ATTEND_MMA_WARP_BLOCKS][4];
        attend_mma_unpark(o, slots, t);
        const float2 a = attend_mma_amax(o, 0), b = attend_mma_amax(o, 2);
        if (lane < 4) {
            amax[warp * 8 * n_tiles + 8 * t + 2 * lane] = fmaxf(a.x, b.x);
            amax[warp * 8 * n_tiles + 8 * t + 2 * lane + 1] = fmaxf(a.y, b.y);
        }
    }
}

/* The same form's scale of a head, which the first of the two warps stores; and what o is multiplied
 * with. */
GPU_DEVICE float attend_mma_wide_mul(const attend_mma_params *p,
                                     const attend_mma_task *task,
                                     const float *amax,
                                     float factor,
                                     int32_t h,
                                     const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, wide = warp / 2;
    const int32_t heads = 8 * n_tiles, head = task->first_head + h;
    const float *a = amax + 2 * wide * heads + h;
    const float s = fmaxf(MMLA_AMAX_FLOOR, fmaxf(a[0], a[heads]) * factor) / MMLA_E4M3_MAX;
    if (warp % 2 == 0 && lane < 4 && head < p->n_heads) {
        const int64_t row = task->token * p->n_heads + head;
        ((float *)p->out_scale)[row * (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) + wide] = s;
    }
    return factor / s;
}

static_assert(MMLA_OUT_WIDE_DIM == 2 * ATTEND_MMA_WARP_DIMS,
              "the warps of a wide scale are a pair");

/* A warp's slots to rows of results, in the same place, and its scales to out_scale. */
GPU_DEVICE void attend_mma_cast(const attend_mma_params *p,
                                const attend_mma_task *task,
                                uint8_t *slots,
                                const float *factors,
                                const float *amax,
                                const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int32_t t = 0; t < n_tiles; t++) {
        float o[ATTEND_MMA_WARP_BLOCKS][4];
        attend_mma_unpark(o, slots, t);
        __syncwarp(); /* the rows go where the fragments were */
        const int32_t h = 8 * t + 2 * (lane % 4), head = task->first_head + 8 * t;
        const float2 f = *(const float2 *)(factors + h);
        uint8_t *rows = slots + t * ATTEND_MMA_SLOT_BYTES;
        if (p->out_form == MMLA_OUT_BF16) {
#pragma unroll
            for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
                attend_mma_put_bf16(o[b], f.x, f.y, rows + lane / 4 * attend_mma_out_pitch(2), b);
            }
            continue;
        }
        float2 mul = f;
        if (p->out_form == MMLA_OUT_FP8_128) {
            mul.x = attend_mma_wide_mul(p, task, amax, f.x, h, n_tiles);
            mul.y = attend_mma_wide_mul(p, task, amax, f.y, h + 1, n_tiles);
        }
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            if (b % 2 == 0 && p->out_form != MMLA_OUT_FP8_128) {
                const float2 most = attend_mma_amax(o, b);
                uint32_t byte[2];
                mul.x = attend_mma_out_mul(most.x, f.x, &byte[0]);
                mul.y = attend_mma_out_mul(most.y, f.y, &byte[1]);
                if (head < p->n_heads) { /* the same for all lanes */
                    attend_mma_store_ue8m0(p, task->token, head, 2 * warp + b / 2, byte[0],
                                           byte[1]);
                }
            }
            attend_mma_put_codes(o[b], mul.x, mul.y, rows + lane / 4 * attend_mma_out_pitch(1), b);
        }
    }
}

/* A warp's rows of results to out. */
GPU_DEVICE void attend_mma_copy_out(const attend_mma_params *p,
                                    const attend_mma_task *task,
                                    const uint8_t *slots,
                                    const int32_t element_bytes,
                                    const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_chunks = ATTEND_MMA_WARP_DIMS * element_bytes / ATTEND_MMA_CHUNK_BYTES;
    uint8_t *out = p->out + task->token * p->n_heads * MMLA_LATENT_DIM * element_bytes;
#pragma unroll 2
    for (int32_t i = lane; i < 8 * n_tiles * row_chunks; i += 32) {
        const int32_t h = i / row_chunks, c = i % row_chunks, head = task->first_head + h;
        if (head < p->n_heads) {
            const int32_t x =
                ATTEND_MMA_WARP_DIMS * warp + c * ATTEND_MMA_CHUNK_BYTES / element_bytes;
            const int64_t at = p->out_form == MMLA_OUT_FP8_PERMUTED
                                   ? mmla_out_permuted_index(head, x)
                                   : (int64_t)head * MMLA_LATENT_DIM + x;
            const uint8_t *row =
                slots + h / 8 * ATTEND_MMA_SLOT_BYTES + h % 8 * attend_mma_out_pitch(element_bytes);
            *(uint4 *)(out + at * element_bytes) =
                *(const uint4 *)(row + c * ATTEND_MMA_CHUNK_BYTES);
        }
    }
}

/* O of the warps of task->pairs to out and out_scale. All of shared memory but the state is free. All
 * threads come here. */
GPU_DEVICE void attend_mma_store(const attend_mma_params *p,
                                 const attend_mma_task *task,
                                 const attend_mma_output *out,
                                 uint8_t *smem,
                                 const int32_t keys,
                                 const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t warp = threadIdx.x / 32;
    float *state = (float *)(smem + attend_mma_smem_get(keys, n_tiles).state);
    float *amax = state + at.sum; /* [warps][heads] */
    uint8_t *slots = smem + attend_mma_slots_off(warp, keys, n_tiles);
    attend_mma_park(out, slots, n_tiles);
    if (p->rotate && task->position >= 0 && warp == ATTEND_MMA_WARPS - 1) {
        attend_mma_rotate_back(slots, p->cos_sin + task->position * MMLA_ROPE_DIM, n_tiles);
    }
    if (p->out_form == MMLA_OUT_FP8_128) {
        attend_mma_wide_amax(slots, amax, n_tiles);
        __syncthreads();
    }
    if ((task->pairs >> (warp / 2) & 1) == 0) {
        return;
    }
    attend_mma_cast(p, task, slots, state + at.factor, amax, n_tiles);
    __syncwarp();
    if (p->out_form == MMLA_OUT_BF16) {
        attend_mma_copy_out(p, task, slots, 2, n_tiles);
    } else {
        attend_mma_copy_out(p, task, slots, 1, n_tiles);
    }
}

#undef GPU_DEVICE

#endif
