/* attend_wgmma_math.cuh - the multiplying warpgroups of attend_wgmma_kernel.cu.
 *
 *     scores     S [64 heads][64 keys] = q tile . K tile        softmax, probabilities to smem
 *     sums       O [64 heads][dims 0 .. 255] += prob . K tile   and another one, dims 256 .. 511
 *
 * A thread has two heads, rows g and g + 8 of its warp's sixteen, of S and of O. The maximum that
 * scores are taken against rises only when one exceeds it by 2^ATTEND_WGMMA_SLACK, so that O has to
 * be multiplied seldom; probabilities are at most that large, which costs no accuracy in floating
 * point. Both warpgroups skip the same multiplications, because the factor tells them.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_MATH_CUH
#define MMLA_GPU_ATTEND_WGMMA_MATH_CUH

#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_load.cuh"
#include "gpu/barrier.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

#define ATTEND_WGMMA_SLACK 8.0f

enum {
    ATTEND_WGMMA_SCORES = ATTEND_WGMMA_HEADS * ATTEND_WGMMA_KEYS / 128, /* of a thread */
    ATTEND_WGMMA_SUMS = ATTEND_WGMMA_HEADS * ATTEND_WGMMA_GROUP_DIMS / 128
};

/* Of a thread's two heads. l is the sum over the thread's own keys. */
typedef struct attend_wgmma_softmax {
    float logit[2];   /* factor of the scores, base 2 */
    float reference[2]; /* what scores are taken against */
    float maximum[2];
    float l[2];
    bool has_keys;
} attend_wgmma_softmax;

/* Scores of a block: S = q . K^T over 512 dims. */
GPU_DEVICE void
attend_wgmma_scores(float s[ATTEND_WGMMA_SCORES], uint32_t q_tile, uint32_t k_tile) {
    const uint64_t q = gpu_wgmma_tile(q_tile), k = gpu_wgmma_tile(k_tile);
    gpu_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < MMLA_LATENT_DIM / GPU_WGMMA_DEPTH; i++) {
        enum { STEPS = ATTEND_WGMMA_COLUMN_DIMS / GPU_WGMMA_DEPTH };
        const uint64_t off =
            i / STEPS * (ATTEND_WGMMA_COLUMN_BYTES >> 4) + i % STEPS * GPU_WGMMA_STEP;
        gpu_wgmma_n64(s, q + off, k + off, i != 0);
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait();
    gpu_wgmma_use(s, ATTEND_WGMMA_SCORES);
}

/* O += prob . K, the warpgroup's 256 dims. */
GPU_DEVICE void
attend_wgmma_accumulate(float o[ATTEND_WGMMA_SUMS], uint32_t prob, uint32_t k_tile, int32_t half) {
    const uint64_t p = gpu_wgmma_tile(prob);
    const uint64_t k = gpu_wgmma_tile_across(
        k_tile + half * (ATTEND_WGMMA_TILE_BYTES / 2), ATTEND_WGMMA_COLUMN_BYTES);
    gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
    gpu_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_KEYS / GPU_WGMMA_DEPTH; i++) {
        const uint64_t keys = k + i * GPU_WGMMA_STEP_ACROSS;
        gpu_wgmma_n128_across(o, p + i * GPU_WGMMA_STEP, keys);
        gpu_wgmma_n128_across(o + ATTEND_WGMMA_SUMS / 2, p + i * GPU_WGMMA_STEP,
                              keys + (2 * ATTEND_WGMMA_COLUMN_BYTES >> 4));
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait();
    gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
}

/* O times the factors of the thread's two heads, when any of the warp's is not 1. */
GPU_DEVICE void attend_wgmma_rescale(float o[ATTEND_WGMMA_SUMS], float alpha0, float alpha1) {
    if (!__any_sync(~0u, alpha0 != 1.0f || alpha1 != 1.0f)) {
        return;
    }
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i++) {
        o[i] *= i / 2 % 2 == 0 ? alpha0 : alpha1;
    }
}

/* Largest of four neighbours' values, which share two heads. */
GPU_DEVICE float attend_wgmma_quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

GPU_DEVICE float attend_wgmma_quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Scores to probabilities, in place, and the factors of O. What is no key has probability 0; a NaN
 * score is no maximum, and makes its head's sum NaN. */
