/* Records of all formats, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv/layout.h"
#include "kv/record.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "support/guard.h"
#include "support/rng.h"

enum { DATA_MAX = 576, SCALE_MAX = 32, BY_AMAX = 0, BY_SCALE = 1 };

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4,
                                         MMLA_KV_INDEX_FP8, MMLA_KV_INDEX_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static uint64_t seed;

/* Sixteen values up to 5.90625: see docs/format.md. */
static const uint8_t golden_e4m3[16] = {0x5C, 0xE4, 0x69, 0xEC, 0x6F, 0xF1, 0x72, 0xF4,
                                        0x75, 0xF7, 0x78, 0xF9, 0x7A, 0xFA, 0x7B, 0xFC};
static const uint8_t golden_e2m1[8] = {0x91, 0xB2, 0xC4, 0xD5, 0xE5, 0xE6, 0xF6, 0xF7};

static void fill_sixteen(float *x) {
    for (int i = 0; i < 16; i++) {
        x[i] = mmla_bf16_round((i % 2 == 0 ? 0.37f : -0.37f) * (float)(i + 1));
    }
}

/* One record's rows between guards, so that a byte too many is seen. */
typedef struct record {
    test_buffer data, scale;
    mmla_kv_format format;
} record;

static record record_create(mmla_kv_format format) {
    const mmla_kv_geometry *g = mmla_kv_geometry_get(format);
    return (record){test_buffer_create((size_t)g->data_bytes, 4),
                    test_buffer_create((size_t)g->scale_bytes, 4), format};
}

static void record_destroy(record *r) {
    assert_true(test_buffer_is_intact(&r->data));
    assert_true(test_buffer_is_intact(&r->scale));
    test_buffer_destroy(&r->data);
    test_buffer_destroy(&r->scale);
}

static void encode(const record *r, const float *x, int floor_scale) {
    mmla_kv_record_encode(r->format, x, floor_scale, r->data.data, r->scale.data);
}

static void decode(const record *r, float *x) {
    mmla_kv_record_decode(r->format, r->data.data, r->scale.data, x);
}

static void assert_bytes(const void *p, int from, int to, int value) {
    const uint8_t *bytes = p;
    for (int i = from; i < to; i++) {
        assert_int_equal(bytes[i], value);
    }
}

static void record_v4_has_its_golden_bytes(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_V4);
    float x[512] = {0};
    fill_sixteen(x + 64);
    x[448] = 1.0f;          /* 3F80 */
    x[449] = -0x1.02p-133f; /* a subnormal, rounds to 8001 */
    x[511] = mmla_bf16_to_f32(0xC2F7);
    encode(&r, x, BY_AMAX);
    const uint8_t *data = r.data.data, *scale = r.scale.data;
    assert_bytes(data, 0, 64, 0);
    assert_memory_equal(data + 64, golden_e4m3, 16);
    assert_bytes(data, 80, 448, 0);
    static const uint8_t rope[4] = {0x80, 0x3F, 0x01, 0x80};
    assert_memory_equal(data + 448, rope, 4);
    assert_bytes(data, 452, 574, 0);
    assert_int_equal(data[574], 0xF7);
    assert_int_equal(data[575], 0xC2);
    static const uint8_t scales[8] = {105, 121, 105, 105, 105, 105, 105, 0};
    assert_memory_equal(scale, scales, 8);
    record_destroy(&r);
}

static void record_v41_fp8_has_its_golden_bytes(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_V41_FP8);
    float x[512] = {0};
    fill_sixteen(x);
    fill_sixteen(x + 496);
    encode(&r, x, BY_AMAX);
    const uint8_t *data = r.data.data, *scale = r.scale.data;
    assert_memory_equal(data, golden_e4m3, 16);
    assert_bytes(data, 16, 496, 0);
    assert_memory_equal(data + 496, golden_e4m3, 16);
    assert_int_equal(scale[0], 121);
    assert_bytes(scale, 1, 15, 105);
    assert_int_equal(scale[15], 121);
    encode(&r, x, BY_SCALE);
    assert_int_equal(scale[0], 121);
    assert_bytes(scale, 1, 15, 114);
    record_destroy(&r);
}

static void record_v41_fp4_has_its_golden_bytes(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_V41_FP4);
    float x[512] = {0};
    fill_sixteen(x + 16);
    fill_sixteen(x + 496);
    encode(&r, x, BY_AMAX);
    const uint8_t *data = r.data.data, *scale = r.scale.data;
    assert_bytes(data, 0, 8, 0);
    assert_memory_equal(data + 8, golden_e2m1, 8);
    assert_bytes(data, 16, 248, 0);
    assert_memory_equal(data + 248, golden_e2m1, 8);
    assert_int_equal(scale[0], 0x01);
    assert_int_equal(scale[1], 0x38);
    assert_bytes(scale, 2, 31, 0x01);
    assert_int_equal(scale[31], 0x38);
    record_destroy(&r);
}

