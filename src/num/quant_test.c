/* The quantisers at the places where bytes are decided: scale boundaries, floors, ties, NaN. These
 * numbers are golden: every implementation on every device must give them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "num/quant.h"
#include "support/nearest.h"

enum { BY_AMAX = 0, BY_SCALE = 1 };

/* x[i] = bf16((-1)^i * 0.37 * (i + 1)): sixteen values up to 5.90625. */
static void fill_sixteen(float *x) {
    for (int i = 0; i < 16; i++) {
        x[i] = mmla_bf16_round((i % 2 == 0 ? 0.37f : -0.37f) * (float)(i + 1));
    }
}

static void quant_ue8m0_bytes_follow_the_table(void **state) {
    (void)state;
    static const struct {
        float amax;
        int by_amax, by_scale;
    } rows[] = {{0.0f, 105, 114},   {0.01f, 112, 114},  {1.0f, 119, 119},   {3.5f, 120, 120},
                {448.0f, 127, 127}, {449.0f, 128, 128}, {1000.0f, 129, 129}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mmla_quant_ue8m0_byte(rows[i].amax, BY_AMAX), rows[i].by_amax);
        assert_int_equal(mmla_quant_ue8m0_byte(rows[i].amax, BY_SCALE), rows[i].by_scale);
    }
    assert_int_equal(mmla_quant_ue8m0_byte(test_float_step(3.5f, 1), BY_AMAX), 121);
}

static void quant_amax_of_448_times_a_power_is_exact_and_one_ulp_beyond_doubles(void **state) {
    (void)state;
    for (int k = -22; k <= 118; k++) {
        const float amax = ldexpf(448.0f, k);
        float x[2] = {amax, 0.0f};
        uint8_t codes[2];
        assert_int_equal(mmla_quant_e4m3_group(x, 2, BY_AMAX, codes), k + 127);
        assert_int_equal(codes[0], 0x7E);
        x[0] = test_float_step(amax, 1);
        assert_int_equal(mmla_quant_e4m3_group(x, 2, BY_AMAX, codes), k + 128);
        assert_int_equal(codes[0], 0x76);
        x[0] = -x[0];
        assert_int_equal(mmla_quant_e4m3_group(x, 2, BY_AMAX, codes), k + 128);
        assert_int_equal(codes[0], 0xF6);
    }
}

static void quant_both_floors_agree_above_448_times_2_to_the_minus_14(void **state) {
    (void)state;
    const float bound = 0.02734375f;
    assert_int_equal(mmla_quant_ue8m0_byte(bound, BY_AMAX), 113);
    assert_int_equal(mmla_quant_ue8m0_byte(bound, BY_SCALE), 114);
    for (uint32_t bits = mmla_bits_of_f32(bound) + 1; bits < 0x7F800000u; bits += 65521) {
        const float amax = mmla_f32_of_bits(bits);
        assert_int_equal(mmla_quant_ue8m0_byte(amax, BY_AMAX),
                         mmla_quant_ue8m0_byte(amax, BY_SCALE));
    }
}

static void quant_sixteen_values_give_the_golden_e4m3_codes(void **state) {
    (void)state;
    static const uint8_t want[16] = {0x5C, 0xE4, 0x69, 0xEC, 0x6F, 0xF1, 0x72, 0xF4,
                                     0x75, 0xF7, 0x78, 0xF9, 0x7A, 0xFA, 0x7B, 0xFC};
    float x[32] = {0};
    uint8_t codes[32];
    fill_sixteen(x);
    assert_int_equal(mmla_quant_e4m3_group(x, 32, BY_AMAX, codes), 121);
    assert_memory_equal(codes, want, sizeof want);
    for (int i = 16; i < 32; i++) {
        assert_int_equal(codes[i], 0);
    }
}

static void quant_e4m3_nan_stays_alone_and_does_not_move_the_scale(void **state) {
    (void)state;
    float x[32] = {0};
    uint8_t with[32], without[32];
    fill_sixteen(x);
    const int scale = mmla_quant_e4m3_group(x, 32, BY_AMAX, without);
    x[20] = NAN;
    assert_int_equal(mmla_quant_e4m3_group(x, 32, BY_AMAX, with), scale);
    without[20] = MMLA_E4M3_NAN;
    assert_memory_equal(with, without, sizeof with);
}

static void quant_e4m3_infinity_makes_the_scale_nan(void **state) {
    (void)state;
    float x[32] = {1.0f, -INFINITY};
    uint8_t codes[32];
    assert_int_equal(mmla_quant_e4m3_group(x, 32, BY_AMAX, codes), MMLA_UE8M0_NAN);
    assert_int_equal(codes[1], 0xFE);
}

