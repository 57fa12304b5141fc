/* attend_wgmma_math.cuh - the multiplying warpgroups of attend_wgmma_kernel.cu.
 *
 *     the first    S [64 heads][48 keys] = q tile . K tile      softmax, probabilities to smem
 *                  O [64 heads][dims 0 .. 255] += prob . K tile
 *     the second   O [64 heads][dims 256 .. 511] += prob . K tile
 *
 * The first has scores of a block and sums of the block before under way at the same time, so that
 * the matrix units work during its softmax. Between the start of either and the wait for the
 * second nobody waits at a barrier, or the compiler waits for the products first.
 *
 * A thread has two heads, rows g and g + 8 of its warp's sixteen, of S and of O. The maximum that
 * scores are taken against rises only when one exceeds it by 2^ATTEND_WGMMA_SLACK, so that O has to
 * be multiplied, and the maximum be asked of the four threads of a head, seldom; probabilities are
 * at most that large, which costs no accuracy in floating point. Both warpgroups skip the same
 * multiplications, because the factor tells them.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_MATH_CUH
#define MMLA_GPU_ATTEND_WGMMA_MATH_CUH

#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_tile.h"
#include "gpu/barrier.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

#define ATTEND_WGMMA_SLACK 8.0f

enum {
    ATTEND_WGMMA_SCORES = ATTEND_WGMMA_HEADS * ATTEND_WGMMA_KEYS / 128, /* of a thread */
    ATTEND_WGMMA_SUMS = ATTEND_WGMMA_HEADS * ATTEND_WGMMA_GROUP_DIMS / 128
};

/* Of a thread's two heads. The maximum and the sum l are over the thread's own keys. */
typedef struct attend_wgmma_softmax {
    float logit[2];     /* factor of the scores, base 2 */
    float reference[2]; /* what logits are taken against */
    float maximum[2];
    float l[2];
    float alpha[2]; /* what the sums are to be multiplied with before the next block's */
    bool has_keys;
} attend_wgmma_softmax;

/* Where the tiles and the barriers of the block with number `turn` among all of the CTA are. */
GPU_DEVICE uint32_t attend_wgmma_k_tile(uint32_t tiles, uint32_t turn) {
    return tiles + ATTEND_WGMMA_AT_STAGES + turn % ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES;
}

GPU_DEVICE uint32_t attend_wgmma_prob_tile(uint32_t tiles, uint32_t turn) {
    return tiles + ATTEND_WGMMA_AT_PROB + turn % ATTEND_WGMMA_PROBS * ATTEND_WGMMA_PROB_BYTES;
}

/* By the warpgroup that makes the block's scores. */
GPU_DEVICE void attend_wgmma_wait_full(attend_wgmma_state *state, uint32_t turn) {
    gpu_barrier_wait(gpu_smem_address(&state->full[turn % ATTEND_WGMMA_STAGES]),
                     turn / ATTEND_WGMMA_STAGES & 1);
}

/* By those who multiplied with its keys. */
GPU_DEVICE void attend_wgmma_arrive_empty(attend_wgmma_state *state, uint32_t turn) {
    gpu_barrier_arrive(gpu_smem_address(&state->empty[turn % ATTEND_WGMMA_STAGES]));
}

/* Until both warpgroups have multiplied with the probabilities two blocks before `turn`, whose
 * place it takes. */
GPU_DEVICE void attend_wgmma_wait_prob_empty(attend_wgmma_state *state, uint32_t turn) {
    if (turn >= ATTEND_WGMMA_PROBS) {
        const uint32_t before = turn - ATTEND_WGMMA_PROBS;
        gpu_barrier_wait(gpu_smem_address(&state->empty[before % ATTEND_WGMMA_STAGES]),
                         before / ATTEND_WGMMA_STAGES & 1);
    }
}

GPU_DEVICE void attend_wgmma_wait_prob_full(attend_wgmma_state *state, uint32_t turn) {
    gpu_barrier_wait(gpu_smem_address(&state->prob_full[turn % ATTEND_WGMMA_PROBS]),
                     turn / ATTEND_WGMMA_PROBS & 1);
}

