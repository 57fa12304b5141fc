/* cluster.cuh - CTAs that run at the same time (thread block clusters).
 *
 * LIMITS     Code compiled for capability 9.0 or later (mmla_gpu.code); in other code what is here does
 *            nothing and must not be reached.
 */
#ifndef MMLA_GPU_CLUSTER_CUH
#define MMLA_GPU_CLUSTER_CUH

/* A barrier of all threads of the cluster: what they wrote before, to global memory too, is seen
 * after. */
static __device__ __forceinline__ void gpu_cluster_sync(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}

#endif
