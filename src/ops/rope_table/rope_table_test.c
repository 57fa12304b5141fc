#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/rope.h>

#include "support/guard.h"

static mmla_rope_desc desc_of(int32_t ratio) {
    mmla_rope_desc desc;
    assert_int_equal(mmla_rope_desc_for_ratio(ratio, &desc, NULL), MMLA_OK);
    return desc;
}

/* The decimal check values are themselves rounded to ten digits. */
static void assert_close(float got, double want) {
    if (!(fabs((double)got - want) <= 1e-7 * want)) {
        fail_msg("is %.10g, must be %.10g", (double)got, want);
    }
}

static void yarn_frequencies_have_the_known_values(void **state) {
    (void)state;
    static const struct {
        int i;
        double f;
    } known[] = {{0, 1.0},
                 {8, 0.05},
                 {15, 3.635538584e-3},
                 {16, 2.265625e-3},
                 {20, 2.969777783e-4},
                 {24, 1.953125e-5},
                 {25, 5.372312671e-6},
                 {31, 5.680529037e-7}};
    for (int32_t ratio = 1; ratio <= 2; ratio++) { /* both, not only ratio 2 */
        const mmla_rope_desc desc = desc_of(ratio);
        float f[32];
        assert_int_equal(mmla_rope_frequencies(&desc, f, NULL), MMLA_OK);
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            assert_close(f[known[k].i], known[k].f);
        }
    }
}

static void plain_frequencies_are_powers_of_theta(void **state) {
    (void)state;
    const mmla_rope_desc desc = desc_of(0);
    float f[32];
    assert_int_equal(mmla_rope_frequencies(&desc, f, NULL), MMLA_OK);
    assert_close(f[0], 1.0);
    assert_close(f[8], 0.1);
    assert_close(f[16], 0.01);
    assert_close(f[24], 0.001);
    assert_close(f[31], pow(10000.0, -62.0 / 64.0));
}

static void position_zero_does_not_rotate(void **state) {
    (void)state;
    const mmla_rope_desc desc = desc_of(1);
    float row[64];
    assert_int_equal(mmla_rope_table_fill(&desc, 0, 1, row, NULL), MMLA_OK);
    for (int i = 0; i < 32; i++) {
        assert_true(row[i] == 1.0f);
        assert_true(row[32 + i] == 0.0f && !signbit(row[32 + i]));
    }
}

static void a_row_is_32_cosines_and_then_32_sines(void **state) {
    (void)state;
    const mmla_rope_desc desc = desc_of(0);
    float f[32], rows[3][64];
    assert_int_equal(mmla_rope_frequencies(&desc, f, NULL), MMLA_OK);
    assert_int_equal(mmla_rope_table_fill(&desc, 7, 3, rows[0], NULL), MMLA_OK);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 32; i++) {
            const float angle = (float)(7 + r) * f[i];
            assert_true(rows[r][i] == (float)cos((double)angle));
            assert_true(rows[r][32 + i] == (float)sin((double)angle));
        }
    }
}

/* The last position of the model's range, pairs 1 to 3: computed with NumPy from fp32 angles. The
 * exact angles would give 0.84333, -0.97880 and -0.33150 for the cosines. */
static void angles_near_2_to_the_20_are_rounded_to_fp32(void **state) {
    (void)state;
    const float cosines[] = {0x1.a8f8bap-1f, -0x1.f4bd80p-1f, -0x1.496a3cp-2f};
    const float sines[] = {0x1.1d8ec0p-1f, 0x1.ab24c6p-3f, -0x1.e4c8aep-1f};
    const mmla_rope_desc desc = desc_of(2);
    float row[64];
    assert_int_equal(mmla_rope_table_fill(&desc, (1 << 20) - 1, 1, row, NULL), MMLA_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(row[1 + i] == cosines[i]);
        assert_true(row[33 + i] == sines[i]);
    }
    assert_true(fabsf(row[1] - 0.84333f) > 0.01f);
}

static void a_table_filled_in_parts_equals_one_filled_whole(void **state) {
    (void)state;
    enum { N = 50, CUT = 17 };
    const mmla_rope_desc desc = desc_of(1);
    test_buffer whole = test_buffer_create(N * 64 * 4, 4),
                parts = test_buffer_create(N * 64 * 4, 4);
    assert_int_equal(mmla_rope_table_fill(&desc, 1000, N, whole.data, NULL), MMLA_OK);
    assert_int_equal(mmla_rope_table_fill(&desc, 1000, CUT, parts.data, NULL), MMLA_OK);
    assert_true(test_buffer_is_untouched(&parts, CUT * 64 * 4, parts.bytes));
    assert_int_equal(
        mmla_rope_table_fill(&desc, 1000 + CUT, N - CUT, (float *)parts.data + CUT * 64, NULL),
        MMLA_OK);
    assert_memory_equal(whole.data, parts.data, whole.bytes);
    assert_true(test_buffer_is_intact(&whole));
    assert_true(test_buffer_is_intact(&parts));
    test_buffer_destroy(&whole);
    test_buffer_destroy(&parts);
}

