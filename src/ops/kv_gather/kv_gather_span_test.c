/* Which rows of a request kv_gather takes, and where they go: ratio, window, the rows of a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/gather_walk.h"
#include "support/implementation_walk.h"

static uint64_t seed;

/* Every format and every implementation. */
static void for_all(gather_change_fn shape, gather_change_fn content, gather_check_fn check) {
    gather_walk(seed, shape, content, check);
}

/* --- ratio ------------------------------------------------------------------------------------ */

static void ratio_2(gather_fixture *f) {
    f->desc.ratio = 2;
}

static void lens_in_tokens(gather_fixture *f) {
    gather_walk_set_lens(f, 0, 41, 1000); /* 20 records, and a token that has none yet */
    gather_walk_set_lens(f, 1, 26, 6);
    gather_walk_set_lens(f, 2, 1, 1);
}

static void check_records_of_two(gather_fixture *f, const char *implementation) {
    const int32_t *lens = f->args.gather_lens;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_walk_assert_rows(f, 0, 0, 20);
    gather_walk_assert_rows(f, 1, 7, 6);
    gather_walk_assert_rows(f, 2, 0, 0);
    f->args.gather_lens = NULL;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    gather_walk_assert_rows(f, 0, 0, 20);
    gather_walk_assert_rows(f, 1, 0, 13);
    gather_walk_assert_rows(f, 2, 0, 0);
    f->args.gather_lens = lens;
}

static void gather_a_record_of_ratio_2_stands_for_two_tokens(void **state) {
    (void)state;
    for_all(ratio_2, lens_in_tokens, check_records_of_two);
}

static void odd_lens_in_tokens(gather_fixture *f) {
    gather_walk_set_lens(f, 0, -3, 1);        /* no records, and none before the first */
    gather_walk_set_lens(f, 1, INT32_MAX, 2); /* the last two lie past the table */
    gather_walk_set_lens(f, 2, 45, 22);       /* two of 22 do */
}

static void check_far_records_of_two(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_walk_assert_rows(f, 0, 0, 0);
    gather_fixture_assert_row(f, 1, GATHER_OFFSET, -1);
    gather_fixture_assert_row(f, 1, GATHER_OFFSET + 1, -1);
    gather_fixture_assert_untouched(f, 1, GATHER_OFFSET + 2, GATHER_ROWS);
    for (int64_t i = 0; i < 22; i++) {
        gather_fixture_assert_row(f, 2, GATHER_OFFSET + i, i < 20 ? gather_walk_slot(f, 2, i) : -1);
    }
}

static void gather_of_ratio_2_takes_any_length(void **state) {
    (void)state;
    for_all(ratio_2, odd_lens_in_tokens, check_far_records_of_two);
}

static void ratio_1(gather_fixture *f) {
    f->desc.ratio = 1;
}

static void gather_of_ratio_1_is_that_of_no_ratio(void **state) {
    (void)state;
    for_all(ratio_1, gather_walk_various_lens, gather_walk_check_last_rows);
}

/* --- window ----------------------------------------------------------------------------------- */

/* A request of seq tokens, the last `query` of which are asked, holds n positions from first on. */
typedef struct seen {
    int32_t seq, query;
    int64_t first, n;
} seen;

static void check_seen(gather_fixture *f, const char *implementation, const seen want[3]) {
    f->args.gather_lens = NULL;
    gather_fixture_query_start(f)[0] = 4; /* any start: lengths are differences */
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_seq_lens(f)[r] = want[r].seq;
        gather_fixture_query_start(f)[r + 1] = gather_fixture_query_start(f)[r] + want[r].query;
    }
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    for (int64_t r = 0; r < 3; r++) {
        gather_walk_assert_rows(f, r, want[r].first, want[r].n);
    }
}

