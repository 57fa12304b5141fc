/* attend_plan_test.c - every field of a description and every pointer of a call is refused by name
 * when it is wrong, before anything is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/attend_fixture.h"

static mmla_context *ctx;

static mmla_attend_desc good_paged(void) {
    return (mmla_attend_desc){
        .n_heads = 64,
        .max_tokens = 4,
        .scale = 0.04f,
        .rope_positions = 10,
        .list_width = 128,
        .window = {MMLA_KV_V41_FP8, 32, 5, 0},
        .compressed = {MMLA_KV_V41_FP4, 64, 5, 0},
        .compressed_width = 512,
    };
}

static mmla_attend_desc good_rows(void) {
    mmla_attend_desc d = good_paged();
    d.kind = MMLA_ATTEND_ROWS;
    d.window = d.compressed = (mmla_cache_desc){0};
    d.compressed_width = 0;
    d.max_rows = 100;
    return d;
}

static void expect(const mmla_attend_desc *d, mmla_status want, const char *argument) {
    mmla_error err = {0};
    mmla_attend_plan *plan = (mmla_attend_plan *)&err;
    const mmla_status status = mmla_attend_plan_create(ctx, d, &plan, &err);
    if (want == MMLA_OK) {
        if (status != MMLA_OK) {
            fail_msg("%s", err.message);
        }
        mmla_attend_plan_destroy(plan);
        return;
    }
    assert_null(plan);
    assert_int_equal(status, want);
    assert_int_equal(err.status, want);
    assert_string_equal(err.argument, argument);
    assert_non_null(strstr(err.message, argument));
}

/* One line a wrong field: the description is good but for it. */
#define WRONG(base, field, value, status, argument) \
    do {                                            \
        mmla_attend_desc d = base();                \
        d.field = value;                            \
        expect(&d, status, argument);               \
    } while (0)

static void wrong_shapes_are_named(void **state) {
    (void)state;
    const mmla_attend_desc paged = good_paged(), rows = good_rows();
    expect(&paged, MMLA_OK, "");
    expect(&rows, MMLA_OK, "");
    WRONG(good_paged, n_heads, 0, MMLA_E_SHAPE, "n_heads");
    WRONG(good_paged, n_heads, 12, MMLA_E_SHAPE, "n_heads");
    WRONG(good_paged, n_heads, 136, MMLA_E_SHAPE, "n_heads");
    WRONG(good_paged, n_heads, -8, MMLA_E_SHAPE, "n_heads");
    WRONG(good_paged, max_tokens, -1, MMLA_E_SHAPE, "max_tokens");
    WRONG(good_paged, max_tokens, INT64_MAX, MMLA_E_SHAPE, "max_tokens");
    WRONG(good_paged, list_width, 0, MMLA_E_SHAPE, "list_width");
    WRONG(good_paged, compressed_width, 0, MMLA_E_SHAPE, "compressed_width");
    WRONG(good_paged, rope_positions, 0, MMLA_E_SHAPE, "rope_positions");
    WRONG(good_paged, window.page_tokens, 0, MMLA_E_SHAPE, "window.page_tokens");
    WRONG(good_paged, compressed.n_pages, INT64_MAX / 2, MMLA_E_SHAPE, "compressed.n_pages");
    WRONG(good_rows, max_rows, -1, MMLA_E_SHAPE, "max_rows");
}

static void wrong_options_are_named(void **state) {
    (void)state;
    WRONG(good_paged, kind, (mmla_attend_kind)2, MMLA_E_VALUE, "kind");
    WRONG(good_paged, scale, 0.0f, MMLA_E_VALUE, "scale");
    WRONG(good_paged, scale, -1.0f, MMLA_E_VALUE, "scale");
    WRONG(good_paged, scale, NAN, MMLA_E_VALUE, "scale");
    WRONG(good_paged, scale, INFINITY, MMLA_E_VALUE, "scale");
    WRONG(good_paged, scale, 1.1e30f, MMLA_E_VALUE, "scale");
    WRONG(good_paged, q_layout, (mmla_q_layout)7, MMLA_E_VALUE, "q_layout");
    WRONG(good_paged, out_form, (mmla_out_form)4, MMLA_E_VALUE, "out_form");
    WRONG(good_paged, q_norm, 1, MMLA_E_VALUE, "q_norm_eps");
    WRONG(good_paged, implementation, "fastest", MMLA_E_NO_IMPLEMENTATION, "implementation");
    WRONG(good_paged, implementation, "", MMLA_E_NO_IMPLEMENTATION, "implementation");
}

