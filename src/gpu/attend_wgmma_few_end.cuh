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
    float l[ATTEND_WGMMA_FEW_COLUMNS], maximum[ATTEND_WGMMA_FEW_COLUMNS];
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
        l[c] = sm->l[c];
        maximum[c] = sm->maximum[c];
    }
    attend_wgmma_few_warp_sum(l);
    attend_wgmma_few_warp_max(maximum);
    attend_wgmma_few_sync(); /* all of the warpgroup have left the last block */
    attend_wgmma_part part = {-INFINITY, 0.0f, -INFINITY,
                              (float)few->has_keys[threadIdx.x / ATTEND_WGMMA_GROUP]};
    if (warp < ATTEND_WGMMA_FEW_KEY_WARPS && h % 32 < 4) {
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_FEW_COLUMNS; c++) {
            const attend_wgmma_few_partial x = {l[c], maximum[c]};
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

/* What a lane stores of a pair of heads: four dims of both quarters of a half, of both heads. Of four
 * chunks, each of eight lanes, that is; lanes l and l ^ 4 find the scale of one of them. */
typedef struct attend_wgmma_few_pair {
    float o[4][ATTEND_WGMMA_UNIT_DIMS];
    float factor[2];
    float mul; /* of the lane's chunk, or of its quarter */
} attend_wgmma_few_pair;

enum {
    ATTEND_WGMMA_FEW_PAIR_STEP = 2 * ATTEND_WGMMA_GROUP / 32, /* heads to the warp's next pair */
    ATTEND_WGMMA_FEW_PAIRS = ATTEND_WGMMA_HEADS / ATTEND_WGMMA_FEW_PAIR_STEP /* of a warp */
};

/* A lane's pairs of heads: the first of the warp's begins at head h, the others
 * ATTEND_WGMMA_FEW_PAIR_STEP further on. */
GPU_DEVICE void attend_wgmma_few_pairs_get(const float *factors,
                                           const float *rope,
                                           uint32_t sums,
                                           int32_t h,
                                           int32_t half,
                                           bool rotate,
                                           attend_wgmma_few_pair pairs[ATTEND_WGMMA_FEW_PAIRS]) {
    /* The last quarter's last dims are rotated back. */
    const int32_t rotated =
        threadIdx.x % 32 * ATTEND_WGMMA_UNIT_DIMS - (MMLA_LATENT_DIM / 4 - MMLA_ROPE_DIM);
    float c[ATTEND_WGMMA_UNIT_DIMS / 2], s[ATTEND_WGMMA_UNIT_DIMS / 2];
#pragma unroll
    for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS / 2; k++) {
        const int32_t pair = max(rotated, 0) / 2 + k;
        c[k] = rope[pair];
        s[k] = rope[MMLA_ROPE_DIM / 2 + pair];
    }
#pragma unroll
    for (int32_t j = 0; j < ATTEND_WGMMA_FEW_PAIRS; j++) {
        const int32_t head = h + j * ATTEND_WGMMA_FEW_PAIR_STEP;
        attend_wgmma_few_rows(sums, head, half, pairs[j].o);
        pairs[j].factor[0] = factors[head];
        pairs[j].factor[1] = factors[head + 1];
    }
    if (half != 1 || rotated < 0 || !rotate) {
        return;
    }
#pragma unroll
    for (int32_t j = 0; j < ATTEND_WGMMA_FEW_PAIRS; j++) {
#pragma unroll
        for (int32_t k = 0; k < ATTEND_WGMMA_UNIT_DIMS; k += 2) {
            float(*o)[ATTEND_WGMMA_UNIT_DIMS] = pairs[j].o;
            mmla_rope_rotate_back(c[k / 2], s[k / 2], &o[1][k], &o[1][k + 1]);
            mmla_rope_rotate_back(c[k / 2], s[k / 2], &o[3][k], &o[3][k + 1]);
        }
    }
}

/* `dim` is the lane's first. */
GPU_DEVICE void attend_wgmma_few_put_bf16(const attend_mma_params *p,
                                          const attend_wgmma_few_pair *pair,
                                          int64_t row,
                                          int32_t dim) {
    uint16_t *to = (uint16_t *)p->out + row * MMLA_LATENT_DIM + dim;
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const float *o = pair->o[i], f = pair->factor[i / 2];
        *(uint2 *)(to + i / 2 * MMLA_LATENT_DIM + i % 2 * (MMLA_LATENT_DIM / 4)) = make_uint2(
            gpu_bf16x2_from_f32x2(o[0] * f, o[1] * f), gpu_bf16x2_from_f32x2(o[2] * f, o[3] * f));
    }
}

/* The results of a half of a task's dims by a warpgroup, a warp two heads at a time, and of 16 heads
 * both its pairs side by side: each step waits for the one before. */
