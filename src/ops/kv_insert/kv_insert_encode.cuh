/* kv_insert_encode.cuh - a row of 512 in a warp, or four keys of 128: normalised, rotated, quantised.
 *
 * PROBLEM    A lane has 16 dims, in words of two bf16. normalise, then rotate_row or rotate_lane, then
 *            unpack and lane_amax, then the encoder of a format, which stores the codes of a lane.
 *
 * NUMERICS   Every operation is rounded where kv_insert_ref.c rounds it. Where another way is taken, it
 *            is proved to end at the same code (kv_insert_cuda.h) and tested with every value.
 *
 * COST       a row, counted in the machine code for Hopper: rotation 16 instructions, maxima 16,
 *            codes of e4m3 40, of e2m1 90, norm 200. Four lanes have the dims that are rotated, and
 *            by themselves would keep the warp for 75 instructions.
 */
#ifndef MMLA_OPS_KV_INSERT_ENCODE_CUH
#define MMLA_OPS_KV_INSERT_ENCODE_CUH

#include "gpu/async.cuh"
#include "gpu/convert.cuh"
#include "num/norm.h"
#include "num/quant.h"
#include "num/rope.h"
#include "ops/kv_insert/kv_insert_cuda.h"

#define ALL 0xFFFFFFFFu
#define INLINE static __device__ __forceinline__

enum {
    WORDS = KV_INSERT_LANE_DIMS / 2, /* of two bf16 */
    ROPE_LANES = MMLA_ROPE_DIM / KV_INSERT_LANE_DIMS,
    PAIRS = MMLA_ROPE_DIM / 2,
    LATENT_LANES = MMLA_LATENT_DIM / KV_INSERT_LANE_DIMS,
    INDEX_LANES = MMLA_INDEX_DIM / KV_INSERT_LANE_DIMS,
    V4_FP8_LANES = MMLA_KV_V4_FP8_DIMS / KV_INSERT_LANE_DIMS,

    /* Squares of a row, transposed: 16 lines, one for each partial sum, of one element a lane. Lines
     * are four elements apart from a multiple of 32 banks, so that eight lanes read 16 bytes of
     * eight lines without conflict; keys are eight elements apart, so that four write without. */
    LINE_PAD = 4,
    KEY_PAD = 8,
    LATENT_SQUARES = MMLA_NORM_PARTIALS * (LATENT_LANES + LINE_PAD),
    INDEX_SQUARES = MMLA_NORM_PARTIALS * (INDEX_LANES + LINE_PAD) + KEY_PAD,
    INDEX_KEYS = KV_INSERT_WARP / INDEX_LANES,
    WARP_SQUARES = INDEX_KEYS * INDEX_SQUARES,

    LANE_WEIGHTS = KV_INSERT_LANE_DIMS + 4, /* apart, likewise without conflict */
    WEIGHTS = LATENT_LANES * LANE_WEIGHTS
};

static_assert(LATENT_LANES == +KV_INSERT_WARP && INDEX_LANES == 8, "a row and a key of lanes");
static_assert(MMLA_NORM_PARTIALS == +KV_INSERT_LANE_DIMS,
              "element j of a lane is of partial sum j");
static_assert(LATENT_SQUARES <= WARP_SQUARES && WARP_SQUARES == 800, "squares of a warp");
static_assert(MMLA_KV_V4_FP8_DIMS % KV_INSERT_LANE_DIMS == 0, "rotated dims are whole lanes");
static_assert(MMLA_KV_FP4_GROUP == +KV_INSERT_LANE_DIMS, "a group of V41_FP4 is a lane");
static_assert(PAIRS == +KV_INSERT_WARP, "a lane a pair");

/* What a block with norm shares; a warp has its own squares. */
typedef struct norm_smem {
    float squares[KV_INSERT_WARPS][WARP_SQUARES];
    float weight[WEIGHTS];
} norm_smem;

static_assert(sizeof(norm_smem) == 28160, "the budget of kv_insert_cuda.cu");

/* A lane's part of a row. Not by __ldg: such loads the compiler may move behind the stores of the row
 * before, which they are to overlap; gpu_load16 is volatile. */
