/* prefill_plan_test.c - every field of a description is refused by name when it is wrong, and a plan
 * knows the routes that it never takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/prefill.h>

static mmla_context *ctx;

static const mmla_prefill_route routes[] = {MMLA_PREFILL_AUTO, MMLA_PREFILL_PAGED,
                                            MMLA_PREFILL_WORKSPACE};

/* --- descriptions ----------------------------------------------------------------------------- */

static mmla_prefill_desc good(void) {
    return (mmla_prefill_desc){
        .attend = {.n_heads = 64,
                   .max_tokens = 4,
                   .scale = 0.04f,
                   .rope_positions = 10,
                   .window = {MMLA_KV_V41_FP8, 32, 5, 0},
                   .compressed = {MMLA_KV_V41_FP4, 64, 5, 0}},
        .max_requests = 3,
        .window = 128,
        .ratio = 2,
        .topk_width = 512,
        .window_table_width = 3,
        .compressed_table_width = 2,
        .max_rows = 1000,
    };
}

/* A layer of ratio 0. */
static mmla_prefill_desc good_window_only(void) {
    mmla_prefill_desc d = good();
    d.attend.compressed = (mmla_cache_desc){0};
    d.ratio = d.topk_width = d.compressed_table_width = 0;
    return d;
}

static void expect(mmla_context *of, mmla_prefill_desc d, mmla_status want, const char *argument) {
    mmla_error err = {0};
    mmla_prefill_plan *plan = (mmla_prefill_plan *)&err;
    const mmla_status status = mmla_prefill_plan_create(of, &d, &plan, &err);
    if (want == MMLA_OK) {
        if (status != MMLA_OK) {
            fail_msg("route %d: %s", (int)d.route, err.message);
        }
        mmla_prefill_plan_destroy(plan);
        return;
    }
    assert_null(plan);
    assert_int_equal(status, want);
    assert_int_equal(err.status, want);
    assert_string_equal(err.argument, argument);
    assert_int_equal(strncmp(err.message, argument, strlen(argument)), 0);
    plan = (mmla_prefill_plan *)&err;
    assert_int_equal(mmla_prefill_plan_create(of, &d, &plan, NULL), want);
    assert_null(plan);
}

/* The description is good but for one change, which is judged alike whatever the route. */
#define EXPECT(base, change, want, argument)                          \
    do {                                                              \
        for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) { \
            mmla_prefill_desc d = base();                             \
            d.route = routes[i];                                      \
            d.change;                                                 \
            expect(ctx, d, want, argument);                           \
        }                                                             \
    } while (0)

static void wrong_sizes_are_named(void **state) {
    (void)state;
    EXPECT(good, max_requests = -1, MMLA_E_SHAPE, "max_requests");
    EXPECT(good, max_requests = INT64_C(1) << 31, MMLA_E_SHAPE, "max_requests");
    EXPECT(good, attend.max_tokens = -1, MMLA_E_SHAPE, "attend.max_tokens");
    EXPECT(good, attend.max_tokens = INT64_C(1) << 31, MMLA_E_SHAPE, "attend.max_tokens");
    EXPECT(good, window = 0, MMLA_E_SHAPE, "window");
    EXPECT(good, window = -1, MMLA_E_SHAPE, "window");
    EXPECT(good, window = 65536, MMLA_OK, "");
    EXPECT(good, window = 65537, MMLA_E_SHAPE, "window");
    EXPECT(good, topk_width = 0, MMLA_E_SHAPE, "topk_width");
    EXPECT(good, topk_width = -1, MMLA_E_SHAPE, "topk_width");
    EXPECT(good, topk_width = INT32_MAX - 128, MMLA_OK, "");
    EXPECT(good, topk_width = INT32_MAX - 127, MMLA_E_SHAPE, "topk_width");
    EXPECT(good, topk_width = INT32_MAX, MMLA_E_SHAPE, "topk_width");
    EXPECT(good, window_table_width = 0, MMLA_E_SHAPE, "window_table_width");
    EXPECT(good, window_table_width = INT32_MIN, MMLA_E_SHAPE, "window_table_width");
    EXPECT(good, compressed_table_width = 0, MMLA_E_SHAPE, "compressed_table_width");
    EXPECT(good, compressed_table_width = -1, MMLA_E_SHAPE, "compressed_table_width");
    EXPECT(good, max_rows = -1, MMLA_E_SHAPE, "max_rows");
    EXPECT(good, max_rows = INT64_C(1) << 31, MMLA_E_SHAPE, "max_rows");
    EXPECT(good, max_rows = INT32_MAX, MMLA_OK, "");
    EXPECT(good_window_only, compressed_table_width = -1, MMLA_OK, ""); /* means nothing there */
}

