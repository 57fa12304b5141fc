/* prefill_call_test.c - every argument of a call is refused by name when it is wrong, before a result
 * is written; and what calls at the edges of the contract give: of no tokens, of no requests, with
 * padding between rows.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/prefill.h>

#include "support/attend_fixture.h"

/* Two requests: 2 of 5 tokens are queries, and 1 of 7. Window rows of both: 2 + 3 and 1 + 3; records:
 * 2 and 3. So the workspace has 3 + 5 rows for each of them. */
enum { T = 3, R = 2, W = 4, TOPK = 2, ROWS = R * 8 };
static const int32_t query_lens[R] = {2, 1}, seq_lens[R] = {5, 7}, query_start[R + 1] = {0, 2, 3};
static const int32_t window_table[R] = {0, 2}, compressed_table[R] = {1, 4};
static const int32_t request[T] = {0, 0, 1}, topk[T * TOPK] = {0, 1, 1, -1, 2, 0};

typedef struct call {
    attend_fixture f;
    mmla_prefill_desc desc;
    mmla_prefill_plan *plan;
    mmla_prefill_args args;
    void *workspace;
    test_buffer work;
} call;

static void plan_again(call *c) {
    mmla_prefill_plan_destroy(c->plan);
    test_buffer_destroy(&c->work);
    if (mmla_prefill_plan_create(c->f.ctx, &c->desc, &c->plan, &c->f.error) != MMLA_OK) {
        fail_msg("%s", c->f.error.message);
    }
    c->work = test_buffer_create(mmla_prefill_workspace_bytes(c->plan), 64);
    c->workspace = c->work.data;
}

static call call_create(mmla_prefill_route route) {
    call c = {.f = attend_fixture_paged(1)};
    c.f.n_tokens = T;
    attend_fixture_fill(&c.f, 1);
    c.desc = (mmla_prefill_desc){.attend = c.f.desc,
                                 .max_requests = R,
                                 .window = W,
                                 .ratio = 2,
                                 .topk_width = TOPK,
                                 .window_table_width = 1,
                                 .compressed_table_width = 1,
                                 .max_rows = ROWS,
                                 .route = route};
    c.desc.attend.list_width = c.desc.attend.compressed_width = 0;
    plan_again(&c);
    c.args = (mmla_prefill_args){.n_tokens = T,
                                 .n_requests = R,
                                 .host_query_lens = query_lens,
                                 .host_seq_lens = seq_lens,
                                 .q = c.f.args.q,
                                 .positions = c.f.args.positions,
                                 .cos_sin = c.f.args.cos_sin,
                                 .sink = c.f.args.sink,
                                 .query_start = query_start,
                                 .seq_lens = seq_lens,
                                 .request = request,
                                 .topk = topk,
                                 .window_table = window_table,
                                 .compressed_table = compressed_table,
                                 .window_cache = c.f.args.window_cache,
                                 .compressed_cache = c.f.args.compressed_cache,
                                 .out = c.f.args.out,
                                 .out_scale = c.f.args.out_scale,
                                 .lse = c.f.args.lse,
                                 .max_logits = c.f.args.max_logits};
    return c;
}

static void call_destroy(call *c) {
    mmla_prefill_plan_destroy(c->plan);
    test_buffer_destroy(&c->work);
    attend_fixture_destroy(&c->f);
}

enum { OUTPUTS = 4 };

static mmla_status call_run(call *c) {
    test_buffer *const outputs[OUTPUTS] = {&c->f.out, &c->f.out_scale, &c->f.lse, &c->f.max_logits};
    for (int i = 0; i < OUTPUTS; i++) {
        test_buffer_poison(outputs[i]);
    }
    c->f.error = (mmla_error){0};
    c->args.error = &c->f.error;
    const mmla_status status = mmla_prefill_run(c->plan, &c->args, c->workspace, NULL);
    for (int i = 0; i < OUTPUTS; i++) {
        assert_true(test_buffer_is_intact(outputs[i]));
    }
    assert_true(test_buffer_is_intact(&c->work));
    return status;
}

static bool nothing_is_written(const call *c) {
    const test_buffer *const outputs[OUTPUTS] = {&c->f.out, &c->f.out_scale, &c->f.lse,
                                                 &c->f.max_logits};
    bool untouched = true;
    for (int i = 0; i < OUTPUTS; i++) {
        untouched = untouched && test_buffer_is_untouched(outputs[i], 0, outputs[i]->bytes);
    }
    return untouched;
}

static void run_or_fail(call *c) {
    if (call_run(c) != MMLA_OK) {
        fail_msg("%s", c->f.error.message);
    }
}

