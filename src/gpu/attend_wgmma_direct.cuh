/* attend_wgmma_direct.cuh - the end of a task whose keys one CTA had: from sums in registers to codes and
 * scales, while the stages fill for the next task.
 *
 *     O (registers) --rotate back, scale, cast--> codes --turned among four threads--> out, 8 bytes each
 *
 * A thread has two heads and, of each eight dims of its half, two neighbours: a pair of the rotation. The
 * four threads of a head have 32 dims in four groups of eight, one chunk of the output.
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
GPU_DEVICE void attend_wgmma_rotate_back(float o[ATTEND_WGMMA_SUMS], const float *cos_sin) {
    enum {
        FIRST = ATTEND_WGMMA_SUMS - ATTEND_WGMMA_SUMS * MMLA_ROPE_DIM / ATTEND_WGMMA_GROUP_DIMS
    };
#pragma unroll
    for (int32_t i = FIRST; i < ATTEND_WGMMA_SUMS; i += 4) {
        const int32_t pair = (i - FIRST) / 4 * 4 + threadIdx.x % 4;
        const float c = cos_sin[pair], s = cos_sin[MMLA_ROPE_DIM / 2 + pair];
        mmla_rope_rotate_back(c, s, &o[i], &o[i + 1]);
        mmla_rope_rotate_back(c, s, &o[i + 2], &o[i + 3]);
        __syncwarp(); /* or all loads are started at once, for which there are no registers */
    }
}

/* Largest magnitude of n sums from o[i] on of row r (0 or 1), over the four threads of a head. */
GPU_DEVICE float attend_wgmma_amax(const float o[ATTEND_WGMMA_SUMS],
                                   const int32_t i,
                                   const int32_t r,
                                   const int32_t n) {
    float amax = 0.0f; /* of NaN alone: no magnitude */
#pragma unroll
    for (int32_t k = i + 2 * r; k < i + n; k += 4) {
        amax = fmaxf(amax, fmaxf(fabsf(o[k]), fabsf(o[k + 1])));
    }
    return attend_wgmma_quad_max(amax);
}

/* Codes of row r of the chunk whose sums begin at o[i], to its 32 bytes at `out`. */
GPU_DEVICE void attend_wgmma_put_codes(
    const float o[ATTEND_WGMMA_SUMS], const int32_t i, const int32_t r, float mul, uint8_t *out) {
    const int32_t k = i + 2 * r, u = threadIdx.x % 4;
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

/* Scale bytes of four chunks of a head, byte i of chunk c + i, to out_scale; the warp has eight heads from
 * `head` on, of one group. */
GPU_DEVICE void attend_wgmma_put_scales(
    const attend_mma_params *p, int64_t token, int32_t head, int32_t c, uint32_t bytes) {
    const int32_t g = threadIdx.x % 32 / 4, u = threadIdx.x % 4;
    if (p->out_form != MMLA_OUT_FP8_PERMUTED) {
        if (u == 0) {
            enum { CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM };
            *(uint32_t *)(p->out_scale + (token * p->n_heads + head + g) * CHUNKS + c) = bytes;
        }
        return;
    }
    uint32_t word = 0; /* chunk c + u of four heads */
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t theirs = __shfl_sync(~0u, bytes, (g / 4 * 4 + i) * 4 + u);
        word |= (theirs >> 8 * u & 0xFFu) << 8 * i;
    }
    if (g % 4 == 0) {
        *(uint32_t *)(p->out_scale +
                      mmla_out_scale_offset(p->scale_strides, token, head + g, c + u)) = word;
    }
}

/* Row r of a thread's sums as codes; its warp's eight heads begin at `head`. Scales are of chunks of 32
 * dims, or of four chunks (FP8_128). */
