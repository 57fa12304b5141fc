/* kv_insert_slots.cuh - where rows go, and which row is the last of its slot: by a scan, or by claims.
 *
 * PROBLEM    A thread looks at the slot and the position of one row. Warps are not ordered, and of the
 *            rows of one slot the last has to stay.
 *
 * SCAN       A block has eight rows, and its threads all later slots between them, up to eight each:
 *            independent loads that are under way together with those of the rows. A thread compares
 *            each with the eight, in 32 bits.
 *
 * CLAIMS     One table for all blocks (kv_insert_cuda.h). A block's rows claim once they are stored,
 *            and a row that meets another of its slot leaves a note. If there is one, the next
 *            launch stores the owner of each slot again; until then a slot has some row of the call.
 *            That launch begins while the first still runs, and waits for its end.
 *
 * LIMITS     Every index is looked at before an address is formed from it: a number in the table is a
 *            row only below n_slots. A search ends after KV_INSERT_PROBES places, whatever is there.
 */
#ifndef MMLA_OPS_KV_INSERT_SLOTS_CUH
#define MMLA_OPS_KV_INSERT_SLOTS_CUH

#include "ops/kv_insert/kv_insert_cuda.h"

#define ALL 0xFFFFFFFFu
#define INLINE static __device__ __forceinline__
#define NO_SLOT 0x9E3779B1u   /* low bits of no legal slot, nor of what callers write for none */
#define NOT_LATER 0xFFFFFFFFu /* another */

static_assert(KV_INSERT_SCAN_ROWS % KV_INSERT_THREADS == 0, "later slots of a thread");

/* The place of a row with this slot and position. */
INLINE mmla_kv_insert_place place_of(const kv_insert_params *p, int64_t slot, int64_t position) {
    mmla_kv_insert_args one = {};
    one.slots = &slot;
    one.positions = &position;
    return mmla_kv_insert_place_get(&p->problem, &one, 0);
}

/* Slots of rows past a block, every KV_INSERT_THREADS-th by a thread; past the last, none that could
 * be taken for a legal one. */
INLINE void load_later(const kv_insert_params *p, int64_t after, int64_t later[KV_INSERT_LATER]) {
#pragma unroll
    for (int i = 0; i < KV_INSERT_LATER; i++) {
        const int64_t t = after + i * KV_INSERT_THREADS + threadIdx.x;
        later[i] = t < p->args.n_slots ? __ldg(&p->args.slots[t]) : NOT_LATER;
    }
}

/* Bit i: a later row has the slot of row i of the block; for all its threads. of_rows has the low bits
 * of the slots of its rows that are to be written, NO_SLOT for others; a barrier has passed. */
INLINE uint32_t rows_named_later(const kv_insert_params *p,
                                 int64_t after,
                                 const uint32_t of_rows[KV_INSERT_WARPS],
                                 const int64_t later[KV_INSERT_LATER],
                                 uint32_t named[KV_INSERT_WARPS]) {
    const int lane = threadIdx.x % KV_INSERT_WARP;
    uint32_t slots[KV_INSERT_WARPS], bits = 0, near = 0;
#pragma unroll
    for (int i = 0; i < KV_INSERT_WARPS; i++) {
        slots[i] = of_rows[i];
        if (threadIdx.x < i && of_rows[threadIdx.x] == slots[i] && slots[i] != NO_SLOT) {
            bits = 1u << threadIdx.x;
        }
    }
    if (after < p->args.n_slots) {
#pragma unroll
        for (int i = 0; i < KV_INSERT_LATER; i++) {
            bool is_near = false;
#pragma unroll
            for (int j = 0; j < KV_INSERT_WARPS; j++) {
                is_near |= (uint32_t)later[i] == slots[j];
            }
            near |= is_near ? 1u << i : 0u; /* has the low bits of one of them */
        }
    }
    for (; near != 0; near &= near - 1) { /* nearly never */
        const int64_t t = after + (__ffs((int)near) - 1) * KV_INSERT_THREADS + threadIdx.x;
        const int64_t its = mmla_kv_insert_place_get(&p->problem, &p->args, t).slot;
#pragma unroll
        for (int j = 0; j < KV_INSERT_WARPS; j++) {
            bits |= its >= 0 && (uint32_t)its == slots[j] ? 1u << j : 0u;
        }
    }
    bits = __reduce_or_sync(ALL, bits);
    if (lane == 0) {
        named[threadIdx.x / KV_INSERT_WARP] = bits;
    }
    __syncthreads();
    return __reduce_or_sync(ALL, lane < KV_INSERT_WARPS ? named[lane] : 0u);
}

