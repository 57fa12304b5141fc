/* cluster.cuh - CTAs that run at the same time (thread block clusters).
 *
 * LIMITS     Code compiled for capability 9.0 or later (mmla_gpu.code); in other code what is here
 *            does nothing and must not be reached.
 */
#ifndef MMLA_GPU_CLUSTER_CUH
#define MMLA_GPU_CLUSTER_CUH

#include <stdint.h>

/* A barrier of all threads of the cluster that have not exited: what they wrote before, to global
 * memory too, is seen after. */
static __device__ __forceinline__ void gpu_cluster_sync(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}

/* The same in two: what was written before the first by any is seen by all after the second. */
static __device__ __forceinline__ void gpu_cluster_sync_begin(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void gpu_cluster_sync_end(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The first of the two when it says only that something was read, or that barriers exist (gpu_barrier_inits_publish):
 * nothing that was written before is waited for, which takes some 600 cycles. */
static __device__ __forceinline__ void gpu_cluster_sync_begin_read(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

/* Which cluster of the grid this CTA is in, of how many, how many CTAs it has, and the number of
 * this one. A launch without clusters has clusters of one. Volatile, so that nobody keeps a
 * register for what can be asked again. */
static __device__ __forceinline__ uint32_t gpu_cluster_number(void) {
    uint32_t x = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(x));
#endif
    return x;
}

static __device__ __forceinline__ uint32_t gpu_n_clusters(void) {
    uint32_t x = 1;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(x));
#endif
    return x;
}

static __device__ __forceinline__ int32_t gpu_cluster_size(void) {
    int32_t x = 1;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(x));
#endif
    return x;
}

static __device__ __forceinline__ uint32_t gpu_cluster_rank(void) {
    uint32_t x = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
#endif
    return x;
}

#endif
