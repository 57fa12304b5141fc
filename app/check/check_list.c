/* check_list.c - the index builders against their formulas, over tables that lead nowhere. The last
 * case of each kind has more tokens than 16 bits count. */
#include <stdio.h>
#include <string.h>

#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_list_define.h"
#include "app/check/check_near.h"
#include "app/check/check_rng.h"

static const char *const kinds[] = {"window",           "draft",      "compressed", "combined",
                                    "compressed_slots", "ring_slots", "image_spans"};

enum { KINDS = sizeof kinds / sizeof kinds[0], REQUESTS_MAX = 6, QUERY_MAX = 12 };
enum { FAULTS_BEFORE = 7 };
enum { CASES_QUICK = 400, CASES_DRAWN = 4000, CASES_FULL = CASES_DRAWN + KINDS };
enum { MANY_REQUESTS = 13000, MANY_WIDTH = 20 }; /* 5.5 tokens a request and more */

typedef struct list_case {
    mmla_list_desc desc; /* strides given */
    mmla_list_args args; /* inputs */
    bool bad_starts; /* an entry of query_start is illegal: the CPU refuses and writes nothing */
    check_buffer query_start, seq_lens, gather_lens, block_table, ring_blocks, request, topk,
        positions, slots, valid, left, right, span_start, spans;
    char shape[CHECK_TEXT_BYTES];
} list_case;

static int32_t below(check_rng *rng, int64_t n) {
    return (int32_t)check_rng_below(rng, n);
}

static void draw_desc(list_case *c, bool many, check_rng *rng) {
    static const int32_t windows[] = {1, 2, 63, 128, 129};
    static const int32_t pages[] = {1, 2, 16, 61, 64, 128, 256};
    mmla_list_desc *d = &c->desc;
    d->window = windows[below(rng, 5)];
    d->page_tokens = d->kind == MMLA_LIST_RING_SLOTS ? 1 << below(rng, 6) : pages[below(rng, 7)];
    d->n_pages = check_rng_below(rng, 20);
    d->table_width = 1 + below(rng, 12);
    d->table_stride = d->table_width + check_rng_below(rng, 3);
    d->ratio = d->kind == MMLA_LIST_COMBINED ? below(rng, 3) : 1 + below(rng, 2);
    d->topk_width = (d->kind == MMLA_LIST_COMBINED && d->ratio == 0)
                        ? 0
                        : 1 + below(rng, many ? MANY_WIDTH : 600);
    d->topk_stride = d->topk_width + check_rng_below(rng, 3);
    d->topk = below(rng, d->topk_width + 1);
    d->request_rows = check_rng_below(rng, 400);
    d->window_offset = check_rng_below(rng, d->request_rows + 1);
    d->image_tokens = check_rng_chance(rng, 0.5) ? 0 : 1 + below(rng, 50);
    const int32_t least = d->kind == MMLA_LIST_COMPRESSED ? d->topk_width
                          : d->kind == MMLA_LIST_COMBINED ? d->topk + d->window + d->image_tokens
                                                          : d->window;
    d->width = least + below(rng, 40);
    d->list_stride = d->width + check_rng_below(rng, 3);
}

/* Requests with their tokens; the tokens behind the last request are padding. */
static void draw_requests(list_case *c, check_rng *rng) {
    const int64_t n = c->args.n_requests;
    c->query_start = check_buffer_create((n + 1) * 4, 4, 0xFF);
    c->seq_lens = check_buffer_create(n * 4, 4, 0xFF);
    c->gather_lens = check_buffer_create(n * 4, 4, 0xFF);
    c->ring_blocks = check_buffer_create(n * 4, 4, 0xFF);
    c->span_start = check_buffer_create((n + 1) * 4, 4, 0xFF);
    c->spans = check_buffer_create(n * 3 * 8, 4, 0xFF);
    int32_t *starts = (int32_t *)c->query_start.data, *spans = (int32_t *)c->spans.data;
    int32_t *span_starts = (int32_t *)c->span_start.data;
    starts[0] = span_starts[0] = 0;
    for (int64_t q = 0; q < n; q++) {
        const int32_t len = below(rng, QUERY_MAX), seq = len + below(rng, 700);
        starts[q + 1] = starts[q] + len;
        ((int32_t *)c->seq_lens.data)[q] = seq;
        ((int32_t *)c->gather_lens.data)[q] = below(rng, seq + 1);
        ((int32_t *)c->ring_blocks.data)[q] = check_rng_chance(rng, 0.2)
                                                  ? check_rng_bad_index(rng, c->desc.n_pages)
                                                  : below(rng, c->desc.n_pages + 1);
        const int32_t n_spans = below(rng, 4);
        span_starts[q + 1] = span_starts[q] + n_spans;
        for (int32_t i = span_starts[q]; i < span_starts[q + 1]; i++) {
            spans[2 * i] = seq - below(rng, 60);
            spans[2 * i + 1] = spans[2 * i] + below(rng, 60);
        }
    }
    c->args.n_tokens = starts[n] + check_rng_below(rng, 4);
    if (n > 0 && n < REQUESTS_MAX && check_rng_chance(rng, 0.05)) {
        starts[1 + check_rng_below(rng, n)] = -1;
        c->bad_starts = c->args.n_tokens > 0;
    }
    c->args.query_start = starts;
    c->args.seq_lens = (const int32_t *)c->seq_lens.data;
    c->args.gather_lens = check_rng_chance(rng, 0.6) ? (const int32_t *)c->gather_lens.data : NULL;
    if (check_rng_chance(rng, 0.4)) { /* a workspace of the call */
        c->args.request_rows = 1 + check_rng_below(rng, 500);
        c->args.window_offset = check_rng_below(rng, c->args.request_rows + 1);
    }
    c->args.ring_blocks = (const int32_t *)c->ring_blocks.data;
    c->args.span_start = span_starts;
    c->args.n_spans = span_starts[n];
    c->args.spans = c->args.n_spans > 0 ? spans : NULL;
    c->block_table = check_buffer_create(n * c->desc.table_stride * 4, 4, 0xFF);
    for (int64_t i = 0; i < n * c->desc.table_stride; i++) {
        const bool good = c->desc.n_pages > 0 && !check_rng_chance(rng, 0.1);
        ((int32_t *)c->block_table.data)[i] =
            good ? below(rng, c->desc.n_pages) : check_rng_bad_index(rng, c->desc.n_pages);
    }
    c->args.block_table = (const int32_t *)c->block_table.data;
}