static void refuse(call *c, mmla_status want, const char *argument) {
    assert_int_equal(call_run(c), want);
    assert_int_equal(c->f.error.status, want);
    assert_string_equal(c->f.error.argument, argument);
    assert_true(nothing_is_written(c));
    c->args.error = NULL;
    assert_int_equal(mmla_prefill_run(c->plan, &c->args, c->workspace, NULL), want);
}

/* A good call but for one change. */
#define REFUSE(c, change, want, argument) \
    do {                                  \
        call copy = (c);                  \
        copy.change;                      \
        refuse(&copy, want, argument);    \
    } while (0)

/* A pointer that is missing, and one that is a few bytes off. */
#define REFUSE_POINTER(c, field, off, argument)                                                \
    do {                                                                                       \
        REFUSE(c, field = NULL, MMLA_E_NULL, argument);                                        \
        REFUSE(c, field = (void *)((uintptr_t)(c).field + (off)), MMLA_E_ALIGNMENT, argument); \
    } while (0)

#define FOR_BOTH_ROUTES(route)                                                           \
    for (mmla_prefill_route route = MMLA_PREFILL_PAGED; route <= MMLA_PREFILL_WORKSPACE; \
         route = (mmla_prefill_route)(route + 1))

static void wrong_counts_are_named_and_nothing_is_written(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        run_or_fail(&c);
        assert_false(nothing_is_written(&c));
        REFUSE(c, args.n_tokens = -1, MMLA_E_SHAPE, "n_tokens");
        REFUSE(c, args.n_tokens = T + 1, MMLA_E_SHAPE, "n_tokens");
        REFUSE(c, args.n_tokens = INT64_MIN, MMLA_E_SHAPE, "n_tokens");
        REFUSE(c, args.n_requests = -1, MMLA_E_SHAPE, "n_requests");
        REFUSE(c, args.n_requests = R + 1, MMLA_E_SHAPE, "n_requests");
        mmla_prefill_route got = (mmla_prefill_route)77;
        c.args.n_tokens = T + 1;
        assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, &got), MMLA_E_SHAPE);
        assert_string_equal(c.f.error.argument, "n_tokens");
        assert_int_equal(got, 77);
        call_destroy(&c);
    }
}

static void wrong_pointers_are_named_and_nothing_is_written(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        REFUSE_POINTER(c, workspace, 32, "workspace");
        REFUSE_POINTER(c, args.q, 2, "q");
        REFUSE_POINTER(c, args.positions, 2, "positions");
        REFUSE_POINTER(c, args.cos_sin, 1, "cos_sin");
        REFUSE_POINTER(c, args.query_start, 2, "query_start");
        REFUSE_POINTER(c, args.seq_lens, 2, "seq_lens");
        REFUSE_POINTER(c, args.topk, 2, "topk");
        REFUSE_POINTER(c, args.window_table, 2, "window_table");
        REFUSE_POINTER(c, args.compressed_table, 2, "compressed_table");
        REFUSE_POINTER(c, args.window_cache, 8, "window_cache");
        REFUSE_POINTER(c, args.compressed_cache, 8, "compressed_cache");
        REFUSE_POINTER(c, args.out, 16, "out");
        REFUSE_POINTER(c, args.out_scale, 2, "out_scale");
        REFUSE(c, args.sink = (float *)((uintptr_t)c.args.sink + 2), MMLA_E_ALIGNMENT, "sink");
        REFUSE(c, args.lse = (float *)((uintptr_t)c.args.lse + 2), MMLA_E_ALIGNMENT, "lse");
        REFUSE(c, args.max_logits = (float *)((uintptr_t)c.args.max_logits + 2), MMLA_E_ALIGNMENT,
               "max_logits");
        REFUSE(c, args.n_faults = (int32_t *)((uintptr_t)&c + 2), MMLA_E_ALIGNMENT, "n_faults");
        if (route == MMLA_PREFILL_PAGED) { /* the other one finds requests in query_start */
            REFUSE_POINTER(c, args.request, 2, "request");
        } else {
            REFUSE_POINTER(c, args.host_query_lens, 2, "host_query_lens");
            REFUSE_POINTER(c, args.host_seq_lens, 2, "host_seq_lens");
        }
        run_or_fail(&c); /* nothing above has spoiled the call itself */
        call_destroy(&c);
    }
}

