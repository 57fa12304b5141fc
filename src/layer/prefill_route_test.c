/* prefill_route_test.c - what a call gathers, and the model of the time against times that were
 * measured on an H200 (docs/performance.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layer/prefill_route.h"

enum { W = 128, TOPK = 512 };

static const int64_t h200_l2_bytes = 60 << 20;

static mmla_prefill_shape
shape_of(int32_t ratio, int64_t n, const int32_t *query_lens, const int32_t *seq_lens) {
    const mmla_prefill_desc desc = {.window = W, .ratio = ratio, .topk_width = TOPK};
    const mmla_prefill_args args = {
        .n_requests = n, .host_query_lens = query_lens, .host_seq_lens = seq_lens};
    mmla_prefill_shape shape;
    assert_int_equal(mmla_prefill_shape_get(&desc, &args, &shape), MMLA_OK);
    return shape;
}

static void a_shape_has_the_records_of_the_longest_and_the_rows_of_all(void **state) {
    (void)state;
    const int32_t query[] = {6, 2, 0}, seq[] = {6, 1001, 40};
    const mmla_prefill_shape s = shape_of(2, 3, query, seq);
    assert_int_equal(s.n, 500);               /* 1001 / 2, rounded down */
    assert_int_equal(s.m, 500 + (2 + W - 1)); /* a long prefix gives W - 1 rows */
    assert_int_equal(s.n_rows, 3 + 6 + 500 + (2 + W - 1) + 20 + 40);
    assert_true(s.n_keys == 6.0 * (3 + 6) + 2.0 * (500 + W));
    const mmla_prefill_shape windows = shape_of(0, 3, query, seq);
    assert_int_equal(windows.n, 0);
    assert_int_equal(windows.m, 2 + W - 1);
    assert_true(windows.n_keys == 6.0 * 6 + 2.0 * W);
    assert_int_equal(shape_of(2, 0, query, seq).m, 1);
}

/* One request. Microseconds from the caches, and by the workspace. */
static const struct measured {
    int32_t heads, context, tokens;
    double paged, workspace;
} measured[] = {
    {64, 4096, 256, 72.4, 71.8},        {64, 4096, 1024, 263.7, 237.1},
    {64, 4096, 2048, 504.5, 433.9},     {64, 4096, 4096, 923.6, 790.5},
    {64, 16384, 256, 73.6, 85.1},       {64, 16384, 1024, 264.2, 242.0},
    {64, 16384, 2048, 504.2, 443.3},    {64, 16384, 4096, 974.7, 842.7},
    {64, 65536, 256, 80.5, 112.2},      {64, 65536, 1024, 265.8, 276.6},
    {64, 65536, 2048, 507.0, 492.2},    {64, 65536, 4096, 980.7, 898.0},
    {64, 131072, 256, 81.6, 138.8},     {64, 131072, 1024, 268.9, 309.8},
    {64, 131072, 2048, 511.4, 531.5},   {64, 131072, 4096, 988.9, 957.2},
    {64, 262144, 256, 83.0, 197.0},     {64, 262144, 1024, 269.8, 376.2},
    {64, 262144, 2048, 512.9, 602.0},   {64, 262144, 4096, 993.8, 1063.8},
    {64, 524288, 256, 83.1, 297.7},     {64, 524288, 1024, 269.8, 481.3},
    {64, 524288, 2048, 513.7, 719.8},   {64, 524288, 4096, 990.2, 1207.1},
    {16, 4096, 256, 53.5, 56.1},        {16, 4096, 1024, 187.7, 176.8},
    {16, 4096, 2048, 369.8, 334.0},     {16, 4096, 4096, 691.0, 596.2},
    {16, 16384, 256, 53.4, 60.7},       {16, 16384, 1024, 189.0, 183.8},
    {16, 16384, 2048, 370.3, 339.3},    {16, 16384, 4096, 725.6, 641.4},
    {16, 65536, 256, 53.8, 90.5},       {16, 65536, 1024, 190.3, 222.8},
    {16, 65536, 2048, 371.7, 393.3},    {16, 65536, 4096, 727.6, 721.8},
    {16, 131072, 256, 54.7, 121.8},     {16, 131072, 1024, 191.2, 259.6},
    {16, 131072, 2048, 372.3, 438.6},   {16, 131072, 4096, 728.9, 780.6},
    {16, 262144, 256, 54.9, 180.3},     {16, 262144, 1024, 192.2, 335.0},
    {16, 262144, 2048, 373.3, 535.6},   {16, 262144, 4096, 731.1, 926.4},
    {16, 524288, 256, 56.0, 280.7},     {16, 524288, 1024, 193.7, 443.2},
    {16, 524288, 2048, 375.6, 665.7},   {16, 524288, 4096, 732.9, 1094.5},
    {128, 4096, 256, 141.0, 132.6},     {128, 4096, 1024, 499.8, 428.8},
    {128, 4096, 2048, 966.7, 836.1},    {128, 4096, 4096, 1795.2, 1530.4},
    {128, 16384, 256, 142.4, 137.7},    {128, 16384, 1024, 500.1, 433.8},
    {128, 16384, 2048, 965.6, 821.5},   {128, 16384, 4096, 1880.0, 1627.0},
    {128, 65536, 256, 144.4, 160.1},    {128, 65536, 1024, 503.0, 458.0},
    {128, 65536, 2048, 973.2, 865.9},   {128, 65536, 4096, 1904.8, 1692.4},
    {128, 131072, 256, 143.9, 182.9},   {128, 131072, 1024, 505.9, 480.9},
    {128, 131072, 2048, 975.5, 875.9},  {128, 131072, 4096, 1897.2, 1677.0},
    {128, 262144, 256, 144.5, 238.8},   {128, 262144, 1024, 506.5, 537.3},
    {128, 262144, 2048, 976.5, 932.7},  {128, 262144, 4096, 1910.9, 1691.5},
    {128, 524288, 256, 146.8, 337.0},   {128, 524288, 1024, 510.8, 638.0},
    {128, 524288, 2048, 984.0, 1022.9}, {128, 524288, 4096, 1917.9, 1790.0},
    {8, 4096, 256, 48.9, 50.6},         {8, 4096, 1024, 171.0, 154.2},
    {8, 4096, 2048, 334.5, 294.3},      {8, 4096, 4096, 621.5, 518.8},
    {8, 16384, 256, 48.8, 57.2},        {8, 16384, 1024, 171.0, 163.5},
    {8, 16384, 2048, 334.9, 301.5},     {8, 16384, 4096, 657.0, 569.9},
    {8, 65536, 256, 48.9, 86.7},        {8, 65536, 1024, 172.4, 208.2},
    {8, 65536, 2048, 335.5, 369.1},     {8, 65536, 4096, 657.2, 685.0},
    {8, 131072, 256, 49.4, 115.4},      {8, 131072, 1024, 172.8, 244.8},
    {8, 131072, 2048, 336.4, 413.1},    {8, 131072, 4096, 657.2, 749.8},
    {8, 262144, 256, 49.6, 175.4},      {8, 262144, 1024, 173.9, 317.0},
    {8, 262144, 2048, 337.8, 501.9},    {8, 262144, 4096, 659.5, 865.2},
    {8, 524288, 256, 50.2, 275.0},      {8, 524288, 1024, 174.7, 423.1},
    {8, 524288, 2048, 339.3, 630.4},    {8, 524288, 4096, 662.0, 1026.6},
};

