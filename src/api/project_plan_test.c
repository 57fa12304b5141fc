/* project_plan_test.c - what the plan and the run of project refuse, and what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <megamla/project.h>

#include "support/guard.h"

struct fixture {
    mmla_context *ctx;
    mmla_error err;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    const mmla_context_options options = {.n_threads = 3};
    *state = f;
    return mmla_context_create(&options, &f->ctx, NULL) == MMLA_OK ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    mmla_context_destroy(f->ctx);
    free(f);
    return 0;
}

static const mmla_project_desc good = {.n_groups = 2, .max_tokens = 10, .rank = 8};

static void
refuses(struct fixture *f, mmla_project_desc desc, mmla_status status, const char *argument) {
    mmla_project_plan *plan = (mmla_project_plan *)f;
    memset(&f->err, 0, sizeof f->err);
    assert_int_equal(mmla_project_plan_create(f->ctx, &desc, &plan, &f->err), status);
    assert_null(plan);
    assert_int_equal(f->err.status, status);
    assert_string_equal(f->err.argument, argument);
    assert_int_equal(strncmp(f->err.message, argument, strlen(argument)), 0);
    assert_int_equal(mmla_project_plan_create(f->ctx, &desc, &plan, NULL), status);
}

static void plan_refuses_each_wrong_field(void **state) {
    struct fixture *f = *state;
    mmla_project_desc d;
    static const int32_t groups[] = {0, -1, 17, INT32_MIN};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        d = good, d.n_groups = groups[i];
        refuses(f, d, MMLA_E_SHAPE, "n_groups");
    }
    static const int32_t ranks[] = {-8, 4, 7, 12, 65537, 65544, INT32_MAX};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        d = good, d.rank = ranks[i];
        refuses(f, d, MMLA_E_SHAPE, "rank");
    }
    d = good, d.max_tokens = -1;
    refuses(f, d, MMLA_E_SHAPE, "max_tokens");
    d = good, d.max_tokens = (int64_t)INT32_MAX + 1;
    refuses(f, d, MMLA_E_SHAPE, "max_tokens");
    d = good, d.x_scale_layout = (mmla_scale_layout)2;
    refuses(f, d, MMLA_E_VALUE, "x_scale_layout");
    d = good, d.x_scale_word_stride = 9;
    refuses(f, d, MMLA_E_STRIDE, "x_scale_word_stride");
    d = good, d.x_scale_word_stride = -1;
    refuses(f, d, MMLA_E_STRIDE, "x_scale_word_stride");
    d = good, d.x_scale_word_stride = INT64_MAX / 16;
    refuses(f, d, MMLA_E_SIZE, "x_scale_word_stride");
    d = good, d.x_scale_group_stride = 32 * 12 - 1;
    refuses(f, d, MMLA_E_STRIDE, "x_scale_group_stride");
    /* The word stride alone fits, and so does one group; the groups together do not. */
    d = good, d.x_scale_word_stride = INT64_C(1) << 55;
    refuses(f, d, MMLA_E_SIZE, "x_scale_group_stride");
    d = good, d.x_scale_group_stride = INT64_C(1) << 60;
    refuses(f, d, MMLA_E_SIZE, "x_scale_group_stride");
    d = good, d.x_scale_group_stride = INT64_MAX / 2;
    refuses(f, d, MMLA_E_SIZE, "x_scale_group_stride");
    d = good, d.implementation = "fastest";
    refuses(f, d, MMLA_E_NO_IMPLEMENTATION, "implementation");
}

static void plan_refuses_missing_pointers(void **state) {
    struct fixture *f = *state;
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(f->ctx, &good, NULL, &f->err), MMLA_E_NULL);
    assert_int_equal(mmla_project_plan_create(NULL, &good, &plan, &f->err), MMLA_E_NULL);
    assert_null(plan);
    assert_int_equal(mmla_project_plan_create(f->ctx, NULL, &plan, &f->err), MMLA_E_NULL);
    assert_null(plan);
    mmla_project_plan_destroy(NULL);
}

