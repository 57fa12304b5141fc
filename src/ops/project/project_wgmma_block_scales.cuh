/* project_wgmma_block_scales.cuh - scales of project_wgmma_block.cu: what warps of their own make of a segment's,
 * and what they bring into L2 before codes are copied.
 *
 * There are two tables. One is free when a segment's products are done, and the products of the segment after
 * the next wait for it to be full again, by way of all the stages of tokens. So as little as possible happens in
 * between: scales have been loaded and looked at before the place is free, and only what is rare is left.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_SCALES_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_SCALES_CUH

#include "ops/project/project_wgmma_block.cuh"

enum {
    TABLE_THREADS = TABLE_WARPS * MMLA_PROJECT_WARP,
    PREFETCH = 2,    /* segments that are brought into L2 at once */
    SHARERS_MAX = 8, /* CTAs that share that work */
    TABLE_ROWS_MAX = (ROWS + N_MAX + TABLE_THREADS - 1) / TABLE_THREADS /* of a thread */
};

/* Rows of a tile that one thread has, the last of which may be none. */
DEVICE constexpr int32_t table_rows_of(const int32_t n) {
    return (ROWS + n + TABLE_THREADS - 1) / TABLE_THREADS;
}

/* Scale bytes of a segment of a row, which begin at `scales`, or of none: how they lie is a matter of whether the row
 * is a token's. Those of weight follow each other, and are one load where they are aligned. */
DEVICE void table_load(const mmla_project_params *p,
                       uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4],
                       const uint8_t *scales,
                       bool is_token,
                       int32_t segment) {
    const uint8_t *at = scales + segment * MMLA_PROJECT_WG_SCALES;
    if (scales != NULL && !is_token && (uintptr_t)at % 16 == 0) {
        const uint4 x = __ldg((const uint4 *)at);
        bytes[0] = x.x;
        bytes[1] = x.y;
        bytes[2] = x.z;
        bytes[3] = x.w;
    } else {
        project_row r;
        r.scales = scales;
        r.word_stride = is_token ? p->x_scale_strides.word : 4;
        r.in_words = is_token ? p->x_scale_in_words : p->weight_scale_in_words;
        r.exists = scales != NULL;
        project_wg_scales_load(bytes, &r, segment);
    }
}

/* One row's line of a table. */
DEVICE void table_row_write(const block_smem *smem,
                            const mmla_project_wg_segment *s,
                            int32_t row,
                            int32_t segment,
                            const int32_t n) {
    const int32_t at = segment % TABLES * (ROWS + n) + row;
    uint32_t e[MMLA_PROJECT_WG_SCALES / 4];
    mmla_project_wg_exponents_by_half(s->exponents, e);
    *(uint4 *)(smem->exponents + at * MMLA_PROJECT_WG_SCALES) =
        row < ROWS ? make_uint4(e[0], e[1], e[2], e[3])
                   : make_uint4(s->exponents[0], s->exponents[1], s->exponents[2], s->exponents[3]);
    smem->factors[at] = s->factor;
}

/* The same of a row that is not the usual case, and its mark. */
DEVICE void table_row_write_any(const mmla_project_params *p,
                                const block_smem *smem,
                                uint32_t idx,
                                int32_t row,
                                int32_t segment,
                                int32_t parity,
                                const int32_t n) {
    const mmla_project_tile tile = tile_get(p, idx, n);
    const project_row r = project_row_get(p, &tile, row, ROWS);
    uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4];
    project_wg_scales_load(bytes, &r, segment);
    const mmla_project_wg_segment s =
        mmla_project_wg_segment_get(bytes, project_wg_zeros(&r, segment));
    table_row_write(smem, &s, row, segment, n);
    if (s.is_odd) {
        smem->state[parity * (ROWS + n) + row] = PROJECT_ODD;
        smem->any[parity] = 1;
    }
}

/* The thread's rows of a segment's table. */
DEVICE void table_write(const mmla_project_params *p,
                        const block_smem *smem,
                        uint32_t idx,
                        const uint8_t *const *scales,
                        int32_t thread,
                        int32_t segment,
                        int32_t parity,
                        const int32_t n) {
    const int32_t n_rows = table_rows_of(n);
    mmla_project_wg_segment s[TABLE_ROWS_MAX];
    uint32_t bytes[TABLE_ROWS_MAX][MMLA_PROJECT_WG_SCALES / 4];
    uint32_t rare = 0; /* a bit a row */
#pragma unroll
    for (int32_t i = 0; i < n_rows; i++) {
        table_load(p, bytes[i], scales[i], thread + i * TABLE_THREADS >= ROWS, segment);
    }
#pragma unroll
    for (int32_t i = 0; i < n_rows; i++) {
        rare |= (uint32_t)!mmla_project_wg_segment_quick(bytes[i], &s[i]) << i;
    }
    gpu_barrier_wait(smem->table_empty + segment % TABLES * 8, segment / TABLES % 2 ^ 1);
    if (segment == MMLA_PROJECT_SEGMENTS / 2 && thread == 0) {
        smem->any[parity ^ 1] = 0; /* of the tile before, which is stored */
    }
#pragma unroll
    for (int32_t i = 0; i < n_rows; i++) {
        const int32_t row = thread + i * TABLE_THREADS;
        if (row < ROWS + n) {
            table_row_write(smem, &s[i], row, segment, n);
            if (segment == 0) {
                smem->state[parity * (ROWS + n) + row] = 0;
            }
        }
    }
    if (rare != 0) {
#pragma unroll 1
        for (int32_t i = 0; i < n_rows; i++) {
            if ((rare >> i & 1u) != 0 && thread + i * TABLE_THREADS < ROWS + n) {
                table_row_write_any(p, smem, idx, thread + i * TABLE_THREADS, segment, parity, n);
            }
        }
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
    const int32_t warp = thread / MMLA_PROJECT_WARP;
    int32_t parity = (int32_t)turns_get(p, n) % 2; /* of the tile, of how many are left with it */
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles_get(p, n); idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const uint8_t *scales[TABLE_ROWS_MAX]; /* of rows that exist */
#pragma unroll
        for (int32_t i = 0; i < table_rows_of(n); i++) {
            const project_row r = project_row_get(p, &tile, thread + i * TABLE_THREADS, ROWS);
            scales[i] = r.exists ? r.scales : NULL;
        }
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            table_write(p, smem, idx, scales, thread, segment, parity, n);
            gpu_barrier_arrive(smem->table_full + segment % TABLES * 8);
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
