/* The rows of a GPU with the host in its place: everything but the device itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "app/bench/bench_fixture.h"
#include "app/bench/bench_gpu.h"
#include "app/bench/bench_gpu_shape.h"
#include "app/bench/bench_replay.h"
#include "app/bench/bench_report.h"
#include "app/bench/bench_sample.h"

static void run_all(bench_session *s) {
    bench_gpu_attend_run(s);
    bench_gpu_prefill_run(s);
    bench_gpu_project_run(s);
    bench_gpu_kv_run(s);
    bench_gpu_list_run(s);
    bench_gpu_step_run(s);
}

static void a_replay_walks_through_all_sets_and_lasts(void **state) {
    (void)state;
    assert_int_equal(bench_replay_calls(1000.0, 1), 1);
    assert_int_equal(bench_replay_calls(1000.0, 3), 3);
    assert_int_equal(bench_replay_calls(10.0, 1), 21);
    assert_int_equal(bench_replay_calls(10.0, 16), 32);
    assert_int_equal(bench_replay_calls(10.0, 837), 837);
    const int64_t many = bench_replay_calls(0.0, 3); /* a clock that saw nothing */
    assert_true(many > 1000 && many < 10000 && many % 3 == 0);
}

typedef struct counter {
    int64_t calls, highest;
    mmla_status status;
} counter;

static mmla_status count(void *job, int64_t i, void *stream, mmla_error *err) {
    counter *c = job;
    (void)stream;
    c->calls++;
    c->highest = i > c->highest ? i : c->highest;
    if (c->status != MMLA_OK) {
        snprintf(err->message, sizeof err->message, "call %d refused", (int)i);
    }
    return c->status;
}

static void the_last_call_is_the_last_of_the_graph(void **state) {
    (void)state;
    bench_device d = {0};
    counter c = {0};
    bench_replay r = bench_replay_create(&d, count, &c, 6);
    const bench_timing t = bench_replay_measure(&r, 9, 1.0);
    assert_int_equal(t.n_samples, 9);
    assert_int_equal(t.last % 6, 5);
    assert_int_equal(t.last, c.highest);
    bench_replay_destroy(&r);
}

static void a_failed_call_stops_and_is_kept(void **state) {
    (void)state;
    bench_device d = {0};
    counter c = {.status = MMLA_E_LAUNCH};
    bench_replay r = bench_replay_create(&d, count, &c, 6);
    const bench_timing t = bench_replay_measure(&r, 9, 1.0);
    assert_int_equal(c.calls, 1);
    assert_int_equal(t.n_samples, 0);
    assert_int_equal(d.error.status, MMLA_E_LAUNCH);
    assert_string_equal(d.error.message, "call 0 refused");
    bench_replay_destroy(&r);
    bench_device_forget(&d);
    assert_true(bench_device_is_well(&d));
}

static void a_failed_device_is_left_alone(void **state) {
    (void)state;
    bench_device d = {0};
    bench_arena arena = {.device = &d};
    const uint8_t bytes[3] = {1, 2, 3};
    const mmla_error none = {0};
    assert_false(bench_device_keep(&d, MMLA_E_MEMORY, &none));
    assert_string_equal(d.error.message, mmla_status_text(MMLA_E_MEMORY));
    assert_null(bench_arena_repeat(&arena, bytes, 3, 100));
    assert_null(bench_arena_copy(&arena, bytes, 3));
    assert_int_equal(arena.n, 0);
    bench_arena_destroy(&arena);
}

static void a_repeated_tile_fills_every_byte(void **state) {
    (void)state;
    bench_device d = {0};
    bench_arena arena = {.device = &d};
    const uint8_t tile[3] = {1, 2, 3};
    const int64_t totals[] = {2, 3, 4, 6, 100};
    for (int k = 0; k < 5; k++) {
        const uint8_t *memory = bench_arena_repeat(&arena, tile, 3, totals[k]);
        for (int64_t i = 0; i < totals[k]; i++) {
            assert_int_equal(memory[i], tile[i % 3]);
        }
    }
    bench_arena_destroy(&arena);
}

static void sampled_tokens_reach_both_ends_once(void **state) {
    (void)state;
    int64_t tokens[BENCH_SAMPLE_MAX];
    for (int64_t n = 1; n < 2000; n += n < 20 ? 1 : 97) {
        const int64_t m = bench_sample_pick(n, tokens);
        assert_int_equal(m, n < BENCH_SAMPLE_MAX ? n : BENCH_SAMPLE_MAX);
        assert_int_equal(tokens[0], 0);
        assert_int_equal(tokens[m - 1], n - 1);
        for (int64_t i = 1; i < m; i++) {
            assert_true(tokens[i] > tokens[i - 1]);
        }
    }
}