static void wrong_options_are_named(void **state) {
    (void)state;
    EXPECT(good, ratio = 0, MMLA_E_VALUE, "ratio");
    EXPECT(good, ratio = 1, MMLA_OK, "");
    EXPECT(good, ratio = 3, MMLA_E_VALUE, "ratio");
    EXPECT(good, ratio = -1, MMLA_E_VALUE, "ratio");
    EXPECT(good_window_only, ratio = 1, MMLA_E_VALUE, "ratio");
    EXPECT(good_window_only, topk_width = 1, MMLA_E_VALUE, "topk_width");
    EXPECT(good, route = (mmla_prefill_route)3, MMLA_E_VALUE, "route");
    EXPECT(good, route = (mmla_prefill_route)-1, MMLA_E_VALUE, "route");
}

static void wrong_strides_are_named(void **state) {
    (void)state;
    EXPECT(good, topk_stride = 511, MMLA_E_STRIDE, "topk_stride");
    EXPECT(good, topk_stride = -1, MMLA_E_STRIDE, "topk_stride");
    EXPECT(good, topk_stride = INT64_MAX, MMLA_E_SIZE, "topk_stride");
    EXPECT(good, topk_stride = INT64_MAX / 16, MMLA_OK, "");
    EXPECT(good, window_table_stride = 2, MMLA_E_STRIDE, "window_table_stride");
    EXPECT(good, window_table_stride = INT64_MAX, MMLA_E_SIZE, "window_table_stride");
    EXPECT(good, window_table_stride = INT64_MAX / 12, MMLA_OK, "");
    EXPECT(good, compressed_table_stride = 1, MMLA_E_STRIDE, "compressed_table_stride");
    EXPECT(good, compressed_table_stride = INT64_MAX, MMLA_E_SIZE, "compressed_table_stride");
    /* What is not read is not judged, on either route. */
    EXPECT(good_window_only, topk_stride = -1, MMLA_OK, "");
    EXPECT(good_window_only, compressed_table_stride = -1, MMLA_OK, "");
}

static void fields_of_the_lists_made_here_must_be_zero(void **state) {
    (void)state;
    EXPECT(good, attend.kind = MMLA_ATTEND_ROWS, MMLA_E_VALUE, "attend.kind");
    EXPECT(good, attend.list_width = 128, MMLA_E_VALUE, "attend.list_width");
    EXPECT(good, attend.list_width = -1, MMLA_E_VALUE, "attend.list_width");
    EXPECT(good, attend.list_stride = 128, MMLA_E_VALUE, "attend.list_stride");
    EXPECT(good, attend.compressed_width = 512, MMLA_E_VALUE, "attend.compressed_width");
    EXPECT(good, attend.compressed_stride = 512, MMLA_E_VALUE, "attend.compressed_stride");
    EXPECT(good, attend.max_rows = 1000, MMLA_E_VALUE, "attend.max_rows");
    EXPECT(good, attend.kv_row_stride = 512, MMLA_E_VALUE, "attend.kv_row_stride");
}

