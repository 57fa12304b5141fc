/* lists_cuda_test.c - what only a GPU does: starts that nobody has refused, and graphs that are
 * replayed. lists_prop.c has the random batches. Skipped where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/lists/lists_rule.h"
#include "support/gpu_mirror.h"
#include "support/list_pointers.h"
#include "support/rng.h"

static uint64_t seed;
static mmla_context *gpu; /* NULL where there is none */

static int open_gpu(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    const bool none = mmla_gpu_count() == 0;
    return none || mmla_context_create(&options, &gpu, NULL) == MMLA_OK ? 0 : -1;
}

static int close_gpu(void **state) {
    (void)state;
    mmla_context_destroy(gpu);
    return 0;
}

static int32_t nasty(test_rng *rng) {
    static const int32_t values[] = {INT32_MIN, -1, 0, 1, 2, 31, 100, INT32_MAX - 1, INT32_MAX};
    return values[test_rng_below(rng, sizeof values / sizeof values[0])];
}

/* --- a call with its arrays, of any kind ------------------------------------------------------ */

/* A small batch: T tokens, R requests, with results for both devices. */
enum { T = 97, R = 40, TABLE = 9, SPANS = 50, WIDTH = 300, TOPK = 200 };

typedef struct batch {
    mmla_list_desc desc;
    mmla_list_args args;
    int32_t query_start[R + 1], seq_lens[R], gather_lens[R], block_table[R][TABLE], topk[T][TOPK];
    int32_t request[T], left[T], right[T], span_start[R + 1], spans[SPANS][2];
    uint8_t valid[T];
    int32_t n_faults;
    test_buffer list, lens, out_left, out_right;
    test_mirror mirror;
} batch;

/* Legal starts; all else anything. */
static void draw(batch *b, test_rng *rng) {
    b->query_start[0] = b->span_start[0] = 0;
    for (int q = 0; q < R; q++) {
        b->query_start[q + 1] = b->query_start[q] + (int32_t)test_rng_below(rng, 5) / 2;
        b->span_start[q + 1] = b->span_start[q] + (int32_t)test_rng_below(rng, 2);
        b->seq_lens[q] = (int32_t)test_rng_below(rng, 600);
        b->gather_lens[q] = (int32_t)test_rng_below(rng, 300);
        for (int i = 0; i < TABLE; i++) {
            b->block_table[q][i] = (int32_t)test_rng_below(rng, 10) - 1;
        }
    }
    for (int q = 1; q <= R; q++) {
        b->query_start[q] = b->query_start[q] < T ? b->query_start[q] : T;
    }
    for (int i = 0; i < SPANS; i++) {
        b->spans[i][0] = (int32_t)test_rng_below(rng, 600);
        b->spans[i][1] = b->spans[i][0] + (int32_t)test_rng_below(rng, 300);
    }
    for (int t = 0; t < T; t++) {
        b->request[t] = (int32_t)test_rng_below(rng, R + 2) - 1;
        b->left[t] = (int32_t)test_rng_below(rng, 30);
        b->right[t] = (int32_t)test_rng_below(rng, 30);
        b->valid[t] = test_rng_below(rng, 6) != 0;
        for (int k = 0; k < TOPK; k++) {
            b->topk[t][k] = (int32_t)test_rng_below(rng, 700) - 60;
        }
    }
}

