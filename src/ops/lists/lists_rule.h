/* lists_rule.h - what every list holds, entry by entry: the rules that CPU and GPU share.
 *
 * A token finds its request by query_start or by `request`. Its row then is
 *
 *     candidates 0 .. n-1    each an entry or -1 (left out), closed up in their order
 *     a run                  consecutive workspace rows, of COMBINED only
 *     -1                     to the end of the row
 *
 * Each function is the whole rule of its part and checks what it reads before it uses it. How rows
 * are written is for the backends: lists_portable.c walks, lists_cuda.cu votes. `kind` is a
 * parameter and not taken from the problem so that a kernel made for one kind has no others inside.
 */
#ifndef MMLA_OPS_LISTS_RULE_H
#define MMLA_OPS_LISTS_RULE_H

#include <stdbool.h>

#include "base/checked.h"
#include "ops/lists/lists.h"

/* --- starts ----------------------------------------------------------------------------------- */

/* Whether starts[i] may stand: the first is 0, none lies below the one before it or above most. */
MMLA_INLINE bool mmla_lists_start_is_legal(const int32_t *starts, int64_t i, int64_t most) {
    return i == 0 ? starts[0] == 0 : starts[i] >= starts[i - 1] && starts[i] <= most;
}

/* Rows of spans that may be read, as far as the caller has said. */
MMLA_INLINE int64_t mmla_lists_spans_most(const mmla_list_args *args) {
    if (args->spans == NULL) {
        return 0;
    }
    return args->n_spans > 0 ? args->n_spans : INT32_MAX;
}

/* --- the request of a token ------------------------------------------------------------------- */

MMLA_INLINE bool mmla_lists_kind_has_query(mmla_list_kind kind) {
    return kind == MMLA_LIST_WINDOW || kind == MMLA_LIST_DRAFT || kind == MMLA_LIST_COMBINED ||
           kind == MMLA_LIST_IMAGE_SPANS;
}

MMLA_INLINE bool mmla_lists_kind_has_slot(mmla_list_kind kind) {
    return kind == MMLA_LIST_COMPRESSED_SLOTS || kind == MMLA_LIST_RING_SLOTS;
}

/* One valid token: its request is in 0 .. R-1 and its position is not negative. seq_len and
 * query_len are 0 for the kinds that take `request` instead of query_start. */
typedef struct mmla_lists_token {
    int64_t idx; /* t */
    int64_t request;
    int64_t pos; /* 0 for COMPRESSED, which has none */
    int64_t seq_len;
    int64_t query_len;
} mmla_lists_token;

/* A search for the request whose query holds token t, by several probes at a time: one a lane of a
 * warp. The request is in low .. high; high is R at first, and R is the answer for padding. Empty
 * queries hold nothing and are passed over.
 *
 * The search shrinks whatever query_start holds, so it ends on garbage too. There its answer means
 * nothing until mmla_lists_token_of_query has looked at it. */
typedef struct mmla_lists_search {
    int64_t low;
    int64_t high;
} mmla_lists_search;

enum { MMLA_LISTS_PROBES = 32 };

/* Requests from one probe to the next. */
MMLA_INLINE int64_t mmla_lists_search_step(mmla_lists_search s) {
    return (s.high - s.low + MMLA_LISTS_PROBES - 1) / MMLA_LISTS_PROBES;
}

/* Whether the request of probe 0 .. PROBES-1 ends at or before t. */
MMLA_INLINE bool
mmla_lists_search_probe(const mmla_list_args *args, mmla_lists_search s, int32_t probe, int64_t t) {
    const int64_t request = s.low + probe * mmla_lists_search_step(s);
    return request < s.high && args->query_start[request + 1] <= t;
}

/* What is left when the first n_before probes said yes and the next one did not. */
MMLA_INLINE mmla_lists_search mmla_lists_search_narrow(mmla_lists_search s, int32_t n_before) {
    const int64_t step = mmla_lists_search_step(s);
    mmla_lists_search rest = {s.low, s.low};
    if (n_before > 0) {
        rest.low = s.low + (n_before - 1) * step + 1;
        rest.high = mmla_min_i64(s.low + n_before * step, s.high);
    }
    return rest;
}

/* Fills token for token t of request q; false when q has no legal range 0 <= start <= t < end <= T,
 * and when the position is negative. */
MMLA_INLINE bool mmla_lists_token_of_query(const mmla_list_args *args,
                                           int64_t q,
                                           int64_t t,
                                           mmla_lists_token *token) {
    if (q < 0 || q >= args->n_requests) {
        return false;
    }
    const int64_t start = args->query_start[q], end = args->query_start[q + 1];
    if (start < 0 || start > t || t >= end || end > args->n_tokens) {
        return false;
    }
    token->idx = t;
    token->request = q;
    token->seq_len = args->seq_lens[q];
    token->query_len = end - start;
    token->pos = token->seq_len - token->query_len + (t - start);
    return token->pos >= 0;
}

