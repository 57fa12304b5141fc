/* bench_gpu_list.c - the builders of lists on a GPU. They are built once a step and read by every
 * layer, so a launch is most of what they cost. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench_gpu.h"
#include "app/bench/bench_gpu_list.h"
#include "app/bench/bench_replay.h"
#include "app/check/check_near.h"
#include "app/check/check_rng.h"

enum {
    PAGE_TOKENS = 64,
    TABLE_WIDTH = 128, /* pages of a request: 8192 records */
    SEQ_LEN_MOST = TABLE_WIDTH * PAGE_TOKENS,
    PREFILL_REQUESTS = 4,
    PREFILL_COMPRESSED = 4096, /* rows of a request's workspace before its window rows */
    POISON = 0x5A
};

/* An operation of the table: a kind of list, for a decode step (a request a token) or a prefill. */
typedef struct kind_of_list {
    const char *op;
    mmla_list_kind kind;
    bool is_prefill;
} kind_of_list;

static const kind_of_list kinds[] = {
    {"list_window", MMLA_LIST_WINDOW, false},
    {"list_compressed", MMLA_LIST_COMPRESSED, false},
    {"list_combined", MMLA_LIST_COMBINED, true},
    {"list_slots", MMLA_LIST_COMPRESSED_SLOTS, false},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0], ARRAYS_MAX = 12 };

/* One array of the arguments: on the host, and the member that points to it. */
typedef struct array {
    check_buffer data;
    size_t member; /* offset in mmla_list_args */
    bool is_result;
} array;

struct bench_gpu_list {
    mmla_list_desc desc;
    mmla_list_args host, device; /* the first by the CPU, for comparison */
    array arrays[ARRAYS_MAX];
    int n_arrays;
    bench_arena arena;
    mmla_list_plan *plan;
    void *workspace;
};

static void member_set(mmla_list_args *args, size_t member, const void *memory) {
    memcpy((uint8_t *)args + member, &memory, sizeof memory);
}

/* An array of n elements, poison when it is a result. Returns its memory. */
static void *
array_add(bench_gpu_list *x, size_t member, int64_t n, int64_t element_bytes, bool is_result) {
    array *a = &x->arrays[x->n_arrays++];
    a->data = check_buffer_create(n * element_bytes, 64, is_result ? POISON : 0);
    a->member = member;
    a->is_result = is_result;
    member_set(&x->host, member, a->data.data);
    return a->data.data;
}

#define INPUT(x, name, n) \
    array_add(x, offsetof(mmla_list_args, name), n, sizeof *(x)->host.name, false)
#define RESULT(x, name, n) \
    array_add(x, offsetof(mmla_list_args, name), n, sizeof *(x)->host.name, true)

/* The query of each request, and where its pages lie. */
static void draw_requests(bench_gpu_list *x, int64_t n_tokens, int64_t n_requests, check_rng *rng) {
    int32_t *start = INPUT(x, query_start, n_requests + 1);
    int32_t *seq_lens = INPUT(x, seq_lens, n_requests);
    int32_t *request = INPUT(x, request, n_tokens);
    for (int64_t r = 0; r < n_requests; r++) {
        const int64_t query = (r + 1) * n_tokens / n_requests - start[r];
        start[r + 1] = (int32_t)(start[r] + query);
        seq_lens[r] = (int32_t)(query + check_rng_below(rng, SEQ_LEN_MOST - 1));
        for (int32_t t = start[r]; t < start[r + 1]; t++) {
            request[t] = (int32_t)r;
        }
    }
}

static void draw_table(bench_gpu_list *x, int64_t n_requests, check_rng *rng) {
    int32_t *table = INPUT(x, block_table, n_requests * TABLE_WIDTH);
    for (int64_t i = 0; i < n_requests * TABLE_WIDTH; i++) {
        table[i] = (int32_t)check_rng_below(rng, x->desc.n_pages);
    }
}

/* Positions that an index picked, all of them inside `most`. */
static void draw_topk(bench_gpu_list *x, int64_t n_tokens, int64_t most, check_rng *rng) {
    int32_t *topk = INPUT(x, topk, n_tokens * BENCH_COMPRESSED);
    for (int64_t i = 0; i < n_tokens * BENCH_COMPRESSED; i++) {
        topk[i] = (int32_t)check_rng_below(rng, most);
    }
}

