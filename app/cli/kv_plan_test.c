/* kv_plan_test.c - bytes of the model's caches, against numbers worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "app/cli/kv_plan.h"

static kv_setting setting(mmla_kv_format compressed, mmla_kv_format index, int64_t context) {
    return (kv_setting){.window = MMLA_KV_V41_FP8,
                        .compressed = compressed,
                        .index = index,
                        .context_tokens = context,
                        .draft_tokens = 5,
                        .window_page_tokens = 32,
                        .block_tokens = 128};
}

static kv_cost cost(mmla_kv_format compressed, mmla_kv_format index, int64_t context) {
    const kv_setting s = setting(compressed, index, context);
    return kv_cost_count(&s);
}

/* The two totals that are public for this model. */
static void cost_per_token_is_1650_and_890(void **state) {
    (void)state;
    assert_true(cost(MMLA_KV_V41_FP8, MMLA_KV_INDEX_FP8, 1000).per_token == 1650.0);
    assert_true(cost(MMLA_KV_V41_FP4, MMLA_KV_INDEX_FP4, 1000).per_token == 890.0);
    assert_true(cost(MMLA_KV_V4, MMLA_KV_INDEX_FP8, 1000).per_token == 1790.0);
}

static void cost_of_one_token_is_one_page_each(void **state) {
    (void)state;
    const kv_cost c = cost(MMLA_KV_V41_FP4, MMLA_KV_INDEX_FP4, 1);
    assert_int_equal(c.window, 43 * 16896);
    assert_int_equal(c.window_live, 43 * 528);
    assert_int_equal(c.compressed, 36864); /* layer 20 only: half a record is none */
    assert_int_equal(c.index, 128 * 68);
    assert_int_equal(c.rings, 96 * 1024);
    assert_int_equal(c.request, c.window + c.compressed + c.index + c.rings);
}

/* 128 rows take 4 pages of 32 until the window slides, then up to 5. */
static void cost_of_window_is_five_pages_once_it_slides(void **state) {
    (void)state;
    const struct {
        int64_t context, pages;
    } cases[] = {{32, 1}, {33, 2}, {127, 4}, {128, 4}, {129, 5}, {160, 5}, {161, 5}, {1000000, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cost(MMLA_KV_V41_FP4, MMLA_KV_INDEX_FP4, cases[i].context).window,
                         43 * cases[i].pages * 16896);
    }
}

static void cost_of_long_context_approaches_bytes_per_token(void **state) {
    (void)state;
    const int64_t context = INT64_C(1) << 30;
    const kv_cost c = cost(MMLA_KV_V41_FP8, MMLA_KV_INDEX_FP8, context);
    assert_int_equal(c.compressed + c.index, 1650 * context);
}

static void rings_hold_the_draft_and_two_more(void **state) {
    (void)state;
    const struct { int64_t draft, rows; } cases[] = {{0, 8}, {6, 8}, {7, 16}, {14, 16}, {15, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_setting s = setting(MMLA_KV_V41_FP8, MMLA_KV_INDEX_FP8, 1);
        s.draft_tokens = cases[i].draft;
        assert_int_equal(kv_cost_count(&s).rings, 3 * cases[i].rows * 4096);
    }
}

static void pairs_are_the_ones_attention_takes(void **state) {
    (void)state;
    assert_true(kv_pair_is_legal(MMLA_KV_V41_FP8, MMLA_KV_V41_FP4));
    assert_true(kv_pair_is_legal(MMLA_KV_V4, MMLA_KV_V4));
    assert_false(kv_pair_is_legal(MMLA_KV_V41_FP4, MMLA_KV_V41_FP8));
    assert_false(kv_pair_is_legal(MMLA_KV_V4, MMLA_KV_V41_FP4));
    assert_false(kv_pair_is_legal(MMLA_KV_V4, MMLA_KV_V41_FP8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_per_token_is_1650_and_890),
        cmocka_unit_test(cost_of_one_token_is_one_page_each),
        cmocka_unit_test(cost_of_window_is_five_pages_once_it_slides),
        cmocka_unit_test(cost_of_long_context_approaches_bytes_per_token),
        cmocka_unit_test(rings_hold_the_draft_and_two_more),
        cmocka_unit_test(pairs_are_the_ones_attention_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
