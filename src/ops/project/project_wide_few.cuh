/* project_wide_few.cuh - what the parts of project_wide_few.cu share: sizes, shared memory, and where a thread is. */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_CUH
#define MMLA_OPS_PROJECT_WIDE_FEW_CUH

#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "gpu/order.cuh"
#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wide_few_cuda.h"
#include "ops/project/project_wide_rows.cuh"

enum {
    GROUP = MMLA_PROJECT_WG_THREADS,
    GROUP_WARPS = GROUP / MMLA_PROJECT_WARP,
    THREADS = MMLA_PROJECT_FEW_THREADS,
    TOKENS = MMLA_PROJECT_FEW_TOKENS,
    ROWS_MAX = 64,
    PARTS = MMLA_PROJECT_FEW_PARTS,
    STAGES = MMLA_PROJECT_FEW_STAGES,
    AHEAD = STAGES / PARTS, /* steps of a part that are asked for before they are needed */
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    LINE_GROUPS = LINE / MMLA_PROJECT_GROUP,
    HALVES = 2,                                /* tokens of a thread, eight apart */
    QUAD = 4,                                  /* threads that have the same two */
    WORDS = MMLA_PROJECT_FEW_LINES_MAX / QUAD, /* of scales, of a thread and token */
    TOKENS_LOG2 = 6
};

static_assert(1 << TOKENS_LOG2 == TOKENS, "a tile's tokens");
static_assert((int)STAGES == THREADS / MMLA_PROJECT_WARP, "a warp asks for a stage at first");

#define DEVICE static __device__ __forceinline__

/* Of tiles of n rows: a stage; sums of a token and its mark, and more, so that four tokens' meet all banks. */
DEVICE constexpr int32_t stage_bytes_of(const int32_t n) {
    return n * MMLA_PROJECT_WG_ROW_BYTES;
}
DEVICE constexpr int32_t sum_bytes_of(const int32_t n) {
    return (n + 8) * (int32_t)sizeof(float);
}
static_assert(TOKENS * (32 + 8) * 4 <= STAGES * 32 * MMLA_PROJECT_WG_ROW_BYTES &&
                  TOKENS * (64 + 8) * 4 <= STAGES * 64 * MMLA_PROJECT_WG_ROW_BYTES,
              "sums fit where stages were");

/* The parts of shared memory, in all CTAs at the same addresses. A mark is PROJECT_ODD or 0. Sums are of
 * tokens that this CTA stores; the mark behind a token's is of the CTA's part of K. */
typedef struct few_smem {
    uint32_t stages;
    uint32_t sums;        /* [CTA's part of K][token][row and a mark], in place of stages */
    uint32_t left;        /* sums of warpgroups for each other */
    uint8_t *exponents;   /* [part][token][line], with a pitch */
    int32_t *token_marks; /* [part][token] */
    float *factors;       /* [row] */
    int32_t *row_marks;   /* [row] */
    uint32_t full, empty;
} few_smem;

DEVICE few_smem few_smem_get(uint8_t *shared, const int32_t n) {
    few_smem s;
    uint8_t *left = shared + STAGES * stage_bytes_of(n);
    s.stages = s.sums = gpu_smem_address(shared);
    s.left = gpu_smem_address(left);
    s.exponents = left + MMLA_PROJECT_FEW_LEFT_BYTES(n);
    s.token_marks = (int32_t *)(s.exponents + PARTS * TOKENS * MMLA_PROJECT_FEW_PITCH);
    s.factors = (float *)(s.token_marks + PARTS * TOKENS);
    s.row_marks = (int32_t *)(s.factors + n);
    s.full = gpu_smem_address(s.row_marks + n);
    s.empty = s.full + STAGES * 8;
    return s;
}

/* Where a thread is: its warpgroup's part of K among the CTA's, the first line of that, and the first of its own two
 * tokens. */
typedef struct few_place {
    int32_t part, first_line, token;
} few_place;

DEVICE int32_t first_line_get(const mmla_project_few_params *p, int32_t part) {
    return ((int32_t)gpu_cluster_rank() * PARTS + part) * p->n_lines;
}

DEVICE few_place few_place_get(const mmla_project_few_params *p) {
    few_place at;
    at.part = (int32_t)(threadIdx.x / GROUP);
    at.first_line = first_line_get(p, at.part);
    at.token = mmla_project_wg_row((int32_t)(threadIdx.x % GROUP));
    return at;
}

DEVICE mmla_project_tile few_tile_get(const mmla_project_few_params *p, const int32_t n) {
    mmla_project_tile tile;
    tile.row = (int32_t)(blockIdx.x >> p->splits_log2) * n;
    tile.token = (int64_t)blockIdx.y * TOKENS;
    tile.g = (int32_t)blockIdx.z;
    tile.n_rows = p->p.rank - tile.row < n ? p->p.rank - tile.row : n;
    const int64_t left = p->p.n_tokens - tile.token;
    tile.n_tokens = left < TOKENS ? (int32_t)left : TOKENS;
    return tile;
}

#endif
