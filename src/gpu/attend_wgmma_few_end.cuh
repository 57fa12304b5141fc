/* attend_wgmma_few_end.cuh - the end of a task of attend_wgmma_few_kernel.inc: the sums of two
 * warpgroups become one, in fp32 where keys were, and from there results. Each finishes half of the
 * dims of all heads.
 *
 *     O (registers): the half that the other finishes --> smem
 *                    the own half + what the other left --> smem --> out
 *
 * Without a cluster the end of a task has a number among its blocks, and the stage that comes with
 * it, while the other stages fill for the next task. Which warpgroup had a task's first block
 * depends on the tasks before; sums are added in the order of the blocks and not of the warpgroups.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_FEW_END_CUH
#define MMLA_GPU_ATTEND_WGMMA_FEW_END_CUH

#include "gpu/attend_wgmma_few_math.cuh"
#include "gpu/attend_wgmma_out.cuh"
#include "gpu/attend_wgmma_turn.h"

#define GPU_DEVICE static __device__ __forceinline__

/* What the warpgroup found of head h, for its thread h, but for the reference; all of it are asked,
 * and all get has_keys. */
GPU_DEVICE attend_wgmma_part attend_wgmma_few_part(attend_wgmma_few_state *few,
                                                   const attend_wgmma_few_softmax *sm) {
    attend_wgmma_few_partial(*of_warp)[ATTEND_WGMMA_HEADS] =
        few->partial[threadIdx.x / ATTEND_WGMMA_GROUP];
    const int32_t h = threadIdx.x % ATTEND_WGMMA_GROUP, warp = h / 32;
    attend_wgmma_few_sync(); /* all of the warpgroup have left the last block */
    attend_wgmma_part part = {-INFINITY, 0.0f, -INFINITY,
                              (float)few->has_keys[threadIdx.x / ATTEND_WGMMA_GROUP]};
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        const attend_wgmma_few_partial x = {attend_wgmma_few_warp_sum(sm->l[c]),
                                            attend_wgmma_few_warp_max(sm->maximum[c])};
        if (warp < ATTEND_WGMMA_FEW_KEY_WARPS && h % 32 < 4) {
            of_warp[warp][attend_wgmma_few_head(h, c)] = x;
        }
    }
    attend_wgmma_few_sync();
    if (h < ATTEND_WGMMA_HEADS) {
#pragma unroll
        for (int32_t w = 0; w < ATTEND_WGMMA_FEW_KEY_WARPS; w++) {
            part.sum += of_warp[w][h].l;
            part.maximum = fmaxf(part.maximum, of_warp[w][h].maximum);
        }
    }
    return part;
}

/* The sums of a half, to where the other warpgroup finds them. */
GPU_DEVICE void
attend_wgmma_few_give(const float o[ATTEND_WGMMA_FEW_SUMS], uint32_t place, const int32_t half) {
    enum { N = ATTEND_WGMMA_FEW_SUMS / 2 };
#pragma unroll
    for (int32_t i = half * N; i < (half + 1) * N; i++) {
        gpu_smem_store4((place ^ attend_wgmma_few_turn(i)) + attend_wgmma_few_step(i),
                        __float_as_uint(o[i]));
    }
}

/* What the other left of a half, together with the own sums, in its place. */
GPU_DEVICE void attend_wgmma_few_take(const float o[ATTEND_WGMMA_FEW_SUMS],
                                      const float own[ATTEND_WGMMA_FEW_COLUMNS],
                                      const float other[ATTEND_WGMMA_FEW_COLUMNS],
                                      uint32_t place,
                                      const int32_t half) {
    enum { N = ATTEND_WGMMA_FEW_SUMS / 2, AT_ONCE = 16 }; /* loads, or each would be waited for */
#pragma unroll
    for (int32_t first = half * N; first < (half + 1) * N; first += AT_ONCE) {
        float x[AT_ONCE];
#pragma unroll
        for (int32_t k = 0; k < AT_ONCE; k++) {
            x[k] = __uint_as_float(gpu_smem_load4((place ^ attend_wgmma_few_turn(first + k)) +
                                                  attend_wgmma_few_step(first + k)));
        }
#pragma unroll
        for (int32_t k = 0; k < AT_ONCE; k++) {
            const int32_t i = first + k, c = attend_wgmma_few_column(i);
            gpu_smem_store4((place ^ attend_wgmma_few_turn(i)) + attend_wgmma_few_step(i),
                            __float_as_uint(fmaf(o[i], own[c], x[k] * other[c])));
        }
    }
}

