/* binding_places.h - the order of the arguments of the calls of attention, for the functions that read
 * them and for the fast way there (binding_fast.c). The Python side has the same order. */
#ifndef MEGAMLA_PYTHON_BINDING_PLACES_H
#define MEGAMLA_PYTHON_BINDING_PLACES_H

enum {
    AT_Q,
    AT_POSITIONS,
    AT_COS_SIN,
    AT_SINK,
    AT_OUT,
    AT_OUT_SCALE,
    AT_LSE,
    AT_MAX_LOGITS,
    AT_N_FAULTS,
    AT_SCALE,
    AT_Q_LAYOUT,
    AT_Q_NORM_EPS,
    AT_OUT_FORM,
    AT_BATCH_INVARIANT,
    AT_IMPLEMENTATION,
    AT_WORKSPACE,
    AT_STREAM,
    AT_SHARED_END,
    /* attend_paged and attend_prefill */
    AT_WINDOW_CACHE = AT_SHARED_END,
    AT_WINDOW_FORMAT,
    AT_WINDOW_PAGE_TOKENS,
    AT_COMPRESSED_CACHE,
    AT_COMPRESSED_FORMAT,
    AT_COMPRESSED_PAGE_TOKENS,
    AT_CACHES_END,
    /* attend_paged */
    AT_WINDOW_LIST = AT_CACHES_END,
    AT_WINDOW_LENS,
    AT_COMPRESSED_LIST,
    AT_COMPRESSED_LENS,
    AT_PAGED_END,
    /* attend_rows */
    AT_KV = AT_SHARED_END,
    AT_LIST,
    AT_LENS,
    AT_ROWS_END,
    /* attend_prefill */
    AT_QUERY_START = AT_CACHES_END,
    AT_SEQ_LENS,
    AT_WINDOW_TABLE,
    AT_COMPRESSED_TABLE,
    AT_TOPK,
    AT_REQUEST,
    AT_HOST_QUERY_LENS,
    AT_HOST_SEQ_LENS,
    AT_WINDOW,
    AT_RATIO,
    AT_MAX_ROWS,
    AT_ROUTE,
    AT_PREFILL_END
};

#endif
