/* attend_wgmma_out.cuh - the end of a task of attend_wgmma_kernel.cu: joining the CTAs that shared a
 * token's keys, and from sums to codes and scales.
 *
 *     O (registers) --> where the stages were (fp32, smem)      maxima and sums --> every CTA's state
 *     parts_full: those of all CTAs of the cluster are there
 *     weights exp2(m - max) --> O = sum of weight * part, in the order of the splits, each CTA some of
 *     the dims of every head --rotate back, scale, cast--> out
 *     parts_empty: all CTAs have read, the stages may be filled again
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_OUT_CUH
#define MMLA_GPU_ATTEND_WGMMA_OUT_CUH

#include "gpu/attend_mma_out.cuh"
#include "gpu/attend_wgmma_load.cuh"
#include "gpu/attend_wgmma_math.cuh"

#define GPU_DEVICE static __device__ __forceinline__

enum {
    ATTEND_WGMMA_UNIT_DIMS = 4, /* of one head, by one thread */
    ATTEND_WGMMA_HEAD_UNITS = MMLA_LATENT_DIM / ATTEND_WGMMA_UNIT_DIMS
};

/* A thread's sums to where the stages were. */
GPU_DEVICE void attend_wgmma_leave_sums(const float o[ATTEND_WGMMA_SUMS], uint8_t *sums) {
    const int32_t thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    const int32_t half = threadIdx.x / ATTEND_WGMMA_GROUP;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i += 2) {
        const int32_t head = attend_wgmma_sum_row(thread, i);
        const int32_t unit = half * ATTEND_WGMMA_HEAD_UNITS / 2 + i / 4 * 2 + thread % 4 / 2;
        *(float2 *)(sums + attend_wgmma_part_off(head, unit) + thread % 2 * 8) =
            make_float2(o[i], o[i + 1]);
    }
}

/* What the first warpgroup found of its heads, to all CTAs of the cluster. */
GPU_DEVICE void attend_wgmma_tell(const attend_wgmma_softmax *sm,
                                  attend_wgmma_state *state,
                                  int32_t split,
                                  int32_t n_splits) {
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        __syncwarp(); /* one thread of four wrote the maximum */
        const float l = attend_wgmma_quad_sum(sm->l[r]);
        const int32_t head = attend_wgmma_sum_row(threadIdx.x, 2 * r);
        const float4 part = make_float4(sm->reference[r], l, state->maximum[head],
                                        state->has_keys[threadIdx.x / 32]);
        float4 *to = (float4 *)&state->part[split][head];
        for (int32_t rank = threadIdx.x % 4; rank < n_splits; rank += 4) {
            if (rank == split) {
                *to = part;
            } else {
                gpu_cluster_store4(gpu_cluster_address(gpu_smem_address(to), rank), part);
            }
        }
    }
}

static_assert(sizeof(attend_wgmma_part) == sizeof(float4), "a part is stored at once");

/* A warp's arrival at the same barrier of every CTA of the cluster. */
GPU_DEVICE void attend_wgmma_arrive_all(uint64_t *barrier, int32_t n_splits) {
    __syncwarp();
    if ((int32_t)(threadIdx.x % 32) < n_splits) {
        gpu_barrier_arrive_at(gpu_smem_address(barrier), threadIdx.x % 32);
    }
}

/* The sink of head h of a task, base 2; loaded before it is needed. */
GPU_DEVICE float
attend_wgmma_sink(const attend_mma_params *p, const attend_wgmma_task *task, int32_t h) {
    return p->sink == NULL || h >= task->n_heads
               ? -INFINITY
               : p->sink[task->first_head + h] * ATTEND_MMA_LOG2_E;
}

/* Weights of the parts and the factor of O of head h, if there is one, its lse and max_logits. NaN
 * throughout without a legal position. */