static void plan_and_args_may_not_be_null(void **state) {
    (void)state;
    call c = call_create(MMLA_PREFILL_PAGED);
    mmla_prefill_route route;
    c.args.error = &c.f.error;
    assert_int_equal(mmla_prefill_run(NULL, &c.args, c.workspace, NULL), MMLA_E_NULL);
    assert_string_equal(c.f.error.message, "plan: is NULL");
    assert_int_equal(mmla_prefill_run(c.plan, NULL, c.workspace, NULL), MMLA_E_NULL);
    c.f.error = (mmla_error){0};
    assert_int_equal(mmla_prefill_route_get(NULL, &c.args, &route), MMLA_E_NULL);
    assert_string_equal(c.f.error.message, "plan: is NULL");
    assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, NULL), MMLA_E_NULL);
    assert_string_equal(c.f.error.message, "route: is NULL");
    assert_int_equal(mmla_prefill_route_get(c.plan, NULL, &route), MMLA_E_NULL);
    call_destroy(&c);
}

/* --- lengths and routes ----------------------------------------------------------------------- */

/* The same answer from route_get, which leaves the route as it was. */
static void refuse_lengths(const int32_t *query, const int32_t *seq, const char *argument) {
    call c = call_create(MMLA_PREFILL_WORKSPACE);
    mmla_prefill_route route = (mmla_prefill_route)77;
    c.args.host_query_lens = query;
    c.args.host_seq_lens = seq;
    refuse(&c, MMLA_E_INDEX, argument);
    c.args.error = &c.f.error;
    c.f.error = (mmla_error){0};
    assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, &route), MMLA_E_INDEX);
    assert_string_equal(c.f.error.argument, argument);
    assert_int_equal(route, 77);
    call_destroy(&c);
}

static void lengths_of_no_request_are_refused(void **state) {
    (void)state;
    const int32_t negative[R] = {2, -1}, longer[R] = {2, 8}, minimum[R] = {INT32_MIN, 1};
    refuse_lengths(query_lens, negative, "host_seq_lens");
    refuse_lengths(query_lens, minimum, "host_seq_lens");
    refuse_lengths(negative, seq_lens, "host_query_lens");
    refuse_lengths(minimum, seq_lens, "host_query_lens");
    refuse_lengths(longer, seq_lens, "host_query_lens");
}

static void too_few_rows_refuse_a_call_by_the_workspace(void **state) {
    (void)state;
    static const int32_t longest[R] = {INT32_MAX, INT32_MAX};
    call c = call_create(MMLA_PREFILL_WORKSPACE);
    mmla_prefill_route route = (mmla_prefill_route)77;
    c.args.error = &c.f.error;
    assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, &route), MMLA_OK);
    assert_int_equal(route, MMLA_PREFILL_WORKSPACE);
    run_or_fail(&c); /* ROWS are enough */
    c.desc.max_rows = ROWS - 1;
    plan_again(&c);
    route = (mmla_prefill_route)77;
    refuse(&c, MMLA_E_SHAPE, "max_rows");
    assert_string_equal(c.f.error.message,
                        "max_rows: is 15, must be at least 2 requests of 8 rows");
    c.args.error = &c.f.error;
    assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, &route), MMLA_E_SHAPE);
    assert_int_equal(route, 77);
    c.args.host_query_lens = c.args.host_seq_lens = longest; /* each takes 1.5 * 2^31 rows */
    c.desc.max_rows = INT32_MAX;
    mmla_prefill_plan_destroy(c.plan);
    assert_int_equal(mmla_prefill_plan_create(c.f.ctx, &c.desc, &c.plan, NULL), MMLA_OK);
    refuse(&c, MMLA_E_SHAPE, "max_rows");
    call_destroy(&c);
}

static void plans_without_a_workspace_read_no_host_lengths(void **state) {
    (void)state;
    const mmla_prefill_route always_paged[] = {MMLA_PREFILL_PAGED, MMLA_PREFILL_AUTO};
    for (int i = 0; i < 2; i++) {
        call c = call_create(always_paged[i]);
        mmla_prefill_route route;
        c.args.host_query_lens = c.args.host_seq_lens = NULL;
        run_or_fail(&c);
        assert_int_equal(mmla_prefill_route_get(c.plan, &c.args, &route), MMLA_OK);
        assert_int_equal(route, MMLA_PREFILL_PAGED);
        call_destroy(&c);
    }
}

/* --- edges ------------------------------------------------------------------------------------ */

static void zero_tokens_need_no_pointer_and_touch_nothing(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        for (int64_t n_requests = 0; n_requests <= R; n_requests += R) {
            call c = call_create(route);
            c.args = (mmla_prefill_args){.n_requests = n_requests};
            c.workspace = NULL;
            run_or_fail(&c);
            assert_true(nothing_is_written(&c));
            assert_true(test_buffer_is_untouched(&c.work, 0, c.work.bytes));
            call_destroy(&c);
        }
    }
}