/* Starts the scores of a block: S = q . K^T over 512 dims. */
GPU_DEVICE void
attend_wgmma_scores_begin(float s[ATTEND_WGMMA_SCORES], uint32_t q_tile, uint32_t k_tile) {
    /* Reductions tell the compiler that all threads have the same numbers: descriptors made of them
     * stay in uniform registers, two instructions each instead of eight. */
    const uint64_t q = gpu_wgmma_tile(__reduce_max_sync(~0u, q_tile));
    const uint64_t k = gpu_wgmma_tile(__reduce_max_sync(~0u, k_tile));
#pragma unroll
    for (int32_t i = 0; i < MMLA_LATENT_DIM / GPU_WGMMA_DEPTH; i++) {
        enum { STEPS = ATTEND_WGMMA_COLUMN_DIMS / GPU_WGMMA_DEPTH };
        const uint64_t step = i % STEPS * GPU_WGMMA_STEP;
        gpu_wgmma_n48(s, q + i / STEPS * (ATTEND_WGMMA_Q_COLUMN_BYTES >> 4) + step,
                      k + i / STEPS * (ATTEND_WGMMA_COLUMN_BYTES >> 4) + step, i != 0);
    }
    gpu_wgmma_commit();
}

/* Starts O += prob . K, the warpgroup's 256 dims. */
GPU_DEVICE void
attend_wgmma_sums_begin(float o[ATTEND_WGMMA_SUMS], uint32_t prob, uint32_t k_tile, int32_t half) {
    const uint64_t p =
        gpu_wgmma_matrices(prob, ATTEND_WGMMA_PROB_STEP_BYTES, ATTEND_WGMMA_PROB_MATRIX_BYTES);
    const uint64_t k = gpu_wgmma_tile_across(k_tile + half * (ATTEND_WGMMA_TILE_BYTES / 2),
                                             ATTEND_WGMMA_COLUMN_BYTES);
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_KEYS / GPU_WGMMA_DEPTH; i++) {
        const uint64_t probs = p + i * (2 * ATTEND_WGMMA_PROB_STEP_BYTES >> 4);
        const uint64_t keys = k + i * GPU_WGMMA_STEP_ACROSS;
        gpu_wgmma_n128_across(o, probs, keys);
        gpu_wgmma_n128_across(o + ATTEND_WGMMA_SUMS / 2, probs,
                              keys + (2 * ATTEND_WGMMA_COLUMN_BYTES >> 4));
    }
    gpu_wgmma_commit();
}

/* The sums in the order of the dims, at the end: which registers they are is known, so it costs
 * nothing. */
GPU_DEVICE void attend_wgmma_sums_in_order(float o[ATTEND_WGMMA_SUMS]) {
    float x[ATTEND_WGMMA_SUMS];
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i++) {
        x[i] = o[i];
    }
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i++) {
        o[attend_wgmma_chunk_at(i / 4) * 4 + i % 4] = x[i];
    }
}

static_assert(MMLA_LATENT_DIM / ATTEND_WGMMA_CHUNK_DIMS / 2 % 32 == 0,
              "both halves have their chunks in the same order");

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

enum { ATTEND_WGMMA_MAXIMA_MOST = 4 };

/* Of four maxima that each of four neighbours has, thread u gets the largest of maximum
 * number attend_wgmma_chunk_of(u); n times, ATTEND_WGMMA_MAXIMA_MOST at most, side by side. */