GPU_DEVICE void attend_wgmma_direct_fp8(const attend_mma_params *p,
                                        const float o[ATTEND_WGMMA_SUMS],
                                        const int32_t r,
                                        int64_t token,
                                        int32_t head,
                                        int32_t half,
                                        float factor) {
    enum { WIDE = MMLA_OUT_WIDE_DIM / MMLA_OUT_CHUNK_DIM, SUMS = ATTEND_WGMMA_CHUNK_SUMS };
    static_assert(WIDE == 4, "four scale bytes are a word, too");
    const int32_t g = threadIdx.x % 32 / 4, first_dim = half * ATTEND_WGMMA_GROUP_DIMS;
    const bool permuted = p->out_form == MMLA_OUT_FP8_PERMUTED;
    const bool wide = p->out_form == MMLA_OUT_FP8_128;
    uint8_t *out = p->out + token * p->n_heads * MMLA_LATENT_DIM +
                   (permuted ? mmla_out_permuted_index(head + g, first_dim)
                             : (int64_t)(head + g) * MMLA_LATENT_DIM + first_dim);
    const int32_t step = permuted ? MMLA_HEADS_PER_GROUP * MMLA_OUT_CHUNK_DIM : MMLA_OUT_CHUNK_DIM;
    uint32_t bytes = 0;
    float mul = 0.0f;
#pragma unroll
    for (int32_t c = 0; c < ATTEND_WGMMA_CHUNKS; c++) {
        const int32_t i = c * SUMS;
        if (!wide) {
            uint32_t byte;
            mul = attend_mma_out_mul(attend_wgmma_amax(o, i, r, SUMS), factor, &byte);
            bytes |= byte << c % WIDE * 8;
            if (c % WIDE == WIDE - 1) {
                attend_wgmma_put_scales(p, token, head,
                                        half * ATTEND_WGMMA_CHUNKS + c / WIDE * WIDE, bytes);
                bytes = 0;
            }
        } else if (c % WIDE == 0) {
            const float s =
                fmaxf(MMLA_AMAX_FLOOR, attend_wgmma_amax(o, i, r, WIDE * SUMS) * factor) /
                MMLA_E4M3_MAX;
            mul = factor / s;
            if (threadIdx.x % 4 == 0) {
                ((float *)p->out_scale)[(token * p->n_heads + head + g) *
                                            (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) +
                                        (half * ATTEND_WGMMA_CHUNKS + c) / WIDE] = s;
            }
        }
        attend_wgmma_put_codes(o, i, r, mul, out);
        out += step;
    }
}

GPU_DEVICE void attend_wgmma_direct_bf16(const attend_mma_params *p,
                                         const float o[ATTEND_WGMMA_SUMS],
                                         const int32_t r,
                                         int64_t row,
                                         int32_t half,
                                         float factor) {
    uint32_t *out =
        (uint32_t *)((uint16_t *)p->out + row * MMLA_LATENT_DIM + half * ATTEND_WGMMA_GROUP_DIMS) +
        threadIdx.x % 4;
#pragma unroll
    for (int32_t i = 2 * r; i < ATTEND_WGMMA_SUMS; i += 4) {
        out[i / 4 * 4] = gpu_bf16x2_from_f32x2(o[i] * factor, o[i + 1] * factor);
    }
}

/* A thread's sums to out. */
GPU_DEVICE void attend_wgmma_direct_store(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          const float *factors,
                                          float o[ATTEND_WGMMA_SUMS]) {
    const int32_t thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    const int32_t half = threadIdx.x / ATTEND_WGMMA_GROUP;
    if (half == 1 && p->rotate && task->position >= 0) {
        attend_wgmma_rotate_back(o, p->cos_sin + (int64_t)task->position * MMLA_ROPE_DIM);
    }
#pragma unroll
    for (int32_t r = 0; r < 2; r++) {
        const int32_t first = thread / 32 * 16 + 8 * r; /* of eight heads */
        if (first >= task->n_heads) {
            continue;
        }
        const int32_t head = task->first_head + first, g = thread % 32 / 4;
        const float factor = factors[first + g];
        if (p->out_form == MMLA_OUT_BF16) {
            attend_wgmma_direct_bf16(p, o, r, task->token * p->n_heads + head + g, half, factor);
        } else {
            attend_wgmma_direct_fp8(p, o, r, task->token, head, half, factor);
        }
    }
}

#undef GPU_DEVICE

#endif
