/* attend_wgmma_few_math.cuh - the multiplying warpgroups of attend_wgmma_few_kernel.inc. Each has
 * every other block for itself, from its scores to its share of O:
 *
 *     S^T [48 keys][heads] = K tile . q tile        softmax, probabilities to smem
 *     O^T [512 dims][heads] += K tile across . prob
 *
 * Keys, then dims, are the 64 rows of a matrix instruction. A block has 48 keys, so the fourth warp
 * has none. A thread has, of S^T, keys g and g + 8 of its warp's sixteen and of every eight heads two
 * neighbours; of O^T the same heads, and dims for keys.
 *
 * The maximum that scores are taken against is the warpgroup's own, and rises only when a score
 * exceeds it by 2^ATTEND_WGMMA_SLACK: a barrier that its warps need anyway tells whether any does.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_FEW_MATH_CUH
#define MMLA_GPU_ATTEND_WGMMA_FEW_MATH_CUH

#include "gpu/attend_wgmma_few_tile.h"
#include "gpu/attend_wgmma_math.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* What a warpgroup found of the thread's heads. The maximum and the sum l are over the thread's own
 * keys, the reference is the same in all of the warpgroup. */
typedef struct attend_wgmma_few_softmax {
    float reference[ATTEND_WGMMA_FEW_COLUMNS];
    float maximum[ATTEND_WGMMA_FEW_COLUMNS];
    float l[ATTEND_WGMMA_FEW_COLUMNS];
} attend_wgmma_few_softmax;

/* The reduction tells the compiler that all of a warp have the same number. */
GPU_DEVICE int32_t attend_wgmma_few_group(void) {
    return (int32_t)__reduce_max_sync(~0u, threadIdx.x / ATTEND_WGMMA_GROUP);
}

GPU_DEVICE void attend_wgmma_few_sync(void) {
    gpu_warps_sync(ATTEND_WGMMA_BAR_GROUP + threadIdx.x / ATTEND_WGMMA_GROUP, ATTEND_WGMMA_GROUP);
}

/* S^T = K . q^T over 512 dims. */
GPU_DEVICE void
attend_wgmma_few_scores(float s[ATTEND_WGMMA_FEW_SCORES], uint32_t q_tile, uint32_t k_tile) {
    const uint64_t q = gpu_wgmma_tile(__reduce_max_sync(~0u, q_tile));
    const uint64_t k = gpu_wgmma_tile(__reduce_max_sync(~0u, k_tile));
    gpu_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < MMLA_LATENT_DIM / GPU_WGMMA_DEPTH; i++) {
        enum { STEPS = ATTEND_WGMMA_COLUMN_DIMS / GPU_WGMMA_DEPTH };
        const uint64_t step = i % STEPS * GPU_WGMMA_STEP;
        gpu_wgmma_few(s, k + i / STEPS * (ATTEND_WGMMA_COLUMN_BYTES >> 4) + step,
                      q + i / STEPS * (ATTEND_WGMMA_Q_COLUMN_BYTES >> 4) + step, i != 0,
                      ATTEND_WGMMA_HEADS);
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait_all();
    gpu_wgmma_use(s, ATTEND_WGMMA_FEW_SCORES);
}

/* O^T += K^T . prob, all dims. */
GPU_DEVICE void
attend_wgmma_few_sums(float o[ATTEND_WGMMA_FEW_SUMS], uint32_t prob_tile, uint32_t k_tile) {
    const uint64_t prob =
        gpu_wgmma_matrices(__reduce_max_sync(~0u, prob_tile), ATTEND_WGMMA_PROB_STEP_BYTES,
                           ATTEND_WGMMA_PROB_MATRIX_BYTES);
    const uint64_t k =
        gpu_wgmma_tile_across(__reduce_max_sync(~0u, k_tile), ATTEND_WGMMA_COLUMN_BYTES);
    gpu_wgmma_use(o, ATTEND_WGMMA_FEW_SUMS);
    gpu_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_KEYS / GPU_WGMMA_DEPTH; i++) {
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_COLUMNS; c++) {
            gpu_wgmma_few_across(
                o + c * ATTEND_WGMMA_FEW_SCORES,
                k + c * (ATTEND_WGMMA_COLUMN_BYTES >> 4) + i * GPU_WGMMA_STEP_ACROSS,
                prob + i * (2 * ATTEND_WGMMA_PROB_STEP_BYTES >> 4), true, ATTEND_WGMMA_HEADS);
        }
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait_all();
    gpu_wgmma_use(o, ATTEND_WGMMA_FEW_SUMS);
}

