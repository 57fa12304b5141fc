/* lists_combined_test.c - worked examples and edges of COMBINED lists: records and window rows of a
 * gathered workspace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <megamla/list.h>

#include "support/list_fixture.h"

/* Two requests, ratio 2. Request 0: 6 tokens, all new. Request 1: 130 tokens of which 2 are new, so
 * 2 + 127 window rows were gathered. N is 65 records, M = 65 + 129. */
static void check_worked_example(const int32_t *gather_lens) {
    enum { N = 65, M = N + 129, WIDTH = 4 + 128 };
    const int32_t query_start[] = {0, 6, 8}, seq_lens[] = {6, 130};
    int32_t topk[8][4] = {{9, 9, 9, 9}, {0, 9, 9, 9},   {0, 9, 9, 9},    {0, 1, 9, 9},
                          {1, 0, 9, 9}, {0, -1, 2, 64}, {63, 3, -1, 64}, {64, 63, 62, 61}};
    int32_t list[8][WIDTH], lens[8];
    const mmla_list_desc desc = {.kind = MMLA_LIST_COMBINED,
                                 .max_tokens = 8,
                                 .max_requests = 2,
                                 .window = 128,
                                 .ratio = 2,
                                 .topk = 4,
                                 .topk_width = 4,
                                 .request_rows = M,
                                 .window_offset = N,
                                 .width = WIDTH};
    mmla_list_args args = {.n_tokens = 8,
                           .n_requests = 2,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .gather_lens = gather_lens,
                           .topk = topk[0],
                           .list = list[0],
                           .lens = lens};
    list_run_ok(&desc, &args);
    assert_list_row(list[0], WIDTH, (const int32_t[]){N}, 1); /* position 0 sees no record */
    assert_list_row(list[1], WIDTH, (const int32_t[]){0, N, N + 1}, 3);
    assert_list_row(list[2], WIDTH, (const int32_t[]){0, N, N + 1, N + 2}, 4);
    assert_list_row(list[4], WIDTH, (const int32_t[]){1, 0, N, N + 1, N + 2, N + 3, N + 4}, 7);
    /* 3 picks are visible at position 5, one of them is a hole */
    assert_list_row(list[5], WIDTH, (const int32_t[]){0, 2, N, N + 1, N + 2, N + 3, N + 4, N + 5},
                    8);
    /* Request 1, position 128: its window 1 .. 128, of which row N is position 1. */
    assert_int_equal(lens[6], 2 + 128); /* the hole, and record 64, which ends at position 129 */
    assert_int_equal(list[6][0], M + 63);
    assert_int_equal(list[6][1], M + 3);
    for (int k = 0; k < 128; k++) {
        assert_int_equal(list[6][2 + k], M + N + k);
    }
    assert_int_equal(lens[7], 4 + 128);
    assert_int_equal(list[7][4], M + N + 1);
    assert_int_equal(list[7][4 + 127], M + N + 128);
}

static void combined_lists_take_records_first_and_then_the_window(void **state) {
    (void)state;
    check_worked_example((const int32_t[]){6, 129});
}

static void combined_lists_without_lens_take_what_the_queries_see(void **state) {
    (void)state;
    check_worked_example(NULL);
}

/* Windows over the gathered rows of `n_requests` requests, M = 20 and N = 0 each, without gather_lens;
 * the lists of all tokens, closed by -1. */
enum { SEEN_M = 20, SEEN_TOKENS = 8, SEEN_WIDTH = 16 };
static void run_windows(int32_t window,
                        int64_t n_requests,
                        const int32_t *query_start,
                        const int32_t *seq_lens,
                        int32_t list[SEEN_TOKENS][SEEN_WIDTH]) {
    int32_t lens[SEEN_TOKENS], left[SEEN_TOKENS] = {0}, right[SEEN_TOKENS] = {0};
    left[1] = 7; /* one token is of an image that begins before what was gathered */
    const mmla_list_desc desc = {.kind = MMLA_LIST_COMBINED,
                                 .max_tokens = SEEN_TOKENS,
                                 .max_requests = n_requests,
                                 .window = window,
                                 .request_rows = SEEN_M,
                                 .image_tokens = 8,
                                 .width = SEEN_WIDTH};
    mmla_list_args args = {.n_tokens = SEEN_TOKENS,
                           .n_requests = n_requests,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .left = left,
                           .right = right,
                           .list = list[0],
                           .lens = lens};
    list_run_ok(&desc, &args);
}

