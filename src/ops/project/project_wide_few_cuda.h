/* project_wide_few_cuda.h - what project_wgmma_cuda.c tells the kernels of project_wide_few.cu. */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_CUDA_H
#define MMLA_OPS_PROJECT_WIDE_FEW_CUDA_H

#include "ops/project/project_wide_cuda.h"

/* Blocks: (CTAs of the clusters of all tiles of rows, clusters of tiles of tokens, groups). A cluster has as many tiles of the
 * same rows as there are sharers; a tile has as many CTAs as there are splits, each of which has a part of K and then stores
 * a share of the tokens. */
typedef struct mmla_project_few_params {
    mmla_project_params p;
    const uint8_t *codes;
    const float *factors;
    const int32_t *marks;
    int64_t group_rows; /* of a group in factors and marks */
    int32_t splits_log2;
    int32_t sharers_log2;
    int32_t n_lines; /* of 128 columns, of a warpgroup's part of K */
} mmla_project_few_params;

enum {
    MMLA_PROJECT_FEW_GROUPS = 4, /* warpgroups that multiply */
    MMLA_PROJECT_FEW_MATH_THREADS = MMLA_PROJECT_FEW_GROUPS * MMLA_PROJECT_WG_THREADS,
    MMLA_PROJECT_FEW_THREADS = MMLA_PROJECT_FEW_MATH_THREADS + MMLA_PROJECT_WG_THREADS,

    /* Steps whose codes are under way or there, of a warpgroup. */
    MMLA_PROJECT_FEW_CODE_STEPS = 4,
    MMLA_PROJECT_FEW_CODES_BYTES = MMLA_PROJECT_FEW_GROUPS * MMLA_PROJECT_FEW_CODE_STEPS *
                                   MMLA_PROJECT_WG_ROWS * MMLA_PROJECT_STEP
};

/* What follows is of tiles of m tokens and n rows. A warpgroup has 64 tokens and a part of K among its CTA's. */
#define MMLA_PROJECT_FEW_PARTS(m) (MMLA_PROJECT_FEW_GROUPS * MMLA_PROJECT_WG_ROWS / (m))

/* Lines of a part, when no other CTA has a part of K. */
#define MMLA_PROJECT_FEW_LINES_MAX(m) \
    (MMLA_PROJECT_DIM / MMLA_PROJECT_WG_LINE / MMLA_PROJECT_FEW_PARTS(m))

/* A token's exponents, a word a line, and its factor; eight tokens' lie in eight banks. */
#define MMLA_PROJECT_FEW_PITCH(m) (4 * (MMLA_PROJECT_FEW_LINES_MAX(m) + 1))

#define MMLA_PROJECT_FEW_STAGES(n) ((n) < 128 ? 16 : 8)
#define MMLA_PROJECT_FEW_RING_BYTES(n) (MMLA_PROJECT_FEW_STAGES(n) * (n)*MMLA_PROJECT_WG_ROW_BYTES)

/* Shared memory: stages, codes, exponents and marks of tokens for each part, factors and marks of rows, barriers. */
#define MMLA_PROJECT_FEW_SMEM(m, n)                                              \
    (MMLA_PROJECT_FEW_RING_BYTES(n) + MMLA_PROJECT_FEW_CODES_BYTES +             \
     MMLA_PROJECT_FEW_PARTS(m) * (m) * (MMLA_PROJECT_FEW_PITCH(m) + 4) + (n)*8 + \
     2 * MMLA_PROJECT_FEW_STAGES(n) * 8)

#define MMLA_PROJECT_FEW_KERNELS(KERNEL) \
    KERNEL(64, 32) KERNEL(64, 64) KERNEL(64, 128) KERNEL(128, 128)

#define KERNEL(tokens, rows) \
    MMLA_KERNEL(project_wide_few_sm90a_m##tokens##n##rows, mmla_project_few_params);
MMLA_PROJECT_FEW_KERNELS(KERNEL)
#undef KERNEL

#endif
