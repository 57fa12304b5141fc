/* prefill_route.h - what prefill gathers, and which way it goes, by a model of the time of both. */
#ifndef MMLA_LAYER_PREFILL_ROUTE_H
#define MMLA_LAYER_PREFILL_ROUTE_H

#include <stdbool.h>

#include <megamla/prefill.h>

/* Lengths of request r, from arrays of these names: none negative, no query longer than its
 * sequence, else MMLA_E_INDEX. */
mmla_status mmla_prefill_lens_check(mmla_error *err,
                                    const char *query_name,
                                    const char *seq_name,
                                    int64_t r,
                                    int64_t query,
                                    int64_t seq);

/* Rows of the window that a request's queries see. */
int64_t mmla_prefill_window_rows(int64_t query, int64_t seq, int64_t window);

/* The workspace of a call, and its keys. */
typedef struct mmla_prefill_shape {
    int64_t n;      /* N: rows of records of every request; window rows come after them */
    int64_t m;      /* M: rows of every request, at least 1 */
    int64_t n_rows; /* that are gathered, of all requests */
    double n_keys;  /* of all tokens, as many as the last of each request has */
} mmla_prefill_shape;

/* From lengths in host memory, which are checked: MMLA_E_NULL, MMLA_E_INDEX. */
mmla_status mmla_prefill_shape_get(const mmla_prefill_desc *desc,
                                   const mmla_prefill_args *args,
                                   mmla_prefill_shape *shape);

/* Microseconds that the workspace saves against the caches on an H200, less than 0 where it costs
 * some, by the named implementation of attend on a GPU with an L2 cache of l2_bytes. */
double mmla_prefill_workspace_gain(const char *implementation,
                                   int32_t n_heads,
                                   int64_t l2_bytes,
                                   const mmla_prefill_shape *shape);

#endif