static void draw_slots(bench_gpu_list *x, int64_t n_tokens, check_rng *rng) {
    int64_t *positions = INPUT(x, positions, n_tokens), *slots = INPUT(x, slots, n_tokens);
    for (int64_t t = 0; t < n_tokens; t++) {
        positions[t] = check_rng_below(rng, SEQ_LEN_MOST);
        slots[t] = t;
    }
}

static void
describe(bench_gpu_list *x, const kind_of_list *k, int64_t n_tokens, int64_t n_requests) {
    x->desc = (mmla_list_desc){.kind = k->kind,
                               .max_tokens = n_tokens,
                               .max_requests = n_requests,
                               .window = BENCH_WINDOW,
                               .page_tokens = PAGE_TOKENS,
                               .n_pages = n_requests * TABLE_WIDTH,
                               .table_width = TABLE_WIDTH,
                               .width = BENCH_WINDOW};
    if (k->kind == MMLA_LIST_COMPRESSED || k->kind == MMLA_LIST_COMBINED) {
        x->desc.topk_width = BENCH_COMPRESSED;
        x->desc.topk = BENCH_COMPRESSED;
        x->desc.width = BENCH_COMPRESSED;
    }
    if (k->kind == MMLA_LIST_COMBINED) {
        x->desc.width = BENCH_WINDOW + BENCH_COMPRESSED;
        x->desc.request_rows = PREFILL_COMPRESSED + n_tokens + BENCH_WINDOW;
        x->desc.window_offset = PREFILL_COMPRESSED;
    }
    x->desc.ratio = 2;
}

static bench_gpu_list with_inputs(bench_session *s, const kind_of_list *k, int64_t n_tokens) {
    const int64_t n_requests = !k->is_prefill                ? n_tokens
                               : n_tokens < PREFILL_REQUESTS ? n_tokens
                                                             : PREFILL_REQUESTS;
    check_rng rng = check_rng_at(s->options.seed, 11, (uint64_t)(n_tokens * 16 + (int)k->kind));
    bench_gpu_list x = {.arena = {.device = &s->device}};
    describe(&x, k, n_tokens, n_requests);
    x.host.n_tokens = n_tokens;
    x.host.n_requests = n_requests;
    draw_requests(&x, n_tokens, n_requests, &rng);
    if (k->kind == MMLA_LIST_COMBINED) {
        int32_t *gather_lens = INPUT(&x, gather_lens, n_requests);
        for (int64_t r = 0; r < n_requests; r++) { /* the query, and the window before it */
            const int32_t query = x.host.query_start[r + 1] - x.host.query_start[r];
            const int32_t most = query + BENCH_WINDOW - 1, seq_len = x.host.seq_lens[r];
            gather_lens[r] = seq_len < most ? seq_len : most;
        }
        draw_topk(&x, n_tokens, PREFILL_COMPRESSED, &rng);
    } else {
        draw_table(&x, n_requests, &rng);
    }
    if (k->kind == MMLA_LIST_COMPRESSED) {
        draw_topk(&x, n_tokens, SEQ_LEN_MOST, &rng);
    }
    if (k->kind == MMLA_LIST_COMPRESSED_SLOTS) {
        draw_slots(&x, n_tokens, &rng);
        RESULT(&x, out_slots, n_tokens);
    } else {
        RESULT(&x, list, n_tokens * x.desc.width);
        RESULT(&x, lens, n_tokens);
    }
    x.device = x.host;
    for (int i = 0; i < x.n_arrays; i++) {
        const array *a = &x.arrays[i];
        member_set(&x.device, a->member, bench_arena_copy(&x.arena, a->data.data, a->data.bytes));
    }
    return x;
}

#undef INPUT
#undef RESULT

