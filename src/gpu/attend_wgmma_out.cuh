/* attend_wgmma_out.cuh - the end of a task whose keys a cluster shared: joining its CTAs, and from
 * sums to codes and scales. Of few heads attend_wgmma_few_end.cuh leaves the sums.
 *
 *     O (registers) --> where the stages were (fp32, smem)      maxima and sums --> state
 *     a barrier of the cluster: those of all CTAs are there
 *     weights exp2(m - max) --> O = sum of weight * part, in the order of the splits, each CTA some
 *     of the dims of every head --rotate back, scale, cast--> out
 *     another: all CTAs have read, and may leave
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_OUT_CUH
#define MMLA_GPU_ATTEND_WGMMA_OUT_CUH

#include "gpu/attend_mma_out.cuh"
#include "gpu/attend_wgmma_list.cuh"
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

/* What the first warpgroup found of the thread's two heads. */
GPU_DEVICE void attend_wgmma_parts_get(const attend_wgmma_softmax *sm, attend_wgmma_part part[2]) {
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        part[r] = (attend_wgmma_part){sm->reference[r], sm->l[r], sm->maximum[r],
                                      sm->has_keys ? 1.0f : 0.0f};
    }
#pragma unroll
    for (int32_t lanes = 1; lanes <= 2; lanes++) { /* the four of a head have keys each */
#pragma unroll
        for (int32_t r = 0; r < 2; r++) {
            part[r].sum += __shfl_xor_sync(~0u, part[r].sum, lanes);
            part[r].maximum = fmaxf(part[r].maximum, __shfl_xor_sync(~0u, part[r].maximum, lanes));
        }
    }
}

/* The same, to all CTAs of the cluster. */
GPU_DEVICE void attend_wgmma_tell(const attend_wgmma_part part[2], attend_wgmma_state *state) {
    if (threadIdx.x % 4 == 0) {
#pragma unroll
        for (int32_t r = 0; r < 2; r++) {
            state->part[attend_wgmma_sum_row(threadIdx.x, 2 * r)] = part[r];
        }
    }
}

/* The sink of head h of a task, as it is in memory; loaded before it is needed. */
GPU_DEVICE float
attend_wgmma_sink(const attend_mma_params *p, const attend_wgmma_task *task, int32_t h) {
    return p->sink == NULL || h >= task->n_heads ? -INFINITY : p->sink[task->first_head + h];
}

/* The factor of O of a head of a task, without a branch: it is found while matrix instructions work,
 * for which the compiler waits at one. NaN without a legal position. */
GPU_DEVICE float
attend_wgmma_factor(const attend_wgmma_task *task, const attend_wgmma_part *all, float sink) {
    /* Keys whose scores are all -inf are not "no key". */
    const float sum = all->sum == 0.0f ? NAN : all->sum;
    const float factor = gpu_rcp(sum + gpu_exp2(fmaf(sink, ATTEND_MMA_LOG2_E, -all->reference)));
    const float found = all->has_keys != 0.0f ? factor : 0.0f;
    return task->position < 0 ? NAN : found;
}

/* Stores lse and max_logits of head h, where they are asked for. */
GPU_DEVICE void attend_wgmma_report(const attend_mma_params *p,
                                    const attend_wgmma_task *task,
                                    int32_t h,
                                    const attend_wgmma_part *all) {
    float lse = INFINITY, max_logit = -INFINITY;
    if (task->position < 0) {
        lse = max_logit = NAN;
    } else if (all->has_keys != 0.0f) {
        const float sum = all->sum == 0.0f ? NAN : all->sum;
        lse = fmaf(all->reference, ATTEND_MMA_LN_2, logf(sum));
        max_logit = isnan(sum) ? NAN : all->maximum * ATTEND_MMA_LN_2;
    }
    const int64_t i = task->token * p->n_heads + task->first_head + h;
    if (p->lse != NULL) {
        p->lse[i] = lse;
    }
    if (p->max_logits != NULL) {
        p->max_logits[i] = max_logit;
    }
}

/* By the first warpgroup: the parts of the thread's two heads, and the factors of one that had all
 * keys, for the other warpgroup, too. No branch, as above. */
GPU_DEVICE void attend_wgmma_factors_give(const attend_wgmma_task *task,
                                          const attend_wgmma_softmax *sm,
                                          const float sink[2],
                                          attend_wgmma_state *state,
                                          attend_wgmma_part part[2],
                                          float factor[2]) {
    attend_wgmma_parts_get(sm, part);
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        factor[r] = attend_wgmma_factor(task, &part[r], sink[r]);
        if (threadIdx.x % 4 == 0) {
            state->factor[attend_wgmma_sum_row(threadIdx.x, 2 * r)] = factor[r];
        }
    }
    gpu_barrier_arrive(gpu_smem_address(&state->factor_full));
}

/* The same warpgroup stores what is asked for besides. */
GPU_DEVICE void attend_wgmma_report_own(const attend_mma_params *p,
                                        const attend_wgmma_task *task,
                                        const attend_wgmma_part part[2]) {
    if (threadIdx.x % 4 != 0 || (p->lse == NULL && p->max_logits == NULL)) {
        return;
    }
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        const int32_t h = attend_wgmma_sum_row(threadIdx.x, 2 * r);
        if (h < task->n_heads) {
            attend_wgmma_report(p, task, h, &part[r]);
        }
    }
}

