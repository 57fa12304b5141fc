/* Every code, and every place where rounding changes its mind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "num/e4m3.h"
#include "support/nearest.h"
#include "support/rng.h"

enum { N_FINITE = 127 }; /* codes 0x00 .. 0x7E */

static uint64_t seed;
static double values[N_FINITE];

/* From the definition, without a shift: (1 + m/8) * 2^(e - 7), subnormals m/8 * 2^-6. */
static double value_of(int code) {
    const int e = (code >> 3) & 15, m = code & 7;
    return e == 0 ? ldexp(m / 8.0, -6) : ldexp(1.0 + m / 8.0, e - 7);
}

static int fill_values(void **state) {
    (void)state;
    for (int code = 0; code < N_FINITE; code++) {
        values[code] = value_of(code);
    }
    return 0;
}

static void check(float x) {
    const int sign = signbit(x) ? 0x80 : 0;
    const int want = sign | test_nearest_code(values, N_FINITE, x);
    const int got = mmla_e4m3_from_f32(x);
    if (got != want) {
        fail_msg("e4m3 of %a is 0x%02X, want 0x%02X", (double)x, (unsigned)got, (unsigned)want);
    }
}

static void check_both_signs(float x) {
    check(x);
    check(-x);
}

static void e4m3_every_code_has_its_value(void **state) {
    (void)state;
    for (int code = 0; code < N_FINITE; code++) {
        assert_true((double)mmla_e4m3_to_f32((uint8_t)code) == values[code]);
        assert_true((double)mmla_e4m3_to_f32((uint8_t)(code | 0x80)) == -values[code]);
    }
    assert_true(values[N_FINITE - 1] == (double)MMLA_E4M3_MAX);
    assert_true(values[1] == 0x1p-9);
    assert_true(signbit(mmla_e4m3_to_f32(0x80)));
    assert_true(isnan(mmla_e4m3_to_f32(0x7F)));
    assert_true(isnan(mmla_e4m3_to_f32(0xFF)));
}

static void e4m3_every_code_round_trips(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        if ((code & 0x7F) != MMLA_E4M3_NAN) {
            assert_int_equal(mmla_e4m3_from_f32(mmla_e4m3_to_f32((uint8_t)code)), code);
        }
    }
}

static void e4m3_midpoints_and_their_neighbours_round_to_even(void **state) {
    (void)state;
    for (int code = 0; code + 1 < N_FINITE; code++) {
        const float middle = (float)((values[code] + values[code + 1]) / 2);
        assert_int_equal(mmla_e4m3_from_f32(middle), code + code % 2);
        for (int steps = -40; steps <= 40; steps++) {
            check_both_signs(test_float_step(middle, steps));
        }
    }
}

static void e4m3_values_and_their_neighbours_round_to_nearest(void **state) {
    (void)state;
    for (int code = 1; code < N_FINITE; code++) {
        for (int steps = -40; steps <= 40; steps++) {
            check_both_signs(test_float_step((float)values[code], steps));
        }
    }
}

static void e4m3_every_bf16_rounds_to_nearest(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x7F80u; code++) { /* infinity too: its nearest value is 448 */
        check_both_signs(mmla_f32_of_bits(code << 16));
    }
}

static void e4m3_random_floats_round_to_nearest(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int i = 0; i < 50000; i++) {
        check_both_signs(
            ldexpf(test_rng_uniform(&rng, 1.0f, 2.0f), (int)test_rng_below(&rng, 24) - 13));
    }
}

static void e4m3_beyond_448_saturates(void **state) {
    (void)state;
    const float beyond[] = {448.0f, 448.00003f, 463.9f,          464.0f,  464.1f,
                            480.0f, 1e9f,       0x1.fffffep127f, INFINITY};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        assert_int_equal(mmla_e4m3_from_f32(beyond[i]), 0x7E);
        assert_int_equal(mmla_e4m3_from_f32(-beyond[i]), 0xFE);
    }
}

static void e4m3_tiny_values_keep_their_sign(void **state) {
    (void)state;
    const float tiny[] = {0.0f, 0x1p-149f, 0x1p-126f, 1e-20f, 0x1p-10f};
    for (size_t i = 0; i < sizeof tiny / sizeof tiny[0]; i++) {
        assert_int_equal(mmla_e4m3_from_f32(tiny[i]), 0x00);
        assert_int_equal(mmla_e4m3_from_f32(-tiny[i]), 0x80);
    }
    assert_int_equal(mmla_e4m3_from_f32(test_float_step(0x1p-10f, 1)), 0x01);
}

static void e4m3_every_nan_gives_7f(void **state) {
    (void)state;
    const uint32_t nans[] = {0x7FC00000u, 0xFFC00000u, 0x7F800001u,
                             0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        assert_int_equal(mmla_e4m3_from_f32(mmla_f32_of_bits(nans[i])), 0x7F);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_every_code_has_its_value),
        cmocka_unit_test(e4m3_every_code_round_trips),
        cmocka_unit_test(e4m3_midpoints_and_their_neighbours_round_to_even),
        cmocka_unit_test(e4m3_values_and_their_neighbours_round_to_nearest),
        cmocka_unit_test(e4m3_every_bf16_rounds_to_nearest),
        cmocka_unit_test(e4m3_random_floats_round_to_nearest),
        cmocka_unit_test(e4m3_beyond_448_saturates),
        cmocka_unit_test(e4m3_tiny_values_keep_their_sign),
        cmocka_unit_test(e4m3_every_nan_gives_7f),
    };
    return cmocka_run_group_tests_name("e4m3", tests, fill_values, NULL);
}