bench_gpu_list *bench_gpu_list_create(bench_session *s, mmla_list_kind kind, int64_t n_tokens) {
    const kind_of_list *k = kinds;
    for (int i = 1; i < N_KINDS && k->kind != kind; i++) {
        k = &kinds[i];
    }
    assert(k->kind == kind);
    bench_gpu_list *x = check_alloc(sizeof *x);
    mmla_error err = {0};
    *x = with_inputs(s, k, n_tokens);
    if (bench_device_keep(&s->device, mmla_list_plan_create(s->ctx, &x->desc, &x->plan, &err),
                          &err)) {
        x->workspace = bench_arena_add(&x->arena, (int64_t)mmla_list_workspace_bytes(x->plan));
    }
    return x;
}

void bench_gpu_list_destroy(bench_gpu_list *x) {
    mmla_list_plan_destroy(x->plan);
    for (int i = 0; i < x->n_arrays; i++) {
        check_buffer_destroy(&x->arrays[i].data);
    }
    bench_arena_destroy(&x->arena);
    free(x);
}

double bench_gpu_list_bytes(const bench_gpu_list *x) {
    double bytes = 0.0;
    for (int i = 0; i < x->n_arrays; i++) {
        bytes += (double)x->arrays[i].data.bytes;
    }
    return bytes;
}

mmla_status
bench_gpu_list_call(const bench_gpu_list *x, bool overlap, void *stream, mmla_error *err) {
    mmla_list_args args = x->device;
    args.overlap = overlap;
    args.error = err;
    return mmla_list_run(x->plan, &args, x->workspace, stream);
}

static mmla_status call(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    return bench_gpu_list_call(job, false, stream, err);
}

void bench_gpu_list_verify(bench_session *s, bench_gpu_list *x, bench_row *row) {
    mmla_error err = {0};
    mmla_list_plan *plan = NULL;
    mmla_status status = mmla_list_plan_create(s->host, &x->desc, &plan, &err);
    if (status == MMLA_OK) {
        mmla_list_args args = x->host;
        args.error = &err;
        status = mmla_list_run(plan, &args, NULL, NULL);
    }
    mmla_list_plan_destroy(plan);
    row->verified = bench_device_keep(&s->device, status, &err);
    for (int i = 0; i < x->n_arrays && row->verified; i++) {
        const array *a = &x->arrays[i];
        if (!a->is_result) {
            continue;
        }
        const void *from;
        memcpy(&from, (const uint8_t *)&x->device + a->member, sizeof from);
        check_buffer got = check_buffer_create(a->data.bytes, 64, 0);
        bench_device_read(&s->device, got.data, from, got.bytes);
        got.data[0] ^= s->options.corrupt == BENCH_CORRUPT_FUSED;
        const int64_t at = check_bytes_compare(got.data, a->data.data, got.bytes);
        if (at >= 0) {
            row->verified = false;
            snprintf(row->problem, sizeof row->problem,
                     "byte %lld of a list is 0x%02X, the CPU's 0x%02X", (long long)at, got.data[at],
                     a->data.data[at]);
        }
        check_buffer_destroy(&got);
    }
}

static void run_shape(bench_session *s, const kind_of_list *k, int64_t n_tokens) {
    bench_row *row = bench_gpu_row_begin(s, k->op, NULL, 0, n_tokens);
    if (row == NULL) {
        return;
    }
    bench_gpu_list *x = bench_gpu_list_create(s, k->kind, n_tokens);
    row->bytes = bench_gpu_list_bytes(x);
    bench_replay r = bench_replay_create(&s->device, call, x, 1);
    row->fused = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
    bench_replay_destroy(&r);
    bench_gpu_list_verify(s, x, row);
    bench_gpu_row_finish(s, row);
    bench_gpu_list_destroy(x);
}

void bench_gpu_list_run(bench_session *s) {
    static const int64_t decode[] = {1, 64, 1024}, prefill[] = {2123, 184};
    if (s->options.formats != NULL || (s->options.heads.n > 0 && s->options.op == NULL)) {
        return; /* asked about operations that have records or heads */
    }
    for (int i = 0; i < N_KINDS; i++) {
        const kind_of_list *k = &kinds[i];
        const int n = s->options.quick ? 1 : k->is_prefill ? 2 : 3;
        const bench_list tokens =
            bench_list_or(&s->options.tokens, k->is_prefill ? prefill : decode, n);
        for (int j = 0; j < tokens.n && bench_wants_op(s, k->op); j++) {
            run_shape(s, k, tokens.values[j]);
        }
    }
}
