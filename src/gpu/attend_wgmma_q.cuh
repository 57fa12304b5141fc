/* attend_wgmma_q.cuh - the warp of the Hopper kernels that has q: it finds out what the CTA's
 * tasks are, and brings each one's q to its tile, as soon as the last scores of the task before are
 * done. There it is rotated, by the second warpgroup, or, of few heads, by the warp itself.
 *
 *     q --cp.async--> tile --rotated in place--> tile, for the scores
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_Q_CUH
#define MMLA_GPU_ATTEND_WGMMA_Q_CUH

#include <float.h>

#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_list.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* Starts copying q of a task to its tile. Neighbouring lanes take what lies side by side in memory:
 * in the fused layout the two chunks of 16 dims, then the next head; else chunks of one head. */
GPU_DEVICE void
attend_wgmma_q_fetch(const attend_mma_params *p, const attend_wgmma_task *task, uint32_t tile) {
    enum { CHUNKS = MMLA_LATENT_DIM / ATTEND_WGMMA_CHUNK_DIMS };
    const uint16_t *q = p->q + task->token * p->q_token_stride;
    const int32_t lane = threadIdx.x % 32;
    if (p->q_layout == MMLA_Q_FUSED) {
        enum { STEPS = ATTEND_WGMMA_COLUMN_DIMS / 16, HEADS = 16 };
        const int32_t pair = lane % 2;
        const int64_t step = p->n_heads * 2 * ATTEND_WGMMA_CHUNK_DIMS; /* to the next 16 dims */
        uint32_t off[STEPS]; /* heads 16 apart have the same swizzle */
        for (int32_t k = 0; k < STEPS; k++) {
            off[k] = attend_wgmma_q_off(lane / 2, 2 * k + pair);
        }
        q += mmla_q_index(MMLA_Q_FUSED, p->n_heads, task->first_head + lane / 2,
                          pair * ATTEND_WGMMA_CHUNK_DIMS);
#pragma unroll 1
        for (int32_t h = lane / 2; h < task->n_heads; h += HEADS) {
            const uint16_t *from = q;
#pragma unroll
            for (int32_t c = 0; c < ATTEND_WGMMA_COLUMNS; c++) {
#pragma unroll
                for (int32_t k = 0; k < STEPS; k++) {
                    /* Columns have their chunks in different orders. */
                    gpu_cp_async16(tile + c * ATTEND_WGMMA_Q_COLUMN_BYTES +
                                       (off[k] ^ attend_wgmma_q_off(0, 8 * c) % 128),
                                   from);
                    from += step;
                }
            }
            q += HEADS * 2 * ATTEND_WGMMA_CHUNK_DIMS;
            tile += attend_wgmma_q_off(HEADS, 0);
        }
        return;
    }
    q +=
        mmla_q_index(MMLA_Q_STANDARD, p->n_heads, task->first_head, lane * ATTEND_WGMMA_CHUNK_DIMS);
#pragma unroll 1
    for (int32_t h = 0; h < task->n_heads; h += MMLA_HEADS_PER_GROUP) {
#pragma unroll
        for (int32_t k = 0; k < MMLA_HEADS_PER_GROUP; k++) {
            const uint32_t to = tile + attend_wgmma_q_off(k, lane);
#pragma unroll
            for (int32_t c = 0; c < CHUNKS; c += 32) {
                gpu_cp_async16(to + attend_wgmma_q_off(0, c),
                               q + k * MMLA_LATENT_DIM + c * ATTEND_WGMMA_CHUNK_DIMS);
            }
        }
        q += MMLA_HEADS_PER_GROUP * MMLA_LATENT_DIM;
        tile += attend_wgmma_q_off(MMLA_HEADS_PER_GROUP, 0);
    }
}

/* Rotates the last 64 dims of q in its tile, by a warpgroup's n_warps warps, or by one: a thread has
 * a pair of every n_warps-th head, eight at a time, or two where registers are scarce. */
