/* attend_mma_math.cuh - what attend_mma_kernel.cu computes with a block of keys: rotation of q, scores,
 * softmax, output sums.
 *
 *     scores^T [keys][heads] = K tile [keys][512] . q tile^T          heads are the narrow side, 8 of them
 *     O^T      [512][heads] += K tile^T [512][keys] . prob [keys][heads]   a matrix instruction
 *
 * Eight warps. For the scores they form `row_warps` groups of 16 keys times `dim_parts` parts of the
 * 512 dims; the warps of part 0 add the parts, take the maximum and write probabilities. For O each
 * warp owns 64 dims and keeps its sums in registers for the whole walk.
 */
#ifndef MMLA_GPU_ATTEND_MMA_MATH_CUH
#define MMLA_GPU_ATTEND_MMA_MATH_CUH

#include "gpu/async.cuh"
#include "gpu/attend_mma.h"
#include "gpu/convert.cuh"
#include "gpu/mma.cuh"
#include "num/bf16.h"
#include "num/rope.h"

#define GPU_DEVICE static __device__ __forceinline__

/* Sums of the two heads a thread of part 0 holds in every group of 8, over its rows. */
typedef struct attend_mma_softmax {
    float l[ATTEND_MMA_TILES_MAX][2];
} attend_mma_softmax;

/* A warp's share of O^T, as fragments: 4 blocks of 16 dims, groups of 8 heads. */
typedef struct attend_mma_output {
    float o[ATTEND_MMA_WARP_BLOCKS][ATTEND_MMA_TILES_MAX][4];
} attend_mma_output;

/* Rotates the last 64 dims of every row of the q tile, in place, and rounds to bf16. A thread turns
 * the same pair of dims in every row it comes to; c and s are that pair's. */
GPU_DEVICE void attend_mma_rotate_q(uint8_t *tile, float c, float s, const int32_t n_tiles) {
    enum { PAIRS = MMLA_ROPE_DIM / 2, FIRST = MMLA_LATENT_DIM - MMLA_ROPE_DIM };
    static_assert(ATTEND_MMA_THREADS % PAIRS == 0, "a thread keeps its pair");
    const int32_t x = FIRST + 2 * (threadIdx.x % PAIRS);
#pragma unroll 2
    for (int32_t h = threadIdx.x / PAIRS; h < 8 * n_tiles; h += ATTEND_MMA_THREADS / PAIRS) {
        uint32_t *at = (uint32_t *)(tile + attend_mma_chunk_off(h, x / ATTEND_MMA_CHUNK_DIMS) +
                                    2 * (x % ATTEND_MMA_CHUNK_DIMS));
        float2 q = gpu_f32x2_from_bf16x2(*at);
        mmla_rope_rotate(c, s, &q.x, &q.y);
        *at = gpu_bf16x2_from_f32x2(q.x, q.y);
    }
}

/* Factor of a head's logits in base 2: the scale, and with q_norm that of the head's q. Asked by all
 * threads of a warp, which all get it; of a head that does not exist it is the scale. */
GPU_DEVICE float attend_mma_logit_factor(const attend_mma_params *p, int64_t token, int32_t head) {
    if (p->norm_q == NULL || head >= p->n_heads) {
        return p->scale_log2e;
    }
    const uint16_t *q = p->norm_q + token * p->norm_q_token_stride;
    float sum = 0.0f;
    for (int32_t x = 2 * (threadIdx.x % 32); x < MMLA_LATENT_DIM; x += 64) {
        const int64_t at = mmla_q_index(p->norm_q_layout, p->n_heads, head, x);
        const float2 pair = gpu_f32x2_from_bf16x2(*(const uint32_t *)(q + at));
        sum = fmaf(pair.x, pair.x, fmaf(pair.y, pair.y, sum));
    }
    for (int32_t step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    return p->scale_log2e / sqrtf(sum / MMLA_LATENT_DIM + p->q_norm_eps);
}

GPU_DEVICE void attend_mma_logit_factors(const attend_mma_params *p,
                                         int64_t token,
                                         int32_t first_head,
                                         float *logit,
                                         const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int32_t h = warp; h < 8 * n_tiles; h += ATTEND_MMA_WARPS) {
        const float factor = attend_mma_logit_factor(p, token, first_head + h);
        if (lane == 0) {
            logit[h] = factor;
        }
    }
}