static void wrong_strides_are_named(void **state) {
    (void)state;
    WRONG(good_paged, q_token_stride, 64 * 512 - 8, MMLA_E_STRIDE, "q_token_stride");
    WRONG(good_paged, q_token_stride, 64 * 512 + 1, MMLA_E_ALIGNMENT, "q_token_stride");
    WRONG(good_paged, q_token_stride, INT64_MAX / 8 * 8, MMLA_E_SIZE, "q_token_stride");
    WRONG(good_paged, list_stride, 127, MMLA_E_STRIDE, "list_stride");
    WRONG(good_paged, list_stride, INT64_MAX, MMLA_E_SIZE, "list_stride");
    WRONG(good_paged, compressed_stride, 511, MMLA_E_STRIDE, "compressed_stride");
    WRONG(good_paged, out_scale_word_stride, 3, MMLA_E_STRIDE, "out_scale_word_stride");
    WRONG(good_paged, out_scale_word_stride, INT64_MAX, MMLA_E_SIZE, "out_scale_word_stride");
    WRONG(good_paged, out_scale_group_stride, 127, MMLA_E_STRIDE, "out_scale_group_stride");
    /* Eight groups: every byte of them needs a 64-bit offset. */
    WRONG(good_paged, out_scale_word_stride, INT64_C(1) << 58, MMLA_E_SIZE,
          "out_scale_word_stride");
    WRONG(good_paged, out_scale_word_stride, INT64_C(1) << 54, MMLA_E_SIZE,
          "out_scale_group_stride");
    WRONG(good_paged, out_scale_group_stride, INT64_C(1) << 62, MMLA_E_SIZE,
          "out_scale_group_stride");
    WRONG(good_paged, out_scale_group_stride, INT64_C(1) << 58, MMLA_E_SIZE,
          "out_scale_group_stride");
    WRONG(good_paged, out_scale_group_stride, (INT64_C(1) << 58) - 1, MMLA_OK, "");
    WRONG(good_paged, window.page_stride_bytes, 16, MMLA_E_STRIDE, "window.page_stride_bytes");
    WRONG(good_paged, window.page_stride_bytes, 16896 + 8, MMLA_E_ALIGNMENT,
          "window.page_stride_bytes");
    WRONG(good_paged, compressed.page_stride_bytes, INT64_MAX / 16 * 16, MMLA_E_SIZE,
          "compressed.page_stride_bytes");
    WRONG(good_rows, kv_row_stride, 504, MMLA_E_STRIDE, "kv_row_stride");
    WRONG(good_rows, kv_row_stride, 513, MMLA_E_ALIGNMENT, "kv_row_stride");
}

static void only_the_legal_format_pairs_are_accepted(void **state) {
    (void)state;
    for (int w = MMLA_KV_NONE; w <= MMLA_KV_INDEX_FP4; w++) {
        for (int c = MMLA_KV_NONE; c <= MMLA_KV_INDEX_FP4; c++) {
            mmla_attend_desc d = good_paged();
            d.window.format = (mmla_kv_format)w;
            d.compressed.format = (mmla_kv_format)c;
            const bool window_ok = w >= MMLA_KV_V4 && w <= MMLA_KV_V41_FP4;
            const bool pair_ok =
                c == MMLA_KV_NONE || c == w || (w == MMLA_KV_V41_FP8 && c == MMLA_KV_V41_FP4);
            expect(&d, window_ok && pair_ok ? MMLA_OK : MMLA_E_FORMAT,
                   window_ok ? "compressed.format" : "window.format");
        }
    }
    WRONG(good_paged, window.format, (mmla_kv_format)6, MMLA_E_FORMAT, "window.format");
}

