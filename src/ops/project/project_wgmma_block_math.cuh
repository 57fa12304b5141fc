/* project_wgmma_block_math.cuh - what the multiplying warpgroups of project_wgmma_block.cu do: their rows of weight
 * from codes to registers, products, sums of segments, results.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_MATH_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_MATH_CUH

#include "ops/project/project_wgmma_block.cuh"

enum {
    LAG = 1,        /* lines that the second warpgroup is behind */
    BAR_RESULTS = 3 /* number of the first warpgroup's barrier; the second's is the next */
};

/* Of the warp's 16 rows, the lane's unit of the line to be copied next, in the first row that it copies of. */
typedef struct weight_stream {
    const uint8_t *at;
    int32_t n_rows; /* from the warp's first row on to the last that the CTA has, a multiple of 8 */
} weight_stream;

enum {
    WARP_ROWS = MMLA_PROJECT_WG_ROWS / GROUP_WARPS,
    WARP_COPIES = WARP_ROWS / MMLA_PROJECT_WG_COPY_ROWS
};

static_assert(WARP_ROWS == 16 && WARP_COPIES == 4,
              "two copies each of the first and the second eight rows");

DEVICE int32_t warp_row(void) {
    return threadIdx.x / MMLA_PROJECT_WARP * WARP_ROWS;
}

DEVICE int32_t own_row(void) {
    return threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS + mmla_project_wg_row(threadIdx.x % GROUP);
}

DEVICE void weight_begin(
    const mmla_project_params *p, weight_stream *s, uint32_t idx, bool exists, const int32_t n) {
    s->n_rows = 0;
    if (exists) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
        const int32_t row = warp_row() + mmla_project_wg_copy_row(lane);
        s->at = p->weight + ((int64_t)tile.g * p->rank + tile.row + row) * MMLA_PROJECT_DIM +
                mmla_project_wg_copy_unit(lane) * MMLA_PROJECT_UNIT;
        s->n_rows = tile.n_rows - warp_row();
    }
}

/* The line of a step, and of the next, of the warp's rows. */
DEVICE void
weight_copy(const block_smem *smem, weight_stream *s, const int32_t step, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const uint32_t to =
        smem->weight_codes + weight_place(step, n) +
        (uint32_t)mmla_project_wg_weight_off(warp_row() + mmla_project_wg_copy_row(lane),
                                             mmla_project_wg_copy_unit(lane), ROWS);
#pragma unroll
    for (int32_t i = 0; i < WARP_COPIES; i++) {
        gpu_cp_async16_zero_stream(to + i * MMLA_PROJECT_WG_COPY_ROWS * MMLA_PROJECT_STEP,
                                   s->at + i * MMLA_PROJECT_WG_COPY_ROWS * MMLA_PROJECT_DIM,
                                   s->n_rows > i * MMLA_PROJECT_WG_COPY_ROWS / 8 * 8);
    }
    gpu_cp_async_commit();
    s->at += LINE;
}

/* Scales of the thread's two rows for its half of four steps, a byte each. */
enum { SCALE_STEPS = 4 };
typedef struct weight_scales {
    uint32_t row, row_8;
} weight_scales;

/* Those of step `step` and the three after it. */
DEVICE void weight_scales_load(
    const block_smem *smem, weight_scales *s, const int32_t step, int32_t table, const int32_t n) {
    const uint32_t *at =
        (const uint32_t *)(smem->exponents +
                           (table * (ROWS + n) + own_row()) * MMLA_PROJECT_WG_SCALES +
                           mmla_project_wg_unit(threadIdx.x) / 2 * STEPS) +
        step / SCALE_STEPS;
    s->row = at[0];
    s->row_8 = at[8 * MMLA_PROJECT_WG_SCALES / 4];
}

DEVICE uint32_t step_exponent(uint32_t of, const int32_t step) {
    return of >> 8 * (step % SCALE_STEPS) & 0xFFu;
}

/* The thread's codes of a step, of two rows. Lanes have copied lines for each other: the first step of a line
 * waits for it. */
DEVICE void
weight_load(const block_smem *smem, uint4 codes[2], const int32_t step, const int32_t n) {
    const uint32_t from =
        smem->weight_codes + weight_place(step, n) +
        step % LINE_STEPS * MMLA_PROJECT_WG_WEIGHT_STEP(ROWS) +
        (uint32_t)mmla_project_wg_weight_off(own_row(), mmla_project_wg_unit(threadIdx.x), ROWS);
    if (step % LINE_STEPS == 0) {
        gpu_cp_async_wait(lines_of(n) - 1);
        __syncwarp();
    }
    codes[0] = gpu_smem_load16(from);
    codes[1] = gpu_smem_load16(from + 8 * MMLA_PROJECT_STEP);
}

