/* order.cuh - launches that begin before the one before them in their stream has ended
 * (mmla_gpu_launch.early).
 *
 * PROBLEM    A kernel that is launched early may have its blocks on their multiprocessors, and its barriers, addresses
 *            and first instructions done, when the launch before ends. Calls in a row gain 0.3 to 0.8 us each.
 *
 * RULE       A kernel that is launched early calls gpu_begin, with every thread that touches global memory, before it
 *            does; or, where it may overlap the launch before, gpu_wait_for_before before it ends, or the launch behind
 *            it may begin before the one ahead has ended.
 *
 * WHICH      Kernels whose blocks have a multiprocessor each, and those of many small blocks. Blocks of which a few fit
 *            on one, and clusters of them, are placed unevenly while others are still there: the split kernels of
 *            project took up to 1.7 us longer, lists of 256 tokens 1.1.
 *
 * LIMITS     Code compiled for capability 9.0 or later. In other code what is here does nothing, and
 *            launches begin when those before have ended.
 */
#ifndef MMLA_GPU_ORDER_CUH
#define MMLA_GPU_ORDER_CUH

/* When all blocks have come here or ended, the next launch of the stream may begin, if it is an early
 * one. */
static __device__ __forceinline__ void gpu_let_next_begin(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Returns when all launches before have ended and what they wrote is seen. */
static __device__ __forceinline__ void gpu_wait_for_before(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* How a kernel begins that is launched early, when it has done what touches no global memory: beside the launch before
 * where that is allowed, behind it otherwise. One that overlapped it waits at its end. */
static __device__ __forceinline__ void gpu_begin(bool overlaps) {
    if (!overlaps) {
        gpu_wait_for_before();
    }
    gpu_let_next_begin();
}

#endif