static void quant_e2m1_scales_follow_the_table(void **state) {
    (void)state;
    static const struct {
        float amax;
        int code;
    } rows[] = {{0.0f, 0x01}, {0.02f, 0x02}, {1.0f, 0x23},    {1.5f, 0x28},
                {6.0f, 0x38}, {10.0f, 0x3D}, {2688.0f, 0x7E}, {1e30f, 0x7E}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mmla_quant_e2m1_scale(rows[i].amax), rows[i].code);
    }
    assert_int_equal(mmla_quant_e2m1_scale(0.01171875f), 0x01);
    assert_int_equal(mmla_quant_e2m1_scale(INFINITY), 0x7E);
    assert_true(mmla_e4m3_to_f32(0x23) == 0.171875f);
    assert_true(mmla_e4m3_to_f32(0x3D) == 1.625f);
}

static void quant_sixteen_values_give_the_golden_e2m1_bytes(void **state) {
    (void)state;
    static const uint8_t want[8] = {0x91, 0xB2, 0xC4, 0xD5, 0xE5, 0xE6, 0xF6, 0xF7};
    float x[16];
    uint8_t bytes[8];
    fill_sixteen(x);
    assert_int_equal(mmla_quant_e2m1_group(x, bytes), 0x38);
    assert_memory_equal(bytes, want, sizeof want);
}

static void quant_e2m1_zero_group_has_the_smallest_scale(void **state) {
    (void)state;
    const float x[16] = {0.0f, -0.0f, 0.0f, -0.0f};
    uint8_t bytes[8];
    assert_int_equal(mmla_quant_e2m1_group(x, bytes), 0x01);
    assert_int_equal(bytes[0], 0x80); /* the sign of zero is kept, in the high nibble */
    assert_int_equal(bytes[1], 0x80);
    assert_int_equal(bytes[7], 0x00);
}

static void quant_e2m1_divides_where_a_reciprocal_would_miss_a_tie(void **state) {
    (void)state;
    /* Scale 0x33 = 0.6875. 0.171875 / 0.6875 is exactly 0.25, a tie that goes to 0, and 0.515625 /
     * 0.6875 is exactly 0.75, a tie that goes up to 1. */
    float x[16] = {4.125f, 0.171875f, 0.515625f, -0.171875f};
    uint8_t bytes[8];
    assert_int_equal(mmla_quant_e2m1_group(x, bytes), 0x33);
    assert_int_equal(bytes[0], 0x07);
    assert_int_equal(bytes[1], 0x82);
}

/* Any tie of any scale, for all 126 scales: the quotient must be formed exactly. */
static void quant_e2m1_every_tie_under_every_scale_goes_to_even(void **state) {
    (void)state;
    static const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    static const int codes[] = {0, 2, 2, 4, 4, 6, 6};
    for (int scale = 1; scale <= MMLA_E4M3_MAX_CODE; scale++) {
        const float s = mmla_e4m3_to_f32((uint8_t)scale);
        float x[16] = {6.0f * s};
        uint8_t bytes[8];
        for (int i = 0; i < 7; i++) {
            x[i + 1] = ties[i] * s;
            x[i + 8] = -ties[i] * s;
        }
        assert_int_equal(mmla_quant_e2m1_group(x, bytes), scale);
        assert_int_equal(bytes[0] & 15, 7);
        for (int i = 0; i < 7; i++) {
            assert_int_equal((bytes[(i + 1) / 2] >> (i % 2 == 0 ? 4 : 0)) & 15, codes[i]);
            assert_int_equal((bytes[(i + 8) / 2] >> (i % 2 == 0 ? 0 : 4)) & 15, codes[i] | 8);
        }
    }
}

static void quant_e2m1_nan_marks_the_group_and_keeps_the_other_codes(void **state) {
    (void)state;
    float x[16];
    uint8_t with[8], without[8];
    fill_sixteen(x);
    x[5] = 0.0f;
    mmla_quant_e2m1_group(x, without);
    x[5] = -NAN;
    assert_int_equal(mmla_quant_e2m1_group(x, with), MMLA_E4M3_NAN);
    assert_memory_equal(with, without, sizeof with);
}

static void quant_amax_ignores_nan_and_sign(void **state) {
    (void)state;
    const float x[4] = {1.0f, NAN, -3.0f, 2.0f};
    const float nothing[2] = {NAN, NAN};
    assert_true(mmla_quant_amax(x, 4) == 3.0f);
    const float signalling[3] = {3.0f, mmla_f32_of_bits(0x7F810000u), 1.0f};
    assert_true(mmla_quant_amax(nothing, 2) == 0.0f);
    assert_true(mmla_quant_amax(signalling, 3) == 3.0f);
    assert_true(mmla_quant_amax(x, 0) == 0.0f);
}

