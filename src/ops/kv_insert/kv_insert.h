/* kv_insert.h - contract between the plan of kv_insert and its implementations.
 *
 * include/megamla/kv.h has the formula and the shapes. The problem below is the description with
 * defaults filled in and everything checked; an implementation trusts it and the args, but looks at
 * every slot and every position before it forms an address from them.
 */
#ifndef MMLA_OPS_KV_INSERT_H
#define MMLA_OPS_KV_INSERT_H

#include <megamla/kv.h>

#include "base/gpu.h"
#include "base/impl.h"
#include "kv/layout.h"

typedef struct mmla_kv_insert_problem {
    mmla_kv_insert_desc desc; /* row_stride and ratio resolved, norm 0 or 1 */
    mmla_kv_view cache;
    int32_t dims;      /* 512, or 128 for index keys */
    int32_t n_threads; /* of the CPU */
    mmla_gpu gpu;      /* of a context on a CUDA device */
} mmla_kv_insert_problem;

typedef struct mmla_kv_insert_impl {
    mmla_impl base; /* prefers() and prepare() take a mmla_kv_insert_problem */
    size_t (*workspace_bytes)(const mmla_kv_insert_problem *p); /* NULL: none */
    mmla_status (*run)(const mmla_kv_insert_problem *p,
                       const mmla_kv_insert_args *args,
                       void *workspace,
                       void *stream);
} mmla_kv_insert_impl;

#define VARIANT(name, device, features, by_name_only, workspace_bytes, run, prepare) \
    mmla_status run(const mmla_kv_insert_problem *, const mmla_kv_insert_args *, void *, void *);
#include "ops/kv_insert/kv_insert_variants.inc"
#undef VARIANT
size_t mmla_kv_insert_cuda_workspace_bytes(const mmla_kv_insert_problem *p);
mmla_status mmla_kv_insert_cuda_prepare(void *problem, mmla_error *err);

/* The list, in order of preference. */
const mmla_impl *const *mmla_kv_insert_list(size_t *n);

/* Why a row that was to be written is refused. */
typedef enum mmla_kv_insert_fault {
    MMLA_KV_INSERT_NO_FAULT,
    MMLA_KV_INSERT_BAD_SLOT,    /* at or past the capacity */
    MMLA_KV_INSERT_BAD_POSITION /* no line of cos_sin */
} mmla_kv_insert_fault;

/* Where row t goes and where it is rotated. */
typedef struct mmla_kv_insert_place {
    int64_t slot;     /* -1: nothing is written, because the caller said so or for the fault */
    int64_t position; /* line of cos_sin, when slot >= 0 */
    mmla_kv_insert_fault fault;
} mmla_kv_insert_place;

MMLA_INLINE mmla_kv_insert_place mmla_kv_insert_place_get(const mmla_kv_insert_problem *p,
                                                          const mmla_kv_insert_args *args,
                                                          int64_t t) {
    mmla_kv_insert_place place = {-1, 0, MMLA_KV_INSERT_NO_FAULT};
    const int64_t slot = args->slots[t];
    if (slot < 0) {
        return place;
    }
    if (!mmla_kv_slot_is_legal(&p->cache, slot)) {
        place.fault = MMLA_KV_INSERT_BAD_SLOT;
        return place;
    }
    /* The ratio is a power of two: the remainder is its lowest bits, of a negative position too. */
    const int64_t position = args->positions[t];
    const int64_t first = position - (position & (p->desc.ratio - 1)); /* of the group */
    if (position < 0 || first >= p->desc.rope_positions) {
        place.fault = MMLA_KV_INSERT_BAD_POSITION;
        return place;
    }
    place.slot = slot;
    place.position = first;
    return place;
}

/* Counts the refused rows into args->n_faults; MMLA_E_INDEX and a message about the first of them,
 * or MMLA_OK. */
mmla_status mmla_kv_insert_report(const mmla_kv_insert_problem *p, const mmla_kv_insert_args *args);

/* Turns one row into its record; cos_sin is the row's own line of the table. */
typedef void (*mmla_kv_insert_row_fn)(const mmla_kv_insert_problem *p,
                                      const mmla_kv_insert_args *args,
                                      const uint16_t *row,
                                      const float *cos_sin,
                                      uint8_t *data,
                                      uint8_t *scale);

/* Calls fn for every row that is to be written, on several threads, so that of rows with the same
 * slot the last one is stored last; returns what mmla_kv_insert_report says. */
mmla_status mmla_kv_insert_rows(const mmla_kv_insert_problem *p,
                                const mmla_kv_insert_args *args,
                                mmla_kv_insert_row_fn fn);

#endif
