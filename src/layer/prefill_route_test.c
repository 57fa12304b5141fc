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
    {64, 4096, 256, 72.1, 70.3},        {64, 4096, 1024, 263.9, 235.9},
    {64, 4096, 2048, 506.5, 438.7},     {64, 4096, 4096, 928.4, 806.6},
    {64, 16384, 256, 73.4, 84.0},       {64, 16384, 1024, 265.2, 240.7},
    {64, 16384, 2048, 506.9, 444.0},    {64, 16384, 4096, 983.7, 867.4},
    {64, 32768, 256, 76.3, 94.3},       {64, 32768, 1024, 265.1, 253.6},
    {64, 32768, 2048, 505.3, 476.4},    {64, 32768, 4096, 982.6, 902.6},
    {64, 65536, 256, 79.7, 109.7},      {64, 65536, 1024, 267.1, 277.2},
    {64, 65536, 2048, 510.5, 499.1},    {64, 65536, 4096, 987.2, 974.4},
    {64, 131072, 256, 81.4, 135.6},     {64, 131072, 1024, 268.0, 308.0},
    {64, 131072, 2048, 512.8, 528.7},   {64, 131072, 4096, 995.7, 996.6},
    {64, 262144, 256, 82.4, 192.1},     {64, 262144, 1024, 270.3, 373.6},
    {64, 262144, 2048, 515.8, 603.6},   {64, 262144, 4096, 997.6, 1073.7},
    {64, 524288, 256, 82.8, 287.9},     {64, 524288, 1024, 270.2, 474.1},
    {64, 524288, 2048, 517.0, 718.8},   {64, 524288, 4096, 1000.0, 1211.1},
    {16, 4096, 256, 53.5, 55.4},        {16, 4096, 1024, 188.9, 176.7},
    {16, 4096, 2048, 372.5, 334.3},     {16, 4096, 4096, 696.6, 598.3},
    {16, 16384, 256, 53.7, 60.4},       {16, 16384, 1024, 189.9, 183.0},
    {16, 16384, 2048, 372.4, 338.7},    {16, 16384, 4096, 730.6, 639.4},
    {16, 32768, 256, 53.8, 74.0},       {16, 32768, 1024, 190.1, 194.4},
    {16, 32768, 2048, 372.1, 348.7},    {16, 32768, 4096, 732.8, 652.7},
    {16, 65536, 256, 54.1, 89.2},       {16, 65536, 1024, 190.6, 222.4},
    {16, 65536, 2048, 373.2, 391.3},    {16, 65536, 4096, 732.8, 712.3},
    {16, 131072, 256, 54.6, 119.5},     {16, 131072, 1024, 192.1, 256.8},
    {16, 131072, 2048, 374.7, 431.6},   {16, 131072, 4096, 735.9, 772.0},
    {16, 262144, 256, 55.0, 177.2},     {16, 262144, 1024, 193.1, 333.3},
    {16, 262144, 2048, 375.8, 535.2},   {16, 262144, 4096, 738.5, 936.5},
    {16, 524288, 256, 55.8, 272.4},     {16, 524288, 1024, 194.2, 435.9},
    {16, 524288, 2048, 376.5, 660.0},   {16, 524288, 4096, 738.9, 1103.6},
    {128, 4096, 256, 140.4, 131.1},     {128, 4096, 1024, 502.0, 428.9},
    {128, 4096, 2048, 971.0, 837.6},    {128, 4096, 4096, 1807.7, 1548.7},
    {128, 16384, 256, 142.5, 137.0},    {128, 16384, 1024, 503.0, 439.4},
    {128, 16384, 2048, 971.0, 843.8},   {128, 16384, 4096, 1896.7, 1656.1},
    {128, 32768, 256, 142.8, 144.9},    {128, 32768, 1024, 503.2, 450.3},
    {128, 32768, 2048, 978.6, 850.3},   {128, 32768, 4096, 1895.0, 1703.4},
    {128, 65536, 256, 143.3, 158.4},    {128, 65536, 1024, 505.8, 467.4},
    {128, 65536, 2048, 981.0, 882.1},   {128, 65536, 4096, 1917.2, 1731.1},
    {128, 131072, 256, 143.7, 180.2},   {128, 131072, 1024, 507.6, 480.3},
    {128, 131072, 2048, 983.0, 872.1},  {128, 131072, 4096, 1926.3, 1796.2},
    {128, 262144, 256, 144.1, 233.8},   {128, 262144, 1024, 508.5, 536.7},
    {128, 262144, 2048, 986.7, 919.9},  {128, 262144, 4096, 1918.0, 1817.2},
    {128, 524288, 256, 145.1, 328.8},   {128, 524288, 1024, 510.7, 632.3},
    {128, 524288, 2048, 986.8, 1019.4}, {128, 524288, 4096, 1920.4, 1810.8},
    {8, 4096, 256, 48.8, 50.0},         {8, 4096, 1024, 172.2, 154.1},
    {8, 4096, 2048, 337.5, 293.7},      {8, 4096, 4096, 626.6, 516.7},
    {8, 16384, 256, 49.0, 55.5},        {8, 16384, 1024, 172.3, 162.5},
    {8, 16384, 2048, 337.8, 299.7},     {8, 16384, 4096, 662.3, 565.3},
    {8, 32768, 256, 49.0, 70.3},        {8, 32768, 1024, 172.6, 177.1},
    {8, 32768, 2048, 337.6, 319.0},     {8, 32768, 4096, 663.5, 583.8},
    {8, 65536, 256, 49.2, 85.5},        {8, 65536, 1024, 173.2, 207.1},
    {8, 65536, 2048, 337.9, 367.4},     {8, 65536, 4096, 663.1, 677.0},
    {8, 131072, 256, 49.6, 113.0},      {8, 131072, 1024, 174.2, 243.3},
    {8, 131072, 2048, 338.4, 411.3},    {8, 131072, 4096, 663.0, 739.6},
    {8, 262144, 256, 49.7, 171.1},      {8, 262144, 1024, 175.0, 314.9},
    {8, 262144, 2048, 340.1, 501.2},    {8, 262144, 4096, 664.3, 871.4},
    {8, 524288, 256, 50.5, 265.8},      {8, 524288, 1024, 175.8, 418.7},
    {8, 524288, 2048, 341.7, 626.4},    {8, 524288, 4096, 667.4, 1030.6},
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
        if (taken > 1.03 * best) {
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