static batch *batch_create(mmla_list_kind kind, int32_t width, test_rng *rng) {
    batch *b = calloc(1, sizeof *b);
    assert_non_null(b);
    assert_true(test_mirror_open(&b->mirror));
    b->desc = (mmla_list_desc){.kind = kind,
                               .max_tokens = T,
                               .max_requests = R,
                               .window = width < WIDTH ? 20 : 60,
                               .page_tokens = 61,
                               .n_pages = 8,
                               .table_width = TABLE,
                               .width = width,
                               .list_stride = width + 3,
                               .topk_width = width < TOPK ? width : TOPK,
                               .topk_stride = TOPK,
                               .ratio = 2,
                               .topk = width < WIDTH ? 30 : TOPK,
                               .request_rows = 500,
                               .window_offset = 280,
                               .image_tokens = 16};
    b->list = test_buffer_create((size_t)(T * (width + 3)) * 4, 4);
    b->lens = test_buffer_create(T * 4, 4);
    b->out_left = test_buffer_create(T * 4, 4);
    b->out_right = test_buffer_create(T * 4, 4);
    b->args = (mmla_list_args){.n_tokens = T,
                               .n_requests = R,
                               .query_start = b->query_start,
                               .seq_lens = b->seq_lens,
                               .gather_lens = b->gather_lens,
                               .block_table = b->block_table[0],
                               .request = b->request,
                               .topk = b->topk[0],
                               .valid = b->valid,
                               .left = b->left,
                               .right = b->right,
                               .span_start = b->span_start,
                               .spans = b->spans[0],
                               .n_spans = SPANS,
                               .list = b->list.data,
                               .lens = b->lens.data,
                               .out_left = b->out_left.data,
                               .out_right = b->out_right.data,
                               .n_faults = &b->n_faults};
    draw(b, rng);
    test_mirror_add(&b->mirror, b, offsetof(batch, list)); /* all inputs, and n_faults */
    test_mirror_add_buffer(&b->mirror, &b->list);
    test_mirror_add_buffer(&b->mirror, &b->lens);
    test_mirror_add_buffer(&b->mirror, &b->out_left);
    test_mirror_add_buffer(&b->mirror, &b->out_right);
    return b;
}

/* COMBINED: with gather_lens or without, in the workspace of the description or of the call. */
static void draw_call(batch *b, test_rng *rng) {
    b->args.gather_lens = test_rng_below(rng, 2) == 0 ? NULL : b->gather_lens;
    b->args.request_rows = test_rng_below(rng, 2) * (80 + test_rng_below(rng, 1000));
    b->args.window_offset = test_rng_below(rng, 80);
}

static void batch_destroy(batch *b) {
    test_buffer *const outputs[] = {&b->list, &b->lens, &b->out_left, &b->out_right};
    for (int i = 0; i < 4; i++) {
        assert_true(test_buffer_is_intact(outputs[i]));
        test_buffer_destroy(outputs[i]);
    }
    test_mirror_close(&b->mirror);
    free(b);
}

static void pull(batch *b) {
    const batch before = *b;
    test_mirror_pull(&b->mirror, b);
    b->n_faults -= before.n_faults;
    assert_memory_equal(b->query_start, before.query_start,
                        offsetof(batch, n_faults) - offsetof(batch, query_start)); /* inputs */
    test_mirror_pull(&b->mirror, b->list.data);
    test_mirror_pull(&b->mirror, b->lens.data);
    test_mirror_pull(&b->mirror, b->out_left.data);
    test_mirror_pull(&b->mirror, b->out_right.data);
}

