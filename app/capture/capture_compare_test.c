/* capture_compare_test.c - a comparison that cannot fail is worth nothing: damaged outputs are
 * seen, and permitted differences are not taken for damage. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "app/capture/capture_compare.h"
#include "app/capture/capture_key_size.h"
#include "app/check/check_num.h"

enum { T = 2, H = 8, N = T * H * 512 };

/* Two equal calls of attend in the fp8 form, and the bytes of the second. */
typedef struct pair {
    uint8_t codes[2][N];
    uint8_t scales[2][N / 32];
    float lse[2][T * H];
    capture_call calls[2];
    capture_difference d[CAPTURE_OUTPUTS_MAX];
} pair;

static void pair_make(pair *p) {
    memset(p, 0, sizeof *p);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) {
            p->codes[k][i] = (uint8_t)(0x30 + i % 40); /* 0.5 .. 14 */
        }
        memset(p->scales[k], 125, sizeof p->scales[k]);
        for (int i = 0; i < T * H; i++) {
            p->lse[k][i] = 1.5f;
        }
        p->calls[k].n_outputs = 3;
        p->calls[k].outputs[0] = (safetensors_tensor){
            "out", SAFETENSORS_F8_E4M3, 3, {T, H, 512}, sizeof p->codes[k], p->codes[k]};
        p->calls[k].outputs[1] = (safetensors_tensor){
            "out_scale", SAFETENSORS_U8, 3, {T, H, 16}, sizeof p->scales[k], p->scales[k]};
        p->calls[k].outputs[2] =
            (safetensors_tensor){"lse", SAFETENSORS_F32, 2, {T, H}, sizeof p->lse[k], p->lse[k]};
    }
}

static void compare(pair *p) {
    assert_int_equal(capture_compare(&p->calls[0], &p->calls[1], p->d), 3);
}

static void compare_equal_outputs_passes_without_a_difference(void **state) {
    (void)state;
    static pair p;
    pair_make(&p);
    compare(&p);
    for (int i = 0; i < 3; i++) {
        assert_true(p.d[i].is_passed);
        assert_int_equal(p.d[i].n_different, 0);
        assert_int_equal(p.d[i].first, -1);
    }
}

static void compare_one_code_apart_passes_two_apart_fails(void **state) {
    (void)state;
    static pair p;
    pair_make(&p);
    p.codes[0][1000]++;
    compare(&p);
    assert_true(p.d[0].is_passed);
    assert_int_equal(p.d[0].n_different, 1);
    assert_int_equal(p.d[0].first, 1000);
    p.codes[0][1000]++;
    compare(&p);
    assert_false(p.d[0].is_passed);
    assert_int_equal(p.d[0].near.worst_at, 1000);
}

static void compare_value_in_another_scale_is_the_same_value(void **state) {
    (void)state;
    static pair p;
    pair_make(&p);
    p.scales[0][3]++;
    for (int i = 3 * 32; i < 4 * 32; i++) {
        p.codes[0][i] -= 8; /* half of it */
    }
    compare(&p);
    assert_true(p.d[0].is_passed);
    assert_true(p.d[0].max_abs == 0.0);
    assert_int_equal(p.d[0].n_different, 32);
    assert_int_equal(p.d[1].n_different, 1);
    assert_true(p.d[1].is_passed); /* its effect is in out */
    p.codes[0][3 * 32] += 16;      /* twice */
    compare(&p);
    assert_false(p.d[0].is_passed);
}

static void compare_special_values_must_be_the_same(void **state) {
    (void)state;
    static pair p;
    pair_make(&p);
    p.lse[0][3] = INFINITY;
    compare(&p);
    assert_false(p.d[2].is_passed);
    p.lse[1][3] = INFINITY;
    compare(&p);
    assert_true(p.d[2].is_passed);
    p.codes[0][7] = 0x7f; /* NaN */
    compare(&p);
    assert_false(p.d[0].is_passed);
}

static void compare_lse_beyond_its_tolerance_fails(void **state) {
    (void)state;
    static pair p;
    pair_make(&p);
    p.lse[0][5] += 8e-5f;
    compare(&p);
    assert_true(p.d[2].is_passed);
    p.lse[0][5] += 8e-5f;
    compare(&p);
    assert_false(p.d[2].is_passed);
}