/* Both warpgroups meet, twice in every task. */
GPU_DEVICE void attend_wgmma_few_meet(attend_wgmma_few_state *few, const uint32_t parity) {
    gpu_barrier_arrive(gpu_smem_address(&few->both));
    gpu_barrier_wait(gpu_smem_address(&few->both), parity);
}

/* The parts of both warpgroups together, at `sums`, which is free once both have come here. `half`
 * is the one that this warpgroup finishes: 0 when the task's first block was its. Thread h of each
 * gets the rest of head h. What had no key has no part in it. */
GPU_DEVICE attend_wgmma_part attend_wgmma_few_merge(attend_wgmma_few_state *few,
                                                    const attend_wgmma_few_softmax *sm,
                                                    const float o[ATTEND_WGMMA_FEW_SUMS],
                                                    uint32_t sums,
                                                    int32_t half) {
    const int32_t h = threadIdx.x % ATTEND_WGMMA_GROUP;
    const uint32_t place = sums + attend_wgmma_few_place(h);
    const attend_wgmma_part part = attend_wgmma_few_part(few, sm);
    if (h < ATTEND_WGMMA_HEADS) {
        few->part[half][h].sum = part.sum;
        few->part[half][h].maximum = part.maximum;
        few->part[half][h].has_keys = part.has_keys;
    }
    if (h < 4) { /* threads have the references of their own heads */
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
            few->part[half][attend_wgmma_few_head(h, c)].reference = sm->reference[c];
        }
    }
    attend_wgmma_few_meet(few, 0);
    attend_wgmma_part all = {-INFINITY, 0.0f, -INFINITY, 0.0f};
    if (h < ATTEND_WGMMA_HEADS) {
        const attend_wgmma_part x[2] = {few->part[0][h], few->part[1][h]};
        all.reference = fmaxf(x[0].reference, x[1].reference);
        all.maximum = fmaxf(x[0].maximum, x[1].maximum);
        all.has_keys = fmaxf(x[0].has_keys, x[1].has_keys);
#pragma unroll
        for (int32_t k = 0; k < 2; k++) {
            const float weight = attend_mma_alpha(x[k].reference, all.reference, 1.0f);
            all.sum = fmaf(x[k].sum, weight, all.sum);
        }
    }
    float own[ATTEND_WGMMA_FEW_COLUMNS], other[ATTEND_WGMMA_FEW_COLUMNS];
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        const attend_wgmma_part x = few->part[half ^ 1][attend_wgmma_few_head(h, c)];
        const float reference = fmaxf(x.reference, sm->reference[c]);
        own[c] = part.has_keys != 0.0f ? attend_mma_alpha(sm->reference[c], reference, 1.0f) : 0.0f;
        other[c] = x.has_keys != 0.0f ? attend_mma_alpha(x.reference, reference, 1.0f) : 0.0f;
    }
    if (half == 0) { /* a constant for each, for sums are registers */
        attend_wgmma_few_give(o, place, 1);
    } else {
        attend_wgmma_few_give(o, place, 0);
    }
    attend_wgmma_few_meet(few, 1);
    if (half == 0) {
        attend_wgmma_few_take(o, own, other, place, 0);
    } else {
        attend_wgmma_few_take(o, own, other, place, 1);
    }
    return all;
}

/* Four dims of both quarters of a half, of heads h and h + 1, from the sums: lanes side by side read
 * side by side. */
GPU_DEVICE void
attend_wgmma_few_rows(uint32_t sums, int32_t h, int32_t half, float o[4][ATTEND_WGMMA_UNIT_DIMS]) {
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const int32_t unit = threadIdx.x % 32 + 32 * (2 * half + i % 2);
        const uint4 x = gpu_smem_load16(sums + attend_wgmma_part_off(h + i / 2, unit));
        o[i][0] = __uint_as_float(x.x);
        o[i][1] = __uint_as_float(x.y);
        o[i][2] = __uint_as_float(x.z);
        o[i][3] = __uint_as_float(x.w);
    }
}

