/* attend_wgmma_tile.h - where things lie in the shared memory of attend_wgmma_kernel.cu, and which
 * numbers a thread has: shared by host and device, so that the maps are tested without a GPU.
 *
 * Tiles of q and of the keys are what wgmma.cuh wants: 8 columns of 64 bf16, a row 128 bytes, chunk
 * c of a row at c ^ (row % 8); q has 64 rows (heads), a block of keys 48. The tile of the
 * probabilities, 64 heads by 48 keys, is made of matrices of 8 heads by 8 keys, 128 bytes each,
 * those of the same keys one after the other.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_TILE_H
#define MMLA_GPU_ATTEND_WGMMA_TILE_H

#include "kv/layout.h"

enum {
    ATTEND_WGMMA_HEADS = 64, /* of a CTA */
    ATTEND_WGMMA_KEYS = 48,  /* of a block */
    ATTEND_WGMMA_STAGES = 3,
    ATTEND_WGMMA_PROBS = 2,   /* tiles of probabilities */
    ATTEND_WGMMA_GROUP = 128, /* threads of a warpgroup */
    ATTEND_WGMMA_THREADS = 4 * ATTEND_WGMMA_GROUP,
    /* Two warpgroups multiply; then come warps that load, one of lists, and one of q. */
    ATTEND_WGMMA_MATH_THREADS = 2 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_MATH_WARPS = ATTEND_WGMMA_MATH_THREADS / 32,
    ATTEND_WGMMA_LOAD_WARPS = 6,
    ATTEND_WGMMA_LOAD_THREADS = 32 * ATTEND_WGMMA_LOAD_WARPS,
    ATTEND_WGMMA_LIST_WARP = ATTEND_WGMMA_MATH_WARPS + ATTEND_WGMMA_LOAD_WARPS,
    ATTEND_WGMMA_Q_WARP = ATTEND_WGMMA_LIST_WARP + 1,
    ATTEND_WGMMA_MATH_REGISTERS = 192,
    ATTEND_WGMMA_LOAD_REGISTERS = 64,
    ATTEND_WGMMA_PIECES = 4, /* threads that share a record, 16 bytes each at a time */
    ATTEND_WGMMA_PIECE_BYTES = 16,
    ATTEND_WGMMA_AHEAD = 3, /* blocks whose list entries are on their way */
    ATTEND_WGMMA_RING = 4,  /* blocks whose entries, or whose records' addresses, are there */
    ATTEND_WGMMA_TASKS = 4,
    ATTEND_WGMMA_SPLITS_MAX = 8,

    ATTEND_WGMMA_CHUNK_DIMS = 8, /* 16 bytes of bf16 */
    ATTEND_WGMMA_COLUMN_DIMS = 64,
    ATTEND_WGMMA_COLUMNS = MMLA_LATENT_DIM / ATTEND_WGMMA_COLUMN_DIMS,
    ATTEND_WGMMA_Q_COLUMN_BYTES = ATTEND_WGMMA_HEADS * 128,
    ATTEND_WGMMA_Q_BYTES = ATTEND_WGMMA_COLUMNS * ATTEND_WGMMA_Q_COLUMN_BYTES,
    ATTEND_WGMMA_COLUMN_BYTES = ATTEND_WGMMA_KEYS * 128,
    ATTEND_WGMMA_TILE_BYTES = ATTEND_WGMMA_COLUMNS * ATTEND_WGMMA_COLUMN_BYTES,
    ATTEND_WGMMA_PROB_MATRIX_BYTES = 8 * 16,
    ATTEND_WGMMA_PROB_STEP_BYTES = ATTEND_WGMMA_HEADS / 8 * ATTEND_WGMMA_PROB_MATRIX_BYTES,
    ATTEND_WGMMA_PROB_BYTES = ATTEND_WGMMA_KEYS / 8 * ATTEND_WGMMA_PROB_STEP_BYTES,
    ATTEND_WGMMA_GROUP_DIMS = MMLA_LATENT_DIM / 2 /* of O, a warpgroup's share */
};

