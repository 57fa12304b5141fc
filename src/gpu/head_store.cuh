/* head_store.cuh - one head's finished row, spread over a warp, to the output form a caller wants.
 *
 * PROBLEM    mmla_attend_store_head of kv/attend_output.h, which draws the forms, for 8 heads at once:
 *            a block of 256 threads has one token's group of 8 heads, a warp each. The bytes are the
 *            same for equal numbers.
 *
 * MOVEMENT   thread l of a warp holds dims 8 l .. 8 l + 7 and 256 + 8 l .. 256 + 8 l + 7: two 16-byte
 *            loads of bf16 that 32 threads make without a gap, and two stores of 8 codes that fill
 *            sectors of 32 bytes in every form
 *            a chunk of 32 dims is 4 neighbours' first or second half, one of 128 is 16 neighbours'
 *            scale bytes --> smem --> 32 words, a thread of one warp each: the packed scales of a
 *            token lie a word stride apart, where single bytes would cost four times the stores
 *
 * BUDGET     smem 2 * 128 B, in turns, so that one barrier a group is enough
 *
 * NUMERICS   num/quant.h, but for the maximum, which is over threads and has no order
 */
#ifndef MMLA_GPU_HEAD_STORE_CUH
#define MMLA_GPU_HEAD_STORE_CUH

#include "gpu/convert.cuh"
#include "gpu/head_store.h"
#include "num/quant.h"

#define GPU_DEVICE static __device__ __forceinline__

/* Largest magnitude over 2^log2 neighbouring threads' eight numbers, NaN ignored. */
GPU_DEVICE float gpu_head_amax(const float *o, const int log2) {
    float amax = mmla_quant_amax(o, 8);
#pragma unroll
    for (int i = 0; i < log2; i++) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, amax, 1 << i);
        amax = other > amax ? other : amax;
    }
    return amax;
}

/* Eight codes of o * mul to out, which is aligned to 8 bytes. */
GPU_DEVICE void gpu_head_codes_store(uint8_t *out, const float *o, float mul) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = gpu_e4m3x2_from_f32x2(o[2 * i] * mul, o[2 * i + 1] * mul);
    }
    *(uint2 *)out = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/* A head's row times `scale`. o is the thread's 16 numbers; bytes is the block's, of this turn. */
GPU_DEVICE void gpu_head_store(const gpu_head_out *to,
                               int64_t token,
                               int32_t head,
                               const float o[16],
                               float scale,
                               uint8_t *bytes) {
    const int32_t lane = threadIdx.x % 32;
    const int64_t row = token * to->n_heads + head;
    if (to->form == MMLA_OUT_BF16) {
        uint4 *out = (uint4 *)((uint16_t *)to->out + row * MMLA_LATENT_DIM);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *x = o + 8 * half;
            out[lane + 32 * half] = make_uint4(gpu_bf16x2_from_f32x2(x[0] * scale, x[1] * scale),
                                               gpu_bf16x2_from_f32x2(x[2] * scale, x[3] * scale),
                                               gpu_bf16x2_from_f32x2(x[4] * scale, x[5] * scale),
                                               gpu_bf16x2_from_f32x2(x[6] * scale, x[7] * scale));
        }
        return;
    }
    uint8_t *out = (uint8_t *)to->out;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t dim = gpu_head_dim(lane, 8 * half);
        if (to->form == MMLA_OUT_FP8_128) {
            const float amax = gpu_head_amax(o + 8 * half, 4);
            const float s = fmaxf(MMLA_AMAX_FLOOR, amax * scale) / MMLA_E4M3_MAX;
            gpu_head_codes_store(out + row * MMLA_LATENT_DIM + dim, o + 8 * half, scale / s);
            if (lane % 16 == 0) {
                ((float *)to->out_scale)[row * 4 + dim / MMLA_OUT_WIDE_DIM] = s;
            }
            continue;
        }
        const float amax = gpu_head_amax(o + 8 * half, 2);
        const uint8_t byte = mmla_quant_out_byte(fmaxf(MMLA_AMAX_FLOOR, amax * scale));
        const int64_t at =
            to->form == MMLA_OUT_FP8_PERMUTED
                ? token * to->n_heads * MMLA_LATENT_DIM + mmla_out_permuted_index(head, dim)
                : row * MMLA_LATENT_DIM + dim;
        gpu_head_codes_store(out + at, o + 8 * half, scale * mmla_ue8m0_inverse(byte));
        if (lane % 4 == 0) {
            bytes[gpu_head_scale_place(to->form, head, dim / MMLA_OUT_CHUNK_DIM)] = byte;
        }
    }
}

/* The group's scale bytes from shared memory to where they belong. Called by all threads, after all
 * warps have stored their head; `bytes` may be written again after the barrier of the next turn. */
GPU_DEVICE void
gpu_head_scales_store(const gpu_head_out *to, int64_t token, int32_t group, const uint8_t *bytes) {
    if (to->form != MMLA_OUT_FP8_PERMUTED && to->form != MMLA_OUT_FP8) {
        return;
    }
    __syncthreads();
    if (threadIdx.x < GPU_HEAD_SCALE_WORDS) {
        const int32_t word = threadIdx.x;
        *(uint32_t *)((uint8_t *)to->out_scale + gpu_head_scale_word_off(to, token, group, word)) =
            ((const uint32_t *)bytes)[word];
    }
}

#undef GPU_DEVICE

#endif