GPU_DEVICE void attend_wgmma_softmax_step(float s[ATTEND_WGMMA_SCORES],
                                          attend_wgmma_softmax *sm,
                                          uint64_t valid,
                                          float tile_scale,
                                          float alpha[2]) {
    const int32_t u = threadIdx.x % 4;
    sm->has_keys |= valid != 0;
    const uint32_t keys[2] = {(uint32_t)valid >> 2 * u, (uint32_t)(valid >> 32) >> 2 * u};
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i++) {
        const int32_t key = attend_wgmma_sum_column(0, i);
        const bool is_key = (keys[key / 32] >> key % 32 & 1) != 0;
        s[i] = is_key ? s[i] * tile_scale : -INFINITY;
        most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
    }
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        sm->maximum[r] = fmaxf(sm->maximum[r], attend_wgmma_quad_max(most[r]));
        alpha[r] = 1.0f;
        if ((sm->maximum[r] - sm->reference[r]) * sm->logit[r] > ATTEND_WGMMA_SLACK) {
            alpha[r] = gpu_exp2((sm->reference[r] - sm->maximum[r]) * sm->logit[r]);
            sm->reference[r] = sm->maximum[r];
            sm->l[r] *= alpha[r];
        }
        /* Before any finite score the reference is -inf, which must not be subtracted. */
        const float reference =
            sm->reference[r] == -INFINITY ? 0.0f : sm->reference[r] * sm->logit[r];
#pragma unroll
        for (int32_t i = 2 * r; i < ATTEND_WGMMA_SCORES; i += 4) {
            s[i] = gpu_exp2(fmaf(s[i], sm->logit[r], -reference));
            s[i + 1] = gpu_exp2(fmaf(s[i + 1], sm->logit[r], -reference));
            sm->l[r] += s[i] + s[i + 1];
        }
    }
}

/* Probabilities, times the scale of the block's rows, to their tile. */
GPU_DEVICE void attend_wgmma_put_probabilities(const float s[ATTEND_WGMMA_SCORES],
                                               float tile_scale,
                                               uint32_t tile) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row = 16 * warp + lane % 16;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i += 8) { /* 16 keys: four matrices of 8 x 8 */
        uint32_t p[4];
#pragma unroll
        for (int32_t k = 0; k < 4; k++) {
            p[k] = gpu_bf16x2_from_f32x2(s[i + 2 * k] * tile_scale, s[i + 2 * k + 1] * tile_scale);
        }
        gpu_stmatrix_x4(tile + attend_wgmma_chunk_off(row, i / 4 + lane / 16), p);
    }
}

/* q of a task to its tile, rotated, and the factors of its logits. All threads of the warpgroup come
 * here, and nobody reads the tile any more. */
GPU_DEVICE void attend_wgmma_load_q(const attend_mma_params *p,
                                    const attend_wgmma_task *task,
                                    uint8_t *tile,
                                    float *logit) {
    enum { PAIRS = MMLA_ROPE_DIM / 2, FIRST = MMLA_LATENT_DIM - MMLA_ROPE_DIM };
    const uint16_t *q = p->q + task->token * p->q_token_stride;
    const uint32_t to = gpu_smem_address(tile);
    const int32_t heads = task->n_heads;
    const bool fused = p->q_layout == MMLA_Q_FUSED;
#pragma unroll 4
    for (int32_t i = threadIdx.x; i < heads * 64; i += ATTEND_WGMMA_GROUP) {
        /* Neighbouring threads take what lies side by side in memory: in the fused layout the two
         * chunks of 16 dims, then the next head; else the chunks of one head. */
        const int32_t h = fused ? i / 2 % heads : i / 64;
        const int32_t c = fused ? i / (2 * heads) * 2 + i % 2 : i % 64;
        const int64_t at = mmla_q_index(p->q_layout, p->n_heads, task->first_head + h,
                                        c * ATTEND_WGMMA_CHUNK_DIMS);
        gpu_cp_async16(to + attend_wgmma_chunk_off(h, c), q + at);
    }
    gpu_cp_async_commit();
    for (int32_t h = threadIdx.x / 32; h < heads; h += ATTEND_WGMMA_GROUP / 32) {
        const float factor = attend_mma_logit_factor(p, task->token, task->first_head + h);
        if (threadIdx.x % 32 == 0) {
            logit[h] = factor;
        }
    }
    gpu_cp_async_wait(0);
    if (p->rotate && task->position >= 0) {
        const float *cos_sin = p->cos_sin + (int64_t)task->position * MMLA_ROPE_DIM;
        const float c = cos_sin[threadIdx.x % PAIRS], s = cos_sin[PAIRS + threadIdx.x % PAIRS];
        const int32_t x = FIRST + 2 * (threadIdx.x % PAIRS);
        gpu_warps_sync(2, ATTEND_WGMMA_GROUP);
        for (int32_t h = threadIdx.x / PAIRS; h < heads; h += ATTEND_WGMMA_GROUP / PAIRS) {
            uint32_t *at = (uint32_t *)(tile +
                                        attend_wgmma_chunk_off(h, x / ATTEND_WGMMA_CHUNK_DIMS) +
                                        x % ATTEND_WGMMA_CHUNK_DIMS * 2);
            float2 pair = gpu_f32x2_from_bf16x2(*at);
            mmla_rope_rotate(c, s, &pair.x, &pair.y);
            *at = gpu_bf16x2_from_f32x2(pair.x, pair.y);
        }
    }
    gpu_fence_async();
    gpu_warps_sync(2, ATTEND_WGMMA_GROUP);
}

