/* project_wgmma_block_math.cuh - what the multiplying warpgroups of project_wgmma_block.cu do: their rows of weight
 * from codes to registers, products, sums of segments, results.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_MATH_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_MATH_CUH

#include "ops/project/project_wgmma_block.cuh"

enum {
    LAG = 2,        /* steps that the second warpgroup is behind */
    BAR_RESULTS = 3 /* number of the first warpgroup's barrier; the second's is the next */
};

/* A thread's unit of its two rows, of the step to be loaded next. */
typedef struct weight_stream {
    const uint8_t *at;
    bool has_row, has_row_8;
} weight_stream;

DEVICE int32_t own_row(void) {
    return threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS + mmla_project_wg_row(threadIdx.x % GROUP);
}

DEVICE void
weight_begin(const mmla_project_params *p, weight_stream *s, uint32_t idx, const int32_t n) {
    s->has_row = s->has_row_8 = false;
    if (idx < n_tiles_get(p, n)) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        s->at = p->weight + ((int64_t)tile.g * p->rank + tile.row + own_row()) * MMLA_PROJECT_DIM +
                mmla_project_wg_unit(threadIdx.x) * MMLA_PROJECT_UNIT;
        s->has_row = own_row() < tile.n_rows;
        s->has_row_8 = own_row() + 8 < tile.n_rows;
    }
}

/* Where a multiplying thread has its codes of a step: its unit of two rows. */
DEVICE uint32_t weight_codes(const block_smem *smem, const int32_t step) {
    return smem->weight_codes + step % AHEAD * ROWS * MMLA_PROJECT_STEP +
           threadIdx.x * MMLA_PROJECT_UNIT;
}

DEVICE void weight_copy(const block_smem *smem, weight_stream *s, const int32_t step) {
    const uint32_t to = weight_codes(smem, step);
    gpu_cp_async16_zero_stream(to, s->at, s->has_row);
    gpu_cp_async16_zero_stream(to + MATH_THREADS * MMLA_PROJECT_UNIT, s->at + 8 * MMLA_PROJECT_DIM,
                               s->has_row_8);
    gpu_cp_async_commit();
    s->at += MMLA_PROJECT_STEP;
}

/* A step of weight from codes to registers, which the step AHEAD further replaces. */
DEVICE void weight_convert(const block_smem *smem,
                           weight_stream *s,
                           project_wg_step *a,
                           const int32_t step,
                           int32_t table,
                           const int32_t n) {
    const uint8_t *exponents = smem->exponents +
                               (table * (ROWS + n) + own_row()) * MMLA_PROJECT_WG_SCALES +
                               2 * step + mmla_project_wg_unit(threadIdx.x) / 2;
    const uint32_t from = weight_codes(smem, step);
    gpu_cp_async_wait(AHEAD - 1);
    const uint4 codes[2] = {gpu_smem_load16(from),
                            gpu_smem_load16(from + MATH_THREADS * MMLA_PROJECT_UNIT)};
    project_wg_step_convert(a, codes, exponents[0], exponents[8 * MMLA_PROJECT_WG_SCALES]);
    weight_copy(smem, s, step);
}

/* total += sums * factors, of one segment. */
DEVICE void
sums_add(const block_smem *smem, float *total, const float *sums, int32_t table, const int32_t n) {
    const float *factors = smem->factors + table * (ROWS + n);
    const float w[2] = {factors[own_row()], factors[own_row() + 8]};
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 4) {
        const float2 x =
            *(const float2 *)(factors + ROWS + mmla_project_wg_sum_token(threadIdx.x % GROUP, i));
        total[i] = fmaf(sums[i], w[0] * x.x, total[i]);
        total[i + 1] = fmaf(sums[i + 1], w[0] * x.y, total[i + 1]);
        total[i + 2] = fmaf(sums[i + 2], w[1] * x.x, total[i + 2]);
        total[i + 3] = fmaf(sums[i + 3], w[1] * x.y, total[i + 3]);
    }
}

/* total as bf16 to the warpgroup's results, [token][row]. */
DEVICE void results_stage(uint32_t results, const float *total, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    /* Matrix lane / 8 of four: rows 8 (lane / 8 % 2) of the warp's 16, tokens 8 (lane / 16) of 16. */
    const uint32_t at = results + (uint32_t)mmla_project_wg_result_off(lane / 16 * 8 + lane % 8,
                                                                       2 * warp + lane / 8 % 2);
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 8) {
        const uint32_t r[4] = {gpu_bf16x2_from_f32x2(total[i], total[i + 1]),
                               gpu_bf16x2_from_f32x2(total[i + 2], total[i + 3]),
                               gpu_bf16x2_from_f32x2(total[i + 4], total[i + 5]),
                               gpu_bf16x2_from_f32x2(total[i + 6], total[i + 7])};
        gpu_stmatrix_x4_trans(at + i / 8 * 16 * (2 * MMLA_PROJECT_WG_ROWS), r);
    }
}

