/* lists.h - contract between the plan of the index builders and their implementations.
 *
 * include/megamla/list.h has the formulas and the shapes. The problem below is the description with
 * defaults filled in and everything checked; an implementation trusts it and the pointers of args,
 * but never the contents of the arrays: lengths, positions, requests and pages may be anything.
 */
#ifndef MMLA_OPS_LISTS_H
#define MMLA_OPS_LISTS_H

#include <megamla/list.h>

#include "base/gpu.h"
#include "base/impl.h"
#include "kv/block_table.h"

enum { MMLA_LIST_KINDS = MMLA_LIST_IMAGE_SPANS + 1 };

typedef struct mmla_lists_problem {
    mmla_list_desc desc; /* strides resolved */
    mmla_kv_table table; /* of the kinds with a block table; RING_SLOTS: rows and rings */
    int32_t n_threads;   /* of the CPU */
    mmla_gpu gpu;        /* of a context on a CUDA device */
} mmla_lists_problem;

typedef struct mmla_lists_impl {
    mmla_impl base; /* prefers() takes a mmla_lists_problem */
    mmla_status (*run)(const mmla_lists_problem *p, const mmla_list_args *args, void *stream);
} mmla_lists_impl;

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    mmla_status run(const mmla_lists_problem *, const mmla_list_args *, void *);
#include "ops/lists/lists_variants.inc"
#undef VARIANT

/* The list of implementations, in order of preference. */
const mmla_impl *const *mmla_lists_list(size_t *n);

/* One valid token: its request is in 0 .. R-1 and its position is not negative. seq_len and
 * query_len are 0 for the kinds that take `request` instead of query_start. */
typedef struct mmla_lists_token {
    int64_t idx; /* t */
    int64_t request;
    int64_t pos; /* 0 for COMPRESSED, which has none */
    int64_t seq_len;
    int64_t query_len;
} mmla_lists_token;

/* One builder a kind of list: writes the valid entries of one token's row from its start and
 * returns their number, at most width. The caller fills the rest. */
typedef int64_t (*mmla_lists_row_fn)(const mmla_lists_problem *p,
                                     const mmla_list_args *args,
                                     const mmla_lists_token *token,
                                     int32_t *row);

int64_t mmla_lists_window_row(const mmla_lists_problem *p,
                              const mmla_list_args *args,
                              const mmla_lists_token *token,
                              int32_t *row);
int64_t mmla_lists_draft_row(const mmla_lists_problem *p,
                             const mmla_list_args *args,
                             const mmla_lists_token *token,
                             int32_t *row);
int64_t mmla_lists_compressed_row(const mmla_lists_problem *p,
                                  const mmla_list_args *args,
                                  const mmla_lists_token *token,
                                  int32_t *row);
int64_t mmla_lists_combined_row(const mmla_lists_problem *p,
                                const mmla_list_args *args,
                                const mmla_lists_token *token,
                                int32_t *row);

/* One builder a kind of slot mapping: the token's slot, or -1. */
typedef int64_t (*mmla_lists_slot_fn)(const mmla_lists_problem *p,
                                      const mmla_list_args *args,
                                      const mmla_lists_token *token);

int64_t mmla_lists_compressed_slot(const mmla_lists_problem *p,
                                   const mmla_list_args *args,
                                   const mmla_lists_token *token);
int64_t mmla_lists_ring_slot(const mmla_lists_problem *p,
                             const mmla_list_args *args,
                             const mmla_lists_token *token);

/* How many tokens of its image stand before and after a token, as far as they count. */
typedef struct mmla_lists_reach {
    int32_t left;
    int32_t right;
} mmla_lists_reach;

mmla_lists_reach mmla_lists_span_reach(const mmla_lists_problem *p,
                                       const mmla_list_args *args,
                                       const mmla_lists_token *token);

#endif
