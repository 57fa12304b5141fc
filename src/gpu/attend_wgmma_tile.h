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
    /* Two warpgroups multiply, then come two that load; and registers of each thread. */
    ATTEND_WGMMA_MATH_THREADS = 2 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_MATH_WARPS = ATTEND_WGMMA_MATH_THREADS / 32,
    ATTEND_WGMMA_LOAD_THREADS = 2 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_MATH_REGISTERS = 192,
    ATTEND_WGMMA_LOAD_REGISTERS = 64,
    ATTEND_WGMMA_PIECES = 8, /* threads that share a record, 16 bytes each at a time */
    ATTEND_WGMMA_PIECE_BYTES = 16,
    ATTEND_WGMMA_LOAD_KEYS = ATTEND_WGMMA_LOAD_THREADS / ATTEND_WGMMA_PIECES, /* at a time */
    ATTEND_WGMMA_WARP_KEYS = 8, /* of a loading warp, of half a block */
    ATTEND_WGMMA_AHEAD = 2,     /* blocks whose list entries are on their way */
    ATTEND_WGMMA_RING = 4,
    ATTEND_WGMMA_SPLITS_MAX = 8,

    ATTEND_WGMMA_CHUNK_DIMS = 8, /* 16 bytes of bf16 */
    ATTEND_WGMMA_COLUMN_DIMS = 64,
    ATTEND_WGMMA_COLUMN_BYTES = 64 * 128,
    ATTEND_WGMMA_COLUMNS = MMLA_LATENT_DIM / ATTEND_WGMMA_COLUMN_DIMS,
    ATTEND_WGMMA_TILE_BYTES = ATTEND_WGMMA_COLUMNS * ATTEND_WGMMA_COLUMN_BYTES,
    ATTEND_WGMMA_GROUP_DIMS = MMLA_LATENT_DIM / 2 /* of O, a warpgroup's share */
};

static_assert(ATTEND_WGMMA_MATH_THREADS * ATTEND_WGMMA_MATH_REGISTERS +
                      ATTEND_WGMMA_LOAD_THREADS * ATTEND_WGMMA_LOAD_REGISTERS <=
                  65536,
              "the registers of a multiprocessor");

/* Byte offset of 16-byte chunk c (0 .. 63) of row r in a tile. */
MMLA_INLINE int32_t attend_wgmma_chunk_off(int32_t r, int32_t c) {
    return c / 8 * ATTEND_WGMMA_COLUMN_BYTES + r * 128 + ((c ^ r) & 7) * 16;
}

/* Which key of a half block, and which 16 bytes of every 128 of its record, a loading thread has. Eight
 * neighbours have eight keys: they store to eight places of the swizzle. */
MMLA_INLINE int32_t attend_wgmma_load_row(int32_t warp, int32_t lane) {
    return warp / 2 * 8 + lane % 8;
}

MMLA_INLINE int32_t attend_wgmma_load_piece(int32_t warp, int32_t lane) {
    return warp % 2 * (ATTEND_WGMMA_PIECES / 2) + lane / 8;
}

/* Row and column of sum i of a thread of a warpgroup (wgmma.cuh). */
MMLA_INLINE int32_t attend_wgmma_sum_row(int32_t thread, int32_t i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}

