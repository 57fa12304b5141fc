/* lists.h - contract between the plan of the index builders and their implementations.
 *
 * include/megamla/list.h has the formulas and the shapes. The problem below is the description with
 * defaults filled in and everything checked; an implementation trusts it and the pointers of args,
 * but never the contents of the arrays: lengths, positions, requests and pages may be anything.
 * lists_rule.h has the rules of every kind, for both backends.
 */
#ifndef MMLA_OPS_LISTS_H
#define MMLA_OPS_LISTS_H

#include <megamla/list.h>

#include "base/gpu.h"
#include "base/impl.h"
#include "kv/block_table.h"
#include "kv/window_rows.h"

enum { MMLA_LIST_KINDS = MMLA_LIST_IMAGE_SPANS + 1 };

typedef struct mmla_lists_problem {
    mmla_list_desc desc; /* strides resolved; request_rows, window_offset those of the call */
    mmla_kv_table table; /* of the kinds with a block table; RING_SLOTS: rows and rings */
    int32_t n_threads;   /* of the CPU */
    mmla_gpu gpu;        /* of a context on a CUDA device */
} mmla_lists_problem;

typedef struct mmla_lists_impl {
    mmla_impl base; /* prefers() and prepare() take a mmla_lists_problem */
    mmla_status (*run)(const mmla_lists_problem *p, const mmla_list_args *args, void *stream);
} mmla_lists_impl;

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    mmla_status run(const mmla_lists_problem *, const mmla_list_args *, void *);
#include "ops/lists/lists_variants.inc"
#undef VARIANT

/* Loads the kernel of a problem's kind; with CUDA only. */
mmla_status mmla_lists_cuda_prepare(void *problem, mmla_error *err);

/* The list of implementations, in order of preference. */
const mmla_impl *const *mmla_lists_list(size_t *n);

#endif
