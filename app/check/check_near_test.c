/* The comparators are what every claim of `megamla check` rests on: here they see wrong results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "app/check/check_attend_tolerance.h"
#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_near.h"
#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum { N = 512 };

static const check_tolerance tolerance = {.abs = 1e-3, .rel = 1.0 / 8, .cosine = 1e-3};

static void fill(float *x) {
    check_rng rng = check_rng_at(1, 2, 3);
    for (int i = 0; i < N; i++) {
        x[i] = check_rng_normal(&rng);
    }
}

static double used(const float *got, const float *want) {
    check_near near = check_near_begin(tolerance);
    check_near_add(&near, got, want, N, 0);
    return check_near_used(&near);
}

static void equal_values_use_nothing(void **state) {
    (void)state;
    float a[N];
    fill(a);
    assert_true(used(a, a) <= 1e-9);
}

static void one_value_beyond_the_tolerance_is_found(void **state) {
    (void)state;
    float a[N], b[N];
    for (int i = 0; i < N; i += 37) {
        fill(a);
        memcpy(b, a, sizeof b);
        b[i] += 0.13f * fabsf(b[i]) + 0.0011f;
        check_near near = check_near_begin(tolerance);
        check_near_add(&near, b, a, N, 1000);
        assert_true(check_near_used(&near) > 1.0);
        assert_int_equal(near.worst_at, 1000 + i);
        assert_true(near.got == b[i] && near.want == a[i]);
    }
}

static void a_value_within_the_tolerance_passes(void **state) {
    (void)state;
    float a[N], b[N];
    fill(a);
    memcpy(b, a, sizeof b);
    b[7] *= 1.12f;
    assert_true(used(b, a) <= 1.0 && used(b, a) > 0.9);
}

static void specials_out_of_place_are_beyond_any_tolerance(void **state) {
    (void)state;
    const float pairs[][2] = {{NAN, 1.0f},      {1.0f, NAN},       {INFINITY, 1.0f},
                              {1.0f, INFINITY}, {INFINITY, NAN},   {INFINITY, -INFINITY},
                              {NAN, INFINITY},  {-INFINITY, 3e38f}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        float a[N], b[N];
        fill(a);
        memcpy(b, a, sizeof b);
        a[N - 1] = pairs[i][0];
        b[N - 1] = pairs[i][1];
        assert_true(isinf(used(a, b)));
    }
}

static void specials_in_their_place_pass(void **state) {
    (void)state;
    float a[N];
    fill(a);
    a[0] = NAN;
    a[1] = INFINITY;
    a[2] = -INFINITY;
    assert_true(used(a, a) <= 1e-9);
}

/* Every value is well within its own tolerance, and all of them are wrong. */
static void a_small_error_everywhere_is_found_by_the_cosine(void **state) {
    (void)state;
    float a[N], b[N];
    fill(a);
    for (int i = 0; i < N; i++) {
        b[i] = a[i] * (i % 2 == 0 ? 1.1f : 0.9f);
    }
    check_near near = check_near_begin(tolerance);
    check_near_add(&near, b, a, N, 0);
    assert_true(near.worst <= 1.0);
    assert_true(check_near_used(&near) > 1.0);
}

static void bytes_that_differ_are_found(void **state) {
    (void)state;
    uint8_t a[64] = {0}, b[64] = {0};
    assert_int_equal(check_bytes_compare(a, b, 64), -1);
    b[63] = 1;
    assert_int_equal(check_bytes_compare(a, b, 64), 63);
    assert_int_equal(check_bytes_compare(a, b, 63), -1);
    b[0] = 1;
    assert_int_equal(check_bytes_compare(a, b, 64), 0);
}

