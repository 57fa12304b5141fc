/* kv_insert_cuda.h - what the host code and the kernels of kv_insert share: parameters, how rows are
 * divided among warps, the table of claims, and e2m1 codes by shifts. Everything but the kernels is
 * tested on the CPU (kv_insert_cuda_test.c).
 */
#ifndef MMLA_OPS_KV_INSERT_CUDA_H
#define MMLA_OPS_KV_INSERT_CUDA_H

#include "base/checked.h"
#include "gpu/kernel.h"
#include "num/e4m3.h"
#include "num/quant.h"
#include "ops/kv_insert/kv_insert.h"

enum {
    KV_INSERT_THREADS = 256,   /* a block */
    KV_INSERT_BLOCKS = 4,      /* a multiprocessor has registers for so many */
    KV_INSERT_NORM_BLOCKS = 3, /* with norm */
    KV_INSERT_WARP = 32,
    KV_INSERT_WARPS = KV_INSERT_THREADS / KV_INSERT_WARP,
    KV_INSERT_LANE_DIMS = 16, /* a thread's part of a row: the smallest group, and 16 e4m3 codes */

    /* Up to so many rows a block finds later rows of the same slot by looking at all of them, eight a
     * thread, while its own rows are on their way. Beyond, rows claim their slots in a table. */
    KV_INSERT_SCAN_ROWS = 2048,
    KV_INSERT_LATER = KV_INSERT_SCAN_ROWS / KV_INSERT_THREADS,

    KV_INSERT_ROW_CLAIMS = 4, /* places of the table a row, or a slot if those are fewer */
    KV_INSERT_PROBES = 64     /* places that are tried for a slot */
};

/* What a launch does about rows with one slot. */
typedef enum kv_insert_step {
    KV_INSERT_SCAN, /* looks at all later slots, and stores the last row */
    KV_INSERT_CLAIM, /* stores every row, in any order, claims its slot and tells whether another did */
    KV_INSERT_REPAIR, /* if so, stores the last row of every slot again */
    KV_INSERT_STEPS
} kv_insert_step;

/* A claim: the number of a call in the high half, a row of it in the low. */
typedef uint64_t kv_insert_claim;

/* The workspace. Whatever it holds before a call is harmless. */
typedef struct kv_insert_table {
    kv_insert_claim loser; /* a row that lost its slot, if it is of this call */
    uint32_t call; /* the number of this call, until the second launch writes the next one */
    uint32_t next; /* written by the first launch */
    kv_insert_claim claims[];
} kv_insert_table;

static_assert(sizeof(kv_insert_table) == 16, "kv.h says so");

MMLA_INLINE kv_insert_claim kv_insert_claim_of(uint32_t call, uint32_t row) {
    return (kv_insert_claim)call << 32 | row;
}

typedef struct kv_insert_params {
    mmla_kv_insert_problem problem;
    mmla_kv_insert_args args;
    int32_t warp_rows; /* rows of a block by its warps, 1 .. 32; 1 of a scan */
    uint32_t n_claims;
    kv_insert_table *table; /* NULL in a scan */
} kv_insert_params;

/* Rows of a block, divided by its warps: few enough to give every warp that fits the device one, and no
 * more than a block has threads for. In rounds: rows that a warp converts at once, 1 or 4. n_warps fit
 * the device. */
MMLA_INLINE int32_t kv_insert_warp_rows(int64_t n, int64_t n_warps, int32_t rows_at_once) {
    const int64_t rows = mmla_clamp_i64((n + n_warps - 1) / n_warps, 1, KV_INSERT_WARP);
    return (int32_t)(rows == 1 ? 1 : mmla_round_up_i64(rows, rows_at_once));
}

/* Blocks for n rows, at least 1 row; fits a grid's first dimension, since n is below 2^31. */
MMLA_INLINE uint32_t kv_insert_n_blocks(int64_t n, int32_t warp_rows) {
    const int64_t block_rows = (int64_t)warp_rows * KV_INSERT_WARPS;
    return (uint32_t)((n + block_rows - 1) / block_rows);
}

/* Claims. Rows that are to be written claim their slots in an open hash table with linear probing; of
 * several rows of a slot the last has its place in the end.
 *
 * Nobody empties the table first, which would be a launch of its own. A claim bears the number of
 * its call, and calls count on in the table: the first launch reads the number and leaves the next
 * beside it, the second takes that over, so that none reads what others of its own launch write.
 * But whatever the table holds has to be harmless, and a number may be there by chance or from a
 * call before: it is a claim only if a row of this call has it, which is to be written, and whose
 * search comes by that place. That tells the truth, whoever wrote it. What is a claim stays one: it
 * is only replaced by that of a later row of the same slot. So all rows of a slot stop at the same
 * place, the first that is theirs or no claim.
 *
 * A search ends after KV_INSERT_PROBES places. A slot that has found none is looked for among all
 * later slots when the records are repaired, which is slow and asks for a table full of claims that
 * bear the call's number already, or for slots chosen to collide.
 */

/* No more than an index of 32 bits reaches; none for an empty cache. At least three quarters of the
 * places stay free, or half of more than 2^30: no more different slots are claimed than there are rows,
 * or slots. */
