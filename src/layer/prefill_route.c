/* prefill_route.c - how much a call gathers, and what that costs. */
#include "layer/prefill_route.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

static mmla_status check_request(mmla_error *err, int64_t r, int64_t query, int64_t seq) {
    if (seq < 0) {
        return mmla_error_set(err, MMLA_E_INDEX, "host_seq_lens",
                              "[%lld] is %lld, must not be negative", (long long)r, (long long)seq);
    }
    if (query < 0 || query > seq) {
        return mmla_error_set(err, MMLA_E_INDEX, "host_query_lens",
                              "[%lld] is %lld, must be 0 .. %lld, its sequence", (long long)r,
                              (long long)query, (long long)seq);
    }
    return MMLA_OK;
}

mmla_status mmla_prefill_shape_get(const mmla_prefill_desc *desc,
                                   const mmla_prefill_args *args,
                                   mmla_prefill_shape *shape) {
    mmla_error *err = args->error;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "host_query_lens", args->host_query_lens, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "host_seq_lens", args->host_seq_lens, 4));
    int64_t most_window = 0;
    *shape = (mmla_prefill_shape){0};
    for (int64_t r = 0; r < args->n_requests; r++) {
        const int64_t query = args->host_query_lens[r], seq = args->host_seq_lens[r];
        MMLA_RETURN_IF_FAILED(check_request(err, r, query, seq));
        const int64_t records = desc->ratio > 0 ? seq / desc->ratio : 0;
        const int64_t window = query + mmla_min_i64(seq - query, desc->window - 1);
        shape->n_records += records;
        shape->n_window += window;
        shape->n = mmla_max_i64(shape->n, records);
        most_window = mmla_max_i64(most_window, window);
    }
    shape->m = mmla_max_i64(shape->n + most_window, 1);
    return MMLA_OK;
}

bool mmla_prefill_workspace_wins(const mmla_prefill_desc *desc,
                                 const char *implementation,
                                 int64_t n_tokens,
                                 const mmla_prefill_shape *shape) {
    (void)desc;
    (void)implementation;
    return shape->n_records + shape->n_window < 100 * n_tokens;
}
