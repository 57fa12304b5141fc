/* lists_rule_test.c - the rules that CPU and GPU share, taken in the steps in which a GPU takes them:
 * 32 probes at a time for a request, entry by entry for a row, on legal and on hostile arrays.
 *
 * Arrays have exactly their size, so that the address sanitizer sees a read past one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ops/lists/lists_rule.h"
#include "support/rng.h"

static uint64_t seed;

/* What a warp does: every lane probes, the first that says no decides. */
static int64_t find(const mmla_list_args *args, int64_t t, int *n_steps) {
    mmla_lists_search s = {0, args->n_requests};
    *n_steps = 0;
    while (s.low < s.high) {
        int32_t n = 0;
        for (int32_t lane = 0; lane < MMLA_LISTS_PROBES; lane++) {
            const bool before = mmla_lists_search_probe(args, s, lane, t); /* all lanes read */
            n += n == lane && before ? 1 : 0;
        }
        const mmla_lists_search rest = mmla_lists_search_narrow(s, n);
        assert_true(s.low <= rest.low && rest.low <= rest.high && rest.high <= s.high);
        assert_true(rest.high - rest.low < s.high - s.low);
        s = rest;
        *n_steps += 1;
    }
    return s.low;
}

static int32_t *array(int64_t n) {
    int32_t *p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    return p;
}

static int32_t nasty(test_rng *rng) {
    static const int32_t values[] = {INT32_MIN, INT32_MIN + 1, -1,           0, 1,
                                     31,        INT32_MAX,     INT32_MAX - 1};
    return values[test_rng_below(rng, sizeof values / sizeof values[0])];
}

static void probing_finds_the_request_of_every_token(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 2, 31, 32, 33, 63, 64, 65, 1024, 1056, 1057, 3000};
    test_rng rng = {seed};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int64_t r = counts[i];
        int32_t *start = array(r + 1), *seq_lens = array(r);
        start[0] = 0;
        for (int64_t q = 0; q < r; q++) { /* a third of the queries is empty */
            start[q + 1] = start[q] + (int32_t)test_rng_below(&rng, 3);
            seq_lens[q] = 1000;
        }
        const int64_t n_tokens = start[r] + 3; /* and three tokens are padding */
        const mmla_list_args args = {
            .n_tokens = n_tokens, .n_requests = r, .query_start = start, .seq_lens = seq_lens};
        int64_t want = 0;
        for (int64_t t = 0; t < n_tokens; t++) {
            while (want < r && start[want + 1] <= t) {
                want++;
            }
            int n_steps;
            mmla_lists_token token = {0};
            assert_int_equal(find(&args, t, &n_steps), want);
            assert_in_range(n_steps, 1, r <= 32 ? 1 : r <= 1056 ? 2 : 3);
            assert_int_equal(mmla_lists_token_of_query(&args, want, t, &token), want < r);
            if (want < r) {
                assert_int_equal(token.request, want);
                assert_int_equal(token.query_len, start[want + 1] - start[want]);
                assert_int_equal(token.pos, 1000 - token.query_len + t - start[want]);
            }
        }
        free(start);
        free(seq_lens);
    }
}

/* Whatever query_start holds: the search ends, reads inside the array, and a token that comes of it
 * lies in a range that is legal by itself. */
