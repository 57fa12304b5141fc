/* project_wide_cuda.h - what project_wgmma_cuda.c tells the kernels of project_wide.cu and project_widen.cu. */
#ifndef MMLA_OPS_PROJECT_WIDE_CUDA_H
#define MMLA_OPS_PROJECT_WIDE_CUDA_H

#include "ops/project/project_cuda.h"
#include "ops/project/project_wide.h"

/* A call with wide weight. A cluster has `sharers` tiles of tokens, one after the other. */
typedef struct mmla_project_wide_params {
    mmla_project_params p;
    const uint8_t *codes;
    const float *factors;
    const int32_t *marks;
    int32_t sharers;
    uint32_t row_tiles;
    uint32_t token_tiles; /* of all sharers */
    uint32_t n_tiles;     /* of all groups, of a cluster each */
} mmla_project_wide_params;

typedef struct mmla_project_widen_params {
    mmla_project_params p; /* of weight alone */
    uint8_t *codes;
    float *factors;
    int32_t *marks;
} mmla_project_widen_params;

enum {
    MMLA_PROJECT_WIDE_TOKENS =
        2 * MMLA_PROJECT_WG_ROWS, /* of a tile: 64 of each multiplying warpgroup */
    MMLA_PROJECT_WIDE_THREADS = 3 * MMLA_PROJECT_WG_THREADS,
    MMLA_PROJECT_WIDE_ROUND_STEPS = 8, /* of the loop */
    MMLA_PROJECT_WIDE_LINES = 2,       /* of codes, that are under way or read */
    MMLA_PROJECT_WIDE_LINE_BYTES =
        MMLA_PROJECT_WG_LINE_STEPS * MMLA_PROJECT_WG_WEIGHT_STEP(MMLA_PROJECT_WIDE_TOKENS),
    MMLA_PROJECT_WIDE_TABLE_PITCH =
        MMLA_PROJECT_SCALES + 4, /* so that eight rows' words lie in eight banks */
    MMLA_PROJECT_WIDE_PIECE_BYTES =
        16 * 2 * MMLA_PROJECT_WG_ROWS, /* 64 results of a warp's 16 tokens */
    MMLA_PROJECT_WIDE_WIDEN_THREADS = 256
};

/* Stages of weight, for tiles of n rows. */
#define MMLA_PROJECT_WIDE_STAGES(n) ((n) > 128 ? 4 : 8)

/* Shared memory: stages of weight, lines of codes, pieces of results, two tables of scales, factors and marks of two
 * tiles, and 256 bytes of barriers and flags. */
#define MMLA_PROJECT_WIDE_SMEM(n)                                                                 \
    (MMLA_PROJECT_WIDE_STAGES(n) * (n)*MMLA_PROJECT_WG_ROW_BYTES +                                \
     MMLA_PROJECT_WIDE_LINES * MMLA_PROJECT_WIDE_LINE_BYTES + 8 * MMLA_PROJECT_WIDE_PIECE_BYTES + \
     2 * MMLA_PROJECT_WIDE_TOKENS * MMLA_PROJECT_WIDE_TABLE_PITCH +                               \
     2 * (MMLA_PROJECT_WIDE_TOKENS + (n)) * 8 + 256)

#define MMLA_PROJECT_WIDE_KERNELS(KERNEL) KERNEL(128) KERNEL(256)

#define KERNEL(rows) MMLA_KERNEL(project_wide_sm90a_n##rows, mmla_project_wide_params);
MMLA_PROJECT_WIDE_KERNELS(KERNEL)
#undef KERNEL
MMLA_KERNEL(project_widen_sm90a, mmla_project_widen_params);

#endif
