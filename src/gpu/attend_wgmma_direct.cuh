/* attend_wgmma_direct.cuh - the end of a task whose keys one CTA had: from sums in registers to
 * codes and scales, while the stages fill for the next task.
 *
 *     O (registers) --rotate back, scale, cast--> codes --turned among four threads--> out
 *
 * A thread has two heads and, of each eight dims of its half, two neighbours: a pair of the
 * rotation. The four threads of a head have 32 dims in four groups of eight, one chunk of the
 * output.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_DIRECT_CUH
#define MMLA_GPU_ATTEND_WGMMA_DIRECT_CUH

#include "gpu/attend_mma_out.cuh"
#include "gpu/attend_wgmma_math.cuh"
#include "gpu/attend_wgmma_turn.h"

#define GPU_DEVICE static __device__ __forceinline__

enum {
    ATTEND_WGMMA_CHUNKS = ATTEND_WGMMA_GROUP_DIMS / MMLA_OUT_CHUNK_DIM, /* of a thread's half */
    ATTEND_WGMMA_CHUNK_SUMS = ATTEND_WGMMA_SUMS / ATTEND_WGMMA_CHUNKS   /* of a thread, two heads */
};

/* The inverse rotation of the last 64 dims, which the second half has at its end. */
GPU_DEVICE void attend_wgmma_rotate_back(float o[ATTEND_WGMMA_SUMS], const float *rope) {
    enum {
        FIRST = ATTEND_WGMMA_SUMS - ATTEND_WGMMA_SUMS * MMLA_ROPE_DIM / ATTEND_WGMMA_GROUP_DIMS
    };
#pragma unroll
    for (int32_t i = FIRST; i < ATTEND_WGMMA_SUMS; i += 4) {
        const int32_t pair = (i - FIRST) / 4 * 4 + threadIdx.x % 4;
        const float c = rope[pair], s = rope[MMLA_ROPE_DIM / 2 + pair];
        mmla_rope_rotate_back(c, s, &o[i], &o[i + 1]);
        mmla_rope_rotate_back(c, s, &o[i + 2], &o[i + 3]);
    }
}

/* Largest magnitude of the first row's sums among n from o[i] on. */
GPU_DEVICE float
attend_wgmma_amax(const float o[ATTEND_WGMMA_SUMS], const int32_t i, const int32_t n) {
    float amax = 0.0f; /* of NaN alone: no magnitude */
#pragma unroll
    for (int32_t k = i; k < i + n; k += 4) {
        amax = fmaxf(amax, fmaxf(fabsf(o[k]), fabsf(o[k + 1])));
    }
    return amax;
}

/* Codes of the first row of the chunk whose sums begin at o[k], to its 32 bytes at `out`. */
GPU_DEVICE void
attend_wgmma_put_codes(const float o[ATTEND_WGMMA_SUMS], const int32_t k, float mul, uint8_t *out) {
    const int32_t u = threadIdx.x % 4;
    const uint32_t h01 = gpu_e4m3x2_from_f32x2(o[k] * mul, o[k + 1] * mul) |
                         gpu_e4m3x2_from_f32x2(o[k + 4] * mul, o[k + 5] * mul) << 16;
    const uint32_t h23 = gpu_e4m3x2_from_f32x2(o[k + 8] * mul, o[k + 9] * mul) |
                         gpu_e4m3x2_from_f32x2(o[k + 12] * mul, o[k + 13] * mul) << 16;
    const uint32_t far = __shfl_xor_sync(~0u, attend_wgmma_turn_far(u, h01, h23), 2);
    const attend_wgmma_turn t = attend_wgmma_turn_begin(u, h01, h23, far);
    const uint32_t near = __shfl_xor_sync(~0u, attend_wgmma_turn_near(u, t), 1);
    const attend_wgmma_turn codes = attend_wgmma_turn_end(u, t, near);
    *(uint2 *)(out + 8 * u) = make_uint2(codes.a, codes.b);
}

/* The scale byte of a thread's chunk of a head, four of which make a word of out_scale: the chunks
 * of a head, or, permuted, four heads' same chunk. The warp has eight heads from `head` on, of one
 * group. */
GPU_DEVICE void attend_wgmma_put_scales(
    const attend_mma_params *p, int64_t token, int32_t head, int32_t chunk, uint32_t byte) {
    const int32_t g = threadIdx.x % 32 / 4;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    const int32_t i = permuted ? g % 4 : chunk % 4, step = permuted ? 4 : 1;
    uint32_t word = byte << 8 * i;
    word |= __shfl_xor_sync(~0u, word, step);
    word |= __shfl_xor_sync(~0u, word, 2 * step);
    if (i == 0) {
        enum { CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM };
        const int64_t at = permuted
                               ? mmla_out_scale_offset(p->scale_strides, token, head + g, chunk)
                               : (token * p->n_heads + head + g) * CHUNKS + chunk;
        *(uint32_t *)(p->out_scale + at) = word;
    }
}

/* The first row of a thread's sums as codes, a scale for every chunk; its warp's eight heads begin
 * at `head`. */
