/* project_wgmma_block_scales.cuh - scales of project_wgmma_block.cu: what warps of their own make of a segment's,
 * and what they bring into L2 before codes are copied. */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_SCALES_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_SCALES_CUH

#include "ops/project/project_wgmma_block.cuh"

enum {
    TABLE_THREADS = TABLE_WARPS * MMLA_PROJECT_WARP,
    PREFETCH = 2,   /* segments that are brought into L2 at once */
    SHARERS_MAX = 8 /* CTAs that share that work */
};

/* One row's line of a table, and its mark. */
DEVICE void segment_row_write(const block_smem *smem,
                              const project_row *r,
                              const uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4],
                              int32_t row,
                              int32_t segment,
                              int32_t parity,
                              const int32_t n) {
    const mmla_project_wg_segment s = project_wg_segment_of(bytes, r, segment);
    const int32_t at = segment % TABLES * (ROWS + n) + row;
    *(uint4 *)(smem->exponents + at * MMLA_PROJECT_WG_SCALES) =
        make_uint4(s.exponents[0], s.exponents[1], s.exponents[2], s.exponents[3]);
    smem->factors[at] = s.factor;
    int32_t *state = smem->state + parity * (ROWS + n) + row;
    if (segment == 0) {
        *state = s.is_odd ? PROJECT_ODD : 0;
    } else if (s.is_odd) {
        *state = PROJECT_ODD;
    }
    if (s.is_odd) {
        smem->any[parity] = 1;
    }
}

/* The table of a segment, by thread `thread` of those that make it. Scales of its first row are asked for
 * before there is a place for them. */
DEVICE void segment_write(const mmla_project_params *p,
                          const block_smem *smem,
                          const mmla_project_tile *tile,
                          int32_t thread,
                          int32_t segment,
                          int32_t parity,
                          const int32_t n) {
#pragma unroll 1
    for (int32_t row = thread; row < ROWS + n; row += TABLE_THREADS) {
        uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4];
        const project_row r = project_row_get(p, tile, row, ROWS);
        project_wg_scales_load(bytes, &r, segment);
        if (row == thread) {
            gpu_barrier_wait(smem->table_empty + segment % TABLES * 8, segment / TABLES % 2 ^ 1);
            if (segment == MMLA_PROJECT_SEGMENTS / 2 && thread == 0) {
                smem->any[parity ^ 1] = 0; /* of the tile before, which is stored */
            }
        }
        segment_row_write(smem, &r, bytes, row, segment, parity, n);
    }
}

/* Every `every`-th of so many rows of codes to L2, from the first on; a warp's instruction, so lanes would not
 * make it faster. */
DEVICE void rows_prefetch(const uint8_t *codes,
                          int64_t stride,
                          int32_t warp,
                          int32_t first,
                          int32_t every,
                          int32_t n_rows,
                          const int32_t bytes) {
#pragma unroll 1
    for (int32_t row = first + warp * every; row < n_rows; row += TABLE_WARPS * every) {
        if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
            gpu_prefetch_l2(codes + row * stride, bytes);
        }
    }
}

/* Brings PREFETCH segments of a tile into L2. CTAs that have the same rows or tokens at this time share the
 * work; where they do not, because some are a tile ahead, or because of a rank so large that fewer tiles of
 * tokens run at once, loads wait longer. */
DEVICE void segments_prefetch(
    const mmla_project_params *p, uint32_t idx, int32_t warp, int32_t segment, const int32_t n) {
    enum { BYTES = PREFETCH * MMLA_PROJECT_SEGMENT };
    if (idx >= n_tiles_get(p, n)) {
        return;
    }
    const mmla_project_tile tile = tile_get(p, idx, n);
    const int32_t column = segment * MMLA_PROJECT_SEGMENT;
    const int32_t row_tiles = (int32_t)mmla_project_tiles(p->rank, ROWS);
    const int64_t token_tiles = mmla_project_tiles(p->n_tokens, n);
    const int32_t x_sharers = row_tiles < SHARERS_MAX ? row_tiles : SHARERS_MAX;
    const int32_t w_sharers = token_tiles < SHARERS_MAX ? (int32_t)token_tiles : SHARERS_MAX;
    rows_prefetch(p->weight + ((int64_t)tile.g * p->rank + tile.row) * MMLA_PROJECT_DIM + column,
                  MMLA_PROJECT_DIM, warp, (int32_t)(tile.token / n % w_sharers), w_sharers,
                  tile.n_rows, BYTES);
    rows_prefetch(p->x + (tile.token * p->n_groups + tile.g) * MMLA_PROJECT_DIM + column,
                  (int64_t)p->n_groups * MMLA_PROJECT_DIM, warp, tile.row / ROWS % x_sharers,
                  x_sharers, tile.n_tokens, BYTES);
}

/* What the warps with scales do, from the first tile to the last; `thread` is one of theirs. */
DEVICE void block_tables(const mmla_project_params *p,
                         const block_smem *smem,
                         int32_t thread,
                         const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const int32_t warp = thread / MMLA_PROJECT_WARP;
    int32_t parity = 0; /* of the tile among the CTA's */
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            segment_write(p, smem, &tile, thread, segment, parity, n);
            __syncwarp();
            if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
                gpu_barrier_arrive(smem->table_full + segment % TABLES * 8);
            }
            if (segment == 0 && idx == gpu_cluster_number()) {
                segments_prefetch(p, idx, warp, 0, n);
            }
            if (segment % PREFETCH == 0) {
                const int32_t next = segment + PREFETCH;
                const bool is_here = next < MMLA_PROJECT_SEGMENTS;
                segments_prefetch(p, is_here ? idx : idx + gpu_n_clusters(), warp,
                                  is_here ? next : 0, n);
            }
        }
        parity ^= 1;
    }
}

#endif
