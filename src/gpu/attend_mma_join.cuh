/* attend_mma_join.cuh - the maxima and sums of a CTA, and joining the CTAs that shared a token's keys.
 *
 *     O, maxima, sums --> workspace (L2), every CTA its part
 *                         all parts there: a barrier of the cluster, or a counter
 *     parts --> weights exp2(m - max) --> O = sum of weight * part, in the order of the splits
 *
 * In a cluster all CTAs go on, each with some warps' dims, so that the parts are read by several
 * multiprocessors at once. Before capability 9.0 there are no clusters: the last CTA to raise the
 * counter does it all. Both add in the same order, so they give the same bits, whoever is last.
 */
#ifndef MMLA_GPU_ATTEND_MMA_JOIN_CUH
#define MMLA_GPU_ATTEND_MMA_JOIN_CUH

#include "gpu/attend_mma.h"
#include "gpu/attend_mma_math.cuh"
#include "gpu/cluster.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* Maximum (of state.running[turn]) and sum of every head over the CTA's keys: state.maximum and
 * state.sum, [heads]. All threads come here; the values may be read when it returns. */
GPU_DEVICE void attend_mma_collect(const attend_mma_softmax *sm,
                                   int32_t turn,
                                   float *state,
                                   const int32_t keys,
                                   const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t row_warps = keys / 16, heads = 8 * n_tiles;
    if (warp < row_warps) {
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
            for (int32_t j = 0; j < 2; j++) {
                float l = sm->l[t][j];
                l += __shfl_xor_sync(~0u, l, 4);
                l += __shfl_xor_sync(~0u, l, 8);
                l += __shfl_xor_sync(~0u, l, 16);
                if (lane < 4) {
                    state[at.sum + warp * heads + 8 * t + 2 * lane + j] = l;
                }
            }
        }
    }
    __syncthreads();
    const int32_t head = threadIdx.x;
    if (head < heads) {
        float sum = state[at.sum + head];
        for (int32_t w = 1; w < row_warps; w++) {
            sum += state[at.sum + w * heads + head];
        }
        state[at.sum + head] = sum;
        state[at.maximum + head] = state[at.running + turn * heads + head];
    }
    __syncthreads();
}

/* A CTA's part to the workspace. What has no key leaves no O: its weight is zero. */
GPU_DEVICE void attend_mma_leave_part(const attend_mma_params *p,
                                      const attend_mma_task *task,
                                      const attend_mma_output *out,
                                      const float *state,
                                      const int32_t keys,
                                      const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t heads = 8 * n_tiles, tid = threadIdx.x;
    const int64_t mine = task->group * p->n_splits + task->split;
    if (task->has_keys) {
        float4 *to = (float4 *)(p->part_o + mine * heads * ATTEND_MMA_DIM) + tid;
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
            for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
                const float *o = out->o[b][t];
                to[(t * ATTEND_MMA_WARP_BLOCKS + b) * ATTEND_MMA_THREADS] =
                    make_float4(o[0], o[1], o[2], o[3]);
            }
        }
    }
    if (tid < heads) {
        p->part_ml[mine * 2 * heads + tid] = state[at.maximum + tid];
        p->part_ml[mine * 2 * heads + heads + tid] = state[at.sum + tid];
    }
    if (tid == 0) {
        p->part_n[mine] = task->has_keys;
    }
}

/* Waits for the parts of the group; task->pairs is then what this CTA brings out. */
GPU_DEVICE void attend_mma_meet(const attend_mma_params *p, attend_mma_task *task) {
    if (p->in_cluster) {
        gpu_cluster_sync();
        if (threadIdx.x == 0) {
            int32_t pairs = 0;
            for (int32_t i = 0; i < ATTEND_MMA_PAIRS; i++) {
                pairs |= (i * p->n_splits / ATTEND_MMA_PAIRS == task->split) << i;
            }
            task->pairs = pairs;
        }
    } else {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            const bool is_last = atomicAdd(&p->arrived[task->group], 1) == p->n_splits - 1;
            task->pairs = is_last ? ATTEND_MMA_ALL_PAIRS : 0;
            __threadfence();
        }
    }
    __syncthreads();
}