/* Of every column: the largest of the eight threads of a warp that have the same heads, all columns
 * side by side. */
GPU_DEVICE void attend_wgmma_few_warp_max(float x[ATTEND_WGMMA_FEW_COLUMNS]) {
#pragma unroll
    for (int32_t lanes = 4; lanes < 32; lanes *= 2) {
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
            x[c] = fmaxf(x[c], __shfl_xor_sync(~0u, x[c], lanes));
        }
    }
}

/* Their sum. */
GPU_DEVICE void attend_wgmma_few_warp_sum(float x[ATTEND_WGMMA_FEW_COLUMNS]) {
#pragma unroll
    for (int32_t lanes = 4; lanes < 32; lanes *= 2) {
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
            x[c] += __shfl_xor_sync(~0u, x[c], lanes);
        }
    }
}

/* References rise to the maxima where those exceed them by more than the slack, and what is
 * relative to them follows. `most` is the thread's own, and is overwritten. */
GPU_DEVICE void attend_wgmma_few_rise(attend_wgmma_few_state *few,
                                      float most[ATTEND_WGMMA_FEW_COLUMNS],
                                      attend_wgmma_few_softmax *sm,
                                      float o[ATTEND_WGMMA_FEW_SUMS]) {
    float(*of_warp)[ATTEND_WGMMA_HEADS] = few->maxima[threadIdx.x / ATTEND_WGMMA_GROUP];
    const int32_t warp = threadIdx.x % ATTEND_WGMMA_GROUP / 32;
    float alpha[ATTEND_WGMMA_FEW_COLUMNS];
    attend_wgmma_few_warp_max(most);
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        if (warp < ATTEND_WGMMA_FEW_KEY_WARPS && threadIdx.x % 32 < 4) {
            of_warp[warp][attend_wgmma_few_head(threadIdx.x, c)] = most[c];
        }
    }
    attend_wgmma_few_sync();
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        const int32_t head = attend_wgmma_few_head(threadIdx.x, c);
        const float all = fmaxf(fmaxf(of_warp[0][head], of_warp[1][head]), of_warp[2][head]);
        alpha[c] = 1.0f;
        if (all - sm->reference[c] > ATTEND_WGMMA_SLACK) {
            alpha[c] = gpu_exp2(sm->reference[c] - all);
            sm->reference[c] = all;
        }
        sm->l[c] *= alpha[c];
    }
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_FEW_SUMS; i++) {
        o[i] *= alpha[attend_wgmma_few_column(i)];
    }
}

/* Scores to probabilities times 2^log2_scale, in place. The rows of the tile are to be multiplied
 * with that; `logit`, the factors of the scores, has it already. A NaN score is no maximum, and
 * makes its head's sum NaN. */
GPU_DEVICE void attend_wgmma_few_softmax_step(attend_wgmma_few_state *few,
                                              float s[ATTEND_WGMMA_FEW_SCORES],
                                              const float logit[ATTEND_WGMMA_FEW_COLUMNS],
                                              uint64_t valid,
                                              int32_t log2_scale,
                                              attend_wgmma_few_softmax *sm,
                                              float o[ATTEND_WGMMA_FEW_SUMS]) {
    const float inverse = mmla_f32_of_bits((127 - log2_scale) << 23);
    const int32_t key = attend_wgmma_sum_row(threadIdx.x % ATTEND_WGMMA_GROUP, 0);
    const bool is_key[2] = {(valid >> key & 1) != 0, (valid >> (key + 8) & 1) != 0};
    float most[ATTEND_WGMMA_FEW_COLUMNS];
    bool rises = false;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_FEW_SCORES; i++) {
        s[i] = is_key[i / 2 % 2] ? s[i] : -INFINITY;
    }
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        const int32_t i = c / 2 * 4 + c % 2;
        most[c] = fmaxf(s[i], s[i + 2]) * logit[c];
        sm->maximum[c] = fmaxf(sm->maximum[c], most[c]);
        rises |= most[c] - sm->reference[c] > ATTEND_WGMMA_SLACK;
    }
    if (gpu_warps_sync_any(ATTEND_WGMMA_BAR_GROUP + threadIdx.x / ATTEND_WGMMA_GROUP,
                           ATTEND_WGMMA_GROUP, rises)) {
        attend_wgmma_few_rise(few, most, sm, o);
    }
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        const int32_t i = c / 2 * 4 + c % 2;
        /* Before any finite score the reference is -inf, which must not be subtracted. */
        const float subtract =
            (sm->reference[c] == -INFINITY ? 0.0f : sm->reference[c]) - (float)log2_scale;
        s[i] = gpu_exp2(fmaf(s[i], logit[c], -subtract));
        s[i + 2] = gpu_exp2(fmaf(s[i + 2], logit[c], -subtract));
        sm->l[c] = fmaf(s[i] + s[i + 2], inverse, sm->l[c]);
    }
}