/* Four chunks (32 dims) of attend_mma_scores. */
GPU_DEVICE void attend_mma_scores_step(float s[ATTEND_MMA_TILES_MAX][4],
                                       uint32_t k_tile,
                                       uint32_t q_tile,
                                       int32_t key,
                                       int32_t c,
                                       const int32_t n_tiles) {
    const int32_t lane = threadIdx.x % 32;
    uint32_t a[2][4];
    gpu_ldmatrix_x4(a[0], k_tile + attend_mma_chunk_off(key, c + attend_mma_a_chunk(lane)));
    gpu_ldmatrix_x4(a[1], k_tile + attend_mma_chunk_off(key, c + 2 + attend_mma_a_chunk(lane)));
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        uint32_t b[4]; /* 8 heads, 4 chunks */
        gpu_ldmatrix_x4(b, q_tile + attend_mma_chunk_off(8 * t + lane % 8, c + lane / 8));
        gpu_mma_bf16(s[t], a[0], b);
        gpu_mma_bf16(s[t], a[1], b + 2);
    }
}

/* Scores of 16 keys over one part of the dims: fragments of scores^T. */
GPU_DEVICE void attend_mma_scores(float s[ATTEND_MMA_TILES_MAX][4],
                                  uint32_t k_tile,
                                  uint32_t q_tile,
                                  const int32_t keys,
                                  const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_warps = keys / 16;
    const int32_t part_chunks = ATTEND_MMA_ROW_CHUNKS / ATTEND_MMA_WARPS * row_warps;
    const int32_t key = warp % row_warps * 16 + attend_mma_a_row(lane);
    const int32_t first = warp / row_warps * part_chunks;
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            s[t][i] = 0.0f;
        }
    }
    if (n_tiles <= 4) { /* there are registers to have several steps under way */
#pragma unroll 4
        for (int32_t c = first; c < first + part_chunks; c += 4) {
            attend_mma_scores_step(s, k_tile, q_tile, key, c, n_tiles);
        }
    } else {
#pragma unroll 1
        for (int32_t c = first; c < first + part_chunks; c += 4) {
            attend_mma_scores_step(s, k_tile, q_tile, key, c, n_tiles);
        }
    }
}

/* Part 0 collects the sums of the others, in order. All threads come here. */
GPU_DEVICE void attend_mma_add_parts(float s[ATTEND_MMA_TILES_MAX][4],
                                     float4 *parts,
                                     const int32_t keys,
                                     const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_warps = keys / 16, dim_parts = ATTEND_MMA_WARPS / row_warps;
    if (warp >= row_warps) {
        float4 *to = parts + (warp - row_warps) * n_tiles * 32 + lane;
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t++) {
            to[t * 32] = make_float4(s[t][0], s[t][1], s[t][2], s[t][3]);
        }
    }
    __syncthreads();
    if (warp >= row_warps) {
        return;
    }
#pragma unroll
    for (int32_t part = 1; part < dim_parts; part++) {
        const float4 *from = parts + ((part - 1) * row_warps + warp) * n_tiles * 32 + lane;
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t++) {
            const float4 more = from[t * 32];
            s[t][0] += more.x;
            s[t][1] += more.y;
            s[t][2] += more.z;
            s[t][3] += more.w;
        }
    }
}

/* The factor of what was summed under an older maximum. */
GPU_DEVICE float attend_mma_alpha(float before, float now, float logit) {
    return before == now ? 1.0f : gpu_exp2((before - now) * logit);
}

/* Scores made ready, by the warps of part 0: what is no key becomes -inf, tile_scale undoes the scale of
 * the K tile's rows; and the maximum of the warp's 16 keys for every head. `valid` says which rows are
 * keys. A NaN score is no maximum. */
GPU_DEVICE void attend_mma_maxima(float s[ATTEND_MMA_TILES_MAX][4],
                                  const int32_t *valid,
                                  float tile_scale,
                                  float *state,
                                  const int32_t keys,
                                  const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row = warp * 16 + lane / 4, heads = 8 * n_tiles;
    const bool is_key[2] = {valid[row] != 0, valid[row + 8] != 0};
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            s[t][j] = is_key[0] ? s[t][j] * tile_scale : -INFINITY;
            s[t][j + 2] = is_key[1] ? s[t][j + 2] * tile_scale : -INFINITY;
            float m = fmaxf(s[t][j], s[t][j + 2]);
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 4));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 8));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 16));
            if (lane < 4) {
                state[at.maximum + warp * heads + 8 * t + 2 * lane + j] = m;
            }
        }
    }
}

