/* chain_cuda.h - what chain_cuda.c tells the kernels of chain_cuda.cu. */
#ifndef MMLA_OPS_CHAIN_CUDA_H
#define MMLA_OPS_CHAIN_CUDA_H

#include "gpu/head_store.h"
#include "gpu/kernel.h"

enum {
    MMLA_CHAIN_NOPE_DIM = MMLA_LATENT_DIM - MMLA_ROPE_DIM,
    MMLA_CHAIN_THREAD_DIMS = 8, /* of one access: 16 bytes of bf16, four pairs */
    /* Threads that have the rotated dims of a head. */
    MMLA_CHAIN_ROPE_THREADS = MMLA_ROPE_DIM / MMLA_CHAIN_THREAD_DIMS,
    MMLA_CHAIN_UNROPE_HEADS = GPU_HEAD_THREADS / MMLA_CHAIN_ROPE_THREADS /* of a block, a turn */
};

/* Arguments of all three kernels. */
typedef struct mmla_chain_params {
    int64_t n_tokens;
    int32_t n_heads;
    mmla_q_layout q_layout;
    const uint16_t *q; /* as the caller has it */
    int64_t q_token_stride;
    const int32_t *positions;
    const float *cos_sin;
    int64_t rope_positions;
    uint16_t *rotated; /* [T, H, 512] */
    uint16_t *o;       /* [T, H, 512] */
    int32_t *n_faults; /* may be NULL */
    gpu_head_out to;
} mmla_chain_params;

MMLA_KERNEL(mmla_chain_rope_q_kernel, mmla_chain_params);
MMLA_KERNEL(mmla_chain_unrope_kernel, mmla_chain_params);
MMLA_KERNEL(mmla_chain_quantise_kernel, mmla_chain_params);

/* First pair of the eight dims from `dim`, a multiple of 8 that is rotated. */
MMLA_INLINE int32_t mmla_chain_first_pair(int32_t dim) {
    return (dim - MMLA_CHAIN_NOPE_DIM) / 2;
}

#endif
