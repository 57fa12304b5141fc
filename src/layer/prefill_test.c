/* prefill_test.c - both routes give what the definition gives for the keys of every token, on the CPU
 * and, where there is one, on a GPU; lists, lengths and block tables are made here by plain loops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/prefill.h>

#include "num/bf16.h"
#include "support/attend_fixture.h"
#include "support/gpu_graph.h"
#include "support/gpu_mirror.h"
#include "support/near.h"
#include "support/rng.h"

enum { D = MMLA_LATENT_DIM, REQUESTS_MAX = 5, TABLE = 40, PADDING = 3 };

static uint64_t seed;

/* Requests, and the call that the fixture makes of them for the reference. */
typedef struct batch {
    attend_fixture f;
    mmla_prefill_desc desc;
    mmla_prefill_args args;
    int32_t query_lens[REQUESTS_MAX], seq_lens[REQUESTS_MAX], query_start[REQUESTS_MAX + 1];
    int32_t window_table[REQUESTS_MAX][TABLE], compressed_table[REQUESTS_MAX][TABLE];
    int32_t *request, *topk;
    test_buffer want_out, want_lse;
} batch;

/* --- a batch ---------------------------------------------------------------------------------- */

/* Formats, ratio, heads, W and picks of a token, and how far sequences go. */
typedef struct shape {
    mmla_kv_format window_format, compressed_format;
    int32_t ratio, heads, window, topk_width, page_tokens, seq_most;
} shape;

static void draw_requests(batch *b, const shape *s, test_rng *rng) {
    const int64_t n_requests = 1 + test_rng_below(rng, REQUESTS_MAX);
    int32_t n = 0;
    for (int64_t r = 0; r < n_requests; r++) {
        b->seq_lens[r] = (int32_t)test_rng_below(rng, s->seq_most + 1);
        b->query_lens[r] = (int32_t)test_rng_below(rng, b->seq_lens[r] + 1);
        if (test_rng_below(rng, 3) == 0) { /* nothing cached yet */
            b->query_lens[r] = b->seq_lens[r];
        }
        b->query_start[r] = n;
        n += b->query_lens[r];
        b->query_start[r + 1] = n;
    }
    b->args.n_requests = n_requests;
    b->f.n_tokens = b->args.n_tokens = n + PADDING;
    b->request = malloc((size_t)(n + PADDING) * sizeof(int32_t));
    b->topk = malloc((size_t)(n + PADDING) * (size_t)s->topk_width * sizeof(int32_t) + 4);
    assert_non_null(b->request);
    assert_non_null(b->topk);
}

/* Pages of a cache, each used by one place of one request. */
static void draw_table(int32_t table[REQUESTS_MAX][TABLE], int64_t n_pages, test_rng *rng) {
    int32_t *entries = table[0];
    assert_true(n_pages >= REQUESTS_MAX * TABLE);
    for (int32_t i = 0; i < REQUESTS_MAX * TABLE; i++) {
        const int32_t j = (int32_t)test_rng_below(rng, i + 1);
        entries[i] = entries[j];
        entries[j] = i;
    }
}

static int32_t slot_of(const int32_t *table, int32_t page_tokens, int64_t pos) {
    return table[pos / page_tokens] * page_tokens + (int32_t)(pos % page_tokens);
}

/* Which records a token picks, in which order: different ones, all visible. */
static int32_t draw_picks(int32_t *picks, int32_t width, int64_t visible, test_rng *rng) {
    int32_t all[1024], n = 0;
    assert_true(visible <= 1024);
    for (int32_t i = 0; i < visible; i++) {
        const int32_t j = (int32_t)test_rng_below(rng, i + 1);
        all[i] = all[j];
        all[j] = i;
    }
    for (; n < width && n < visible; n++) {
        picks[n] = all[n];
    }
    for (int32_t i = n; i < width; i++) {
        picks[i] = -1;
    }
    return n;
}

