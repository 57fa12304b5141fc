/* attend_wgmma_math.cuh - the multiplying warpgroups of attend_wgmma_kernel.cu.
 *
 *     the first    S [64 heads][64 keys] = q tile . K tile      softmax, probabilities to smem
 *                  O [64 heads][dims 0 .. 255] += prob . K tile
 *     the second   O [64 heads][dims 256 .. 511] += prob . K tile
 *                  q of the next task to its tile, once the last scores are done
 *
 * A thread has two heads, rows g and g + 8 of its warp's sixteen, of S and of O. The maximum that
 * scores are taken against rises only when one exceeds it by 2^ATTEND_WGMMA_SLACK, so that O has to
 * be multiplied seldom; probabilities are at most that large, which costs no accuracy in floating
 * point. Both warpgroups skip the same multiplications, because the factor tells them.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_MATH_CUH
#define MMLA_GPU_ATTEND_WGMMA_MATH_CUH

#include <float.h>

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
    float logit[2];     /* factor of the scores, base 2 */
    float reference[2]; /* what logits are taken against */
    float l[2];
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
    const uint64_t k = gpu_wgmma_tile_across(k_tile + half * (ATTEND_WGMMA_TILE_BYTES / 2),
                                             ATTEND_WGMMA_COLUMN_BYTES);
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

/* What is no key gets no probability. */
GPU_DEVICE void attend_wgmma_mask(float s[ATTEND_WGMMA_SCORES], uint64_t valid) {
    const int32_t u = threadIdx.x % 4;
    const uint32_t keys[2] = {(uint32_t)valid >> 2 * u, (uint32_t)(valid >> 32) >> 2 * u};
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i++) {
        const int32_t key = attend_wgmma_sum_column(0, i);
        s[i] = (keys[key / 32] >> key % 32 & 1) != 0 ? s[i] : -INFINITY;
    }
}

/* Scores to probabilities times 2^log2_scale, in place, and the factors of O. The rows of the tile are to
 * be multiplied with that, so the scores are, too. A NaN score is no maximum, and makes its head's sum
 * NaN. `maximum` and `alpha` are of the thread's first head, the other's are eight further on. */
GPU_DEVICE void attend_wgmma_softmax_step(float s[ATTEND_WGMMA_SCORES],
                                          attend_wgmma_softmax *sm,
                                          float log2_scale,
                                          float *maximum,
                                          float *alpha) {
    const float scale = exp2f(log2_scale), inverse = exp2f(-log2_scale);
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        const float logit = sm->logit[r] * scale;
        float most = -INFINITY;
#pragma unroll
        for (int32_t i = 2 * r; i < ATTEND_WGMMA_SCORES; i += 4) {
            most = fmaxf(most, fmaxf(s[i], s[i + 1]));
        }
        most = attend_wgmma_quad_max(most) * logit;
        float factor = 1.0f;
        if (most - sm->reference[r] > ATTEND_WGMMA_SLACK) {
            factor = gpu_exp2(sm->reference[r] - most);
            sm->reference[r] = most;
            sm->l[r] *= factor;
        }
        if (threadIdx.x % 4 == 0) {
            maximum[8 * r] = fmaxf(maximum[8 * r], most);
            alpha[8 * r] = factor;
        }
        /* Before any finite score the reference is -inf, which must not be subtracted. */
        const float subtract =
            (sm->reference[r] == -INFINITY ? 0.0f : sm->reference[r]) - log2_scale;
        float sum = 0.0f;
#pragma unroll
        for (int32_t i = 2 * r; i < ATTEND_WGMMA_SCORES; i += 4) {
            s[i] = gpu_exp2(fmaf(s[i], logit, -subtract));
            s[i + 1] = gpu_exp2(fmaf(s[i + 1], logit, -subtract));
            sum += s[i] + s[i + 1];
        }
        sm->l[r] = fmaf(sum, inverse, sm->l[r]);
    }
}

/* Probabilities to their tile. */
GPU_DEVICE void attend_wgmma_put_probabilities(const float s[ATTEND_WGMMA_SCORES], uint32_t tile) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row = 16 * warp + lane % 16;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i += 8) { /* 16 keys: four matrices of 8 x 8 */
        uint32_t p[4];
#pragma unroll
        for (int32_t k = 0; k < 4; k++) {
            p[k] = gpu_bf16x2_from_f32x2(s[i + 2 * k], s[i + 2 * k + 1]);
        }
        gpu_stmatrix_x4(tile + attend_wgmma_chunk_off(row, i / 4 + lane / 16), p);
    }
}

/* Starts copying q of a task to its tile, by one warpgroup. Neighbouring threads take what lies side by side in memory: in
 * the fused layout the two chunks of 16 dims, then the next head; else the chunks of one head. */
