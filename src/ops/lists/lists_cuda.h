/* lists_cuda.h - what lists_cuda.c tells the kernels of lists_cuda.cu. */
#ifndef MMLA_OPS_LISTS_CUDA_H
#define MMLA_OPS_LISTS_CUDA_H

#include "gpu/kernel.h"
#include "ops/lists/lists.h"

/* Who writes a row of a list. A narrow row belongs to one warp, which holds all of its candidates at
 * once; a wide one belongs to a block, which goes through it in tiles. */
enum {
    MMLA_LISTS_WARP = 32,
    MMLA_LISTS_NARROW_WARPS = 4,   /* of a block; a token each */
    MMLA_LISTS_NARROW_ENTRIES = 8, /* candidates a thread holds */
    MMLA_LISTS_NARROW_WIDTH = MMLA_LISTS_WARP * MMLA_LISTS_NARROW_ENTRIES,
    MMLA_LISTS_WIDE_WARPS = 8, /* of a block; one token */
    MMLA_LISTS_WIDE_ENTRIES = 4,
    MMLA_LISTS_SLOT_THREADS = 128 /* of a block; a token each */
};

typedef struct mmla_lists_params {
    mmla_lists_problem problem;
    mmla_list_args args; /* error is NULL: it is host memory */
} mmla_lists_params;

MMLA_KERNEL(mmla_lists_window_narrow, mmla_lists_params);
MMLA_KERNEL(mmla_lists_window_wide, mmla_lists_params);
MMLA_KERNEL(mmla_lists_draft_narrow, mmla_lists_params);
MMLA_KERNEL(mmla_lists_draft_wide, mmla_lists_params);
MMLA_KERNEL(mmla_lists_compressed_narrow, mmla_lists_params);
MMLA_KERNEL(mmla_lists_compressed_wide, mmla_lists_params);
MMLA_KERNEL(mmla_lists_combined_narrow, mmla_lists_params);
MMLA_KERNEL(mmla_lists_combined_wide, mmla_lists_params);
MMLA_KERNEL(mmla_lists_compressed_slots, mmla_lists_params);
MMLA_KERNEL(mmla_lists_ring_slots, mmla_lists_params);
MMLA_KERNEL(mmla_lists_image_spans, mmla_lists_params);

#endif