/* The results of a half of a task's dims by a warpgroup, a warp two heads at a time. A lane has four
 * dims of both quarters, of both heads: of four chunks, each of eight lanes; lanes l and l ^ 4 find
 * the scale of one of them. Not attend_wgmma_put, a unit at a time: that took 150 instructions for
 * each. */
GPU_DEVICE void attend_wgmma_few_store(const attend_mma_params *p,
                                       const attend_wgmma_task *task,
                                       const float *factors,
                                       const float *rope,
                                       uint32_t sums,
                                       int32_t half) {
    enum {
        STEP = MMLA_LATENT_DIM / 4,
        CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM,
        WIDES = MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM,
        WARPS = ATTEND_WGMMA_GROUP / 32
    };
    const int32_t lane = threadIdx.x % 32;
    const int32_t in_quarter = lane * ATTEND_WGMMA_UNIT_DIMS, dim = 2 * half * STEP + in_quarter;
    const int32_t mine = attend_wgmma_chunk_of(lane % 4); /* whose scale the lane finds */
    const int32_t quarter = 2 * half + mine % 2, chunk = quarter * (CHUNKS / 4) + lane / 8;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    const bool wide = p->out_form == MMLA_OUT_FP8_128;
    const int64_t token_row = task->token * p->n_heads;
    const int32_t rotated = in_quarter - (MMLA_LATENT_DIM - MMLA_ROPE_DIM - 3 * STEP);
    const bool rotate = half == 1 && rotated >= 0 && p->rotate; /* the last quarter */
    float c[ATTEND_WGMMA_UNIT_DIMS / 2], s[ATTEND_WGMMA_UNIT_DIMS / 2];
#pragma unroll
    for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS / 2; k++) {
        const int32_t pair = max(rotated, 0) / 2 + k;
        c[k] = rope[pair];
        s[k] = rope[MMLA_ROPE_DIM / 2 + pair];
    }
    uint8_t *const out =
        p->out + token_row * MMLA_LATENT_DIM + (permuted ? mmla_out_permuted_index(0, dim) : dim);
    uint8_t *const scales =
        p->out_scale + (permuted ? mmla_out_scale_offset(p->scale_strides, task->token, 0, chunk)
                                 : token_row * CHUNKS + chunk);
    const int32_t step = permuted ? STEP * MMLA_HEADS_PER_GROUP : STEP;
#pragma unroll 1
    for (int32_t h = threadIdx.x % ATTEND_WGMMA_GROUP / 32 * 2; h < task->n_heads; h += 2 * WARPS) {
        const int32_t head = task->first_head + h; /* even, so both are of one group */
        float o[4][ATTEND_WGMMA_UNIT_DIMS];
        attend_wgmma_few_rows(sums, h, half, o);
        const float factor[2] = {factors[h], factors[h + 1]};
        if (rotate) {
#pragma unroll
            for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS; k += 2) {
                mmla_rope_rotate_back(c[k / 2], s[k / 2], &o[1][k], &o[1][k + 1]);
                mmla_rope_rotate_back(c[k / 2], s[k / 2], &o[3][k], &o[3][k + 1]);
            }
        }
        if (p->out_form == MMLA_OUT_BF16) {
            uint16_t *to = (uint16_t *)p->out + (token_row + head) * MMLA_LATENT_DIM + dim;
#pragma unroll
            for (int32_t i = 0; i < 4; i++) {
                const float f = factor[i / 2];
                *(uint2 *)(to + i / 2 * MMLA_LATENT_DIM + i % 2 * STEP) =
                    make_uint2(gpu_bf16x2_from_f32x2(o[i][0] * f, o[i][1] * f),
                               gpu_bf16x2_from_f32x2(o[i][2] * f, o[i][3] * f));
            }
            continue;
        }
        float amax = attend_wgmma_quad_maxima(
            attend_wgmma_unit_amax(o[0], 0), attend_wgmma_unit_amax(o[1], 0),
            attend_wgmma_unit_amax(o[2], 0), attend_wgmma_unit_amax(o[3], 0));
        amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 4));
        const float my_factor = mine < 2 ? factor[0] : factor[1];
        const int32_t my_head = head + mine / 2;
        float mul;
        if (wide) {
            amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 8));
            amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 16));
            const float scale = fmaxf(MMLA_AMAX_FLOOR, amax * my_factor) / MMLA_E4M3_MAX;
            mul = my_factor / scale;
            ((float *)p->out_scale)[(token_row + my_head) * WIDES + quarter] =
                scale; /* the same by eight lanes */
        } else {
            uint32_t byte;
            mul = attend_mma_out_mul(amax, my_factor, &byte);
            /* The same by two lanes. Offsets of head and chunk add up. */
            scales[permuted ? mmla_out_scale_offset(p->scale_strides, 0, my_head, 0)
                            : (int64_t)my_head * CHUNKS] = (uint8_t)byte;
        }
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            const float of_quarter = __shfl_sync(~0u, mul, (lane & ~3) + attend_wgmma_chunk_of(i));
            uint8_t *to = out + (permuted ? mmla_out_permuted_index(head + i / 2, 0)
                                          : (int64_t)(head + i / 2) * MMLA_LATENT_DIM);
            *(uint32_t *)(to + i % 2 * step) = attend_wgmma_unit_codes(o[i], of_quarter);
        }
    }
}