GPU_DEVICE void
attend_wgmma_quad_maxima(const float maxima[][4], float largest[], const int32_t n) {
    const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x / 2 % 2 != 0;
    float a[ATTEND_WGMMA_MAXIMA_MOST], b[ATTEND_WGMMA_MAXIMA_MOST];
#pragma unroll
    for (int32_t i = 0; i < n; i++) {
        a[i] = __shfl_xor_sync(~0u, odd ? maxima[i][0] : maxima[i][2], 1);
        b[i] = __shfl_xor_sync(~0u, odd ? maxima[i][1] : maxima[i][3], 1);
    }
#pragma unroll
    for (int32_t i = 0; i < n; i++) {
        a[i] = fmaxf(odd ? maxima[i][2] : maxima[i][0], a[i]);
        b[i] = fmaxf(odd ? maxima[i][3] : maxima[i][1], b[i]);
        largest[i] = __shfl_xor_sync(~0u, high ? a[i] : b[i], 2);
    }
#pragma unroll
    for (int32_t i = 0; i < n; i++) {
        largest[i] = fmaxf(high ? b[i] : a[i], largest[i]);
    }
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

/* Scores to probabilities times 2^log2_scale, in place, and the factors of O. The rows of the tile
 * are to be multiplied with that, so the scores are, too. A NaN score is no maximum, and makes its
 * head's sum NaN. */
GPU_DEVICE void attend_wgmma_softmax_step(float s[ATTEND_WGMMA_SCORES],
                                          attend_wgmma_softmax *sm,
                                          int32_t log2_scale) {
    const float scale = mmla_f32_of_bits((127 + log2_scale) << 23);
    const float inverse = mmla_f32_of_bits((127 - log2_scale) << 23);
    float most[2] = {-INFINITY, -INFINITY}, logit[2], subtract[2], sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i += 2) {
        most[i / 2 % 2] = fmaxf(most[i / 2 % 2], fmaxf(s[i], s[i + 1]));
    }
    bool rises = false;
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        logit[r] = sm->logit[r] * scale;
        most[r] *= logit[r];
        sm->maximum[r] = fmaxf(sm->maximum[r], most[r]);
        sm->alpha[r] = 1.0f;
        rises |= most[r] - sm->reference[r] > ATTEND_WGMMA_SLACK;
    }
    if (__any_sync(~0u, rises)) {
#pragma unroll
        for (int32_t r = 0; r < 2; r++) {
            const float all = attend_wgmma_quad_max(most[r]);
            if (all - sm->reference[r] > ATTEND_WGMMA_SLACK) {
                sm->alpha[r] = gpu_exp2(sm->reference[r] - all);
                sm->reference[r] = all;
            }
        }
    }
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        /* Before any finite score the reference is -inf, which must not be subtracted. */
        subtract[r] = (sm->reference[r] == -INFINITY ? 0.0f : sm->reference[r]) - (float)log2_scale;
    }
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i += 2) {
        const int32_t r = i / 2 % 2;
        s[i] = gpu_exp2(fmaf(s[i], logit[r], -subtract[r]));
        s[i + 1] = gpu_exp2(fmaf(s[i + 1], logit[r], -subtract[r]));
        sum[r] += s[i] + s[i + 1];
    }
    sm->l[0] = fmaf(sum[0], inverse, sm->l[0] * sm->alpha[0]);
    sm->l[1] = fmaf(sum[1], inverse, sm->l[1] * sm->alpha[1]);
}

/* Probabilities to their tile. */
GPU_DEVICE void attend_wgmma_put_probabilities(const float s[ATTEND_WGMMA_SCORES], uint32_t tile) {
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SCORES; i += 8) { /* 16 keys: four matrices of 8 x 8 */
        uint32_t p[4];
#pragma unroll
        for (int32_t k = 0; k < 4; k++) {
            p[k] = gpu_bf16x2_from_f32x2(s[i + 2 * k], s[i + 2 * k + 1]);
        }
        gpu_stmatrix_x4(tile + attend_wgmma_prob_off(16 * warp + lane % 16, i / 4 + lane / 16), p);
    }
}

/* From the scores of block `turn` to its probabilities and factors of O, for both warpgroups. */
GPU_DEVICE void attend_wgmma_probabilities(attend_wgmma_state *state,
                                           uint32_t tiles,
                                           uint32_t turn,
                                           uint64_t valid,
                                           int32_t log2_scale,
                                           float s[ATTEND_WGMMA_SCORES],
                                           attend_wgmma_softmax *sm) {
    const uint32_t prob = turn % ATTEND_WGMMA_PROBS;
    sm->has_keys |= valid != 0;
    attend_wgmma_mask(s, valid);
    attend_wgmma_softmax_step(s, sm, log2_scale);
    const int32_t head = attend_wgmma_sum_row(threadIdx.x, 0);
    if (threadIdx.x % 4 == 0) {
        state->alpha[prob][head] = sm->alpha[0];
        state->alpha[prob][head + 8] = sm->alpha[1];
    }
    attend_wgmma_put_probabilities(s, attend_wgmma_prob_tile(tiles, turn));
    gpu_fence_async();
    gpu_barrier_arrive(gpu_smem_address(&state->prob_full[prob]));
}

/* The blocks of a task, of which there is at least one, by the first warpgroup; `turn` is the
 * number of the first. Tells that q is read once the last scores are there. When it returns, the sums
 * of the last block are under way, and the softmax is whole. */