static void a_write_into_either_red_zone_is_found(void **state) {
    (void)state;
    check_buffer buffers[] = {check_buffer_create(100, 16, 0),
                              check_buffer_create_sparse((int64_t)3 << 30)};
    for (int i = 0; i < 2; i++) {
        check_buffer *b = &buffers[i];
        assert_int_equal((uintptr_t)b->data % 32, 16);
        memset(b->data, 0x11, 100);
        b->data[b->bytes - 1] = 0x11;
        assert_true(check_buffer_is_intact(b));
        b->data[-1] ^= 1;
        assert_false(check_buffer_is_intact(b));
        b->data[-1] ^= 1;
        b->data[b->bytes] ^= 1;
        assert_false(check_buffer_is_intact(b));
        check_buffer_destroy(b);
    }
}

static void sparse_memory_reads_as_nan(void **state) {
    (void)state;
    check_buffer b = check_buffer_create_sparse((int64_t)3 << 30);
    for (int64_t at = 0; at < b.bytes; at += 123456789) {
        assert_int_equal(b.data[at], 0xFF);
    }
    check_buffer_destroy(&b);
}

static void formats_read_back_as_they_should(void **state) {
    (void)state;
    assert_true(check_e4m3_to_f32(0x7E) == 448.0f && check_e4m3_to_f32(0x81) == -0x1p-9f);
    assert_true(check_e4m3_to_f32(0x38) == 1.0f && isnan(check_e4m3_to_f32(0xFF)));
    assert_true(check_ue8m0_to_f32(127) == 1.0f && check_ue8m0_to_f32(0) == 0x1p-127f);
    assert_true(isnan(check_ue8m0_to_f32(255)));
    /* A tie goes to the even code, a NaN stays one. */
    assert_int_equal(check_bf16_of_f32(1.0f + 0x1p-8f), 0x3F80);
    assert_int_equal(check_bf16_of_f32(1.0f + 0x1.8p-7f), 0x3F82);
    assert_true(isnan(check_bf16_to_f32(check_bf16_of_f32(NAN))));
}

/* By the end of the name, which every implementation of attention on a GPU must therefore have. */
static void implementations_with_bf16_probabilities_are_known_by_name(void **state) {
    (void)state;
    mmla_context *ctx;
    mmla_implementation impl;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    for (int32_t i = 0; mmla_implementation_get(ctx, i, &impl, NULL) == MMLA_OK; i++) {
        if (strcmp(impl.op, "attend") == 0 || strcmp(impl.op, "chain") == 0) {
            const bool rounds = check_attend_probability_error(impl.name, 2.0) == 0x1p-8;
            assert_true(rounds || impl.device == MMLA_DEVICE_CPU);
            assert_true(!rounds || strcmp(impl.name, "reference") != 0);
        }
    }
    mmla_context_destroy(ctx);
    assert_true(check_attend_probability_error("mma_bf16", 2.0) == 0x1p-8);
    assert_true(check_attend_probability_error("bf16_mma", 2.0) == 0.0);
}

static void every_value_is_drawn_once_in_a_round(void **state) {
    (void)state;
    for (int64_t round = 0; round < 5; round++) {
        unsigned seen = 0;
        for (int64_t i = 0; i < 7; i++) {
            seen |= 1u << check_draw(99, 3, 7 * round + i, 7);
        }
        assert_int_equal(seen, 0x7F);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values_use_nothing),
        cmocka_unit_test(one_value_beyond_the_tolerance_is_found),
        cmocka_unit_test(a_value_within_the_tolerance_passes),
        cmocka_unit_test(specials_out_of_place_are_beyond_any_tolerance),
        cmocka_unit_test(specials_in_their_place_pass),
        cmocka_unit_test(a_small_error_everywhere_is_found_by_the_cosine),
        cmocka_unit_test(bytes_that_differ_are_found),
        cmocka_unit_test(a_write_into_either_red_zone_is_found),
        cmocka_unit_test(sparse_memory_reads_as_nan),
        cmocka_unit_test(formats_read_back_as_they_should),
        cmocka_unit_test(implementations_with_bf16_probabilities_are_known_by_name),
        cmocka_unit_test(every_value_is_drawn_once_in_a_round),
    };
    return cmocka_run_group_tests_name("check_near", tests, NULL, NULL);
}
