#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "num/norm.h"
#include "support/rng.h"

enum { N = 512 };

static uint64_t seed;
static float ones[N];

static int fill_ones(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        ones[i] = 1.0f;
    }
    return 0;
}

static void norm_of_zeros_is_zero_with_the_smallest_eps(void **state) {
    (void)state;
    float x[N] = {0};
    assert_true(mmla_norm_factor(0.0f, N, 1e-20f) == 1e10f);
    mmla_norm_rms(x, ones, N, 1e-20f);
    for (int i = 0; i < N; i++) {
        assert_int_equal(mmla_bits_of_f32(x[i]), 0);
    }
}

static void norm_eps_matters_for_tiny_rows(void **state) {
    (void)state;
    float x[N];
    for (int i = 0; i < N; i++) {
        x[i] = 0x1p-40f; /* its square, 2^-80, is far below eps = 1e-20 = 2^-66.4 */
    }
    mmla_norm_rms(x, ones, N, 1e-20f);
    assert_true(x[0] == mmla_bf16_round(0x1p-40f * 1e10f));
}

static void norm_of_equal_values_is_the_weight(void **state) {
    (void)state;
    float x[N], weight[N];
    for (int i = 0; i < N; i++) {
        x[i] = i % 2 == 0 ? 4.0f : -4.0f;
        weight[i] = (float)(i % 7);
    }
    mmla_norm_rms(x, weight, N, 1e-20f);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] == (i % 2 == 0 ? weight[i] : -weight[i]));
    }
}

static void norm_sums_in_sixteen_interleaved_parts(void **state) {
    (void)state;
    /* In fp32 2^24 + 1 is 2^24. Part 0 is 2^24 and swallows the ones it meets; the fifteen other
     * parts keep theirs. */
    float partial[MMLA_NORM_PARTIALS];
    partial[0] = 0x1p24f;
    for (int j = 1; j < MMLA_NORM_PARTIALS; j++) {
        partial[j] = 1.0f;
    }
    /* 0+8: 2^24 (tie to even), the others 2; 0+4: 2^24 + 2, then + 4, then + 8. */
    assert_true(mmla_norm_reduce(partial) == 0x1p24f + 14.0f);
}

static void norm_is_within_rounding_of_the_double_result(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int n = 16; n <= N; n *= 2) {
        float x[N], y[N], weight[N];
        double sum = 0;
        for (int i = 0; i < n; i++) {
            x[i] = y[i] = mmla_bf16_round(test_rng_normal(&rng));
            weight[i] = test_rng_uniform(&rng, 0.5f, 2.0f);
            sum += (double)x[i] * (double)x[i];
        }
        mmla_norm_rms(y, weight, n, 1e-20f);
        for (int i = 0; i < n; i++) {
            const double want = (double)x[i] / sqrt(sum / n + 1e-20) * (double)weight[i];
            /* half a bf16 step, and what fp32 may add to it */
            assert_true(fabs((double)y[i] - want) <= fabs(want) * (0x1p-8 * 1.001));
        }
    }
}

static void norm_of_a_nan_is_nan_everywhere(void **state) {
    (void)state;
    float x[N] = {0};
    x[300] = NAN;
    mmla_norm_rms(x, ones, N, 1e-20f);
    for (int i = 0; i < N; i++) {
        assert_true(isnan(x[i]));
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_of_zeros_is_zero_with_the_smallest_eps),
        cmocka_unit_test(norm_eps_matters_for_tiny_rows),
        cmocka_unit_test(norm_of_equal_values_is_the_weight),
        cmocka_unit_test(norm_sums_in_sixteen_interleaved_parts),
        cmocka_unit_test(norm_is_within_rounding_of_the_double_result),
        cmocka_unit_test(norm_of_a_nan_is_nan_everywhere),
    };
    return cmocka_run_group_tests_name("norm", tests, fill_ones, NULL);
}
