/* weights_cuda.h - what weights_cuda.c tells the kernels of weights_cuda.cu. */
#ifndef MMLA_OPS_WEIGHTS_CUDA_H
#define MMLA_OPS_WEIGHTS_CUDA_H

#include "gpu/kernel.h"
#include "ops/weights/weights_map.h"

/* Rows that move as a whole: wq_b and its scales, and scales that are expanded. */
typedef struct mmla_weights_rows {
    const uint8_t *in;
    uint8_t *out;
    mmla_weights_tiling tiling; /* rows of the output */
    mmla_weights_kind kind;
    int32_t n_heads;
} mmla_weights_rows;

/* Rows whose chunks move: wo_a with its scales, and q. */
typedef struct mmla_weights_chunks {
    const uint8_t *in;
    uint8_t *out;
    const uint8_t *scale_in; /* NULL: none */
    uint8_t *scale_out;
    int64_t rows;
    int32_t cols; /* elements */
    int32_t n_heads;
} mmla_weights_chunks;

/* A step moves a unit a thread, and rows are whole numbers of steps; an item is UNITS steps. */
MMLA_INLINE int64_t mmla_weights_chunk_items(int64_t rows, int64_t row_units) {
    const int64_t n_steps = rows * (row_units / MMLA_WEIGHTS_THREADS);
    return (n_steps + MMLA_WEIGHTS_UNITS - 1) / MMLA_WEIGHTS_UNITS;
}

/* By 16 bytes, where both arrays and their rows are aligned to them; else by elements. */
MMLA_KERNEL(mmla_weights_rows_by16, mmla_weights_rows);
MMLA_KERNEL(mmla_weights_rows_by1, mmla_weights_rows);
MMLA_KERNEL(mmla_weights_wo_a_by16, mmla_weights_chunks);
MMLA_KERNEL(mmla_weights_wo_a_by1, mmla_weights_chunks);
MMLA_KERNEL(mmla_weights_q_to_fused_by16, mmla_weights_chunks);
MMLA_KERNEL(mmla_weights_q_to_fused_by2, mmla_weights_chunks);
MMLA_KERNEL(mmla_weights_q_to_standard_by16, mmla_weights_chunks);
MMLA_KERNEL(mmla_weights_q_to_standard_by2, mmla_weights_chunks);

#endif