static void draw_tokens(list_case *c, check_rng *rng) {
    const int64_t n = c->args.n_tokens;
    c->request = check_buffer_create(n * 4, 4, 0xFF);
    c->topk = check_buffer_create(n * c->desc.topk_stride * 4, 4, 0xFF);
    c->positions = check_buffer_create(n * 8, 8, 0xFF);
    c->slots = check_buffer_create(n * 8, 8, 0xFF);
    c->valid = check_buffer_create(n, 1, 1);
    c->left = check_buffer_create(n * 4, 4, 0xFF);
    c->right = check_buffer_create(n * 4, 4, 0xFF);
    const int64_t image = c->desc.image_tokens;
    for (int64_t t = 0; t < n; t++) {
        ((int32_t *)c->request.data)[t] = check_rng_chance(rng, 0.1) || c->args.n_requests == 0
                                              ? check_rng_bad_index(rng, c->args.n_requests)
                                              : below(rng, c->args.n_requests);
        for (int64_t k = 0; k < c->desc.topk_stride; k++) {
            ((int32_t *)c->topk.data)[t * c->desc.topk_stride + k] =
                check_rng_chance(rng, 0.1) ? check_rng_bad_index(rng, 1 << 20) : below(rng, 700);
        }
        ((int64_t *)c->positions.data)[t] =
            check_rng_chance(rng, 0.1)    ? -1 - check_rng_below(rng, 9)
            : check_rng_chance(rng, 0.05) ? INT64_MAX
                                          : check_rng_below(rng, 1500);
        ((int64_t *)c->slots.data)[t] = check_rng_below(rng, 100) - 10;
        c->valid.data[t] = !check_rng_chance(rng, 0.15);
        ((int32_t *)c->left.data)[t] = image > 0 ? below(rng, image) : -1;
        ((int32_t *)c->right.data)[t] = image > 0 ? below(rng, image + 1) : -1;
        if (image > 0) { /* one image holds at most image_tokens others, on both sides together */
            int32_t *right = (int32_t *)c->right.data + t;
            const int64_t rest = image - ((int32_t *)c->left.data)[t];
            *right = *right < rest ? *right : (int32_t)rest;
        }
    }
    c->args.request = (const int32_t *)c->request.data;
    c->args.topk = (const int32_t *)c->topk.data;
    c->args.positions = (const int64_t *)c->positions.data;
    c->args.slots = (const int64_t *)c->slots.data;
    c->args.valid = check_rng_chance(rng, 0.5) ? c->valid.data : NULL;
    c->args.left = (const int32_t *)c->left.data;
    c->args.right = (const int32_t *)c->right.data;
}

static list_case list_case_create(const check_session *s, int64_t idx) {
    check_rng rng = check_rng_at(s->options.seed, 0x6C697374, (uint64_t)idx);
    const bool many = idx >= CASES_DRAWN;
    list_case c = {
        .desc = {.kind = (mmla_list_kind)(many ? (int)(idx - CASES_DRAWN)
                                               : check_draw(s->options.seed, 70, idx, KINDS))}};
    draw_desc(&c, many, &rng);
    c.args.n_requests = many ? MANY_REQUESTS : check_rng_below(&rng, REQUESTS_MAX);
    draw_requests(&c, &rng);
    draw_tokens(&c, &rng);
    c.desc.max_requests = c.args.n_requests + check_rng_below(&rng, 2);
    c.desc.max_tokens = c.args.n_tokens + check_rng_below(&rng, 2);
    const bool by_query = c.desc.kind <= MMLA_LIST_DRAFT || c.desc.kind == MMLA_LIST_COMBINED ||
                          c.desc.kind == MMLA_LIST_IMAGE_SPANS;
    c.bad_starts = c.bad_starts && by_query;
    snprintf(c.shape, sizeof c.shape,
             "%s tokens=%lld requests=%lld window=%d pages=%lldx%d table=%d width=%d topk=%d/%d "
             "ratio=%d M=%lld N=%lld own=%lld/%lld image=%d%s%s",
             kinds[c.desc.kind], (long long)c.args.n_tokens, (long long)c.args.n_requests,
             c.desc.window, (long long)c.desc.n_pages, c.desc.page_tokens, c.desc.table_width,
             c.desc.width, c.desc.topk, c.desc.topk_width, c.desc.ratio,
             (long long)c.desc.request_rows, (long long)c.desc.window_offset,
             (long long)c.args.request_rows, (long long)c.args.window_offset, c.desc.image_tokens,
             c.args.gather_lens != NULL ? " gather_lens" : "",
             c.bad_starts ? " bad query_start" : "");
    return c;
}

