/* attend_mma_tile.h - where things lie in the shared memory of attend_mma_kernel.cu: shared by host
 * and device, so that the maps are tested without a GPU and both agree on the sizes.
 *
 * Tiles of bf16 are rows of 512 numbers (1,024 bytes, a key or a head's q) in 16-byte chunks. Chunk
 * c of row r lies at chunk c ^ (r % 8): the eight rows that one ldmatrix phase reads, all at the same
 * c, then fall into different banks, and so do the eight chunks that eight threads write side by side
 * in one row.
 */
#ifndef MMLA_GPU_ATTEND_MMA_TILE_H
#define MMLA_GPU_ATTEND_MMA_TILE_H

#include "kv/layout.h"

enum {
    ATTEND_MMA_THREADS = 256,
    ATTEND_MMA_WARPS = ATTEND_MMA_THREADS / 32,
    ATTEND_MMA_DIM = MMLA_LATENT_DIM,
    ATTEND_MMA_CHUNK_BYTES = 16,
    ATTEND_MMA_CHUNK_DIMS = ATTEND_MMA_CHUNK_BYTES / 2,
    ATTEND_MMA_ROW_BYTES = ATTEND_MMA_DIM * 2,
    ATTEND_MMA_ROW_CHUNKS = ATTEND_MMA_ROW_BYTES / ATTEND_MMA_CHUNK_BYTES,
    ATTEND_MMA_WARP_DIMS = ATTEND_MMA_DIM / ATTEND_MMA_WARPS, /* of O, a warp's share */
    ATTEND_MMA_WARP_BLOCKS = ATTEND_MMA_WARP_DIMS / 16,       /* the same in matrix instructions */
    ATTEND_MMA_KEYS_MAX = 64,                                 /* keys of one block */
    ATTEND_MMA_TILES_MAX = 8,                                 /* groups of 8 heads of one CTA */
    /* Raw records lie an odd number of chunks apart, so that neighbours start in other banks. */
    ATTEND_MMA_V4_PITCH = 592,
    ATTEND_MMA_FP8_PITCH = MMLA_KV_FP8_DATA_BYTES + MMLA_KV_FP8_SCALE_BYTES,
    ATTEND_MMA_FP4_PITCH = 304
};

static_assert(ATTEND_MMA_V4_PITCH >= MMLA_KV_V4_DATA_BYTES + MMLA_KV_V4_SCALE_BYTES &&
                  ATTEND_MMA_V4_PITCH / 16 % 2 == 1,
              "a V4 record and an odd number of chunks");
static_assert(ATTEND_MMA_FP8_PITCH >= MMLA_KV_FP8_DATA_BYTES + MMLA_KV_FP8_SCALE_BYTES &&
                  ATTEND_MMA_FP8_PITCH / 16 % 2 == 1,
              "an fp8 record and an odd number of chunks");
static_assert(ATTEND_MMA_FP4_PITCH >= MMLA_KV_FP4_DATA_BYTES + MMLA_KV_FP4_SCALE_BYTES &&
                  ATTEND_MMA_FP4_PITCH / 16 % 2 == 1,
              "an fp4 record and an odd number of chunks");

/* Byte offset of chunk c of row r in a tile. */
MMLA_INLINE int32_t attend_mma_chunk_off(int32_t r, int32_t c) {
    return r * ATTEND_MMA_ROW_BYTES + ((c ^ (r & 7)) * ATTEND_MMA_CHUNK_BYTES);
}

/* The row and the chunk, relative to a 16 x 16 block, whose address a lane gives to ldmatrix: block
 * rows are the rows of the operand (scores: keys), so the matrices go down first, then right. */
MMLA_INLINE int32_t attend_mma_a_row(int32_t lane) {
    return (lane >> 3 & 1) * 8 + (lane & 7);
}

MMLA_INLINE int32_t attend_mma_a_chunk(int32_t lane) {
    return lane >> 4;
}

/* The same when the operand is the transposed block (output: rows of the tile are the operand's
 * columns): right first, then down. */
MMLA_INLINE int32_t attend_mma_at_row(int32_t lane) {
    return (lane >> 4) * 8 + (lane & 7);
}

MMLA_INLINE int32_t attend_mma_at_chunk(int32_t lane) {
    return lane >> 3 & 1;
}

/* Probabilities are [keys][8 n_tiles] bf16, a row an odd number of chunks long. */
MMLA_INLINE int32_t attend_mma_prob_pitch(int32_t n_tiles) {
    return (n_tiles | 1) * ATTEND_MMA_CHUNK_BYTES;
}

/* Results of a warp on their way out, [8 n_tiles heads][64 dims] of 1 or 2 bytes, and a chunk of
 * padding a row. */
MMLA_INLINE int32_t attend_mma_out_pitch(int32_t element_bytes) {
    return ATTEND_MMA_WARP_DIMS * element_bytes + ATTEND_MMA_CHUNK_BYTES;
}

/* Small state of a block, in floats or int32. */
typedef struct attend_mma_state {
    int32_t task;    /* attend_mma_task, and room for one int32 */
    int32_t alpha;   /* [heads] factor of O and of the sum when the maximum has risen */
    int32_t logit;   /* [heads] factor of the scores, base 2 */
    int32_t factor;  /* [heads] what O is multiplied with at the end */
    int32_t running; /* [2][heads] the maximum so far, before and after a block by turns */
    int32_t maximum; /* [4][heads] of the warps' keys in a block */
    int32_t sum;     /* [4][heads] likewise; when parts are joined, their weights [16][heads] */
    int32_t valid;   /* [2][keys] int32: is the place a key */
    int32_t total;
} attend_mma_state;