static void plan_takes_the_limits_of_every_field(void **state) {
    struct fixture *f = *state;
    static const mmla_project_desc legal[] = {
        {.n_groups = 1},
        {.n_groups = 16, .max_tokens = INT32_MAX, .rank = 65536},
        {.n_groups = 1, .max_tokens = 5, .x_scale_word_stride = 5, .x_scale_group_stride = 160},
        {.n_groups = 1, .max_tokens = 5, .x_scale_group_stride = 256},
        /* Strides mean nothing for bytes. */
        {.n_groups = 1,
         .max_tokens = 5,
         .x_scale_layout = MMLA_SCALE_BYTES,
         .x_scale_word_stride = 1},
        {.n_groups = 1, .implementation = "reference"},
    };
    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
        mmla_project_plan *plan;
        assert_int_equal(mmla_project_plan_create(f->ctx, &legal[i], &plan, &f->err), MMLA_OK);
        const size_t bytes = mmla_project_workspace_bytes(plan);
        assert_true(bytes <= (size_t)3 << 20);
        assert_int_equal(bytes % 64, 0);
        if (legal[i].implementation != NULL) {
            assert_string_equal(mmla_project_plan_implementation(plan), legal[i].implementation);
        }
        mmla_project_plan_destroy(plan);
    }
}

/* A run of one token in which one argument is wrong: refused by name, z untouched. */
static void run_refuses_each_wrong_argument(void **state) {
    struct fixture *f = *state;
    static const char *const names[] = {"n_tokens",     "x", "x_scale",  "weight",
                                        "weight_scale", "z", "workspace"};
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(f->ctx, &good, &plan, NULL), MMLA_OK);
    test_buffer x = test_buffer_create(2 * 4096, 16), x_scale = test_buffer_create(1024, 4);
    test_buffer w = test_buffer_create(16 * 4096, 16), w_scale = test_buffer_create(16 * 128, 1);
    test_buffer z = test_buffer_create(32, 2);
    test_buffer work = test_buffer_create(mmla_project_workspace_bytes(plan), 64);
    for (int missing = 0; missing < 2; missing++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            mmla_project_args a = {.n_tokens = 1,
                                   .x = x.data,
                                   .x_scale = x_scale.data,
                                   .weight = w.data,
                                   .weight_scale = w_scale.data,
                                   .z = z.data,
                                   .error = &f->err};
            void *workspace = work.data;
            /* NULL, or one byte off; a count below and above its range. */
            const mmla_status want = i == 0    ? MMLA_E_SHAPE
                                     : missing ? MMLA_E_NULL
                                               : MMLA_E_ALIGNMENT;
            a.n_tokens = i == 0 ? (missing ? -1 : 11) : 1;
            a.x = i == 1 ? (missing ? NULL : a.x + 8) : a.x;
            a.x_scale = i == 2 ? (missing ? NULL : (const uint8_t *)a.x_scale + 2) : a.x_scale;
            a.weight = i == 3 ? (missing ? NULL : a.weight + 8) : a.weight;
            a.z = i == 5 ? (missing ? NULL : (uint16_t *)(void *)((uint8_t *)z.data + 1)) : a.z;
            workspace = i == 6 ? (missing ? NULL : (uint8_t *)workspace + 32) : workspace;
            if (i == 4) {
                if (!missing) {
                    continue; /* bytes: no alignment to miss */
                }
                a.weight_scale = NULL;
            }
            memset(&f->err, 0, sizeof f->err);
            assert_int_equal(mmla_project_run(plan, &a, workspace, NULL), want);
            assert_string_equal(f->err.argument, names[i]);
            a.error = NULL;
            assert_int_equal(mmla_project_run(plan, &a, workspace, NULL), want);
        }
    }
    assert_true(test_buffer_is_untouched(&z, 0, 32));
    assert_int_equal(mmla_project_run(NULL, NULL, work.data, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_project_run(plan, NULL, work.data, NULL), MMLA_E_NULL);
    test_buffer *const all[] = {&x, &x_scale, &w, &w_scale, &z, &work};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_buffer_destroy(all[i]);
    }
    mmla_project_plan_destroy(plan);
}

