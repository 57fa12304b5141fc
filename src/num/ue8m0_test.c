/* 256 scale bytes, and the boundary at every power of two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "num/ue8m0.h"
#include "support/nearest.h"

static void ue8m0_every_byte_has_its_value(void **state) {
    (void)state;
    for (int byte = 0; byte < MMLA_UE8M0_NAN; byte++) {
        assert_true((double)mmla_ue8m0_to_f32((uint8_t)byte) == ldexp(1.0, byte - 127));
    }
    assert_true(mmla_ue8m0_to_f32(0) == 0x1p-127f); /* a subnormal, not zero */
    assert_true(isnan(mmla_ue8m0_to_f32(MMLA_UE8M0_NAN)));
}

static void ue8m0_every_inverse_is_exact(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        assert_true((double)mmla_ue8m0_inverse((uint8_t)byte) == ldexp(1.0, 127 - byte));
    }
}

static void ue8m0_ceil_is_exact_around_every_power_of_two(void **state) {
    (void)state;
    for (int e = -126; e <= 127; e++) {
        const float power = ldexpf(1.0f, e);
        assert_int_equal(mmla_ue8m0_ceil(power), e + 127);
        assert_int_equal(mmla_ue8m0_ceil(test_float_step(power, 1)), e + 128);
        assert_int_equal(mmla_ue8m0_ceil(power * 1.5f), e + 128);
        if (e > -126) { /* below the smallest normal is outside its domain */
            assert_int_equal(mmla_ue8m0_ceil(test_float_step(power, -1)), e + 127);
        }
    }
}

static void ue8m0_ceil_of_infinity_is_the_nan_byte(void **state) {
    (void)state;
    assert_int_equal(mmla_ue8m0_ceil(INFINITY), MMLA_UE8M0_NAN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ue8m0_every_byte_has_its_value),
        cmocka_unit_test(ue8m0_every_inverse_is_exact),
        cmocka_unit_test(ue8m0_ceil_is_exact_around_every_power_of_two),
        cmocka_unit_test(ue8m0_ceil_of_infinity_is_the_nan_byte),
    };
    return cmocka_run_group_tests_name("ue8m0", tests, NULL, NULL);
}
