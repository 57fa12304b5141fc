/* attend_merge_rule_test.c - the weights in fp32 against the same in double, and their edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "ops/attend/attend_merge_rule.h"
#include "support/rng.h"

static uint64_t seed;

static float drawn(test_rng *rng, float scale) {
    return scale * ((float)test_rng_below(rng, 2000001) / 1000000.0f - 1.0f);
}

/* A difference of two lse is off by 2^-24 of itself, which is that much of its exp; exp, the sum and
 * the quotient add a few roundings. Where the exponent is large, the weight is next to nothing. */
static void assert_share(float got, double want, double difference) {
    const double allowed = want * (fabs(difference) + 8.0) * 0x1p-23 + 0x1p-148;
    assert_true(fabs((double)got - want) <= allowed);
}

static void weights_are_those_in_double(void **state) {
    (void)state;
    test_rng rng = {seed};
    static const float scales[] = {0.01f, 1.0f, 30.0f, 110.0f, 10000.0f};
    for (int i = 0; i < 200000; i++) {
        const float scale = scales[i % 5], offset = drawn(&rng, i % 3 ? 0.0f : 1000.0f);
        const float lse_a = offset + drawn(&rng, scale), lse_b = offset + drawn(&rng, scale);
        const float sink = offset + drawn(&rng, scale);
        const mmla_merge_weights w = mmla_merge_weights_get(lse_a, lse_b, sink);
        const double a = (double)lse_a, b = (double)lse_b;
        const double lse = fmax(a, b) + log1p(exp(-fabs(a - b)));
        assert_share(w.a, 1.0 / (1.0 + exp(b - a)), b - a);
        assert_share(w.b, 1.0 / (1.0 + exp(a - b)), a - b);
        /* The sink meets lse in two steps, each rounded. */
        assert_share(w.scale, 1.0 / (1.0 + exp((double)sink - lse)), 2.0 * ((double)sink - lse));
        assert_true(fabs((double)w.lse - lse) <= fabs(lse) * 0x1p-23 + 0x1p-23);
    }
}

static void a_part_without_keys_has_no_weight(void **state) {
    (void)state;
    const mmla_merge_weights a = mmla_merge_weights_get(INFINITY, 3.0f, -INFINITY);
    assert_true(a.a == 0.0f && a.b == 1.0f && a.lse == 3.0f && a.scale == 1.0f);
    const mmla_merge_weights b = mmla_merge_weights_get(3.0f, INFINITY, 3.0f);
    assert_true(b.a == 1.0f && b.b == 0.0f && b.lse == 3.0f && b.scale == 0.5f);
    const mmla_merge_weights none = mmla_merge_weights_get(INFINITY, INFINITY, -INFINITY);
    assert_true(none.a == 0.0f && none.b == 0.0f && none.scale == 0.0f && none.lse == INFINITY);
}

static void sinks_at_infinity_take_all_or_nothing(void **state) {
    (void)state;
    const mmla_merge_weights all = mmla_merge_weights_get(1.0f, 2.0f, INFINITY);
    assert_true(all.scale == 0.0f && all.a + all.b == 1.0f);
    assert_true(mmla_merge_weights_get(1.0f, 2.0f, -INFINITY).scale == 1.0f);
}

static void scores_at_minus_infinity_lose_to_any_other(void **state) {
    (void)state;
    const mmla_merge_weights w = mmla_merge_weights_get(-INFINITY, -5.0f, -INFINITY);
    assert_true(w.a == 0.0f && w.b == 1.0f && w.lse == -5.0f && w.scale == 1.0f);
    const mmla_merge_weights both = mmla_merge_weights_get(-INFINITY, -INFINITY, 0.0f);
    assert_true(isnan(both.a) && isnan(both.b) && isnan(both.lse));
}

static void a_nan_goes_everywhere(void **state) {
    (void)state;
    const float pairs[][2] = {{NAN, 1.0f}, {1.0f, NAN}, {NAN, NAN}};
    for (int i = 0; i < 3; i++) {
        const mmla_merge_weights w = mmla_merge_weights_get(pairs[i][0], pairs[i][1], 0.0f);
        assert_true(isnan(w.a) && isnan(w.b) && isnan(w.scale) && isnan(w.lse));
    }
    const mmla_merge_weights one = mmla_merge_weights_get(INFINITY, NAN, 0.0f);
    assert_true(one.a == 0.0f && isnan(one.lse) && isnan(one.scale));
    assert_true(isnan(mmla_merge_weights_get(1.0f, 2.0f, NAN).scale));
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_in_double),
        cmocka_unit_test(a_part_without_keys_has_no_weight),
        cmocka_unit_test(sinks_at_infinity_take_all_or_nothing),
        cmocka_unit_test(scores_at_minus_infinity_lose_to_any_other),
        cmocka_unit_test(a_nan_goes_everywhere),
    };
    return cmocka_run_group_tests_name("attend_merge_rule", tests, NULL, NULL);
}
