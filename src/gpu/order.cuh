/* order.cuh - launches that begin before the one before them in their stream has ended
 * (mmla_gpu_launch.early).
 *
 * RULE       A kernel that is launched early calls gpu_wait_for_before before it ends, or the launch
 *            behind it may begin before the one ahead has ended.
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

#endif
