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

/* Largest magnitude of a row's sums among n from o[i] on, of which every other pair is the other
 * row's. */
GPU_DEVICE float
attend_wgmma_amax(const float o[ATTEND_WGMMA_SUMS], const int32_t i, const int32_t n) {
    float amax = 0.0f; /* of NaN alone: no magnitude */
#pragma unroll
    for (int32_t k = i; k < i + n; k += 4) {
        amax = fmaxf(amax, fmaxf(fabsf(o[k]), fabsf(o[k + 1])));
    }
    return amax;
}

/* The thread's codes of a row of the chunk whose sums begin at o[k], in the order in which it has
 * them: pairs of neighbouring dims of four groups of eight. */
GPU_DEVICE uint2 attend_wgmma_codes(const float o[ATTEND_WGMMA_SUMS], const int32_t k, float mul) {
    return make_uint2(gpu_e4m3x2_from_f32x2(o[k] * mul, o[k + 1] * mul) |
                          gpu_e4m3x2_from_f32x2(o[k + 4] * mul, o[k + 5] * mul) << 16,
                      gpu_e4m3x2_from_f32x2(o[k + 8] * mul, o[k + 9] * mul) |
                          gpu_e4m3x2_from_f32x2(o[k + 12] * mul, o[k + 13] * mul) << 16);
}

/* Of n chunks, turned among the four threads of a head: eight neighbouring codes of each. All
 * exchanges of a kind are side by side, for a warp's instructions wait in order. */
GPU_DEVICE void
attend_wgmma_codes_turn(const attend_wgmma_turner *turner, uint2 codes[], const int32_t n) {
    uint32_t kept[ATTEND_WGMMA_CHUNKS], far[ATTEND_WGMMA_CHUNKS], near[ATTEND_WGMMA_CHUNKS];
#pragma unroll
    for (int32_t c = 0; c < n; c++) {
        kept[c] = attend_wgmma_turn_kept(turner, codes[c].x, codes[c].y);
        far[c] = __shfl_xor_sync(~0u, attend_wgmma_turn_far(turner, codes[c].x, codes[c].y), 2);
    }
#pragma unroll
    for (int32_t c = 0; c < n; c++) {
        near[c] = __shfl_xor_sync(~0u, attend_wgmma_turn_near(turner, kept[c], far[c]), 1);
    }
#pragma unroll
    for (int32_t c = 0; c < n; c++) {
        const attend_wgmma_turn end = attend_wgmma_turn_end(turner, kept[c], far[c], near[c]);
        codes[c] = make_uint2(end.a, end.b);
    }
}

/* Both rows of a thread's sums as codes, a scale for every chunk. `head` is the first of the warp's
 * sixteen heads, of which the first eight, at least, are there: those of one group, and then of
 * another. */
GPU_DEVICE void attend_wgmma_direct_fp8(const attend_mma_params *p,
                                        const attend_wgmma_task *task,
                                        const float o[ATTEND_WGMMA_SUMS],
                                        int32_t head,
                                        int32_t half,
                                        const float factor[2],
                                        bool has_second,
                                        const bool permuted) {
    enum {
        ROWS = 2,
        AT_ONCE = 4, /* a chunk for each thread of a head */
        GROUPS = ATTEND_WGMMA_CHUNKS / AT_ONCE,
        SUMS = ATTEND_WGMMA_CHUNK_SUMS,
        ALL_CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM,
        STEP = MMLA_OUT_CHUNK_DIM
    };
    static_assert(GROUPS * ROWS <= ATTEND_WGMMA_MAXIMA_MOST, "their maxima are found at once");
    const int32_t u = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
    const int32_t my_chunk = half * ATTEND_WGMMA_CHUNKS + attend_wgmma_chunk_of(u);
    const int64_t row = task->token * p->n_heads + head + g;
    /* Four scale bytes make a word of out_scale: those of four chunks of a head, or, permuted, of
     * four heads' same chunk. */
    const int32_t in_word = permuted ? g % 4 : attend_wgmma_chunk_of(u);
    const int32_t next = permuted ? 4 : 1; /* lanes apart, the second step twice as far */
    const int64_t scale_step = permuted ? mmla_out_scale_offset(p->scale_strides, 0, 0, 1) : 1;
    float maxima[GROUPS * ROWS][AT_ONCE], mul[GROUPS * ROWS];
    uint32_t word[GROUPS * ROWS];
#pragma unroll
    for (int32_t i = 0; i < GROUPS * ROWS; i++) {
#pragma unroll
        for (int32_t c = 0; c < AT_ONCE; c++) {
            maxima[i][c] =
                attend_wgmma_amax(o, (i / ROWS * AT_ONCE + c) * SUMS + i % ROWS * 2, SUMS);
        }
    }
    attend_wgmma_quad_maxima(maxima, mul, GROUPS * ROWS);
#pragma unroll
    for (int32_t i = 0; i < GROUPS * ROWS; i++) {
        mul[i] = attend_mma_out_mul(mul[i], factor[i % ROWS], &word[i]);
        word[i] <<= 8 * in_word;
    }
#pragma unroll
    for (int32_t exchange = 1; exchange <= 2; exchange++) {
#pragma unroll
        for (int32_t i = 0; i < GROUPS * ROWS; i++) {
            word[i] |= __shfl_xor_sync(~0u, word[i], exchange * next);
        }
    }
    const attend_wgmma_turner turner = attend_wgmma_turner_get(u);
#pragma unroll
    for (int32_t r = 0; r < ROWS; r++) {
        if (r > 0 && !has_second) {
            return;
        }
        uint8_t *out =
            p->out + 8 * u + half * ATTEND_WGMMA_GROUP_DIMS + (row + 8 * r) * MMLA_LATENT_DIM;
        uint8_t *scales = p->out_scale + (row + 8 * r) * ALL_CHUNKS;
        if (permuted) {
            out = p->out + 8 * u + task->token * p->n_heads * MMLA_LATENT_DIM +
                  mmla_out_permuted_index(head + g + 8 * r, half * ATTEND_WGMMA_GROUP_DIMS);
            scales = p->out_scale + mmla_out_scale_offset(p->scale_strides, task->token,
                                                          head + g / 4 * 4 + 8 * r, 0);
        }
#pragma unroll
        for (int32_t i = 0; i < GROUPS; i++) {
            if (in_word == 0) {
                *(uint32_t *)(scales + (my_chunk + i * AT_ONCE) * scale_step) = word[i * ROWS + r];
            }
        }
        uint2 codes[ATTEND_WGMMA_CHUNKS];
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_CHUNKS; c++) {
            const int32_t lane = (threadIdx.x & ~3u) + attend_wgmma_chunk_of(c % AT_ONCE);
            codes[c] = attend_wgmma_codes(o, c * SUMS + 2 * r,
                                          __shfl_sync(~0u, mul[c / AT_ONCE * ROWS + r], lane));
        }
        attend_wgmma_codes_turn(&turner, codes, ATTEND_WGMMA_CHUNKS);
#pragma unroll
        for (int32_t c = 0; c < ATTEND_WGMMA_CHUNKS; c++) {
            *(uint2 *)(out + c * (permuted ? MMLA_HEADS_PER_GROUP * STEP : STEP)) = codes[c];
        }
    }
}

