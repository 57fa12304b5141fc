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
    ROWS = MMLA_PROJECT_FEW_ROWS,
    PARTS = MMLA_PROJECT_FEW_PARTS,
    STAGES = MMLA_PROJECT_FEW_STAGES,
    STAGE_BYTES = MMLA_PROJECT_FEW_STAGE_BYTES,
    AHEAD = STAGES / PARTS, /* steps of a part that are asked for before they are needed */
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    LINE_GROUPS = LINE / MMLA_PROJECT_GROUP,
    HALVES = 2,                                /* tokens of a thread, eight apart */
    QUAD = 4,                                  /* threads that have the same two */
    WORDS = MMLA_PROJECT_FEW_LINES_MAX / QUAD, /* of scales, of a thread and token */
    SUM_BYTES = MMLA_PROJECT_FEW_SUM_BYTES,
    TOKENS_LOG2 = 6
};

static_assert(1 << TOKENS_LOG2 == TOKENS, "a tile's tokens");
static_assert((int)STAGES == THREADS / MMLA_PROJECT_WARP, "a warp asks for a stage at first");
static_assert((int)ROWS <= (int)TOKENS, "the threads that have marks have those of rows");
static_assert(TOKENS * SUM_BYTES <= STAGES * STAGE_BYTES, "sums fit where stages were");

#define DEVICE static __device__ __forceinline__

/* The parts of shared memory, in all CTAs at the same addresses. */
typedef struct few_smem {
    uint32_t stages;
    uint32_t
        sums; /* [CTA's part of K][token that this one stores][row], in place of stages; behind the rows of
                             a token is its mark for that part, PROJECT_ODD or 0 */
    uint32_t left;        /* sums of warpgroups for each other */
    uint8_t *exponents;   /* [part][token][line], with a pitch */
    int32_t *token_marks; /* [part][token] */
    float *factors;       /* [row] */
    int32_t *row_marks;   /* [row] */
    uint32_t full, empty;
} few_smem;

DEVICE few_smem few_smem_get(uint8_t *shared) {
    few_smem s;
    uint8_t *left = shared + STAGES * STAGE_BYTES;
    s.stages = s.sums = gpu_smem_address(shared);
    s.left = gpu_smem_address(left);
    s.exponents = left + MMLA_PROJECT_FEW_LEFT_BYTES;
    s.token_marks = (int32_t *)(s.exponents + PARTS * TOKENS * MMLA_PROJECT_FEW_PITCH);
    s.factors = (float *)(s.token_marks + PARTS * TOKENS);
    s.row_marks = (int32_t *)(s.factors + ROWS);
    s.full = gpu_smem_address(s.row_marks + ROWS);
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

DEVICE mmla_project_tile few_tile_get(const mmla_project_few_params *p) {
    mmla_project_tile tile;
    tile.row = (int32_t)(blockIdx.x >> p->splits_log2) * ROWS;
    tile.token = (int64_t)blockIdx.y * TOKENS;
    tile.g = (int32_t)blockIdx.z;
    tile.n_rows = p->p.rank - tile.row < ROWS ? p->p.rank - tile.row : ROWS;
    const int64_t left = p->p.n_tokens - tile.token;
    tile.n_tokens = left < TOKENS ? (int32_t)left : TOKENS;
    return tile;
}

#endif
