/* prefill_chunk.c - which prefill requests share one gathered workspace. */
#include <megamla/prefill.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"
#include "layer/prefill_route.h"

/* The workspace holds this many times what one longest sequence and one step's tokens need. */
enum { WORKSPACE_SEQUENCES = 4 };

mmla_status mmla_prefill_chunk_next(const mmla_prefill_chunk_desc *desc,
                                    const int32_t *query_lens,
                                    const int32_t *seq_lens,
                                    int64_t n_requests,
                                    int64_t first,
                                    mmla_prefill_chunk *chunk,
                                    mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "desc", desc, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "query_lens", query_lens, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "seq_lens", seq_lens, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "chunk", chunk, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "window", desc->window, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", desc->ratio, 0, 2));
    MMLA_RETURN_IF_FAILED(
        mmla_check_value(err, "max_model_tokens", desc->max_model_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(
        mmla_check_value(err, "max_batch_tokens", desc->max_batch_tokens, 0, INT32_MAX));
    if (first < 0 || first >= n_requests) {
        return mmla_error_set(err, MMLA_E_INDEX, "first", "is %lld, must be 0 .. %lld",
                              (long long)first, (long long)mmla_max_i64(n_requests, 0) - 1);
    }

    const int64_t ratio = desc->ratio;
    const int64_t most_records = ratio > 0 ? (desc->max_model_tokens + ratio - 1) / ratio : 0;
    const int64_t room =
        WORKSPACE_SEQUENCES * (most_records + desc->window + desc->max_batch_tokens);
    int64_t last = first, n_records = 0, n_gathered = 0;
    for (; last < n_requests; last++) {
        const int64_t query = query_lens[last], seq = seq_lens[last];
        MMLA_RETURN_IF_FAILED(
            mmla_prefill_lens_check(err, "query_lens", "seq_lens", last, query, seq));
        const int64_t records = mmla_max_i64(n_records, ratio > 0 ? seq / ratio : 0);
        const int64_t gathered =
            mmla_max_i64(n_gathered, mmla_prefill_window_rows(query, seq, desc->window));
        int64_t rows;
        const bool fits = mmla_mul_i64(last - first + 1, records + gathered, &rows) && rows <= room;
        if (!fits && last > first) {
            break;
        }
        n_records = records;
        n_gathered = gathered;
    }
    *chunk = (mmla_prefill_chunk){first, last, n_records, n_records + n_gathered};
    return MMLA_OK;
}