static mmla_list_plan *plan_of(const batch *b) {
    mmla_error err;
    mmla_list_plan *plan;
    if (mmla_list_plan_create(gpu, &b->desc, &plan, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    return plan;
}

static void run(batch *b, const mmla_list_plan *plan) {
    mmla_error err;
    mmla_list_args args = b->args;
    test_mirror_move(&b->mirror, &args, test_list_pointers, TEST_LIST_POINTERS);
    args.error = &err;
    if (mmla_list_run(plan, &args, NULL, b->mirror.stream) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
}

/* --- what is expected, for any starts --------------------------------------------------------- */

static int64_t request_of(const mmla_list_args *args, int64_t t) {
    mmla_lists_search s = {0, args->n_requests};
    while (s.low < s.high) {
        int32_t n = 0;
        while (n < MMLA_LISTS_PROBES && mmla_lists_search_probe(args, s, n, t)) {
            n++;
        }
        s = mmla_lists_search_narrow(s, n);
    }
    return s.low;
}

static void check_row(const batch *b, const mmla_lists_problem *p, int64_t t) {
    const mmla_list_kind kind = b->desc.kind;
    const int32_t *got = (int32_t *)b->list.data + t * p->desc.list_stride;
    mmla_lists_token token;
    int64_t n = 0;
    mmla_lists_run rest = {0, 0};
    if (b->valid[t] != 0 &&
        mmla_lists_token_of_query(&b->args, request_of(&b->args, t), t, &token)) {
        const mmla_lists_row row = mmla_lists_row_get(kind, p, &b->args, &token);
        for (int64_t i = 0; i < row.n; i++) {
            const int32_t entry =
                mmla_lists_entry(kind, p, &row, mmla_lists_candidate(kind, &row, i));
            if (entry >= 0) {
                assert_int_equal(got[n++], entry);
            }
        }
        if (kind == MMLA_LIST_COMBINED) {
            rest = mmla_lists_window_run(p, &b->args, &token, n);
        }
    }
    assert_int_equal(((int32_t *)b->lens.data)[t], n + rest.n);
    for (int64_t k = n; k < p->desc.width; k++) {
        assert_int_equal(got[k], k - n < rest.n ? rest.first + (k - n) : -1);
    }
    for (int64_t k = p->desc.width; k < p->desc.list_stride; k++) {
        assert_memory_equal(&got[k], "\xA5\xA5\xA5\xA5", 4);
    }
}

static void check_reach(const batch *b, const mmla_lists_problem *p, int64_t t) {
    mmla_lists_token token;
    mmla_lists_reach want = {0, 0};
    if (mmla_lists_token_of_query(&b->args, request_of(&b->args, t), t, &token)) {
        const mmla_lists_spans spans = mmla_lists_spans_get(p, &b->args, token.request);
        for (int64_t i = spans.first; i < spans.stop; i++) {
            if (mmla_lists_span_holds(&b->args, i, token.pos)) {
                want = mmla_lists_reach_get(p, &b->args, i, token.pos);
                break;
            }
        }
    }
    assert_int_equal(((int32_t *)b->out_left.data)[t], want.left);
    assert_int_equal(((int32_t *)b->out_right.data)[t], want.right);
}

static void check(const batch *b) {
    mmla_lists_problem p = {.desc = b->desc};
    p.desc.table_stride = TABLE;
    if (b->args.request_rows != 0) {
        p.desc.request_rows = b->args.request_rows;
        p.desc.window_offset = b->args.window_offset;
    }
    p.table = (mmla_kv_table){b->desc.page_tokens, TABLE, b->desc.n_pages};
    for (int64_t t = 0; t < T; t++) {
        if (b->desc.kind == MMLA_LIST_IMAGE_SPANS) {
            check_reach(b, &p, t);
        } else {
            check_row(b, &p, t);
        }
    }
    int64_t n_bad = 0;
    for (int64_t i = 0; i <= R; i++) {
        n_bad += !mmla_lists_start_is_legal(b->query_start, i, T);
        n_bad += b->desc.kind == MMLA_LIST_IMAGE_SPANS &&
                 !mmla_lists_start_is_legal(b->span_start, i, SPANS);
    }
    assert_int_equal(b->n_faults, n_bad);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void garbage_starts_are_counted_and_leave_legal_rows(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    static const mmla_list_kind kinds[] = {MMLA_LIST_WINDOW, MMLA_LIST_DRAFT, MMLA_LIST_COMBINED,
                                           MMLA_LIST_IMAGE_SPANS};
    test_rng rng = {seed};
    for (int i = 0; i < 4; i++) {
        for (int wide = 0; wide < 2; wide++) {
            batch *b = batch_create(kinds[i], wide ? WIDTH : 77, &rng);
            mmla_list_plan *plan = plan_of(b);
            for (int round = 0; round < 25; round++) {
                draw(b, &rng); /* every fifth round has legal starts */
                draw_call(b, &rng);
                for (int q = 0; q <= R && round % 5 != 0; q++) {
                    if (test_rng_below(&rng, 3) == 0) {
                        b->query_start[q] = nasty(&rng);
                    }
                    if (test_rng_below(&rng, 3) == 0) {
                        b->span_start[q] = nasty(&rng);
                    }
                    if (q < R && test_rng_below(&rng, 3) == 0) {
                        b->seq_lens[q] = nasty(&rng);
                    }
                }
                b->n_faults = 7;
                test_mirror_push(&b->mirror);
                run(b, plan);
                pull(b);
                check(b);
            }
            mmla_list_plan_destroy(plan);
            batch_destroy(b);
        }
    }
}

static void a_replayed_graph_follows_new_lengths(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    static const mmla_list_kind kinds[] = {MMLA_LIST_WINDOW, MMLA_LIST_DRAFT, MMLA_LIST_COMBINED,
                                           MMLA_LIST_IMAGE_SPANS, MMLA_LIST_COMBINED};
    test_rng rng = {seed + 1};
    mmla_error err;
    for (int i = 0; i < 5; i++) {
        batch *b = batch_create(kinds[i], i % 2 == 0 ? 80 : WIDTH, &rng);
        if (i == 4) { /* window rows that follow query_start */
            b->args.gather_lens = NULL;
            b->args.request_rows = 330;
            b->args.window_offset = 300;
        }
        mmla_list_plan *plan = plan_of(b);
        mmla_gpu_graph *graph;
        test_mirror *m = &b->mirror;
        test_mirror_push(m);
        assert_int_equal(mmla_gpu_capture_begin(&m->gpu, m->stream, &err), MMLA_OK);
        run(b, plan);
        assert_int_equal(mmla_gpu_capture_end(&m->gpu, m->stream, &graph, &err), MMLA_OK);
        for (int round = 0; round < 4; round++) {
            draw(b, &rng);
            if (round == 3) { /* all padding */
                memset(b->valid, 0, sizeof b->valid);
                memset(b->query_start, 0, sizeof b->query_start);
            }
            test_buffer_poison(&b->list);
            test_mirror_push(m);
            assert_int_equal(mmla_gpu_graph_launch(&m->gpu, graph, m->stream, &err), MMLA_OK);
            pull(b);
            check(b);
        }
        mmla_gpu_graph_destroy(&m->gpu, graph);
        mmla_list_plan_destroy(plan);
        batch_destroy(b);
    }
}

static void faults_add_up_over_calls(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    test_rng rng = {seed + 2};
    batch *b = batch_create(MMLA_LIST_WINDOW, 64, &rng);
    mmla_list_plan *plan = plan_of(b);
    b->query_start[0] = 5;
    b->query_start[R] = INT32_MIN;
    b->n_faults = 40;
    test_mirror_push(&b->mirror);
    run(b, plan);
    run(b, plan);
    b->args.n_faults = NULL; /* not asked for */
    run(b, plan);
    test_mirror_pull(&b->mirror, b);
    assert_in_range(b->n_faults, 40 + 2 * 2, 40 + 2 * 3); /* [1] may lie below 5 */
    assert_int_equal(b->n_faults % 2, 0);
    mmla_list_plan_destroy(plan);
    batch_destroy(b);
}

static void spans_come_with_their_number_on_a_gpu(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    test_rng rng = {seed + 4};
    batch *b = batch_create(MMLA_LIST_IMAGE_SPANS, 64, &rng);
    mmla_list_plan *plan = plan_of(b);
    mmla_error err;
    mmla_list_args args = b->args;
    test_mirror_move(&b->mirror, &args, test_list_pointers, TEST_LIST_POINTERS);
    args.n_spans = 0;
    args.error = &err;
    assert_int_equal(mmla_list_run(plan, &args, NULL, b->mirror.stream), MMLA_E_SHAPE);
    assert_string_equal(err.argument, "n_spans");
    args.n_tokens = 0; /* touches nothing */
    assert_int_equal(mmla_list_run(plan, &args, NULL, b->mirror.stream), MMLA_OK);
    mmla_list_plan_destroy(plan);
    batch_destroy(b);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_starts_are_counted_and_leave_legal_rows),
        cmocka_unit_test(a_replayed_graph_follows_new_lengths),
        cmocka_unit_test(faults_add_up_over_calls),
        cmocka_unit_test(spans_come_with_their_number_on_a_gpu),
    };
    return cmocka_run_group_tests_name("lists_cuda", tests, open_gpu, close_gpu);
}
