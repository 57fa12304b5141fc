/* lists_portable.c - all seven kinds on the CPU: find each token's request, write what the rules of
 * lists_rule.h call valid, fill the rest.
 *
 * The arithmetic is on integers, so this is the definition as well as the fast version; a token
 * costs what its row costs to write.
 */
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/lists/lists_rule.h"

enum { UNIT_TOKENS = 256 };

struct job {
    const mmla_lists_problem *p;
    const mmla_list_args *args;
};

/* --- rows ------------------------------------------------------------------------------------- */

/* WINDOW and DRAFT: the candidates are consecutive positions, so the block table is read once a page
 * and not once a key. */
static int64_t write_slots(const mmla_lists_problem *p, const mmla_lists_row *row, int32_t *list) {
    const int64_t page_tokens = p->table.page_tokens, last = row->first + row->n - 1;
    int64_t n = 0;
    for (int64_t pos = row->first; pos <= last;) {
        const int64_t place = pos / page_tokens;
        if (place >= p->table.width) {
            break; /* and so is every later position */
        }
        const int64_t page_first = place * page_tokens;
        const int64_t stop = mmla_min_i64(page_first + page_tokens - 1, last);
        const int64_t slot = mmla_kv_table_page_slot(&p->table, row->pages, place);
        if (slot >= 0) {
            for (int64_t k = pos; k <= stop; k++) {
                list[n++] = (int32_t)(slot + (k - page_first));
            }
        }
        pos = stop + 1;
    }
    return n;
}

static int64_t
write_compressed(const mmla_lists_problem *p, const mmla_lists_row *row, int32_t *list) {
    const int32_t *picks = row->picks;
    int64_t n = 0;
    for (int64_t i = 0; i < row->n; i++) {
        const int32_t entry = mmla_lists_entry(MMLA_LIST_COMPRESSED, p, row, picks[i]);
        if (entry >= 0) {
            list[n++] = entry;
        }
    }
    return n;
}

static int64_t write_combined(const struct job *job,
                              const mmla_lists_token *token,
                              const mmla_lists_row *row,
                              int32_t *list) {
    const int32_t *picks = row->picks;
    int64_t n = 0;
    for (int64_t i = 0; i < row->n; i++) {
        const int32_t entry = mmla_lists_entry(MMLA_LIST_COMBINED, job->p, row, picks[i]);
        if (entry >= 0) {
            list[n++] = entry;
        }
    }
    const mmla_lists_run run = mmla_lists_window_run(job->p, job->args, token, n);
    for (int64_t i = 0; i < run.n; i++) {
        list[n + i] = (int32_t)(run.first + i);
    }
    return n + run.n;
}