MMLA_INLINE int32_t attend_wgmma_sum_column(int32_t thread, int32_t i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* Byte offset of 4 dims (unit, 0 .. 127) of a head in the fp32 sums that a CTA leaves where its stages
 * were. Pairs of units are moved within groups of eight, so that the threads that write two dims each of
 * eight heads meet no bank twice; who reads a head's units side by side reads them all. */
MMLA_INLINE int32_t attend_wgmma_part_off(int32_t head, int32_t unit) {
    return head * MMLA_LATENT_DIM * 4 + (unit ^ (head & 7) << 1) * 16;
}

static_assert(ATTEND_WGMMA_HEADS * MMLA_LATENT_DIM * 4 ==
                  ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
              "the sums fit where the stages were");

/* Byte offsets. */
enum {
    ATTEND_WGMMA_AT_Q = 0,
    ATTEND_WGMMA_AT_STAGES = ATTEND_WGMMA_AT_Q + ATTEND_WGMMA_TILE_BYTES,
    ATTEND_WGMMA_AT_PROB = ATTEND_WGMMA_AT_STAGES + ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
    ATTEND_WGMMA_AT_STATE = ATTEND_WGMMA_AT_PROB + ATTEND_WGMMA_STAGES * ATTEND_WGMMA_COLUMN_BYTES
};

/* What one CTA found of a head. Logits are in base 2. */
typedef struct attend_wgmma_part {
    float reference; /* what the probabilities are relative to */
    float sum;       /* of the probabilities */
    float maximum;   /* the largest logit */
    float has_keys;  /* 1, or 0 when no entry of its share was a key: then there is no O */
} attend_wgmma_part;

/* What a loading warp knows of a block: its keys' entries, those of the first half first, and `what`
 * (attend_wgmma_load.cuh). */
typedef struct attend_wgmma_entries {
    int32_t entries[2 * ATTEND_WGMMA_WARP_KEYS];
    uint32_t what;
} attend_wgmma_entries;

/* Where a loading warp's walk over all tasks is; here because registers are scarce. */
typedef struct attend_wgmma_feed {
    int32_t i;     /* number of the task among all CTAs' */
    int32_t token; /* of the launch's */
    int32_t list;
    int32_t place; /* of the block to be fetched next */
    int32_t end;   /* of the task's places in the list */
} attend_wgmma_feed;

/* What a CTA is to do, one after the other: a token, up to 64 heads, its share of the keys. */
typedef struct attend_wgmma_task {
    int64_t token;
    int32_t first_head;
    int32_t n_heads;
    int32_t position; /* -1: not in the table */
    int32_t n_blocks;
    uint32_t turn; /* number of its first block among all of the CTA */
} attend_wgmma_task;

/* Small state. */
typedef struct attend_wgmma_state {
    /* What each CTA of the cluster knows of a head (attend_wgmma_part). */
    attend_wgmma_part part[ATTEND_WGMMA_SPLITS_MAX][ATTEND_WGMMA_HEADS];
    float weight[ATTEND_WGMMA_SPLITS_MAX][ATTEND_WGMMA_HEADS];
    float factor[ATTEND_WGMMA_HEADS]; /* what O is multiplied with at the end */
    attend_wgmma_entries ring[ATTEND_WGMMA_RING][ATTEND_WGMMA_LOAD_THREADS / 32];
    attend_wgmma_feed feeds[ATTEND_WGMMA_LOAD_THREADS / 32];
    uint32_t n_begun[ATTEND_WGMMA_LOAD_THREADS / 32]; /* tasks, of each loading warp */
    attend_wgmma_task tasks[4];                       /* of the multiplying warps, in turns */
    float alpha[ATTEND_WGMMA_STAGES]
               [ATTEND_WGMMA_HEADS];         /* factor of O when the maximum has risen */
    float logit[ATTEND_WGMMA_HEADS];         /* factor of the scores, base 2 */
    float maximum[ATTEND_WGMMA_HEADS];       /* of the logits so far */
    float has_keys[ATTEND_WGMMA_GROUP / 32]; /* of the blocks so far, known to each warp: 0 or 1 */
    uint64_t valid[ATTEND_WGMMA_STAGES];     /* bit k: key k of the block is one */
    float log2_scale[ATTEND_WGMMA_STAGES]; /* of what the block's rows are to be multiplied with */
    uint64_t full[ATTEND_WGMMA_STAGES];    /* barriers, see the head of the kernel's file */
    uint64_t empty[ATTEND_WGMMA_STAGES];
    uint64_t prob_full[ATTEND_WGMMA_STAGES];
    uint64_t q_full;
    uint64_t parts_full;
    uint64_t parts_empty;
} attend_wgmma_state;

enum { ATTEND_WGMMA_SMEM_BYTES = ATTEND_WGMMA_AT_STATE + (int32_t)sizeof(attend_wgmma_state) };

static_assert(ATTEND_WGMMA_SMEM_BYTES <= 227 * 1024, "the shared memory of a Hopper CTA");

#endif