/* One field of each check that attention makes; attend_plan_test.c has them all. */
static void what_attention_refuses_is_named_as_it_says(void **state) {
    (void)state;
    EXPECT(good, attend.n_heads = 12, MMLA_E_SHAPE, "n_heads");
    EXPECT(good, attend.scale = NAN, MMLA_E_VALUE, "scale");
    EXPECT(good, attend.q_layout = (mmla_q_layout)7, MMLA_E_VALUE, "q_layout");
    EXPECT(good, attend.q_token_stride = 8, MMLA_E_STRIDE, "q_token_stride");
    EXPECT(good, attend.q_norm = 1, MMLA_E_VALUE, "q_norm_eps");
    EXPECT(good, attend.rope_positions = 0, MMLA_E_SHAPE, "rope_positions");
    EXPECT(good, attend.out_form = (mmla_out_form)4, MMLA_E_VALUE, "out_form");
    EXPECT(good, attend.out_scale_word_stride = 3, MMLA_E_STRIDE, "out_scale_word_stride");
    EXPECT(good, attend.window.format = MMLA_KV_NONE, MMLA_E_FORMAT, "window.format");
    EXPECT(good, attend.window.format = MMLA_KV_INDEX_FP8, MMLA_E_FORMAT, "window.format");
    EXPECT(good, attend.window.page_tokens = 0, MMLA_E_SHAPE, "window.page_tokens");
    EXPECT(good, attend.window.n_pages = -1, MMLA_E_SHAPE, "window.n_pages");
    EXPECT(good, attend.compressed.format = MMLA_KV_V4, MMLA_E_FORMAT, "compressed.format");
    EXPECT(good, attend.compressed.format = (mmla_kv_format)6, MMLA_E_FORMAT, "compressed.format");
    EXPECT(good, attend.compressed.page_stride_bytes = 16, MMLA_E_STRIDE,
           "compressed.page_stride_bytes");
    EXPECT(good, attend.implementation = "fastest", MMLA_E_NO_IMPLEMENTATION, "implementation");
}

static void lists_beyond_62_bits_are_refused(void **state) {
    (void)state;
    mmla_prefill_desc d = good();
    d.attend.max_tokens = INT32_MAX;
    d.topk_width = 1 << 28;
    expect(ctx, d, MMLA_OK, "");
    d.topk_width = 1 << 29; /* of 63 bits, so that no step objects to its own list */
    expect(ctx, d, MMLA_E_SIZE, "attend.max_tokens");
}

static void a_route_by_the_workspace_needs_rows(void **state) {
    (void)state;
    mmla_prefill_desc d = good();
    d.max_rows = 0;
    expect(ctx, d, MMLA_OK, "");
    d.route = MMLA_PREFILL_PAGED;
    expect(ctx, d, MMLA_OK, "");
    d.route = MMLA_PREFILL_WORKSPACE;
    expect(ctx, d, MMLA_E_SHAPE, "max_rows");
}

static void the_smallest_description_is_taken(void **state) {
    (void)state;
    mmla_prefill_desc d = {.attend = {.n_heads = 8,
                                      .scale = 1.0f,
                                      .rope_positions = 1,
                                      .window = {.format = MMLA_KV_V4, .page_tokens = 1}},
                           .window = 1,
                           .window_table_width = 1};
    expect(ctx, d, MMLA_OK, "");
    d.max_rows = 1;
    d.route = MMLA_PREFILL_WORKSPACE;
    expect(ctx, d, MMLA_OK, "");
}