/* The lists of token t, in the fixture's call. */
static void define_token(batch *b, int64_t t, int64_t request, test_rng *rng) {
    const mmla_prefill_desc *d = &b->desc;
    int32_t *list = (int32_t *)b->f.list.data + t * d->window;
    int32_t *compressed = (int32_t *)b->f.compressed_list.data + t * d->topk_width;
    int32_t *picks = b->topk + t * d->topk_width;
    int32_t n = 0, n_picks = 0;
    b->request[t] = (int32_t)request;
    if (request >= 0) {
        const int64_t pos = b->seq_lens[request] - b->query_start[request + 1] + t;
        for (int64_t p = pos < d->window ? 0 : pos - d->window + 1; p <= pos; p++) {
            list[n++] = slot_of(b->window_table[request], d->attend.window.page_tokens, p);
        }
        if (d->ratio > 0) {
            n_picks = draw_picks(picks, d->topk_width, (pos + 1) / d->ratio, rng);
        }
        for (int32_t k = 0; k < n_picks; k++) {
            compressed[k] =
                slot_of(b->compressed_table[request], d->attend.compressed.page_tokens, picks[k]);
        }
    } else {
        draw_picks(picks, d->topk_width, 0, rng);
    }
    ((int32_t *)b->f.lens.data)[t] = n;
    if (d->ratio > 0) {
        ((int32_t *)b->f.compressed_lens.data)[t] = n_picks;
    }
}

static void define(batch *b, test_rng *rng) {
    for (int64_t t = 0; t < b->f.n_tokens; t++) {
        int64_t request = -1;
        for (int64_t r = 0; r < b->args.n_requests; r++) {
            if (b->query_start[r] <= t && t < b->query_start[r + 1]) {
                request = r;
            }
        }
        define_token(b, t, request, rng);
    }
    assert_int_equal(attend_fixture_run(&b->f, "reference"), MMLA_OK);
    b->want_out = test_buffer_create(b->f.out.bytes, 4);
    b->want_lse = test_buffer_create(b->f.lse.bytes, 4);
    memcpy(b->want_out.data, b->f.out.data, b->f.out.bytes);
    memcpy(b->want_lse.data, b->f.lse.data, b->f.lse.bytes);
}

static batch batch_create(const shape *s, test_rng *rng) {
    batch b = {.f = attend_fixture_paged(2)};
    attend_fixture *f = &b.f;
    f->desc.n_heads = s->heads;
    f->desc.out_form = MMLA_OUT_BF16;
    f->desc.list_width = s->window;
    f->desc.window = (mmla_cache_desc){s->window_format, s->page_tokens, REQUESTS_MAX * TABLE, 0};
    f->desc.compressed =
        (mmla_cache_desc){s->compressed_format, s->page_tokens, REQUESTS_MAX * TABLE + 1, 0};
    f->desc.compressed_width = s->topk_width;
    if (s->ratio == 0) {
        f->desc.compressed = (mmla_cache_desc){0};
        f->desc.compressed_width = 0;
    }
    draw_requests(&b, s, rng);
    draw_table(b.window_table, REQUESTS_MAX * TABLE, rng);
    draw_table(b.compressed_table, REQUESTS_MAX * TABLE, rng);
    attend_fixture_fill(f, test_rng_next(rng));
    b.desc = (mmla_prefill_desc){.attend = f->desc,
                                 .max_requests = REQUESTS_MAX,
                                 .window = s->window,
                                 .ratio = s->ratio,
                                 .topk_width = s->topk_width,
                                 .window_table_width = TABLE,
                                 .compressed_table_width = s->ratio > 0 ? TABLE : 0,
                                 .max_rows = REQUESTS_MAX * 3 * s->seq_most + 1};
    b.desc.attend.list_width = b.desc.attend.compressed_width = 0;
    b.desc.attend.implementation = NULL;
    define(&b, rng);
    b.args.q = f->args.q;
    b.args.positions = f->args.positions;
    b.args.cos_sin = f->args.cos_sin;
    b.args.sink = f->args.sink;
    b.args.request = b.request;
    b.args.topk = b.topk;
    b.args.window_cache = f->args.window_cache;
    b.args.compressed_cache = f->args.compressed_cache;
    b.args.out = f->args.out;
    b.args.lse = f->args.lse;
    return b;
}

