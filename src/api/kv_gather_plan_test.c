/* What plan creation and run of kv_gather refuse, and what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/gather_fixture.h"

static mmla_context *ctx;

static int set_up(void **state) {
    (void)state;
    return mmla_context_create(NULL, &ctx, NULL);
}

static int tear_down(void **state) {
    (void)state;
    mmla_context_destroy(ctx);
    return 0;
}

static mmla_kv_gather_desc good(void) {
    return (mmla_kv_gather_desc){
        .cache = {.format = MMLA_KV_V41_FP8, .page_tokens = 64, .n_pages = 4},
        .max_requests = 8,
        .table_width = 3,
        .rows = 100,
    };
}

static void assert_refused(mmla_kv_gather_desc desc, mmla_status status, const char *message) {
    mmla_kv_gather_plan *plan = (mmla_kv_gather_plan *)&desc;
    mmla_error err;
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, &plan, &err), status);
    assert_null(plan);
    assert_int_equal(err.status, status);
    assert_string_equal(err.message, message);
    assert_int_equal(strncmp(err.message, err.argument, strlen(err.argument)), 0);
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, &plan, NULL), status);
}

#define REFUSE(change, status, message)     \
    do {                                    \
        mmla_kv_gather_desc d = good();     \
        change;                             \
        assert_refused(d, status, message); \
    } while (0)

static void gather_plan_takes_the_smallest_description(void **state) {
    (void)state;
    const mmla_kv_gather_desc desc = {
        .cache = {.format = MMLA_KV_V4, .page_tokens = 1}, .table_width = 1, .rows = 1};
    mmla_kv_gather_plan *plan;
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    assert_string_not_equal(mmla_kv_gather_plan_implementation(plan), "reference");
    mmla_kv_gather_plan_destroy(plan);
    mmla_kv_gather_plan_destroy(NULL);
}

static void gather_plan_refuses_a_wrong_description(void **state) {
    (void)state;
    REFUSE(d.cache.format = MMLA_KV_NONE, MMLA_E_FORMAT,
           "cache.format: is none, must be v4, v41_fp8 or v41_fp4");
    REFUSE(d.cache.format = MMLA_KV_INDEX_FP8, MMLA_E_FORMAT,
           "cache.format: is index_fp8, must be v4, v41_fp8 or v41_fp4");
    REFUSE(d.cache.n_pages = -1, MMLA_E_SHAPE,
           "cache.n_pages: is -1, must be 0 .. 33554431: slots of 64-record pages are int32");
    REFUSE(d.max_requests = -1, MMLA_E_SHAPE, "max_requests: is -1, must be 0 .. 2147483647");
    REFUSE(d.table_width = 0, MMLA_E_SHAPE, "table_width: is 0, must be 1 .. 2147483647");
    REFUSE(d.table_stride = 2, MMLA_E_STRIDE, "table_stride: is 2, must be at least 3 (or 0)");
    REFUSE(d.table_stride = INT64_C(1) << 59, MMLA_E_SIZE,
           "table_stride: is 576460752303423488, 8 such rows exceed 2^63 bytes");
    REFUSE(d.rows = 0, MMLA_E_SHAPE, "rows: is 0, must be 1 .. 2147483647");
    REFUSE(d.offset = 101, MMLA_E_SHAPE, "offset: is 101, must be 0 .. 100");
    REFUSE(d.offset = -1, MMLA_E_SHAPE, "offset: is -1, must be 0 .. 100");
    REFUSE(d.row_stride = 511, MMLA_E_STRIDE, "row_stride: is 511, must be at least 512 (or 0)");
    REFUSE(d.row_stride = 514, MMLA_E_ALIGNMENT, "row_stride: is 514, must be a multiple of 8");
    REFUSE(d.row_stride = INT64_C(1) << 53, MMLA_E_SIZE,
           "row_stride: is 9007199254740992, 800 such rows exceed 2^63 bytes");
    REFUSE((d.max_requests = d.rows = INT32_MAX), MMLA_E_SIZE,
           "row_stride: is 512, 4611686014132420609 such rows exceed 2^63 bytes");
    REFUSE(d.ratio = -1, MMLA_E_VALUE, "ratio: is -1, must be 0 .. 2");
    REFUSE(d.ratio = 3, MMLA_E_VALUE, "ratio: is 3, must be 0 .. 2");
    REFUSE(d.window = -1, MMLA_E_VALUE, "window: is -1, must be 0 .. 2147483647");
    REFUSE((d.ratio = 2, d.window = 128), MMLA_E_VALUE,
           "window: is 128, must be 0 for records of ratio 2: a window is one of tokens");
    REFUSE(d.implementation = "", MMLA_E_NO_IMPLEMENTATION,
           "implementation: is \"\", which kv_gather does not have");
}

static void gather_plan_takes_every_ratio_and_any_window_of_tokens(void **state) {
    (void)state;
    static const int32_t legal[][2] = {{0, 0}, {1, 0}, {2, 0},         {0, 1},
                                       {1, 1}, {1, 5}, {0, INT32_MAX}, {1, INT32_MAX}};
    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
        mmla_kv_gather_desc desc = good();
        desc.ratio = legal[i][0];
        desc.window = legal[i][1];
        mmla_kv_gather_plan *plan;
        assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
        mmla_kv_gather_plan_destroy(plan);
    }
}

static void gather_plan_names_its_null_arguments(void **state) {
    (void)state;
    const mmla_kv_gather_desc desc = good();
    mmla_kv_gather_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_kv_gather_plan_create(NULL, &desc, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "ctx: is NULL");
    assert_null(plan);
    assert_int_equal(mmla_kv_gather_plan_create(ctx, NULL, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "desc: is NULL");
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "plan: is NULL");
}

/* A call refused with status and about argument, with and without room for the error. */
static void assert_run_refused(const mmla_kv_gather_plan *plan,
                               mmla_kv_gather_args args,
                               mmla_status status,
                               const char *argument) {
    mmla_error err;
    args.error = &err;
    assert_int_equal(mmla_kv_gather_run(plan, &args, NULL, NULL), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.argument, argument);
    args.error = NULL;
    assert_int_equal(mmla_kv_gather_run(plan, &args, NULL, NULL), status);
}

