#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/megamla.h>

#include "base/context.h"

static mmla_context *context_of(void **state) {
    return *state;
}

static int set_up(void **state) {
    mmla_context *ctx;
    const mmla_status status = mmla_context_create(NULL, &ctx, NULL);
    *state = ctx;
    return status;
}

static int tear_down(void **state) {
    mmla_context_destroy(context_of(state));
    return 0;
}

static void every_index_below_count_is_described(void **state) {
    const mmla_context *ctx = context_of(state);
    const int32_t n = mmla_implementation_count(ctx);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++) {
        mmla_implementation it = {0};
        assert_int_equal(mmla_implementation_get(ctx, i, &it, NULL), MMLA_OK);
        assert_true(strlen(it.op) > 0);
        assert_true(strlen(it.name) > 0);
        assert_int_equal(it.available != 0, it.reason[0] == '\0');
    }
}

static void an_index_outside_is_refused_and_writes_nothing(void **state) {
    const mmla_context *ctx = context_of(state);
    const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, mmla_implementation_count(ctx)};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        mmla_implementation it = {.op = "untouched"};
        mmla_error err;
        assert_int_equal(mmla_implementation_get(ctx, outside[i], &it, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, "idx");
        assert_string_equal(it.op, "untouched");
    }
}

static void null_arguments_are_named(void **state) {
    mmla_implementation it;
    mmla_error err;
    assert_int_equal(mmla_implementation_get(NULL, 0, &it, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "ctx");
    assert_int_equal(mmla_implementation_get(context_of(state), 0, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "out");
}

static void a_name_is_unique_in_its_operation(void **state) {
    const mmla_context *ctx = context_of(state);
    const int32_t n = mmla_implementation_count(ctx);
    for (int32_t i = 0; i < n; i++) {
        mmla_implementation a, b;
        mmla_implementation_get(ctx, i, &a, NULL);
        for (int32_t j = 0; j < i; j++) {
            mmla_implementation_get(ctx, j, &b, NULL);
            assert_false(strcmp(a.op, b.op) == 0 && strcmp(a.name, b.name) == 0);
        }
    }
}

/* Plain C: what every processor can run. */
static int is_plain(const mmla_implementation *it) {
    return strcmp(it->name, "reference") == 0 || strcmp(it->name, "portable") == 0;
}

static void every_operation_has_a_plain_implementation(void **state) {
    const mmla_context *ctx = context_of(state);
    const int32_t n = mmla_implementation_count(ctx);
    for (int32_t i = 0; i < n; i++) {
        mmla_implementation of_op;
        mmla_implementation_get(ctx, i, &of_op, NULL);
        int32_t found = 0;
        for (int32_t j = 0; j < n; j++) {
            mmla_implementation it;
            mmla_implementation_get(ctx, j, &it, NULL);
            found += strcmp(it.op, of_op.op) == 0 && is_plain(&it) && it.available;
        }
        assert_true(found > 0);
    }
}

static void a_processor_without_extensions_is_the_reason(void **state) {
    mmla_context *ctx = context_of(state);
    const uint32_t features = ctx->cpu_features;
    ctx->cpu_features = 0;
    const int32_t n = mmla_implementation_count(ctx);
    for (int32_t i = 0; i < n; i++) {
        mmla_implementation it;
        mmla_implementation_get(ctx, i, &it, NULL);
        if (is_plain(&it)) {
            assert_true(it.available);
        } else {
            assert_false(it.available);
            assert_true(strlen(it.reason) > 0);
        }
    }
    ctx->cpu_features = features;
}

/* The first that is neither unavailable nor by_name_only is what a plan without a wish takes. */
static void what_is_by_name_only_is_not_taken_unasked(void **state) {
    mmla_context *ctx = context_of(state);
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    const char *first = NULL;
    int32_t n_reference = 0;
    mmla_implementation it;
    for (int32_t i = 0; mmla_implementation_get(ctx, i, &it, NULL) == MMLA_OK; i++) {
        if (strcmp(it.name, "reference") == 0) {
            assert_true(it.by_name_only);
            n_reference++;
        }
        if (strcmp(it.name, "portable") == 0) {
            assert_false(it.by_name_only);
        }
        if (strcmp(it.op, "project") == 0 && it.available && !it.by_name_only && first == NULL) {
            first = it.name;
        }
    }
    assert_true(n_reference > 0);
    assert_non_null(first);
    assert_string_equal(mmla_project_plan_implementation(plan), first);
    mmla_project_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_below_count_is_described),
        cmocka_unit_test(an_index_outside_is_refused_and_writes_nothing),
        cmocka_unit_test(null_arguments_are_named),
        cmocka_unit_test(a_name_is_unique_in_its_operation),
        cmocka_unit_test(every_operation_has_a_plain_implementation),
        cmocka_unit_test(a_processor_without_extensions_is_the_reason),
        cmocka_unit_test(what_is_by_name_only_is_not_taken_unasked),
    };
    return cmocka_run_group_tests_name("implementations", tests, set_up, tear_down);
}
