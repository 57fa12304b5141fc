/* chain_plan_test.c - what the plan and the steps of chain refuse. The checks of a description and
 * of arguments are attend's own and tested there; here, that chain makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/chain_fixture.h"

static attend_fixture filled(void) {
    attend_fixture f = attend_fixture_paged(2);
    attend_fixture_fill(&f, 1);
    return f;
}

static void
refuses(attend_fixture *f, const mmla_attend_desc *desc, mmla_status status, const char *argument) {
    mmla_chain_plan *plan = (mmla_chain_plan *)(void *)f;
    assert_int_equal(mmla_chain_plan_create(f->ctx, desc, &plan, &f->error), status);
    assert_null(plan);
    assert_string_equal(f->error.argument, argument);
}

static void plan_makes_the_checks_of_attend(void **state) {
    (void)state;
    attend_fixture f = filled();
    mmla_attend_desc d = f.desc;
    d.n_heads = 12;
    refuses(&f, &d, MMLA_E_SHAPE, "n_heads");
    d = f.desc, d.scale = 0.0f;
    refuses(&f, &d, MMLA_E_VALUE, "scale");
    d = f.desc, d.window.format = MMLA_KV_INDEX_FP8;
    refuses(&f, &d, MMLA_E_FORMAT, "window.format");
    d = f.desc, d.list_width = 0;
    refuses(&f, &d, MMLA_E_SHAPE, "list_width");
    d = f.desc, d.implementation = "reference";
    refuses(&f, &d, MMLA_E_NO_IMPLEMENTATION, "implementation");
    mmla_chain_plan *plan;
    assert_int_equal(mmla_chain_plan_create(f.ctx, &f.desc, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_chain_plan_create(NULL, &f.desc, &plan, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_chain_plan_create(f.ctx, NULL, &plan, NULL), MMLA_E_NULL);
    mmla_chain_plan_destroy(NULL);
    attend_fixture_destroy(&f);
}

static void workspace_counts_two_tensors_and_the_rows_of_a_token(void **state) {
    (void)state;
    attend_fixture f = filled();
    mmla_chain_plan *plan;
    f.desc.max_tokens = 1000;
    assert_int_equal(mmla_chain_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    const size_t tensors = 2 * 1000 * 8 * (size_t)MMLA_LATENT_DIM * 2;
    const size_t rows = 2 * (size_t)(f.desc.list_width + f.desc.compressed_width) * 1024;
    const size_t bytes = mmla_chain_workspace_bytes(plan);
    assert_true(bytes >= tensors + rows && bytes <= tensors + rows + rows / 8 + 1024);
    mmla_chain_plan_destroy(plan);
    /* The widest lists a description can have still give a size. */
    f.desc.max_tokens = 1 << 20;
    f.desc.n_heads = 128;
    f.desc.list_width = f.desc.compressed_width = INT32_MAX;
    assert_int_equal(mmla_chain_plan_create(f.ctx, &f.desc, &plan, &f.error), MMLA_OK);
    assert_true(mmla_chain_workspace_bytes(plan) > (size_t)1 << 43);
    mmla_chain_plan_destroy(plan);
    attend_fixture_destroy(&f);
}

static void run_refuses_wrong_arguments_and_writes_nothing(void **state) {
    (void)state;
    attend_fixture f = filled();
    mmla_chain_plan *plan;
    assert_int_equal(mmla_chain_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
    test_buffer work = test_buffer_create(mmla_chain_workspace_bytes(plan), 64);
    f.args.error = &f.error;
    const mmla_attend_args good = f.args;

    f.args.n_tokens = 2;
    assert_int_equal(mmla_chain_run(plan, &f.args, work.data, NULL), MMLA_E_SHAPE);
    assert_string_equal(f.error.argument, "n_tokens");
    f.args = good, f.args.q = NULL;
    assert_int_equal(mmla_chain_run(plan, &f.args, work.data, NULL), MMLA_E_NULL);
    assert_string_equal(f.error.argument, "q");
    f.args = good, f.args.out = (uint8_t *)f.out.data + 16;
    assert_int_equal(mmla_chain_run(plan, &f.args, work.data, NULL), MMLA_E_ALIGNMENT);
    assert_string_equal(f.error.argument, "out");
    assert_int_equal(mmla_chain_run(plan, &good, NULL, NULL), MMLA_E_NULL);
    assert_string_equal(f.error.argument, "workspace");
    assert_int_equal(mmla_chain_run(plan, &good, (uint8_t *)work.data + 32, NULL),
                     MMLA_E_ALIGNMENT);
    assert_int_equal(mmla_chain_run(NULL, &good, work.data, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_chain_run(plan, NULL, work.data, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_chain_step_run(NULL, MMLA_CHAIN_ATTEND, &good, work.data, NULL),
                     MMLA_E_NULL);
    assert_int_equal(mmla_chain_step_run(plan, MMLA_CHAIN_ATTEND, NULL, work.data, NULL),
                     MMLA_E_NULL);
    for (int step = -1; step <= 4; step += 5) {
        assert_int_equal(mmla_chain_step_run(plan, (mmla_chain_step)step, &good, work.data, NULL),
                         MMLA_E_VALUE);
        assert_string_equal(f.error.argument, "step");
        assert_null(mmla_chain_intermediate(plan, (mmla_chain_step)step, work.data));
    }
    assert_true(test_buffer_is_untouched(&work, 0, work.bytes));
    assert_true(test_buffer_is_untouched(&f.out, 0, f.out.bytes));
    test_buffer_destroy(&work);
    mmla_chain_plan_destroy(plan);
    attend_fixture_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_makes_the_checks_of_attend),
        cmocka_unit_test(workspace_counts_two_tensors_and_the_rows_of_a_token),
        cmocka_unit_test(run_refuses_wrong_arguments_and_writes_nothing),
    };
    return cmocka_run_group_tests_name("chain_plan", tests, NULL, NULL);
}
