/* attend_wgmma_tile.h - where things lie in the shared memory of attend_wgmma_kernel.cu, and which
 * numbers a thread has: shared by host and device, so that the maps are tested without a GPU.
 *
 * Tiles are what wgmma.cuh wants: columns of 64 bf16, a row 128 bytes, chunk c of a row at c ^ (row % 8).
 * The tiles of q and of the keys have 64 rows (heads, keys) and 8 columns; that of the probabilities
 * has 64 rows (heads) and one column (64 keys).
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_TILE_H
#define MMLA_GPU_ATTEND_WGMMA_TILE_H

#include "kv/layout.h"

enum {
    ATTEND_WGMMA_HEADS = 64, /* of a CTA */
    ATTEND_WGMMA_KEYS = 64,  /* of a block */
    ATTEND_WGMMA_STAGES = 2,
    ATTEND_WGMMA_GROUP = 128, /* threads of a warpgroup */
    ATTEND_WGMMA_THREADS = 4 * ATTEND_WGMMA_GROUP,
    /* Roles: scores, two halves of O, records; by first thread, and registers of each thread. */
    ATTEND_WGMMA_SUM_FIRST = ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_SUM_THREADS = 2 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_SUM_WARPS = ATTEND_WGMMA_SUM_THREADS / 32,
    ATTEND_WGMMA_LOAD_FIRST = 3 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_SCORE_REGISTERS = 96,
    ATTEND_WGMMA_SUM_REGISTERS = 160,
    ATTEND_WGMMA_LOAD_REGISTERS = 96,
    ATTEND_WGMMA_LOAD_KEYS = ATTEND_WGMMA_GROUP / 4, /* at a time, four threads each */
    ATTEND_WGMMA_PARTS = ATTEND_WGMMA_KEYS / ATTEND_WGMMA_LOAD_KEYS,
    ATTEND_WGMMA_SPLITS_MAX = 8,

    ATTEND_WGMMA_CHUNK_DIMS = 8, /* 16 bytes of bf16 */
    ATTEND_WGMMA_COLUMN_DIMS = 64,
    ATTEND_WGMMA_COLUMN_BYTES = 64 * 128,
    ATTEND_WGMMA_COLUMNS = MMLA_LATENT_DIM / ATTEND_WGMMA_COLUMN_DIMS,
    ATTEND_WGMMA_TILE_BYTES = ATTEND_WGMMA_COLUMNS * ATTEND_WGMMA_COLUMN_BYTES,
    ATTEND_WGMMA_GROUP_DIMS = MMLA_LATENT_DIM / 2, /* of O, a warpgroup's share */
    ATTEND_WGMMA_PIECES = 4,                       /* threads that share a record */
    ATTEND_WGMMA_PIECE_BYTES = 16
};

static_assert(ATTEND_WGMMA_GROUP * (ATTEND_WGMMA_SCORE_REGISTERS + 2 * ATTEND_WGMMA_SUM_REGISTERS +
                                    ATTEND_WGMMA_LOAD_REGISTERS) <=
                  65536,
              "the registers of a multiprocessor");

/* Byte offset of 16-byte chunk c (0 .. 63) of row r in a tile. */
MMLA_INLINE int32_t attend_wgmma_chunk_off(int32_t r, int32_t c) {
    return c / 8 * ATTEND_WGMMA_COLUMN_BYTES + r * 128 + ((c ^ r) & 7) * 16;
}

/* Which 16 bytes of a record's data row load `unit` of piece (thread) `piece` is. */
MMLA_INLINE int32_t attend_wgmma_piece_off(int32_t unit, int32_t piece) {
    return (unit * ATTEND_WGMMA_PIECES + piece) * ATTEND_WGMMA_PIECE_BYTES;
}

/* Row and column of sum i of a thread of a warpgroup (wgmma.cuh). */
MMLA_INLINE int32_t attend_wgmma_sum_row(int32_t thread, int32_t i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}

MMLA_INLINE int32_t attend_wgmma_sum_column(int32_t thread, int32_t i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* Byte offset of 8 dims (unit, 0 .. 63) of a head in the fp32 sums that a CTA leaves where its stages
 * were; the threads that write two dims each of eight heads meet no bank twice. */
MMLA_INLINE int32_t attend_wgmma_part_off(int32_t head, int32_t unit) {
    return head * MMLA_LATENT_DIM * 4 + (((unit ^ head) & 7) | (unit & ~7)) * 32;
}

static_assert(ATTEND_WGMMA_HEADS * MMLA_LATENT_DIM * 4 ==
                  ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
              "the sums fit where the stages were");

/* Byte offsets. */
enum {
    ATTEND_WGMMA_AT_Q = 0,
    ATTEND_WGMMA_AT_STAGES = ATTEND_WGMMA_AT_Q + ATTEND_WGMMA_TILE_BYTES,
    ATTEND_WGMMA_AT_PROB =
        ATTEND_WGMMA_AT_STAGES + ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
    ATTEND_WGMMA_AT_STATE =
        ATTEND_WGMMA_AT_PROB + ATTEND_WGMMA_STAGES * ATTEND_WGMMA_COLUMN_BYTES
};

/* What one CTA found of a head. Logits are in base 2. */
typedef struct attend_wgmma_part {
    float reference; /* what the probabilities are relative to */
    float sum;       /* of the probabilities */
    float maximum;   /* the largest logit */
    float has_keys;  /* 1, or 0 when no entry of its share was a key: then there is no O */
} attend_wgmma_part;

/* Small state. */
typedef struct attend_wgmma_state {
    /* What each CTA of the cluster knows of a head (attend_wgmma_part). */
    attend_wgmma_part part[ATTEND_WGMMA_SPLITS_MAX][ATTEND_WGMMA_HEADS];
    float weight[ATTEND_WGMMA_SPLITS_MAX][ATTEND_WGMMA_HEADS];
    float factor[ATTEND_WGMMA_HEADS]; /* what O is multiplied with at the end */
    float alpha[ATTEND_WGMMA_STAGES][ATTEND_WGMMA_HEADS]; /* factor of O when the maximum has risen */
    float logit[ATTEND_WGMMA_HEADS];     /* factor of the scores, base 2 */
    uint64_t valid[ATTEND_WGMMA_STAGES]; /* bit k: key k of the block is one */
    float tile_scale[ATTEND_WGMMA_STAGES]; /* of the block's rows (attend_mma_tile_scale) */
    uint64_t full[ATTEND_WGMMA_STAGES];  /* barriers, see the head of the kernel's file */
    uint64_t empty[ATTEND_WGMMA_STAGES];
    uint64_t prob_full[ATTEND_WGMMA_STAGES];
    uint64_t parts_full;
    uint64_t parts_empty;
} attend_wgmma_state;

enum {
    ATTEND_WGMMA_SMEM_BYTES = ATTEND_WGMMA_AT_STATE + (int32_t)sizeof(attend_wgmma_state)
};

static_assert(ATTEND_WGMMA_SMEM_BYTES <= 227 * 1024, "the shared memory of a Hopper CTA");

#endif