INLINE void load_row(const uint16_t *part, uint32_t words[WORDS]) {
    const uint4 a = gpu_load16(part), b = gpu_load16(part + 8);
    words[0] = a.x, words[1] = a.y, words[2] = a.z, words[3] = a.w;
    words[4] = b.x, words[5] = b.y, words[6] = b.z, words[7] = b.w;
}

/* A partial sum: the elements of a line, one after another. */
INLINE float line_sum(const float *line, const int lanes) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < lanes; i += 4) {
        const float4 x = *(const float4 *)(line + i);
        sum = sum + x.x;
        sum = sum + x.y;
        sum = sum + x.z;
        sum = sum + x.w;
    }
    return sum;
}

/* norm_weight to smem, by all threads of the block; a barrier must follow. */
INLINE void load_weight(const float *weight, const int dims, norm_smem *smem) {
#pragma unroll
    for (int i = threadIdx.x; i < dims; i += KV_INSERT_THREADS) {
        const int lane = i / KV_INSERT_LANE_DIMS, element = i % KV_INSERT_LANE_DIMS;
        smem->weight[lane * LANE_WEIGHTS + element] = __ldg(&weight[i]);
    }
}

/* mmla_norm_rms. Sums over lanes by exchange are those of mmla_norm_reduce: a + b is b + a. */
INLINE void normalise(uint32_t words[WORDS],
                      float eps,
                      const int lanes,
                      int lane,
                      float *squares,
                      const float *weight) {
    const int line = lanes + LINE_PAD, sub = lane % lanes;
    float *own = squares + lane / lanes * INDEX_SQUARES;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const float2 x = gpu_f32x2_from_bf16x2(words[i]);
        own[2 * i * line + sub] = x.x * x.x;
        own[(2 * i + 1) * line + sub] = x.y * x.y;
    }
    __syncwarp();
    float sum;
    if (lanes == KV_INSERT_WARP) { /* lanes 16 and up do what lanes 0 to 15 do */
        sum = line_sum(own + lane % MMLA_NORM_PARTIALS * line, lanes);
        sum = sum + __shfl_xor_sync(ALL, sum, 8);
    } else {
        sum = line_sum(own + sub * line, lanes) + line_sum(own + (sub + 8) * line, lanes);
    }
#pragma unroll
    for (int width = 4; width > 0; width /= 2) {
        sum = sum + __shfl_xor_sync(ALL, sum, width);
    }
    __syncwarp(); /* the next row overwrites the squares */
    const float r = mmla_norm_factor(sum, lanes * KV_INSERT_LANE_DIMS, eps);
    const float4 *w = (const float4 *)(weight + sub * LANE_WEIGHTS);
#pragma unroll
    for (int i = 0; i < WORDS; i += 2) {
        const float4 own_w = w[i / 2];
        const float2 a = gpu_f32x2_from_bf16x2(words[i]);
        const float2 b = gpu_f32x2_from_bf16x2(words[i + 1]);
        words[i] = gpu_bf16x2_from_f32x2(a.x * r * own_w.x, a.y * r * own_w.y);
        words[i + 1] = gpu_bf16x2_from_f32x2(b.x * r * own_w.z, b.y * r * own_w.w);
    }
}

INLINE uint32_t rotate_pair(uint32_t word, float c, float s) {
    float2 x = gpu_f32x2_from_bf16x2(word);
    mmla_rope_rotate(c, s, &x.x, &x.y);
    return gpu_bf16x2_from_f32x2(x.x, x.y);
}

/* The pairs of a row's last lanes, each by one lane of the warp, which has its cosine and sine and gets
 * the pair; those lanes get theirs back when `back`. */
INLINE uint32_t rotate_row(
    uint32_t words[WORDS], float c, float s, const bool back, int lane, uint32_t pairs[PAIRS]) {
    const bool has_pairs = lane >= LATENT_LANES - ROPE_LANES;
    uint4 *own = (uint4 *)pairs + (lane - (LATENT_LANES - ROPE_LANES)) * (WORDS / 4);
    if (has_pairs) {
        own[0] = make_uint4(words[0], words[1], words[2], words[3]);
        own[1] = make_uint4(words[4], words[5], words[6], words[7]);
    }
    __syncwarp();
    const uint32_t pair = rotate_pair(pairs[lane], c, s);
    if (back) {
        pairs[lane] = pair;
    }
    __syncwarp(); /* without `back`, too: the next row overwrites them */
    if (back && has_pairs) {
        const uint4 a = own[0], b = own[1];
        words[0] = a.x, words[1] = a.y, words[2] = a.z, words[3] = a.w;
        words[4] = b.x, words[5] = b.y, words[6] = b.z, words[7] = b.w;
    }
    return pair;
}