/* The valid entries of a row, from its start; their number. */
static int64_t write_entries(const struct job *job, const mmla_lists_token *token, int32_t *list) {
    const mmla_lists_problem *p = job->p;
    const mmla_list_kind kind = p->desc.kind;
    const mmla_lists_row row = mmla_lists_row_get(kind, p, job->args, token);
    if (kind == MMLA_LIST_COMPRESSED) {
        return write_compressed(p, &row, list);
    }
    return kind == MMLA_LIST_COMBINED ? write_combined(job, token, &row, list)
                                      : write_slots(p, &row, list);
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* A request may have many spans and they need not be sorted, so they are searched in order. */
static mmla_lists_reach reach_of(const struct job *job, const mmla_lists_token *token) {
    const mmla_lists_spans spans = mmla_lists_spans_get(job->p, job->args, token->request);
    for (int64_t i = spans.first; i < spans.stop; i++) {
        if (mmla_lists_span_holds(job->args, i, token->pos)) {
            return mmla_lists_reach_get(job->p, job->args, i, token->pos);
        }
    }
    return (mmla_lists_reach){0, 0};
}

/* Writes everything token t owns; token is NULL when t is not valid. That every entry of every row
 * is written on every call is seen to here and nowhere else. */
static void write_token(const struct job *job, int64_t t, const mmla_lists_token *token) {
    const mmla_list_desc *d = &job->p->desc;
    const mmla_list_args *args = job->args;
    if (d->kind == MMLA_LIST_IMAGE_SPANS) {
        mmla_lists_reach reach = {0, 0};
        if (token != NULL) {
            reach = reach_of(job, token);
        }
        args->out_left[t] = reach.left;
        args->out_right[t] = reach.right;
    } else if (mmla_lists_kind_has_slot(d->kind)) {
        args->out_slots[t] = token != NULL ? mmla_lists_slot(d->kind, job->p, args, token) : -1;
    } else {
        int32_t *list = args->list + t * d->list_stride;
        const bool masked = args->valid != NULL && args->valid[t] == 0;
        const int64_t n = token != NULL && !masked ? write_entries(job, token, list) : 0;
        memset(list + n, 0xFF, (size_t)(d->width - n) * sizeof *list); /* all -1 */
        args->lens[t] = (int32_t)n;
    }
}

/* The request whose query holds token t, or R. Empty queries hold none. */
static int64_t request_at(const mmla_list_args *args, int64_t t) {
    int64_t low = 0, high = args->n_requests; /* the answer is in low .. high */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (args->query_start[middle + 1] <= t) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void build_unit(void *context, int64_t unit, int32_t thread) {
    (void)thread;
    const struct job *job = context;
    const mmla_list_args *args = job->args;
    const mmla_list_kind kind = job->p->desc.kind;
    const bool by_query = mmla_lists_kind_has_query(kind);
    const int64_t first = unit * UNIT_TOKENS;
    const int64_t last = mmla_min_i64(first + UNIT_TOKENS, args->n_tokens);
    int64_t request = by_query ? request_at(args, first) : 0; /* walks along with t */
    for (int64_t t = first; t < last; t++) {
        while (by_query && request < args->n_requests && args->query_start[request + 1] <= t) {
            request++;
        }
        mmla_lists_token token;
        const bool known = by_query ? mmla_lists_token_of_query(args, request, t, &token)
                                    : mmla_lists_token_of_request(kind, args, t, &token);
        write_token(job, t, known ? &token : NULL);
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

/* starts [n + 1] is legal entry by entry, which makes it rise from 0 to at most `most`. Adds the
 * entries that are not to *n_faults; the message is about the first. */
static mmla_status check_starts(mmla_error *err,
                                const char *name,
                                const int32_t *starts,
                                int64_t n,
                                int64_t most,
                                int64_t *n_faults) {
    int64_t n_bad = 0, i = 0; /* i: the first of them */
    for (int64_t k = 0; k <= n; k++) {
        if (!mmla_lists_start_is_legal(starts, k, most) && n_bad++ == 0) {
            i = k;
        }
    }
    if (n_bad == 0) {
        return MMLA_OK;
    }
    *n_faults += n_bad;
    if (i == 0) {
        return mmla_error_set(err, MMLA_E_INDEX, name, "[0] is %d, must be 0", (int)starts[0]);
    }
    if (starts[i] < starts[i - 1]) {
        return mmla_error_set(err, MMLA_E_INDEX, name, "[%lld] is %d, below the %d before it",
                              (long long)i, (int)starts[i], (int)starts[i - 1]);
    }
    return mmla_error_set(err, MMLA_E_INDEX, name, "[%lld] is %d, must be at most %lld",
                          (long long)i, (int)starts[i], (long long)most);
}

static mmla_status check_spans(const mmla_list_args *args, mmla_error *err, int64_t *n_faults) {
    const mmla_status status = check_starts(err, "span_start", args->span_start, args->n_requests,
                                            mmla_lists_spans_most(args), n_faults);
    const int32_t n_spans = args->span_start[args->n_requests];
    if (args->spans == NULL && n_spans > 0) {
        return mmla_error_set(err, MMLA_E_NULL, "spans", "is NULL, but span_start has %d",
                              (int)n_spans);
    }
    return status;
}

static mmla_status check_contents(const mmla_lists_problem *p, const mmla_list_args *args) {
    if (args->n_requests == 0 || !mmla_lists_kind_has_query(p->desc.kind)) {
        return MMLA_OK;
    }
    int64_t n_faults = 0;
    mmla_status status = check_starts(args->error, "query_start", args->query_start,
                                      args->n_requests, args->n_tokens, &n_faults);
    if (p->desc.kind == MMLA_LIST_IMAGE_SPANS) {
        const bool first = status == MMLA_OK;
        const mmla_status spans = check_spans(args, first ? args->error : NULL, &n_faults);
        status = first ? spans : status;
    }
    if (n_faults > 0 && args->n_faults != NULL) {
        *args->n_faults = mmla_add_count(*args->n_faults, n_faults);
    }
    return status;
}

mmla_status
mmla_lists_portable(const mmla_lists_problem *p, const mmla_list_args *args, void *stream) {
    (void)stream;
    const mmla_status status = check_contents(p, args);
    if (status != MMLA_OK) {
        return status;
    }
    struct job job = {p, args};
    const int64_t n_units = (args->n_tokens + UNIT_TOKENS - 1) / UNIT_TOKENS;
    mmla_parallel_for(p->n_threads, n_units, build_unit, &job);
    return MMLA_OK;
}
