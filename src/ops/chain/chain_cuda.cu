/* chain_cuda.cu - the steps of the chain that go element by element: q rotated, the result rotated back,
 * the result cast.
 *
 * PROBLEM    chain_rope.c and chain_quantise.c have the definition; the bytes are theirs
 *
 * BOUND      bytes, of a token with H heads: ROPE_Q 2048 H, UNROPE 256 H, QUANTISE 1024 H + 528 H. 64
 *            heads and 8192 tokens: 0.22, 0.03 and 0.17 ms at 4.8 TB/s (H200)
 *
 * MOVEMENT   ROPE_Q    q, standard or fused --16 B a thread--> turn pairs of dims 448 .. 511 --> q'
 *            UNROPE    dims 448 .. 511 of o --16 B a thread--> turn back --> the same place
 *            QUANTISE  o --16 B a thread--> codes and scales (gpu/head_store.cuh)
 *
 * TILES      ROPE_Q, QUANTISE: a warp a head, a block the 8 heads of a token's group. In the fused layout
 *            of q a head's numbers lie in pieces of 32 bytes, and those of the block's heads side by side.
 *            UNROPE: eight threads a head, a block 32 heads. Blocks stride over what is left.
 *
 * BUDGET     registers: 8 numbers or 16 and an angle each; smem 256 B in QUANTISE
 *
 * NUMERICS   num/rope.h in fp32, rounded to bf16 once; every other number of q is copied bit by bit
 *
 * LIMITS     any positions: outside the table a token's q' is NaN, its o is left as it is, and ROPE_Q
 *            counts the token once
 */
#include "gpu/head_store.cuh"
#include "num/bf16.h"
#include "num/rope.h"
#include "ops/chain/chain_cuda.h"

#define DEVICE static __device__ __forceinline__

/* The token's row of the table, or NULL. */
DEVICE const float *angles_of(const mmla_chain_params *p, int64_t token) {
    const int64_t position = __ldg(p->positions + token);
    return position >= 0 && position < p->rope_positions ? p->cos_sin + position * MMLA_ROPE_DIM
                                                         : NULL;
}

/* Four adjacent pairs, the first of which is number `first` of 32, turned by their angles. */
DEVICE uint4 pairs_turn(uint4 pairs, const float *angles, int32_t first, const bool back) {
    uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float c = __ldg(angles + first + i);
        const float s = __ldg(angles + MMLA_ROPE_DIM / 2 + first + i);
        float2 x = gpu_f32x2_from_bf16x2(words[i]);
        if (back) {
            mmla_rope_rotate_back(c, s, &x.x, &x.y);
        } else {
            mmla_rope_rotate(c, s, &x.x, &x.y);
        }
        words[i] = gpu_bf16x2_from_f32x2(x.x, x.y);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

MMLA_KERNEL_BOUNDS(mmla_chain_rope_q_kernel, mmla_chain_params, GPU_HEAD_THREADS, 4) {
    const int32_t n_groups = p.n_heads / MMLA_HEADS_PER_GROUP, lane = threadIdx.x % 32;
    const int64_t n = p.n_tokens * n_groups;
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        const int64_t token = i / n_groups;
        const int32_t head = (int32_t)(i % n_groups) * MMLA_HEADS_PER_GROUP + threadIdx.x / 32;
        const float *angles = angles_of(&p, token);
        const uint16_t *q = p.q + token * p.q_token_stride;
        uint16_t *to = p.rotated + (token * p.n_heads + head) * MMLA_LATENT_DIM;
        if (angles == NULL && i % n_groups == 0 && threadIdx.x == 0 && p.n_faults != NULL) {
            atomicAdd(p.n_faults, 1);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int32_t dim = gpu_head_dim(lane, MMLA_CHAIN_THREAD_DIMS * half);
            const uint32_t nan = MMLA_BF16_NAN * 0x10001u;
            uint4 x = make_uint4(nan, nan, nan, nan);
            if (angles != NULL) {
                x = __ldg((const uint4 *)(q + mmla_q_index(p.q_layout, p.n_heads, head, dim)));
                if (dim >= MMLA_CHAIN_NOPE_DIM) {
                    x = pairs_turn(x, angles, mmla_chain_first_pair(dim), false);
                }
            }
            *(uint4 *)(to + dim) = x;
        }
    }
}

MMLA_KERNEL_BOUNDS(mmla_chain_unrope_kernel, mmla_chain_params, GPU_HEAD_THREADS, 4) {
    const int32_t part = threadIdx.x % MMLA_CHAIN_ROPE_THREADS;
    const int32_t dim = MMLA_CHAIN_NOPE_DIM + part * MMLA_CHAIN_THREAD_DIMS;
    const int64_t n = p.n_tokens * p.n_heads;
    const int64_t stride = (int64_t)gridDim.x * MMLA_CHAIN_UNROPE_HEADS;
    for (int64_t row =
             (int64_t)blockIdx.x * MMLA_CHAIN_UNROPE_HEADS + threadIdx.x / MMLA_CHAIN_ROPE_THREADS;
         row < n; row += stride) {
        const float *angles = angles_of(&p, row / p.n_heads);
        if (angles != NULL) { /* else it is NaN and stays so */
            uint4 *at = (uint4 *)(p.o + row * MMLA_LATENT_DIM + dim);
            *at = pairs_turn(*at, angles, mmla_chain_first_pair(dim), true);
        }
    }
}

MMLA_KERNEL_BOUNDS(mmla_chain_quantise_kernel, mmla_chain_params, GPU_HEAD_THREADS, 4) {
    __shared__ uint32_t bytes[2][GPU_HEAD_SCALE_WORDS];
    const int32_t n_groups = p.n_heads / MMLA_HEADS_PER_GROUP, lane = threadIdx.x % 32;
    const int64_t n = p.n_tokens * n_groups;
    int32_t turn = 0;
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x, turn ^= 1) {
        const int64_t token = i / n_groups;
        const int32_t group = (int32_t)(i % n_groups);
        const int32_t head = group * MMLA_HEADS_PER_GROUP + threadIdx.x / 32;
        const uint4 *from =
            (const uint4 *)(p.o + (token * p.n_heads + head) * MMLA_LATENT_DIM) + lane;
        float o[16];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 x = __ldg(from + 32 * half);
            const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float2 pair = gpu_f32x2_from_bf16x2(words[k]);
                o[8 * half + 2 * k] = pair.x;
                o[8 * half + 2 * k + 1] = pair.y;
            }
        }
        /* Normalised already, so the quantisers multiply by 1. */
        gpu_head_store(&p.to, token, head, o, 1.0f, (uint8_t *)bytes[turn]);
        gpu_head_scales_store(&p.to, token, group, (const uint8_t *)bytes[turn]);
    }
}
