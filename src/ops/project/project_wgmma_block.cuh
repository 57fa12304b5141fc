/* project_wgmma_block.cuh - what the roles of project_wgmma_block.cu share: sizes, the parts of shared memory,
 * and which tile comes next. */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_CUH

#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wgmma_cuda.h"

enum {
    ROWS = MMLA_PROJECT_WG_BLOCK_ROWS,
    PAIR = MMLA_PROJECT_WG_BLOCK_CTAS,
    N_MAX = 128,
    STAGES = MMLA_PROJECT_WG_BLOCK_STAGES,
    GROUP = MMLA_PROJECT_WG_THREADS,
    GROUP_WARPS = GROUP / MMLA_PROJECT_WARP,
    MATH_THREADS = 2 * GROUP,
    MATH_WARPS = MATH_THREADS / MMLA_PROJECT_WARP,
    CONVERT_WARPS = GROUP_WARPS,
    TABLE_WARPS = GROUP_WARPS - 1,
    STEPS = MMLA_PROJECT_SEGMENT_STEPS,
    LAST_SEGMENT = MMLA_PROJECT_SEGMENTS - 1,
    TABLES = 2,
    AHEAD = MMLA_PROJECT_WG_BLOCK_AHEAD
};

static_assert(STAGES == STEPS && STEPS % AHEAD == 0 && STEPS / AHEAD % 2 == 0,
              "a step's stage, place of codes and the latter's parity are constants");
static_assert(MMLA_PROJECT_SEGMENTS % (2 * TABLES) == 0, "and a segment's table and parities");

#define DEVICE static __device__ __forceinline__

/* The parts of shared memory, in both CTAs at the same addresses. */
typedef struct block_smem {
    uint8_t *exponents; /* [2][ROWS + N][16] */
    float *factors;     /* [2][ROWS + N] */
    int32_t *state;     /* [2][ROWS + N], of the tile's parity: PROJECT_ODD */
    int32_t *any;       /* [2]: whether a row of the tile has a state */
    uint32_t stages, results, weight_codes, token_codes;
    uint32_t full, empty, codes_full, codes_empty, table_full, table_empty;
} block_smem;

/* Tokens of a tile of n that a CTA of the pair converts, and a warp of it. */
DEVICE constexpr int32_t share_of(const int32_t n) {
    return n / PAIR;
}
DEVICE constexpr int32_t warp_share_of(const int32_t n) {
    return n / (PAIR * CONVERT_WARPS);
}

DEVICE block_smem block_smem_get(uint8_t *shared, const int32_t n) {
    const int32_t rows = ROWS + n;
    const int32_t exponents_off = STAGES * n * MMLA_PROJECT_WG_ROW_BYTES + 2 * n * ROWS +
                                  AHEAD * (ROWS + share_of(n)) * MMLA_PROJECT_STEP;
    block_smem s;
    s.stages = gpu_smem_address(shared);
    s.results = s.stages + STAGES * n * MMLA_PROJECT_WG_ROW_BYTES;
    s.weight_codes = s.results + 2 * n * ROWS;
    s.token_codes = s.weight_codes + AHEAD * ROWS * MMLA_PROJECT_STEP;
    s.exponents = shared + exponents_off;
    s.factors = (float *)(s.exponents + 2 * rows * MMLA_PROJECT_WG_SCALES);
    s.state = (int32_t *)(s.factors + 2 * rows);
    s.any = s.state + 2 * rows;
    s.full = gpu_smem_address(s.any + 2);
    s.empty = s.full + STAGES * 8;
    s.codes_full = s.empty + STAGES * 8;
    s.codes_empty = s.codes_full + AHEAD * 8;
    s.table_full = s.codes_empty + AHEAD * 8;
    s.table_empty = s.table_full + TABLES * 8;
    return s;
}

static_assert(8 + 8 * (2 * STAGES + 2 * AHEAD + 2 * TABLES) <= 256, "the barriers and flags fit");

/* A pair's tiles, of the rows of both, are number gpu_cluster_number(), and so many on, of so many. */
DEVICE uint32_t n_tiles_get(const mmla_project_params *p, const int32_t n) {
    return (uint32_t)mmla_project_tiles(p->rank, PAIR * ROWS) * (uint32_t)p->n_groups *
           (uint32_t)mmla_project_tiles(p->n_tokens, n);
}

/* The CTA's rows of it, which may be none. */
DEVICE mmla_project_tile tile_get(const mmla_project_params *p, uint32_t idx, const int32_t n) {
    return mmla_project_wg_tile_part(
        mmla_project_wg_tile_get(idx, p->n_tokens, p->rank, n, PAIR * ROWS),
        (int32_t)gpu_cluster_rank(), ROWS);
}

#endif