static void record_index_fp8_has_its_golden_bytes(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_INDEX_FP8);
    float x[128] = {0};
    fill_sixteen(x + 112);
    encode(&r, x, BY_AMAX);
    const uint8_t *data = r.data.data;
    assert_bytes(data, 0, 112, 0);
    assert_memory_equal(data + 112, golden_e4m3, 16);
    static const uint8_t scale[4] = {0x00, 0x00, 0x80, 0x3C}; /* 2^-6, little-endian */
    assert_memory_equal(r.scale.data, scale, 4);
    memset(x, 0, sizeof x);
    encode(&r, x, BY_AMAX);
    static const uint8_t smallest[4] = {0x00, 0x00, 0x80, 0x34}; /* 2^-22 */
    assert_memory_equal(r.scale.data, smallest, 4);
    record_destroy(&r);
}

static void record_index_fp4_has_its_golden_bytes(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_INDEX_FP4);
    float x[128] = {0};
    fill_sixteen(x + 32);
    x[64] = 6.0f;     /* a maximum of 6 * 2^k needs scale 2^k */
    x[96] = 6.03125f; /* one bf16 step more needs the next */
    encode(&r, x, BY_AMAX);
    const uint8_t *data = r.data.data;
    assert_bytes(data, 0, 16, 0);
    assert_memory_equal(data + 16, golden_e2m1, 8);
    assert_bytes(data, 24, 32, 0);
    assert_int_equal(data[32], 0x07);
    assert_int_equal(data[48], 0x05); /* 6.03125 / 2 rounds to 3 */
    static const uint8_t scale[4] = {1, 127, 127, 128};
    assert_memory_equal(r.scale.data, scale, 4);
    record_destroy(&r);
}

/* Value of element i straight from the bytes, in double. */
static double element(const record *r, int i) {
    const uint8_t *data = r->data.data, *scale = r->scale.data;
    const uint8_t nibble = (uint8_t)(data[i / 2] >> (i % 2 * 4) & 15);
    switch (r->format) {
    case MMLA_KV_V4:
        if (i >= 448) {
            return (double)mmla_bf16_to_f32(
                (uint16_t)(data[448 + 2 * (i - 448)] | data[449 + 2 * (i - 448)] << 8));
        }
        return (double)mmla_e4m3_to_f32(data[i]) * (double)mmla_ue8m0_to_f32(scale[i / 64]);
    case MMLA_KV_V41_FP8:
        return (double)mmla_e4m3_to_f32(data[i]) * (double)mmla_ue8m0_to_f32(scale[i / 32]);
    case MMLA_KV_V41_FP4:
        return (double)mmla_e2m1_to_f32(nibble) * (double)mmla_e4m3_to_f32(scale[i / 16]);
    case MMLA_KV_INDEX_FP8: {
        float s;
        memcpy(&s, scale, sizeof s);
        return (double)mmla_e4m3_to_f32(data[i]) * (double)s;
    }
    default:
        return (double)mmla_e2m1_to_f32(nibble) * (double)mmla_ue8m0_to_f32(scale[i / 32]);
    }
}

static void record_any_bytes_decode_to_code_times_scale_as_bf16(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int f = 0; f < N_FORMATS; f++) {
        record r = record_create(formats[f]);
        uint8_t *data = r.data.data, *scale = r.scale.data;
        for (int round = 0; round < 300; round++) {
            for (size_t i = 0; i < r.data.bytes; i++) {
                data[i] = (uint8_t)test_rng_next(&rng);
            }
            for (size_t i = 0; i < r.scale.bytes; i++) {
                scale[i] = (uint8_t)test_rng_next(&rng);
            }
            float x[512];
            decode(&r, x);
            for (int i = 0; i < mmla_kv_dims(formats[f]); i++) {
                const double want = element(&r, i);
                if (isnan(want)) {
                    assert_true(isnan(x[i]));
                } else { /* the product fits fp32 exactly, or overflows it */
                    assert_int_equal(mmla_bits_of_f32(x[i]),
                                     mmla_bits_of_f32(mmla_bf16_round((float)want)));
                }
            }
        }
        record_destroy(&r);
    }
}

static void record_extreme_scale_bytes_decode_as_they_stand(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_V41_FP8);
    float x[512];
    memset(r.data.data, 0x38, r.data.bytes); /* 1.0 */
    memset(r.scale.data, 0, r.scale.bytes);
    ((uint8_t *)r.data.data)[1] = 0x01; /* 2^-9 */
    ((uint8_t *)r.scale.data)[1] = MMLA_UE8M0_NAN;
    ((uint8_t *)r.scale.data)[2] = 254;
    ((uint8_t *)r.data.data)[64] = 0x40; /* 2.0 */
    decode(&r, x);
    assert_true(x[0] == 0x1p-127f); /* byte 0 is 2^-127, not 0 */
    assert_true(x[1] == 0.0f);      /* 2^-136 is below the smallest bf16 subnormal, 2^-133 */
    assert_true(isnan(x[32]) && isnan(x[63]));
    assert_true(isinf(x[64]));
    assert_true(x[65] == 0x1p127f);
    record_destroy(&r);
}