static void prefill_lists_name_no_row_twice(void **state) {
    (void)state;
    enum { KEYS = BENCH_WINDOW + BENCH_COMPRESSED };
    const int64_t counts[] = {1, 184, 2123, 20000};
    for (int k = 0; k < 4; k++) {
        check_buffer lists = bench_gpu_prefill_lists(counts[k]);
        uint8_t *seen = calloc(BENCH_GPU_ROWS, 1);
        for (int64_t t = 0; t < counts[k]; t += 1 + t / 50) {
            const int32_t *list = (const int32_t *)lists.data + t * KEYS;
            memset(seen, 0, BENCH_GPU_ROWS);
            for (int64_t i = 0; i < KEYS; i++) {
                assert_in_range(list[i], 0, BENCH_GPU_ROWS - 1);
                assert_int_equal(seen[list[i]]++, 0);
            }
            for (int64_t i = BENCH_COMPRESSED + 1; i < KEYS; i++) {
                assert_int_equal(list[i], list[i - 1] + 1); /* the window */
            }
        }
        free(seen);
        check_buffer_destroy(&lists);
    }
}

static void floors_are_the_larger_of_both_ceilings(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create(NULL, NULL, 0, 0);
    /* docs/performance.md: 64 tokens of 64 heads, 528 + 288 */
    const double keys = 64.0 * 640.0;
    bench_row row = {.flop = 64.0 * keys * 2048.0, .bytes = 64.0 * 215040.0};
    s->read_gbps = 4300.0;
    s->gemm_tflops = 810.0;
    s->node_us = 0.55;
    assert_true(bench_floor_us(s, &row) > 6.5 && bench_floor_us(s, &row) < 6.7);
    row.flop /= 8.0; /* 8 heads */
    assert_true(bench_floor_us(s, &row) > 3.1 && bench_floor_us(s, &row) < 3.3);
    row.bytes /= 64.0;
    row.flop /= 64.0;
    assert_true(bench_floor_us(s, &row) == 0.55);
    s->gemm_tflops = 0.0; /* nothing known of products */
    row.flop *= 1e6;
    assert_true(bench_floor_us(s, &row) == 0.55);
    bench_fixture_destroy(s);
}

static void sets_touch_more_than_the_caches_hold(void **state) {
    (void)state;
    bench_session s = {.cold_bytes = INT64_C(180) << 20};
    const double token = 215040.0;
    assert_true((double)bench_gpu_sets_count(&s, token) * token > (double)s.cold_bytes);
    assert_int_equal(bench_gpu_sets_count(&s, 1024.0 * token), 2);
    assert_true(bench_gpu_sets_count(&s, 1.0) < 10000);
    assert_int_equal(bench_gpu_sets_count(&s, 0.0), 2);
}

static void every_operation_is_verified(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create(NULL, NULL, 8, 3);
    run_all(s);
    /* Those with heads. */
    const char *const ops[] = {"attend_paged", "attend_rows", "prefill_paged", "prefill_workspace",
                               "project"};
    bench_fixture_assert_verified(s, 5);
    for (int i = 0; i < 5; i++) {
        const bench_row *row = &s->rows[i];
        assert_string_equal(row->op, ops[i]);
        assert_int_equal(row->heads, 8);
        assert_int_equal(row->tokens, 3);
        assert_true(row->floor_us > 0.0 && row->flop > 0.0);
        assert_true(i >= 2 || row->chain_us > 0.0);
        assert_true(i == 4 || row->keys == 640.0);
        assert_true((row->context > 0) == (i == 2 || i == 3));
    }
    bench_fixture_destroy(s);
}

static void prefill_is_verified_whatever_the_context(void **state) {
    (void)state;
    const int64_t contexts[] = {1, 7, 300, 3000}, tokens[] = {1, 7, 130, 3000};
    for (int i = 0; i < 4; i++) {
        bench_session *s = bench_fixture_create(NULL, NULL, 8, tokens[i]);
        s->options.contexts = (bench_list){.values = {contexts[i]}, .n = 1};
        bench_gpu_prefill_run(s);
        bench_fixture_assert_verified(s, 2);
        assert_true(s->rows[0].keys == s->rows[1].keys && s->rows[0].keys <= 640.0);
        bench_fixture_destroy(s);
    }
    bench_session *s = bench_fixture_create("prefill_paged", NULL, 8, 8);
    s->options.contexts = (bench_list){.values = {7}, .n = 1};
    bench_gpu_prefill_run(s); /* the call does not fit its request */
    assert_int_equal(s->n_rows, 0);
    bench_fixture_destroy(s);
}

