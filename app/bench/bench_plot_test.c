/* The script that gnuplot is given, and, where there is a gnuplot, the picture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/bench/bench_plot.h"

static void add(bench_session *s,
                const char *op,
                const char *formats,
                int64_t heads,
                int64_t tokens,
                double us) {
    bench_row *row = bench_row_add(s, op, formats);
    *row = (bench_row){.op = op,
                       .formats = formats,
                       .heads = heads,
                       .tokens = tokens,
                       .fused = {.median_us = us, .p10_us = us, .p90_us = us},
                       .floor_us = us / 2.0,
                       .verified = true};
}

/* Two panels, one with two lines; rows that are not drawn, and tokens out of order. */
static bench_session *session(void) {
    bench_session *s = calloc(1, sizeof *s);
    const mmla_context_options one = {.n_threads = 1};
    assert_non_null(s);
    assert_int_equal(mmla_context_create(&one, &s->ctx, NULL), MMLA_OK);
    s->host = s->ctx;
    add(s, "attend_paged", "528+288", 64, 16, 12.0);
    add(s, "attend_paged", "528+288", 64, 1, 8.0);
    add(s, "attend_paged", "528+288", 8, 16, 7.0);
    add(s, "attend_paged", "528+288", 8, 1024, 80.0);
    add(s, "attend_paged", "528+288", 8, 64, 999.0);
    s->rows[s->n_rows - 1].verified = false;
    add(s, "attend_rows", "bf16", 64, 2123, 300.0);
    add(s, "kv_insert", "528", 0, 1024, 3.0);
    add(s, "project", NULL, 64, 1, 12.0);
    return s;
}

static void session_free(bench_session *s) {
    mmla_context_destroy(s->ctx);
    free(s);
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word)) {
        n++;
    }
    return n;
}

static void a_script_has_a_line_for_every_number_of_heads(void **state) {
    (void)state;
    bench_session *s = session();
    char *script = bench_plot_script(s);
    assert_int_equal(count_of(script, "\nplot "), 2);
    assert_int_equal(count_of(script, "title \"64 heads\""), 2);
    assert_int_equal(count_of(script, "title \"8 heads\""), 1);
    assert_non_null(strstr(script, "\n1 8 4\n16 12 6\nend_of_line\n")); /* in order of tokens */
    assert_non_null(strstr(script, "\n16 7 3.5\n1024 80 40\nend_of_line\n"));
    assert_null(strstr(script, "999")); /* a wrong output has no time */
    assert_null(strstr(script, "project"));
    assert_null(strstr(script, "kv_insert"));
    free(script);
    session_free(s);
}

static void without_rows_there_is_no_picture(void **state) {
    (void)state;
    bench_session *s = session();
    mmla_error err = {0};
    for (int i = 0; i < s->n_rows; i++) {
        s->rows[i].verified = false;
    }
    assert_int_equal(bench_plot_save(s, "/tmp/bench_plot_test.none", &err), MMLA_E_VALUE);
    assert_string_equal(err.message, "no row can be drawn");
    assert_int_equal(access("/tmp/bench_plot_test.none", F_OK), -1);
    session_free(s);
}

static void a_missing_gnuplot_is_explained(void **state) {
    (void)state;
    char *const path = strdup(getenv("PATH"));
    bench_session *s = session();
    mmla_error err = {0};
    setenv("PATH", "/nonexistent", 1);
    const mmla_status asked = bench_plot_ask(&err);
    const mmla_status saved = bench_plot_save(s, "/tmp/bench_plot_test.none", NULL);
    setenv("PATH", path, 1);
    assert_int_equal(asked, MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "needs gnuplot"));
    assert_int_equal(saved, MMLA_E_VALUE);
    assert_int_equal(access("/tmp/bench_plot_test.none", F_OK), -1);
    session_free(s);
    free(path);
}

static void gnuplot_draws_it(void **state) {
    (void)state;
    if (bench_plot_ask(NULL) != MMLA_OK) {
        skip();
    }
    char path[] = "/tmp/bench_plot_test.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    bench_session *s = session();
    mmla_error err = {0};
    const mmla_status status = bench_plot_save(s, path, &err);
    if (status != MMLA_OK) {
        print_error("%s\n", err.message);
    }
    assert_int_equal(status, MMLA_OK);
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 1000);
    fclose(file);
    unlink(path);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "</svg>"));
    assert_int_equal(count_of(text, "64 heads"), 2);
    assert_non_null(strstr(text, "floor"));
    free(text);
    session_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_script_has_a_line_for_every_number_of_heads),
        cmocka_unit_test(without_rows_there_is_no_picture),
        cmocka_unit_test(a_missing_gnuplot_is_explained),
        cmocka_unit_test(gnuplot_draws_it),
    };
    return cmocka_run_group_tests_name("bench_plot", tests, NULL, NULL);
}