GPU_DEVICE void attend_wgmma_first_blocks(attend_wgmma_state *state,
                                          uint32_t tiles,
                                          uint32_t turn,
                                          int32_t n_blocks,
                                          attend_wgmma_softmax *sm,
                                          float o[ATTEND_WGMMA_SUMS]) {
    float s[ATTEND_WGMMA_SCORES];
    attend_wgmma_wait_full(state, turn);
    attend_wgmma_wait_prob_empty(state, turn);
    gpu_wgmma_begin();
    attend_wgmma_scores_begin(s, tiles + ATTEND_WGMMA_AT_Q, attend_wgmma_k_tile(tiles, turn));
    gpu_wgmma_wait_all();
    gpu_wgmma_use(s, ATTEND_WGMMA_SCORES);
    gpu_barrier_arrive_if(gpu_smem_address(&state->q_empty), n_blocks == 1);
    attend_wgmma_probabilities(state, tiles, turn, state->valid[turn % ATTEND_WGMMA_STAGES],
                               state->log2_scale[turn % ATTEND_WGMMA_STAGES], s, sm);
#pragma unroll 1
    for (const uint32_t last = turn + n_blocks - 1; turn != last; turn++) {
        attend_wgmma_wait_full(state, turn + 1);
        attend_wgmma_wait_prob_empty(state, turn + 1);
        attend_wgmma_wait_prob_full(state, turn);
        /* Loaded before shared memory is busy. */
        const uint64_t valid = state->valid[(turn + 1) % ATTEND_WGMMA_STAGES];
        const int32_t log2_scale = state->log2_scale[(turn + 1) % ATTEND_WGMMA_STAGES];
        attend_wgmma_rescale(o, sm->alpha[0], sm->alpha[1]);
        gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
        gpu_wgmma_begin();
        attend_wgmma_scores_begin(s, tiles + ATTEND_WGMMA_AT_Q,
                                  attend_wgmma_k_tile(tiles, turn + 1));
        attend_wgmma_sums_begin(o, attend_wgmma_prob_tile(tiles, turn),
                                attend_wgmma_k_tile(tiles, turn), 0);
        gpu_wgmma_wait_but_newest();
        gpu_wgmma_use(s, ATTEND_WGMMA_SCORES);
        gpu_barrier_arrive_if(gpu_smem_address(&state->q_empty), turn + 1 == last);
        attend_wgmma_probabilities(state, tiles, turn + 1, valid, log2_scale, s, sm);
        gpu_wgmma_wait_all();
        gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
        attend_wgmma_arrive_empty(state, turn);
    }
    attend_wgmma_wait_prob_full(state, turn);
    attend_wgmma_rescale(o, sm->alpha[0], sm->alpha[1]);
    gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
    gpu_wgmma_begin();
    attend_wgmma_sums_begin(o, attend_wgmma_prob_tile(tiles, turn),
                            attend_wgmma_k_tile(tiles, turn), 0);
}

/* The end of those sums; `turn` is the number of the last block. */
GPU_DEVICE void attend_wgmma_first_blocks_end(attend_wgmma_state *state,
                                              uint32_t turn,
                                              float o[ATTEND_WGMMA_SUMS]) {
    gpu_wgmma_wait_all();
    gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
    attend_wgmma_arrive_empty(state, turn);
}

/* All blocks of a task by the second. */
GPU_DEVICE void attend_wgmma_second_blocks(attend_wgmma_state *state,
                                           uint32_t tiles,
                                           uint32_t turn,
                                           int32_t n_blocks,
                                           float o[ATTEND_WGMMA_SUMS]) {
    const int32_t head = attend_wgmma_sum_row(threadIdx.x % ATTEND_WGMMA_GROUP, 0);
#pragma unroll 1
    for (const uint32_t end = turn + n_blocks; turn != end; turn++) {
        attend_wgmma_wait_prob_full(state, turn);
        const float *alpha = &state->alpha[turn % ATTEND_WGMMA_PROBS][head];
        attend_wgmma_rescale(o, alpha[0], alpha[8]);
        gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
        gpu_wgmma_begin();
        attend_wgmma_sums_begin(o, attend_wgmma_prob_tile(tiles, turn),
                                attend_wgmma_k_tile(tiles, turn), 1);
        gpu_wgmma_wait_all();
        gpu_wgmma_use(o, ATTEND_WGMMA_SUMS);
        attend_wgmma_arrive_empty(state, turn);
    }
}

#undef GPU_DEVICE

#endif
