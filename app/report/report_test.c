/* report_test.c - text that is not UTF-8, files that cannot be written, lines that end early. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/report/report_cpu.h"
#include "app/report/report_json.h"
#include "app/report/report_quantiles.h"

#define FFFD "\xEF\xBF\xBD"

static void text_replaces_what_is_not_utf8(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82"},
        {"a\xFF.b", "a" FFFD ".b"},
        {"\x80", FFFD},
        {"\xC3", FFFD},                            /* ends inside a character */
        {"\xE2\x82", FFFD FFFD},                   /* the same */
        {"\xC0\xAF", FFFD FFFD},                   /* overlong */
        {"\xE0\x9F\xBF", FFFD FFFD FFFD},          /* overlong */
        {"\xED\xA0\x80", FFFD FFFD FFFD},          /* a surrogate */
        {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* beyond U+10FFFF */
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},  /* the last one */
        {"\xC3\xC3\xA9", FFFD "\xC3\xA9"},         /* begins anew */
        {"\xF8\x88\x80\x80\x80", FFFD FFFD FFFD FFFD FFFD},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        json_t *value = report_text(pairs[i][0]);
        assert_non_null(value);
        assert_string_equal(json_string_value(value), pairs[i][1]);
        json_decref(value);
    }
}

static void text_of_every_two_bytes_is_a_value(void **state) {
    (void)state;
    for (int i = 1; i < 1 << 16; i++) {
        const char text[] = {(char)(i >> 8), (char)i, '\x80', '\0'};
        json_t *value = report_text(text);
        assert_non_null(value);
        json_decref(value);
    }
}

static void real_that_json_does_not_have_is_null(void **state) {
    (void)state;
    const double values[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        assert_true(json_is_null(report_real(values[i])));
    }
    json_t *zero = report_real(0.0);
    assert_true(json_is_real(zero));
    json_decref(zero);
}

static void whole_without_a_part_is_none(void **state) {
    (void)state;
    json_t *object = json_object(), *array = json_array();
    report_set(&object, "a", json_true());
    report_append(&array, json_true());
    assert_int_equal(json_object_size(object), 1);
    assert_int_equal(json_array_size(array), 1);
    for (int i = 0; i < 2; i++) { /* the second time there is none already */
        report_set(&object, "b", json_string("\xFF"));
        report_append(&array, NULL);
        assert_null(object);
        assert_null(array);
    }
    report_set(&object, "c", json_integer(1));
    report_append(&array, json_integer(1));
    assert_null(object);
    assert_null(array);
}

static int entries_count(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static void save_that_fails_keeps_the_file_there_was(void **state) {
    (void)state;
    char folder[] = "/tmp/report_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.json", folder);
    mmla_error err = {0};
    assert_int_equal(report_save(json_pack("{s:i}", "a", 1), path, 0, &err), MMLA_OK);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 16;
    signal(SIGXFSZ, SIG_IGN); /* the write then fails */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    json_t *longer = json_pack("{s:s}", "a", "more than sixteen bytes of text");
    const mmla_status status = report_save(longer, path, 0, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "File too large"));
    assert_int_equal(entries_count(folder), 1);
    json_t *kept = json_load_file(path, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(kept, "a")), 1);
    json_decref(kept);
    unlink(path);
    rmdir(folder);
}

static void save_says_why_not(void **state) {
    (void)state;
    mmla_error err = {0};
    assert_int_equal(report_save(json_object(), "/nonexistent/x", 0, &err), MMLA_E_VALUE);
    assert_non_null(strstr(err.message, "No such file"));
    assert_int_equal(report_save(NULL, "/nonexistent/x", 0, &err), MMLA_E_MEMORY);
    assert_non_null(strstr(err.message, "out of memory"));
}

static void quantiles_are_samples_in_order(void **state) {
    (void)state;
    double one[] = {3.0}, ten[] = {9, 0, 8, 1, 7, 2, 6, 3, 5, 4};
    const report_quantiles a = report_quantiles_of(one, 1), b = report_quantiles_of(ten, 10);
    assert_true(a.p10 == 3.0 && a.median == 3.0 && a.p90 == 3.0);
    assert_true(b.p10 == 1.0 && b.median == 5.0 && b.p90 == 8.0);
}

static void cpu_name_of_short_and_odd_lines(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n", "A CPU @ 2 GHz"},
        {"model name\t: no line end", "no line end"},
        {"model name:x\n", "x"},
        {"model name\t:\n", ""},
        {"model name\t:", ""}, /* nothing behind the colon, not even the line's end */
        {"model name\t:\nmodel name\t: C\n", "C"},
        {"model name\n", ""},
        {"model\t\t: 85\n", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *text = strdup(pairs[i][0]), name[REPORT_CPU_BYTES];
        FILE *from = fmemopen(text, strlen(text), "r");
        report_cpu_name_read(from, name);
        assert_string_equal(name, pairs[i][1]);
        fclose(from);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_replaces_what_is_not_utf8),
        cmocka_unit_test(text_of_every_two_bytes_is_a_value),
        cmocka_unit_test(real_that_json_does_not_have_is_null),
        cmocka_unit_test(whole_without_a_part_is_none),
        cmocka_unit_test(save_that_fails_keeps_the_file_there_was),
        cmocka_unit_test(save_says_why_not),
        cmocka_unit_test(quantiles_are_samples_in_order),
        cmocka_unit_test(cpu_name_of_short_and_odd_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
