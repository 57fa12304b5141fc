/* lists_test.c - worked examples and edges of the index builders; lists_combined_test.c has those of
 * COMBINED, lists_prop.c the random batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/list.h>

#include "support/guard.h"
#include "support/list_fixture.h"

/* One request of 41 tokens, its last one decoding, window pages of 32 and record pages of 64 at
 * ratio 2: the example of docs/format.md. */
static void decode_token_at_40_gets_the_documented_lists(void **state) {
    (void)state;
    const int32_t query_start[] = {0, 1}, seq_lens[] = {41}, window_pages[] = {7, 3};
    const int32_t record_pages[] = {5}, request[] = {0};
    int32_t list[512], lens[1], topk[512];
    const mmla_list_desc window = {.kind = MMLA_LIST_WINDOW,
                                   .max_tokens = 1,
                                   .max_requests = 1,
                                   .window = 128,
                                   .page_tokens = 32,
                                   .n_pages = 8,
                                   .table_width = 2,
                                   .width = 128};
    mmla_list_args args = {.n_tokens = 1,
                           .n_requests = 1,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .block_table = window_pages,
                           .list = list,
                           .lens = lens};
    list_run_ok(&window, &args);
    int32_t want[128];
    for (int k = 0; k < 41; k++) {
        want[k] = k < 32 ? 224 + k : 96 + k - 32;
    }
    assert_int_equal(lens[0], 41);
    assert_list_row(list, 128, want, 41);
    assert_int_equal(list[40], 104);

    for (int k = 0; k < 512; k++) {
        topk[k] = k < 20 ? k : -1; /* all that is visible at 40: (40 + 1) / 2 records */
    }
    const mmla_list_desc compressed = {.kind = MMLA_LIST_COMPRESSED,
                                       .max_tokens = 1,
                                       .max_requests = 1,
                                       .page_tokens = 64,
                                       .n_pages = 6,
                                       .table_width = 1,
                                       .topk_width = 512,
                                       .width = 512};
    args.block_table = record_pages;
    args.request = request;
    args.topk = topk;
    list_run_ok(&compressed, &args);
    for (int k = 0; k < 20; k++) {
        want[k] = 320 + k;
    }
    assert_int_equal(lens[0], 20);
    assert_list_row(list, 512, want, 20);
}

static void position_41_writes_record_20_and_position_40_none(void **state) {
    (void)state;
    const int32_t pages[] = {5}, request[] = {0, 0, 0}, rings[] = {3};
    const int64_t positions[] = {40, 41, 41}, slots[] = {104, 105, -1};
    int64_t out[3];
    const mmla_list_desc records = {.kind = MMLA_LIST_COMPRESSED_SLOTS,
                                    .max_tokens = 3,
                                    .max_requests = 1,
                                    .page_tokens = 64,
                                    .n_pages = 6,
                                    .table_width = 1,
                                    .ratio = 2};
    mmla_list_args args = {.n_tokens = 3,
                           .n_requests = 1,
                           .positions = positions,
                           .slots = slots,
                           .request = request,
                           .block_table = pages,
                           .ring_blocks = rings,
                           .out_slots = out};
    list_run_ok(&records, &args);
    assert_int_equal(out[0], -1);
    assert_int_equal(out[1], 340);
    assert_int_equal(out[2], -1);

    const mmla_list_desc ring = {.kind = MMLA_LIST_RING_SLOTS,
                                 .max_tokens = 3,
                                 .max_requests = 1,
                                 .page_tokens = 8,
                                 .n_pages = 4};
    list_run_ok(&ring, &args);
    assert_int_equal(out[0], 3 * 8 + 0);
    assert_int_equal(out[1], 3 * 8 + 1);
    assert_int_equal(out[2], -1);
}

