/* All 65,536 codes, and the floats around each of them and around each midpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/rng.h"

enum { INFINITE = 0x7F80, SIGN = 0x8000 };

static uint64_t seed;

/* Value of a code up to infinity, which rounding treats as 2^128. */
static double value_of(uint32_t code) {
    const int e = (int)(code >> 7), m = (int)(code & 127u);
    return e == 0 ? ldexp(m, -133) : ldexp(128 + m, e - 134);
}

/* x >= 0 lies between the codes below and below + 1; the nearer, on a tie the even one. */
static uint32_t nearest(float x, uint32_t below) {
    const double down = (double)x - value_of(below), up = value_of(below + 1) - (double)x;
    return up < down || (up == down && below % 2 == 1) ? below + 1 : below;
}

static void check(float x, uint32_t below) {
    const uint32_t want = nearest(x, below);
    assert_int_equal(mmla_bf16_from_f32(x), want);
    assert_int_equal(mmla_bf16_from_f32(-x), want | SIGN);
    assert_true(mmla_bits_of_f32(mmla_bf16_round(x)) == want << 16);
}

static void bf16_every_code_has_its_value_and_round_trips(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= INFINITE; code++) {
        const float x = mmla_bf16_to_f32((uint16_t)code);
        if (code < INFINITE) {
            assert_true((double)x == value_of(code));
        } else {
            assert_true(isinf(x));
        }
        assert_int_equal(mmla_bf16_from_f32(x), code);
        assert_int_equal(mmla_bf16_from_f32(-x), code | SIGN);
        assert_true(signbit(mmla_bf16_to_f32((uint16_t)(code | SIGN))));
    }
}

static void bf16_midpoints_and_their_neighbours_round_to_even(void **state) {
    (void)state;
    static const uint32_t low[] = {1, 2, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0x8002, 0xFFFE, 0xFFFF};
    for (uint32_t code = 0; code < INFINITE; code++) {
        for (size_t i = 0; i < sizeof low / sizeof low[0]; i++) {
            check(mmla_f32_of_bits(code << 16 | low[i]), code);
        }
    }
}

static void bf16_random_floats_round_to_nearest(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int i = 0; i < 300000; i++) {
        const uint32_t bits = (uint32_t)test_rng_below(&rng, 0x7F800000);
        check(mmla_f32_of_bits(bits), bits >> 16);
    }
}

static void bf16_overflow_goes_to_infinity(void **state) {
    (void)state;
    assert_int_equal(mmla_bf16_from_f32(0x1.fefffep127f), 0x7F7F);
    assert_int_equal(mmla_bf16_from_f32(0x1.ffp127f), INFINITE); /* a tie, and 0x7F80 is even */
    assert_int_equal(mmla_bf16_from_f32(-0x1.fffffep127f), INFINITE | SIGN);
    assert_int_equal(mmla_bf16_from_f32(INFINITY), INFINITE);
}

static void bf16_every_nan_becomes_one_nan(void **state) {
    (void)state;
    for (uint32_t code = INFINITE + 1; code <= 0x7FFFu; code++) {
        assert_true(isnan(mmla_bf16_to_f32((uint16_t)code)));
        assert_int_equal(mmla_bf16_from_f32(mmla_f32_of_bits(code << 16)), MMLA_BF16_NAN);
        assert_int_equal(mmla_bf16_from_f32(mmla_f32_of_bits((code | SIGN) << 16)), MMLA_BF16_NAN);
    }
    /* Cutting this one off would give infinity. */
    assert_int_equal(mmla_bf16_from_f32(mmla_f32_of_bits(0x7F800001u)), MMLA_BF16_NAN);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_every_code_has_its_value_and_round_trips),
        cmocka_unit_test(bf16_midpoints_and_their_neighbours_round_to_even),
        cmocka_unit_test(bf16_random_floats_round_to_nearest),
        cmocka_unit_test(bf16_overflow_goes_to_infinity),
        cmocka_unit_test(bf16_every_nan_becomes_one_nan),
    };
    return cmocka_run_group_tests_name("bf16", tests, NULL, NULL);
}