/* A lane's pairs of a key, by the line of cos_sin at `from`, which is its own pairs'. */
INLINE void rotate_lane(uint32_t words[WORDS], const float *from) {
    float turn[2 * WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        turn[i] = __ldg(from + i);
        turn[WORDS + i] = __ldg(from + PAIRS + i);
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        words[i] = rotate_pair(words[i], turn[i], turn[WORDS + i]);
    }
}

/* A lane's numbers, from bf16. */
INLINE void unpack(const uint32_t words[WORDS], float x[KV_INSERT_LANE_DIMS]) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const float2 pair = gpu_f32x2_from_bf16x2(words[i]);
        x[2 * i] = pair.x;
        x[2 * i + 1] = pair.y;
    }
}

/* Largest magnitude of a lane's numbers, NaN ignored; 0 when all are NaN. */
INLINE float lane_amax(const uint32_t words[WORDS]) {
    uint32_t most = gpu_abs_bf16x2(words[0]);
#pragma unroll
    for (int i = 1; i < WORDS; i++) {
        most = gpu_max_bf16x2(most, gpu_abs_bf16x2(words[i]));
    }
    const float2 two = gpu_f32x2_from_bf16x2(most);
    return fmaxf(fmaxf(two.x, two.y), 0.0f);
}

/* The largest of a group of `lanes` lanes. */
INLINE float group_amax(float amax, const int lanes) {
#pragma unroll
    for (int width = 1; width < lanes; width *= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, width));
    }
    return amax;
}

INLINE void store_e4m3(const float x[KV_INSERT_LANE_DIMS], float inverse, uint8_t *codes) {
    uint32_t four[WORDS / 2];
#pragma unroll
    for (int i = 0; i < WORDS / 2; i++) {
        four[i] = gpu_e4m3x2_from_f32x2(x[4 * i] * inverse, x[4 * i + 1] * inverse) |
                  gpu_e4m3x2_from_f32x2(x[4 * i + 2] * inverse, x[4 * i + 3] * inverse) << 16;
    }
    *(uint4 *)codes = make_uint4(four[0], four[1], four[2], four[3]);
}

/* Codes of a lane's numbers; factor gives 2^-14 times what is to be a code. False, and no codes, when
 * one of them is NaN or beyond e2m1. */
INLINE bool
e2m1_codes(const float x[KV_INSERT_LANE_DIMS], float factor, uint32_t eight[WORDS / 4]) {
    uint32_t seen = 0;
#pragma unroll
    for (int i = 0; i < WORDS / 4; i++) {
        uint32_t rounded[4]; /* pairs 0 and 4, 1 and 5, 2 and 6, 3 and 7 */
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t halves =
                gpu_f16x2_from_f32x2(x[8 * i + j] * factor, x[8 * i + j + 4] * factor);
            rounded[j] = kv_insert_e2m1_round(halves);
            seen |= halves | rounded[j];
        }
        eight[i] = kv_insert_e2m1_join(rounded[0], rounded[2], rounded[1], rounded[3]);
    }
    return (seen & KV_INSERT_E2M1_BEYOND) == 0;
}

/* The same for any numbers, one after the other; whether there was a NaN, whose code is 0. */
INLINE bool
e2m1_codes_any(const float x[KV_INSERT_LANE_DIMS], float factor, uint32_t eight[WORDS / 4]) {
    if (e2m1_codes(x, factor, eight)) {
        return false;
    }
    const float most = MMLA_E2M1_MAX * 0x1p-14f;
    bool had_nan = false;
    eight[0] = eight[1] = 0;
#pragma unroll
    for (int i = 0; i < KV_INSERT_LANE_DIMS; i += 2) {
        const float a = x[i] == x[i] ? x[i] : 0.0f, b = x[i + 1] == x[i + 1] ? x[i + 1] : 0.0f;
        const uint32_t signs = __float_as_uint(a) >> 16 & 0x8000u;
        const uint32_t both = signs | (__float_as_uint(b) & 0x80000000u);
        const uint32_t magnitudes =
            gpu_f16x2_from_f32x2(fminf(fabsf(a * factor), most), fminf(fabsf(b * factor), most));
        had_nan |= x[i] != x[i] || x[i + 1] != x[i + 1];
        eight[i / 8] |= mmla_e2m1x2_from_f16x2_times_2_14th(magnitudes, both) << 4 * (i % 8);
    }
    return had_nan;
}