static void record_v4_rope_part_is_copied_as_it_is(void **state) {
    (void)state;
    record r = record_create(MMLA_KV_V4);
    memset(r.data.data, 0, r.data.bytes);
    memset(r.scale.data, 127, r.scale.bytes);
    float x[512];
    for (uint32_t code = 0; code < 65536; code += 64) {
        for (uint32_t i = 0; i < 64; i++) {
            const uint16_t half = (uint16_t)(code + i);
            memcpy((uint8_t *)r.data.data + 448 + 2 * i, &half, sizeof half);
        }
        decode(&r, x);
        for (uint32_t i = 0; i < 64; i++) {
            assert_int_equal(mmla_bits_of_f32(x[448 + i]), (code + i) << 16);
        }
    }
    record_destroy(&r);
}

static void fill_random(test_rng *rng, float *x, int n) {
    for (int i = 0; i < n; i++) {
        x[i] = mmla_bf16_round(ldexpf(test_rng_normal(rng), (int)test_rng_below(rng, 12) - 6));
    }
}

static void record_fp8_encoding_a_decoded_row_changes_no_value(void **state) {
    (void)state;
    test_rng rng = {seed};
    static const mmla_kv_format fp8[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_INDEX_FP8};
    for (size_t f = 0; f < sizeof fp8 / sizeof fp8[0]; f++) {
        const int dims = mmla_kv_dims(fp8[f]);
        record r = record_create(fp8[f]);
        for (int round = 0; round < 100; round++) {
            float x[512], once[512], twice[512];
            fill_random(&rng, x, dims);
            encode(&r, x, round % 2);
            decode(&r, once);
            encode(&r, once, round % 2);
            decode(&r, twice);
            assert_memory_equal(once, twice, (size_t)dims * sizeof once[0]);
        }
        record_destroy(&r);
    }
}

static void record_error_is_within_half_a_code_step(void **state) {
    (void)state;
    test_rng rng = {seed};
    /* e4m3: half a step is 2^-4 of the value, or half of 2^-9 scales below the normals. e2m1: half
     * of the largest gap (4 .. 6) is one scale, and the scale is at most amax / 5 or so. */
    for (int f = 0; f < N_FORMATS; f++) {
        const int dims = mmla_kv_dims(formats[f]);
        const int is_fp4 = formats[f] == MMLA_KV_V41_FP4 || formats[f] == MMLA_KV_INDEX_FP4;
        record r = record_create(formats[f]);
        for (int round = 0; round < 100; round++) {
            float x[512], y[512];
            fill_random(&rng, x, dims);
            encode(&r, x, BY_AMAX);
            decode(&r, y);
            float amax = 0.0f;
            for (int i = 0; i < dims; i++) {
                amax = fmaxf(amax, fabsf(x[i]));
            }
            for (int i = 0; i < dims; i++) {
                const float off = fabsf(y[i] - x[i]);
                assert_true(off <=
                            (is_fp4 ? amax / 3.0f : fmaxf(fabsf(x[i]) * 0x1p-4f, amax * 0x1p-17f)));
            }
        }
        record_destroy(&r);
    }
}

static void record_nan_reaches_its_own_group_only(void **state) {
    (void)state;
    static const int group[] = {1, 1, 16, 1, 32}; /* how many values one NaN may turn to NaN */
    for (int f = 0; f < N_FORMATS; f++) {
        const int dims = mmla_kv_dims(formats[f]);
        record r = record_create(formats[f]);
        for (int at = 0; at < dims; at += 7) {
            float x[512] = {0}, y[512];
            for (int i = 0; i < dims; i++) {
                x[i] = (float)(i % 5);
            }
            x[at] = -NAN;
            encode(&r, x, BY_AMAX);
            decode(&r, y);
            for (int i = 0; i < dims; i++) {
                assert_int_equal(isnan(y[i]) != 0, i / group[f] == at / group[f]);
            }
        }
        record_destroy(&r);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_v4_has_its_golden_bytes),
        cmocka_unit_test(record_v41_fp8_has_its_golden_bytes),
        cmocka_unit_test(record_v41_fp4_has_its_golden_bytes),
        cmocka_unit_test(record_index_fp8_has_its_golden_bytes),
        cmocka_unit_test(record_index_fp4_has_its_golden_bytes),
        cmocka_unit_test(record_any_bytes_decode_to_code_times_scale_as_bf16),
        cmocka_unit_test(record_extreme_scale_bytes_decode_as_they_stand),
        cmocka_unit_test(record_v4_rope_part_is_copied_as_it_is),
        cmocka_unit_test(record_fp8_encoding_a_decoded_row_changes_no_value),
        cmocka_unit_test(record_error_is_within_half_a_code_step),
        cmocka_unit_test(record_nan_reaches_its_own_group_only),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
