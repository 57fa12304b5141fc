/* The benchmark's own arithmetic, and one row of each operation from end to end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "app/bench/bench.h"
#include "app/bench/bench_pool.h"
#include "app/bench/bench_report.h"

static void nap(void *job, int64_t i) {
    int64_t *calls = job;
    assert_int_equal(i, *calls); /* every call gets the next index */
    (*calls)++;
    nanosleep(&(struct timespec){.tv_nsec = i % 10 == 9 ? 3000000 : 200000}, NULL);
}

static void percentiles_are_ordered_and_bound_by_the_call(void **state) {
    (void)state;
    int64_t calls = 0;
    const bench_timing t = bench_measure(nap, &calls, 20, 10.0);
    assert_int_equal(t.n_samples, 20);
    assert_int_equal(t.last, calls - 1);
    assert_true(t.p10_us >= 200.0 && t.p10_us <= t.median_us && t.median_us <= t.p90_us);
}

static void a_spent_budget_still_gives_five_samples(void **state) {
    (void)state;
    int64_t calls = 0;
    assert_int_equal(bench_measure(nap, &calls, 1000, 0.0).n_samples, 5);
}

static void samples_that_spread_widely_are_no_baseline(void **state) {
    (void)state;
    const bench_timing steady = {.median_us = 15.0, .p10_us = 10.0, .p90_us = 20.0};
    const bench_timing wide = {.median_us = 15.0, .p10_us = 10.0, .p90_us = 20.5};
    const bench_timing none = {0};
    assert_true(bench_baseline_us(steady) == 15.0);
    assert_true(bench_baseline_us(wide) == 0.0);
    assert_true(bench_baseline_us(none) == 0.0);
}

static void lists_name_every_slot_before_any_again(void **state) {
    (void)state;
    enum { SLOTS = 64 * 37 };
    const bench_cache cache = {.n_slots = SLOTS};
    const int64_t runs[] = {1, 8, 64};
    for (int r = 0; r < 3; r++) {
        check_buffer lists = bench_lists_create(&cache, SLOTS / 64, 1, 64, runs[r], NULL);
        uint8_t seen[SLOTS] = {0};
        for (int64_t i = 0; i < SLOTS; i++) {
            const int32_t slot = ((const int32_t *)lists.data)[i];
            assert_in_range(slot, 0, SLOTS - 1);
            assert_int_equal(seen[slot]++, 0);
            assert_true(i % runs[r] == 0 || slot == ((const int32_t *)lists.data)[i - 1] + 1);
        }
        check_buffer_destroy(&lists);
    }
}

/* The result file of a session, parsed. */
static json_t *saved(const bench_session *s) {
    char path[] = "/tmp/bench_test.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    mmla_error err = {0};
    assert_int_equal(bench_report_save(s, path, "megamla bench \xFF", "a\xC3", &err), MMLA_OK);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    close(fd);
    unlink(path);
    assert_non_null(root);
    return root;
}

static void one_row_of_each_operation_is_verified_and_saved(void **state) {
    (void)state;
    static const char *const fields[] = {"op",         "heads",   "tokens",   "window",
                                         "compressed", "formats", "out_form", "impl",
                                         "fused_us",   "p10_us",  "p90_us",   "chain_us",
                                         "floor_us",   "tflops",  "tbps",     "sgemm_us"};
    const bench_options o = {.seed = 3,
                             .quick = true,
                             .heads = {.values = {8}, .n = 1},
                             .tokens = {.values = {2}, .n = 1},
                             .n_samples = 5};
    bench_session *s = malloc(sizeof *s);
    assert_int_equal(bench_session_init(s, &o, NULL), MMLA_OK);
    assert_true(s->read_gbps > 0.0 && s->copy_gbps > 0.0);
    bench_attend_run(s);
    bench_project_run(s);
    s->options.formats = "288";
    s->options.op = "kv_gather";
    bench_kv_run(s);
    s->options.op = "kv_insert";
    bench_kv_run(s);
    assert_int_equal(s->n_rows, 2 + 1 + 1 + 1);
    for (int i = 0; i < s->n_rows; i++) {
        if (!s->rows[i].verified) {
            print_error("%s: %s\n", s->rows[i].op, s->rows[i].problem);
        }
        assert_true(s->rows[i].verified && s->rows[i].fused.median_us > 0.0);
        assert_true(s->rows[i].bytes > 0.0 && s->rows[i].floor_us > 0.0);
    }
    assert_int_equal(bench_report_problems(s), 0);
    json_t *root = saved(s), *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), s->n_rows);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
            assert_non_null(json_object_get(json_array_get(rows, i), fields[f]));
        }
    }
    json_decref(root);
    bench_session_deinit(s);
    free(s);
}