static void null_arguments_are_named(void **state) {
    (void)state;
    const mmla_prefill_desc d = good();
    mmla_prefill_plan *plan = (mmla_prefill_plan *)&plan;
    mmla_error err = {0};
    assert_int_equal(mmla_prefill_plan_create(NULL, &d, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "ctx: is NULL");
    assert_null(plan);
    plan = (mmla_prefill_plan *)&plan;
    assert_int_equal(mmla_prefill_plan_create(ctx, NULL, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "desc: is NULL");
    assert_null(plan);
    assert_int_equal(mmla_prefill_plan_create(ctx, &d, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "plan: is NULL");
    assert_int_equal(mmla_prefill_plan_create(ctx, &d, NULL, NULL), MMLA_E_NULL);
    mmla_prefill_plan_destroy(NULL);
}

/* --- the routes of a plan --------------------------------------------------------------------- */

static bool takes(mmla_context *of, mmla_prefill_desc d, mmla_prefill_route route) {
    mmla_prefill_plan *plan;
    mmla_error err;
    if (mmla_prefill_plan_create(of, &d, &plan, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    const char *name = mmla_prefill_plan_implementation(plan, route);
    if (name != NULL) {
        assert_true(strlen(name) > 0);
    }
    assert_null(mmla_prefill_plan_implementation(plan, MMLA_PREFILL_AUTO)); /* no route of a call */
    mmla_prefill_plan_destroy(plan);
    return name != NULL;
}

static void a_plan_knows_the_routes_it_never_takes(void **state) {
    (void)state;
    mmla_prefill_desc d = good();
    d.route = MMLA_PREFILL_WORKSPACE;
    assert_true(takes(ctx, d, MMLA_PREFILL_WORKSPACE));
    assert_true(takes(ctx, d, MMLA_PREFILL_PAGED)); /* a call of no requests */
    d.route = MMLA_PREFILL_PAGED;
    assert_false(takes(ctx, d, MMLA_PREFILL_WORKSPACE));
    assert_true(takes(ctx, d, MMLA_PREFILL_PAGED));
    d.route = MMLA_PREFILL_AUTO;
    assert_false(takes(ctx, d, MMLA_PREFILL_WORKSPACE)); /* this is a CPU */
    assert_true(takes(ctx, d, MMLA_PREFILL_PAGED));
    d.attend.batch_invariant = 1;
    assert_false(takes(ctx, d, MMLA_PREFILL_WORKSPACE));
    d.route = MMLA_PREFILL_WORKSPACE; /* the same one for every batch is invariant too */
    assert_true(takes(ctx, d, MMLA_PREFILL_WORKSPACE));
}

static void on_a_gpu_auto_takes_the_workspace_but_for_invariant_batches(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    mmla_context *gpu;
    if (mmla_context_create(&options, &gpu, NULL) != MMLA_OK) {
        skip();
    }
    mmla_prefill_desc d = good();
    assert_true(takes(gpu, d, MMLA_PREFILL_WORKSPACE));
    d.attend.batch_invariant = 1;
    assert_false(takes(gpu, d, MMLA_PREFILL_WORKSPACE));
    d.attend.batch_invariant = 0;
    d.max_rows = 0;
    assert_false(takes(gpu, d, MMLA_PREFILL_WORKSPACE));
    mmla_context_destroy(gpu);
}

static int setup(void **state) {
    (void)state;
    return mmla_context_create(NULL, &ctx, NULL) == MMLA_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    mmla_context_destroy(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_sizes_are_named),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(wrong_strides_are_named),
        cmocka_unit_test(fields_of_the_lists_made_here_must_be_zero),
        cmocka_unit_test(what_attention_refuses_is_named_as_it_says),
        cmocka_unit_test(lists_beyond_62_bits_are_refused),
        cmocka_unit_test(a_route_by_the_workspace_needs_rows),
        cmocka_unit_test(the_smallest_description_is_taken),
        cmocka_unit_test(null_arguments_are_named),
        cmocka_unit_test(a_plan_knows_the_routes_it_never_takes),
        cmocka_unit_test(on_a_gpu_auto_takes_the_workspace_but_for_invariant_batches),
    };
    return cmocka_run_group_tests_name("prefill_plan", tests, setup, teardown);
}