/* What lies in the batch itself, which has moved since it was created. */
static void point(batch *b) {
    b->args.host_query_lens = b->query_lens;
    b->args.host_seq_lens = b->seq_lens;
    b->args.query_start = b->query_start;
    b->args.seq_lens = b->seq_lens;
    b->args.window_table = b->window_table[0];
    b->args.compressed_table = b->compressed_table[0];
    b->args.error = &b->f.error;
}

static void batch_destroy(batch *b) {
    test_buffer_destroy(&b->want_out);
    test_buffer_destroy(&b->want_lse);
    free(b->request);
    free(b->topk);
    attend_fixture_destroy(&b->f);
}

static void compare(const batch *b) {
    struct near lse = near_init("lse", 1e-4, 1e-4);
    struct near out = near_init("out", 1.5e-2, 1.0 / 64); /* bf16 probabilities, bf16 results */
    const uint16_t *got = b->f.out.data, *want = b->want_out.data;
    for (int64_t i = 0; i < (int64_t)(b->want_lse.bytes / 4); i++) {
        near_check(&lse, i, (double)((const float *)b->f.lse.data)[i],
                   (double)((const float *)b->want_lse.data)[i]);
    }
    for (int64_t i = 0; i < (int64_t)(b->want_out.bytes / 2); i++) {
        near_check(&out, i, (double)mmla_bf16_to_f32(got[i]), (double)mmla_bf16_to_f32(want[i]));
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static mmla_prefill_plan *plan_of(batch *b, mmla_context *ctx, mmla_prefill_route route) {
    mmla_prefill_plan *plan;
    b->desc.route = route;
    if (mmla_prefill_plan_create(ctx, &b->desc, &plan, &b->f.error) != MMLA_OK) {
        fail_msg("%s", b->f.error.message);
    }
    return plan;
}

static void run_on_cpu(batch *b, mmla_prefill_route route) {
    mmla_prefill_plan *plan = plan_of(b, b->f.ctx, route);
    test_buffer work = test_buffer_create(mmla_prefill_workspace_bytes(plan), 64);
    mmla_prefill_route taken;
    test_buffer_poison(&b->f.out);
    test_buffer_poison(&b->f.lse);
    if (mmla_prefill_route_get(plan, &b->args, &taken) != MMLA_OK ||
        mmla_prefill_run(plan, &b->args, work.data, NULL) != MMLA_OK) {
        fail_msg("%s", b->f.error.message);
    }
    assert_int_equal(taken, route);
    compare(b);
    assert_true(test_buffer_is_intact(&work));
    assert_true(test_buffer_is_intact(&b->f.out));
    assert_true(test_buffer_is_intact(&b->f.lse));
    test_buffer_destroy(&work);
    mmla_prefill_plan_destroy(plan);
}

struct gpu_call {
    const mmla_prefill_plan *plan;
    mmla_prefill_args args;
    void *workspace;
};

static mmla_status enqueue(const void *job, void *stream) {
    const struct gpu_call *c = job;
    return mmla_prefill_run(c->plan, &c->args, c->workspace, stream);
}

/* Enqueued, and from a graph that was recorded over poison: the same bits. */
static void run_on_gpu(batch *b, mmla_context *ctx, mmla_prefill_route route) {
    static const size_t pointers[] = {
        offsetof(mmla_prefill_args, q),
        offsetof(mmla_prefill_args, positions),
        offsetof(mmla_prefill_args, cos_sin),
        offsetof(mmla_prefill_args, sink),
        offsetof(mmla_prefill_args, query_start),
        offsetof(mmla_prefill_args, seq_lens),
        offsetof(mmla_prefill_args, request),
        offsetof(mmla_prefill_args, topk),
        offsetof(mmla_prefill_args, window_table),
        offsetof(mmla_prefill_args, compressed_table),
        offsetof(mmla_prefill_args, window_cache),
        offsetof(mmla_prefill_args, compressed_cache),
        offsetof(mmla_prefill_args, out),
        offsetof(mmla_prefill_args, lse),
    };
    const attend_fixture *f = &b->f;
    const test_buffer *const buffers[] = {&f->q,      &f->positions,  &f->cos_sin, &f->sink,
                                          &f->window, &f->compressed, &f->out,     &f->lse};
    mmla_prefill_plan *plan = plan_of(b, ctx, route);
    test_buffer work = test_buffer_create(mmla_prefill_workspace_bytes(plan), 64);
    struct gpu_call call = {.plan = plan, .args = b->args};
    test_mirror m;
    assert_true(test_mirror_open(&m));
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        if (buffers[i]->data != NULL) {
            test_mirror_add_buffer(&m, buffers[i]);
        }
    }
    test_mirror_add(&m, b->query_start, sizeof b->query_start);
    test_mirror_add(&m, b->seq_lens, sizeof b->seq_lens);
    test_mirror_add(&m, b->window_table, sizeof b->window_table);
    test_mirror_add(&m, b->compressed_table, sizeof b->compressed_table);
    test_mirror_add(&m, b->request, (size_t)f->n_tokens * 4);
    test_mirror_add(&m, b->topk, (size_t)f->n_tokens * (size_t)b->desc.topk_width * 4 + 4);
    test_mirror_add_buffer(&m, &work);
    test_mirror_move(&m, &call.args, pointers, sizeof pointers / sizeof pointers[0]);
    call.workspace = test_mirror_at(&m, work.data);
    for (int graph = 0; graph < 2; graph++) {
        test_buffer_poison(&b->f.out);
        test_buffer_poison(&b->f.lse);
        if (graph == 0) {
            test_mirror_push(&m);
        }
        const mmla_status status =
            graph == 0 ? enqueue(&call, m.stream) : test_graph_run(&m, enqueue, &call);
        if (status != MMLA_OK) {
            fail_msg("%s", f->error.message);
        }
        test_mirror_pull(&m, f->out.data);
        test_mirror_pull(&m, f->lse.data);
        test_mirror_pull(&m, work.data);
        assert_true(test_buffer_is_intact(&f->out));
        assert_true(test_buffer_is_intact(&f->lse));
        assert_true(test_buffer_is_intact(&work));
        compare(b);
    }
    test_mirror_close(&m);
    test_buffer_destroy(&work);
    mmla_prefill_plan_destroy(plan);
}

static shape draw_shape(test_rng *rng) {
    static const mmla_kv_format pairs[][2] = {{MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
                                              {MMLA_KV_V41_FP8, MMLA_KV_V41_FP8},
                                              {MMLA_KV_V4, MMLA_KV_V4}};
    static const int32_t heads[] = {8, 16, 64, 128}, windows[] = {1, 2, 37, 128};
    static const int32_t pages[] = {2, 16, 61, 64};
    const int64_t pair = test_rng_below(rng, 3);
    shape s = {.window_format = pairs[pair][0],
               .compressed_format = pairs[pair][1],
               .ratio = (int32_t)test_rng_below(rng, 3),
               .heads = heads[test_rng_below(rng, 4)],
               .window = windows[test_rng_below(rng, 4)],
               .page_tokens = pages[test_rng_below(rng, 4)]};
    s.topk_width = s.ratio == 0 ? 0 : (int32_t)(1 + test_rng_below(rng, 60));
    s.seq_most = (int32_t)(1 + test_rng_below(rng, s.page_tokens == 2 ? 2 * TABLE : 150));
    return s;
}

static void both_routes_give_what_the_definition_gives(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    mmla_context *gpu = NULL;
    test_rng rng = {seed};
    (void)mmla_context_create(&options, &gpu, NULL);
    for (int i = 0; i < 24; i++) {
        const shape s = draw_shape(&rng);
        batch b = batch_create(&s, &rng);
        point(&b);
        run_on_cpu(&b, MMLA_PREFILL_PAGED);
        run_on_cpu(&b, MMLA_PREFILL_WORKSPACE);
        if (gpu != NULL) {
            run_on_gpu(&b, gpu, MMLA_PREFILL_PAGED);
            run_on_gpu(&b, gpu, MMLA_PREFILL_WORKSPACE);
        }
        batch_destroy(&b);
    }
    mmla_context_destroy(gpu);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_routes_give_what_the_definition_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