GPU_DEVICE void
attend_wgmma_fetch_q(const attend_mma_params *p, const attend_wgmma_task *task, uint32_t tile) {
    enum { CHUNKS = MMLA_LATENT_DIM / ATTEND_WGMMA_CHUNK_DIMS };
    const uint16_t *q = p->q + task->token * p->q_token_stride;
    const int32_t heads = task->n_heads, thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    if (p->q_layout == MMLA_Q_FUSED) {
        /* Threads left over by few heads start with later columns. */
        const int32_t starts = ATTEND_WGMMA_GROUP / 2 / heads, pair = thread % 2;
        const int32_t h = thread / 2 % heads, start = thread / 2 / heads;
        const int32_t step = p->n_heads * 2 * ATTEND_WGMMA_CHUNK_DIMS; /* to the next 16 dims */
        q += mmla_q_index(MMLA_Q_FUSED, p->n_heads, task->first_head + h,
                          start * ATTEND_WGMMA_COLUMN_DIMS + pair * ATTEND_WGMMA_CHUNK_DIMS);
        for (int32_t column = start; start < starts && column < ATTEND_WGMMA_COLUMNS;
             column += starts) {
#pragma unroll
            for (int32_t k = 0; k < ATTEND_WGMMA_COLUMN_DIMS / 16; k++) {
                gpu_cp_async16(tile + column * ATTEND_WGMMA_COLUMN_BYTES +
                                   attend_wgmma_chunk_off(h, 2 * k + pair),
                               q + k * step);
            }
            q += starts * (ATTEND_WGMMA_COLUMN_DIMS / 16) * step;
        }
        return;
    }
    const int32_t c = thread % CHUNKS;
    q += c * ATTEND_WGMMA_CHUNK_DIMS;
#pragma unroll 4
    for (int32_t h = thread / CHUNKS; h < heads; h += ATTEND_WGMMA_GROUP / CHUNKS) {
        gpu_cp_async16(tile + attend_wgmma_chunk_off(h, c),
                       q + mmla_q_index(MMLA_Q_STANDARD, p->n_heads, task->first_head + h, 0));
    }
}

/* Waits for q, rotates it in its tile, and finds the factors of its logits. */
GPU_DEVICE void attend_wgmma_finish_q(const attend_mma_params *p,
                                      const attend_wgmma_task *task,
                                      attend_wgmma_state *state,
                                      uint8_t *tile) {
    enum { PAIRS = MMLA_ROPE_DIM / 2, FIRST = MMLA_LATENT_DIM - MMLA_ROPE_DIM };
    const int32_t thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    if (p->norm_q == NULL && thread < ATTEND_WGMMA_HEADS) {
        state->logit[thread] = p->scale_log2e;
    }
    for (int32_t h = thread / 32; p->norm_q != NULL && h < task->n_heads;
         h += ATTEND_WGMMA_GROUP / 32) {
        const float factor = attend_mma_logit_factor(p, task->token, task->first_head + h);
        if (thread % 32 == 0) {
            /* Of a q so large that its square is infinite it would be 0, and 0 times the -inf of what is no
             * key would be NaN. */
            state->logit[h] = fmaxf(factor, FLT_MIN);
        }
    }
    const bool rotate = p->rotate && task->position >= 0;
    float c = 0.0f, s = 0.0f;
    if (rotate) {
        const float *cos_sin = p->cos_sin + (int64_t)task->position * MMLA_ROPE_DIM;
        c = cos_sin[thread % PAIRS];
        s = cos_sin[PAIRS + thread % PAIRS];
    }
    gpu_cp_async_wait_all();
    if (rotate) {
        const int32_t x = FIRST + 2 * (thread % PAIRS);
        gpu_warps_sync(2, ATTEND_WGMMA_GROUP);
#pragma unroll 4
        for (int32_t h = thread / PAIRS; h < task->n_heads; h += ATTEND_WGMMA_GROUP / PAIRS) {
            uint32_t *at =
                (uint32_t *)(tile + attend_wgmma_chunk_off(h, x / ATTEND_WGMMA_CHUNK_DIMS) +
                             x % ATTEND_WGMMA_CHUNK_DIMS * 2);
            float2 pair = gpu_f32x2_from_bf16x2(*at);
            mmla_rope_rotate(c, s, &pair.x, &pair.y);
            *at = gpu_bf16x2_from_f32x2(pair.x, pair.y);
        }
    }
    gpu_fence_async();
    gpu_barrier_arrive(gpu_smem_address(&state->q_full));
}

/* Scores of the block in a stage, and its probabilities and the factors of O to smem. */
GPU_DEVICE void attend_wgmma_probabilities(attend_wgmma_state *state,
                                           uint32_t q_tile,
                                           uint32_t k_tile,
                                           uint32_t prob,
                                           int32_t stage,
                                           attend_wgmma_softmax *sm) {
    float s[ATTEND_WGMMA_SCORES];
    attend_wgmma_scores(s, q_tile, k_tile);
    const int32_t head = attend_wgmma_sum_row(threadIdx.x, 0);
    const uint64_t valid = state->valid[stage];
    if (valid != 0 && threadIdx.x % 32 == 0) {
        state->has_keys[threadIdx.x / 32] = 1.0f;
    }
    if (valid != ~(uint64_t)0) {
        attend_wgmma_mask(s, valid);
    }
    attend_wgmma_softmax_step(s, sm, state->log2_scale[stage], state->maximum + head,
                              state->alpha[stage] + head);
    attend_wgmma_put_probabilities(s, prob);
    gpu_fence_async();
    gpu_barrier_arrive(gpu_smem_address(&state->prob_full[stage]));
}

#undef GPU_DEVICE

#endif
