/* attend_merge_cuda.h - what attend_merge_cuda.c tells the kernel of attend_merge_cuda.cu. */
#ifndef MMLA_OPS_ATTEND_MERGE_CUDA_H
#define MMLA_OPS_ATTEND_MERGE_CUDA_H

#include "gpu/head_store.h"
#include "gpu/kernel.h"

typedef struct mmla_attend_merge_params {
    int64_t n_tokens;
    const uint16_t *out_a, *out_b; /* [T, H, 512] */
    const float *lse_a, *lse_b;    /* [T, H] */
    const float *sink;             /* [H] or NULL */
    float *lse;                    /* [T, H] or NULL */
    gpu_head_out to;
} mmla_attend_merge_params;

MMLA_KERNEL(mmla_attend_merge_kernel, mmla_attend_merge_params);

#endif