/* Scores to probabilities, by the same warps: raises the maxima, writes prob and alpha. What goes to
 * prob has the K tile's scale undone as well. A NaN score reaches the sum. */
GPU_DEVICE void attend_mma_probabilities(float s[ATTEND_MMA_TILES_MAX][4],
                                         attend_mma_softmax *sm,
                                         const int32_t *valid,
                                         int32_t turn,
                                         float tile_scale,
                                         float *state,
                                         uint8_t *prob,
                                         const int32_t keys,
                                         const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_warps = keys / 16, row = warp * 16 + lane / 4, heads = 8 * n_tiles;
    const bool is_key[2] = {valid[row] != 0, valid[row + 8] != 0};
    const int32_t pitch = attend_mma_prob_pitch(n_tiles);
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        float p[4];
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            const int32_t head = 8 * t + 2 * (lane % 4) + j;
            const float logit = state[at.logit + head];
            const float before = state[at.running + turn * heads + head];
            float m = before;
#pragma unroll
            for (int32_t w = 0; w < row_warps; w++) {
                m = fmaxf(m, state[at.maximum + w * heads + head]);
            }
            const float alpha = attend_mma_alpha(before, m, logit);
            const float shift = m == -INFINITY ? 0.0f : m;
            p[j] = is_key[0] ? gpu_exp2((s[t][j] - shift) * logit) : 0.0f;
            p[j + 2] = is_key[1] ? gpu_exp2((s[t][j + 2] - shift) * logit) : 0.0f;
            sm->l[t][j] = fmaf(sm->l[t][j], alpha, p[j] + p[j + 2]);
            if (warp == 0 && lane < 4) {
                state[at.alpha + head] = alpha;
                state[at.running + (turn ^ 1) * heads + head] = m;
            }
        }
        uint8_t *to = prob + row * pitch + t * ATTEND_MMA_CHUNK_BYTES + 4 * (lane % 4);
        *(uint32_t *)to = gpu_bf16x2_from_f32x2(p[0] * tile_scale, p[1] * tile_scale);
        *(uint32_t *)(to + 8 * pitch) = gpu_bf16x2_from_f32x2(p[2] * tile_scale, p[3] * tile_scale);
    }
}

/* O^T = alpha O^T + K^T prob, the warp's 64 dims. */
GPU_DEVICE void attend_mma_accumulate(attend_mma_output *out,
                                      uint32_t k_tile,
                                      uint32_t prob,
                                      const float *alpha,
                                      const int32_t keys,
                                      const int32_t n_tiles) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t pitch = attend_mma_prob_pitch(n_tiles);
    const int32_t chunk =
        warp * (ATTEND_MMA_WARP_DIMS / ATTEND_MMA_CHUNK_DIMS) + attend_mma_at_chunk(lane);
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        const float2 factor = *(const float2 *)(alpha + 8 * t + 2 * (lane % 4));
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            out->o[b][t][0] *= factor.x;
            out->o[b][t][1] *= factor.y;
            out->o[b][t][2] *= factor.x;
            out->o[b][t][3] *= factor.y;
        }
    }
#pragma unroll 1 /* more hides no more and costs registers */
    for (int32_t key = 0; key < keys; key += 16) {
        uint32_t a[ATTEND_MMA_WARP_BLOCKS][4];
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            gpu_ldmatrix_x4_trans(
                a[b], k_tile + attend_mma_chunk_off(key + attend_mma_at_row(lane), chunk + 2 * b));
        }
        const uint32_t row = prob + (key + attend_mma_a_row(lane)) * pitch;
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t += 2) {
            uint32_t p[4]; /* 16 keys, 8 heads and the next 8 */
            if (t + 1 < n_tiles) {
                gpu_ldmatrix_x4_trans(p, row + (t + attend_mma_a_chunk(lane)) *
                                                   ATTEND_MMA_CHUNK_BYTES);
            } else {
                gpu_ldmatrix_x2_trans(p, row + t * ATTEND_MMA_CHUNK_BYTES);
            }
#pragma unroll
            for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
                gpu_mma_bf16(out->o[b][t], a[b], p);
                if (t + 1 < n_tiles) {
                    gpu_mma_bf16(out->o[b][t + 1], a[b], p + 2);
                }
            }
        }
    }
}

#undef GPU_DEVICE

#endif
