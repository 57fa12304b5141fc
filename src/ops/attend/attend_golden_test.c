/* attend_golden_test.c - results that can be worked out by hand, for every implementation: one key
 * or none, equal keys, sinks, ties of the output scale. Positions are 0 and q is 0 unless said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/attend_fixture.h"

static uint64_t seed;

/* One token, q = 0, position 0, no sink, bf16 rows all equal to `value`, a list of n_keys times row
 * 0. */
static attend_fixture plain(int32_t n_keys, float value) {
    attend_fixture f = attend_fixture_rows(1);
    f.desc.n_heads = 16;
    attend_fixture_fill(&f, seed);
    memset(f.q.data, 0, f.q.bytes);
    memset(f.positions.data, 0, f.positions.bytes);
    for (size_t i = 0; i < f.kv.bytes / 2; i++) {
        ((uint16_t *)f.kv.data)[i] = mmla_bf16_from_f32(value);
    }
    for (int32_t k = 0; k < f.desc.list_width; k++) {
        ((int32_t *)f.list.data)[k] = k < n_keys ? 0 : -1;
    }
    f.args.sink = NULL;
    return f;
}

static void set_sink(attend_fixture *f, float value) {
    for (int32_t h = 0; h < f->desc.n_heads; h++) {
        ((float *)f->sink.data)[h] = value;
    }
    f->args.sink = f->sink.data;
}

/* Every head: all codes and all scale bytes as given, lse and max_logits too. */
static void expect(const attend_fixture *f, uint8_t code, uint8_t byte, float lse, float max) {
    for (int32_t h = 0; h < f->desc.n_heads; h++) {
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
            assert_int_equal(attend_fixture_code(f, 0, h, x), code);
            assert_int_equal(attend_fixture_scale_byte(f, 0, h, x / 32), byte);
        }
        assert_true(((const float *)f->lse.data)[h] == lse);
        assert_true(((const float *)f->max_logits.data)[h] == max);
    }
}

#define FOR_EACH_IMPLEMENTATION(f) \
    for (const char *name; (name = attend_fixture_implementation((f), i_)) != NULL; i_++)

static void check_all(attend_fixture *f, uint8_t code, uint8_t byte, float lse, float max) {
    int32_t i_ = 0;
    FOR_EACH_IMPLEMENTATION(f) {
        assert_int_equal(attend_fixture_run(f, name), MMLA_OK);
        expect(f, code, byte, lse, max);
    }
    assert_true(i_ >= 2);
    attend_fixture_destroy(f);
}

static void one_key_sink_zero_halves_it(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    set_sink(&f, 0.0f);
    check_all(&f, 0x78, 118, 0.0f, 0.0f);
}

static void one_key_without_sink_is_the_key(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    check_all(&f, 0x78, 119, 0.0f, 0.0f);
}

static void sink_minus_infinity_equals_none(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    set_sink(&f, -INFINITY);
    check_all(&f, 0x78, 119, 0.0f, 0.0f);
}

static void sink_plus_infinity_gives_zero_and_keeps_lse(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    set_sink(&f, INFINITY);
    check_all(&f, 0x00, 105, 0.0f, 0.0f);
}

static void equal_keys_give_log_n_and_the_key(void **state) {
    (void)state;
    attend_fixture f = plain(4, 1.0f);
    check_all(&f, 0x78, 119, logf(4.0f), 0.0f);
}

static void no_valid_key_gives_zero_whatever_the_sink(void **state) {
    (void)state;
    const float sinks[] = {0.0f, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        attend_fixture f = plain(0, NAN);
        set_sink(&f, sinks[i]);
        *(int32_t *)f.positions.data = 2 + i; /* a negative cosine must not make zeros negative */
        check_all(&f, 0x00, 105, INFINITY, -INFINITY);
    }
}

static void length_zero_gives_zero(void **state) {
    (void)state;
    attend_fixture f = plain(4, 1.0f);
    memset(f.lens.data, 0, f.lens.bytes);
    check_all(&f, 0x00, 105, INFINITY, -INFINITY);
}

static void chunk_maximum_448_times_a_power_keeps_its_exponent(void **state) {
    (void)state;
    attend_fixture f = plain(1, 448.0f * 0x1p-3f);
    check_all(&f, 0x7E, 127 - 3, 0.0f, 0.0f);
}

static void chunk_maximum_one_step_beyond_448_takes_the_next_exponent(void **state) {
    (void)state;
    attend_fixture f = plain(1, 450.0f); /* the next bf16 */
    check_all(&f, 0x76, 128, 0.0f, 0.0f);
}

static void all_zero_rows_store_the_floor_scale(void **state) {
    (void)state;
    attend_fixture f = plain(3, 0.0f);
    check_all(&f, 0x00, 105, logf(3.0f), 0.0f);
}

static void nan_in_a_used_row_reaches_every_result_of_its_token(void **state) {
    (void)state;
    attend_fixture f = plain(4, 1.0f);
    ((uint16_t *)f.kv.data)[77] = MMLA_BF16_NAN;
    int32_t i_ = 0;
    FOR_EACH_IMPLEMENTATION(&f) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        for (int32_t h = 0; h < f.desc.n_heads; h++) {
            for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
                assert_int_equal(attend_fixture_code(&f, 0, h, x), 0x7F);
            }
            assert_true(isnan(((const float *)f.lse.data)[h]));
            assert_true(isnan(((const float *)f.max_logits.data)[h]));
        }
    }
    attend_fixture_destroy(&f);
}

