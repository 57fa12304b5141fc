/* check_list_define.c - one position at a time, nothing clever: a second opinion. */
#include "app/check/check_list_define.h"

#include <stdbool.h>

/* A token and what its formula speaks of; `valid` false for padding of any kind. */
typedef struct token {
    bool valid;
    int64_t q, pos, seq_len, query_len;
} token;

static token token_of(const mmla_list_desc *d, const mmla_list_args *a, int64_t t) {
    token k = {.q = -1};
    const bool by_query = d->kind == MMLA_LIST_WINDOW || d->kind == MMLA_LIST_DRAFT ||
                          d->kind == MMLA_LIST_COMBINED || d->kind == MMLA_LIST_IMAGE_SPANS;
    if (by_query) {
        for (int64_t q = 0; q < a->n_requests; q++) {
            if (t >= a->query_start[q] && t < a->query_start[q + 1]) {
                k.q = q;
                k.seq_len = a->seq_lens[q];
                k.query_len = a->query_start[q + 1] - a->query_start[q];
                k.pos = k.seq_len - k.query_len + (t - a->query_start[q]);
            }
        }
    } else {
        k.q = a->request[t];
        k.pos = d->kind == MMLA_LIST_COMPRESSED ? 0 : a->positions[t];
    }
    const bool has_slot = d->kind == MMLA_LIST_COMPRESSED_SLOTS || d->kind == MMLA_LIST_RING_SLOTS;
    const bool has_mark = !has_slot && d->kind != MMLA_LIST_IMAGE_SPANS;
    const bool marked = has_mark && a->valid != NULL && a->valid[t] == 0;
    k.valid =
        k.q >= 0 && k.q < a->n_requests && k.pos >= 0 && !marked && !(has_slot && a->slots[t] < 0);
    return k;
}

/* Slot of a position of request q, -1 when the block table leads nowhere. */
static int64_t slot(const mmla_list_desc *d, const mmla_list_args *a, int64_t q, int64_t pos) {
    if (pos < 0 || pos / d->page_tokens >= d->table_width) {
        return -1;
    }
    const int64_t page = a->block_table[q * d->table_stride + pos / d->page_tokens];
    return page < 0 || page >= d->n_pages ? -1 : page * d->page_tokens + pos % d->page_tokens;
}

static int64_t append(int32_t *row, int64_t n, int64_t entry) {
    if (entry >= 0) {
        row[n] = (int32_t)entry;
    }
    return n + (entry >= 0);
}

/* The first position whose row was gathered: of the last gather_len, or the first that the request's
 * first query sees. */
static int64_t first_gathered(const mmla_list_desc *d, const mmla_list_args *a, const token *k) {
    if (a->gather_lens != NULL) {
        return k->seq_len - a->gather_lens[k->q];
    }
    const int64_t query = k->seq_len - k->query_len;
    return query >= d->window ? query - d->window + 1 : 0;
}

static int64_t define_combined(
    const mmla_list_desc *d, const mmla_list_args *a, int64_t t, const token *k, int32_t *row) {
    const bool own = a->request_rows > 0;
    const int64_t request_rows = own ? a->request_rows : d->request_rows;
    const int64_t window_offset = own ? a->window_offset : d->window_offset;
    const int64_t base = k->q * request_rows, before = d->window - 1;
    int64_t n = 0;
    for (int64_t i = 0; d->ratio > 0 && i < d->topk && i < (k->pos + 1) / d->ratio; i++) {
        const int64_t record = a->topk[t * d->topk_stride + i];
        const bool is_seen = record >= 0 && record < (k->pos + 1) / d->ratio;
        n = append(row, n, is_seen && record < window_offset ? base + record : -1);
    }
    const int64_t left = d->image_tokens > 0 ? a->left[t] : 0;
    const int64_t right = d->image_tokens > 0 ? a->right[t] : 0;
    const int64_t reach = before + (left > before ? left - before : 0);
    const int64_t start = k->pos > reach ? k->pos - reach : 0;
    const int64_t end = k->pos + right < k->seq_len - 1 ? k->pos + right : k->seq_len - 1;
    const int64_t first = first_gathered(d, a, k);
    for (int64_t p = start; p <= end; p++) {
        const int64_t row_in_request = window_offset + p - first;
        n = append(row, n,
                   p >= first && row_in_request < request_rows ? base + row_in_request : -1);
    }
    return n;
}

static int64_t define_row(
    const mmla_list_desc *d, const mmla_list_args *a, int64_t t, const token *k, int32_t *row) {
    int64_t n = 0;
    if (d->kind == MMLA_LIST_WINDOW) {
        for (int64_t p = k->pos - d->window + 1; p <= k->pos; p++) {
            n = append(row, n, slot(d, a, k->q, p));
        }
    } else if (d->kind == MMLA_LIST_DRAFT) {
        const int64_t prefix = k->seq_len - k->query_len;
        const int64_t start = prefix > d->window ? prefix - d->window : 0;
        for (int64_t i = 0; i < k->seq_len - start && i < d->width; i++) {
            n = append(row, n, slot(d, a, k->q, start + i));
        }
    } else if (d->kind == MMLA_LIST_COMPRESSED) {
        for (int64_t i = 0; i < d->topk_width; i++) {
            n = append(row, n, slot(d, a, k->q, a->topk[t * d->topk_stride + i]));
        }
    } else {
        n = define_combined(d, a, t, k, row);
    }
    return n;
}

static int64_t define_slot(const mmla_list_desc *d, const mmla_list_args *a, const token *k) {
    if (d->kind == MMLA_LIST_COMPRESSED_SLOTS) {
        return k->pos % d->ratio == d->ratio - 1 ? slot(d, a, k->q, k->pos / d->ratio) : -1;
    }
    const int64_t ring = a->ring_blocks[k->q];
    return ring > 0 && ring < d->n_pages ? ring * d->page_tokens + k->pos % d->page_tokens : -1;
}

static void
define_reach(const mmla_list_desc *d, const mmla_list_args *a, int64_t t, const token *k) {
    a->out_left[t] = a->out_right[t] = 0;
    if (!k->valid || d->image_tokens == 0) {
        return;
    }
    for (int64_t i = a->span_start[k->q + 1] - 1; i >= a->span_start[k->q]; i--) {
        const int64_t first = a->spans[2 * i], last = a->spans[2 * i + 1], most = d->image_tokens;
        if (k->pos >= first && k->pos <= last) { /* going down: the first span decides */
            a->out_left[t] = (int32_t)(k->pos - first < most - 1 ? k->pos - first : most - 1);
            a->out_right[t] = (int32_t)(last - k->pos < most ? last - k->pos : most);
        }
    }
}

void check_list_define(const mmla_list_desc *d, const mmla_list_args *a) {
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const token k = token_of(d, a, t);
        if (d->kind == MMLA_LIST_IMAGE_SPANS) {
            define_reach(d, a, t, &k);
        } else if (d->kind == MMLA_LIST_COMPRESSED_SLOTS || d->kind == MMLA_LIST_RING_SLOTS) {
            a->out_slots[t] = k.valid ? define_slot(d, a, &k) : -1;
        } else {
            int32_t *row = a->list + t * d->list_stride;
            const int64_t n = k.valid ? define_row(d, a, t, &k, row) : 0;
            for (int64_t i = n; i < d->width; i++) {
                row[i] = -1;
            }
            a->lens[t] = (int32_t)n;
        }
    }
}