/* From there to z, eight rows at a time where z allows it, but what `state` marks. */
DEVICE void results_store(const mmla_project_params *p,
                          const mmla_project_tile *tile,
                          uint32_t results,
                          const int32_t *state,
                          bool some_odd,
                          const int32_t n) {
    const int32_t first = threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS;
#pragma unroll 1
    for (int32_t e = threadIdx.x % GROUP; e < n * (MMLA_PROJECT_WG_ROWS / 8); e += GROUP) {
        const int32_t chunk = e % (MMLA_PROJECT_WG_ROWS / 8);
        const int32_t token = e / (MMLA_PROJECT_WG_ROWS / 8), row = first + 8 * chunk;
        if (row >= tile->n_rows ||
            token >= tile->n_tokens) { /* the number of rows is a multiple of 8 */
            continue;
        }
        const uint4 eight =
            gpu_smem_load16(results + (uint32_t)mmla_project_wg_result_off(token, chunk));
        uint16_t *z = p->z + project_z_index(p, tile, row, token);
        if (p->z_in_chunks && !some_odd) {
            *(uint4 *)z = eight;
            continue;
        }
        const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int32_t i = 0; i < 8; i++) {
            if (!some_odd || (state[row + i] | state[ROWS + token]) == 0) {
                z[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
            }
        }
    }
}

/* Results of the warpgroup's rows that are odd, or whose token is. */
DEVICE void odd_store(const mmla_project_params *p,
                      const mmla_project_tile *tile,
                      const int32_t *state,
                      const int32_t n) {
    const int32_t first = threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    const int32_t end =
        tile->n_rows - first < MMLA_PROJECT_WG_ROWS ? tile->n_rows : first + MMLA_PROJECT_WG_ROWS;
#pragma unroll 1
    for (int32_t token = 0; token < tile->n_tokens; token++) {
#pragma unroll 1
        for (int32_t row = first + warp; row < end; row += GROUP / MMLA_PROJECT_WARP) {
            if ((state[row] | state[ROWS + token]) == 0) {
                continue;
            }
            project_wg_odd_store(p, tile, row, token, ROWS);
        }
    }
}

/* The end of a tile. */
DEVICE void block_end(const mmla_project_params *p,
                      const block_smem *smem,
                      uint32_t idx,
                      const float *total,
                      int32_t parity,
                      const int32_t n) {
    const int32_t group = threadIdx.x / GROUP;
    const uint32_t results = smem->results + (uint32_t)(group * n * 2 * MMLA_PROJECT_WG_ROWS);
    const int32_t *state = smem->state + parity * (ROWS + n);
    const mmla_project_tile tile = tile_get(p, idx, n);
    const bool some_odd = smem->any[parity] != 0;
    results_stage(results, total, n);
    gpu_warps_sync(BAR_RESULTS + group, GROUP);
    results_store(p, &tile, results, state, some_odd, n);
    if (some_odd) {
        odd_store(p, &tile, state, n);
    }
    gpu_warps_sync(BAR_RESULTS + group,
                   GROUP); /* all have read the results, which the next tile's overwrite */
}

/* A lane's: nobody of the warp needs a stage any more, which lane 0 tells the first CTA and lane 1 the
 * second, since both have to know before one of them converts. */
DEVICE void stage_release(uint32_t empty, const int32_t step) {
    if (threadIdx.x % MMLA_PROJECT_WARP < PAIR) {
        gpu_cluster_arrive(empty + step * 8);
    }
}

/* What the multiplying warps do, from the first tile to the last. */
DEVICE void block_multiply(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    const uint32_t empty = gpu_cluster_address(smem->empty, threadIdx.x % PAIR);
    weight_stream from;
    project_wg_step a[2];
    weight_begin(p, &from, gpu_cluster_number(), n);
#pragma unroll
    for (int32_t i = 0; i < AHEAD; i++) {
        weight_copy(smem, &from, i);
    }
    gpu_barrier_wait(smem->table_full, 0);
    weight_convert(smem, &from, &a[0], 0, 0, n);
    if (threadIdx.x >= GROUP) {
        /* The second warpgroup begins LAG steps late, so that one adds sums while the other multiplies. */
        gpu_barrier_wait(smem->full + LAG * 8, 0);
    }

    int32_t parity = 0;
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles; idx += gpu_n_clusters()) {
        float total[N_MAX / 2];
#pragma unroll
        for (int32_t i = 0; i < n / 2; i++) {
            total[i] = 0.0f;
        }
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            float sums[N_MAX / 2];
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                gpu_barrier_wait(smem->full + step * 8, segment % 2);
                project_wg_step_multiply(sums, &a[step % 2],
                                         smem->stages + step * n * MMLA_PROJECT_WG_ROW_BYTES,
                                         step == 0, n);
                gpu_wgmma_wait_but_newest(); /* the step before is done: its stage, its registers */
                if (step > 0) {
                    stage_release(empty, step - 1);
                }
                /* The step after this one, which may be of the next segment or tile. */
                const int32_t next = (step + 1) % STEPS;
                const int32_t of = (segment + (step + 1) / STEPS) % MMLA_PROJECT_SEGMENTS;
                if (next == 0 && (of != 0 || idx + gpu_n_clusters() < n_tiles)) {
                    gpu_barrier_wait(smem->table_full + of % TABLES * 8, of / TABLES % 2);
                }
                if (next == STEPS - AHEAD && segment == LAST_SEGMENT) {
                    weight_begin(p, &from, idx + gpu_n_clusters(), n);
                }
                weight_convert(smem, &from, &a[(step + 1) % 2], next, of % TABLES, n);
            }
            gpu_wgmma_wait_all();
            gpu_wgmma_use(sums, n / 2);
            stage_release(empty, STEPS - 1);
            sums_add(smem, total, sums, segment % TABLES, n);
            __syncwarp();
            if (is_first_lane) {
                gpu_barrier_arrive(smem->table_empty + segment % TABLES * 8);
            }
        }
        block_end(p, smem, idx, total, parity, n);
        parity ^= 1;
    }
    gpu_cp_async_wait_all();
}

#endif
