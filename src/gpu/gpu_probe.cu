/* gpu_probe.cu - the two kernels of base/gpu_probe.h: one reads memory, one does nothing.
 *
 * PROBLEM    the most that device memory gives to loads, and the least that a launch costs
 * BOUND      bytes: the ceiling that other kernels are held against, so nothing but loads
 * MOVEMENT   device memory -> registers, 16 bytes a thread and load, neighbours side by side
 * TILES      none: a grid of n_sms * GPU_PROBE_BLOCKS blocks strides over all pieces
 * BUDGET     GPU_PROBE_LOADS pieces of 4 registers, and 2 blocks of 512 threads leave 64; 128 KiB in
 *            flight in a multiprocessor, several times what its share of the bandwidth times the
 *            latency of a load asks for
 * NUMERICS   the exclusive or of all words; written only when it is a value that memory filled by
 *            chance does not give, which the compiler cannot know
 * LIMITS     16-byte aligned, whole pieces; any number of them
 */
#include "gpu/gpu_probe_cuda.h"

enum { UNLIKELY = 0x6D6C6121 };

static_assert(GPU_PROBE_THREADS * GPU_PROBE_BLOCKS <= 1536,
              "threads of a multiprocessor, of which consumer GPUs have the fewest");

static __device__ uint32_t folded(uint4 x) {
    return x.x ^ x.y ^ x.z ^ x.w;
}

MMLA_KERNEL_BOUNDS(gpu_probe_read_kernel,
                   gpu_probe_read_params,
                   GPU_PROBE_THREADS,
                   GPU_PROBE_BLOCKS) {
    const uint4 *const from = (const uint4 *)p.from;
    const int64_t stride = (int64_t)gridDim.x * GPU_PROBE_THREADS;
    int64_t i = (int64_t)blockIdx.x * GPU_PROBE_THREADS + threadIdx.x;
    uint32_t seen = 0;
    for (; i + (GPU_PROBE_LOADS - 1) * stride < p.n; i += GPU_PROBE_LOADS * stride) {
        uint4 x[GPU_PROBE_LOADS];
#pragma unroll
        for (int k = 0; k < GPU_PROBE_LOADS; k++) {
            x[k] = __ldcs(from + i + k * stride); /* nothing is read twice */
        }
#pragma unroll
        for (int k = 0; k < GPU_PROBE_LOADS; k++) {
            seen ^= folded(x[k]);
        }
    }
    for (; i < p.n; i += stride) {
        seen ^= folded(__ldcs(from + i));
    }
    if (seen == UNLIKELY) {
        *p.sink = seen;
    }
}

MMLA_KERNEL(gpu_probe_empty_kernel, gpu_probe_empty_params) {
}