static void without_requests_no_token_has_a_key(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        c.args.n_requests = 0;
        c.args.host_query_lens = c.args.host_seq_lens = NULL;
        c.args.query_start = c.args.seq_lens = NULL;
        c.args.window_table = c.args.compressed_table = NULL;
        run_or_fail(&c);
        for (int t = 0; t < T; t++) {
            for (int32_t h = 0; h < c.desc.attend.n_heads; h++) {
                const int32_t i = t * c.desc.attend.n_heads + h;
                assert_true(((const float *)c.f.lse.data)[i] == INFINITY);
                assert_true(((const float *)c.f.max_logits.data)[i] == -INFINITY);
                for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
                    assert_true(attend_fixture_out(&c.f, t, h, x) == 0.0);
                }
            }
        }
        call_destroy(&c);
    }
}

/* A step that fails when it has begun: its faults are counted, results are as they were. */
static void illegal_starts_are_counted_and_no_result_is_written(void **state) {
    (void)state;
    static const int32_t beyond[R + 1] = {0, 2, T + 1};
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        int32_t n_faults = 10;
        c.args.query_start = beyond;
        c.args.n_faults = &n_faults;
        assert_int_equal(call_run(&c), MMLA_E_INDEX);
        assert_string_equal(c.f.error.argument, "query_start");
        assert_int_equal(n_faults, 11);
        assert_true(nothing_is_written(&c));
        call_destroy(&c);
    }
}

static void a_position_outside_cos_sin_spoils_its_token_alone(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        const size_t row = (size_t)c.desc.attend.n_heads * sizeof(float);
        int32_t positions[T];
        float want[T * MMLA_HEADS_MAX];
        const float *lse = c.f.lse.data;
        memcpy(positions, c.args.positions, sizeof positions);
        positions[1] = (int32_t)c.desc.attend.rope_positions;
        run_or_fail(&c);
        memcpy(want, lse, T * row);
        c.args.positions = positions;
        assert_int_equal(call_run(&c), MMLA_E_INDEX);
        assert_string_equal(c.f.error.argument, "positions");
        assert_memory_equal(lse, want, row);
        assert_true(isnan(lse[c.desc.attend.n_heads]));
        assert_memory_equal(lse + 2 * c.desc.attend.n_heads, want + 2 * c.desc.attend.n_heads, row);
        call_destroy(&c);
    }
}

static void an_empty_cache_needs_no_memory(void **state) {
    (void)state;
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        c.desc.attend.window.n_pages = c.desc.attend.compressed.n_pages = 0;
        plan_again(&c);
        c.args.window_cache = c.args.compressed_cache = NULL;
        run_or_fail(&c);
        call_destroy(&c);
    }
}

/* In the padding stand numbers that would be other keys. */
static void padding_between_rows_changes_no_bit(void **state) {
    (void)state;
    static const int32_t wide_topk[T * 5] = {0, 1, 2, 2, 2, 1, -1, 2, 2, 2, 2, 0, 1, 1, 1};
    static const int32_t wide_window[R * 3] = {0, 1, 1, 2, 1, 1};
    static const int32_t wide_compressed[R * 4] = {1, 0, 0, 0, 4, 0, 0, 0};
    FOR_BOTH_ROUTES(route) {
        call c = call_create(route);
        float want[T * MMLA_HEADS_MAX];
        run_or_fail(&c);
        memcpy(want, c.f.lse.data, c.f.lse.bytes);
        c.desc.topk_stride = 5;
        c.desc.window_table_stride = 3;
        c.desc.compressed_table_stride = 4;
        plan_again(&c);
        c.args.topk = wide_topk;
        c.args.window_table = wide_window;
        c.args.compressed_table = wide_compressed;
        run_or_fail(&c);
        assert_memory_equal(c.f.lse.data, want, c.f.lse.bytes);
        call_destroy(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_counts_are_named_and_nothing_is_written),
        cmocka_unit_test(wrong_pointers_are_named_and_nothing_is_written),
        cmocka_unit_test(plan_and_args_may_not_be_null),
        cmocka_unit_test(lengths_of_no_request_are_refused),
        cmocka_unit_test(too_few_rows_refuse_a_call_by_the_workspace),
        cmocka_unit_test(plans_without_a_workspace_read_no_host_lengths),
        cmocka_unit_test(zero_tokens_need_no_pointer_and_touch_nothing),
        cmocka_unit_test(without_requests_no_token_has_a_key),
        cmocka_unit_test(illegal_starts_are_counted_and_no_result_is_written),
        cmocka_unit_test(a_position_outside_cos_sin_spoils_its_token_alone),
        cmocka_unit_test(an_empty_cache_needs_no_memory),
        cmocka_unit_test(padding_between_rows_changes_no_bit),
    };
    return cmocka_run_group_tests_name("prefill_call", tests, NULL, NULL);
}