static_assert((ATTEND_WGMMA_Q_WARP + 1) * 32 == ATTEND_WGMMA_THREADS, "every warp has a role");
static_assert(ATTEND_WGMMA_KEYS * ATTEND_WGMMA_PIECES == ATTEND_WGMMA_LOAD_THREADS,
              "the loading threads have a block's records at the same time");
static_assert(ATTEND_WGMMA_AHEAD < ATTEND_WGMMA_RING, "an entry is read before it is replaced");
static_assert(ATTEND_WGMMA_MATH_THREADS * ATTEND_WGMMA_MATH_REGISTERS +
                      (ATTEND_WGMMA_THREADS - ATTEND_WGMMA_MATH_THREADS) *
                          ATTEND_WGMMA_LOAD_REGISTERS <=
                  65536,
              "the registers of a multiprocessor");

/* Byte offset of 16-byte chunk c (0 .. 63) of row r in a tile with columns of so many bytes. */
MMLA_INLINE int32_t attend_wgmma_chunk_off(int32_t column_bytes, int32_t r, int32_t c) {
    return c / 8 * column_bytes + r * 128 + ((c ^ r) & 7) * 16;
}

MMLA_INLINE int32_t attend_wgmma_q_off(int32_t head, int32_t c) {
    return attend_wgmma_chunk_off(ATTEND_WGMMA_Q_COLUMN_BYTES, head, c);
}

/* Of dims x and x + 1 of a head. */
MMLA_INLINE int32_t attend_wgmma_q_pair_off(int32_t head, int32_t x) {
    return attend_wgmma_q_off(head, x / ATTEND_WGMMA_CHUNK_DIMS) + x % ATTEND_WGMMA_CHUNK_DIMS * 2;
}

MMLA_INLINE int32_t attend_wgmma_key_off(int32_t key, int32_t c) {
    return attend_wgmma_chunk_off(ATTEND_WGMMA_COLUMN_BYTES, key, c);
}

/* Byte offset of the probabilities of head `head` and of keys 8 c .. 8 c + 7. */
MMLA_INLINE int32_t attend_wgmma_prob_off(int32_t head, int32_t c) {
    return c * ATTEND_WGMMA_PROB_STEP_BYTES + head / 8 * ATTEND_WGMMA_PROB_MATRIX_BYTES +
           head % 8 * 16;
}

/* Which key of a block, and which 16 bytes of every 64 of its record, a loading thread has. Eight
 * neighbours have eight keys: they store to eight places of the swizzle. */
MMLA_INLINE int32_t attend_wgmma_load_row(int32_t warp, int32_t lane) {
    return warp * 8 + lane % 8;
}

MMLA_INLINE int32_t attend_wgmma_load_piece(int32_t lane) {
    return lane / 8;
}

/* Row and column of sum i of a thread of a warpgroup (wgmma.cuh). */
MMLA_INLINE int32_t attend_wgmma_sum_row(int32_t thread, int32_t i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}