static void run_of_no_token_needs_no_pointer(void **state) {
    struct fixture *f = *state;
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(f->ctx, &good, &plan, NULL), MMLA_OK);
    const mmla_project_args none = {.n_tokens = 0};
    assert_int_equal(mmla_project_run(plan, &none, NULL, NULL), MMLA_OK);
    mmla_project_plan_destroy(plan);
}

/* On a CPU no implementation has a use for a wide weight. */
static void plan_of_a_cpu_has_no_wide_weight(void **state) {
    struct fixture *f = *state;
    static const char *const names[] = {NULL, "portable", "reference"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mmla_project_desc desc = good;
        desc.implementation = names[i];
        mmla_project_plan *plan;
        assert_int_equal(mmla_project_plan_create(f->ctx, &desc, &plan, NULL), MMLA_OK);
        assert_int_equal(mmla_project_wide_bytes(plan), 0);
        mmla_project_plan_destroy(plan);
    }
}

/* Whatever else is wrong with the arguments. */
static void widen_without_a_use_is_refused(void **state) {
    struct fixture *f = *state;
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(f->ctx, &good, &plan, NULL), MMLA_OK);
    test_buffer w = test_buffer_create(16 * 4096, 16), w_scale = test_buffer_create(16 * 128, 1);
    test_buffer wide = test_buffer_create(256, 128);
    const mmla_project_widen_args right = {
        .weight = w.data, .weight_scale = w_scale.data, .wide = wide.data, .error = &f->err};
    const mmla_project_widen_args empty = {.error = &f->err};
    const mmla_project_widen_args *const both[] = {&right, &empty};
    for (size_t i = 0; i < 2; i++) {
        memset(&f->err, 0, sizeof f->err);
        assert_int_equal(mmla_project_widen(plan, both[i], NULL), MMLA_E_NO_IMPLEMENTATION);
        assert_int_equal(f->err.status, MMLA_E_NO_IMPLEMENTATION);
        assert_string_equal(f->err.argument, "plan");
        assert_non_null(strstr(f->err.message, mmla_project_plan_implementation(plan)));
    }
    assert_int_equal(mmla_project_widen(plan, &(mmla_project_widen_args){0}, NULL),
                     MMLA_E_NO_IMPLEMENTATION);
    assert_true(test_buffer_is_untouched(&wide, 0, wide.bytes));
    assert_int_equal(mmla_project_widen(plan, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_project_widen(NULL, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_project_widen(NULL, &right, NULL), MMLA_E_NULL);
    assert_string_equal(f->err.argument, "plan");
    test_buffer_destroy(&w);
    test_buffer_destroy(&w_scale);
    test_buffer_destroy(&wide);
    mmla_project_plan_destroy(plan);
}

/* Not even its alignment is looked at. */
static void run_without_a_use_ignores_the_wide_weight(void **state) {
    struct fixture *f = *state;
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(f->ctx, &good, &plan, NULL), MMLA_OK);
    test_buffer x = test_buffer_create(2 * 4096, 16), x_scale = test_buffer_create(1024, 4);
    test_buffer w = test_buffer_create(16 * 4096, 16), w_scale = test_buffer_create(16 * 128, 1);
    test_buffer z = test_buffer_create(32, 2), without = test_buffer_create(32, 2);
    test_buffer work = test_buffer_create(mmla_project_workspace_bytes(plan), 64);
    test_buffer wide = test_buffer_create(256, 1);
    mmla_project_args a = {.n_tokens = 1,
                           .x = x.data,
                           .x_scale = x_scale.data,
                           .weight = w.data,
                           .weight_scale = w_scale.data,
                           .z = without.data};
    assert_int_equal(mmla_project_run(plan, &a, work.data, NULL), MMLA_OK);
    a.z = z.data;
    a.weight_wide = wide.data;
    assert_int_equal(mmla_project_run(plan, &a, work.data, NULL), MMLA_OK);
    assert_false(test_buffer_is_untouched(&z, 0, z.bytes));
    assert_memory_equal(z.data, without.data, z.bytes);
    test_buffer *const all[] = {&x, &x_scale, &w, &w_scale, &z, &without, &work, &wide};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(test_buffer_is_intact(all[i]));
        test_buffer_destroy(all[i]);
    }
    mmla_project_plan_destroy(plan);
}