enum {
    ATTEND_MMA_SPLITS_MAX = 16,
    ATTEND_MMA_ROW_WARPS_MAX = 4,
    ATTEND_MMA_TASK_WORDS = 16,
    ATTEND_MMA_PAIRS = ATTEND_MMA_WARPS / 2,
    ATTEND_MMA_ALL_PAIRS = (1 << ATTEND_MMA_PAIRS) - 1
};

/* What a CTA is to do. It lies in shared memory, because in registers it would be in the way of the
 * sums while the keys are walked. */
typedef struct attend_mma_task {
    int64_t token;
    int64_t group;    /* of this launch: token and group of heads */
    int64_t position; /* -1: not in the table */
    int32_t split;
    int32_t first_head;
    int32_t has_keys; /* whether an entry of its share was one; after joining, of all shares */
    int32_t pairs;    /* bit i: warps 2 i and 2 i + 1 bring their dims of the result out */
} attend_mma_task;

static_assert(sizeof(attend_mma_task) <= 4 * ATTEND_MMA_TASK_WORDS, "the task has its room");

MMLA_INLINE attend_mma_state attend_mma_state_get(int32_t keys, int32_t n_tiles) {
    const int32_t heads = 8 * n_tiles;
    attend_mma_state s;
    s.task = 0;
    s.alpha = s.task + ATTEND_MMA_TASK_WORDS;
    s.logit = s.alpha + heads;
    s.factor = s.logit + heads;
    s.running = s.factor + heads;
    s.maximum = s.running + 2 * heads;
    s.sum = s.maximum + ATTEND_MMA_ROW_WARPS_MAX * heads;
    s.valid = s.sum + ATTEND_MMA_SPLITS_MAX * heads;
    s.total = s.valid + 2 * keys;
    return s;
}

/* Byte offsets of a block's shared memory. The stage comes last: its size depends on the formats. */
typedef struct attend_mma_smem {
    int32_t q;     /* bf16 tile, [8 n_tiles] rows */
    int32_t part;  /* scores of the other parts of the dims, as fragments */
    int32_t prob;  /* bf16 [keys][8 n_tiles] */
    int32_t state; /* attend_mma_state */
    int32_t k;     /* bf16 tile, [keys] rows */
    int32_t stage; /* raw records, or a second tile for rows that need no conversion */
} attend_mma_smem;

MMLA_INLINE attend_mma_smem attend_mma_smem_get(int32_t keys, int32_t n_tiles) {
    const int32_t row_warps = keys / 16, dim_parts = ATTEND_MMA_WARPS / row_warps;
    attend_mma_smem s;
    s.q = 0;
    s.part = s.q + 8 * n_tiles * ATTEND_MMA_ROW_BYTES;
    s.prob = s.part + (dim_parts - 1) * row_warps * n_tiles * 32 * 16;
    s.state = s.prob + keys * attend_mma_prob_pitch(n_tiles);
    s.k = (s.state + attend_mma_state_get(keys, n_tiles).total * 4 + 127) / 128 * 128;
    s.stage = s.k + keys * ATTEND_MMA_ROW_BYTES;
    return s;
}

/* A warp's share of O^T on its way out: for every group of 8 heads the fragments of its 64 dims, a
 * float4 a thread and block of 16 dims; later, in the same place, the 8 heads' rows of results. */
enum { ATTEND_MMA_SLOT_BYTES = ATTEND_MMA_WARP_BLOCKS * 32 * 16 };

static_assert(8 * (ATTEND_MMA_WARP_DIMS * 2 + ATTEND_MMA_CHUNK_BYTES) <= ATTEND_MMA_SLOT_BYTES,
              "the rows of a group fit where its fragments were");

/* Half of the warps have their slots where q was, the others where the keys were. */
MMLA_INLINE int32_t attend_mma_slots_off(int32_t warp, int32_t keys, int32_t n_tiles) {
    const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
    const int32_t half = ATTEND_MMA_WARPS / 2;
    return (warp < half ? at.q : at.k) + warp % half * n_tiles * ATTEND_MMA_SLOT_BYTES;
}

/* Most shared memory of a block that kernels for a capability are made for: code for 8.6 serves all
 * later 8.x, and code for 12.0 everything after it, and both GPUs have 99 KB. */
MMLA_INLINE int32_t attend_mma_smem_limit(int32_t capability) {
    const bool is_small = (capability > 80 && capability < 90) || capability >= 120;
    return 1024 * (is_small ? 99 : capability == 80 ? 163 : 227);
}

/* Bytes between raw records of a format; of bf16 rows (NONE) a row of the tile. */
MMLA_INLINE int32_t attend_mma_pitch(mmla_kv_format format) {
    return format == MMLA_KV_V4        ? ATTEND_MMA_V4_PITCH
           : format == MMLA_KV_V41_FP8 ? ATTEND_MMA_FP8_PITCH
           : format == MMLA_KV_V41_FP4 ? ATTEND_MMA_FP4_PITCH
                                       : ATTEND_MMA_ROW_BYTES;
}

/* All of it, for the format with the widest records among those of a call. */
MMLA_INLINE int32_t attend_mma_smem_bytes(int32_t keys, int32_t n_tiles, int32_t pitch) {
    return attend_mma_smem_get(keys, n_tiles).stage + keys * pitch;
}

#endif