static_assert(4 * MMLA_OUT_WIDE_DIM == MMLA_LATENT_DIM, "a wide scale is of a quarter");

/* The end of a task whose keys this CTA had alone. It has the number after its last block's. */
GPU_DEVICE void attend_wgmma_few_own_end(const attend_mma_params *p,
                                         const attend_wgmma_task *task,
                                         uint8_t *smem,
                                         uint32_t n_done,
                                         const attend_wgmma_few_softmax *sm,
                                         const float o[ATTEND_WGMMA_FEW_SUMS]) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    attend_wgmma_few_state *few = (attend_wgmma_few_state *)(smem + ATTEND_WGMMA_FEW_AT_STATE);
    const volatile attend_wgmma_task *again = task; /* or both would be kept from the beginning */
    const uint32_t turn = __reduce_max_sync(~0u, again->turn);
    const uint32_t end = turn + __reduce_max_sync(~0u, again->n_blocks);
    const uint32_t group = attend_wgmma_few_group(), stage = end % ATTEND_WGMMA_STAGES;
    const uint32_t sums =
        gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES;
    const int32_t half = (int32_t)((turn ^ group) & 1), h = threadIdx.x % ATTEND_WGMMA_GROUP;
    const float sink = attend_wgmma_sink(p, task, h);
    const bool has_stage = (end & 1) == group;
    if (has_stage) {
        attend_wgmma_wait_full(state, end);
    }
    const attend_wgmma_part all = attend_wgmma_few_merge(few, sm, o, sums, half);
    if (h < task->n_heads) {
        few->factor[group][h] = attend_wgmma_finish_head(p, task, h, all, sink, half == 0);
    }
    attend_wgmma_few_sync();
    attend_wgmma_few_store(p, task, few->factor[group], state->rope[n_done % ATTEND_WGMMA_TASKS],
                           sums, half);
    gpu_barrier_arrive(gpu_smem_address(&few->sums_read));
    if (has_stage) {
        gpu_barrier_wait(gpu_smem_address(&few->sums_read), n_done & 1);
        attend_wgmma_arrive_empty(state, end);
    }
}

/* The end of a task whose keys a cluster shared: its only one, whose first block has number 0. */
GPU_DEVICE void attend_wgmma_few_joined_end(const attend_mma_params *p,
                                            const attend_wgmma_task *task,
                                            uint8_t *smem,
                                            const attend_wgmma_few_softmax *sm,
                                            const float o[ATTEND_WGMMA_FEW_SUMS]) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    attend_wgmma_few_state *few = (attend_wgmma_few_state *)(smem + ATTEND_WGMMA_FEW_AT_STATE);
    const float sink = attend_wgmma_sink(p, task, threadIdx.x);
    const attend_wgmma_part all = attend_wgmma_few_merge(
        few, sm, o, gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES, attend_wgmma_few_group());
    if (threadIdx.x < ATTEND_WGMMA_HEADS) {
        state->part[threadIdx.x] = all;
    }
    attend_wgmma_join_cluster(p, task, smem, sink);
}

#undef GPU_DEVICE

#endif