/* What a GPU's plan asks of the pointers; no kernel runs. */
static void wide_weight_of_a_gpu_is_checked(void **state) {
    struct fixture *f = *state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    mmla_context *ctx;
    if (mmla_context_create(&options, &ctx, NULL) != MMLA_OK) {
        skip();
    }
    mmla_project_plan *plan;
    assert_int_equal(mmla_project_plan_create(ctx, &good, &plan, NULL), MMLA_OK);
    const size_t bytes = mmla_project_wide_bytes(plan);
    if (bytes == 0) {
        mmla_project_plan_destroy(plan);
        mmla_context_destroy(ctx);
        skip();
    }
    assert_int_equal(bytes, 2 * 256 * 8200); /* two groups' 8 rows, filled up to 256 each */
    static uint8_t memory[512];
    uint8_t *const aligned = memory + (128 - (uintptr_t)memory % 128) % 128;
    static const char *const names[] = {"weight", "weight_scale", "wide"};
    for (int missing = 0; missing < 2; missing++) {
        for (int i = 0; i < 3; i++) {
            if (i == 1 && !missing) {
                continue; /* bytes: no alignment to miss */
            }
            mmla_project_widen_args a = {
                .weight = aligned, .weight_scale = aligned, .wide = aligned, .error = &f->err};
            a.weight = i == 0 ? (missing ? NULL : aligned + 8) : a.weight;
            a.weight_scale = i == 1 ? NULL : a.weight_scale;
            a.wide = i == 2 ? (missing ? NULL : aligned + 64) : a.wide;
            memset(&f->err, 0, sizeof f->err);
            assert_int_equal(mmla_project_widen(plan, &a, NULL),
                             missing ? MMLA_E_NULL : MMLA_E_ALIGNMENT);
            assert_string_equal(f->err.argument, names[i]);
        }
    }
    const mmla_project_args a = {.n_tokens = 1,
                                 .x = aligned,
                                 .x_scale = aligned,
                                 .weight = aligned,
                                 .weight_scale = aligned,
                                 .weight_wide = aligned + 64,
                                 .z = (uint16_t *)(void *)aligned,
                                 .error = &f->err};
    assert_int_equal(mmla_project_run(plan, &a, NULL, NULL), MMLA_E_ALIGNMENT);
    assert_string_equal(f->err.argument, "weight_wide");
    mmla_project_plan_destroy(plan);
    mmla_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_refuses_each_wrong_field),
        cmocka_unit_test(plan_refuses_missing_pointers),
        cmocka_unit_test(plan_takes_the_limits_of_every_field),
        cmocka_unit_test(run_refuses_each_wrong_argument),
        cmocka_unit_test(run_of_no_token_needs_no_pointer),
        cmocka_unit_test(plan_of_a_cpu_has_no_wide_weight),
        cmocka_unit_test(widen_without_a_use_is_refused),
        cmocka_unit_test(run_without_a_use_ignores_the_wide_weight),
        cmocka_unit_test(wide_weight_of_a_gpu_is_checked),
    };
    return cmocka_run_group_tests_name("project_plan", tests, setup, teardown);
}