MMLA_INLINE uint32_t kv_insert_n_claims(const mmla_kv_insert_problem *p, int64_t n) {
    const int64_t n_slots = mmla_min_i64(n, p->cache.n_slots);
    return (uint32_t)mmla_min_i64(KV_INSERT_ROW_CLAIMS * n_slots, UINT32_MAX);
}

/* Where the search for a slot begins, where it goes on, and after how many steps it comes by `at`. */
MMLA_INLINE uint32_t kv_insert_claim_first(int64_t slot, uint32_t n_claims) {
    const uint32_t spread = (uint32_t)slot * 0x9E3779B1u;
    return (uint32_t)((uint64_t)spread * n_claims >> 32);
}

MMLA_INLINE uint32_t kv_insert_claim_next(uint32_t at, uint32_t n_claims) {
    return at + 1 < n_claims ? at + 1 : 0;
}

MMLA_INLINE uint32_t kv_insert_claim_steps(uint32_t first, uint32_t at, uint32_t n_claims) {
    return at >= first ? at - first : at + (n_claims - first);
}

/* The slot that row `row`, found at a place, claims; -1 when that is no claim, whatever number it
 * bears. */
MMLA_INLINE int64_t kv_insert_claim_slot(const kv_insert_params *p, uint32_t row, uint32_t at) {
    if (row >= p->args.n_slots) {
        return -1;
    }
    const int64_t slot = mmla_kv_insert_place_get(&p->problem, &p->args, row).slot;
    if (slot < 0) {
        return -1;
    }
    const uint32_t first = kv_insert_claim_first(slot, p->n_claims);
    return kv_insert_claim_steps(first, at, p->n_claims) < KV_INSERT_PROBES ? slot : -1;
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
 * A factor that is wrong by some 2^-20 of itself does no harm, so a kernel need not divide. The tests
 * try every value under every scale, with factors that are wrong by that. The power of two puts
 * e2m1's subnormals where fp16 has its own (gpu/convert_bits.h). */
MMLA_INLINE float kv_insert_e2m1_factor(float scale) {
    return 0x1p-14f / scale;
}

/* Two fp16, 2^-14 times numbers below 7, to e2m1 codes, ties to even: a code's three bits become bits
 * 9 to 11 of its half, the sign stays bit 15. Of numbers of 7 and more, infinities and NaN, one of the
 * bits KV_INSERT_E2M1_BEYOND is set, there or before: they are for the slow way. */
#define KV_INSERT_E2M1_BEYOND 0x70007000u
MMLA_INLINE uint32_t kv_insert_e2m1_round(uint32_t halves) {
    return halves + 0x00FF00FFu + (halves >> 9 & 0x00010001u);
}

/* The high bytes of four fp16: of a's low half, b's low, a's high, b's high. */
MMLA_INLINE uint32_t kv_insert_high_bytes(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, 0x7351);
#else
    return (a >> 8 & 0x00FF00FFu) | (b & 0xFF00FF00u);
#endif
}

/* The codes of eight numbers that were rounded so, in pairs of those four apart: 0 and 4, and so on. A
 * byte of four numbers in a row is a sign, three zeros, three bits of code, and one that is over. */
MMLA_INLINE uint32_t kv_insert_e2m1_join(uint32_t r04, uint32_t r26, uint32_t r15, uint32_t r37) {
    const uint32_t even = kv_insert_high_bytes(r04, r26), odd = kv_insert_high_bytes(r15, r37);
    return ((even | even >> 3) >> 1 & 0x0F0F0F0Fu) | ((odd | odd << 3) & 0xF0F0F0F0u);
}

/* What the scale of an e2m1 group is rounded from to e4m3. mmla_quant_e2m1_scale divides by 6; for
 * every bf16 the product with the fp32 nearest to 1/6 gives the same code. */
MMLA_INLINE float kv_insert_e2m1_raw_scale(float amax) {
    return fminf(fmaxf(amax * (1.0f / MMLA_E2M1_MAX), MMLA_E2M1_RAW_FLOOR), MMLA_E4M3_MAX);
}

/* mmla_ue8m0_inverse of a byte of at least 1, without branches. */
MMLA_INLINE float kv_insert_ue8m0_inverse(uint32_t byte) {
    const uint32_t subnormal = 0x00400000u >> (byte & 1u); /* of 254 and 255 */
    return mmla_f32_of_bits(byte < 254u ? (254u - byte) << 23 : subnormal);
}

/* [step][norm] */
#define KV_INSERT_STEP_KERNELS(name)                      \
    MMLA_KERNEL(kv_insert_cuda_##name, kv_insert_params); \
    MMLA_KERNEL(kv_insert_cuda_##name##_norm, kv_insert_params)
#define KV_INSERT_KERNELS(format)           \
    KV_INSERT_STEP_KERNELS(format##_scan);  \
    KV_INSERT_STEP_KERNELS(format##_claim); \
    KV_INSERT_STEP_KERNELS(format##_repair)
KV_INSERT_KERNELS(v4);
KV_INSERT_KERNELS(v41_fp8);
KV_INSERT_KERNELS(v41_fp4);
KV_INSERT_KERNELS(index_fp8);
KV_INSERT_KERNELS(index_fp4);
#undef KV_INSERT_KERNELS
#undef KV_INSERT_STEP_KERNELS

#endif
