/* attend_wgmma_tile.h - where things lie in the shared memory of the Hopper kernels, and which
 * numbers a thread has: shared by host and device, so that the maps are tested without a GPU.
 *
 * A file that includes this says before how many heads a CTA has: ATTEND_WGMMA_TILE_HEADS, 8 or 16
 * for attend_wgmma_few_kernel.inc, 64, which is what is taken otherwise, for
 * attend_wgmma_kernel.cu.
 *
 * Tiles of q and of the keys are what wgmma.cuh wants: 8 columns of 64 bf16, a row 128 bytes; q has
 * as many rows as there are heads, a block of keys 48. The tile of the probabilities, all heads by
 * 48 keys, is made of matrices of 8 heads by 8 keys, 128 bytes each, those of the same keys one
 * after the other.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_TILE_H
#define MMLA_GPU_ATTEND_WGMMA_TILE_H

#include "kv/layout.h"

#ifndef ATTEND_WGMMA_TILE_HEADS
#define ATTEND_WGMMA_TILE_HEADS 64
#endif

enum {
    ATTEND_WGMMA_HEADS = ATTEND_WGMMA_TILE_HEADS, /* of a CTA */
    ATTEND_WGMMA_FEW = ATTEND_WGMMA_HEADS <= 16,  /* the kernels for few heads */
    ATTEND_WGMMA_KEYS = 48,                       /* of a block */
    ATTEND_WGMMA_STAGES = ATTEND_WGMMA_FEW ? 4 : 3,
    ATTEND_WGMMA_PROBS = 2,   /* tiles of probabilities */
    ATTEND_WGMMA_GROUP = 128, /* threads of a warpgroup */
    ATTEND_WGMMA_THREADS = (ATTEND_WGMMA_FEW ? 6 : 4) * ATTEND_WGMMA_GROUP,
    /* Two warpgroups multiply; then come warps that load, one of lists, and one of q. Groups of
     * loading warps have a block each, in turns. */
    ATTEND_WGMMA_MATH_THREADS = 2 * ATTEND_WGMMA_GROUP,
    ATTEND_WGMMA_MATH_WARPS = ATTEND_WGMMA_MATH_THREADS / 32,
    ATTEND_WGMMA_LOAD_GROUPS = ATTEND_WGMMA_FEW ? 2 : 1,
    ATTEND_WGMMA_LOAD_WARPS = 6, /* of a group */
    ATTEND_WGMMA_LOAD_THREADS = 32 * ATTEND_WGMMA_LOAD_WARPS,
    ATTEND_WGMMA_LIST_WARP =
        ATTEND_WGMMA_MATH_WARPS + ATTEND_WGMMA_LOAD_GROUPS * ATTEND_WGMMA_LOAD_WARPS,
    ATTEND_WGMMA_Q_WARP = ATTEND_WGMMA_LIST_WARP + 1,
    ATTEND_WGMMA_MATH_REGISTERS = ATTEND_WGMMA_FEW ? 112 : 192,
    ATTEND_WGMMA_LOAD_REGISTERS = 64,
    ATTEND_WGMMA_LOAD_KEYS = 8,    /* of a block, a loading warp's */
    ATTEND_WGMMA_PIECE_BYTES = 16, /* of a record, a lane's, at a time; also a chunk of a tile */
    ATTEND_WGMMA_AHEAD = 3,        /* blocks whose list entries are on their way */
    /* Blocks whose entries, or whose records' addresses, are there. */
    ATTEND_WGMMA_RING = 4 * ATTEND_WGMMA_LOAD_GROUPS,
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

static_assert((ATTEND_WGMMA_Q_WARP + 1) * 32 <= ATTEND_WGMMA_THREADS, "every role has its warps");
static_assert(ATTEND_WGMMA_STAGES >= ATTEND_WGMMA_LOAD_GROUPS, "a stage for each");
static_assert(ATTEND_WGMMA_LOAD_KEYS * ATTEND_WGMMA_LOAD_WARPS == ATTEND_WGMMA_KEYS,
              "the warps of a group share a block's keys");
static_assert(ATTEND_WGMMA_AHEAD < ATTEND_WGMMA_RING, "an entry is read before it is replaced");
static_assert(ATTEND_WGMMA_MATH_THREADS * ATTEND_WGMMA_MATH_REGISTERS +
                      (ATTEND_WGMMA_THREADS - ATTEND_WGMMA_MATH_THREADS) *
                          ATTEND_WGMMA_LOAD_REGISTERS <=
                  65536 / 8 / ATTEND_WGMMA_THREADS * 8 * ATTEND_WGMMA_THREADS,
              "the registers that the launch has, a multiple of 8 a thread");

/* Byte offset of 16-byte chunk c (0 .. 63) of row r in a tile with columns of so many bytes. The
 * matrix units have chunk k of a row at k ^ (row % 8); in column x of a tile, k is chunk k ^ (x % 4)
 * of the row's, so that the lanes of a load store to different banks. */
