/* kv_gather.h - contract between the plan of kv_gather and its implementations.
 *
 * include/megamla/kv.h has the formula and the shapes. The problem below is the description with
 * defaults filled in and everything checked; an implementation trusts it and the args.
 */
#ifndef MMLA_OPS_KV_GATHER_H
#define MMLA_OPS_KV_GATHER_H

#include <megamla/kv.h>

#include "base/checked.h"
#include "base/gpu.h"
#include "base/impl.h"
#include "kv/block_table.h"
#include "kv/layout.h"
#include "kv/window_rows.h"

typedef struct mmla_kv_gather_problem {
    mmla_kv_gather_desc desc; /* strides and ratio resolved; rows and offset those of the call */
    mmla_kv_view cache;
    int32_t n_threads; /* of the CPU */
    mmla_gpu gpu;      /* of a context on a CUDA device */
} mmla_kv_gather_problem;

typedef struct mmla_kv_gather_impl {
    mmla_impl base; /* prefers() takes a mmla_kv_gather_problem */
    mmla_status (*run)(const mmla_kv_gather_problem *p,
                       const mmla_kv_gather_args *args,
                       void *stream);
} mmla_kv_gather_impl;

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    mmla_status run(const mmla_kv_gather_problem *, const mmla_kv_gather_args *, void *);
#include "ops/kv_gather/kv_gather_variants.inc"
#undef VARIANT
mmla_status mmla_kv_gather_cuda_prepare(void *problem, mmla_error *err);

/* The list, in order of preference. */
const mmla_impl *const *mmla_kv_gather_list(size_t *n);

/* Rows request r writes: its last `n` records, the first of them at position `first`. `fits` is
 * false when that is more than the workspace holds. Shared by all implementations. */
typedef struct mmla_kv_gather_span {
    int64_t first;
    int64_t n;
    bool fits;
} mmla_kv_gather_span;

MMLA_INLINE mmla_kv_gather_span mmla_kv_gather_span_of(const mmla_kv_gather_problem *p,
                                                       int64_t seq_len,
                                                       int64_t wanted) {
    const int64_t tokens = mmla_max_i64(seq_len, 0);
    const int64_t has = p->desc.ratio == 2 ? tokens / 2 : tokens;
    const int64_t n = mmla_clamp_i64(wanted, 0, has), room = p->desc.rows - p->desc.offset;
    const mmla_kv_gather_span span = {has - n, mmla_min_i64(n, room), n <= room};
    return span;
}

/* How many a request wants, as far as it has them. */
MMLA_INLINE int64_t mmla_kv_gather_wanted(const mmla_kv_gather_problem *p,
                                          const mmla_kv_gather_args *args,
                                          int64_t r) {
    if (args->gather_lens != NULL) {
        return args->gather_lens[r];
    }
    if (p->desc.window > 0) {
        const int64_t query = (int64_t)args->query_start[r + 1] - args->query_start[r];
        return mmla_kv_window_rows(query, p->desc.window);
    }
    return INT64_MAX;
}

MMLA_INLINE mmla_kv_gather_span mmla_kv_gather_span_get(const mmla_kv_gather_problem *p,
                                                        const mmla_kv_gather_args *args,
                                                        int64_t r) {
    return mmla_kv_gather_span_of(p, args->seq_lens[r], mmla_kv_gather_wanted(p, args, r));
}

/* Slot of position `pos` of request r, or -1 when the block table does not lead into the cache. */
MMLA_INLINE int64_t mmla_kv_gather_slot(const mmla_kv_gather_problem *p,
                                        const mmla_kv_gather_args *args,
                                        int64_t r,
                                        int64_t pos) {
    const mmla_kv_table table = {p->cache.page_tokens, p->desc.table_width, p->desc.cache.n_pages};
    return mmla_kv_table_slot(&table, args->block_table + r * p->desc.table_stride, pos);
}

/* Counts the requests that do not fit into args->n_faults; MMLA_E_INDEX and a message about the
 * first of them, or MMLA_OK. */
mmla_status mmla_kv_gather_report(const mmla_kv_gather_problem *p, const mmla_kv_gather_args *args);

/* Turns one record into one row. */
typedef void (*mmla_kv_gather_row_fn)(const mmla_kv_gather_problem *p,
                                      const uint8_t *data,
                                      const uint8_t *scale,
                                      uint16_t *out);

/* Calls fn for every record and writes zeros where there is none, on several threads; returns what
 * mmla_kv_gather_report says. */
mmla_status mmla_kv_gather_rows(const mmla_kv_gather_problem *p,
                                const mmla_kv_gather_args *args,
                                mmla_kv_gather_row_fn fn);

#endif