/* The slot of a claim that is at a place, -1 when it is none of this call. */
INLINE int64_t slot_of(const kv_insert_params *p,
                       kv_insert_claim there,
                       uint32_t call,
                       uint32_t at) {
    return (uint32_t)(there >> 32) == call ? kv_insert_claim_slot(p, (uint32_t)there, at) : -1;
}

/* Claims a slot for row t, which is to be written. When another row has or wants it, or no place is
 * left, one of them that loses is noted: one is enough. */
INLINE void claim(const kv_insert_params *p, uint32_t call, uint32_t t, int64_t slot) {
    kv_insert_claim *claims = p->table->claims;
    const kv_insert_claim own = kv_insert_claim_of(call, t);
    kv_insert_claim loser = own;
    uint32_t at = kv_insert_claim_first(slot, p->n_claims);
#pragma unroll 1 /* nearly always the first place ends it */
    for (int i = 0; i < KV_INSERT_PROBES; i++) {
        kv_insert_claim there = __ldcg(&claims[at]);
        int64_t its = there == own ? slot : slot_of(p, there, call, at);
        if (its < 0) {
            const kv_insert_claim before = atomicCAS((unsigned long long *)&claims[at], there, own);
            if (before == there) {
                return;
            }
            there = before; /* and a claim: another row of this call was faster */
            its = slot_of(p, there, call, at);
        }
        if (its == slot) {
            if (there == own) { /* left by a call before with this number */
                return;
            }
            atomicMax((unsigned long long *)&claims[at], own);
            loser = there < own ? there : own;
            break;
        }
        at = kv_insert_claim_next(at, p->n_claims);
    }
    p->table->loser = loser;
}

/* The row that has claimed a slot, of all the last; -1 when none could. */
INLINE int64_t owner_of(const kv_insert_params *p, uint32_t call, int64_t slot) {
    uint32_t at = kv_insert_claim_first(slot, p->n_claims);
#pragma unroll 1 /* nearly always the first place ends it */
    for (int i = 0; i < KV_INSERT_PROBES; i++) {
        const kv_insert_claim there = p->table->claims[at];
        const int64_t its = slot_of(p, there, call, at);
        if (its == slot) {
            return (uint32_t)there;
        }
        if (its < 0) {
            break;
        }
        at = kv_insert_claim_next(at, p->n_claims);
    }
    return -1;
}

/* Whether the rows were stored in an order that may be wrong. */
INLINE bool has_lost(const kv_insert_params *p, uint32_t call, kv_insert_claim loser) {
    const uint32_t t = (uint32_t)loser;
    if (loser >> 32 != call || t >= p->args.n_slots) {
        return false;
    }
    const int64_t slot = mmla_kv_insert_place_get(&p->problem, &p->args, t).slot;
    return slot >= 0 && owner_of(p, call, slot) != t;
}

/* Whether row t is the last of its slot, for the rows of a warp, which follow each other; of a row that
 * is not to be written the slot is -1. Rows without a claim look at all later slots, all of the warp's
 * at once: who chose the slots so that they collide waits milliseconds, not minutes. */
INLINE bool is_last(const kv_insert_params *p, uint32_t call, int64_t t, int64_t slot) {
    const int lane = threadIdx.x % KV_INSERT_WARP;
    const int64_t owner = slot < 0 ? -1 : owner_of(p, call, slot), n = p->args.n_slots;
    const bool is_lost = slot >= 0 && owner < 0;
    bool last = slot >= 0 && (is_lost || owner == t);
    const bool any = __any_sync(ALL, is_lost);
    for (int64_t from = t - lane; any && from < n; from += KV_INSERT_WARP) {
        const uint32_t low = from + lane < n ? (uint32_t)p->args.slots[from + lane] : NO_SLOT;
        for (int i = 0; i < KV_INSERT_WARP; i++) {
            const bool is_near = __shfl_sync(ALL, low, i) == (uint32_t)slot;
            if (is_near && last && is_lost && from + i > t && from + i < n) {
                last = mmla_kv_insert_place_get(&p->problem, &p->args, from + i).slot != slot;
            }
        }
    }
    return last;
}

#endif
