/* prefill_route.h - which way prefill goes, by a model of the time of both. */
#ifndef MMLA_LAYER_PREFILL_ROUTE_H
#define MMLA_LAYER_PREFILL_ROUTE_H

#include <stdbool.h>

#include <megamla/prefill.h>

/* The workspace of a call. */
typedef struct mmla_prefill_shape {
    int64_t n; /* N: rows of records of every request; window rows come after them */
    int64_t m; /* M: rows of every request, at least 1 */
    int64_t n_records, n_window; /* rows that are gathered, of all requests */
} mmla_prefill_shape;

/* From lengths in host memory, which are checked: MMLA_E_INDEX. */
mmla_status mmla_prefill_shape_get(const mmla_prefill_desc *desc,
                                   const mmla_prefill_args *args,
                                   mmla_prefill_shape *shape);

/* Whether the workspace takes less time than the caches, by an implementation of attend. */
bool mmla_prefill_workspace_wins(const mmla_prefill_desc *desc,
                                 const char *implementation,
                                 int64_t n_tokens,
                                 const mmla_prefill_shape *shape);

#endif
