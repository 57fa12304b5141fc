/* project_wgmma_block.cuh - what the roles of project_wgmma_block.cu share: sizes, the parts of shared memory,
 * and which tile comes next. */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_CUH

#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/order.cuh"
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
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    LINES_MAX = MMLA_PROJECT_WG_BLOCK_LINES_MAX,
    EIGHT = MMLA_PROJECT_WG_MATRIX_ROWS /* tokens, one matrix of codes for every unit of a step */
};

static_assert(LINE_STEPS == 2, "the first step of a line waits for it, the second makes room");
static_assert(STAGES * LINE_STEPS == STEPS && STEPS % (LINES_MAX * LINE_STEPS) == 0,
              "a step's stage and the place of its codes are constants");
static_assert(MMLA_PROJECT_STEPS / (LINES_MAX * LINE_STEPS) % 2 == 0,
              "the parity of codes begins anew with a tile");
static_assert(MMLA_PROJECT_SEGMENTS % (2 * TABLES) == 0, "and a segment's table and parities");

#define DEVICE static __device__ __forceinline__

/* Places of a row's lines of codes, and steps that are in them. */
DEVICE constexpr int32_t lines_of(const int32_t n) {
    return MMLA_PROJECT_WG_BLOCK_LINES(n);
}
DEVICE constexpr int32_t ahead_of(const int32_t n) {
    return lines_of(n) * LINE_STEPS;
}

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
    const int32_t exponents_off =
        STAGES * LINE_STEPS * n * MMLA_PROJECT_WG_ROW_BYTES + 2 * n * ROWS +
        lines_of(n) * (MMLA_PROJECT_WG_BLOCK_LINE_BYTES + share_of(n) * LINE);
    block_smem s;
    s.stages = gpu_smem_address(shared);
    s.results = s.stages + STAGES * LINE_STEPS * n * MMLA_PROJECT_WG_ROW_BYTES;
    s.weight_codes = s.results + 2 * n * ROWS;
    s.token_codes = s.weight_codes + lines_of(n) * MMLA_PROJECT_WG_BLOCK_LINE_BYTES;
    s.exponents = shared + exponents_off;
    s.factors = (float *)(s.exponents + 2 * rows * MMLA_PROJECT_WG_SCALES);
    s.state = (int32_t *)(s.factors + 2 * rows);
    s.any = s.state + 2 * rows;
    s.full = gpu_smem_address(s.any + 2);
    s.empty = s.full + STAGES * 8;
    s.codes_full = s.empty + STAGES * 8;
    s.codes_empty = s.codes_full + LINES_MAX * 8;
    s.table_full = s.codes_empty + LINES_MAX * 8;
    s.table_empty = s.table_full + TABLES * 8;
    return s;
}

static_assert(8 + 8 * (2 * STAGES + 2 * LINES_MAX + 2 * TABLES) <= 256,
              "the barriers and flags fit");

/* Where a line of tokens lies as fp16, and its tile of a step within. */
DEVICE constexpr uint32_t stage_place(const int32_t step, const int32_t n) {
    return (uint32_t)(step / LINE_STEPS * LINE_STEPS * n * MMLA_PROJECT_WG_ROW_BYTES);
}
DEVICE constexpr uint32_t step_place(const int32_t step) {
    return (uint32_t)(step % LINE_STEPS * EIGHT * MMLA_PROJECT_WG_ROW_BYTES);
}

/* Where lines of codes of a step lie, of weight and of tokens. */
DEVICE constexpr uint32_t weight_place(const int32_t step, const int32_t n) {
    return (uint32_t)(step / LINE_STEPS % lines_of(n) * MMLA_PROJECT_WG_BLOCK_LINE_BYTES);
}
DEVICE constexpr uint32_t token_place(const int32_t step, const int32_t n) {
    return (uint32_t)(step / LINE_STEPS % lines_of(n) * share_of(n) * LINE);
}

/* A pair's tiles, of the rows of both, are number gpu_cluster_number(), and so many on, of so many. */
DEVICE uint32_t n_tiles_get(const mmla_project_params *p, const int32_t n) {
    return (uint32_t)mmla_project_tiles(p->rank, PAIR * ROWS) * (uint32_t)p->n_groups *
           (uint32_t)mmla_project_tiles(p->n_tokens, n);
}

/* How many tiles that are. The parity of a tile is that of how many are left, it included. */
DEVICE uint32_t turns_get(const mmla_project_params *p, const int32_t n) {
    return (n_tiles_get(p, n) - gpu_cluster_number() - 1) / gpu_n_clusters() + 1;
}

/* The CTA's rows of it, which may be none. */
DEVICE mmla_project_tile tile_get(const mmla_project_params *p, uint32_t idx, const int32_t n) {
    return mmla_project_wg_tile_part(
        mmla_project_wg_tile_get(idx, p->n_tokens, p->rank, n, PAIR * ROWS),
        (int32_t)gpu_cluster_rank(), ROWS);
}

#endif
