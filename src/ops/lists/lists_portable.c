/* lists_portable.c - all seven kinds on the CPU: find each token's request and position, let the
 * kind's builder write what is valid, fill the rest.
 *
 * The rule that every entry of every row is written on every call lives here and nowhere else. The
 * arithmetic is on integers, so this is the definition as well as the fast version; a token costs
 * what its row costs to write.
 */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ops/lists/lists.h"

enum { UNIT_TOKENS = 256 };

/* What a kind writes, and where its tokens find their request. */
struct kind {
    bool by_query_start;     /* else by `request` */
    mmla_lists_row_fn row;   /* of list */
    mmla_lists_slot_fn slot; /* of out_slots; positions and slots come with the tokens */
};

static const struct kind kinds[MMLA_LIST_KINDS] = {
    [MMLA_LIST_WINDOW] = {true, mmla_lists_window_row, NULL},
    [MMLA_LIST_DRAFT] = {true, mmla_lists_draft_row, NULL},
    [MMLA_LIST_COMPRESSED] = {false, mmla_lists_compressed_row, NULL},
    [MMLA_LIST_COMBINED] = {true, mmla_lists_combined_row, NULL},
    [MMLA_LIST_COMPRESSED_SLOTS] = {false, NULL, mmla_lists_compressed_slot},
    [MMLA_LIST_RING_SLOTS] = {false, NULL, mmla_lists_ring_slot},
    [MMLA_LIST_IMAGE_SPANS] = {true, NULL, NULL},
};

struct job {
    const mmla_lists_problem *p;
    const mmla_list_args *args;
    const struct kind *kind;
};

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

/* Fills token for t of the query-start kinds; false for padding and negative positions. *request
 * walks along from the request of an earlier token. */
static bool
token_of_query(const mmla_list_args *args, int64_t t, int64_t *request, mmla_lists_token *token) {
    while (*request < args->n_requests && args->query_start[*request + 1] <= t) {
        *request += 1;
    }
    const int64_t q = *request;
    if (q >= args->n_requests) {
        return false;
    }
    const int64_t start = args->query_start[q], n = args->query_start[q + 1] - start;
    const int64_t seq_len = args->seq_lens[q];
    *token = (mmla_lists_token){t, q, seq_len - n + (t - start), seq_len, n};
    return token->pos >= 0;
}

/* Likewise for the kinds with `request`. */
static bool token_of_request(const struct job *job, int64_t t, mmla_lists_token *token) {
    const mmla_list_args *args = job->args;
    *token = (mmla_lists_token){.idx = t, .request = args->request[t]};
    if (token->request < 0 || token->request >= args->n_requests) {
        return false;
    }
    if (job->kind->slot != NULL) {
        token->pos = args->positions[t];
        return token->pos >= 0 && args->slots[t] >= 0;
    }
    return true;
}

/* Writes everything token t owns; token is NULL when t is not valid. */
static void write_token(const struct job *job, int64_t t, const mmla_lists_token *token) {
    const mmla_lists_problem *p = job->p;
    const mmla_list_args *args = job->args;
    if (job->kind->row != NULL) {
        int32_t *row = args->list + t * p->desc.list_stride;
        const int64_t n = token != NULL ? job->kind->row(p, args, token, row) : 0;
        memset(row + n, 0xFF, (size_t)(p->desc.width - n) * sizeof *row); /* all -1 */
        args->lens[t] = (int32_t)n;
    } else if (job->kind->slot != NULL) {
        args->out_slots[t] = token != NULL ? job->kind->slot(p, args, token) : -1;
    } else {
        mmla_lists_reach reach = {0, 0};
        if (token != NULL) {
            reach = mmla_lists_span_reach(p, args, token);
        }
        args->out_left[t] = reach.left;
        args->out_right[t] = reach.right;
    }
}

static void build_unit(void *context, int64_t unit, int32_t thread) {
    (void)thread;
    const struct job *job = context;
    const mmla_list_args *args = job->args;
    const int64_t first = unit * UNIT_TOKENS;
    const int64_t last = mmla_min_i64(first + UNIT_TOKENS, args->n_tokens);
    int64_t request = job->kind->by_query_start ? request_at(args, first) : 0;
    for (int64_t t = first; t < last; t++) {
        mmla_lists_token token;
        const bool known = job->kind->by_query_start ? token_of_query(args, t, &request, &token)
                                                     : token_of_request(job, t, &token);
        const bool masked = job->kind->row != NULL && args->valid != NULL && args->valid[t] == 0;
        write_token(job, t, known && !masked ? &token : NULL);
    }
}

/* starts [n + 1] rises from 0 and ends at or before `most`. */
static mmla_status
check_starts(mmla_error *err, const char *name, const int32_t *starts, int64_t n, int64_t most) {
    if (starts[0] != 0) {
        return mmla_error_set(err, MMLA_E_INDEX, name, "[0] is %d, must be 0", (int)starts[0]);
    }
    for (int64_t i = 0; i < n; i++) {
        if (starts[i + 1] < starts[i]) {
            return mmla_error_set(err, MMLA_E_INDEX, name, "[%lld] is %d, below the %d before it",
                                  (long long)(i + 1), (int)starts[i + 1], (int)starts[i]);
        }
    }
    if (starts[n] > most) {
        return mmla_error_set(err, MMLA_E_INDEX, name, "[%lld] is %d, must be at most %lld",
                              (long long)n, (int)starts[n], (long long)most);
    }
    return MMLA_OK;
}

static mmla_status check_contents(const mmla_lists_problem *p, const mmla_list_args *args) {
    mmla_status status = MMLA_OK;
    if (args->n_requests == 0 || !kinds[p->desc.kind].by_query_start) {
        return MMLA_OK;
    }
    status = check_starts(args->error, "query_start", args->query_start, args->n_requests,
                          args->n_tokens);
    if (status != MMLA_OK || p->desc.kind != MMLA_LIST_IMAGE_SPANS) {
        return status;
    }
    status = check_starts(args->error, "span_start", args->span_start, args->n_requests, INT32_MAX);
    if (status == MMLA_OK && args->span_start[args->n_requests] > 0 && args->spans == NULL) {
        status = mmla_error_set(args->error, MMLA_E_NULL, "spans", "is NULL, but span_start has %d",
                                (int)args->span_start[args->n_requests]);
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
    struct job job = {p, args, &kinds[p->desc.kind]};
    const int64_t n_units = (args->n_tokens + UNIT_TOKENS - 1) / UNIT_TOKENS;
    mmla_parallel_for(p->n_threads, n_units, build_unit, &job);
    return MMLA_OK;
}
