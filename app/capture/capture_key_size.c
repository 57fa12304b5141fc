/* capture_key_size.c - records dequantised page by page through the public gather, rows as they
 * are. */
#include "app/capture/capture_key_size.h"

#include <math.h>
#include <stdlib.h>

#include <megamla/kv.h>

#include "app/capture/capture_attend.h"
#include "app/capture/capture_op.h"
#include "app/check/check_num.h"
#include "base/checked.h"

enum { D = MMLA_LATENT_DIM };

static double row_largest(const uint16_t *row) {
    double most = 0.0;
    for (int i = 0; i < D; i++) {
        const double x = fabs((double)check_bf16_to_f32(row[i]));
        most = isfinite(x) ? fmax(most, x) : most;
    }
    return most;
}

/* A bit for each of n_slots, set where a list names it. NULL when memory is short. */
static uint8_t *named_slots(const int32_t *list, int64_t n_entries, int64_t n_slots) {
    uint8_t *named = calloc((size_t)(n_slots / 8 + 1), 1);
    for (int64_t i = 0; i < n_entries && named != NULL; i++) {
        if (list[i] >= 0 && list[i] < n_slots) {
            named[list[i] / 8] |= (uint8_t)(1u << (list[i] % 8));
        }
    }
    return named;
}

static bool is_named(const uint8_t *named, int64_t slot) {
    return (named[slot / 8] >> (slot % 8) & 1) != 0;
}

static double rows_largest(const uint16_t *rows, const uint8_t *named, int64_t n_rows) {
    double most = 0.0;
    for (int64_t i = 0; i < n_rows; i++) {
        most = is_named(named, i) ? fmax(most, row_largest(rows + i * D)) : most;
    }
    return most;
}

static double cache_largest(mmla_context *ctx,
                            const mmla_cache_desc *cache,
                            const void *memory,
                            const uint8_t *named) {
    const mmla_kv_gather_desc desc = {
        .cache = *cache, .max_requests = 1, .table_width = 1, .rows = cache->page_tokens};
    uint16_t *rows =
        capture_memory_create((size_t)cache->page_tokens * D * sizeof *rows); /* of one page */
    mmla_kv_gather_plan *plan = NULL;
    double most = 0.0;
    if (rows != NULL && mmla_kv_gather_plan_create(ctx, &desc, &plan, NULL) == MMLA_OK) {
        for (int32_t page = 0; page < cache->n_pages; page++) {
            const mmla_kv_gather_args args = {.n_requests = 1,
                                              .block_table = &page,
                                              .seq_lens = &cache->page_tokens,
                                              .cache = memory,
                                              .out = rows};
            if (mmla_kv_gather_run(plan, &args, NULL, NULL) != MMLA_OK) {
                break;
            }
            for (int32_t i = 0; i < cache->page_tokens; i++) {
                if (is_named(named, (int64_t)page * cache->page_tokens + i)) {
                    most = fmax(most, row_largest(rows + (int64_t)i * D));
                }
            }
        }
    }
    mmla_kv_gather_plan_destroy(plan);
    free(rows);
    return most;
}

/* Of the keys that one list names; `cache` is NULL for plain rows. */
static double list_largest(const capture *c,
                           mmla_context *ctx,
                           int list,
                           int64_t n_slots,
                           const mmla_cache_desc *cache,
                           const void *memory) {
    if (c->data[list] == NULL) {
        return 0.0;
    }
    const safetensors_tensor *t = c->inputs[list];
    uint8_t *named = named_slots(c->data[list], t->shape[0] * t->shape[1], n_slots);
    double most = 0.0;
    if (named != NULL) {
        most = cache != NULL ? cache_largest(ctx, cache, memory, named)
                             : rows_largest(memory, named, n_slots);
    }
    free(named);
    return most;
}

static double largest_of(const capture *c, mmla_context *ctx) {
    const mmla_attend_desc d = capture_attend_desc(c);
    if (d.kind == MMLA_ATTEND_ROWS) {
        return list_largest(c, ctx, CAPTURE_IN_LIST, d.max_rows, NULL, c->data[CAPTURE_IN_KV]);
    }
    /* The plan was created, so pages * page_tokens fit in an int32. */
    return fmax(list_largest(c, ctx, CAPTURE_IN_LIST, d.window.n_pages * d.window.page_tokens,
                             &d.window, c->data[CAPTURE_IN_WINDOW_CACHE]),
                list_largest(c, ctx, CAPTURE_IN_COMPRESSED_LIST,
                             d.compressed.n_pages * d.compressed.page_tokens, &d.compressed,
                             c->data[CAPTURE_IN_COMPRESSED_CACHE]));
}

double capture_key_largest(const capture *c) {
    mmla_context *ctx = NULL; /* the capture lies in host memory, wherever it was replayed */
    if (!capture_is_attend(c) || mmla_context_create(NULL, &ctx, NULL) != MMLA_OK) {
        return 0.0;
    }
    const double largest = largest_of(c, ctx);
    mmla_context_destroy(ctx);
    return largest;
}
