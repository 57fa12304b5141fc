#include "kv/record.h"

#include <assert.h>
#include <string.h>

#include "kv/layout.h"
#include "num/bf16.h"
#include "num/quant.h"

/* n values as groups of e4m3 under a ue8m0 byte each. */
static void
encode_e4m3(const float *x, int n, int group, int floor_scale, uint8_t *data, uint8_t *scale) {
    for (int i = 0; i < n; i += group) {
        scale[i / group] = mmla_quant_e4m3_group(x + i, group, floor_scale, data + i);
    }
}

static void decode_e4m3(const uint8_t *data, const uint8_t *scale, int n, int group, float *x) {
    for (int i = 0; i < n; i++) {
        x[i] = mmla_bf16_round(mmla_e4m3_to_f32(data[i]) * mmla_ue8m0_to_f32(scale[i / group]));
    }
}

static float e2m1_at(const uint8_t *data, int i) {
    return mmla_e2m1_to_f32((uint8_t)(data[i / 2] >> (4 * (i % 2))));
}

static void encode_v4(const float *x, int floor_scale, uint8_t *data, uint8_t *scale) {
    encode_e4m3(x, MMLA_KV_V4_FP8_DIMS, MMLA_KV_V4_GROUP, floor_scale, data, scale);
    scale[MMLA_KV_V4_SCALES] = 0;
    for (int i = 0; i < MMLA_ROPE_DIM; i++) {
        const uint16_t code = mmla_bf16_from_f32(x[MMLA_KV_V4_FP8_DIMS + i]);
        memcpy(data + MMLA_KV_V4_FP8_DIMS + 2 * i, &code, sizeof code);
    }
}

static void decode_v4(const uint8_t *data, const uint8_t *scale, float *x) {
    decode_e4m3(data, scale, MMLA_KV_V4_FP8_DIMS, MMLA_KV_V4_GROUP, x);
    for (int i = 0; i < MMLA_ROPE_DIM; i++) {
        uint16_t code;
        memcpy(&code, data + MMLA_KV_V4_FP8_DIMS + 2 * i, sizeof code);
        x[MMLA_KV_V4_FP8_DIMS + i] = mmla_bf16_to_f32(code);
    }
}

/* One fp32 power of two for the whole key. */
static void encode_index_fp8(const float *x, uint8_t *data, uint8_t *scale) {
    const uint8_t byte = mmla_quant_e4m3_group(x, MMLA_INDEX_DIM, 0, data);
    const float s = mmla_ue8m0_to_f32(byte);
    memcpy(scale, &s, sizeof s);
}

static void decode_index_fp8(const uint8_t *data, const uint8_t *scale, float *x) {
    float s;
    memcpy(&s, scale, sizeof s);
    for (int i = 0; i < MMLA_INDEX_DIM; i++) {
        x[i] = mmla_bf16_round(mmla_e4m3_to_f32(data[i]) * s);
    }
}

/* e2m1 under ue8m0 per 32. A NaN makes the scale NaN and its own code 0. */
static void encode_index_fp4(const float *x, uint8_t *data, uint8_t *scale) {
    for (int g = 0; g < MMLA_KV_INDEX_FP4_SCALE_BYTES; g++) {
        const float *group = x + g * MMLA_KV_INDEX_FP4_GROUP;
        uint8_t byte = mmla_quant_e2m1_ue8m0_byte(mmla_quant_amax(group, MMLA_KV_INDEX_FP4_GROUP));
        const float inverse = mmla_ue8m0_inverse(byte);
        for (int i = 0; i < MMLA_KV_INDEX_FP4_GROUP; i += 2) {
            const uint8_t low = mmla_e2m1_from_f32(group[i] * inverse);
            const uint8_t high = mmla_e2m1_from_f32(group[i + 1] * inverse);
            data[(g * MMLA_KV_INDEX_FP4_GROUP + i) / 2] = (uint8_t)(low | (high << 4));
            if (isnan(group[i]) || isnan(group[i + 1])) {
                byte = MMLA_UE8M0_NAN;
            }
        }
        scale[g] = byte;
    }
}

void mmla_kv_record_encode(
    mmla_kv_format format, const float *x, int floor_scale, uint8_t *data, uint8_t *scale) {
    switch (format) {
    case MMLA_KV_V4:
        encode_v4(x, floor_scale, data, scale);
        return;
    case MMLA_KV_V41_FP8:
        encode_e4m3(x, MMLA_LATENT_DIM, MMLA_KV_FP8_GROUP, floor_scale, data, scale);
        return;
    case MMLA_KV_V41_FP4:
        for (int i = 0; i < MMLA_LATENT_DIM; i += MMLA_KV_FP4_GROUP) {
            scale[i / MMLA_KV_FP4_GROUP] = mmla_quant_e2m1_group(x + i, data + i / 2);
        }
        return;
    case MMLA_KV_INDEX_FP8:
        encode_index_fp8(x, data, scale);
        return;
    case MMLA_KV_INDEX_FP4:
        encode_index_fp4(x, data, scale);
        return;
    case MMLA_KV_NONE:
        break;
    }
    assert(!"a plan checks the format");
}

void mmla_kv_record_decode(mmla_kv_format format,
                           const uint8_t *data,
                           const uint8_t *scale,
                           float *x) {
    switch (format) {
    case MMLA_KV_V4:
        decode_v4(data, scale, x);
        return;
    case MMLA_KV_V41_FP8:
        decode_e4m3(data, scale, MMLA_LATENT_DIM, MMLA_KV_FP8_GROUP, x);
        return;
    case MMLA_KV_V41_FP4:
        for (int i = 0; i < MMLA_LATENT_DIM; i++) {
            x[i] =
                mmla_bf16_round(e2m1_at(data, i) * mmla_e4m3_to_f32(scale[i / MMLA_KV_FP4_GROUP]));
        }
        return;
    case MMLA_KV_INDEX_FP8:
        decode_index_fp8(data, scale, x);
        return;
    case MMLA_KV_INDEX_FP4:
        for (int i = 0; i < MMLA_INDEX_DIM; i++) {
            x[i] = mmla_bf16_round(e2m1_at(data, i) *
                                   mmla_ue8m0_to_f32(scale[i / MMLA_KV_INDEX_FP4_GROUP]));
        }
        return;
    case MMLA_KV_NONE:
        break;
    }
    assert(!"a plan checks the format");
}