static void probing_garbage_ends_and_gives_legal_ranges_only(void **state) {
    (void)state;
    test_rng rng = {seed + 1};
    for (int round = 0; round < 2000; round++) {
        const int64_t r = 1 + test_rng_below(&rng, round % 10 == 0 ? 5000 : 70);
        const int64_t n_tokens = 1 + test_rng_below(&rng, 200);
        int32_t *start = array(r + 1), *seq_lens = array(r);
        for (int64_t q = 0; q <= r; q++) {
            start[q] = test_rng_below(&rng, 2) == 0
                           ? nasty(&rng)
                           : (int32_t)(test_rng_below(&rng, 2 * n_tokens) - n_tokens / 2);
        }
        for (int64_t q = 0; q < r; q++) {
            seq_lens[q] = nasty(&rng);
        }
        const mmla_list_args args = {
            .n_tokens = n_tokens, .n_requests = r, .query_start = start, .seq_lens = seq_lens};
        for (int64_t t = 0; t < n_tokens; t += 1 + n_tokens / 16) {
            int n_steps;
            mmla_lists_token token;
            const int64_t q = find(&args, t, &n_steps);
            assert_in_range(q, 0, r);
            assert_in_range(n_steps, 1, 3);
            if (mmla_lists_token_of_query(&args, q, t, &token)) {
                assert_true(q < r && 0 <= start[q] && start[q] <= t && t < start[q + 1]);
                assert_true(start[q + 1] <= n_tokens);
                assert_in_range(token.pos, 0, (int64_t)seq_lens[q] - 1);
            }
        }
        free(start);
        free(seq_lens);
    }
}

static void no_request_holds_no_token(void **state) {
    (void)state;
    const mmla_list_args args = {.n_tokens = 5};
    int n_steps;
    mmla_lists_token token;
    assert_int_equal(find(&args, 3, &n_steps), 0);
    assert_int_equal(n_steps, 0);
    assert_false(mmla_lists_token_of_query(&args, 0, 3, &token));
    assert_false(mmla_lists_token_of_query(&args, -1, 3, &token));
}

static void a_start_is_judged_by_the_one_before_it(void **state) {
    (void)state;
    const int32_t starts[] = {0, 2, 1, 5, 4, 4, INT32_MIN, INT32_MAX};
    const bool legal[] = {true, true, false, false, false, true, false, false}; /* at most 4 */
    for (int i = 0; i < 8; i++) {
        assert_int_equal(mmla_lists_start_is_legal(starts, i, 4), legal[i]);
    }
    const int32_t late[] = {1};
    assert_false(mmla_lists_start_is_legal(late, 0, 4));
}

static void slots_of_32_bits_equal_those_of_64(void **state) {
    (void)state;
    test_rng rng = {seed + 2};
    static const int32_t page_tokens[] = {1, 2, 61, 64, 4096, 65536};
    for (int round = 0; round < 3000; round++) {
        const int32_t width = 1 + (int32_t)test_rng_below(&rng, 8);
        mmla_kv_table table = {page_tokens[test_rng_below(&rng, 6)], width, 0};
        const int64_t most = INT32_MAX / table.page_tokens;
        table.n_pages = test_rng_below(&rng, 2) == 0 ? most : test_rng_below(&rng, 5);
        int32_t *row = array(width);
        for (int32_t i = 0; i < width; i++) {
            row[i] = test_rng_below(&rng, 2) == 0
                         ? nasty(&rng)
                         : (int32_t)(table.n_pages - 1 - test_rng_below(&rng, 3));
        }
        const int64_t last = (int64_t)width * table.page_tokens;
        const int64_t edges[] = {0,
                                 last - 1,
                                 last,
                                 last + 1,
                                 INT32_MAX,
                                 INT32_MIN,
                                 -1,
                                 -table.page_tokens,
                                 test_rng_below(&rng, last),
                                 test_rng_below(&rng, last)};
        for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
            const int32_t pos = (int32_t)edges[i];
            assert_int_equal(mmla_kv_table_slot32(&table, row, pos),
                             mmla_kv_table_slot(&table, row, pos));
        }
        free(row);
    }
}

