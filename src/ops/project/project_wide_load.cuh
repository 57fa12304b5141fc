/* project_wide_load.cuh - what the third warpgroup of project_wide.cu does: one warp asks for weight, three have the
 * scales of tokens.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_LOAD_CUH
#define MMLA_OPS_PROJECT_WIDE_LOAD_CUH

#include "ops/project/project_wide_tokens.cuh"

/* Weight, from the first tile to the last, by one thread: a CTA asks for its share of a step's rows, for all that
 * have the same rows and columns. What follows the first step would be in the way of the first scales, so it comes
 * after them. */
DEVICE void wide_load(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    const int32_t share = n * MMLA_PROJECT_WG_ROW_BYTES / p->sharers;
    const uint32_t own = gpu_cluster_rank() * (uint32_t)share;
    const uint32_t sharers = (1u << p->sharers) - 1u;
    int32_t stage = 0;
    uint32_t parity = 1;
    gpu_begin(false);
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < p->n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const uint8_t *at = p->codes + mmla_project_wide_off(p->p.rank, tile.g, tile.row, 0) + own;
#pragma unroll 1
        for (int32_t step = 0; step < MMLA_PROJECT_STEPS; step++) {
            const uint32_t full = smem->full + stage * 8;
            gpu_barrier_wait(smem->empty + stage * 8, parity);
            if (step == 1 && idx == gpu_cluster_number()) {
                gpu_barrier_wait(smem->asked, 0);
            }
            gpu_barrier_arrive_expect(full, (uint32_t)(n * MMLA_PROJECT_WG_ROW_BYTES));
            gpu_bulk_load_shared(smem->stages + stage * n * MMLA_PROJECT_WG_ROW_BYTES + own, at,
                                 (uint32_t)share, full, (uint16_t)sharers);
            at += MMLA_PROJECT_WIDE_STEP_BYTES;
            stage = stage == stages_of(n) - 1 ? 0 : stage + 1;
            parity ^= stage == 0;
        }
    }
}

/* What is known of a tile's rows of weight, from where it lies to the table. */
DEVICE void weight_write(const mmla_project_wide_params *p,
                         const wide_smem *smem,
                         const mmla_project_tile *tile,
                         int32_t thread,
                         int32_t table,
                         const int32_t n) {
    const int64_t first = mmla_project_wide_idx(p->p.rank, tile->g, tile->row);
    for (int32_t row = thread; row < n; row += TABLE_THREADS) {
        const int32_t mark = __ldg(p->marks + first + row);
        smem->factors[table * (n + TOKENS) + row] = __ldg(p->factors + first + row);
        smem->state[table * (n + TOKENS) + row] = mark;
        if (mark != 0) {
            *any_row(smem, table) = 1;
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
    gpu_begin(false);
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < p->n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        gpu_barrier_wait(smem->table_empty + table * 8, parity);
        if (idx != gpu_cluster_number()) {
            if (thread < FLAGS) {
                any_row(smem, table)[thread] = 0;
            }
            gpu_warps_sync(BAR_TABLES, TABLE_THREADS);
            enum { LANES = 8, AT_ONCE = MMLA_PROJECT_WARP / LANES }; /* few registers */
#pragma unroll 1
            for (int32_t first = thread / MMLA_PROJECT_WARP * AT_ONCE; first < TOKENS;
                 first += TABLE_THREADS / MMLA_PROJECT_WARP * AT_ONCE) {
                token_share share;
                share_ask(p, &share, &tile, first, LANES, n);
                if (share_write(smem, &share, &tile, first, table, LANES, n)) {
                    *any_token(smem, table, first) = 1;
                }
            }
        }
        weight_write(p, smem, &tile, thread, table, n);
        gpu_barrier_arrive(smem->table_full + table * 8);
        table ^= 1;
        parity ^= table == 0;
    }
}

#endif