/* The first row with a scale for every four chunks. */
GPU_DEVICE void attend_wgmma_direct_wide(const attend_mma_params *p,
                                         const float o[ATTEND_WGMMA_SUMS],
                                         int64_t row,
                                         int32_t half,
                                         float factor) {
    enum { CHUNKS = MMLA_OUT_WIDE_DIM / MMLA_OUT_CHUNK_DIM, SUMS = ATTEND_WGMMA_CHUNK_SUMS };
    const attend_wgmma_turner turner = attend_wgmma_turner_get(threadIdx.x % 4);
    uint8_t *out =
        p->out + row * MMLA_LATENT_DIM + half * ATTEND_WGMMA_GROUP_DIMS + threadIdx.x % 4 * 8;
    float *scale = (float *)p->out_scale + row * (MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM) +
                   half * (ATTEND_WGMMA_GROUP_DIMS / MMLA_OUT_WIDE_DIM);
#pragma unroll
    for (int32_t first = 0; first < ATTEND_WGMMA_CHUNKS; first += CHUNKS) {
        const float amax = attend_wgmma_quad_max(attend_wgmma_amax(o, first * SUMS, CHUNKS * SUMS));
        const float s = fmaxf(MMLA_AMAX_FLOOR, amax * factor) / MMLA_E4M3_MAX;
        *scale++ = s; /* the same by four threads */
        const float mul = factor / s;
        uint2 codes[CHUNKS];
#pragma unroll
        for (int32_t c = 0; c < CHUNKS; c++) {
            codes[c] = attend_wgmma_codes(o, (first + c) * SUMS, mul);
        }
        attend_wgmma_codes_turn(&turner, codes, CHUNKS);
#pragma unroll
        for (int32_t c = 0; c < CHUNKS; c++) {
            *(uint2 *)out = codes[c];
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

/* A thread's sums to out. In the forms that are not for the projection both rows go through the same
 * code: the second row takes the first one's place. */
GPU_DEVICE void attend_wgmma_direct_store(const attend_mma_params *p,
                                          const attend_wgmma_task *task,
                                          float factor[2],
                                          float o[ATTEND_WGMMA_SUMS]) {
    const int32_t thread = threadIdx.x % ATTEND_WGMMA_GROUP;
    const int32_t half = threadIdx.x / ATTEND_WGMMA_GROUP;
    const int32_t first = thread / 32 * 16, head = task->first_head + first; /* of sixteen */
    const bool has_second = first + 8 < task->n_heads;
    if (first >= task->n_heads) {
        return;
    }
    if (p->out_form == MMLA_OUT_FP8_PERMUTED) {
        attend_wgmma_direct_fp8(p, task, o, head, half, factor, has_second, true);
        return;
    }
    if (p->out_form == MMLA_OUT_FP8) {
        attend_wgmma_direct_fp8(p, task, o, head, half, factor, has_second, false);
        return;
    }
#pragma unroll 1
    for (int32_t r = 0; r <= (int32_t)has_second; r++) {
        const int64_t row = task->token * p->n_heads + head + 8 * r + thread % 32 / 4;
        if (p->out_form == MMLA_OUT_BF16) {
            attend_wgmma_direct_bf16(p, o, row, half, factor[0]);
        } else {
            attend_wgmma_direct_wide(p, o, row, half, factor[0]);
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