static void keys_with_scores_of_minus_infinity_are_not_no_key(void **state) {
    (void)state;
    attend_fixture f = plain(1, -INFINITY);
    for (size_t i = 0; i < f.q.bytes / 2; i++) {
        ((uint16_t *)f.q.data)[i] = mmla_bf16_from_f32(1.0f);
    }
    int32_t i_ = 0;
    FOR_EACH_IMPLEMENTATION(&f) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        assert_true(isnan(((const float *)f.lse.data)[0]));
        assert_true(isnan(((const float *)f.max_logits.data)[0]));
        assert_int_equal(attend_fixture_code(&f, 0, 0, 0), 0x7F);
    }
    attend_fixture_destroy(&f);
}

static void position_outside_the_table_is_reported_and_gives_nan(void **state) {
    (void)state;
    const int32_t positions[] = {-1, 64, INT32_MIN, INT32_MAX};
    for (int p = 0; p < 4; p++) {
        attend_fixture f = plain(1, 1.0f);
        int32_t n_faults = 41;
        f.args.n_faults = &n_faults;
        *(int32_t *)f.positions.data = positions[p];
        int32_t i_ = 0;
        FOR_EACH_IMPLEMENTATION(&f) {
            assert_int_equal(attend_fixture_run(&f, name), MMLA_E_INDEX);
            assert_string_equal(f.error.argument, "positions");
            assert_int_equal(attend_fixture_code(&f, 0, 3, 100), 0x7F);
            assert_true(isnan(((const float *)f.lse.data)[3]));
        }
        assert_int_equal(n_faults, 41 + i_);
        attend_fixture_destroy(&f);
    }
}

/* The rotation and its inverse: one key whose rope dims are 1, at position 1, comes back rotated by
 * minus the angle of position 1. */
static void output_is_rotated_back_by_the_query_position(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_rows(1);
    f.desc.n_heads = 16;
    f.desc.out_form = MMLA_OUT_BF16;
    attend_fixture_fill(&f, seed);
    f.args.sink = NULL;
    *(int32_t *)f.positions.data = 1;
    for (size_t i = 0; i < f.kv.bytes / 2; i++) {
        ((uint16_t *)f.kv.data)[i] = mmla_bf16_from_f32(1.0f);
    }
    int32_t i_ = 0;
    FOR_EACH_IMPLEMENTATION(&f) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        /* Pair 0 turns by one radian: cos 1 + sin 1, and cos 1 - sin 1. */
        assert_true(fabs(attend_fixture_out(&f, 0, 5, 448) - 1.3817732907) < 0.004);
        assert_true(fabs(attend_fixture_out(&f, 0, 5, 449) + 0.3011686789) < 0.001);
        assert_true(attend_fixture_out(&f, 0, 5, 447) == 1.0);
    }
    attend_fixture_destroy(&f);
}

/* V4: r = rsqrt(mean(q^2) + eps) scales the logits. q = 3 everywhere gives r = 1/3, so the logit is
 * scale * 512 / 3 * 3 for a row of ones. */
static void q_norm_scales_the_logits(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    f.desc.q_norm = 1;
    f.desc.q_norm_eps = 1e-20f;
    for (size_t i = 0; i < f.q.bytes / 2; i++) {
        ((uint16_t *)f.q.data)[i] = mmla_bf16_from_f32(3.0f);
    }
    int32_t i_ = 0;
    FOR_EACH_IMPLEMENTATION(&f) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        const double want = 512.0 * (double)f.desc.scale;
        assert_true(fabs((double)((const float *)f.max_logits.data)[9] - want) < 1e-5 * want);
    }
    attend_fixture_destroy(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_sink_zero_halves_it),
        cmocka_unit_test(one_key_without_sink_is_the_key),
        cmocka_unit_test(sink_minus_infinity_equals_none),
        cmocka_unit_test(sink_plus_infinity_gives_zero_and_keeps_lse),
        cmocka_unit_test(equal_keys_give_log_n_and_the_key),
        cmocka_unit_test(no_valid_key_gives_zero_whatever_the_sink),
        cmocka_unit_test(length_zero_gives_zero),
        cmocka_unit_test(chunk_maximum_448_times_a_power_keeps_its_exponent),
        cmocka_unit_test(chunk_maximum_one_step_beyond_448_takes_the_next_exponent),
        cmocka_unit_test(all_zero_rows_store_the_floor_scale),
        cmocka_unit_test(nan_in_a_used_row_reaches_every_result_of_its_token),
        cmocka_unit_test(keys_with_scores_of_minus_infinity_are_not_no_key),
        cmocka_unit_test(position_outside_the_table_is_reported_and_gives_nan),
        cmocka_unit_test(output_is_rotated_back_by_the_query_position),
        cmocka_unit_test(q_norm_scales_the_logits),
    };
    seed = test_seed(argc, argv);
    return cmocka_run_group_tests_name("attend_golden", tests, NULL, NULL);
}
