/* The arithmetic of convert_bits.h gives what the definitions in src/num give, for every code. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/convert_bits.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"

static void e4m3_by_bits_is_e4m3_for_every_code(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        assert_int_equal(mmla_bits_of_f32(mmla_e4m3_to_f32_by_bits(code)),
                         mmla_bits_of_f32(mmla_e4m3_to_f32((uint8_t)code)));
    }
}

/* An fp16 below 2, by its definition. */
static float f16_value(uint32_t half) {
    const int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    const float magnitude = exponent == 0 ? ldexpf((float)mantissa, -24)
                                          : ldexpf((float)(1024 + mantissa), exponent - 25);
    return half >> 15 ? -magnitude : magnitude;
}

/* The value an fp16 below 2 stands for is 2^-14 times that of an fp32. */
static void e2m1_from_f16_is_e2m1_for_every_magnitude_up_to_6(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0x0E00; half++) {
        const uint32_t other = 0x0E00 - half;
        for (uint32_t signs = 0; signs < 4; signs++) {
            const float low = f16_value(half | (signs & 1) << 15) * 0x1p14f;
            const float high = f16_value(other | (signs >> 1) << 15) * 0x1p14f;
            const uint32_t want = mmla_e2m1_from_f32(low) | mmla_e2m1_from_f32(high) << 4;
            const uint32_t signs_among_others =
                (signs & 1 ? 0xFFFFu : 0x7FFFu) | (signs >> 1 ? 0xFFFF0000u : 0x7FFF0000u);
            assert_int_equal(
                mmla_e2m1x2_from_f16x2_times_2_14th(half | other << 16, signs_among_others), want);
        }
    }
}

/* Every pair of codes, with all other bits set and clear. */
static void e2m1_pair_as_bf16_is_e2m1_for_every_pair(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const uint32_t both = 15u << 4 * i | 15u << 4 * (i + 4);
        for (uint32_t pair = 0; pair < 256; pair++) {
            const uint32_t codes = (pair & 15) << 4 * i | pair >> 4 << 4 * (i + 4);
            const uint32_t alone = mmla_e2m1x2_to_bf16x2_times_2_126th(codes, i);
            assert_int_equal(mmla_e2m1x2_to_bf16x2_times_2_126th(codes | ~both, i), alone);
            for (int k = 0; k < 2; k++) {
                const float x = mmla_bf16_to_f32((uint16_t)(alone >> 16 * k)) * 0x1p126f;
                assert_int_equal(mmla_bits_of_f32(x),
                                 mmla_bits_of_f32(mmla_e2m1_to_f32(pair >> 4 * k & 15)));
            }
        }
    }
}

static void bf16_nans_are_found_in_either_half(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        const uint32_t nan = isnan(mmla_bf16_to_f32((uint16_t)code)) ? 0x8000 : 0;
        assert_int_equal(mmla_bf16x2_nans(code), nan);
        assert_int_equal(mmla_bf16x2_nans(code << 16 | 0xFFFF), nan << 16 | 0x8000);
        assert_int_equal(mmla_bf16x2_nans(code << 16 | 0x7F80), nan << 16);
    }
}

static void ue8m0_by_bits_is_ue8m0_for_every_byte(void **state) {
    (void)state;
    for (uint32_t byte = 0; byte < 256; byte++) {
        assert_int_equal(mmla_bits_of_f32(mmla_ue8m0_to_f32_by_bits(byte)),
                         mmla_bits_of_f32(mmla_ue8m0_to_f32((uint8_t)byte)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_by_bits_is_e4m3_for_every_code),
        cmocka_unit_test(e2m1_from_f16_is_e2m1_for_every_magnitude_up_to_6),
        cmocka_unit_test(e2m1_pair_as_bf16_is_e2m1_for_every_pair),
        cmocka_unit_test(bf16_nans_are_found_in_either_half),
        cmocka_unit_test(ue8m0_by_bits_is_ue8m0_for_every_byte),
    };
    return cmocka_run_group_tests_name("convert_bits", tests, NULL, NULL);
}
