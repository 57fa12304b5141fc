/* barrier.cuh - barriers of some of a CTA's warps, and barriers that lie in shared memory
 * (mbarrier).
 *
 * PROBLEM    gpu_warps_sync(i, n), gpu_warps_sync_any: all n threads that call them with the same i
 *            meet there.
 *            gpu_cluster_...: reading and writing the shared memory of another CTA of the cluster.
 *
 *            gpu_barrier_...: eight bytes of shared memory count arrivals. Its phase ends with the
 *            last one, and the next begins; a waiter names the parity of the phase it waits for, 0
 *            for the first. Waiting for parity 1 before any phase has ended returns at once. What a
 *            thread wrote before it arrived is seen by those whose wait returned.
 *
 * LIMITS     gpu_warps_sync: i from 1 to 15, n a multiple of 32. gpu_barrier_...: a phase must not
 *            end before all who wait for the one before have seen that, or by its parity they would
 *            wait on; code compiled for 9.0 or later, in other code they do nothing and must not be
 *            reached.
 */
#ifndef MMLA_GPU_BARRIER_CUH
#define MMLA_GPU_BARRIER_CUH

#include <stdint.h>

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE void gpu_warps_sync(const int32_t i, const int32_t n) {
    asm volatile("bar.sync %0, %1;" ::"r"(i), "r"(n) : "memory");
}

/* The same, and whether any of them asked. */
GPU_DEVICE bool gpu_warps_sync_any(const int32_t i, const int32_t n, bool asks) {
    int32_t any;
    asm volatile("{\n"
                 ".reg .pred asks, any;\n"
                 "setp.ne.b32 asks, %3, 0;\n"
                 "barrier.cta.red.or.pred any, %1, %2, asks;\n"
                 "selp.b32 %0, 1, 0, any;\n"
                 "}"
                 : "=r"(any)
                 : "r"(i), "r"(n), "r"((int32_t)asks)
                 : "memory");
    return any != 0;
}

/* By one thread, before gpu_barrier_inits_publish. */
GPU_DEVICE void gpu_barrier_init(uint32_t barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
#endif
}

/* By the same thread; others may use the barriers after a barrier of the cluster. */
GPU_DEVICE void gpu_barrier_inits_publish(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

GPU_DEVICE void gpu_barrier_arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

/* The same on a condition, without a branch: at one the compiler waits for matrix instructions. */
GPU_DEVICE void gpu_barrier_arrive_if(uint32_t barrier, bool arrives) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred arrives;\n"
                 "setp.ne.b32 arrives, %1, 0;\n"
                 "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(barrier),
                 "r"((int32_t)arrives)
                 : "memory");
#endif
}

/* The address of the same place in CTA `rank` of the cluster. */
GPU_DEVICE uint32_t gpu_cluster_address(uint32_t smem, uint32_t rank) {
    uint32_t address = smem;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem), "r"(rank));
#endif
    return address;
}

/* An arrival at a barrier of a CTA of the cluster (gpu_cluster_address). It says only that something
 * was read. For the other CTA to see what was written before, it would need release at the scope of
 * the cluster, which waits for all writes under way. */
GPU_DEVICE void gpu_cluster_arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

/* The same on a condition, without a branch, as gpu_barrier_arrive_if. */
GPU_DEVICE void gpu_cluster_arrive_if(uint32_t barrier, bool arrives) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred arrives;\n"
                 "setp.ne.b32 arrives, %1, 0;\n"
                 "@arrives mbarrier.arrive.shared::cluster.b64 _, [%0];\n"
                 "}" ::"r"(barrier),
                 "r"((int32_t)arrives)
                 : "memory");
#endif
}

/* An arrival that says how many bytes copies will add to the phase, which does not end without
 * them; they may have come already. */
GPU_DEVICE void gpu_barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

/* An arrival, counted as any other, that comes when all cp.async of the thread so far have
 * landed. */
GPU_DEVICE void gpu_barrier_arrive_cp_async(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}

/* Bytes of the own shared memory to another CTA's, where they are counted at a barrier of that CTA;
 * `to` and `barrier` are addresses of the cluster. All are multiples of 16 but the barrier's. What
 * generic instructions wrote there before is behind a gpu_fence_async. */
GPU_DEVICE void gpu_cluster_copy(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#endif
}

/* Bytes of global memory, which nobody writes meanwhile, to the same place in the shared memory of each CTA of the
 * cluster whose bit is set, and counted there at the barrier of the same place. All are multiples of 16 but the
 * barrier's. */
GPU_DEVICE void gpu_bulk_load_shared(
    uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint16_t ctas) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"(ctas)
        : "memory");
#endif
}

/* Without a time to sleep: who may sleep is back 50 cycles later (src/ops/project/README.md). */
GPU_DEVICE void gpu_barrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#endif
}

/* A load from the shared memory of a CTA of the cluster (gpu_cluster_address). */
GPU_DEVICE float4 gpu_cluster_load4(uint32_t address) {
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
#endif
    return x;
}

/* A store to it, which others see after a barrier of the cluster. */
GPU_DEVICE void gpu_cluster_store2(uint32_t address, float2 x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x.x), "f"(x.y)
                 : "memory");
#endif
}
GPU_DEVICE void gpu_cluster_store(uint32_t address, int32_t x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
#endif
}

GPU_DEVICE int32_t gpu_cluster_load(uint32_t address) {
    int32_t x = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(x) : "r"(address));
#endif
    return x;
}

#undef GPU_DEVICE

#endif