/* Likewise for the kinds with `request`; false for padding. */
MMLA_INLINE bool mmla_lists_token_of_request(mmla_list_kind kind,
                                             const mmla_list_args *args,
                                             int64_t t,
                                             mmla_lists_token *token) {
    token->idx = t;
    token->request = args->request[t];
    token->pos = 0;
    token->seq_len = 0;
    token->query_len = 0;
    if (token->request < 0 || token->request >= args->n_requests) {
        return false;
    }
    if (mmla_lists_kind_has_slot(kind)) {
        token->pos = args->positions[t];
        return token->pos >= 0 && args->slots[t] >= 0;
    }
    return true;
}

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct mmla_lists_row {
    int64_t n;            /* candidates, at most width */
    int64_t first;        /* WINDOW, DRAFT: position of candidate 0, the others follow */
    const int32_t *picks; /* COMPRESSED, COMBINED: [n] compressed positions; NULL for none */
    const int32_t *pages; /* all but COMBINED: the request's row of the block table */
    int64_t base;         /* COMBINED: first workspace row of the request */
    uint32_t n_records;   /* COMBINED: records that the token sees and the workspace holds */
} mmla_lists_row;

/* WINDOW and DRAFT are runs of positions: the last W up to the token's own; the W before the draft
 * block and all of the block. A read of picks stops where a token sees no more records. */
MMLA_INLINE mmla_lists_row mmla_lists_row_get(mmla_list_kind kind,
                                              const mmla_lists_problem *p,
                                              const mmla_list_args *args,
                                              const mmla_lists_token *token) {
    const mmla_list_desc *d = &p->desc;
    mmla_lists_row row = {0, 0, NULL, NULL, 0, 0};
    if (kind == MMLA_LIST_WINDOW) {
        row.first = mmla_max_i64(token->pos - (d->window - 1), 0);
        row.n = token->pos - row.first + 1;
    } else if (kind == MMLA_LIST_DRAFT) {
        const int64_t prefix = token->seq_len - token->query_len;
        row.first = mmla_max_i64(prefix - d->window, 0);
        row.n = mmla_min_i64(token->seq_len - row.first, d->width);
    } else if (kind == MMLA_LIST_COMPRESSED) {
        row.n = d->topk_width;
    } else if (d->ratio > 0) {
        const int64_t visible = d->ratio == 2 ? (token->pos + 1) / 2 : token->pos + 1;
        row.n = mmla_min_i64(visible, d->topk);
        row.n_records = (uint32_t)mmla_min_i64(visible, d->window_offset);
    }
    if (kind == MMLA_LIST_COMBINED) {
        row.base = token->request * d->request_rows;
    } else {
        row.pages = args->block_table + token->request * d->table_stride;
    }
    if ((kind == MMLA_LIST_COMPRESSED || kind == MMLA_LIST_COMBINED) && row.n > 0) {
        row.picks = args->topk + token->idx * d->topk_stride;
    }
    return row;
}

/* Candidate i, 0 .. n-1, before its entry is known: a position, or a compressed record's. */
MMLA_INLINE int32_t mmla_lists_candidate(mmla_list_kind kind,
                                         const mmla_lists_row *row,
                                         int64_t i) {
    return kind == MMLA_LIST_WINDOW || kind == MMLA_LIST_DRAFT ? (int32_t)(row->first + i)
                                                               : row->picks[i];
}

/* The entry of a candidate, or -1. Entries fit int32: the plan has seen to that. */
MMLA_INLINE int32_t mmla_lists_entry(mmla_list_kind kind,
                                     const mmla_lists_problem *p,
                                     const mmla_lists_row *row,
                                     int32_t candidate) {
    if (kind == MMLA_LIST_COMBINED) {
        /* Rows of records that the request does not have hold another step's numbers. */
        return (uint32_t)candidate < row->n_records ? (int32_t)(row->base + candidate) : -1;
    }
    return mmla_kv_table_slot32(&p->table, row->pages, candidate);
}

/* Entries first, first + 1, .. of n. */
typedef struct mmla_lists_run {
    int64_t first;
    int64_t n;
} mmla_lists_run;

/* COMBINED: the window of a token in the workspace, behind its n_before records. Rows q * M .. of the
 * workspace belong to request q of the chunk:
 *
 *     0 .. N-1                          compressed records, by position
 *     N .. N + min(gather_len, M-N)-1   window rows of positions seq_len - gather_len ..
 *
 * Positions that were not gathered are left out: their rows hold another step's numbers. left and
 * right come from the caller, and together they may ask for more than the row holds. */
