/* The test of staging: every suite passes when the calls of the CPU run on staged copies, which have
 * exactly the bytes that a call may touch, and twice, first on contents made of one byte. A GPU runs
 * the same cases in the same way but for who copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/check/check_report.h"
#include "app/check/check_session.h"

static void suites_run(bool corrupt, check_session *s) {
    const check_options o = {.seed = 3, .quick = true, .copies = true, .corrupt = corrupt};
    assert_int_equal(check_session_init(s, &o, NULL), MMLA_OK);
    for (int64_t idx = 0; idx < (corrupt ? 4 : 10); idx++) {
        s->options.only_case = idx;
        check_session_run(s);
    }
}

static void every_suite_passes_on_copies(void **state) {
    (void)state;
    check_session s;
    suites_run(false, &s);
    check_report_end_print(&s, stdout);
    assert_int_equal(check_session_failures(&s), 0);
    check_session_deinit(&s);
}

static void suites_for_a_gpu_notice_damaged_results(void **state) {
    (void)state;
    check_session s;
    suites_run(true, &s);
    int n_rows = 0;
    for (int i = 0; i < s.n_rows; i++) {
        assert_true(s.rows[i].n_failed > 0);
        n_rows += strcmp(s.rows[i].op, "graph") == 0 || strcmp(s.rows[i].op, "streams") == 0;
    }
    assert_true(n_rows >= 2);
    check_session_deinit(&s);
}

/* As cases of a GPU run. */
static void cases_side_by_side_give_the_same_rows(void **state) {
    (void)state;
    check_session sessions[2];
    for (int i = 0; i < 2; i++) {
        const check_options o = {
            .seed = 4, .quick = true, .only_case = -1, .op = "kv_gather", .copies = true};
        assert_int_equal(check_session_init(&sessions[i], &o, NULL), MMLA_OK);
        sessions[i].n_workers = i == 0 ? 1 : 4;
        assert_int_equal(check_session_run(&sessions[i]), check_suite_kv_gather.n_quick);
    }
    assert_int_equal(sessions[0].n_rows, sessions[1].n_rows);
    for (int i = 0; i < sessions[0].n_rows; i++) {
        const check_row *a = &sessions[0].rows[i], *b = &sessions[1].rows[i];
        assert_string_equal(a->implementation, b->implementation);
        assert_int_equal(a->n_cases, check_suite_kv_gather.n_quick);
        assert_int_equal(b->n_cases, a->n_cases);
        assert_int_equal(b->n_failed, 0);
    }
    check_session_deinit(&sessions[0]);
    check_session_deinit(&sessions[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_suite_passes_on_copies),
        cmocka_unit_test(cases_side_by_side_give_the_same_rows),
        cmocka_unit_test(suites_for_a_gpu_notice_damaged_results),
    };
    return cmocka_run_group_tests_name("check_copies", tests, NULL, NULL);
}