GPU_DEVICE void attend_wgmma_finish_heads(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          attend_wgmma_state *state,
                                          float sink,
                                          int32_t h) {
    if (h >= task->n_heads) {
        return;
    }
    float reference = -INFINITY, maximum = -INFINITY, sum = 0.0f;
    bool has_keys = false;
    for (int32_t s = 0; s < gpu_cluster_size(); s++) {
        reference = fmaxf(reference, state->part[s][h].reference);
        maximum = fmaxf(maximum, state->part[s][h].maximum);
        has_keys |= state->part[s][h].has_keys != 0.0f;
    }
    for (int32_t s = 0; s < gpu_cluster_size(); s++) {
        const float weight = attend_mma_alpha(state->part[s][h].reference, reference, 1.0f);
        sum = fmaf(state->part[s][h].sum, weight, sum);
        state->weight[s][h] = weight;
    }
    const int32_t head = task->first_head + h;
    float factor = 0.0f, lse = INFINITY, max_logit = -INFINITY;
    if (task->position < 0) {
        factor = lse = max_logit = NAN;
    } else if (has_keys) {
        /* Keys whose scores are all -inf are not "no key". */
        sum = sum == 0.0f ? NAN : sum;
        factor = 1.0f / (sum + exp2f(sink - reference));
        lse = fmaf(reference, ATTEND_MMA_LN_2, logf(sum));
        max_logit = isnan(sum) ? NAN : maximum * ATTEND_MMA_LN_2;
    }
    state->factor[h] = factor;
    if (gpu_cluster_rank() == 0) {
        const int64_t i = task->token * p->n_heads + head;
        if (p->lse != NULL) {
            p->lse[i] = lse;
        }
        if (p->max_logits != NULL) {
            p->max_logits[i] = max_logit;
        }
    }
}

/* Four dims of a head, joined from all parts. All loads are started before the first sum: each takes as
 * long as one from L2. What was not left may be any bits; loading it does no harm. */
GPU_DEVICE void attend_wgmma_join(const attend_wgmma_state *state,
                                  const int32_t n_splits,
                                  uint32_t sums,
                                  int32_t h,
                                  int32_t unit,
                                  float o[ATTEND_WGMMA_UNIT_DIMS]) {
    const uint32_t at = sums + attend_wgmma_part_off(h, unit);
    float4 x[ATTEND_WGMMA_SPLITS_MAX];
#pragma unroll
    for (int32_t s = 0; s < n_splits; s++) {
        x[s] = gpu_cluster_load4(gpu_cluster_address(at, s));
    }
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_UNIT_DIMS; i++) {
        o[i] = 0.0f;
    }
#pragma unroll
    for (int32_t s = 0; s < n_splits; s++) {
        const float weight = state->weight[s][h];
        if (state->part[s][h].has_keys != 0.0f) {
            o[0] = fmaf(x[s].x, weight, o[0]);
            o[1] = fmaf(x[s].y, weight, o[1]);
            o[2] = fmaf(x[s].z, weight, o[2]);
            o[3] = fmaf(x[s].w, weight, o[3]);
        }
    }
}

/* Largest magnitude of the units of 2^log2 neighbouring threads. */
GPU_DEVICE float attend_wgmma_unit_amax(const float o[ATTEND_WGMMA_UNIT_DIMS], const int32_t log2) {
    float amax = mmla_quant_amax(o, ATTEND_WGMMA_UNIT_DIMS);
#pragma unroll
    for (int32_t i = 0; i < log2; i++) {
        amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1 << i));
    }
    return amax;
}

/* Four codes of o * mul, the first lowest. */
GPU_DEVICE uint32_t attend_wgmma_unit_codes(const float o[ATTEND_WGMMA_UNIT_DIMS], float mul) {
    return gpu_e4m3x2_from_f32x2(o[0] * mul, o[1] * mul) |
           gpu_e4m3x2_from_f32x2(o[2] * mul, o[3] * mul) << 16;
}

/* Four dims of a head, rotated back already, to out. Neighbouring threads have neighbouring units, and
 * what shares a scale is in one warp. */