/* To registers. After the second step of a line another takes its place, lines_of(n) further. */
DEVICE void weight_convert(const block_smem *smem,
                           weight_stream *s,
                           project_wg_step *a,
                           const uint4 codes[2],
                           const weight_scales *scales,
                           const int32_t step,
                           const int32_t n) {
    project_wg_step_convert(a, codes, step_exponent(scales->row, step),
                            step_exponent(scales->row_8, step));
    if (step % LINE_STEPS == LINE_STEPS - 1) {
        __syncwarp();
        weight_copy(smem, s, step, n);
    }
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
DEVICE void stage_release(uint32_t empty, const int32_t line) {
    if (threadIdx.x % MMLA_PROJECT_WARP < PAIR) {
        gpu_cluster_arrive(empty + line * 8);
    }
}

/* The codes of the step after `step` of a segment, if there is one: it may be of the next segment, whose scales
 * have to be there, or of the next tile. */
DEVICE void next_load(const block_smem *smem,
                      uint4 codes[2],
                      weight_scales *scales,
                      int32_t segment,
                      const int32_t step,
                      bool has_next_tile,
                      const int32_t n) {
    const int32_t next = (step + 1) % STEPS;
    const int32_t of = (segment + (step + 1) / STEPS) % MMLA_PROJECT_SEGMENTS;
    if (next == 0 && (of != 0 || has_next_tile)) {
        gpu_barrier_wait(smem->table_full + of % TABLES * 8, of / TABLES % 2);
    }
    if (next % SCALE_STEPS == 0) {
        weight_scales_load(smem, scales, next, of % TABLES, n);
    }
    weight_load(smem, codes, next, n);
}

/* What the multiplying warps do, from the first tile to the last. */
DEVICE void block_multiply(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t empty = gpu_cluster_address(smem->empty, threadIdx.x % PAIR);
    weight_stream from;
    weight_scales scales;
    project_wg_step a[2];
    uint4 codes[2];
    weight_begin(p, &from, gpu_cluster_number(), true, n);
#pragma unroll
    for (int32_t i = 0; i < lines_of(n); i++) {
        weight_copy(smem, &from, i * LINE_STEPS, n);
    }
    gpu_barrier_wait(smem->table_full, 0);
    weight_scales_load(smem, &scales, 0, 0, n);
    weight_load(smem, codes, 0, n);
    weight_convert(smem, &from, &a[0], codes, &scales, 0, n);
    if (threadIdx.x >= GROUP) {
        /* The second warpgroup begins late, so that one adds sums while the other multiplies. */
        gpu_barrier_wait(smem->full + LAG * 8, 0);
    }

    uint32_t idx = gpu_cluster_number();
#pragma unroll 1
    for (uint32_t left = turns_get(p, n); left > 0; left--) {
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
                const int32_t line = step / LINE_STEPS, next = (step + 1) % STEPS;
                const bool begins_line = step % LINE_STEPS == 0;
                if (begins_line) {
                    gpu_barrier_wait(smem->full + line * 8, segment % 2);
                }
                project_wg_step_multiply(
                    sums, &a[step % 2],
                    gpu_wgmma_tile_apart(smem->stages + stage_place(step, n) + step_place(step),
                                         MMLA_PROJECT_WG_EIGHTS_APART),
                    step == 0, n);
                gpu_wgmma_wait_but_newest(); /* the step before is done: its stage, its registers */
                next_load(smem, codes, &scales, segment, step, left > 1, n);
                if (begins_line && line > 0) {
                    stage_release(empty, line - 1);
                }
                /* After the second step of the last line but lines_of(n), the next tile's first is copied. */
                if (next == STEPS - ahead_of(n) + LINE_STEPS - 1 && segment == LAST_SEGMENT) {
                    weight_begin(p, &from, idx + gpu_n_clusters(), left > 1, n);
                }
                weight_convert(smem, &from, &a[(step + 1) % 2], codes, &scales, next, n);
            }
            gpu_wgmma_wait_all();
            gpu_wgmma_use(sums, n / 2);
            stage_release(empty, STAGES - 1);
            sums_add(smem, total, sums, segment % TABLES, n);
            gpu_barrier_arrive(smem->table_empty + segment % TABLES * 8);
        }
        block_end(p, smem, idx, total, left % 2, n);
        idx += gpu_n_clusters();
    }
    gpu_cp_async_wait_all();
}

#endif
