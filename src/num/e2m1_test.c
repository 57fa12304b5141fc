/* Sixteen codes, seven midpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "num/bits.h"
#include "num/e2m1.h"
#include "support/nearest.h"

enum { N_VALUES = 8 };

static const double values[N_VALUES] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static void check_both_signs(float x) {
    const int want = test_nearest_code(values, N_VALUES, x);
    const int got = mmla_e2m1_from_f32(x), negative = mmla_e2m1_from_f32(-x);
    if (got != want || negative != (want | 8)) {
        fail_msg("e2m1 of +-%a is %d and %d, want %d and %d", (double)x, got, negative, want,
                 want | 8);
    }
}

static void e2m1_every_code_has_its_value_and_round_trips(void **state) {
    (void)state;
    for (int code = 0; code < 16; code++) {
        const float x = mmla_e2m1_to_f32((uint8_t)code);
        assert_true(fabs((double)x) == values[code & 7]);
        assert_int_equal(signbit(x) != 0, code >> 3);
        assert_int_equal(mmla_e2m1_from_f32(x), code);
    }
}

static void e2m1_reads_the_low_nibble_only(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        assert_int_equal(mmla_bits_of_f32(mmla_e2m1_to_f32((uint8_t)byte)),
                         mmla_bits_of_f32(mmla_e2m1_to_f32((uint8_t)(byte & 15))));
    }
}

static void e2m1_ties_go_to_the_even_code(void **state) {
    (void)state;
    static const struct {
        float x;
        float rounded;
    } ties[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}};
    for (size_t i = 0; i < sizeof ties / sizeof ties[0]; i++) {
        assert_true(mmla_e2m1_to_f32(mmla_e2m1_from_f32(ties[i].x)) == ties[i].rounded);
        for (int steps = -100; steps <= 100; steps++) {
            check_both_signs(test_float_step(ties[i].x, steps));
        }
    }
}

static void e2m1_every_bf16_rounds_to_nearest(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x7F80u; code++) {
        check_both_signs(mmla_f32_of_bits(code << 16));
    }
}

static void e2m1_beyond_6_saturates(void **state) {
    (void)state;
    const float beyond[] = {6.0f, 6.5f, 7.0f, 8.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        assert_int_equal(mmla_e2m1_from_f32(beyond[i]), 7);
        assert_int_equal(mmla_e2m1_from_f32(-beyond[i]), 15);
    }
}

static void e2m1_nan_gives_positive_zero(void **state) {
    (void)state;
    assert_int_equal(mmla_e2m1_from_f32(mmla_f32_of_bits(0x7FC00000u)), 0);
    assert_int_equal(mmla_e2m1_from_f32(mmla_f32_of_bits(0xFFC00001u)), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e2m1_every_code_has_its_value_and_round_trips),
        cmocka_unit_test(e2m1_reads_the_low_nibble_only),
        cmocka_unit_test(e2m1_ties_go_to_the_even_code),
        cmocka_unit_test(e2m1_every_bf16_rounds_to_nearest),
        cmocka_unit_test(e2m1_beyond_6_saturates),
        cmocka_unit_test(e2m1_nan_gives_positive_zero),
    };
    return cmocka_run_group_tests_name("e2m1", tests, NULL, NULL);
}
