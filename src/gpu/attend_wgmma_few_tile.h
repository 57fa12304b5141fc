/* attend_wgmma_few_tile.h - what the kernels for few heads have besides attend_wgmma_tile.h: which
 * numbers of the products with exchanged sides a thread has, and what the two multiplying
 * warpgroups leave for each other.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_FEW_TILE_H
#define MMLA_GPU_ATTEND_WGMMA_FEW_TILE_H

#include "gpu/attend_wgmma_tile.h"

/* Of a thread: heads, scores of a block, and sums, as many in every 64 dims as scores. */
enum {
    ATTEND_WGMMA_FEW_COLUMNS = ATTEND_WGMMA_HEADS / 4,
    ATTEND_WGMMA_FEW_SCORES = 64 * ATTEND_WGMMA_HEADS / ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_FEW_SUMS = ATTEND_WGMMA_COLUMNS * ATTEND_WGMMA_FEW_SCORES,
    ATTEND_WGMMA_FEW_KEY_WARPS = ATTEND_WGMMA_KEYS / 16 /* of a warpgroup, that have keys */
};

/* Which head column c of a thread is, and the column and the dim of its sum i; the kernel finds the
 * place of a dim by the two steps below. */
MMLA_INLINE int32_t attend_wgmma_few_head(int32_t thread, int32_t c) {
    return attend_wgmma_sum_column(thread, c / 2 * 4 + c % 2);
}

MMLA_INLINE int32_t attend_wgmma_few_column(int32_t i) {
    return i % ATTEND_WGMMA_FEW_SCORES / 4 * 2 + i % 2;
}

MMLA_INLINE int32_t attend_wgmma_few_dim(int32_t thread, int32_t i) {
    const int32_t dim = i / ATTEND_WGMMA_FEW_SCORES * ATTEND_WGMMA_COLUMN_DIMS +
                        attend_wgmma_sum_row(thread, i % ATTEND_WGMMA_FEW_SCORES);
    return attend_wgmma_chunk_at(dim / ATTEND_WGMMA_CHUNK_DIMS) * ATTEND_WGMMA_CHUNK_DIMS +
           dim % ATTEND_WGMMA_CHUNK_DIMS;
}

/* Byte offset of sum i of a thread in the sums that are left for the other warpgroup: that of its
 * head and dim by attend_wgmma_part_off, in two steps, so that a thread computes eight addresses
 * and not one for every sum: (few_place(thread) ^ few_turn(i)) + few_step(i). */
MMLA_INLINE uint32_t attend_wgmma_few_place(int32_t thread) {
    const int32_t u = thread % 4, g = thread % 32 / 4, warp = thread / 32;
    const int32_t pair = u / 2 | u % 2 << 1 | u / 2 << 2; /* of head 2 u */
    return (uint32_t)(2 * u * MMLA_LATENT_DIM * 4 + ((2 * warp) ^ pair) * 32 + g * 4);
}

MMLA_INLINE uint32_t attend_wgmma_few_turn(int32_t i) {
    return (uint32_t)((i / 2 % 2) ^ (i / ATTEND_WGMMA_FEW_SCORES & 3) ^ i % 2) * 32;
}

MMLA_INLINE uint32_t attend_wgmma_few_step(int32_t i) {
    return (uint32_t)((i % ATTEND_WGMMA_FEW_SCORES / 4 * 8 + i % 2) * MMLA_LATENT_DIM * 4 +
                      i / ATTEND_WGMMA_FEW_SCORES * ATTEND_WGMMA_COLUMN_DIMS * 4);
}

/* What a warp found of a head. */
typedef struct attend_wgmma_few_partial {
    float l, maximum;
} attend_wgmma_few_partial;

/* By warpgroups; `part` by which of them had a task's first block. */
typedef struct attend_wgmma_few_state {
    attend_wgmma_part part[2][ATTEND_WGMMA_HEADS];
    attend_wgmma_few_partial partial[2][ATTEND_WGMMA_FEW_KEY_WARPS][ATTEND_WGMMA_HEADS];
    float maxima[2][ATTEND_WGMMA_FEW_KEY_WARPS][ATTEND_WGMMA_HEADS];
    float factor[2][ATTEND_WGMMA_HEADS];
    int32_t has_keys[2];                      /* of the warpgroup's blocks of a task */
    uint32_t n_done[ATTEND_WGMMA_MATH_WARPS]; /* tasks of each warp, which has no register for it */
    uint64_t both;                            /* barriers, see the head of the kernel's file */
    uint64_t sums_read;
} attend_wgmma_few_state;

enum {
    ATTEND_WGMMA_FEW_AT_STATE = (ATTEND_WGMMA_SMEM_BYTES + 15) / 16 * 16,
    ATTEND_WGMMA_FEW_SMEM_BYTES =
        ATTEND_WGMMA_FEW_AT_STATE + (int32_t)sizeof(attend_wgmma_few_state)
};

static_assert(ATTEND_WGMMA_FEW_SMEM_BYTES + (ATTEND_WGMMA_HEADS == 8 ? 16 : 6) * 1024 <= 227 * 1024,
              "of a Hopper CTA, as the kernel says");

/* Rows 48 .. 63 of a block's last column, which a matrix instruction reads for nothing, lie behind
 * the last stage. */
static_assert(ATTEND_WGMMA_FEW_SMEM_BYTES - ATTEND_WGMMA_AT_PROB >=
                  64 * 128 - ATTEND_WGMMA_COLUMN_BYTES,
              "there is shared memory");

#endif
