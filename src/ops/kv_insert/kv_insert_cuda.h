/* kv_insert_cuda.h - what the host code and the kernels of kv_insert share: parameters, how rows are
 * divided among warps, the table of claims, and the factor of e2m1 groups. Everything but the kernels
 * is tested on the CPU (kv_insert_cuda_test.c).
 */
#ifndef MMLA_OPS_KV_INSERT_CUDA_H
#define MMLA_OPS_KV_INSERT_CUDA_H

#include "base/checked.h"
#include "gpu/kernel.h"
#include "num/e4m3.h"
#include "ops/kv_insert/kv_insert.h"

enum {
    KV_INSERT_THREADS = 128, /* a block; warps do not wait for each other */
    KV_INSERT_BLOCKS = 6,    /* a multiprocessor has room for at least so many */
    KV_INSERT_WARP = 32,
    KV_INSERT_WARPS = KV_INSERT_THREADS / KV_INSERT_WARP,
    KV_INSERT_LANE_DIMS = 16, /* a thread's part of a row: the smallest group, and 16 e4m3 codes */

    /* Up to so many rows a warp finds a later row of the same slot by looking at all later slots,
     * which costs about n * n / 64 loads of a warp, all from cache. Beyond, rows claim their slots in
     * a table first: two launches more and 16 bytes a row, but constant time a row. */
    KV_INSERT_SCAN_ROWS = 2048,

    KV_INSERT_CLAIM_BYTES = 8,
    KV_INSERT_CLAIM_THREADS = 256
};

typedef struct kv_insert_params {
    mmla_kv_insert_problem problem;
    mmla_kv_insert_args args;
    unsigned long long *claims; /* [n_claims]; NULL: look at the later slots */
    uint32_t n_claims;
    int32_t warp_rows; /* rows of a warp, 1 .. 32 */
} kv_insert_params;

/* Rows of a warp: few enough to give every warp that fits the device one, and no more than lanes. In
 * rounds: rows that a warp converts at once, 1 or 4. */
MMLA_INLINE int32_t kv_insert_warp_rows(int64_t n, int32_t n_sms, int32_t rows_at_once) {
    const int64_t n_warps = (int64_t)n_sms * KV_INSERT_BLOCKS * KV_INSERT_WARPS;
    const int64_t rows = mmla_clamp_i64((n + n_warps - 1) / n_warps, 1, KV_INSERT_WARP);
    return (int32_t)(rows == 1 ? 1 : mmla_round_up_i64(rows, rows_at_once));
}

/* Blocks for n rows, at least 1 row; fits a grid's first dimension, since n is below 2^31. */
MMLA_INLINE uint32_t kv_insert_n_blocks(int64_t n, int32_t warp_rows) {
    const int64_t block_rows = (int64_t)warp_rows * KV_INSERT_WARPS;
    return (uint32_t)((n + block_rows - 1) / block_rows);
}

/* Claims. A row that is to be written claims its slot in an open hash table with linear probing; of
 * several rows the last one has it. An entry is the slot above the row plus one, so that the largest
 * entry of a slot is that of its last row, and 0 is a free one. Half of the entries stay free: no
 * more different slots are claimed than there are rows, or slots.
 */

MMLA_INLINE uint32_t kv_insert_n_claims(const mmla_kv_insert_problem *p, int64_t n) {
    return (uint32_t)(2 * mmla_min_i64(n, p->cache.n_slots)); /* both are below 2^31 */
}

MMLA_INLINE uint64_t kv_insert_claim(int64_t slot, int64_t row) {
    return (uint64_t)slot << 32 | (uint64_t)(row + 1);
}

MMLA_INLINE int64_t kv_insert_claim_slot(uint64_t claim) {
    return (int64_t)(claim >> 32);
}

MMLA_INLINE int64_t kv_insert_claim_row(uint64_t claim) {
    return (int64_t)(claim & 0xFFFFFFFFu) - 1;
}

/* Where the search for a slot begins, and where it goes on. */
MMLA_INLINE uint32_t kv_insert_claim_first(int64_t slot, uint32_t n_claims) {
    const uint32_t spread = (uint32_t)slot * 0x9E3779B1u;
    return (uint32_t)((uint64_t)spread * n_claims >> 32);
}

MMLA_INLINE uint32_t kv_insert_claim_next(uint32_t at, uint32_t n_claims) {
    return at + 1 < n_claims ? at + 1 : 0;
}

/* What a value of an e2m1 group is multiplied with to give 2^-14 times its quotient by the scale,
 * an e4m3 code from 0x01 to 0x7E. The definition divides, because the product misses exact ties by
 * its rounding errors, about 2^-23 of it. Rounding the product to fp16 puts that right:
 *
 *     Ties are at k * scale for k = 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5. Value and tie have at most
 *     8 and 7 significant bits (a bf16; two of 4 and 3), so when they differ, they differ by at
 *     least 1/256 of the tie.
 *     A product that should be a tie is nearer to it than half a step of fp16, and becomes it.
 *     One that should not is at least a step away from it: the steps are 2^-10 of a number of at
 *     least 1, and 2^-10 below, where the ties are 0.25 and 0.75. Rounding to fp16 keeps the order,
 *     so it stays on its side.
 *
 * The tests try every value under every scale. The power of two puts e2m1's subnormals where fp16 has its own (gpu/convert_bits.h). */
MMLA_INLINE float kv_insert_e2m1_factor(uint8_t scale) {
    return 0x1p-14f / mmla_e4m3_to_f32(scale);
}

/* [norm] */
#define KV_INSERT_KERNELS(format)                           \
    MMLA_KERNEL(kv_insert_cuda_##format, kv_insert_params); \
    MMLA_KERNEL(kv_insert_cuda_##format##_norm, kv_insert_params)
KV_INSERT_KERNELS(v4);
KV_INSERT_KERNELS(v41_fp8);
KV_INSERT_KERNELS(v41_fp4);
KV_INSERT_KERNELS(index_fp8);
KV_INSERT_KERNELS(index_fp4);
#undef KV_INSERT_KERNELS
MMLA_KERNEL(kv_insert_cuda_claim, kv_insert_params);

#endif