/* The factor of head h, if there is one, and what is asked for besides, from what n_splits CTAs
 * found; and the weights of their parts. */
GPU_DEVICE void attend_wgmma_finish_joined(const attend_mma_params *p,
                                           const attend_wgmma_task *task,
                                           attend_wgmma_state *state,
                                           attend_wgmma_weights *weights,
                                           const int32_t n_splits,
                                           float sink,
                                           int32_t h) {
    if (h >= task->n_heads) {
        return;
    }
    attend_wgmma_part part[ATTEND_WGMMA_SPLITS_MAX];
#pragma unroll
    for (int32_t s = 0; s < n_splits; s++) {
        const float4 x =
            gpu_cluster_load4(gpu_cluster_address(gpu_smem_address(&state->part[h]), s));
        part[s] = (attend_wgmma_part){x.x, x.y, x.z, x.w};
    }
    attend_wgmma_part all = {-INFINITY, 0.0f, -INFINITY, 0.0f};
#pragma unroll
    for (int32_t s = 0; s < n_splits; s++) {
        all.reference = fmaxf(all.reference, part[s].reference);
        all.maximum = fmaxf(all.maximum, part[s].maximum);
        all.has_keys = fmaxf(all.has_keys, part[s].has_keys);
    }
#pragma unroll
    for (int32_t s = 0; s < n_splits; s++) {
        const float weight = attend_mma_alpha(part[s].reference, all.reference, 1.0f);
        all.sum = fmaf(part[s].sum, weight, all.sum);
        weights->of[s][h] = part[s].has_keys != 0.0f ? weight : -1.0f;
    }
    state->factor[h] = attend_wgmma_factor(task, &all, sink);
    if (gpu_cluster_rank() == 0) {
        attend_wgmma_report(p, task, h, &all);
    }
}

/* Four dims of a head, joined from all parts. All loads are started before the first sum: each
 * takes as long as one from L2. What was not left may be any bits; loading it does no harm. */
GPU_DEVICE void attend_wgmma_join(const attend_wgmma_weights *weights,
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
        const float weight = weights->of[s][h];
        if (!(weight < 0.0f)) {
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

/* Four dims of a head, rotated back already, to out. Neighbouring threads have neighbouring units,
 * and what shares a scale is in one warp. */
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
                                          const attend_wgmma_weights *weights,
                                          const int32_t n_splits,
                                          uint32_t sums) {
    /* A wide scale is of 128 dims, which one CTA must have. */
    const int32_t shares = p->out_form == MMLA_OUT_FP8_128
                               ? min(n_splits, MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM)
                               : n_splits;
    const int32_t log2_units = 31 - __clz(ATTEND_WGMMA_HEAD_UNITS / shares); /* powers of two */
    const int32_t split = gpu_cluster_rank();
    if (split >= shares) {
        return;
    }
    /* The number of units divides that of threads, so a thread has the same dims of all heads. */
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
        attend_wgmma_join(weights, n_splits, sums, h, unit, o);
        if (rotate) {
#pragma unroll
            for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS / 2; k++) {
                mmla_rope_rotate_back(c[k], s[k], &o[2 * k], &o[2 * k + 1]);
            }
        }
        attend_wgmma_put(p, task->token, task->first_head + h, unit, o, state->factor[h]);
    }
}

/* Joins what n_splits CTAs of a cluster found, and stores this one's share. */
GPU_DEVICE void attend_wgmma_join_and_store(const attend_mma_params *p,
                                            const attend_wgmma_task *task,
                                            uint8_t *smem,
                                            float sink,
                                            const int32_t n_splits) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    attend_wgmma_weights *weights = (attend_wgmma_weights *)(smem + ATTEND_WGMMA_AT_PROB);
    attend_wgmma_finish_joined(p, task, state, weights, n_splits, sink, threadIdx.x);
    gpu_barrier_arrive(gpu_smem_address(&state->weights_full));
    gpu_barrier_wait(gpu_smem_address(&state->weights_full), 0);
    attend_wgmma_joined_store(p, task, state, weights, n_splits,
                              gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES);
}

/* The same for a cluster's size, by the multiplying warps, once sums and parts are left; all other
 * warps have left. */
GPU_DEVICE void attend_wgmma_join_cluster(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          uint8_t *smem,
                                          float sink) {
    gpu_cluster_sync();
    switch (gpu_cluster_size()) {
    case 2:
        attend_wgmma_join_and_store(p, task, smem, sink, 2);
        break;
    case 4:
        attend_wgmma_join_and_store(p, task, smem, sink, 4);
        break;
    default:
        attend_wgmma_join_and_store(p, task, smem, sink, ATTEND_WGMMA_SPLITS_MAX);
        break;
    }
    gpu_cluster_sync(); /* or another CTA might still read from this one */
}

#undef GPU_DEVICE

#endif