static void compare_bytes_without_tolerance_sees_every_bit(void **state) {
    (void)state;
    int64_t a[4] = {1, 2, 3, -1}, b[4] = {1, 2, 3, -1};
    capture_call got = {.n_outputs = 1}, want = {.n_outputs = 1};
    capture_difference d[CAPTURE_OUTPUTS_MAX];
    got.outputs[0] = (safetensors_tensor){"slots", SAFETENSORS_I64, 1, {4}, sizeof a, a};
    want.outputs[0] = (safetensors_tensor){"slots", SAFETENSORS_I64, 1, {4}, sizeof b, b};
    capture_compare(&got, &want, d);
    assert_true(d[0].is_passed);
    b[2] ^= INT64_C(1) << 40;
    capture_compare(&got, &want, d);
    assert_false(d[0].is_passed);
    assert_int_equal(d[0].first, 2);
}

/* Probabilities rounded to bf16 move an output by 2^-9 of the largest element of a key, where the
 * output itself may be near zero. */
static void compare_allows_for_probabilities_in_bf16(void **state) {
    (void)state;
    mmla_error err = {0};
    mmla_context *ctx;
    capture *c;
    capture_call *got, *want;
    capture_difference d[CAPTURE_OUTPUTS_MAX];
    const char path[] = MMLA_SOURCE_DIR "/examples/captures/attend_rows.safetensors";
    assert_int_equal(mmla_context_create(NULL, &ctx, &err), MMLA_OK);
    assert_int_equal(capture_load(path, &c, &err), MMLA_OK);
    assert_int_equal(capture_call_create(c, ctx, NULL, &got, &err), MMLA_OK);
    assert_int_equal(capture_call_create(c, ctx, NULL, &want, &err), MMLA_OK);
    assert_int_equal(capture_call_run(got, &err), MMLA_OK);
    assert_int_equal(capture_call_run(want, &err), MMLA_OK);
    const double allowed = 0x1p-9 * capture_key_largest(c);
    assert_true(allowed > 2 * 1.1e-3);
    assert_int_equal(got->outputs[0].dtype, SAFETENSORS_BF16);
    ((uint16_t *)want->memory[0])[5] = 0;
    ((uint16_t *)got->memory[0])[5] = check_bf16_of_f32((float)(0.9 * allowed));
    got->implementation = want->implementation = "portable";
    capture_compare(got, want, d);
    assert_false(d[0].is_passed);
    got->implementation = "some_bf16";
    capture_compare(got, want, d);
    assert_true(d[0].is_passed);
    ((uint16_t *)got->memory[0])[5] = check_bf16_of_f32((float)(2.0 * allowed));
    capture_compare(got, want, d);
    assert_false(d[0].is_passed);
    want->implementation = "some_bf16"; /* both of them rounded */
    capture_compare(got, want, d);
    assert_true(d[0].is_passed);
    capture_call_destroy(got);
    capture_call_destroy(want);
    capture_destroy(c);
    mmla_context_destroy(ctx);
}

static void key_largest_looks_only_at_keys_that_are_named(void **state) {
    (void)state;
    static const char *const names[] = {"captures/attend_rows", "captures/attend_paged_v4",
                                        "mixed_batch", "captures/window_list"};
    mmla_error err = {0};
    mmla_context *ctx;
    assert_int_equal(mmla_context_create(NULL, &ctx, &err), MMLA_OK);
    for (int i = 0; i < 4; i++) {
        char path[512];
        capture *c;
        snprintf(path, sizeof path, MMLA_SOURCE_DIR "/examples/%s.safetensors", names[i]);
        assert_int_equal(capture_load(path, &c, &err), MMLA_OK);
        const double largest = capture_key_largest(c);
        if (i < 3) {
            assert_true(largest > 1.0 && largest < 100.0);
        } else {
            assert_true(largest == 0.0);
        }
        capture_destroy(c);
    }
    mmla_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compare_equal_outputs_passes_without_a_difference),
        cmocka_unit_test(compare_one_code_apart_passes_two_apart_fails),
        cmocka_unit_test(compare_value_in_another_scale_is_the_same_value),
        cmocka_unit_test(compare_special_values_must_be_the_same),
        cmocka_unit_test(compare_lse_beyond_its_tolerance_fails),
        cmocka_unit_test(compare_allows_for_probabilities_in_bf16),
        cmocka_unit_test(key_largest_looks_only_at_keys_that_are_named),
        cmocka_unit_test(compare_bytes_without_tolerance_sees_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
