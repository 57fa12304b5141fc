/* window_rows.h - the rows of a sliding window that the queries of one call can see.
 *
 * Of a request with seq_len tokens, the last query_len of which are queries, the first query sees the
 * window - 1 tokens before it:
 *
 *          0 .. seq_len - 1      | - - - - - - [ window - 1 ][ query_len ]|
 *                                              <------- the result ------->
 */
#ifndef MMLA_KV_WINDOW_ROWS_H
#define MMLA_KV_WINDOW_ROWS_H

#include "base/checked.h"

/* Of a sequence that is long enough; a shorter one has as many as it has tokens. A negative query_len
 * is 0, window at least 1. */
MMLA_INLINE int64_t mmla_kv_window_rows(int64_t query_len, int64_t window) {
    return mmla_max_i64(query_len, 0) + window - 1;
}

#endif
