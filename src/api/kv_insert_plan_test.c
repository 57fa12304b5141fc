/* What plan creation and run of kv_insert refuse, and what they say. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/insert_fixture.h"

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

static mmla_kv_insert_desc good(void) {
    return (mmla_kv_insert_desc){
        .cache = {.format = MMLA_KV_V41_FP8, .page_tokens = 64, .n_pages = 4},
        .max_tokens = 8,
        .norm_eps = 1e-20f,
        .rope_positions = 100,
    };
}

static void assert_refused(mmla_kv_insert_desc desc, mmla_status status, const char *message) {
    mmla_kv_insert_plan *plan = (mmla_kv_insert_plan *)&desc;
    mmla_error err;
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &desc, &plan, &err), status);
    assert_null(plan);
    assert_int_equal(err.status, status);
    assert_string_equal(err.message, message);
    assert_int_equal(strncmp(err.message, err.argument, strlen(err.argument)), 0);
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &desc, &plan, NULL), status);
}

#define REFUSE(change, status, message)     \
    do {                                    \
        mmla_kv_insert_desc d = good();     \
        change;                             \
        assert_refused(d, status, message); \
    } while (0)

static void insert_plan_takes_the_smallest_description(void **state) {
    (void)state;
    const mmla_kv_insert_desc desc = {.cache = {.format = MMLA_KV_V4, .page_tokens = 1},
                                      .rope_positions = 1};
    mmla_kv_insert_plan *plan;
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    assert_string_not_equal(mmla_kv_insert_plan_implementation(plan), "reference");
    mmla_kv_insert_plan_destroy(plan);
    mmla_kv_insert_plan_destroy(NULL);
}

static void insert_plan_refuses_a_wrong_description(void **state) {
    (void)state;
    REFUSE(d.cache.format = MMLA_KV_NONE, MMLA_E_FORMAT,
           "cache.format: is none, must be v4, v41_fp8, v41_fp4, index_fp8 or index_fp4");
    REFUSE(d.cache.format = (mmla_kv_format)17, MMLA_E_FORMAT,
           "cache.format: is 17, which no format has");
    REFUSE(d.cache.page_tokens = 0, MMLA_E_SHAPE, "cache.page_tokens: is 0, must be 1 .. 65536");
    REFUSE(d.max_tokens = -1, MMLA_E_SHAPE, "max_tokens: is -1, must be 0 .. 2147483647");
    REFUSE(d.max_tokens = INT64_C(1) << 31, MMLA_E_SHAPE,
           "max_tokens: is 2147483648, must be 0 .. 2147483647");
    REFUSE(d.row_stride = 504, MMLA_E_STRIDE, "row_stride: is 504, must be at least 512 (or 0)");
    REFUSE(d.row_stride = 516, MMLA_E_ALIGNMENT, "row_stride: is 516, must be a multiple of 8");
    REFUSE(d.row_stride = -8, MMLA_E_STRIDE, "row_stride: is -8, must be at least 512 (or 0)");
    REFUSE(d.row_stride = INT64_C(1) << 60, MMLA_E_SIZE,
           "row_stride: is 1152921504606846976, 8 such rows exceed 2^63 bytes");
    REFUSE((d.cache.format = MMLA_KV_INDEX_FP4, d.row_stride = 120), MMLA_E_STRIDE,
           "row_stride: is 120, must be at least 128 (or 0)");
    REFUSE(d.ratio = 3, MMLA_E_VALUE, "ratio: is 3, must be 0 .. 2");
    REFUSE(d.ratio = -1, MMLA_E_VALUE, "ratio: is -1, must be 0 .. 2");
    REFUSE(d.scale_floor = (mmla_scale_floor)2, MMLA_E_VALUE, "scale_floor: is 2, must be 0 .. 1");
    REFUSE((d.norm = 1, d.norm_eps = 0.0f), MMLA_E_VALUE,
           "norm_eps: is 0, must be finite and above 0");
    REFUSE((d.norm = 1, d.norm_eps = NAN), MMLA_E_VALUE,
           "norm_eps: is nan, must be finite and above 0");
    REFUSE((d.norm = 1, d.norm_eps = INFINITY), MMLA_E_VALUE,
           "norm_eps: is inf, must be finite and above 0");
    REFUSE(d.rope_positions = 0, MMLA_E_SHAPE,
           "rope_positions: is 0, must be 1 .. 36028797018963967");
    REFUSE(d.implementation = "fast", MMLA_E_NO_IMPLEMENTATION,
           "implementation: is \"fast\", which kv_insert does not have");
}

static void insert_plan_ignores_eps_without_norm(void **state) {
    (void)state;
    mmla_kv_insert_desc desc = good();
    desc.norm_eps = NAN;
    mmla_kv_insert_plan *plan;
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    mmla_kv_insert_plan_destroy(plan);
}

static void insert_plan_names_its_null_arguments(void **state) {
    (void)state;
    const mmla_kv_insert_desc desc = good();
    mmla_kv_insert_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_kv_insert_plan_create(NULL, &desc, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "ctx: is NULL");
    assert_null(plan);
    assert_int_equal(mmla_kv_insert_plan_create(ctx, NULL, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "desc: is NULL");
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &desc, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "plan: is NULL");
}

/* Each line of args broken by itself; nothing may be written. */
static void insert_run_refuses_wrong_arguments(void **state) {
    (void)state;
    insert_fixture f = insert_fixture_create(MMLA_KV_V4);
    f.desc.norm = 1;
    insert_fixture_fill(&f, 1, 1);
    mmla_kv_insert_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_kv_insert_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
#define REFUSE_RUN(change, want, argument_name)                           \
    do {                                                                  \
        mmla_kv_insert_args a = f.args;                                   \
        a.error = &err;                                                   \
        change;                                                           \
        assert_int_equal(mmla_kv_insert_run(plan, &a, NULL, NULL), want); \
        assert_int_equal(err.status, want);                               \
        assert_string_equal(err.argument, argument_name);                 \
        a.error = NULL;                                                   \
        assert_int_equal(mmla_kv_insert_run(plan, &a, NULL, NULL), want); \
    } while (0)
    REFUSE_RUN(a.n_rows = -1, MMLA_E_SHAPE, "n_rows");
    REFUSE_RUN(a.n_rows = 9, MMLA_E_SHAPE, "n_rows");
    REFUSE_RUN(a.n_slots = -1, MMLA_E_SHAPE, "n_slots");
    REFUSE_RUN(a.n_slots = 9, MMLA_E_SHAPE, "n_slots");
    REFUSE_RUN(a.rows = NULL, MMLA_E_NULL, "rows");
    REFUSE_RUN(a.rows += 4, MMLA_E_ALIGNMENT, "rows");
    REFUSE_RUN(a.positions = NULL, MMLA_E_NULL, "positions");
    REFUSE_RUN(a.positions = (const int64_t *)((const char *)a.positions + 4), MMLA_E_ALIGNMENT,
               "positions");
    REFUSE_RUN(a.slots = NULL, MMLA_E_NULL, "slots");
    REFUSE_RUN(a.slots = (const int64_t *)((const char *)a.slots + 1), MMLA_E_ALIGNMENT, "slots");
    REFUSE_RUN(a.cos_sin = NULL, MMLA_E_NULL, "cos_sin");
    REFUSE_RUN(a.cos_sin = (const float *)((const char *)a.cos_sin + 2), MMLA_E_ALIGNMENT,
               "cos_sin");
    REFUSE_RUN(a.norm_weight = NULL, MMLA_E_NULL, "norm_weight");
    REFUSE_RUN(a.norm_weight = (const float *)((const char *)a.norm_weight + 1), MMLA_E_ALIGNMENT,
               "norm_weight");
    REFUSE_RUN(a.cache = NULL, MMLA_E_NULL, "cache");
    REFUSE_RUN(a.cache = (char *)a.cache + 8, MMLA_E_ALIGNMENT, "cache");
    REFUSE_RUN(a.n_faults = (int32_t *)((char *)a.n_faults + 1), MMLA_E_ALIGNMENT, "n_faults");
#undef REFUSE_RUN
    assert_int_equal(mmla_kv_insert_run(NULL, &f.args, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_kv_insert_run(plan, NULL, NULL, NULL), MMLA_E_NULL);
    insert_fixture_assert_only(&f, NULL, 0);
    mmla_kv_insert_plan_destroy(plan);
    insert_fixture_destroy(&f);
}

/* One plan, four threads, each with rows and slots of its own. */
struct caller {
    const mmla_kv_insert_plan *plan;
    mmla_kv_insert_args args;
    mmla_status status;
};

static void *call(void *arg) {
    struct caller *c = arg;
    c->status = mmla_kv_insert_run(c->plan, &c->args, NULL, NULL);
    return NULL;
}

static void insert_plan_serves_several_threads_at_once(void **state) {
    (void)state;
    enum { CALLERS = 4, ROWS = 200 };
    insert_fixture f = insert_fixture_create(MMLA_KV_V41_FP4);
    f.desc.max_tokens = f.args.n_rows = f.args.n_slots = CALLERS * ROWS;
    f.desc.cache.n_pages = 200;
    insert_fixture_fill(&f, 2, 1);
    assert_int_equal(insert_fixture_run(&f, "portable"), MMLA_OK);
    uint8_t *want = malloc(f.cache.bytes);
    assert_non_null(want);
    memcpy(want, f.cache.data, f.cache.bytes);
    test_buffer_poison(&f.cache);

    mmla_kv_insert_plan *plan;
    f.desc.implementation = "portable";
    assert_int_equal(mmla_kv_insert_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    struct caller callers[CALLERS];
    pthread_t ids[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){plan, f.args, MMLA_E_LAUNCH};
        mmla_kv_insert_args *a = &callers[i].args;
        a->n_rows = a->n_slots = ROWS;
        a->rows = insert_fixture_row(&f, (int64_t)i * ROWS);
        a->positions += i * ROWS;
        a->slots += i * ROWS;
        a->n_faults = NULL;
        a->error = NULL;
        assert_int_equal(pthread_create(&ids[i], NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(callers[i].status, MMLA_OK);
    }
    assert_memory_equal(f.cache.data, want, f.cache.bytes);
    mmla_kv_insert_plan_destroy(plan);
    free(want);
    insert_fixture_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_plan_takes_the_smallest_description),
        cmocka_unit_test(insert_plan_refuses_a_wrong_description),
        cmocka_unit_test(insert_plan_ignores_eps_without_norm),
        cmocka_unit_test(insert_plan_names_its_null_arguments),
        cmocka_unit_test(insert_run_refuses_wrong_arguments),
        cmocka_unit_test(insert_plan_serves_several_threads_at_once),
    };
    return cmocka_run_group_tests_name("kv_insert_plan", tests, set_up, tear_down);
}