/* The rows of a CPU: few keys, none at all, warm, pages of another size that lie apart. */
static void attention_is_verified_in_every_scenario(void **state) {
    (void)state;
    const bench_options base = {.seed = 3,
                                .op = "attend_paged",
                                .formats = "528+288",
                                .heads = {.values = {8}, .n = 1},
                                .tokens = {.values = {5}, .n = 1},
                                .n_samples = 5};
    bench_options cases[] = {base, base, base, base};
    cases[0].lengths = BENCH_LENGTHS_MIXED;
    cases[0].padded_percent = 20;
    cases[1].padded_percent = 100;
    cases[2].warm = true;
    cases[3].page_tokens = 32;
    cases[3].n_layers = 3;
    bench_session *s = malloc(sizeof *s);
    assert_int_equal(bench_session_init(s, &base, NULL), MMLA_OK);
    for (int i = 0; i < 4; i++) {
        s->options = cases[i];
        s->n_rows = 0;
        bench_attend_run(s);
        assert_int_equal(s->n_rows, 1);
        const bench_row *row = &s->rows[0];
        if (!row->verified) {
            print_error("case %d: %s\n", i, row->problem);
        }
        assert_true(row->verified && row->chain_us > 0.0);
        assert_true(i >= 2 ? row->keys == 640.0 : i == 1 ? row->keys == 0.0 : row->keys < 512.0);
        assert_true(row->flop == row->keys * 5.0 * 8.0 * 2048.0);
        assert_true(i < 2 || row->bytes == 5.0 * 215040.0);
    }
    bench_session_deinit(s);
    free(s);
}

static void a_damaged_output_is_not_verified(void **state) {
    (void)state;
    const bench_corrupt corrupts[] = {BENCH_CORRUPT_FUSED, BENCH_CORRUPT_CHAIN};
    const char *const words[] = {"out", "chain: "};
    for (int i = 0; i < 2; i++) {
        const bench_options o = {.seed = 3,
                                 .quick = true,
                                 .op = "attend_rows",
                                 .corrupt = corrupts[i],
                                 .heads = {.values = {8}, .n = 1},
                                 .tokens = {.values = {1}, .n = 1},
                                 .n_samples = 5};
        bench_session *s = malloc(sizeof *s);
        assert_int_equal(bench_session_init(s, &o, NULL), MMLA_OK);
        bench_attend_run(s);
        assert_int_equal(s->n_rows, 1);
        assert_false(s->rows[0].verified);
        assert_non_null(strstr(s->rows[0].problem, words[i]));
        assert_true(s->rows[0].chain_us == 0.0);
        bench_session_deinit(s);
        free(s);
    }
}

static void a_wrong_output_has_no_time(void **state) {
    (void)state;
    bench_session *s = calloc(1, sizeof *s);
    const mmla_context_options one = {.n_threads = 1};
    assert_int_equal(mmla_context_create(&one, &s->ctx, NULL), MMLA_OK);
    s->host = s->ctx;
    bench_row *row = bench_row_add(s, "attend_paged", "528+288");
    row->fused = (bench_timing){.median_us = 5.0, .p10_us = 4.0, .p90_us = 6.0};
    snprintf(row->problem, sizeof row->problem, "wrong");
    assert_int_equal(bench_report_problems(s), 1);
    json_t *root = saved(s);
    const json_t *saved_row = json_array_get(json_object_get(root, "rows"), 0);
    assert_true(json_is_null(json_object_get(saved_row, "fused_us")));
    assert_string_equal(json_string_value(json_object_get(saved_row, "problem")), "wrong");
    json_decref(root);
    mmla_context_destroy(s->ctx);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_ordered_and_bound_by_the_call),
        cmocka_unit_test(a_spent_budget_still_gives_five_samples),
        cmocka_unit_test(samples_that_spread_widely_are_no_baseline),
        cmocka_unit_test(lists_name_every_slot_before_any_again),
        cmocka_unit_test(one_row_of_each_operation_is_verified_and_saved),
        cmocka_unit_test(attention_is_verified_in_every_scenario),
        cmocka_unit_test(a_damaged_output_is_not_verified),
        cmocka_unit_test(a_wrong_output_has_no_time),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
