/* weights_plan_test.c - what the weight layouts refuse, and how they name it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/weights.h>

static mmla_context *ctx;

static int open_context(void **state) {
    (void)state;
    return mmla_context_create(NULL, &ctx, NULL) == MMLA_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    mmla_context_destroy(ctx);
    return 0;
}

static void every_bad_field_is_named(void **state) {
    (void)state;
    const int64_t too_many = (int64_t)INT32_MAX + 1;
    const struct {
        mmla_weights_desc desc;
        mmla_status status;
        const char *argument;
    } cases[] = {
        {{.kind = (mmla_weights_kind)-1}, MMLA_E_VALUE, "kind"},
        {{.kind = (mmla_weights_kind)5}, MMLA_E_VALUE, "kind"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 0, 0, 8, 1}, MMLA_E_SHAPE, "n_heads"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, -8, 0, 8, 1}, MMLA_E_SHAPE, "n_heads"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 12, 0, 8, 1}, MMLA_E_SHAPE, "n_heads"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 136, 0, 8, 1}, MMLA_E_SHAPE, "n_heads"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 16, 4096, 8, 1}, MMLA_E_SHAPE, "rows"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 16, 0, 0, 1}, MMLA_E_SHAPE, "cols"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 16, 0, too_many, 1}, MMLA_E_SHAPE, "cols"},
        {{MMLA_WEIGHTS_PERMUTE_WQ_B, 16, 0, 8, -1}, MMLA_E_SHAPE, "scale_cols"},
        {{MMLA_WEIGHTS_PERMUTE_WO_A, 0, -1, 0, 0}, MMLA_E_SHAPE, "rows"},
        {{MMLA_WEIGHTS_PERMUTE_WO_A, 0, 8, 4095, 0}, MMLA_E_SHAPE, "cols"},
        {{MMLA_WEIGHTS_PERMUTE_WO_A, 0, 8, 0, 32}, MMLA_E_SHAPE, "scale_cols"},
        {{MMLA_WEIGHTS_EXPAND_SCALES, 0, too_many, 0, 4}, MMLA_E_SHAPE, "rows"},
        {{MMLA_WEIGHTS_EXPAND_SCALES, 0, 8, 0, 0}, MMLA_E_SHAPE, "scale_cols"},
        {{MMLA_WEIGHTS_Q_TO_FUSED, 4, 1, 0, 0}, MMLA_E_SHAPE, "n_heads"},
        {{MMLA_WEIGHTS_Q_TO_STANDARD, 8, -1, 0, 0}, MMLA_E_SHAPE, "rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_error err = {.status = MMLA_OK};
        mmla_weights_plan *plan = (mmla_weights_plan *)&err;
        assert_int_equal(mmla_weights_plan_create(ctx, &cases[i].desc, &plan, &err),
                         cases[i].status);
        assert_null(plan);
        assert_string_equal(err.argument, cases[i].argument);
    }
}

static void missing_plan_arguments_are_named(void **state) {
    (void)state;
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = 1};
    mmla_weights_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_weights_plan_create(NULL, &desc, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "ctx");
    assert_int_equal(mmla_weights_plan_create(ctx, NULL, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "desc");
    assert_int_equal(mmla_weights_plan_create(ctx, &desc, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "plan");
    mmla_weights_plan_destroy(NULL);
}

static void bad_pointers_are_named_and_nothing_is_written(void **state) {
    (void)state;
    static uint16_t in[8 * 512], out[8 * 512 + 1];
    static uint8_t scale_in[8 * 512], scale_out[8 * 512];
    const mmla_weights_desc wq_b = {MMLA_WEIGHTS_PERMUTE_WQ_B, 8, 0, 2, 1};
    const mmla_weights_desc no_scales = {MMLA_WEIGHTS_PERMUTE_WQ_B, 8, 0, 2, 0};
    const mmla_weights_desc q = {MMLA_WEIGHTS_Q_TO_FUSED, 8, 1, 0, 0};
    const mmla_weights_desc expand = {MMLA_WEIGHTS_EXPAND_SCALES, 0, 64, 0, 4};
    const struct {
        const mmla_weights_desc *desc;
        mmla_weights_args args;
        mmla_status status;
        const char *argument;
    } cases[] = {
        {&wq_b, {NULL, out, NULL, NULL, NULL}, MMLA_E_NULL, "in"},
        {&wq_b, {in, NULL, NULL, NULL, NULL}, MMLA_E_NULL, "out"},
        {&wq_b, {in, out, scale_in, NULL, NULL}, MMLA_E_NULL, "scale_out"},
        {&wq_b, {in, out, NULL, scale_out, NULL}, MMLA_E_NULL, "scale_in"},
        {&no_scales, {in, out, scale_in, scale_out, NULL}, MMLA_E_SHAPE, "scale_cols"},
        {&wq_b, {in, in, NULL, NULL, NULL}, MMLA_E_VALUE, "out"},
        {&wq_b, {out, out + 1, NULL, NULL, NULL}, MMLA_E_VALUE, "out"},
        {&wq_b, {in, out, scale_in, scale_in, NULL}, MMLA_E_VALUE, "scale_out"},
        {&q, {(const char *)in + 1, out, NULL, NULL, NULL}, MMLA_E_ALIGNMENT, "in"},
        {&q, {in, (char *)out + 1, NULL, NULL, NULL}, MMLA_E_ALIGNMENT, "out"},
        {&expand, {NULL, NULL, NULL, scale_out, NULL}, MMLA_E_NULL, "scale_in"},
        {&expand, {NULL, NULL, scale_in, NULL, NULL}, MMLA_E_NULL, "scale_out"},
        {&expand, {NULL, NULL, scale_in, scale_in + 7, NULL}, MMLA_E_VALUE, "scale_out"},
    };
    memset(out, 0x5A, sizeof out);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_weights_plan *plan;
        mmla_error err = {.status = MMLA_OK};
        assert_int_equal(mmla_weights_plan_create(ctx, cases[i].desc, &plan, &err), MMLA_OK);
        assert_int_equal(mmla_weights_workspace_bytes(plan), 0);
        mmla_weights_args args = cases[i].args;
        args.error = &err;
        assert_int_equal(mmla_weights_run(plan, &args, NULL, NULL), cases[i].status);
        assert_string_equal(err.argument, cases[i].argument);
        mmla_weights_plan_destroy(plan);
    }
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        assert_int_equal(out[i], 0x5A5A);
    }
}

static void neighbours_do_not_overlap(void **state) {
    (void)state;
    static uint8_t memory[3 * 8 * 512];
    const mmla_weights_desc desc = {MMLA_WEIGHTS_PERMUTE_WQ_B, 8, 0, 1, 0};
    mmla_weights_plan *plan;
    assert_int_equal(mmla_weights_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    const mmla_weights_args after = {.in = memory, .out = memory + 8 * 512};
    const mmla_weights_args before = {.in = memory + 8 * 512, .out = memory};
    assert_int_equal(mmla_weights_run(plan, &after, NULL, NULL), MMLA_OK);
    assert_int_equal(mmla_weights_run(plan, &before, NULL, NULL), MMLA_OK);
    mmla_weights_plan_destroy(plan);
}

static void zero_rows_touch_nothing(void **state) {
    (void)state;
    const mmla_weights_desc descs[] = {{MMLA_WEIGHTS_PERMUTE_WO_A, 0, 0, 0, 0},
                                       {MMLA_WEIGHTS_EXPAND_SCALES, 0, 0, 0, 4},
                                       {MMLA_WEIGHTS_Q_TO_FUSED, 8, 0, 0, 0}};
    for (size_t i = 0; i < sizeof descs / sizeof descs[0]; i++) {
        mmla_weights_plan *plan;
        const mmla_weights_args args = {.in = NULL};
        assert_int_equal(mmla_weights_plan_create(ctx, &descs[i], &plan, NULL), MMLA_OK);
        assert_int_equal(mmla_weights_run(plan, &args, NULL, NULL), MMLA_OK);
        assert_int_equal(mmla_weights_run(plan, NULL, NULL, NULL), MMLA_E_NULL);
        assert_int_equal(mmla_weights_run(NULL, &args, NULL, NULL), MMLA_E_NULL);
        mmla_weights_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bad_field_is_named),
        cmocka_unit_test(missing_plan_arguments_are_named),
        cmocka_unit_test(bad_pointers_are_named_and_nothing_is_written),
        cmocka_unit_test(neighbours_do_not_overlap),
        cmocka_unit_test(zero_rows_touch_nothing),
    };
    return cmocka_run_group_tests_name("weights_plan", tests, open_context, close_context);
}