static void list_case_destroy(list_case *c) {
    check_buffer *const buffers[] = {
        &c->query_start, &c->seq_lens, &c->gather_lens, &c->block_table, &c->ring_blocks,
        &c->request,     &c->topk,     &c->positions,   &c->slots,       &c->valid,
        &c->left,        &c->right,    &c->span_start,  &c->spans};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        check_buffer_destroy(buffers[i]);
    }
}

enum { OUTPUTS = 5 };

/* Every output there is, poisoned alike, so that writing one that is not the kind's shows too. */
static mmla_list_args with_outputs(const list_case *c, check_buffer outputs[OUTPUTS]) {
    const int64_t n = c->args.n_tokens;
    const int64_t bytes[OUTPUTS] = {n * c->desc.list_stride * 4, n * 4, n * 8, n * 4, n * 4};
    mmla_list_args args = c->args;
    for (int i = 0; i < OUTPUTS; i++) {
        outputs[i] = check_buffer_create(bytes[i], i == 2 ? 8 : 4, 0x5A);
    }
    args.list = (int32_t *)outputs[0].data;
    args.lens = (int32_t *)outputs[1].data;
    args.out_slots = (int64_t *)outputs[2].data;
    args.out_left = (int32_t *)outputs[3].data;
    args.out_right = (int32_t *)outputs[4].data;
    return args;
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX]; /* one, which plans need not be told */
    if (check_session_implementations(s, "lists", names) == 0) {
        return;
    }
    static const char *const outputs[OUTPUTS] = {"list", "lens", "out_slots", "out_left",
                                                 "out_right"};
    list_case c = list_case_create(s, idx);
    check_buffer got[OUTPUTS], want[OUTPUTS];
    mmla_list_args args = with_outputs(&c, got);
    const mmla_list_args definition = with_outputs(&c, want);
    check_verdict verdict = {0};
    mmla_error err = {0};
    int32_t n_faults = FAULTS_BEFORE;
    args.error = &err;
    args.n_faults = &n_faults;
    mmla_list_plan *plan;
    const bool other = idx % 2 == 1;
    const device_options staging = check_session_staging(s, other, idx);
    device_call call = {.ctx = other ? s->other : s->many, .options = &staging};
    mmla_status status = mmla_list_plan_create(call.ctx, &c.desc, &plan, &err);
    if (status == MMLA_OK) {
        call.workspace_bytes = mmla_list_workspace_bytes(plan);
        status = device_call_list(&call, plan, &c.desc, &args);
        check_verdict_damage(&verdict, &call);
    }
    const mmla_status wanted = check_status_wanted(call.ctx, c.bad_starts);
    if (status != wanted) {
        check_verdict_fail(&verdict, "%s, not %s: %s", mmla_status_name(status),
                           mmla_status_name(wanted), err.message);
    }
    mmla_list_plan_destroy(plan);
    if (n_faults - FAULTS_BEFORE != (c.bad_starts ? 1 : 0)) {
        check_verdict_fail(&verdict, "%d faults were counted, not %d", n_faults - FAULTS_BEFORE,
                           c.bad_starts ? 1 : 0);
    }
    if (!c.bad_starts) {
        check_list_define(&c.desc, &definition);
    }
    /* A GPU does what it can with bad starts, inside the shapes. */
    const bool is_defined = !c.bad_starts || !check_session_is_gpu(s);
    for (int i = 0; i < OUTPUTS; i++) {
        check_session_corrupt(s, got[i].data, got[i].bytes);
        const int64_t at = check_bytes_compare(got[i].data, want[i].data, got[i].bytes);
        if (at >= 0 && is_defined) {
            check_verdict_fail(&verdict, "byte %lld of %s differs from its definition",
                               (long long)at, outputs[i]);
        }
        if (!check_buffer_is_intact(&got[i])) {
            check_verdict_fail(&verdict, "bytes before or behind %s were written", outputs[i]);
        }
        check_buffer_destroy(&got[i]);
        check_buffer_destroy(&want[i]);
    }
    check_session_record(s, "lists", names[0], true, idx, c.shape, &verdict);
    list_case_destroy(&c);
}

const check_suite check_suite_list = {"lists", "lists", CASES_QUICK, CASES_FULL, run_case, false};