/* A row entry by entry, as a GPU writes it, against the CPU's, which reads the table once a page. */
static void rows_of_single_entries_equal_the_rows_of_the_cpu(void **state) {
    (void)state;
    test_rng rng = {seed + 3};
    for (int round = 0; round < 3000; round++) {
        const mmla_list_kind kind = round % 2 == 0 ? MMLA_LIST_WINDOW : MMLA_LIST_DRAFT;
        enum { T = 6, WIDTH = 90, TABLE = 12 };
        static const int32_t page_tokens[] = {1, 2, 7, 64};
        mmla_lists_problem p = {.n_threads = 1};
        p.desc = (mmla_list_desc){.kind = kind,
                                  .window = 1 + (int32_t)test_rng_below(&rng, WIDTH),
                                  .width = WIDTH,
                                  .list_stride = WIDTH,
                                  .table_width = TABLE,
                                  .table_stride = TABLE};
        p.table = (mmla_kv_table){page_tokens[test_rng_below(&rng, 4)], TABLE, 5};
        const int32_t query_start[] = {0, T};
        const int32_t seq_lens[] = {round % 7 == 0 ? nasty(&rng)
                                                   : (int32_t)test_rng_below(&rng, 400)};
        int32_t pages[TABLE], list[T][WIDTH], lens[T];
        for (int i = 0; i < TABLE; i++) {
            pages[i] = (int32_t)test_rng_below(&rng, 8) - 1;
        }
        const mmla_list_args args = {.n_tokens = T,
                                     .n_requests = 1,
                                     .query_start = query_start,
                                     .seq_lens = seq_lens,
                                     .block_table = pages,
                                     .list = list[0],
                                     .lens = lens};
        assert_int_equal(mmla_lists_portable(&p, &args, NULL), MMLA_OK);
        for (int64_t t = 0; t < T; t++) {
            mmla_lists_token token;
            int64_t n = 0;
            if (mmla_lists_token_of_query(&args, 0, t, &token)) {
                const mmla_lists_row row = mmla_lists_row_get(kind, &p, &args, &token);
                assert_in_range(row.n, 1, WIDTH);
                for (int64_t i = 0; i < row.n; i++) {
                    const int32_t candidate = mmla_lists_candidate(kind, &row, i);
                    const int32_t entry = mmla_lists_entry(kind, &p, &row, candidate);
                    if (entry >= 0) {
                        assert_int_equal(list[t][n++], entry);
                    }
                }
            }
            assert_int_equal(lens[t], n);
            for (int64_t k = n; k < WIDTH; k++) {
                assert_int_equal(list[t][k], -1);
            }
        }
    }
}

static void spans_past_their_number_are_not_read(void **state) {
    (void)state;
    static const struct {
        int32_t start[2];
        int64_t n_spans, first, stop;
    } cases[] = {
        {{0, 2}, 2, 0, 2},  {{0, 3}, 2, 0, 0},          {{1, 2}, 2, 1, 2},
        {{-1, 2}, 2, 0, 0}, {{2, 1}, 2, 2, 1},          {{0, INT32_MAX}, 2, 0, 0},
        {{0, 0}, 2, 0, 0},  {{INT32_MIN, -1}, 2, 0, 0}, {{0, 3}, 0, 0, 3},
    };
    const int32_t spans[6] = {0};
    const mmla_lists_problem p = {.desc = {.image_tokens = 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_list_args args = {
            .span_start = cases[i].start, .spans = spans, .n_spans = cases[i].n_spans};
        mmla_lists_spans found = mmla_lists_spans_get(&p, &args, 0);
        assert_int_equal(found.first, cases[i].first);
        assert_int_equal(found.stop, cases[i].stop);
        args.spans = NULL; /* then there are none, whatever n_spans says */
        found = mmla_lists_spans_get(&p, &args, 0);
        assert_true(found.first >= found.stop);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probing_finds_the_request_of_every_token),
        cmocka_unit_test(probing_garbage_ends_and_gives_legal_ranges_only),
        cmocka_unit_test(no_request_holds_no_token),
        cmocka_unit_test(a_start_is_judged_by_the_one_before_it),
        cmocka_unit_test(slots_of_32_bits_equal_those_of_64),
        cmocka_unit_test(rows_of_single_entries_equal_the_rows_of_the_cpu),
        cmocka_unit_test(spans_past_their_number_are_not_read),
    };
    return cmocka_run_group_tests_name("lists_rule", tests, NULL, NULL);
}