/* Each line of args broken by itself. */
#define REFUSE_RUN(change, status, argument)           \
    do {                                               \
        mmla_kv_gather_args a = f.args;                \
        change;                                        \
        assert_run_refused(plan, a, status, argument); \
    } while (0)

static void gather_run_refuses_wrong_arguments(void **state) {
    (void)state;
    gather_fixture f = gather_fixture_create(MMLA_KV_V4);
    gather_fixture_fill(&f, 1, 1);
    mmla_kv_gather_plan *plan;
    assert_int_equal(mmla_kv_gather_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    REFUSE_RUN(a.n_requests = -1, MMLA_E_SHAPE, "n_requests");
    REFUSE_RUN(a.n_requests = 4, MMLA_E_SHAPE, "n_requests");
    REFUSE_RUN(a.block_table = NULL, MMLA_E_NULL, "block_table");
    REFUSE_RUN(a.block_table = (const int32_t *)((const char *)a.block_table + 2), MMLA_E_ALIGNMENT,
               "block_table");
    REFUSE_RUN(a.seq_lens = NULL, MMLA_E_NULL, "seq_lens");
    REFUSE_RUN(a.gather_lens = (const int32_t *)((const char *)a.gather_lens + 1), MMLA_E_ALIGNMENT,
               "gather_lens");
    REFUSE_RUN(a.rows = -1, MMLA_E_SHAPE, "rows");
    REFUSE_RUN(a.rows = INT64_C(1) << 31, MMLA_E_SHAPE, "rows");
    REFUSE_RUN((a.rows = 8, a.offset = 9), MMLA_E_SHAPE, "offset");
    REFUSE_RUN((a.rows = 8, a.offset = -1), MMLA_E_SHAPE, "offset");
    REFUSE_RUN(a.cache = NULL, MMLA_E_NULL, "cache");
    REFUSE_RUN(a.cache = (const char *)a.cache + 8, MMLA_E_ALIGNMENT, "cache");
    REFUSE_RUN(a.out = NULL, MMLA_E_NULL, "out");
    REFUSE_RUN(a.out += 4, MMLA_E_ALIGNMENT, "out");
    REFUSE_RUN(a.n_faults = (int32_t *)((char *)a.n_faults + 1), MMLA_E_ALIGNMENT, "n_faults");
    assert_int_equal(mmla_kv_gather_run(NULL, &f.args, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_kv_gather_run(plan, NULL, NULL, NULL), MMLA_E_NULL);
    assert_true(test_buffer_is_untouched(&f.out, 0, f.out.bytes)); /* by none of them */
    mmla_kv_gather_plan_destroy(plan);
    gather_fixture_destroy(&f);
}

/* Lengths are a caller's own, or they come of query_start. */
static void gather_run_needs_query_start_for_a_window_without_lens(void **state) {
    (void)state;
    gather_fixture f = gather_fixture_create(MMLA_KV_V41_FP8);
    f.desc.window = 4;
    gather_fixture_fill(&f, 1, 1);
    mmla_kv_gather_plan *plan;
    assert_int_equal(mmla_kv_gather_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    const int32_t *lens = f.args.gather_lens, *start = f.args.query_start;
    const int32_t *crooked = (const int32_t *)((const char *)start + 2);
    f.args.gather_lens = NULL;
    REFUSE_RUN(a.query_start = NULL, MMLA_E_NULL, "query_start");
    REFUSE_RUN(a.query_start = crooked, MMLA_E_ALIGNMENT, "query_start");
    assert_true(test_buffer_is_untouched(&f.out, 0, f.out.bytes));
    assert_int_equal(mmla_kv_gather_run(plan, &f.args, NULL, NULL), MMLA_OK);
    f.args.gather_lens = lens;
    f.args.query_start = NULL;
    assert_int_equal(mmla_kv_gather_run(plan, &f.args, NULL, NULL), MMLA_OK);
    f.args.query_start = crooked;
    assert_int_equal(mmla_kv_gather_run(plan, &f.args, NULL, NULL), MMLA_OK);
    mmla_kv_gather_plan_destroy(plan);
    gather_fixture_destroy(&f);
}

static void gather_run_refuses_rows_of_the_call_without_a_size(void **state) {
    (void)state;
    mmla_kv_gather_desc desc = good();
    desc.max_requests = INT32_MAX;
    desc.rows = 1;
    mmla_kv_gather_plan *plan;
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    /* R * M * 1024 bytes below 2^63, and above; pointers are looked at later. */
    const mmla_kv_gather_args fits = {.n_requests = INT32_MAX, .rows = 1 << 22};
    const mmla_kv_gather_args too_large = {.n_requests = INT32_MAX, .rows = (1 << 22) + 1};
    assert_run_refused(plan, fits, MMLA_E_NULL, "block_table");
    assert_run_refused(plan, too_large, MMLA_E_SIZE, "rows");
    mmla_kv_gather_plan_destroy(plan);
}

static void gather_rows_of_a_call_are_that_calls_alone(void **state) {
    (void)state;
    gather_fixture f = gather_fixture_create(MMLA_KV_V41_FP4);
    gather_fixture_fill(&f, 1, 1);
    mmla_kv_gather_plan *plan;
    assert_int_equal(mmla_kv_gather_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_seq_lens(&f)[r] = gather_fixture_gather_lens(&f)[r] = 20;
    }
    mmla_kv_gather_args own = f.args;
    own.rows = 20;
    assert_int_equal(mmla_kv_gather_run(plan, &own, NULL, NULL), MMLA_OK);
    gather_fixture_assert_row(&f, 0, 0, (int64_t)gather_fixture_table(&f, 0)[0] * 5);
    test_buffer_poison(&f.out);
    assert_int_equal(mmla_kv_gather_run(plan, &f.args, NULL, NULL), MMLA_OK);
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_assert_untouched(&f, r, 0, 2);
        gather_fixture_assert_row(&f, r, 2, (int64_t)gather_fixture_table(&f, r)[0] * 5);
        gather_fixture_assert_untouched(&f, r, 22, 24);
    }
    assert_true(test_buffer_is_intact(&f.out));
    mmla_kv_gather_plan_destroy(plan);
    gather_fixture_destroy(&f);
}
#undef REFUSE_RUN

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_plan_takes_the_smallest_description),
        cmocka_unit_test(gather_plan_refuses_a_wrong_description),
        cmocka_unit_test(gather_plan_takes_every_ratio_and_any_window_of_tokens),
        cmocka_unit_test(gather_plan_names_its_null_arguments),
        cmocka_unit_test(gather_run_refuses_wrong_arguments),
        cmocka_unit_test(gather_run_needs_query_start_for_a_window_without_lens),
        cmocka_unit_test(gather_run_refuses_rows_of_the_call_without_a_size),
        cmocka_unit_test(gather_rows_of_a_call_are_that_calls_alone),
    };
    return cmocka_run_group_tests_name("kv_gather_plan", tests, set_up, tear_down);
}