/* Probabilities to their tile, keys along its rows. */
GPU_DEVICE void attend_wgmma_few_put_probabilities(const float s[ATTEND_WGMMA_FEW_SCORES],
                                                   uint32_t tile) {
    const int32_t warp = threadIdx.x % ATTEND_WGMMA_GROUP / 32, lane = threadIdx.x % 32;
    if (warp * 16 >= ATTEND_WGMMA_KEYS) {
        return;
    }
    uint32_t p[ATTEND_WGMMA_FEW_SCORES / 2]; /* matrices of eight keys by eight heads */
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_FEW_SCORES / 2; i++) {
        p[i] = gpu_bf16x2_from_f32x2(s[2 * i], s[2 * i + 1]);
    }
    const uint32_t to =
        tile + attend_wgmma_prob_off(lane / 16 % (ATTEND_WGMMA_HEADS / 8) * 8 + lane % 8,
                                     2 * warp + lane / 8 % 2);
    if (ATTEND_WGMMA_HEADS == 8) {
        gpu_stmatrix_x2_trans(to, p);
    } else {
        gpu_stmatrix_x4_trans(to, p);
    }
}

/* The blocks of a task that are this warpgroup's; `turn` is the number of the task's first. Tells
 * that q is read as soon as it is. */
GPU_DEVICE void attend_wgmma_few_blocks(attend_wgmma_state *state,
                                        attend_wgmma_few_state *few,
                                        uint32_t tiles,
                                        uint32_t turn,
                                        int32_t n_blocks,
                                        attend_wgmma_few_softmax *sm,
                                        float o[ATTEND_WGMMA_FEW_SUMS]) {
    const int32_t group = attend_wgmma_few_group();
    const uint32_t prob = tiles + ATTEND_WGMMA_AT_PROB + group * ATTEND_WGMMA_PROB_BYTES;
    int32_t left = n_blocks - (int32_t)((turn ^ group) & 1);
    turn += (turn ^ group) & 1;
    if (left <= 0) {
        gpu_barrier_arrive(gpu_smem_address(&state->q_empty));
    }
#pragma unroll 1
    for (; left > 0; left -= 2, turn += 2) {
        const uint32_t stage = turn % ATTEND_WGMMA_STAGES;
        const uint32_t k_tile = attend_wgmma_k_tile(tiles, turn);
        float s[ATTEND_WGMMA_FEW_SCORES];
        attend_wgmma_wait_full(state, turn);
        const uint64_t valid = state->valid[stage];
        const int32_t log2_scale = state->log2_scale[stage];
        attend_wgmma_few_scores(s, tiles + ATTEND_WGMMA_AT_Q, k_tile);
        float logit[ATTEND_WGMMA_FEW_COLUMNS];
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
            logit[c] = state->logit[attend_wgmma_few_head(threadIdx.x, c)] *
                       mmla_f32_of_bits((127 + log2_scale) << 23);
        }
        if (left <= 2) { /* no more scores are to come */
            gpu_barrier_arrive(gpu_smem_address(&state->q_empty));
        }
        attend_wgmma_few_softmax_step(few, s, logit, valid, log2_scale, sm, o);
        if (valid != 0) {
            few->has_keys[threadIdx.x / ATTEND_WGMMA_GROUP] = 1; /* the same by all */
        }
        attend_wgmma_few_put_probabilities(s, prob);
        gpu_fence_async();
        attend_wgmma_few_sync();
        attend_wgmma_few_sums(o, prob, k_tile);
        attend_wgmma_arrive_empty(state, turn);
    }
}

#undef GPU_DEVICE

#endif