static void ring_zero_is_never_written(void **state) {
    (void)state;
    const int32_t request[] = {0, 1, 2, 3}, rings[] = {0, -1, 4, 1};
    const int64_t positions[] = {5, 5, 5, 13}, slots[] = {0, 0, 0, 0};
    int64_t out[4];
    const mmla_list_desc desc = {.kind = MMLA_LIST_RING_SLOTS,
                                 .max_tokens = 4,
                                 .max_requests = 4,
                                 .page_tokens = 8,
                                 .n_pages = 4};
    mmla_list_args args = {.n_tokens = 4,
                           .n_requests = 4,
                           .positions = positions,
                           .slots = slots,
                           .request = request,
                           .ring_blocks = rings,
                           .out_slots = out};
    list_run_ok(&desc, &args);
    const int64_t want[] = {-1, -1, -1, 8 + 5};
    for (int t = 0; t < 4; t++) {
        assert_int_equal(out[t], want[t]);
    }
}

/* Window 4, an image of 6 tokens at positions 2 .. 7 of 10. */
static void image_tokens_see_their_whole_image(void **state) {
    (void)state;
    enum { N = 0, M = 10, I = 8, WIDTH = 4 + I };
    const int32_t query_start[] = {0, 10}, seq_lens[] = {10}, gather_lens[] = {10};
    const int32_t span_start[] = {0, 1}, spans[] = {2, 7};
    int32_t left[10], right[10], list[10][WIDTH], lens[10];
    const mmla_list_desc reach = {
        .kind = MMLA_LIST_IMAGE_SPANS, .max_tokens = 10, .max_requests = 1, .image_tokens = I};
    mmla_list_args args = {.n_tokens = 10,
                           .n_requests = 1,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .gather_lens = gather_lens,
                           .span_start = span_start,
                           .spans = spans,
                           .out_left = left,
                           .out_right = right,
                           .left = left,
                           .right = right,
                           .list = list[0],
                           .lens = lens};
    list_run_ok(&reach, &args);
    for (int t = 0; t < 10; t++) {
        const int inside = t >= 2 && t <= 7;
        assert_int_equal(left[t], inside ? t - 2 : 0);
        assert_int_equal(right[t], inside ? 7 - t : 0);
    }
    const mmla_list_desc desc = {.kind = MMLA_LIST_COMBINED,
                                 .max_tokens = 10,
                                 .max_requests = 1,
                                 .window = 4,
                                 .request_rows = M,
                                 .window_offset = N,
                                 .image_tokens = I,
                                 .width = WIDTH};
    list_run_ok(&desc, &args);
    assert_list_row(list[2], WIDTH, (const int32_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    assert_list_row(list[7], WIDTH, (const int32_t[]){2, 3, 4, 5, 6, 7}, 6); /* 5 back, not 3 */
    assert_list_row(list[8], WIDTH, (const int32_t[]){5, 6, 7, 8}, 4);
}

static void draft_block_sees_the_prefix_window_and_itself(void **state) {
    (void)state;
    const int32_t query_start[] = {0, 3}, seq_lens[] = {8}, pages[] = {2, 0, 1};
    const uint8_t valid[] = {1, 0, 1};
    int32_t list[3][8], lens[3];
    const mmla_list_desc desc = {.kind = MMLA_LIST_DRAFT,
                                 .max_tokens = 3,
                                 .max_requests = 1,
                                 .window = 4,
                                 .page_tokens = 4,
                                 .n_pages = 3,
                                 .table_width = 3,
                                 .width = 8};
    mmla_list_args args = {.n_tokens = 3,
                           .n_requests = 1,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .block_table = pages,
                           .valid = valid,
                           .list = list[0],
                           .lens = lens};
    list_run_ok(&desc, &args);
    /* prefix 5: positions 1 .. 7, on pages 2 and 0 */
    const int32_t want[] = {9, 10, 11, 0, 1, 2, 3};
    assert_list_row(list[0], 8, want, 7);
    assert_list_row(list[1], 8, want, 0);
    assert_list_row(list[2], 8, want, 7);
    assert_int_equal(lens[0], 7);
    assert_int_equal(lens[1], 0);
}

static void an_unmapped_page_closes_up_the_window(void **state) {
    (void)state;
    const int32_t query_start[] = {0, 1}, seq_lens[] = {7}, pages[] = {1, -1, 4, 0};
    int32_t list[8], lens[1];
    const mmla_list_desc desc = {.kind = MMLA_LIST_WINDOW,
                                 .max_tokens = 1,
                                 .max_requests = 1,
                                 .window = 8,
                                 .page_tokens = 2,
                                 .n_pages = 4,
                                 .table_width = 4,
                                 .width = 8};
    mmla_list_args args = {.n_tokens = 1,
                           .n_requests = 1,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .block_table = pages,
                           .list = list,
                           .lens = lens};
    list_run_ok(&desc, &args);
    assert_list_row(list, 8, (const int32_t[]){2, 3, 0},
                    3); /* page -1 and page 4 of 4 lead nowhere */
    assert_int_equal(lens[0], 3);
}

static void without_requests_every_row_is_padding(void **state) {
    (void)state;
    int32_t list[3][4], lens[3];
    memset(list, TEST_POISON, sizeof list);
    memset(lens, TEST_POISON, sizeof lens);
    const mmla_list_desc desc = {.kind = MMLA_LIST_WINDOW,
                                 .max_tokens = 3,
                                 .max_requests = 4,
                                 .window = 4,
                                 .page_tokens = 2,
                                 .n_pages = 4,
                                 .table_width = 4,
                                 .width = 4};
    mmla_list_args args = {.n_tokens = 3, .list = list[0], .lens = lens};
    list_run_ok(&desc, &args);
    for (int t = 0; t < 3; t++) {
        assert_list_row(list[t], 4, NULL, 0);
        assert_int_equal(lens[t], 0);
    }
}

static void zero_tokens_touch_nothing(void **state) {
    (void)state;
    for (int kind = MMLA_LIST_WINDOW; kind <= MMLA_LIST_IMAGE_SPANS; kind++) {
        const mmla_list_desc desc = {.kind = (mmla_list_kind)kind,
                                     .window = 1,
                                     .page_tokens = 1,
                                     .table_width = 1,
                                     .width = 1,
                                     .topk_width = 1,
                                     .ratio = 1};
        mmla_list_args args = {.n_tokens = 0}; /* no pointer at all */
        list_run_ok(&desc, &args);
    }
}

static void more_than_65535_tokens_are_legal(void **state) {
    (void)state;
    enum { T = 70000 };
    int32_t *request = calloc(T, sizeof *request);
    int64_t *positions = calloc(T, sizeof *positions), *slots = calloc(T, sizeof *slots);
    int64_t *out = calloc(T, sizeof *out);
    const int32_t pages[] = {1, 0};
    for (int t = 0; t < T; t++) {
        positions[t] = t;
    }
    const mmla_list_desc desc = {.kind = MMLA_LIST_COMPRESSED_SLOTS,
                                 .max_tokens = T,
                                 .max_requests = 1,
                                 .page_tokens = 65536,
                                 .n_pages = 2,
                                 .table_width = 2,
                                 .ratio = 1};
    mmla_list_args args = {.n_tokens = T,
                           .n_requests = 1,
                           .positions = positions,
                           .slots = slots,
                           .request = request,
                           .block_table = pages,
                           .out_slots = out};
    list_run_ok(&desc, &args);
    for (int t = 0; t < T; t++) {
        assert_int_equal(out[t], t < 65536 ? 65536 + t : t - 65536);
    }
    free(request);
    free(positions);
    free(slots);
    free(out);
}

static void bad_starts_are_refused_and_nothing_is_written(void **state) {
    (void)state;
    static const struct {
        int32_t query_start[4], span_start[4];
        const char *argument;
        int32_t n_faults;
    } cases[] = {
        {{1, 2, 3, 4}, {0, 0, 0, 0}, "query_start", 1},
        {{0, 2, 1, 4}, {0, 0, 0, 0}, "query_start", 1},
        {{0, 1, 2, 5}, {0, 0, 0, 0}, "query_start", 1},
        {{-1, 1, 2, 4}, {0, 0, 0, 0}, "query_start", 1},
        {{0, 1, 2, 4}, {1, 1, 1, 1}, "span_start", 1},
        {{0, 1, 2, 4}, {0, 2, 1, 2}, "span_start", 1},
        {{0, 1, 2, 4}, {0, 1, 2, 3}, "span_start", 1}, /* there are two spans */
        {{0, INT32_MAX, INT32_MIN, 4}, {0}, "query_start", 2},
        {{1, 0, 2, 5}, {-1, 9, 8, 7}, "query_start", 7},
    };
    const int32_t seq_lens[] = {4, 4, 4}, spans[4] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_buffer left = test_buffer_create(4 * 4, 4), right = test_buffer_create(4 * 4, 4);
        const mmla_list_desc desc = {
            .kind = MMLA_LIST_IMAGE_SPANS, .max_tokens = 4, .max_requests = 3, .image_tokens = 4};
        int32_t n_faults = 40;
        mmla_list_args args = {.n_tokens = 4,
                               .n_requests = 3,
                               .query_start = cases[i].query_start,
                               .seq_lens = seq_lens,
                               .span_start = cases[i].span_start,
                               .spans = spans,
                               .n_spans = 2,
                               .n_faults = &n_faults,
                               .out_left = left.data,
                               .out_right = right.data};
        mmla_error err;
        assert_int_equal(list_run_once(&desc, &args, &err), MMLA_E_INDEX);
        assert_string_equal(err.argument, cases[i].argument);
        assert_int_equal(n_faults, 40 + cases[i].n_faults);
        assert_true(test_buffer_is_untouched(&left, 0, left.bytes));
        assert_true(test_buffer_is_untouched(&right, 0, right.bytes));
        test_buffer_destroy(&left);
        test_buffer_destroy(&right);
    }
}

static void spans_may_be_missing_only_when_there_are_none(void **state) {
    (void)state;
    const int32_t query_start[] = {0, 2}, seq_lens[] = {2}, none[] = {0, 0}, one[] = {0, 1};
    int32_t left[2] = {7, 7}, right[2] = {7, 7};
    const mmla_list_desc desc = {
        .kind = MMLA_LIST_IMAGE_SPANS, .max_tokens = 2, .max_requests = 1, .image_tokens = 4};
    mmla_list_args args = {.n_tokens = 2,
                           .n_requests = 1,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .span_start = one,
                           .out_left = left,
                           .out_right = right};
    mmla_error err;
    int32_t n_faults = 0;
    args.n_faults = &n_faults;
    assert_int_equal(list_run_once(&desc, &args, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "spans");
    assert_int_equal(left[0], 7);
    assert_int_equal(n_faults, 1);
    args.span_start = none;
    list_run_ok(&desc, &args);
    assert_int_equal(n_faults, 1);
    assert_int_equal(left[0], 0);
    assert_int_equal(right[1], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_token_at_40_gets_the_documented_lists),
        cmocka_unit_test(position_41_writes_record_20_and_position_40_none),
        cmocka_unit_test(ring_zero_is_never_written),
        cmocka_unit_test(image_tokens_see_their_whole_image),
        cmocka_unit_test(draft_block_sees_the_prefix_window_and_itself),
        cmocka_unit_test(an_unmapped_page_closes_up_the_window),
        cmocka_unit_test(without_requests_every_row_is_padding),
        cmocka_unit_test(zero_tokens_touch_nothing),
        cmocka_unit_test(more_than_65535_tokens_are_legal),
        cmocka_unit_test(bad_starts_are_refused_and_nothing_is_written),
        cmocka_unit_test(spans_may_be_missing_only_when_there_are_none),
    };
    return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}
