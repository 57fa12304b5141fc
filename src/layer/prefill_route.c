/* prefill_route.c - how much a call gathers, and what that costs. */
#include "layer/prefill_route.h"

#include <string.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

mmla_status mmla_prefill_lens_check(mmla_error *err,
                                    const char *query_name,
                                    const char *seq_name,
                                    int64_t r,
                                    int64_t query,
                                    int64_t seq) {
    if (query < 0 || seq < 0) {
        return mmla_error_set(err, MMLA_E_INDEX, query < 0 ? query_name : seq_name,
                              "[%lld] is %lld, must not be negative", (long long)r,
                              (long long)(query < 0 ? query : seq));
    }
    if (query > seq) {
        return mmla_error_set(err, MMLA_E_INDEX, query_name,
                              "[%lld] is %lld, longer than its sequence of %lld", (long long)r,
                              (long long)query, (long long)seq);
    }
    return MMLA_OK;
}

int64_t mmla_prefill_window_rows(int64_t query, int64_t seq, int64_t window) {
    return query + mmla_min_i64(seq - query, window - 1);
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
        MMLA_RETURN_IF_FAILED(
            mmla_prefill_lens_check(err, "host_query_lens", "host_seq_lens", r, query, seq));
        const int64_t records = desc->ratio > 0 ? seq / desc->ratio : 0;
        const int64_t window = mmla_prefill_window_rows(query, seq, desc->window);
        const int64_t keys =
            mmla_min_i64(records, desc->topk_width) + mmla_min_i64(seq, desc->window);
        shape->n_rows += records + window;
        shape->n_keys += (double)query * (double)keys;
        shape->n = mmla_max_i64(shape->n, records);
        most_window = mmla_max_i64(most_window, window);
    }
    shape->m = mmla_max_i64(shape->n + most_window, 1);
    return MMLA_OK;
}

/* What a token of 640 keys costs less from rows that lie in L2, and how much of that is lost where
 * none of them does, in microseconds of a whole H200 (README.md). */
typedef struct token_cost {
    bool is_hopper;
    int32_t heads; /* at most */
    double gain, loss;
} token_cost;

static const token_cost token_costs[] = {
    {true, 16, 0.0225, 0.040},
    {true, 64, 0.0310, 0.020},
    {true, MMLA_HEADS_MAX, 0.0700, 0.0},
    {false, 16, 0.0550, 0.0},
    {false, 64, 0.0700, 0.0},
    {false, MMLA_HEADS_MAX, 0.1400, 0.0}, /* not measured: two groups of 64 */
};

static const double row_cost = 0.0004;   /* a record or a row of the window, gathered */
static const double launch_cost = 8.0;   /* of the steps, however little they gather */
static const double keys_measured = 640; /* of a token */

double mmla_prefill_workspace_gain(const char *implementation,
                                   int32_t n_heads,
                                   int64_t l2_bytes,
                                   const mmla_prefill_shape *shape) {
    enum { ROW_BYTES = MMLA_LATENT_DIM * sizeof(uint16_t) };
    const bool is_hopper =
        strcmp(implementation, "hopper_bf16") == 0 || strcmp(implementation, "wgmma_bf16") == 0;
    const token_cost *cost = token_costs;
    while (cost->is_hopper != is_hopper || cost->heads < n_heads) {
        cost++;
    }
    /* Half of L2 holds rows; the others come from memory whenever they are picked. */
    const double held = 0.5 * (double)l2_bytes / ROW_BYTES, rows = (double)shape->n_rows;
    const double missed = rows > held ? 1.0 - held / rows : 0.0;
    return shape->n_keys / keys_measured * (cost->gain - cost->loss * missed) - row_cost * rows -
           launch_cost;
}