static void null_arguments_are_refused(void **state) {
    (void)state;
    mmla_attend_plan *plan;
    const mmla_attend_desc d = good_paged();
    assert_int_equal(mmla_attend_plan_create(NULL, &d, &plan, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_attend_plan_create(ctx, NULL, &plan, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_attend_plan_create(ctx, &d, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_attend_run(NULL, NULL, NULL, NULL), MMLA_E_NULL);
    mmla_attend_plan_destroy(NULL);
}

/* A wrong pointer in a good call. */
#define WRONG_ARG(f, field, value, status_, argument_)                       \
    do {                                                                     \
        attend_fixture copy = (f);                                           \
        copy.args.field = value;                                             \
        assert_int_equal(attend_fixture_run(&copy, NULL), status_);          \
        assert_string_equal(copy.error.argument, argument_);                 \
        assert_true(test_buffer_is_untouched(&copy.out, 0, copy.out.bytes)); \
        assert_true(test_buffer_is_untouched(&copy.lse, 0, copy.lse.bytes)); \
    } while (0)

static void wrong_pointers_are_named_and_nothing_is_written(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_paged(1);
    attend_fixture_fill(&f, 1);
    WRONG_ARG(f, n_tokens, 2, MMLA_E_SHAPE, "n_tokens");
    WRONG_ARG(f, n_tokens, -1, MMLA_E_SHAPE, "n_tokens");
    WRONG_ARG(f, q, NULL, MMLA_E_NULL, "q");
    WRONG_ARG(f, q, f.args.q + 1, MMLA_E_ALIGNMENT, "q");
    WRONG_ARG(f, positions, NULL, MMLA_E_NULL, "positions");
    WRONG_ARG(f, cos_sin, NULL, MMLA_E_NULL, "cos_sin");
    WRONG_ARG(f, list, NULL, MMLA_E_NULL, "list");
    WRONG_ARG(f, list, (const int32_t *)((const char *)f.args.list + 2), MMLA_E_ALIGNMENT, "list");
    WRONG_ARG(f, compressed_list, NULL, MMLA_E_NULL, "compressed_list");
    WRONG_ARG(f, window_cache, NULL, MMLA_E_NULL, "window_cache");
    WRONG_ARG(f, window_cache, (const char *)f.args.window_cache + 8, MMLA_E_ALIGNMENT,
              "window_cache");
    WRONG_ARG(f, compressed_cache, NULL, MMLA_E_NULL, "compressed_cache");
    WRONG_ARG(f, out, NULL, MMLA_E_NULL, "out");
    WRONG_ARG(f, out, (char *)f.args.out + 16, MMLA_E_ALIGNMENT, "out");
    WRONG_ARG(f, out_scale, NULL, MMLA_E_NULL, "out_scale");
    attend_fixture_destroy(&f);
    f = attend_fixture_rows(1);
    attend_fixture_fill(&f, 1);
    WRONG_ARG(f, kv, NULL, MMLA_E_NULL, "kv");
    WRONG_ARG(f, n_rows, 17, MMLA_E_SHAPE, "n_rows");
    attend_fixture_destroy(&f);
}

static void merge_refuses_scale_strides_beyond_64_bits(void **state) {
    (void)state;
    static _Alignas(32) uint16_t part[8 * MMLA_LATENT_DIM];
    static float lse[8];
    static const struct {
        int64_t word, group;
        const char *argument;
    } strides[] = {{INT64_C(1) << 58, 0, "out_scale_word_stride"},
                   {INT64_C(1) << 57, 0, "out_scale_word_stride"},
                   {0, INT64_C(1) << 62, "out_scale_group_stride"},
                   {0, INT64_MAX, "out_scale_group_stride"}};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        test_buffer out = test_buffer_create(8 * MMLA_LATENT_DIM, 32);
        test_buffer out_scale = test_buffer_create(128, 4);
        const mmla_attend_merge_args args = {.n_tokens = 1,
                                             .n_heads = 8,
                                             .out_scale_word_stride = strides[i].word,
                                             .out_scale_group_stride = strides[i].group,
                                             .out_a = part,
                                             .lse_a = lse,
                                             .out_b = part,
                                             .lse_b = lse,
                                             .out = out.data,
                                             .out_scale = out_scale.data};
        mmla_error err = {0};
        assert_int_equal(mmla_attend_merge(ctx, &args, NULL, &err), MMLA_E_SIZE);
        assert_int_equal(err.status, MMLA_E_SIZE);
        assert_string_equal(err.argument, strides[i].argument);
        assert_true(test_buffer_is_untouched(&out, 0, out.bytes));
        assert_true(test_buffer_is_untouched(&out_scale, 0, out_scale.bytes));
        test_buffer_destroy(&out);
        test_buffer_destroy(&out_scale);
    }
}

static void zero_tokens_need_no_pointer_and_touch_nothing(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_paged(1);
    attend_fixture_fill(&f, 1);
    const mmla_attend_args none = {0};
    f.args = none;
    assert_int_equal(attend_fixture_run(&f, NULL), MMLA_OK);
    assert_true(test_buffer_is_untouched(&f.out, 0, f.out.bytes));
    attend_fixture_destroy(&f);
}

static void workspace_is_bounded_by_the_threads(void **state) {
    (void)state;
    mmla_attend_desc d = good_paged();
    d.n_heads = 128;
    d.max_tokens = 1000000;
    for (int32_t threads = 1; threads <= 64; threads *= 8) {
        mmla_context *c;
        mmla_attend_plan *plan;
        const mmla_context_options options = {.n_threads = threads};
        assert_int_equal(mmla_context_create(&options, &c, NULL), MMLA_OK);
        assert_int_equal(mmla_attend_plan_create(c, &d, &plan, NULL), MMLA_OK);
        assert_true(mmla_attend_workspace_bytes(plan) <= (size_t)threads << 20);
        mmla_attend_plan_destroy(plan);
        mmla_context_destroy(c);
    }
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
        cmocka_unit_test(wrong_shapes_are_named),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(wrong_strides_are_named),
        cmocka_unit_test(only_the_legal_format_pairs_are_accepted),
        cmocka_unit_test(null_arguments_are_refused),
        cmocka_unit_test(wrong_pointers_are_named_and_nothing_is_written),
        cmocka_unit_test(merge_refuses_scale_strides_beyond_64_bits),
        cmocka_unit_test(zero_tokens_need_no_pointer_and_touch_nothing),
        cmocka_unit_test(workspace_is_bounded_by_the_threads),
    };
    return cmocka_run_group_tests_name("attend_plan", tests, setup, teardown);
}
