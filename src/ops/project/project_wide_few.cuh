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
    GROUP_TOKENS = MMLA_PROJECT_WG_ROWS,
    MATH_THREADS = MMLA_PROJECT_FEW_MATH_THREADS,
    MATH_WARPS = MATH_THREADS / MMLA_PROJECT_WARP,
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    LINE_GROUPS = LINE / MMLA_PROJECT_GROUP,
    CODE_STEPS = MMLA_PROJECT_FEW_CODE_STEPS,
    HALVES = 2, /* tokens of a thread, eight apart */
    QUAD = 4,   /* threads that have the same two */
    ROWS_MAX = 128,
    WORDS_MAX = MMLA_PROJECT_FEW_LINES_MAX(128) / QUAD,
    BAR_MATH = 1, /* of warps: those that multiply */
    REGISTERS_MATH = 112,
    REGISTERS_FEED = 32
};

#define DEVICE static __device__ __forceinline__

/* A tile, known when the kernel is compiled. */
typedef struct few_shape {
    int32_t tokens, rows;
} few_shape;

/* Parts of K of a CTA, and of each: scale words of a thread and token, slots of its ring of stages. */
DEVICE constexpr int32_t parts_of(const few_shape k) {
    return MMLA_PROJECT_FEW_PARTS(k.tokens);
}
DEVICE constexpr int32_t words_of(const few_shape k) {
    return MMLA_PROJECT_FEW_LINES_MAX(k.tokens) / QUAD;
}
DEVICE constexpr int32_t ahead_of(const few_shape k) {
    return MMLA_PROJECT_FEW_STAGES(k.rows) / parts_of(k);
}
DEVICE constexpr int32_t tokens_log2_of(const few_shape k) {
    return k.tokens == 64 ? 6 : 7;
}
DEVICE constexpr int32_t stage_bytes_of(const few_shape k) {
    return k.rows * MMLA_PROJECT_WG_ROW_BYTES;
}

/* Sums: those that warpgroups leave for each other; of a token, its mark, and more, so that four tokens' meet all banks. */
DEVICE constexpr int32_t left_bytes_of(const few_shape k) {
    return (parts_of(k) - 1) * k.tokens * k.rows * (int32_t)sizeof(float);
}
DEVICE constexpr int32_t sum_bytes_of(const few_shape k) {
    return (k.rows + 8) * (int32_t)sizeof(float);
}

#define CHECK(m, n)                                                                               \
    static_assert(MMLA_PROJECT_FEW_STAGES(n) <= MATH_WARPS, "a warp asks for a stage at first");  \
    static_assert(CODE_STEPS % ahead_of({m, n}) == 0, "a turn of the loop is turns of the ring"); \
    static_assert(m * sum_bytes_of({m, n}) + left_bytes_of({m, n}) <=                             \
                      MMLA_PROJECT_FEW_RING_BYTES(n) + (int)MMLA_PROJECT_FEW_CODES_BYTES,         \
                  "sums fit where stages and codes were");
MMLA_PROJECT_FEW_KERNELS(CHECK)
#undef CHECK

/* The parts of shared memory, in all CTAs at the same addresses. A mark is PROJECT_ODD or 0. Sums are of
 * tokens that this CTA stores; the mark behind a token's is of the CTA's part of K. */
typedef struct few_smem {
    uint32_t stages;    /* [slot][part] */
    uint32_t codes;     /* [warpgroup][step][half][thread] */
    uint32_t sums;      /* [CTA's part of K][token][row and a mark], in place of stages and codes */
    uint32_t left;      /* sums of warpgroups for each other, behind them */
    uint8_t *exponents; /* [part][token][line, and a factor] */
    int32_t *token_marks; /* [part][token] */
    float *factors;       /* [row] */
    int32_t *row_marks;   /* [row] */
    uint32_t full, empty; /* of stages */
} few_smem;

DEVICE few_smem few_smem_get(uint8_t *shared, const few_shape k) {
    few_smem s;
    s.stages = s.sums = gpu_smem_address(shared);
    s.left = s.sums + (uint32_t)(k.tokens * sum_bytes_of(k));
    s.codes = s.stages + MMLA_PROJECT_FEW_RING_BYTES(k.rows);
    s.exponents = shared + MMLA_PROJECT_FEW_RING_BYTES(k.rows) + MMLA_PROJECT_FEW_CODES_BYTES;
    s.token_marks =
        (int32_t *)(s.exponents + parts_of(k) * k.tokens * MMLA_PROJECT_FEW_PITCH(k.tokens));
    s.factors = (float *)(s.token_marks + parts_of(k) * k.tokens);
    s.row_marks = (int32_t *)(s.factors + k.rows);
    s.full = gpu_smem_address(s.row_marks + k.rows);
    s.empty = s.full + MMLA_PROJECT_FEW_STAGES(k.rows) * 8;
    return s;
}

/* The number of this CTA among those that share K, and of its tile among those that share weight. */
DEVICE int32_t split_get(const mmla_project_few_params *p) {
    return (int32_t)gpu_cluster_rank() & ((1 << p->splits_log2) - 1);
}
DEVICE int32_t sharer_get(const mmla_project_few_params *p) {
    return (int32_t)gpu_cluster_rank() >> p->splits_log2;
}
DEVICE uint32_t cta_get(const mmla_project_few_params *p, int32_t split, int32_t sharer) {
    return (uint32_t)((sharer << p->splits_log2) + split);
}

/* Where a thread is: its warpgroup, that one's part of K among the CTA's, the first line of that, and the first of its own
 * two tokens. */
typedef struct few_place {
    int32_t group, part, first_line, token;
} few_place;

DEVICE int32_t first_line_get(const mmla_project_few_params *p, int32_t part, const few_shape k) {
    return (split_get(p) * parts_of(k) + part) * p->n_lines;
}

DEVICE few_place few_place_get(const mmla_project_few_params *p, const few_shape k) {
    few_place at;
    at.group = (int32_t)__shfl_sync(PROJECT_ALL_LANES, threadIdx.x / GROUP, 0);
    at.part = at.group % parts_of(k);
    at.first_line = first_line_get(p, at.part, k);
    at.token =
        at.group / parts_of(k) * GROUP_TOKENS + mmla_project_wg_row((int32_t)(threadIdx.x % GROUP));
    return at;
}

/* The CTA's tile. One of those that share weight may have no tokens, n_tokens <= 0, and no results. */
DEVICE mmla_project_tile few_tile_get(const mmla_project_few_params *p, const few_shape k) {
    mmla_project_tile tile;
    tile.row = (int32_t)(blockIdx.x >> (p->splits_log2 + p->sharers_log2)) * k.rows;
    tile.token = (((int64_t)blockIdx.y << p->sharers_log2) + sharer_get(p)) * k.tokens;
    tile.g = (int32_t)blockIdx.z;
    tile.n_rows = p->p.rank - tile.row < k.rows ? p->p.rank - tile.row : k.rows;
    const int64_t left = p->p.n_tokens - tile.token;
    tile.n_tokens = left < k.tokens ? (int32_t)left : k.tokens;
    return tile;
}

#endif