MMLA_INLINE int32_t attend_wgmma_sum_column(int32_t thread, int32_t i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* Byte offset of 4 dims (unit, 0 .. 127) of a head in the fp32 sums that a CTA leaves where its
 * stages were. Pairs of units are moved within groups of eight, so that the threads that write two
 * dims each of eight heads meet no bank twice; who reads a head's units side by side reads them
 * all. */
MMLA_INLINE int32_t attend_wgmma_part_off(int32_t head, int32_t unit) {
    return head * MMLA_LATENT_DIM * 4 + (unit ^ (head & 7) << 1) * 16;
}

static_assert(ATTEND_WGMMA_HEADS * MMLA_LATENT_DIM * 4 <=
                  ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
              "the sums fit where the stages were");

/* Byte offsets. */
enum {
    ATTEND_WGMMA_AT_Q = 0,
    ATTEND_WGMMA_AT_STAGES = ATTEND_WGMMA_AT_Q + ATTEND_WGMMA_Q_BYTES,
    ATTEND_WGMMA_AT_PROB = ATTEND_WGMMA_AT_STAGES + ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES,
    ATTEND_WGMMA_AT_STATE = ATTEND_WGMMA_AT_PROB + ATTEND_WGMMA_PROBS * ATTEND_WGMMA_PROB_BYTES
};

/* What a CTA found of a head. Logits are in base 2. */
typedef struct attend_wgmma_part {
    float reference; /* what the probabilities are relative to */
    float sum;       /* of the probabilities */
    float maximum;   /* the largest logit */
    float has_keys;  /* 1, or 0 when no entry of its share was a key: then there is no O */
} attend_wgmma_part;

/* Weights of the parts of a head when CTAs are joined; they lie where the probabilities were. */
typedef struct attend_wgmma_weights {
    float of[ATTEND_WGMMA_SPLITS_MAX][ATTEND_WGMMA_HEADS]; /* negative: there is no such part */
} attend_wgmma_weights;

static_assert(sizeof(attend_wgmma_weights) <= ATTEND_WGMMA_PROBS * ATTEND_WGMMA_PROB_BYTES,
              "they do");

enum { ATTEND_WGMMA_NO_BLOCK = -1 };

/* The list entries of a block, as they come. */
typedef struct attend_wgmma_entries {
    int32_t entries[ATTEND_WGMMA_KEYS];
    int32_t list; /* which one, or ATTEND_WGMMA_NO_BLOCK */
} attend_wgmma_entries;

/* Where a block's records are; zeros stand for what is no key. */
typedef struct attend_wgmma_sources {
    const uint8_t *data[ATTEND_WGMMA_KEYS];
    uint64_t valid;                      /* bit k: key k is one */
    int32_t to_scale[ATTEND_WGMMA_KEYS]; /* bytes from a record's data to its scales */
    int32_t format;                      /* mmla_kv_format, or ATTEND_WGMMA_NO_BLOCK */
} attend_wgmma_sources;

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
    attend_wgmma_part part[ATTEND_WGMMA_HEADS]; /* read by all CTAs of the cluster */
    float factor[ATTEND_WGMMA_HEADS];           /* what O is multiplied with at the end */
    float logit[ATTEND_WGMMA_HEADS];            /* factor of the scores, base 2 */
    float alpha[ATTEND_WGMMA_PROBS]
               [ATTEND_WGMMA_HEADS]; /* factor of O when the maximum has risen */
    attend_wgmma_sources sources[ATTEND_WGMMA_RING];
    attend_wgmma_entries entries[ATTEND_WGMMA_RING];
    /* Of the latest tasks, in turns, and the cosines and sines of their positions: one warpgroup
     * may be a task ahead of the other, and the warp that has q of both. */
    attend_wgmma_task tasks[ATTEND_WGMMA_TASKS];
    float rope[ATTEND_WGMMA_TASKS][MMLA_ROPE_DIM];
    uint64_t valid[ATTEND_WGMMA_STAGES]; /* of the block in the stage */
    int32_t
        log2_scale[ATTEND_WGMMA_STAGES]; /* of what the block's rows are to be multiplied with */
    uint64_t full[ATTEND_WGMMA_STAGES];  /* barriers, see the head of the kernel's file */
    uint64_t empty[ATTEND_WGMMA_STAGES];
    uint64_t sources_full[ATTEND_WGMMA_RING];
    uint64_t sources_empty[ATTEND_WGMMA_RING];
    uint64_t prob_full[ATTEND_WGMMA_PROBS];
    uint64_t q_full;
    uint64_t q_empty;
    uint64_t factor_full;
    uint64_t factor_empty;
} attend_wgmma_state;

enum { ATTEND_WGMMA_SMEM_BYTES = ATTEND_WGMMA_AT_STATE + (int32_t)sizeof(attend_wgmma_state) };

static_assert(ATTEND_WGMMA_SMEM_BYTES == 227 * 1024 - 616, "of a Hopper CTA, as the kernel says");

#endif