static void rows_without_lens_begin_where_the_first_query_looks(void **state) {
    (void)state;
    int32_t list[SEEN_TOKENS][SEEN_WIDTH];
    /* Three queries at 7 .. 9, which see 4 .. 9: row 0 is position 4. An empty query. Five queries of a
     * sequence of three, of which two have no position. */
    run_windows(4, 3, (const int32_t[]){0, 3, 3, 8}, (const int32_t[]){10, 12, 3}, list);
    assert_list_row(list[0], SEEN_WIDTH, (const int32_t[]){0, 1, 2, 3}, 4);
    assert_list_row(list[1], SEEN_WIDTH, (const int32_t[]){0, 1, 2, 3, 4},
                    5); /* of the image, too */
    assert_list_row(list[2], SEEN_WIDTH, (const int32_t[]){2, 3, 4, 5}, 4);
    assert_list_row(list[3], SEEN_WIDTH, NULL, 0);
    assert_list_row(list[4], SEEN_WIDTH, NULL, 0);
    for (int t = 5; t < 8; t++) {
        const int32_t want[] = {2 * SEEN_M, 2 * SEEN_M + 1, 2 * SEEN_M + 2};
        assert_list_row(list[t], SEEN_WIDTH, want, t - 4);
    }
    /* A window of the token alone: only queries were gathered. */
    run_windows(1, 2, (const int32_t[]){0, 3, 8}, (const int32_t[]){10, 900}, list);
    for (int t = 0; t < 8; t++) {
        const int32_t own = t < 3 ? t : SEEN_M + t - 3, image[] = {0, 1};
        assert_list_row(list[t], SEEN_WIDTH, t == 1 ? image : &own, t == 1 ? 2 : 1);
    }
}

/* Request 1 of two, one token at 5, the last of six that were all gathered: in the workspace of the
 * description, M = 20 and N = 8, and in those of calls. */
static void combined_lists_lie_in_the_workspace_of_the_call(void **state) {
    (void)state;
    enum { WIDTH = 7, MOST = INT32_MAX / 2 };
    const int32_t query_start[] = {0, 0, 1}, seq_lens[] = {1, 41}, gather_lens[] = {1, 6};
    const int32_t topk[] = {5, 9, 30};
    int32_t list[WIDTH], lens[1];
    static const struct {
        int64_t m, n; /* of the call */
        int32_t want[WIDTH];
        int n_want;
    } cases[] = {
        {0, 77, {25, 30, 31, 32, 33}, 5}, /* the description's: N alone says nothing */
        {16, 10, {21, 25, 28, 29, 30, 31}, 6},
        {60, 31, {65, 69, 90, 93, 94, 95, 96}, 7},
        {13, 10, {18, 22, 25}, 3}, /* position 37 is the last that has a row */
        {10, 10, {15, 19}, 2},
        {1, 0, {0}, 0},
        {7, 1, {10, 11, 12, 13}, 4},
        {MOST,
         MOST - 6,
         {MOST + 5, MOST + 9, MOST + 30, 2 * MOST - 4, 2 * MOST - 3, 2 * MOST - 2, 2 * MOST - 1},
         7},
    };
    const mmla_list_desc desc = {.kind = MMLA_LIST_COMBINED,
                                 .max_tokens = 1,
                                 .max_requests = 2,
                                 .window = 4,
                                 .ratio = 1,
                                 .topk = 3,
                                 .topk_width = 3,
                                 .request_rows = 20,
                                 .window_offset = 8,
                                 .width = WIDTH};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_list_args args = {.n_tokens = 1,
                               .n_requests = 2,
                               .query_start = query_start,
                               .seq_lens = seq_lens,
                               .gather_lens = gather_lens,
                               .request_rows = cases[i].m,
                               .window_offset = cases[i].n,
                               .topk = topk,
                               .list = list,
                               .lens = lens};
        list_run_ok(&desc, &args);
        assert_int_equal(lens[0], cases[i].n_want);
        assert_list_row(list, WIDTH, cases[i].want, cases[i].n_want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combined_lists_take_records_first_and_then_the_window),
        cmocka_unit_test(combined_lists_without_lens_take_what_the_queries_see),
        cmocka_unit_test(rows_without_lens_begin_where_the_first_query_looks),
        cmocka_unit_test(combined_lists_lie_in_the_workspace_of_the_call),
    };
    return cmocka_run_group_tests_name("lists_combined", tests, NULL, NULL);
}
