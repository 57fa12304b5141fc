/* The test of the test: every suite must notice a result that was damaged after it was computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <megamla/megamla.h>

#include "app/check/check_session.h"

static void run_some(check_session *s) {
    const int64_t cases[] = {0, 1, 5, 11};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s->options.only_case = cases[i];
        check_session_run(s);
    }
}

static void a_damaged_result_fails_in_every_suite(void **state) {
    (void)state;
    check_session s;
    const check_options o = {.seed = 1, .quick = true, .corrupt = true};
    assert_int_equal(check_session_init(&s, &o, NULL), MMLA_OK);
    run_some(&s);
    assert_true(s.n_rows >= 9);
    for (int i = 0; i < s.n_rows; i++) {
        if (s.rows[i].n_failed == 0) {
            print_error("%s, %s: no case of %d noticed\n", s.rows[i].op, s.rows[i].implementation,
                        (int)s.rows[i].n_cases);
        }
        assert_true(s.rows[i].n_failed > 0);
    }
    check_session_deinit(&s);
}

static void the_same_cases_pass_undamaged(void **state) {
    (void)state;
    check_session s;
    const check_options o = {.seed = 1, .quick = true};
    assert_int_equal(check_session_init(&s, &o, NULL), MMLA_OK);
    run_some(&s);
    assert_int_equal(check_session_failures(&s), 0);
    check_session_deinit(&s);
}

static void a_case_is_the_same_without_those_before_it(void **state) {
    (void)state;
    check_session s;
    check_options o = {.seed = 5, .quick = true, .op = "attend", .only_case = 3};
    double used[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(check_session_init(&s, &o, NULL), MMLA_OK);
        if (i == 1) {
            s.options.only_case = 2;
            check_session_run(&s);
            s.options.only_case = 3;
            s.n_rows = 0;
        }
        check_session_run(&s);
        assert_true(s.n_rows > 0);
        used[i] = s.rows[0].lse_used;
        check_session_deinit(&s);
    }
    assert_true(used[0] == used[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_result_fails_in_every_suite),
        cmocka_unit_test(the_same_cases_pass_undamaged),
        cmocka_unit_test(a_case_is_the_same_without_those_before_it),
    };
    return cmocka_run_group_tests_name("check_corrupt", tests, NULL, NULL);
}