GPU_DEVICE void attend_wgmma_few_store(const attend_mma_params *p,
                                       const attend_wgmma_task *task,
                                       const float *factors,
                                       const float *rope,
                                       uint32_t sums,
                                       int32_t half) {
    enum {
        QUARTER = MMLA_LATENT_DIM / 4,
        CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM,
        WIDES = MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM,
        PAIRS = ATTEND_WGMMA_FEW_PAIRS,
        PAIR_STEP = ATTEND_WGMMA_FEW_PAIR_STEP
    };
    const int32_t lane = threadIdx.x % 32;
    const int32_t dim = 2 * half * QUARTER + lane * ATTEND_WGMMA_UNIT_DIMS;
    const int32_t mine = attend_wgmma_chunk_of(lane % 4); /* whose scale the lane finds */
    const int32_t quarter = 2 * half + mine % 2, chunk = quarter * (CHUNKS / 4) + lane / 8;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    const int64_t token_row = task->token * p->n_heads;
    const int32_t h = threadIdx.x % ATTEND_WGMMA_GROUP / 32 * 2; /* even: both are of one group */
    const int32_t n_pairs = (task->n_heads - h + PAIR_STEP - 1) / PAIR_STEP; /* that there are */
    attend_wgmma_few_pair pairs[PAIRS];
    attend_wgmma_few_pairs_get(factors, rope, sums, h, half, p->rotate != 0, pairs);
    if (p->out_form == MMLA_OUT_BF16) {
#pragma unroll
        for (int32_t j = 0; j < PAIRS; j++) {
            if (j < n_pairs) {
                attend_wgmma_few_put_bf16(p, &pairs[j],
                                          token_row + task->first_head + h + j * PAIR_STEP, dim);
            }
        }
        return;
    }
    float maxima[PAIRS][4], amax[PAIRS];
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            maxima[j][i] = attend_wgmma_unit_amax(pairs[j].o[i], 0);
        }
    }
    attend_wgmma_quad_maxima(maxima, amax, PAIRS);
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++) {
        amax[j] = fmaxf(amax[j], __shfl_xor_sync(~0u, amax[j], 4));
    }
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++) {
        attend_wgmma_few_pair *pair = &pairs[j];
        const float factor = mine < 2 ? pair->factor[0] : pair->factor[1];
        const int32_t head = task->first_head + h + j * PAIR_STEP + mine / 2;
        if (p->out_form == MMLA_OUT_FP8_128) {
            float most = fmaxf(amax[j], __shfl_xor_sync(~0u, amax[j], 8));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
            const float scale = fmaxf(MMLA_AMAX_FLOOR, most * factor) / MMLA_E4M3_MAX;
            pair->mul = factor / scale;
            if (j < n_pairs) { /* the same by eight lanes */
                ((float *)p->out_scale)[(token_row + head) * WIDES + quarter] = scale;
            }
            continue;
        }
        uint32_t byte;
        pair->mul = attend_mma_out_mul(amax[j], factor, &byte);
        if (j < n_pairs) { /* the same by two lanes */
            p->out_scale[permuted
                             ? mmla_out_scale_offset(p->scale_strides, task->token, head, chunk)
                             : (token_row + head) * CHUNKS + chunk] = (uint8_t)byte;
        }
    }
    uint8_t *const out =
        p->out + token_row * MMLA_LATENT_DIM + (permuted ? mmla_out_permuted_index(0, dim) : dim);
    const int32_t step = permuted ? QUARTER * MMLA_HEADS_PER_GROUP : QUARTER;
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++) {
        const int32_t head = task->first_head + h + j * PAIR_STEP;
        uint32_t codes[4];
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            const float mul =
                __shfl_sync(~0u, pairs[j].mul, (lane & ~3) + attend_wgmma_chunk_of(i));
            codes[i] = attend_wgmma_unit_codes(pairs[j].o[i], mul);
        }
        if (j >= n_pairs) {
            break;
        }
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            uint8_t *to = out + (permuted ? mmla_out_permuted_index(head + i / 2, 0)
                                          : (int64_t)(head + i / 2) * MMLA_LATENT_DIM);
            *(uint32_t *)(to + i % 2 * step) = codes[i];
        }
    }
}

static_assert(4 * MMLA_OUT_WIDE_DIM == MMLA_LATENT_DIM, "a wide scale is of a quarter");
static_assert((int)ATTEND_WGMMA_FEW_PAIRS <= (int)ATTEND_WGMMA_MAXIMA_MOST,
              "their maxima are found at once");

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
        few->factor[group][h] = attend_wgmma_factor(task, &all, sink);
        if (half == 0) {
            attend_wgmma_report(p, task, h, &all);
        }
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
