#include "app/cli/kv_plan.h"

#include "base/checked.h"

enum {
    WINDOW_LAYERS = 43,
    WINDOW_TOKENS = 128,
    RATIO_2_CACHES = 3, /* each with a ring */
    RATIO_1_CACHES = 1,
    /* A ring row is one position's 512 values and 512 gates in fp32. */
    RING_ROW_BYTES = 2 * MMLA_LATENT_DIM * 4,
    RING_ROWS_LEAST = 8
};

bool kv_pair_is_legal(mmla_kv_format window, mmla_kv_format compressed) {
    return window == compressed || (window == MMLA_KV_V41_FP8 && compressed == MMLA_KV_V41_FP4);
}

/* Pages that hold n records. */
static int64_t pages_of(int64_t n, int64_t page_tokens) {
    return (n + page_tokens - 1) / page_tokens;
}

/* The most pages the live part of the window touches while the request grows to its context: once
 * the window slides, it starts anywhere in a page. */
static int64_t window_pages(int64_t context, int64_t page_tokens) {
    return context <= WINDOW_TOKENS ? pages_of(context, page_tokens)
                                    : mmla_min_i64(pages_of(context, page_tokens),
                                                   pages_of(WINDOW_TOKENS - 1, page_tokens) + 1);
}

/* Whole pages of all four compressed caches (or their index keys) of one request. */
static int64_t compressed_bytes(mmla_kv_format format, const kv_setting *s) {
    const int64_t half = s->context_tokens / 2;
    const int32_t half_page = (int32_t)(s->block_tokens / 2), page = (int32_t)s->block_tokens;
    return RATIO_2_CACHES * pages_of(half, half_page) * mmla_kv_page_bytes(format, half_page) +
           RATIO_1_CACHES * pages_of(s->context_tokens, page) * mmla_kv_page_bytes(format, page);
}

/* Rows of a ring: a power of two that holds the drafted tokens, the accepted one and the one before
 * the step. */
static int64_t ring_rows(int64_t draft_tokens) {
    int64_t rows = RING_ROWS_LEAST;
    while (rows < draft_tokens + 2) {
        rows *= 2;
    }
    return rows;
}

kv_cost kv_cost_count(const kv_setting *s) {
    const double records_per_token = RATIO_2_CACHES / 2.0 + RATIO_1_CACHES;
    const int32_t window_page = (int32_t)s->window_page_tokens;
    kv_cost cost = {
        .per_token = records_per_token *
                     (double)(mmla_kv_record_bytes(s->compressed) + mmla_kv_record_bytes(s->index)),
        .window = WINDOW_LAYERS * window_pages(s->context_tokens, window_page) *
                  mmla_kv_page_bytes(s->window, window_page),
        .window_live = WINDOW_LAYERS * mmla_min_i64(s->context_tokens, WINDOW_TOKENS) *
                       mmla_kv_record_bytes(s->window),
        .compressed = compressed_bytes(s->compressed, s),
        .index = compressed_bytes(s->index, s),
        .rings = RATIO_2_CACHES * ring_rows(s->draft_tokens) * RING_ROW_BYTES,
    };
    cost.request = cost.window + cost.compressed + cost.index + cost.rings;
    return cost;
}
