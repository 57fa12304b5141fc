/* The vector conversions against the scalar ones, as the compiler makes them without any extension.
 * The tests of the operations run the same code with every extension the processor has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "num/vec_quant.h"
#include "support/guard.h"
#include "support/rng.h"

static uint64_t seed;

/* Calls check for every bf16 value and for random bit patterns, NaN among both. */
static void for_many_vectors(void (*check)(vf x)) {
    test_rng rng = {seed};
    float lane[VEC_LANES];
    for (uint32_t code = 0; code < 65536; code += VEC_LANES) {
        for (uint32_t i = 0; i < VEC_LANES; i++) {
            lane[i] = mmla_f32_of_bits((code + i) << 16);
        }
        check(vf_load(lane));
    }
    for (int n = 0; n < 50000; n++) {
        for (int i = 0; i < VEC_LANES; i++) {
            const uint32_t bits = (uint32_t)test_rng_next(&rng);
            /* half of them in the range where codes differ: exponents 100 .. 140 */
            lane[i] = mmla_f32_of_bits(
                n % 2 == 0 ? bits : (bits & 0x807FFFFFu) | (100u + (bits >> 8) % 41u) << 23);
        }
        check(vf_load(lane));
    }
}

static void check_e4m3(vf x) {
    const vu codes = vu_e4m3_from_f32(x);
    for (int i = 0; i < VEC_LANES; i++) {
        assert_int_equal(codes[i], mmla_e4m3_from_f32(x[i]));
    }
}

static void check_e2m1(vf x) {
    const vu codes = vu_e2m1_from_f32(x);
    for (int i = 0; i < VEC_LANES; i++) {
        if (!isnan(x[i])) {
            assert_int_equal(codes[i], mmla_e2m1_from_f32(x[i]));
        }
    }
}

static void check_bf16(vf x) {
    const vu codes = vu_bf16_from_f32(x);
    for (int i = 0; i < VEC_LANES; i++) {
        assert_int_equal(codes[i], mmla_bf16_from_f32(x[i]));
    }
}

static void check_comparisons(vf x) {
    const vf limit = vf_set1(1.0f);
    const vi less = vf_less(x, limit), nan = vf_is_nan(x);
    const vf max = vf_max(x, limit), min = vf_min(x, limit);
    for (int i = 0; i < VEC_LANES; i++) {
        assert_int_equal(less[i], x[i] < 1.0f ? -1 : 0);
        assert_int_equal(nan[i], isnan(x[i]) ? -1 : 0);
        assert_true(max[i] == (x[i] > 1.0f ? x[i] : 1.0f)); /* the second when x is NaN */
        assert_true(min[i] == (x[i] < 1.0f ? x[i] : 1.0f));
    }
}

static void vec_e4m3_codes_are_the_scalar_ones(void **state) {
    (void)state;
    for_many_vectors(check_e4m3);
}

static void vec_e2m1_codes_are_the_scalar_ones(void **state) {
    (void)state;
    for_many_vectors(check_e2m1);
}

static void vec_bf16_codes_are_the_scalar_ones(void **state) {
    (void)state;
    for_many_vectors(check_bf16);
}

static void vec_comparisons_know_nan(void **state) {
    (void)state;
    for_many_vectors(check_comparisons);
}

static void vec_max_of_lanes_finds_every_place(void **state) {
    (void)state;
    for (int at = 0; at < VEC_LANES; at++) {
        float lane[VEC_LANES] = {0};
        lane[at] = 3.0f;
        assert_true(vec_max_lanes(vf_load(lane)) == 3.0f);
    }
}

static void vec_stores_keep_order_and_bounds(void **state) {
    (void)state;
    test_buffer bytes = test_buffer_create(VEC_LANES, 1),
                halves = test_buffer_create(2 * VEC_LANES, 2);
    uint32_t lane[VEC_LANES];
    for (uint32_t first = 0; first < 65536; first += 251) {
        vu v;
        for (uint32_t i = 0; i < VEC_LANES; i++) {
            lane[i] = (first + i * 8111) % 65536;
        }
        memcpy(&v, lane, sizeof v);
        vec_store_halves(halves.data, v);
        vec_store_bytes(bytes.data, v & vu_set1(255));
        for (int i = 0; i < VEC_LANES; i++) {
            assert_int_equal(((uint16_t *)halves.data)[i], lane[i]);
            assert_int_equal(((uint8_t *)bytes.data)[i], lane[i] & 255);
        }
    }
    assert_true(test_buffer_is_intact(&bytes));
    assert_true(test_buffer_is_intact(&halves));
    test_buffer_destroy(&bytes);
    test_buffer_destroy(&halves);
}

static void vec_nibbles_are_stored_low_first(void **state) {
    (void)state;
    test_buffer bytes = test_buffer_create(VEC_LANES / 2, 1);
    for (uint32_t first = 0; first < 16; first++) {
        uint32_t lane[VEC_LANES];
        vu v;
        for (uint32_t i = 0; i < VEC_LANES; i++) {
            lane[i] = (first + 7 * i) % 16;
        }
        memcpy(&v, lane, sizeof v);
        vec_store_nibbles(bytes.data, v);
        for (int i = 0; i < VEC_LANES / 2; i++) {
            assert_int_equal(((uint8_t *)bytes.data)[i], lane[2 * i] | lane[2 * i + 1] << 4);
        }
    }
    assert_true(test_buffer_is_intact(&bytes));
    test_buffer_destroy(&bytes);
}

static void vec_decoders_give_every_code_its_value(void **state) {
    (void)state;
    for (int first = 0; first < 256; first += 16) {
        uint8_t codes[16];
        float x[16];
        for (int i = 0; i < 16; i++) {
            codes[i] = (uint8_t)(first + i);
        }
        vec_decode_e4m3_x16(codes, 256.0f, x);
        for (int i = 0; i < 16; i++) {
            const float want = mmla_e4m3_to_f32(codes[i]);
            assert_true(isnan(want) ? isnan(x[i])
                                    : mmla_bits_of_f32(x[i]) == mmla_bits_of_f32(want));
        }
        vec_decode_e2m1_x16(codes, 0.5f, x);
        for (int i = 0; i < 16; i++) {
            const uint8_t nibble = (uint8_t)(codes[i / 2] >> (i % 2 * 4));
            assert_true(mmla_bits_of_f32(x[i]) ==
                        mmla_bits_of_f32(mmla_e2m1_to_f32(nibble) * 0.5f));
        }
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vec_e4m3_codes_are_the_scalar_ones),
        cmocka_unit_test(vec_e2m1_codes_are_the_scalar_ones),
        cmocka_unit_test(vec_bf16_codes_are_the_scalar_ones),
        cmocka_unit_test(vec_comparisons_know_nan),
        cmocka_unit_test(vec_max_of_lanes_finds_every_place),
        cmocka_unit_test(vec_stores_keep_order_and_bounds),
        cmocka_unit_test(vec_nibbles_are_stored_low_first),
        cmocka_unit_test(vec_decoders_give_every_code_its_value),
    };
    return cmocka_run_group_tests_name("vec_quant", tests, NULL, NULL);
}
