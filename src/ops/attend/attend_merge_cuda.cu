/* attend_merge_cuda.cu - joins two partial results.
 *
 * PROBLEM    o = (a * out_a + b * out_b) * scale for every token and head, cast to the form asked for;
 *            weights from two lse and a sink (attend_merge_rule.h)
 *
 * BOUND      bytes: 2 * 1024 read and 512 + 16 written a head, 1.2 us for 16 tokens of 128 heads, 0.55 ns
 *            a head at 4.8 TB/s (H200)
 *
 * MOVEMENT   out_a, out_b --16 B a thread--> registers --weights, cast--> out (gpu/head_store.cuh)
 *
 * TILES      a warp a head, a block the 8 heads of a token's group; blocks stride over token * groups
 *
 * BUDGET     smem 256 B; 16 numbers of two parts a thread, some 64 registers
 *
 * BARRIERS   one a group (gpu_head_scales_store)
 *
 * NUMERICS   fp32 where the CPU has double: lse differs by a last bit or two, a weight by parts in 10^7.
 *            A part with weight 0 is not loaded.
 *
 * LIMITS     none beyond the description's: any number of tokens
 */
#include "gpu/head_store.cuh"
#include "ops/attend/attend_merge_cuda.h"
#include "ops/attend/attend_merge_rule.h"

/* weight times a thread's 16 numbers of a row; zeros, and nothing loaded, for the weight 0. */
static __device__ __forceinline__ void row_weigh(const uint16_t *row, float weight, float x[16]) {
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 words = make_uint4(0, 0, 0, 0);
        if (weight != 0.0f) {
            words = __ldg((const uint4 *)row + lane + 32 * half);
        }
        const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 pair = gpu_f32x2_from_bf16x2(pairs[i]);
            x[8 * half + 2 * i] = weight * pair.x;
            x[8 * half + 2 * i + 1] = weight * pair.y;
        }
    }
}

MMLA_KERNEL_BOUNDS(mmla_attend_merge_kernel, mmla_attend_merge_params, GPU_HEAD_THREADS, 2) {
    __shared__ uint32_t bytes[2][GPU_HEAD_SCALE_WORDS];
    const int32_t n_groups = p.to.n_heads / MMLA_HEADS_PER_GROUP;
    const int64_t n = p.n_tokens * n_groups;
    int32_t turn = 0;
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x, turn ^= 1) {
        const int64_t token = i / n_groups;
        const int32_t group = (int32_t)(i % n_groups);
        const int32_t head = group * MMLA_HEADS_PER_GROUP + threadIdx.x / 32;
        const int64_t row = token * p.to.n_heads + head;
        const mmla_merge_weights w =
            mmla_merge_weights_get(__ldg(p.lse_a + row), __ldg(p.lse_b + row),
                                   p.sink != NULL ? __ldg(p.sink + head) : -INFINITY);
        float o[16], b[16];
        row_weigh(p.out_a + row * MMLA_LATENT_DIM, w.a, o);
        row_weigh(p.out_b + row * MMLA_LATENT_DIM, w.b, b);
#pragma unroll
        for (int k = 0; k < 16; k++) {
            o[k] += b[k];
        }
        gpu_head_store(&p.to, token, head, o, w.scale, (uint8_t *)bytes[turn]);
        if (p.lse != NULL && threadIdx.x % 32 == 0) {
            p.lse[row] = w.lse;
        }
        gpu_head_scales_store(&p.to, token, group, (const uint8_t *)bytes[turn]);
    }
}