GPU_DEVICE void attend_wgmma_direct_fp8(const attend_mma_params *p,
                                        const float o[ATTEND_WGMMA_SUMS],
                                        int64_t token,
                                        int32_t head,
                                        int32_t half,
                                        float factor) {
    enum { AT_ONCE = 4, SUMS = ATTEND_WGMMA_CHUNK_SUMS }; /* a chunk for each thread of a head */
    const int32_t g = threadIdx.x % 32 / 4, first_dim = half * ATTEND_WGMMA_GROUP_DIMS;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    uint8_t *out = p->out + token * p->n_heads * MMLA_LATENT_DIM +
                   (permuted ? mmla_out_permuted_index(head + g, first_dim)
                             : (int64_t)(head + g) * MMLA_LATENT_DIM + first_dim);
    const int32_t step = permuted ? MMLA_HEADS_PER_GROUP * MMLA_OUT_CHUNK_DIM : MMLA_OUT_CHUNK_DIM;
#pragma unroll
    for (int32_t first = 0; first < ATTEND_WGMMA_CHUNKS; first += AT_ONCE) {
        const int32_t i = first * SUMS;
        const float amax = attend_wgmma_quad_maxima(
            attend_wgmma_amax(o, i, SUMS), attend_wgmma_amax(o, i + SUMS, SUMS),
            attend_wgmma_amax(o, i + 2 * SUMS, SUMS), attend_wgmma_amax(o, i + 3 * SUMS, SUMS));
        uint32_t byte;
        const float mul = attend_mma_out_mul(amax, factor, &byte);
        attend_wgmma_put_scales(
            p, token, head,
            half * ATTEND_WGMMA_CHUNKS + first + attend_wgmma_chunk_of(threadIdx.x % 4), byte);
#pragma unroll
        for (int32_t c = 0; c < AT_ONCE; c++) {
            const float of_chunk =
                __shfl_sync(~0u, mul, (threadIdx.x & ~3u) + attend_wgmma_chunk_of(c));
            attend_wgmma_put_codes(o, i + c * SUMS, of_chunk, out);
            out += step;
        }
    }
}

/* The same with a scale for every four chunks. */
GPU_DEVICE void attend_wgmma_direct_wide(const attend_mma_params *p,
                                         const float o[ATTEND_WGMMA_SUMS],
                                         int64_t row,
                                         int32_t half,
                                         float factor) {
    enum { CHUNKS = MMLA_OUT_WIDE_DIM / MMLA_OUT_CHUNK_DIM, SUMS = ATTEND_WGMMA_CHUNK_SUMS };
    uint8_t *out = p->out + row * MMLA_LATENT_DIM + half * ATTEND_WGMMA_GROUP_DIMS;
    float *scale = (float *)p->out_scale + row * (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) +
                   half * (ATTEND_WGMMA_GROUP_DIMS / MMLA_OUT_WIDE_DIM);
#pragma unroll
    for (int32_t first = 0; first < ATTEND_WGMMA_CHUNKS; first += CHUNKS) {
        const float amax = attend_wgmma_quad_max(attend_wgmma_amax(o, first * SUMS, CHUNKS * SUMS));
        const float s = fmaxf(MMLA_AMAX_FLOOR, amax * factor) / MMLA_E4M3_MAX;
        *scale++ = s; /* the same by four threads */
        const float mul = factor / s;
#pragma unroll
        for (int32_t c = 0; c < CHUNKS; c++) {
            attend_wgmma_put_codes(o, (first + c) * SUMS, mul, out);
            out += MMLA_OUT_CHUNK_DIM;
        }
    }
}

GPU_DEVICE void attend_wgmma_direct_bf16(const attend_mma_params *p,
                                         const float o[ATTEND_WGMMA_SUMS],
                                         int64_t row,
                                         int32_t half,
                                         float factor) {
    uint32_t *out =
        (uint32_t *)((uint16_t *)p->out + row * MMLA_LATENT_DIM + half * ATTEND_WGMMA_GROUP_DIMS) +
        threadIdx.x % 4;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i += 4) {
        out[i / 4 * 4] = gpu_bf16x2_from_f32x2(o[i] * factor, o[i + 1] * factor);
    }
}

/* A thread's sums to out. Both rows go through the same code, which is long: the second row takes
 * the first one's place. */
GPU_DEVICE void attend_wgmma_direct_store(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          float factor[2],
                                          float o[ATTEND_WGMMA_SUMS]) {
    const int32_t thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    const int32_t half = threadIdx.x / ATTEND_WGMMA_GROUP;
#pragma unroll 1
    for (int32_t r = 0; r < 2; r++) {
        const int32_t first = thread / 32 * 16 + 8 * r; /* of eight heads */
        if (first < task->n_heads) {
            const int32_t head = task->first_head + first;
            const int64_t row = task->token * p->n_heads + head + thread % 32 / 4;
            switch (p->out_form) {
            case MMLA_OUT_BF16:
                attend_wgmma_direct_bf16(p, o, row, half, factor[0]);
                break;
            case MMLA_OUT_FP8_128:
                attend_wgmma_direct_wide(p, o, row, half, factor[0]);
                break;
            default:
                attend_wgmma_direct_fp8(p, o, task->token, head, half, factor[0]);
                break;
            }
        }
#pragma unroll
        for (int32_t i = 0; i < ATTEND_WGMMA_SUMS; i += 4) {
            o[i] = o[i + 2];
            o[i + 1] = o[i + 3];
        }
        factor[0] = factor[1];
    }
}

#undef GPU_DEVICE

#endif