/* Scores and probabilities of a task's blocks, the first of which is the CTA's number `turn`. */
GPU_DEVICE void attend_wgmma_probabilities(attend_wgmma_state *state,
                                           uint8_t *smem,
                                           uint32_t turn,
                                           int32_t n_blocks,
                                           attend_wgmma_softmax *sm) {
    const uint32_t tiles = gpu_smem_address(smem);
    const int32_t head = attend_wgmma_sum_row(threadIdx.x, 0);
    for (int32_t b = 0; b < n_blocks; b++, turn++) {
        const int32_t stage = turn % ATTEND_WGMMA_STAGES;
        gpu_barrier_wait(gpu_smem_address(&state->full[stage]), turn / ATTEND_WGMMA_STAGES & 1);
        float s[ATTEND_WGMMA_SCORES], alpha[2];
        attend_wgmma_scores(s, tiles + ATTEND_WGMMA_AT_Q,
                            tiles + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES);
        const float tile_scale = state->tile_scale[stage];
        attend_wgmma_softmax_step(s, sm, state->valid[stage], tile_scale, alpha);
        if (threadIdx.x % 4 == 0) {
            state->alpha[stage][head] = alpha[0];
            state->alpha[stage][head + 8] = alpha[1];
        }
        attend_wgmma_put_probabilities(s, tile_scale,
                                       tiles + ATTEND_WGMMA_AT_PROB +
                                           stage * ATTEND_WGMMA_COLUMN_BYTES);
        gpu_fence_async();
        gpu_barrier_arrive(gpu_smem_address(&state->prob_full[stage]));
    }
}

/* O over the same blocks, half of the dims. */
GPU_DEVICE void attend_wgmma_sum(attend_wgmma_state *state,
                                 uint8_t *smem,
                                 uint32_t turn,
                                 int32_t n_blocks,
                                 float o[ATTEND_WGMMA_SUMS]) {
    const uint32_t tiles = gpu_smem_address(smem);
    const int32_t thread = threadIdx.x - ATTEND_WGMMA_SUM_FIRST;
    const int32_t half = thread / ATTEND_WGMMA_GROUP;
    const int32_t head = attend_wgmma_sum_row(thread % ATTEND_WGMMA_GROUP, 0);
    for (int32_t b = 0; b < n_blocks; b++, turn++) {
        const int32_t stage = turn % ATTEND_WGMMA_STAGES;
        gpu_barrier_wait(gpu_smem_address(&state->prob_full[stage]),
                         turn / ATTEND_WGMMA_STAGES & 1);
        attend_wgmma_rescale(o, state->alpha[stage][head], state->alpha[stage][head + 8]);
        attend_wgmma_accumulate(o,
                                tiles + ATTEND_WGMMA_AT_PROB + stage * ATTEND_WGMMA_COLUMN_BYTES,
                                tiles + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES,
                                half);
        if (threadIdx.x % 32 == 0) {
            gpu_barrier_arrive(gpu_smem_address(&state->empty[stage]));
        }
    }
}

#undef GPU_DEVICE

#endif
