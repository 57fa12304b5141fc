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

/* seq_len is at least 0; query_len is clamped to 0 .. seq_len. */
MMLA_INLINE int64_t mmla_kv_window_rows(int64_t query_len, int64_t seq_len, int64_t window) {
    const int64_t query = mmla_clamp_i64(query_len, 0, seq_len);
    return query + mmla_min_i64(seq_len - query, window - 1);
}

#endif