static void every_pair_of_formats_is_verified(void **state) {
    (void)state;
    const char *const formats[] = {"528+288", "528+528", "528", "584+584", "584"};
    const double bytes[] = {215040.0, 337920.0, 337920.0, 373760.0, 373760.0};
    for (int i = 0; i < 5; i++) {
        bench_session *s = bench_fixture_create("attend_paged", formats[i], 8, 9);
        run_all(s);
        bench_fixture_assert_verified(s, 1);
        assert_true(s->rows[0].bytes == 9.0 * bytes[i]);
        assert_int_equal(s->rows[0].window + s->rows[0].compressed, 640);
        bench_fixture_destroy(s);
    }
}

static void shorter_lists_are_less_work(void **state) {
    (void)state;
    const bench_lengths lengths[] = {BENCH_LENGTHS_MIXED, BENCH_LENGTHS_SHORT, BENCH_LENGTHS_KEYS};
    for (int i = 0; i < 3; i++) {
        bench_session *s = bench_fixture_create("attend_paged", "528+288", 8, 9);
        s->options.lengths = lengths[i];
        s->options.n_keys = 200;
        s->options.batch_invariant = true;
        run_all(s);
        bench_fixture_assert_verified(s, 1);
        const bench_row *row = &s->rows[0];
        assert_true(row->keys >= 80.0 && row->keys < 600.0);
        assert_true(row->flop == row->keys * 9.0 * 8.0 * 2048.0);
        bench_fixture_destroy(s);
    }
}

static void caches_and_lists_are_verified_byte_by_byte(void **state) {
    (void)state;
    const int64_t rows[] = {1, 512, 2100};
    for (int i = 0; i < 3; i++) {
        bench_session *s = bench_fixture_create(NULL, NULL, 0, rows[i]);
        bench_gpu_kv_run(s);
        bench_fixture_assert_verified(s, 6);
        assert_int_equal(s->rows[0].tokens, i == 2 ? 4096 : rows[i]); /* whole tiles */
        bench_fixture_destroy(s);
    }
    for (int64_t n = 1; n <= 65; n += 64) {
        bench_session *s = bench_fixture_create(NULL, NULL, 0, n);
        bench_gpu_list_run(s);
        bench_gpu_step_run(s);
        bench_fixture_assert_verified(s, 6);
        bench_fixture_destroy(s);
    }
}

static void a_call_costs_the_host_time(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create("host_cost", NULL, 0, 0);
    run_all(s);
    bench_fixture_assert_verified(s, 1);
    assert_string_equal(s->rows[0].op, "host_cost");
    assert_true(s->rows[0].floor_us == 0.0);
    bench_fixture_destroy(s);
}