static void quant_out_chunk_at_448_times_a_power_and_one_ulp_beyond(void **state) {
    (void)state;
    for (int k = -22; k <= 100; k++) {
        float o[32] = {ldexpf(448.0f, k)};
        uint8_t codes[32];
        assert_int_equal(mmla_quant_out_ue8m0(o, 1.0f, codes), k + 127);
        assert_int_equal(codes[0], 0x7E);
        o[0] = test_float_step(o[0], 1);
        assert_int_equal(mmla_quant_out_ue8m0(o, 1.0f, codes), k + 128);
        assert_int_equal(codes[0], 0x76);
    }
}

/* Every mantissa at some exponents, and infinity: what the quotient rounded up to a power would give. */
static void quant_out_byte_is_that_of_the_quotient(void **state) {
    (void)state;
    const float first[] = {0x1p-13f, 0x1p0f, 0x1p8f, 0x1p127f};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        const uint32_t bits = mmla_bits_of_f32(first[i]);
        for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa++) {
            const float a = mmla_f32_of_bits(bits | mantissa);
            if (mmla_quant_out_byte(a) != mmla_ue8m0_ceil(a / MMLA_E4M3_MAX)) {
                fail_msg("%a", a);
            }
        }
    }
    assert_int_equal(mmla_quant_out_byte(MMLA_AMAX_FLOOR),
                     mmla_ue8m0_ceil(MMLA_AMAX_FLOOR / MMLA_E4M3_MAX));
    assert_int_equal(mmla_quant_out_byte(INFINITY), mmla_ue8m0_ceil(INFINITY));
}

static void quant_out_chunk_of_ones_and_of_zeros(void **state) {
    (void)state;
    float ones[32], zeros[32] = {0};
    uint8_t codes[32];
    for (int i = 0; i < 32; i++) {
        ones[i] = 1.0f;
    }
    assert_int_equal(mmla_quant_out_ue8m0(ones, 0.5f, codes), 118);
    assert_int_equal(codes[31], 0x78);
    assert_int_equal(mmla_quant_out_ue8m0(ones, 1.0f, codes), 119);
    assert_int_equal(codes[31], 0x78);
    assert_int_equal(mmla_quant_out_ue8m0(ones, 0.0f, codes), 105);
    assert_int_equal(codes[31], 0x00);
    assert_int_equal(mmla_quant_out_ue8m0(zeros, 1.0f, codes), 105);
    assert_int_equal(codes[31], 0x00);
}

static void quant_out_fp32_scale_is_not_rounded_to_a_power(void **state) {
    (void)state;
    float o[128] = {3.0f, -1.5f};
    uint8_t codes[128];
    assert_true(mmla_quant_out_f32(o, 1.0f, codes) == 3.0f / 448.0f);
    assert_int_equal(codes[0], 0x7E);
    assert_int_equal(codes[1], 0xF6);
    assert_int_equal(codes[127], 0x00);
    assert_true(mmla_quant_out_f32(o, 0.0f, codes) == 1e-4f / 448.0f);
    assert_int_equal(codes[0], 0x00);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quant_ue8m0_bytes_follow_the_table),
        cmocka_unit_test(quant_amax_of_448_times_a_power_is_exact_and_one_ulp_beyond_doubles),
        cmocka_unit_test(quant_both_floors_agree_above_448_times_2_to_the_minus_14),
        cmocka_unit_test(quant_sixteen_values_give_the_golden_e4m3_codes),
        cmocka_unit_test(quant_e4m3_nan_stays_alone_and_does_not_move_the_scale),
        cmocka_unit_test(quant_e4m3_infinity_makes_the_scale_nan),
        cmocka_unit_test(quant_e2m1_scales_follow_the_table),
        cmocka_unit_test(quant_sixteen_values_give_the_golden_e2m1_bytes),
        cmocka_unit_test(quant_e2m1_zero_group_has_the_smallest_scale),
        cmocka_unit_test(quant_e2m1_divides_where_a_reciprocal_would_miss_a_tie),
        cmocka_unit_test(quant_e2m1_every_tie_under_every_scale_goes_to_even),
        cmocka_unit_test(quant_e2m1_nan_marks_the_group_and_keeps_the_other_codes),
        cmocka_unit_test(quant_amax_ignores_nan_and_sign),
        cmocka_unit_test(quant_out_chunk_at_448_times_a_power_and_one_ulp_beyond),
        cmocka_unit_test(quant_out_byte_is_that_of_the_quotient),
        cmocka_unit_test(quant_out_chunk_of_ones_and_of_zeros),
        cmocka_unit_test(quant_out_fp32_scale_is_not_rounded_to_a_power),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