GPU_DEVICE void attend_wgmma_put(const attend_mma_params *p,
                                 int64_t token,
                                 int32_t head,
                                 int32_t unit,
                                 const float o[ATTEND_WGMMA_UNIT_DIMS],
                                 float factor) {
    const int64_t row = token * p->n_heads + head;
    const int32_t dim = unit * ATTEND_WGMMA_UNIT_DIMS;
    if (p->out_form == MMLA_OUT_BF16) {
        *(uint2 *)((uint16_t *)p->out + row * MMLA_LATENT_DIM + dim) =
            make_uint2(gpu_bf16x2_from_f32x2(o[0] * factor, o[1] * factor),
                       gpu_bf16x2_from_f32x2(o[2] * factor, o[3] * factor));
        return;
    }
    if (p->out_form == MMLA_OUT_FP8_128) {
        const float amax = attend_wgmma_unit_amax(o, 5);
        const float s = fmaxf(MMLA_AMAX_FLOOR, amax * factor) / MMLA_E4M3_MAX;
        *(uint32_t *)(p->out + row * MMLA_LATENT_DIM + dim) =
            attend_wgmma_unit_codes(o, factor / s);
        if (dim % MMLA_OUT_WIDE_DIM == 0) {
            ((float *)p->out_scale)[row * (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) +
                                    dim / MMLA_OUT_WIDE_DIM] = s;
        }
        return;
    }
    const float amax = attend_wgmma_unit_amax(o, 3);
    uint32_t byte;
    const float mul = attend_mma_out_mul(amax, factor, &byte);
    const int32_t chunk = dim / MMLA_OUT_CHUNK_DIM;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    const int64_t at =
        permuted ? token * p->n_heads * MMLA_LATENT_DIM + mmla_out_permuted_index(head, dim)
                 : row * MMLA_LATENT_DIM + dim;
    *(uint32_t *)(p->out + at) = attend_wgmma_unit_codes(o, mul);
    if (dim % MMLA_OUT_CHUNK_DIM == 0) {
        const int64_t scale_at = permuted
                                     ? mmla_out_scale_offset(p->scale_strides, token, head, chunk)
                                     : row * (MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM) + chunk;
        p->out_scale[scale_at] = (uint8_t)byte;
    }
}

static_assert(ATTEND_WGMMA_UNIT_DIMS * 8 == MMLA_OUT_CHUNK_DIM &&
                  ATTEND_WGMMA_UNIT_DIMS * 32 == MMLA_OUT_WIDE_DIM,
              "2^3 and 2^5 threads share a scale");

/* This CTA's share of a task's results. The number of parts is a constant for the joining. */
GPU_DEVICE void attend_wgmma_joined_store(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          const attend_wgmma_state *state,
                                          const int32_t n_splits,
                                          uint32_t sums) {
    /* A wide scale is of 128 dims, which one CTA must have. */
    const int32_t shares = p->out_form == MMLA_OUT_FP8_128 ? min(n_splits, 4) : n_splits;
    const int32_t log2_units = 31 - __clz(ATTEND_WGMMA_HEAD_UNITS / shares); /* powers of two */
    const int32_t split = gpu_cluster_rank();
    if (split >= shares) {
        return;
    }
    /* The number of units divides that of threads, so a thread has the same dims of all its heads. */
    const int32_t unit = (split << log2_units) + (threadIdx.x & ((1 << log2_units) - 1));
    const int32_t pair =
        unit * (ATTEND_WGMMA_UNIT_DIMS / 2) - (MMLA_LATENT_DIM - MMLA_ROPE_DIM) / 2;
    const bool rotate = pair >= 0 && p->rotate && task->position >= 0;
    float c[ATTEND_WGMMA_UNIT_DIMS / 2], s[ATTEND_WGMMA_UNIT_DIMS / 2];
#pragma unroll
    for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS / 2; k++) {
        const float *cos_sin = p->cos_sin + (int64_t)task->position * MMLA_ROPE_DIM + pair + k;
        c[k] = rotate ? cos_sin[0] : 1.0f;
        s[k] = rotate ? cos_sin[MMLA_ROPE_DIM / 2] : 0.0f;
    }
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < task->n_heads << log2_units; i += ATTEND_WGMMA_MATH_THREADS) {
        const int32_t h = i >> log2_units;
        float o[ATTEND_WGMMA_UNIT_DIMS];
        attend_wgmma_join(state, n_splits, sums, h, unit, o);
        if (rotate) {
#pragma unroll
            for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS / 2; k++) {
                mmla_rope_rotate_back(c[k], s[k], &o[2 * k], &o[2 * k + 1]);
            }
        }
        attend_wgmma_put(p, task->token, task->first_head + h, unit, o, state->factor[h]);
    }
}

#undef GPU_DEVICE

#endif
