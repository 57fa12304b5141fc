/* project_cuda.h - what project_cuda.c tells the kernels of project_split.cu and project_block.cu. */
#ifndef MMLA_OPS_PROJECT_CUDA_H
#define MMLA_OPS_PROJECT_CUDA_H

#include "gpu/kernel.h"
#include "ops/project/project_map.h"

typedef struct mmla_project_params {
    int64_t n_tokens;
    int32_t n_groups;
    int32_t rank;
    const uint8_t *x;
    const uint8_t *x_scale;
    const uint8_t *weight;
    const uint8_t *weight_scale;
    uint16_t *z;
    mmla_project_scale_strides x_scale_strides;
    bool x_scale_in_words; /* whether four scale bytes may be read at once */
    bool weight_scale_in_words;
    bool z_in_pairs;  /* whether two results may be stored at once */
    bool z_in_chunks; /* and eight */
} mmla_project_params;

static inline bool mmla_project_is_aligned(const void *pointer, size_t alignment) {
    return (uintptr_t)pointer % alignment == 0;
}

/* What a call tells any kernel. */
static inline mmla_project_params mmla_project_params_get(const mmla_project_problem *p,
                                                          const mmla_project_args *args) {
    return (mmla_project_params){
        .n_tokens = args->n_tokens,
        .n_groups = p->desc.n_groups,
        .rank = p->desc.rank,
        .x = args->x,
        .x_scale = (const uint8_t *)args->x_scale,
        .weight = args->weight,
        .weight_scale = args->weight_scale,
        .z = args->z,
        .x_scale_strides = mmla_project_scale_strides_get(p, args),
        /* All strides of scales are multiples of four bytes, and the rank is one of eight, so the
         * pointers decide. */
        .x_scale_in_words = mmla_project_is_aligned(args->x_scale, sizeof(uint32_t)),
        .weight_scale_in_words = mmla_project_is_aligned(args->weight_scale, sizeof(uint32_t)),
        .z_in_pairs = mmla_project_is_aligned(args->z, 2 * sizeof(uint16_t)),
        .z_in_chunks = mmla_project_is_aligned(args->z, 8 * sizeof(uint16_t)),
    };
}

/* Threads of a block, of every kernel. */
enum { MMLA_PROJECT_WARP = 32, MMLA_PROJECT_WARPS = 8, MMLA_PROJECT_THREADS = 256 };

/* Each warp takes a segment of K: for a few tokens. Bytes of shared memory: codes of `stages` steps
 * and all factors for every warp, then what is wrong with each row. */
#define MMLA_PROJECT_SPLIT_SMEM(rows, tokens, stages)                                        \
    (MMLA_PROJECT_WARPS * ((rows) + (tokens)) *                                              \
         ((stages)*MMLA_PROJECT_STEP + MMLA_PROJECT_SEGMENT_STEPS * (int)sizeof(uint32_t)) + \
     ((rows) + (tokens)) * (int)sizeof(int32_t))

/* The block goes through K together: for many tokens. Codes of `stages` steps, two steps as bf16,
 * all scales, four bytes more for each group of 32 so that they spread over the banks; then what is
 * wrong with each row. */
#define MMLA_PROJECT_BLOCK_SMEM(rows, tokens, stages)                                 \
    (((rows) + (tokens)) * ((stages)*MMLA_PROJECT_STEP + 2 * 2 * MMLA_PROJECT_STEP) + \
     MMLA_PROJECT_SCALES * ((rows) + (tokens) + 4) + ((rows) + (tokens)) * (int)sizeof(int32_t))

/* The kernels: KERNEL(structure, rows, tokens, stages, blocks a multiprocessor, cost). cost is the
 * time of a tile on a multiprocessor that has nothing else to do, in thousands of cycles by the
 * budgets of the two files: what counts are their ratios. */
#define MMLA_PROJECT_KERNELS(KERNEL) \
    KERNEL(split, 32, 8, 4, 2, 7)    \
    KERNEL(split, 32, 16, 3, 2, 9)   \
    KERNEL(block, 64, 64, 3, 3, 20)  \
    KERNEL(block, 128, 128, 4, 1, 56)

#define KERNEL(structure, rows, tokens, stages, blocks, cost) \
    MMLA_KERNEL(project_##structure##_sm80_m##rows##n##tokens, mmla_project_params);
MMLA_PROJECT_KERNELS(KERNEL)
#undef KERNEL

#endif