static void check_windows(gather_fixture *f, const char *implementation) {
    static const struct {
        int32_t window;
        seen want[3];
    } cases[] = {
        {4, {{20, 3, 14, 6}, {11, 1, 7, 4}, {13, 13, 0, 13}}}, /* the first query sees 3 back */
        {4, {{5, 2, 0, 5}, {4, 1, 0, 4}, {2, 1, 0, 2}}},       /* a prefix of 3, and shorter ones */
        {4, {{9, 0, 6, 3}, {9, -2, 6, 3}, {9, 30, 0, 9}}},     /* a query is 0 .. seq tokens */
        {4, {{-5, 3, 0, 0}, {0, 3, 0, 0}, {0, 0, 0, 0}}},
        {1, {{20, 3, 17, 3}, {20, 0, 20, 0}, {6, 6, 0, 6}}}, /* each sees itself */
        {19, {{20, 1, 1, 19}, {19, 1, 0, 19}, {20, 2, 0, 20}}},
        {INT32_MAX, {{20, 1, 0, 20}, {20, 0, 0, 20}, {20, 20, 0, 20}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->desc.window = cases[i].window;
        check_seen(f, implementation, cases[i].want);
    }
    f->desc.ratio = 1; /* which a window may say */
    check_seen(f, implementation, cases[6].want);
    f->desc.ratio = 0;
}

static void gather_with_a_window_takes_what_the_queries_see(void **state) {
    (void)state;
    for_all(NULL, NULL, check_windows);
}

static void starts_of_any_value(gather_fixture *f) {
    static const int32_t starts[4] = {INT32_MIN, INT32_MAX, INT32_MIN, 0};
    memcpy(gather_fixture_query_start(f), starts, sizeof starts);
    gather_walk_various_lens(f);
    f->desc.window = 4;
    f->args.gather_lens = NULL;
}

static void check_wild_queries(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_walk_assert_rows(f, 0, 0, 20); /* 2^32 - 1 queries, which is all */
    gather_walk_assert_rows(f, 1, 10, 3); /* and as many fewer than none */
    gather_walk_assert_rows(f, 2, 0, 11);
}

static void gather_with_a_window_survives_any_query_start(void **state) {
    (void)state;
    for_all(NULL, starts_of_any_value, check_wild_queries);
}

static void check_what_is_not_looked_at(gather_fixture *f, const char *implementation) {
    const mmla_kv_gather_args args = f->args;
    f->args.query_start = NULL;
    f->desc.window = 4;
    gather_walk_check_last_rows(f, implementation);
    f->desc.window = 0;
    gather_walk_check_whole_sequences(f, implementation);
    f->args = args;
}

static void gather_needs_query_start_for_a_window_alone(void **state) {
    (void)state;
    for_all(NULL, gather_walk_various_lens, check_what_is_not_looked_at);
}

static void window_beyond_the_room(gather_fixture *f) {
    static const int32_t starts[4] = {0, 1, 4, 4};
    memcpy(gather_fixture_query_start(f), starts, sizeof starts);
    gather_walk_set_lens(f, 0, 20, 0);
    gather_walk_set_lens(f, 1, 20, 0);
    gather_walk_set_lens(f, 2, 20, 0);
    f->desc.window = 4;
    f->args.gather_lens = NULL;
}

static void check_room_of_windows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 1);
    assert_string_equal(f->error.argument,
                        test_implementation_is_cuda(implementation) ? "" : "seq_lens");
    gather_walk_assert_rows(f, 0, 16, 4); /* fits exactly */
    gather_walk_assert_rows(f, 1, 14, 4); /* of six */
    gather_walk_assert_rows(f, 2, 17, 3);
}

static void gather_of_a_window_beyond_the_room_is_cut_and_reported(void **state) {
    (void)state;
    for_all(gather_walk_offset_20, window_beyond_the_room, check_room_of_windows);
}

/* --- the rows of a call ----------------------------------------------------------------------- */

static void own_rows_fewer(gather_fixture *f) {
    f->args.rows = 21; /* request 0 just fits */
    f->args.offset = 1;
}

static void own_rows_more(gather_fixture *f) {
    f->desc.rows = 1; /* room for none of them */
    f->desc.offset = 1;
    f->args.rows = 60;
    f->args.offset = 31;
}

static void gather_takes_the_rows_and_the_offset_of_the_call(void **state) {
    (void)state;
    for_all(own_rows_fewer, gather_walk_various_lens, gather_walk_check_last_rows);
    for_all(own_rows_more, gather_walk_various_lens, gather_walk_check_last_rows);
    for_all(own_rows_more, gather_walk_various_lens, gather_walk_check_whole_sequences);
}

static void own_room_of_4(gather_fixture *f) {
    f->args.rows = 7;
    f->args.offset = 3;
}

static void check_own_room(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 2);
    assert_string_equal(f->error.message,
                        test_implementation_is_cuda(implementation)
                            ? ""
                            : "gather_lens: of request 1 is more than the 4 rows past "
                              "offset; requests cut short: 2");
    gather_walk_assert_rows(f, 0, 16, 4);
    gather_walk_assert_rows(f, 1, 15, 4);
    gather_walk_assert_rows(f, 2, 0, 4);
}

static void gather_beyond_the_room_of_the_call_is_cut_and_reported(void **state) {
    (void)state;
    for_all(own_room_of_4, gather_walk_lens_beyond_the_room, check_own_room);
}

static void an_offset_alone(gather_fixture *f) {
    gather_walk_various_lens(f);
    f->args.offset = -77;
}

static void gather_without_rows_of_the_call_takes_the_descriptions_offset(void **state) {
    (void)state;
    for_all(NULL, an_offset_alone, gather_walk_check_last_rows);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_a_record_of_ratio_2_stands_for_two_tokens),
        cmocka_unit_test(gather_of_ratio_2_takes_any_length),
        cmocka_unit_test(gather_of_ratio_1_is_that_of_no_ratio),
        cmocka_unit_test(gather_with_a_window_takes_what_the_queries_see),
        cmocka_unit_test(gather_with_a_window_survives_any_query_start),
        cmocka_unit_test(gather_needs_query_start_for_a_window_alone),
        cmocka_unit_test(gather_of_a_window_beyond_the_room_is_cut_and_reported),
        cmocka_unit_test(gather_takes_the_rows_and_the_offset_of_the_call),
        cmocka_unit_test(gather_beyond_the_room_of_the_call_is_cut_and_reported),
        cmocka_unit_test(gather_without_rows_of_the_call_takes_the_descriptions_offset),
    };
    return cmocka_run_group_tests_name("kv_gather_span", tests, NULL, NULL);
}