MMLA_INLINE mmla_lists_run mmla_lists_window_run(const mmla_lists_problem *p,
                                                 const mmla_list_args *args,
                                                 const mmla_lists_token *token,
                                                 int64_t n_before) {
    const mmla_list_desc *d = &p->desc;
    const int64_t back = d->window - 1, image = d->image_tokens;
    int64_t left = 0, right = 0;
    if (image > 0) {
        left = mmla_clamp_i64(args->left[token->idx], 0, image - 1);
        right = mmla_clamp_i64(args->right[token->idx], 0, image);
    }
    /* Gathered are positions first .. seq_len - 1, and `held` of them are in the workspace. */
    int64_t gathered;
    if (args->gather_lens != NULL) {
        gathered = args->gather_lens[token->request];
    } else { /* token->query_len would have to stay in a register through the whole row */
        const int32_t *start = args->query_start + token->request;
        gathered = mmla_kv_window_rows((int64_t)start[1] - start[0], d->window);
    }
    gathered = mmla_clamp_i64(gathered, 0, token->seq_len);
    const int64_t first = token->seq_len - gathered;
    const int64_t held = mmla_min_i64(gathered, d->request_rows - d->window_offset);
    const int64_t start = mmla_max_i64(token->pos - mmla_max_i64(back, left), first);
    const int64_t end = mmla_min_i64(token->pos + right + 1, first + held);
    mmla_lists_run run;
    run.first = token->request * d->request_rows + d->window_offset + (start - first);
    run.n = mmla_clamp_i64(end - start, 0, d->width - n_before);
    return run;
}

/* --- slots ------------------------------------------------------------------------------------ */

/* A record belongs to the last token of its group. The test is on the remainder and not on pos + 1,
 * which overflows at the largest position. Ring 0 is the null page that requests without a ring
 * point at; nothing is ever stored there. */
MMLA_INLINE int64_t mmla_lists_slot(mmla_list_kind kind,
                                    const mmla_lists_problem *p,
                                    const mmla_list_args *args,
                                    const mmla_lists_token *token) {
    if (kind == MMLA_LIST_RING_SLOTS) {
        const int64_t ring = args->ring_blocks[token->request];
        const int64_t rows = p->table.page_tokens; /* a power of two */
        return ring > 0 && ring < p->table.n_pages ? ring * rows + (token->pos & (rows - 1)) : -1;
    }
    const int64_t ratio = p->desc.ratio;
    if ((token->pos & (ratio - 1)) != ratio - 1) { /* ratio is 1 or 2 */
        return -1;
    }
    const int32_t *pages = args->block_table + token->request * p->desc.table_stride;
    return mmla_kv_table_slot(&p->table, pages, ratio == 2 ? token->pos / 2 : token->pos);
}

/* --- images ----------------------------------------------------------------------------------- */

/* How many tokens of its image stand before and after a token, as far as they count. */
typedef struct mmla_lists_reach {
    int32_t left;
    int32_t right;
} mmla_lists_reach;

/* The spans first .. stop-1 of a request; none when they are not legal or not asked for. */
typedef struct mmla_lists_spans {
    int64_t first;
    int64_t stop;
} mmla_lists_spans;

MMLA_INLINE mmla_lists_spans mmla_lists_spans_get(const mmla_lists_problem *p,
                                                  const mmla_list_args *args,
                                                  int64_t request) {
    mmla_lists_spans spans = {0, 0};
    const int64_t first = args->span_start[request], stop = args->span_start[request + 1];
    if (p->desc.image_tokens > 0 && first >= 0 && stop <= mmla_lists_spans_most(args)) {
        spans.first = first;
        spans.stop = stop;
    }
    return spans;
}

MMLA_INLINE bool mmla_lists_span_holds(const mmla_list_args *args, int64_t span, int64_t pos) {
    return args->spans[2 * span] <= pos && pos <= args->spans[2 * span + 1];
}

/* Of a token in a span, the first of its request that holds it. */
MMLA_INLINE mmla_lists_reach mmla_lists_reach_get(const mmla_lists_problem *p,
                                                  const mmla_list_args *args,
                                                  int64_t span,
                                                  int64_t pos) {
    const int64_t most = p->desc.image_tokens;
    mmla_lists_reach reach;
    reach.left = (int32_t)mmla_min_i64(pos - args->spans[2 * span], most - 1);
    reach.right = (int32_t)mmla_min_i64(args->spans[2 * span + 1] - pos, most);
    return reach;
}

#endif
