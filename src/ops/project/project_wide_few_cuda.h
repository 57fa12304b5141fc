/* project_wide_few_cuda.h - what project_wgmma_cuda.c tells the kernels of project_wide_few.cu. */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_CUDA_H
#define MMLA_OPS_PROJECT_WIDE_FEW_CUDA_H

#include "ops/project/project_wide_cuda.h"

/* Blocks: (CTAs of all tiles of rows, tiles of tokens, groups). A cluster has a tile, of which each of its CTAs has a part
 * of K, and then stores a share of the tokens. */
typedef struct mmla_project_few_params {
    mmla_project_params p;
    const uint8_t *codes;
    const float *factors;
    const int32_t *marks;
    int64_t group_rows;  /* of a group in factors and marks */
    int32_t splits_log2; /* CTAs of a cluster */
    int32_t n_lines;     /* of 128 columns, of a warpgroup's part of K */
} mmla_project_few_params;

enum {
    MMLA_PROJECT_FEW_TOKENS = MMLA_PROJECT_WG_ROWS, /* of a tile */
    MMLA_PROJECT_FEW_PARTS = 4,                     /* of K in a CTA, a warpgroup each */
    MMLA_PROJECT_FEW_THREADS = MMLA_PROJECT_FEW_PARTS * MMLA_PROJECT_WG_THREADS,
    MMLA_PROJECT_FEW_SPLITS_MAX = 2,
    MMLA_PROJECT_FEW_STAGES = 16,

    /* Lines of a warpgroup, when no other CTA has a part of K. */
    MMLA_PROJECT_FEW_LINES_MAX = MMLA_PROJECT_DIM / MMLA_PROJECT_WG_LINE / MMLA_PROJECT_FEW_PARTS,
    /* A token's exponents, a word a line, and one more, so that eight tokens' lie in eight banks. */
    MMLA_PROJECT_FEW_PITCH = 4 * (MMLA_PROJECT_FEW_LINES_MAX + 1)
};

/* Sums of a tile of n rows that three warpgroups leave for the fourth. */
#define MMLA_PROJECT_FEW_LEFT_BYTES(n) \
    ((MMLA_PROJECT_FEW_PARTS - 1) * MMLA_PROJECT_FEW_TOKENS * (n)*4)

/* Shared memory: stages, those sums, exponents and marks of tokens for each part, factors and marks of rows, barriers. */
#define MMLA_PROJECT_FEW_SMEM(n)                                                                \
    (MMLA_PROJECT_FEW_STAGES * (n)*MMLA_PROJECT_WG_ROW_BYTES + MMLA_PROJECT_FEW_LEFT_BYTES(n) + \
     MMLA_PROJECT_FEW_PARTS * MMLA_PROJECT_FEW_TOKENS * (MMLA_PROJECT_FEW_PITCH + 4) + (n)*8 +  \
     2 * MMLA_PROJECT_FEW_STAGES * 8)

#define MMLA_PROJECT_FEW_KERNELS(KERNEL) KERNEL(32) KERNEL(64)

#define KERNEL(rows) MMLA_KERNEL(project_wide_few_sm90a_n##rows, mmla_project_few_params);
MMLA_PROJECT_FEW_KERNELS(KERNEL)
#undef KERNEL

#endif