static double gain_of(const char *implementation, int32_t heads, int32_t context, int32_t tokens) {
    const mmla_prefill_shape s = shape_of(1, 1, &tokens, &context);
    return mmla_prefill_workspace_gain(implementation, heads, h200_l2_bytes, &s);
}

static void the_model_takes_the_faster_way_where_it_matters(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        const struct measured *x = &measured[i];
        const double gain = gain_of("hopper_bf16", x->heads, x->context, x->tokens);
        const double taken = gain > 0.0 ? x->workspace : x->paged;
        const double best = x->workspace < x->paged ? x->workspace : x->paged;
        if (taken > 1.02 * best) {
            fail_msg("%d heads, %d tokens of %d: takes %.1f us, not %.1f", x->heads, x->tokens,
                     x->context, taken, best);
        }
    }
}

static void more_tokens_favour_the_workspace_and_a_longer_context_the_caches(void **state) {
    (void)state;
    const char *const names[] = {"hopper_bf16", "wgmma_bf16", "mma_bf16", "mma_counter_bf16"};
    for (int i = 0; i < 4; i++) {
        for (int32_t heads = 8; heads <= 128; heads += 8) {
            assert_true(gain_of(names[i], heads, 4096, 4096) > 0.0);
            assert_true(gain_of(names[i], heads, 1 << 20, 64) < 0.0);
            for (int32_t context = 8192; context <= 1 << 20; context *= 2) {
                assert_true(gain_of(names[i], heads, context, 4096) <
                            gain_of(names[i], heads, context / 2, 4096));
            }
        }
    }
}

static void few_keys_are_not_worth_a_gather(void **state) {
    (void)state;
    assert_true(gain_of("hopper_bf16", 64, 100, 100) < 0.0);
    assert_true(gain_of("hopper_bf16", 64, 1, 1) < 0.0);
    assert_true(gain_of("hopper_bf16", 64, 0, 0) < 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_has_the_records_of_the_longest_and_the_rows_of_all),
        cmocka_unit_test(the_model_takes_the_faster_way_where_it_matters),
        cmocka_unit_test(more_tokens_favour_the_workspace_and_a_longer_context_the_caches),
        cmocka_unit_test(few_keys_are_not_worth_a_gather),
    };
    return cmocka_run_group_tests_name("prefill_route", tests, NULL, NULL);
}
