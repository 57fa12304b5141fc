/* project_wgmma_cuda.h - what project_wgmma_cuda.c tells the kernels of project_wgmma_split.cu and
 * project_wgmma_block.cu. */
#ifndef MMLA_OPS_PROJECT_WGMMA_CUDA_H
#define MMLA_OPS_PROJECT_WGMMA_CUDA_H

#include "ops/project/project_cuda.h"
#include "ops/project/project_wgmma_map.h"

/* Many tokens: a cluster goes through K with a tile of tokens, each of its CTAs with 128 rows of weight. */
enum {
    MMLA_PROJECT_WG_BLOCK_CTAS = 2,
    MMLA_PROJECT_WG_BLOCK_ROWS = 2 * MMLA_PROJECT_WG_ROWS,
    MMLA_PROJECT_WG_BLOCK_THREADS = 4 * MMLA_PROJECT_WG_THREADS,
    MMLA_PROJECT_WG_BLOCK_STAGES = 4, /* of a line of tokens */
    MMLA_PROJECT_WG_BLOCK_LINES_MAX = 4,
    /* Of weight; tokens' are found by parts of addresses, which a multiple of a line leaves alone. */
    MMLA_PROJECT_WG_BLOCK_LINE_BYTES =
        MMLA_PROJECT_WG_LINE_STEPS * MMLA_PROJECT_WG_WEIGHT_STEP(MMLA_PROJECT_WG_BLOCK_ROWS)
};

static_assert(MMLA_PROJECT_WG_BLOCK_LINE_BYTES % MMLA_PROJECT_WG_LINE == 0, "as said");

/* Places of lines of codes of each row: with the most tokens there is no room for more. */
#define MMLA_PROJECT_WG_BLOCK_LINES(tokens) \
    ((tokens) > 64 ? MMLA_PROJECT_WG_BLOCK_LINES_MAX / 2 : MMLA_PROJECT_WG_BLOCK_LINES_MAX)

/* Shared memory: stages of tokens, results, codes of weight and of the CTA's share of tokens, two segments'
 * scales and factors, what rows are odd for two tiles, and 256 bytes of barriers and flags. */
#define MMLA_PROJECT_WG_BLOCK_SMEM(tokens)                                \
    (MMLA_PROJECT_WG_BLOCK_STAGES * MMLA_PROJECT_WG_LINE_STEPS *          \
         (tokens)*MMLA_PROJECT_WG_ROW_BYTES +                             \
     2 * (tokens)*MMLA_PROJECT_WG_BLOCK_ROWS +                            \
     MMLA_PROJECT_WG_BLOCK_LINES(tokens) *                                \
         (MMLA_PROJECT_WG_BLOCK_LINE_BYTES +                              \
          (tokens) / MMLA_PROJECT_WG_BLOCK_CTAS * MMLA_PROJECT_WG_LINE) + \
     2 * (MMLA_PROJECT_WG_BLOCK_ROWS + (tokens)) * (MMLA_PROJECT_WG_SCALES + 4 + 4) + 256)

/* A few tokens: each warpgroup of a CTA takes segments of 64 rows of weight. */
enum {
    MMLA_PROJECT_WG_SPLIT_GROUPS_MAX = 4, /* warpgroups of a CTA */
    MMLA_PROJECT_WG_SPLIT_TOKENS_MAX = 64,
    MMLA_PROJECT_WG_SPLIT_STAGES = 3,
    MMLA_PROJECT_WG_SPLIT_STAGE_BYTES =
        MMLA_PROJECT_WG_SPLIT_TOKENS_MAX * MMLA_PROJECT_WG_ROW_BYTES,
    MMLA_PROJECT_WG_SPLIT_TABLE_BYTES = MMLA_PROJECT_WG_THREADS * (MMLA_PROJECT_WG_SCALES + 4)
};

/* Shared memory of a warpgroup with `turns` segments, one after the other: tokens, of which the sums of the
 * last segment take the place; sums of the others; scales and factors. */
#define MMLA_PROJECT_WG_SPLIT_GROUP_SMEM(tokens, turns)                 \
    (MMLA_PROJECT_WG_SPLIT_STAGES * MMLA_PROJECT_WG_SPLIT_STAGE_BYTES + \
     ((turns)-1) * (tokens)*MMLA_PROJECT_WG_SUM_PITCH * 4 + MMLA_PROJECT_WG_SPLIT_TABLE_BYTES)

/* And of a CTA: what rows are odd, and 16 bytes that say whether any is. */
#define MMLA_PROJECT_WG_SPLIT_SMEM(tokens, groups, turns)       \
    ((groups)*MMLA_PROJECT_WG_SPLIT_GROUP_SMEM(tokens, turns) + \
     MMLA_PROJECT_WG_THREADS * (int)sizeof(int32_t) + 16)

#define MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL) KERNEL(64) KERNEL(128)
#define MMLA_PROJECT_WG_SPLIT_KERNELS(KERNEL) KERNEL(8) KERNEL(16) KERNEL(32) KERNEL(64)

#define KERNEL(tokens) MMLA_KERNEL(project_wgmma_block_sm90a_n##tokens, mmla_project_params);
MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)
#undef KERNEL
#define KERNEL(tokens) MMLA_KERNEL(project_wgmma_split_sm90a_n##tokens, mmla_project_params);
MMLA_PROJECT_WG_SPLIT_KERNELS(KERNEL)
#undef KERNEL

#endif