static void damaged_results_have_no_time(void **state) {
    (void)state;
    const struct {
        const char *op;
        bench_corrupt corrupt;
        const char *word;
    } cases[] = {
        {"attend_paged", BENCH_CORRUPT_FUSED, "out"},
        {"attend_rows", BENCH_CORRUPT_CHAIN, "chain: "},
        {"project", BENCH_CORRUPT_FUSED, "z["},
        {"kv_insert", BENCH_CORRUPT_FUSED, "cache"},
        {"kv_gather", BENCH_CORRUPT_FUSED, "rows"},
        {"list_window", BENCH_CORRUPT_FUSED, "list"},
        {"step", BENCH_CORRUPT_FUSED, "cache"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool has_heads = i < 3;
        bench_session *s = bench_fixture_create(cases[i].op, NULL, has_heads ? 8 : 0, 2);
        s->options.corrupt = cases[i].corrupt;
        run_all(s);
        assert_true(s->n_rows >= 1);
        for (int k = 0; k < s->n_rows; k++) {
            assert_false(s->rows[k].verified);
            assert_non_null(strstr(s->rows[k].problem, cases[i].word));
        }
        assert_int_equal(bench_report_problems(s), s->n_rows);
        bench_fixture_destroy(s);
    }
}

static void a_refused_shape_says_why(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create("attend_paged", "528", 8, 1);
    s->options.implementation = "fastest";
    s->options.op = NULL; /* the name is checked by the command, not here */
    bench_gpu_attend_run(s);
    assert_int_equal(s->n_rows, 0); /* no operation has it */
    s->options.implementation = NULL;
    s->options.heads.values[0] = 12;
    bench_gpu_attend_run(s);
    assert_int_equal(s->n_rows, 1);
    assert_false(s->rows[0].verified);
    assert_non_null(strstr(s->rows[0].problem, "n_heads"));
    bench_fixture_destroy(s);
}

/* The result file of a session, parsed. */
static json_t *saved(const bench_session *s) {
    char path[] = "/tmp/bench_gpu_test.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    mmla_error err = {0};
    assert_int_equal(bench_report_save(s, path, "megamla bench", NULL, &err), MMLA_OK);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    close(fd);
    unlink(path);
    assert_non_null(root);
    return root;
}

static void a_result_file_has_what_a_gpu_adds(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create("attend_paged", "528+288", 8, 1);
    run_all(s);
    s->rows[0].cublas_us = 7.0;
    s->node_us = 0.5;
    s->options.lengths = BENCH_LENGTHS_SHORT;
    s->options.padded_percent = 25;
    s->options.n_layers = 43;
    json_t *root = saved(s), *row = json_array_get(json_object_get(root, "rows"), 0);
    json_t *ceilings = json_object_get(root, "ceilings");
    assert_true(json_real_value(json_object_get(row, "cublas_us")) == 7.0);
    assert_true(json_real_value(json_object_get(row, "keys")) == 640.0);
    assert_true(json_real_value(json_object_get(ceilings, "empty_node_us")) == 0.5);
    assert_true(json_is_null(json_object_get(ceilings, "bf16_tflops")));
    assert_true(json_is_null(json_object_get(root, "cuda"))); /* the host stands in */
    assert_string_equal(json_string_value(json_object_get(root, "lengths")), "short");
    assert_true(json_is_false(json_object_get(root, "batch_invariant")));
    assert_true(json_is_false(json_object_get(root, "warm")));
    assert_int_equal(json_integer_value(json_object_get(root, "padded_percent")), 25);
    assert_int_equal(json_integer_value(json_object_get(root, "page_tokens")), 64);
    assert_int_equal(json_integer_value(json_object_get(root, "layers")), 43);
    json_decref(root);
    bench_fixture_destroy(s);
}

static void the_table_has_a_column_for_everything(void **state) {
    (void)state;
    bench_session *s = bench_fixture_create(NULL, NULL, 0, 0);
    char *text = NULL;
    size_t bytes;
    bench_row row = {.op = "attend_paged",
                     .formats = "528+288",
                     .implementation = "name",
                     .heads = 64,
                     .tokens = 1,
                     .fused = {.median_us = 8.0, .p10_us = 7.5, .p90_us = 8.25},
                     .chain_us = 16.0,
                     .floor_us = 4.0,
                     .flop = 8e6,
                     .bytes = 16e6,
                     .verified = true};
    FILE *to = open_memstream(&text, &bytes);
    bench_report_head_print(s, to);
    bench_report_row_print(s, &row, to);
    fclose(to);
    const char *line = strstr(text, "attend_paged");
    assert_non_null(line);
    assert_non_null(strstr(text, "floors are those of memory alone"));
    assert_string_equal(line,
                        "attend_paged      528+288     64      1     8.00     7.50     8.25     "
                        "4.00  2.00x     16.0  2.00x        -      1.0   2.00  name\n");
    free(text);
    bench_fixture_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_walks_through_all_sets_and_lasts),
        cmocka_unit_test(the_last_call_is_the_last_of_the_graph),
        cmocka_unit_test(a_failed_call_stops_and_is_kept),
        cmocka_unit_test(a_failed_device_is_left_alone),
        cmocka_unit_test(a_repeated_tile_fills_every_byte),
        cmocka_unit_test(sampled_tokens_reach_both_ends_once),
        cmocka_unit_test(prefill_lists_name_no_row_twice),
        cmocka_unit_test(floors_are_the_larger_of_both_ceilings),
        cmocka_unit_test(sets_touch_more_than_the_caches_hold),
        cmocka_unit_test(every_operation_is_verified),
        cmocka_unit_test(prefill_is_verified_whatever_the_context),
        cmocka_unit_test(every_pair_of_formats_is_verified),
        cmocka_unit_test(shorter_lists_are_less_work),
        cmocka_unit_test(caches_and_lists_are_verified_byte_by_byte),
        cmocka_unit_test(a_call_costs_the_host_time),
        cmocka_unit_test(damaged_results_have_no_time),
        cmocka_unit_test(a_refused_shape_says_why),
        cmocka_unit_test(a_result_file_has_what_a_gpu_adds),
        cmocka_unit_test(the_table_has_a_column_for_everything),
    };
    return cmocka_run_group_tests_name("bench_gpu", tests, NULL, NULL);
}