MMLA_INLINE int32_t attend_wgmma_chunk_off(int32_t column_bytes, int32_t r, int32_t c) {
    return c / 8 * column_bytes + r * 128 + ((c ^ r ^ (c / 8 & 3)) & 7) * 16;
}

/* Which eight of a token's dims are the eight from 8 k on of a product. */
MMLA_INLINE int32_t attend_wgmma_chunk_at(int32_t k) {
    return k ^ (k / 8 & 3);
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

/* A load of a warp: the number of its keys, and the dims of a lane. Which of the keys a lane has,
 * which 16 bytes of its record, and the chunk of the tile that their dims begin with. */
MMLA_INLINE int32_t attend_wgmma_load_keys(mmla_kv_format format) {
    return format == MMLA_KV_V41_FP4 ? 2 : 1;
}

MMLA_INLINE int32_t attend_wgmma_load_dims(mmla_kv_format format) {
    return (format == MMLA_KV_V41_FP4 ? 2 : 1) * ATTEND_WGMMA_PIECE_BYTES;
}

MMLA_INLINE int32_t attend_wgmma_load_row(mmla_kv_format format, int32_t lane) {
    return lane / (32 / attend_wgmma_load_keys(format));
}

MMLA_INLINE int32_t attend_wgmma_load_piece(mmla_kv_format format, int32_t lane) {
    return lane % (32 / attend_wgmma_load_keys(format));
}

MMLA_INLINE int32_t attend_wgmma_load_chunk(mmla_kv_format format, int32_t lane) {
    return attend_wgmma_load_piece(format, lane) * attend_wgmma_load_dims(format) /
           ATTEND_WGMMA_CHUNK_DIMS;
}

/* Whether a lane has any codes; the last ones have none of a V4 record. */
MMLA_INLINE bool attend_wgmma_load_has_codes(mmla_kv_format format, int32_t lane) {
    return format != MMLA_KV_V4 ||
           attend_wgmma_load_piece(format, lane) * attend_wgmma_load_dims(format) <
               (int32_t)MMLA_KV_V4_FP8_DIMS;
}

/* Row and column of sum i of a thread of a warpgroup (wgmma.cuh). */
MMLA_INLINE int32_t attend_wgmma_sum_row(int32_t thread, int32_t i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}

MMLA_INLINE int32_t attend_wgmma_sum_column(int32_t thread, int32_t i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* Byte offset of 4 dims (unit, 0 .. 127) of a head in the fp32 sums that a CTA leaves where its
 * stages were. Pairs of units are moved within groups of eight, so that neither the threads that
 * write two dims each of four heads meet a bank twice, nor those that write one dim each of heads
 * that lie two apart; who reads a head's units side by side reads them all. */
MMLA_INLINE int32_t attend_wgmma_part_off(int32_t head, int32_t unit) {
    const int32_t pair = ((head ^ (head & 4) >> 2) & 3) | (head & 4);
    return head * MMLA_LATENT_DIM * 4 + (unit ^ pair << 1) * 16;
}

static_assert(ATTEND_WGMMA_HEADS * MMLA_LATENT_DIM * 4 <=
                  (ATTEND_WGMMA_FEW ? 1 : ATTEND_WGMMA_STAGES) * ATTEND_WGMMA_TILE_BYTES,
              "the sums fit where the stages were; those of few heads in one");

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

/* In the place of a list, or of a format: there is no block any more; the end of a task, whose
 * stage is for the task's sums. */
enum { ATTEND_WGMMA_NO_BLOCK = -1, ATTEND_WGMMA_END = -2 };

/* The list entries of a block, as they come. */
typedef struct attend_wgmma_entries {
    int32_t entries[ATTEND_WGMMA_KEYS];
    int32_t list; /* which one, or one of the above */
} attend_wgmma_entries;

/* Where a block's records are; zeros stand for what is no key. */
typedef struct attend_wgmma_sources {
    const uint8_t *data[ATTEND_WGMMA_KEYS];
    uint64_t valid;                      /* bit k: key k is one */
    int32_t to_scale[ATTEND_WGMMA_KEYS]; /* bytes from a record's data to its scales */
    int32_t format;                      /* mmla_kv_format, or one of the above */
} attend_wgmma_sources;

/* What a CTA is to do, one after the other: a token, up to ATTEND_WGMMA_HEADS heads, its share of
 * the keys. */
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
    uint64_t q_rotated; /* of 64 heads */
    uint64_t q_empty;
    uint64_t weights_full;
    uint64_t factor_full;
    uint64_t factor_empty;
} attend_wgmma_state;

/* Numbers of barriers of warps. */
enum {
    ATTEND_WGMMA_BAR_BOTH = 1, /* the multiplying warpgroups */
    ATTEND_WGMMA_BAR_GROUP = 2 /* the first one, in the kernels for few heads; 3 is the other's */
};

enum { ATTEND_WGMMA_SMEM_BYTES = ATTEND_WGMMA_AT_STATE + (int32_t)sizeof(attend_wgmma_state) };

static_assert(ATTEND_WGMMA_FEW || ATTEND_WGMMA_SMEM_BYTES == 227 * 1024 - 600,
              "of a Hopper CTA, as the kernel says");

#endif