/* Encoders, like those of kv/record.c. data and scale are the row's; all lanes of the warp come here.
 * A row of 512 is alive; lanes of keys that are not store nothing. */
INLINE void encode_v4(const float x[KV_INSERT_LANE_DIMS],
                      float amax,
                      uint32_t pair,
                      int floor_scale,
                      int sub,
                      uint8_t *data,
                      uint8_t *scale) {
    const int group_lanes = MMLA_KV_V4_GROUP / KV_INSERT_LANE_DIMS;
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(amax, group_lanes), floor_scale);
    ((uint32_t *)(data + MMLA_KV_V4_FP8_DIMS))[sub] = pair;
    if (sub < V4_FP8_LANES) {
        store_e4m3(x, kv_insert_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    }
    if (sub % group_lanes ==
        0) { /* the rotated dims are as many as a group, and have the pad byte */
        scale[sub / group_lanes] = sub < V4_FP8_LANES ? byte : 0;
    }
}

INLINE void encode_v41_fp8(const float x[KV_INSERT_LANE_DIMS],
                           float amax,
                           int floor_scale,
                           int sub,
                           uint8_t *data,
                           uint8_t *scale) {
    const int group_lanes = MMLA_KV_FP8_GROUP / KV_INSERT_LANE_DIMS;
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(amax, group_lanes), floor_scale);
    store_e4m3(x, kv_insert_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    if (sub % group_lanes == 0) {
        scale[sub / group_lanes] = byte;
    }
}

INLINE void encode_v41_fp4(
    const float x[KV_INSERT_LANE_DIMS], float amax, int sub, uint8_t *data, uint8_t *scale) {
    const float raw = kv_insert_e2m1_raw_scale(amax); /* a group is a lane */
    const uint32_t code = gpu_e4m3x2_from_f32x2(raw, 0.0f);
    const float factor = __fdividef(0x1p-14f, gpu_f32x2_from_e4m3x2(code).x);
    uint32_t eight[WORDS / 4];
    const bool had_nan = e2m1_codes_any(x, factor, eight);
    *(uint2 *)(data + sub * KV_INSERT_LANE_DIMS / 2) = make_uint2(eight[0], eight[1]);
    scale[sub] = had_nan ? MMLA_E4M3_NAN : (uint8_t)code;
}

INLINE void encode_index_fp8(const float x[KV_INSERT_LANE_DIMS],
                             float amax,
                             int sub,
                             bool alive,
                             uint8_t *data,
                             uint8_t *scale) {
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(amax, INDEX_LANES), 0);
    if (!alive) {
        return;
    }
    store_e4m3(x, kv_insert_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    if (sub == 0) {
        *(float *)scale = mmla_ue8m0_to_f32(byte);
    }
}

INLINE void encode_index_fp4(const float x[KV_INSERT_LANE_DIMS],
                             float amax,
                             int sub,
                             bool alive,
                             uint8_t *data,
                             uint8_t *scale) {
    const int group_lanes = MMLA_KV_INDEX_FP4_GROUP / KV_INSERT_LANE_DIMS;
    const uint8_t byte = mmla_quant_e2m1_ue8m0_byte(group_amax(amax, group_lanes));
    uint32_t eight[WORDS / 4];
    /* The inverse is a power of two: products are exact, or too small for a code but 0. */
    const bool own_nan = e2m1_codes_any(x, kv_insert_ue8m0_inverse(byte) * 0x1p-14f, eight);
    const bool had_nan = own_nan | __shfl_xor_sync(ALL, (int)own_nan, 1);
    if (!alive) {
        return;
    }
    *(uint2 *)(data + sub * KV_INSERT_LANE_DIMS / 2) = make_uint2(eight[0], eight[1]);
    if (sub % group_lanes == 0) {
        scale[sub / group_lanes] = had_nan ? MMLA_UE8M0_NAN : byte;
    }
}

#endif
