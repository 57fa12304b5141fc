/* project_wide_load.cuh - what the third warpgroup of project_wide.cu does: one warp asks for weight, three have the
 * scales of tokens.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_LOAD_CUH
#define MMLA_OPS_PROJECT_WIDE_LOAD_CUH

#include "ops/project/project_wide_tokens.cuh"

/* Weight, from the first tile to the last, by one thread: a CTA asks for its share of a step's rows, for all that
 * have the same rows and columns. */
DEVICE void wide_load(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    const int32_t share = n * MMLA_PROJECT_WG_ROW_BYTES / p->sharers;
    const uint32_t own = (uint32_t)(part_get(p) * share);
    const uint32_t sharers = ((1u << p->sharers) - 1u) << split_get(p, n) * p->sharers;
    const int32_t first = split_get(p, n) * n_steps_get(p, n);
    int32_t stage = 0;
    uint32_t parity = 1;
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < p->n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const uint8_t *at =
            p->codes + mmla_project_wide_off(p->p.rank, tile.g, tile.row, first) + own;
#pragma unroll 1
        for (int32_t step = 0; step < n_steps_get(p, n); step++) {
            const uint32_t full = smem->full + stage * 8;
            gpu_barrier_wait(smem->empty + stage * 8, parity);
            gpu_barrier_arrive_expect(full, (uint32_t)(n * MMLA_PROJECT_WG_ROW_BYTES));
            gpu_bulk_load_shared(smem->stages + stage * n * MMLA_PROJECT_WG_ROW_BYTES + own, at,
                                 (uint32_t)share, full, (uint16_t)sharers);
            at += MMLA_PROJECT_WIDE_STEP_BYTES;
            stage = stage == stages_of(n) - 1 ? 0 : stage + 1;
            parity ^= stage == 0;
        }
    }
}

/* What is known of the thread's rows of weight. */
enum { ROWS_MAX = (N_MAX + TABLE_THREADS - 1) / TABLE_THREADS };
typedef struct weight_rows {
    float factor[ROWS_MAX];
    int32_t mark[ROWS_MAX];
} weight_rows;

DEVICE void weight_load(const mmla_project_wide_params *p,
                        const mmla_project_tile *tile,
                        weight_rows *rows,
                        int32_t thread,
                        const int32_t n) {
    const int64_t idx = mmla_project_wide_idx(p->p.rank, tile->g, tile->row) + thread;
#pragma unroll
    for (int32_t i = 0; i < ROWS_MAX; i++) {
        const bool exists = thread + i * TABLE_THREADS < n;
        rows->factor[i] = exists ? __ldg(p->factors + idx + i * TABLE_THREADS) : 0.0f;
        rows->mark[i] = exists ? __ldg(p->marks + idx + i * TABLE_THREADS) : 0;
    }
}

DEVICE void weight_write(const wide_smem *smem,
                         const weight_rows *rows,
                         int32_t thread,
                         int32_t table,
                         const int32_t n) {
#pragma unroll
    for (int32_t i = 0; i < ROWS_MAX; i++) {
        const int32_t row = thread + i * TABLE_THREADS;
        if (row < n) {
            smem->factors[table * (n + TOKENS) + row] = rows->factor[i];
            smem->state[table * (n + TOKENS) + row] = rows->mark[i];
            if (rows->mark[i] != 0) {
                smem->any[table] = 1;
            }
        }
    }
}

/* Scales, from the first tile to the last; `thread` is one of TABLE_THREADS. Those of the first tile's tokens the
 * multiplying warps have made themselves, so that they can begin. */
DEVICE void wide_tables(const mmla_project_wide_params *p,
                        const wide_smem *smem,
                        int32_t thread,
                        const int32_t n) {
    int32_t table = 0;
    uint32_t parity = 1;
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < p->n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        weight_rows rows;
        weight_load(p, &tile, &rows, thread, n);
        gpu_barrier_wait(smem->table_empty + table * 8, parity);
        if (idx != gpu_cluster_number()) {
            if (thread == 0) {
                smem->any[table] = 0;
            }
            gpu_warps_sync(BAR_TABLES, TABLE_THREADS);
#pragma unroll 1
            for (int32_t first = thread / MMLA_PROJECT_WARP * WARP_TOKENS; first < TOKENS;
                 first += TABLE_THREADS / MMLA_PROJECT_WARP * WARP_TOKENS) {
                if (tokens_write(p, smem, &tile, first, table, n)) {
                    smem->any[table] = 1;
                }
            }
        }
        weight_write(smem, &rows, thread, table, n);
        gpu_barrier_arrive(smem->table_full + table * 8);
        table ^= 1;
        parity ^= table == 0;
    }
}

#endif
