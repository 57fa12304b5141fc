/* project_wide.cuh - what the roles of project_wide.cu share: sizes, the parts of shared memory, and which tile comes
 * next. */
#ifndef MMLA_OPS_PROJECT_WIDE_CUH
#define MMLA_OPS_PROJECT_WIDE_CUH

#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/order.cuh"
#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wide_cuda.h"

enum {
    N_MAX = 256,
    TOKENS = MMLA_PROJECT_WIDE_TOKENS,
    GROUP = MMLA_PROJECT_WG_THREADS,
    MATH_THREADS = 2 * GROUP,
    MATH_WARPS = MATH_THREADS / MMLA_PROJECT_WARP,
    TABLE_THREADS = GROUP - MMLA_PROJECT_WARP,
    STEPS = MMLA_PROJECT_WIDE_ROUND_STEPS,
    WARP_TOKENS = 16, /* of a multiplying warp */
    TABLES = 2,
    TABLE_PITCH = MMLA_PROJECT_WIDE_TABLE_PITCH,
    FLAGS = 1 + MATH_WARPS,
    STAGES_MAX = 8,
    LINES = MMLA_PROJECT_WIDE_LINES,
    BAR_TABLES = 1 /* barrier of the threads with scales */
};

#define DEVICE static __device__ __forceinline__

DEVICE constexpr int32_t stages_of(const int32_t n) {
    return MMLA_PROJECT_WIDE_STAGES(n);
}

/* The parts of shared memory, in all CTAs at the same addresses. */
typedef struct wide_smem {
    uint8_t *exponents; /* [2][TOKENS][TABLE_PITCH] */
    float *factors;     /* [2][n + TOKENS], of weight and of tokens */
    int32_t *state;     /* [2][n + TOKENS]: PROJECT_ODD */
    int32_t *
        any; /* [2][FLAGS]: whether one of the tile's rows has a state, and of each warp's tokens */
    uint32_t stages, lines, pieces;
    uint32_t full, empty, table_full, table_empty, asked;
} wide_smem;

DEVICE wide_smem wide_smem_get(uint8_t *shared, const int32_t n) {
    wide_smem s;
    s.stages = gpu_smem_address(shared);
    s.lines = s.stages + stages_of(n) * n * MMLA_PROJECT_WG_ROW_BYTES;
    s.pieces = s.lines + LINES * MMLA_PROJECT_WIDE_LINE_BYTES;
    s.exponents = shared + (s.pieces - s.stages) + MATH_WARPS * MMLA_PROJECT_WIDE_PIECE_BYTES;
    s.factors = (float *)(s.exponents + TABLES * TOKENS * TABLE_PITCH);
    s.state = (int32_t *)(s.factors + TABLES * (n + TOKENS));
    s.any = s.state + TABLES * (n + TOKENS);
    s.full = gpu_smem_address(s.any + TABLES * FLAGS);
    s.empty = s.full + STAGES_MAX * 8;
    s.table_full = s.empty + STAGES_MAX * 8;
    s.table_empty = s.table_full + TABLES * 8;
    s.asked = s.table_empty + TABLES * 8;
    return s;
}

static_assert((int)STEPS == (int)MMLA_PROJECT_SEGMENT_STEPS,
              "a round of the loop is a segment's scales");

static_assert(TABLES * FLAGS * 4 + 8 * (2 * STAGES_MAX + 2 * TABLES + 1) <= 256,
              "the barriers and flags fit");

/* The flag of a tile's rows of weight, and that of one of its tokens. */
DEVICE int32_t *any_row(const wide_smem *s, int32_t table) {
    return s->any + table * FLAGS;
}
DEVICE int32_t *any_token(const wide_smem *s, int32_t table, int32_t token) {
    return s->any + table * FLAGS + 1 + token / WARP_TOKENS;
}

/* Tiles of a cluster are number gpu_cluster_number(), and so many on. Tile idx is one of rows, then of tokens, then of
 * groups: of its tokens the CTA's, which may be none. */
DEVICE mmla_project_tile tile_get(const mmla_project_wide_params *p,
                                  uint32_t idx,
                                  const int32_t n) {
    const uint32_t rest = idx / p->row_tiles, token_tile = rest % p->token_tiles;
    mmla_project_tile tile;
    tile.row = (int32_t)(idx % p->row_tiles) * n;
    tile.token = ((int64_t)token_tile * p->sharers + gpu_cluster_rank()) * TOKENS;
    tile.g = (int32_t)(rest / p->token_tiles);
    tile.n_rows = p->p.rank - tile.row < n ? p->p.rank - tile.row : n;
    const int64_t left = p->p.n_tokens - tile.token;
    tile.n_tokens = left < 0 ? 0 : left < TOKENS ? (int32_t)left : TOKENS;
    return tile;
}

#endif