static void a_factor_of_one_changes_nothing(void **state) {
    (void)state;
    mmla_rope_desc desc = desc_of(0);
    float plain[32], yarn[32];
    assert_int_equal(mmla_rope_frequencies(&desc, plain, NULL), MMLA_OK);
    desc.yarn_factor = 1.0;
    desc.yarn_beta_fast = 32.0;
    desc.yarn_beta_slow = 1.0;
    desc.yarn_original_tokens = 65536.0;
    assert_int_equal(mmla_rope_frequencies(&desc, yarn, NULL), MMLA_OK);
    for (int i = 0; i < 32; i++) {
        assert_close(yarn[i], (double)plain[i]);
    }
    desc.yarn_beta_slow = 32.0; /* both ends of the ramp on one pair: still finite */
    desc.yarn_factor = 8.0;
    assert_int_equal(mmla_rope_frequencies(&desc, yarn, NULL), MMLA_OK);
    for (int i = 0; i < 32; i++) {
        assert_true(isfinite(yarn[i]) && yarn[i] > 0.0f);
    }
}

static void bad_settings_are_named(void **state) {
    (void)state;
    const struct {
        mmla_rope_desc desc;
        const char *argument;
    } cases[] = {
        {{.theta = 1.0}, "theta"},
        {{.theta = -5.0}, "theta"},
        {{.theta = NAN}, "theta"},
        {{.theta = INFINITY}, "theta"},
        {{10000.0, 0.5, 32.0, 1.0, 65536.0}, "yarn_factor"},
        {{10000.0, -1.0, 32.0, 1.0, 65536.0}, "yarn_factor"},
        {{10000.0, NAN, 32.0, 1.0, 65536.0}, "yarn_factor"},
        {{10000.0, 16.0, 0.0, 1.0, 65536.0}, "yarn_beta_fast"},
        {{10000.0, 16.0, 32.0, -1.0, 65536.0}, "yarn_beta_slow"},
        {{10000.0, 16.0, 32.0, 1.0, 0.0}, "yarn_original_tokens"},
        {{10000.0, 16.0, 32.0, 1.0, INFINITY}, "yarn_original_tokens"},
    };
    float f[64];
    mmla_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mmla_rope_frequencies(&cases[i].desc, f, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, cases[i].argument);
        assert_int_equal(mmla_rope_table_fill(&cases[i].desc, 0, 1, f, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, cases[i].argument);
    }
}

static void bad_ranges_and_pointers_are_named(void **state) {
    (void)state;
    mmla_rope_desc desc = desc_of(0);
    float row[64];
    mmla_error err;
    const int64_t outside[] = {-1, (int64_t)INT32_MAX + 1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mmla_rope_table_fill(&desc, outside[i], 1, row, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, "first");
        assert_int_equal(mmla_rope_table_fill(&desc, 0, outside[i], row, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, "n");
    }
    for (int32_t ratio = -1; ratio <= 3; ratio += 4) {
        assert_int_equal(mmla_rope_desc_for_ratio(ratio, &desc, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, "ratio");
    }
    assert_int_equal(mmla_rope_desc_for_ratio(0, NULL, &err), MMLA_E_NULL);
    assert_int_equal(mmla_rope_frequencies(NULL, row, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "desc");
    assert_int_equal(mmla_rope_frequencies(&desc, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "frequencies");
    assert_int_equal(mmla_rope_table_fill(&desc, 0, 1, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "table");
    assert_int_equal(mmla_rope_table_fill(&desc, 0, 0, NULL, NULL), MMLA_OK);
    assert_int_equal(mmla_rope_table_fill(&desc, INT32_MAX, 1, row, NULL), MMLA_OK);
    for (int i = 0; i < 32; i++) {
        assert_true(fabsf(row[i] * row[i] + row[32 + i] * row[32 + i] - 1.0f) < 1e-6f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_frequencies_have_the_known_values),
        cmocka_unit_test(plain_frequencies_are_powers_of_theta),
        cmocka_unit_test(position_zero_does_not_rotate),
        cmocka_unit_test(a_row_is_32_cosines_and_then_32_sines),
        cmocka_unit_test(angles_near_2_to_the_20_are_rounded_to_fp32),
        cmocka_unit_test(a_table_filled_in_parts_equals_one_filled_whole),
        cmocka_unit_test(a_factor_of_one_changes_nothing),
        cmocka_unit_test(bad_settings_are_named),
        cmocka_unit_test(bad_ranges_and_pointers_are_named),
    };
    return cmocka_run_group_tests_name("rope_table", tests, NULL, NULL);
}