/* The weights of all parts (state.sum, [splits][heads]), which of them have keys (state.valid), and
 * the maximum and the sum of all (state.maximum, state.alpha). */
GPU_DEVICE void attend_mma_weigh(const attend_mma_params *p,
                                 const attend_mma_task *task,
                                 float *state,
                                 const int32_t keys,
                                 const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t heads = 8 * n_tiles, tid = threadIdx.x;
    const int64_t first = task->group * p->n_splits;
    int32_t *has_keys = (int32_t *)(state + at.valid);
    if (tid < p->n_splits) {
        has_keys[tid] = __ldcg(&p->part_n[first + tid]);
    }
    if (tid < heads) {
        const float *ml = p->part_ml + first * 2 * heads + tid;
        float m = -INFINITY, sum = 0.0f;
#pragma unroll 8
        for (int32_t s = 0; s < p->n_splits; s++) {
            m = fmaxf(m, __ldcg(ml + s * 2 * heads));
        }
#pragma unroll 8
        for (int32_t s = 0; s < p->n_splits; s++) {
            const float weight =
                attend_mma_alpha(__ldcg(ml + s * 2 * heads), m, state[at.logit + tid]);
            sum = fmaf(__ldcg(ml + s * 2 * heads + heads), weight, sum);
            state[at.sum + s * heads + tid] = weight;
        }
        state[at.maximum + tid] = m;
        state[at.alpha + tid] = sum;
    }
    __syncthreads();
}

/* Joins the parts of a group. False: this CTA has nothing to bring out. Else state.maximum, state.sum
 * and task->has_keys are those of all keys, and so is *out in the warps of task->pairs. */
GPU_DEVICE bool attend_mma_join(const attend_mma_params *p,
                                attend_mma_task *task,
                                attend_mma_output *out,
                                float *state,
                                const int32_t keys,
                                const int32_t n_tiles) {
    const attend_mma_state at = attend_mma_state_get(keys, n_tiles);
    const int32_t heads = 8 * n_tiles, tid = threadIdx.x;
    const int32_t *has_keys = (const int32_t *)(state + at.valid);
    attend_mma_leave_part(p, task, out, state, keys, n_tiles);
    attend_mma_meet(p, task);
    if (task->pairs == 0) {
        return false;
    }
    attend_mma_weigh(p, task, state, keys, n_tiles);
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
#pragma unroll
            for (int32_t i = 0; i < 4; i++) {
                out->o[b][t][i] = 0.0f;
            }
        }
    }
    for (int32_t s = 0; s < p->n_splits && (task->pairs >> (tid / 64) & 1) != 0; s++) {
        if (has_keys[s] == 0) {
            continue;
        }
        const int64_t part = task->group * p->n_splits + s;
        const float4 *from = (const float4 *)(p->part_o + part * heads * ATTEND_MMA_DIM) + tid;
#pragma unroll
        for (int32_t t = 0; t < n_tiles; t++) {
            const float2 weight =
                *(const float2 *)(state + at.sum + s * heads + 8 * t + 2 * (tid % 4));
#pragma unroll
            for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
                const float4 o =
                    __ldcg(from + (t * ATTEND_MMA_WARP_BLOCKS + b) * ATTEND_MMA_THREADS);
                out->o[b][t][0] = fmaf(o.x, weight.x, out->o[b][t][0]);
                out->o[b][t][1] = fmaf(o.y, weight.y, out->o[b][t][1]);
                out->o[b][t][2] = fmaf(o.z, weight.x, out->o[b][t][2]);
                out->o[b][t][3] = fmaf(o.w, weight.y, out->o[b][t][3]);
            }
            if (t % 2 == 1) {
                __syncwarp(); /* or the loads of all groups would be started at once, and spill */
            }
        }
    }
    __syncthreads();
    if (tid < heads) {
        state[at.sum + tid] = state[at.alpha + tid];
    }
    if (tid == 0) {
        task->has_keys = 0;
        for (int32_t s = 0; s < p->n_splits; s++) {
            task->has_keys |= has_keys[s];
        }
    }
    __syncthreads();
    return true;
}

#undef GPU_DEVICE

#endif
