/* vec_record.h - one key's 512 values to fp32, by vectors. Matches mmla_kv_record_decode, except
 * that results subnormal in bf16 keep their fp32 precision. Include after vec.h. */
#ifndef MMLA_KV_VEC_RECORD_H
#define MMLA_KV_VEC_RECORD_H

#include "kv/attend_problem.h"
#include "kv/layout.h"
#include "kv/record.h"
#include "num/vec.h"

/* A ue8m0 byte as the factor of vec_decode_e4m3_x16: 2^(byte - 127 + 8). Bytes from here on do not
 * fit it and take the scalar path. */
enum { VEC_UE8M0_LIMIT = 247 };

VEC_INLINE float vec_ue8m0_times_256(uint8_t byte) {
    return mmla_f32_of_bits((uint32_t)(byte + 8) << 23);
}

/* True when every scale byte of a row of ue8m0 is below VEC_UE8M0_LIMIT. */
VEC_INLINE int vec_ue8m0_are_small(const uint8_t *scale, int n) {
    int small = 1;
    for (int i = 0; i < n; i++) {
        small &= scale[i] < VEC_UE8M0_LIMIT;
    }
    return small;
}

VEC_INLINE void
vec_decode_fp8(const uint8_t *data, const uint8_t *scale, int dims, int group, float *dst) {
    for (int g = 0; g < dims / group; g++) {
        const float factor = vec_ue8m0_times_256(scale[g]);
        for (int i = 0; i < group; i += 16) {
            vec_decode_e4m3_x16(data + g * group + i, factor, dst + g * group + i);
        }
    }
}

VEC_INLINE void vec_decode_bf16(const uint8_t *data, int dims, float *dst) {
    for (int i = 0; i < dims; i += VEC_LANES) {
        uint16_t codes[VEC_LANES];
        memcpy(codes, data + 2 * i, sizeof codes);
        vf_store(dst + i, vf_from_bf16(codes));
    }
}

/* The quantised dims of a key, to the first elements of dst: all 512, but 448 of a V4 record, whose
 * other 64 are bf16 (what dst holds there is unspecified). */
VEC_INLINE void vec_key_decode_codes(mmla_key key, float *dst) {
    switch (key.format) {
    case MMLA_KV_NONE:
        vec_decode_bf16(key.data, MMLA_LATENT_DIM, dst);
        return;
    case MMLA_KV_V41_FP8:
        if (vec_ue8m0_are_small(key.scale, MMLA_KV_FP8_SCALE_BYTES)) {
            vec_decode_fp8(key.data, key.scale, MMLA_LATENT_DIM, MMLA_KV_FP8_GROUP, dst);
            return;
        }
        break;
    case MMLA_KV_V4:
        if (vec_ue8m0_are_small(key.scale, MMLA_KV_V4_SCALES)) {
            vec_decode_fp8(key.data, key.scale, MMLA_KV_V4_FP8_DIMS, MMLA_KV_V4_GROUP, dst);
            return;
        }
        break;
    case MMLA_KV_V41_FP4: {
        float factor[MMLA_KV_FP4_SCALE_BYTES];
        for (int i = 0; i < MMLA_KV_FP4_SCALE_BYTES; i += 16) {
            vec_decode_e4m3_x16(key.scale + i, 256.0f, factor + i);
        }
        for (int g = 0; g < MMLA_KV_FP4_SCALE_BYTES; g++) {
            vec_decode_e2m1_x16(key.data + g * (MMLA_KV_FP4_GROUP / 2), factor[g],
                                dst + g * MMLA_KV_FP4_GROUP);
        }
        return;
    }
    default:
        break;
    }
    mmla_kv_record_decode(key.format, key.data, key.scale, dst);
}

VEC_INLINE void vec_key_decode(mmla_key key, float *dst) {
    vec_key_decode_codes(key, dst);
    if (key.format == MMLA_KV_V4) {
        vec_decode_bf16(key.data + MMLA_KV_V4_FP8_DIMS, MMLA_ROPE_DIM, dst + MMLA_KV_V4_FP8_DIMS);
    }
}

#endif