GPU_DEVICE void
attend_wgmma_q_rotate(const float *rope, int32_t n_heads, uint8_t *tile, const int32_t n_warps) {
    enum { HEADS = ATTEND_WGMMA_FEW ? 2 : 8 };
    const int32_t warp = threadIdx.x / 32 % n_warps;
    const int32_t lane = threadIdx.x % 32, x = MMLA_LATENT_DIM - MMLA_ROPE_DIM + 2 * lane;
    const float c = rope[lane], s = rope[MMLA_ROPE_DIM / 2 + lane];
#pragma unroll 1
    for (int32_t first = warp; first < n_heads; first += HEADS * n_warps) {
        uint32_t q[HEADS];
#pragma unroll
        for (int32_t k = 0; k < HEADS; k++) {
            q[k] = *(const uint32_t *)(tile + attend_wgmma_q_pair_off(first + k * n_warps, x));
        }
#pragma unroll
        for (int32_t k = 0; k < HEADS; k++) { /* of heads that there are not, no harm is done */
            float2 pair = gpu_f32x2_from_bf16x2(q[k]);
            mmla_rope_rotate(c, s, &pair.x, &pair.y);
            *(uint32_t *)(tile + attend_wgmma_q_pair_off(first + k * n_warps, x)) =
                gpu_bf16x2_from_f32x2(pair.x, pair.y);
        }
    }
}

/* The factors of a task's logits. */
GPU_DEVICE void
attend_wgmma_q_logits(const attend_mma_params *p, const attend_wgmma_task *task, float *logit) {
    const int32_t lane = threadIdx.x % 32;
    if (p->norm_q == NULL) {
#pragma unroll
        for (int32_t h = 0; h < ATTEND_WGMMA_HEADS; h += 32) {
            if (h + lane < ATTEND_WGMMA_HEADS) {
                logit[h + lane] = p->scale_log2e;
            }
        }
        return;
    }
#pragma unroll 2
    for (int32_t h = 0; h < task->n_heads; h++) {
        const float factor = attend_mma_logit_factor(p, task->token, task->first_head + h);
        if (lane == 0) {
            /* Of a q so large that its square is infinite it would be 0, and 0 times the -inf of
             * what is no key would be NaN. */
            logit[h] = fmaxf(factor, FLT_MIN);
        }
    }
}

static_assert(MMLA_ROPE_DIM == 2 * 32, "shares of a lane");

/* What the warp does, from the first task to the last. */
GPU_DEVICE void attend_wgmma_bring_q(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t lane = threadIdx.x % 32;
    uint8_t *tile = smem + ATTEND_WGMMA_AT_Q;
    int32_t i = gpu_cluster_number();
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t n = 0; i < attend_wgmma_n_tasks(p); n++) {
        attend_mma_walk walk;
        attend_wgmma_task task = attend_wgmma_task_get(p, i, &walk);
        task.turn = turn;
        turn += task.n_blocks + (attend_wgmma_has_ends() ? 1 : 0);
        i += gpu_n_clusters();
        attend_wgmma_task_prefetch(p, i);
        float c = 1.0f, s = 0.0f;
        if (p->rotate && task.position >= 0) {
            const float *cos_sin = p->cos_sin + (int64_t)task.position * MMLA_ROPE_DIM;
            c = cos_sin[lane];
            s = cos_sin[MMLA_ROPE_DIM / 2 + lane];
        }
        /* Of the fused layout and several tiles it is other heads' part of the token's q; the tiles
         * together bring all of it. */
        const uint16_t *q =
            p->q + task.token * p->q_token_stride + task.first_head * MMLA_LATENT_DIM;
        for (int32_t x = lane * 64; x < task.n_heads * MMLA_LATENT_DIM; x += 32 * 64) {
            gpu_prefetch_l2_line(q + x); /* of 128 bytes */
        }
        gpu_barrier_wait(gpu_smem_address(&state->q_empty), (n & 1) ^ 1);
        attend_wgmma_q_fetch(p, &task, gpu_smem_address(tile));
        attend_wgmma_q_logits(p, &task, state->logit);
        state->tasks[n % ATTEND_WGMMA_TASKS] = task;
        float *rope = state->rope[n % ATTEND_WGMMA_TASKS];
        rope[lane] = c;
        rope[MMLA_ROPE_DIM / 2 + lane] = s;
        gpu_cp_async_wait_all();
        if (ATTEND_WGMMA_FEW && p->rotate) {
            __syncwarp(); /* all of the tile, and of the rope, are there */
            attend_wgmma_q_rotate(rope, task.n_heads, tile, 1);
        }
        gpu_fence_async();
        gpu_barrier_arrive(gpu_smem_address(&state->q_full));
    }
}

#undef GPU_DEVICE

#endif
