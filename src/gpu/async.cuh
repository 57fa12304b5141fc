/* async.cuh - asking for global memory ahead of its use.
 *
 * PROBLEM    Copies to shared memory that do not pass through registers (cp.async): a thread
 *            starts some, closes them into groups in program order, and waits until at most n of
 *            its own groups are unfinished:
 *
 *                gpu_cp_async16(...); gpu_cp_async_commit();     a group, which may be empty
 *                gpu_cp_async_wait(1); __syncthreads();          all but the newest have landed
 *
 *            The wait is for the thread's own copies: others see them after a barrier that both
 *            pass. A shared buffer is overwritten only after such a barrier too.
 *
 * LIMITS     Compute capability 8.0. Both addresses are aligned to the size of the copy. Sixteen
 *            bytes bypass L1 (.cg), four and eight exist only through it (.ca).
 *
 * Every asm of gpu_cp_... and gpu_smem_... is volatile and clobbers memory: the compiler moves no
 * load or store of shared memory across it. Loads of global memory to registers (gpu_load...), of
 * what nobody writes meanwhile, and hints (gpu_prefetch_...) are volatile alone.
 */
#ifndef MMLA_GPU_ASYNC_CUH
#define MMLA_GPU_ASYNC_CUH

#include <stdint.h>

#define GPU_DEVICE static __device__ __forceinline__

/* The 32-bit address that instructions on shared memory take. */
GPU_DEVICE uint32_t gpu_smem_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Loads and stores at such an address. */
GPU_DEVICE uint4 gpu_smem_load16(uint32_t smem) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(smem)
                 : "memory");
    return x;
}

GPU_DEVICE uint32_t gpu_smem_load4(uint32_t smem) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(smem) : "memory");
    return x;
}

GPU_DEVICE void gpu_smem_store16(uint32_t smem, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}

GPU_DEVICE void gpu_smem_store4(uint32_t smem, uint32_t x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(smem), "r"(x) : "memory");
}

GPU_DEVICE void gpu_cp_async16(uint32_t smem, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem), "l"(global) : "memory");
}

GPU_DEVICE void gpu_cp_async4(uint32_t smem, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem), "l"(global) : "memory");
}

GPU_DEVICE void gpu_cp_async8(uint32_t smem, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(smem), "l"(global) : "memory");
}

/* The same, or zeros when not valid: the size of the source is then 0 and its address is not read,
 * whatever it is. */
GPU_DEVICE void gpu_cp_async16_zero(uint32_t smem, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

/* The same, or nothing when not valid. */
GPU_DEVICE void gpu_cp_async16_if(uint32_t smem, const void *global, bool valid) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %2, 0;\n"
                 "@p cp.async.cg.shared.global [%0], [%1], 16;\n"
                 "}" ::"r"(smem),
                 "l"(global), "r"((int32_t)valid)
                 : "memory");
}

/* Sixteen bytes of memory that nobody writes meanwhile into registers. Volatile, unlike __ldg: the
 * compiler keeps it where it stands, ahead of its use; the assembler may still delay it. */
GPU_DEVICE uint4 gpu_load16(const void *global) {
    uint4 x;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(global));
    return x;
}

/* Sixteen bytes, or zeros when not valid. */
GPU_DEVICE uint4 gpu_load16_or_zero(const void *global, bool valid) {
    uint4 x;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(global), "r"((int32_t)valid));
    return x;
}

/* The same of a stream, with a hint to bring all of the 128 bytes around them into L2. */
GPU_DEVICE uint4 gpu_load16_or_zero_stream(const void *global, bool valid) {
    uint4 x;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(global), "r"((int32_t)valid));
    return x;
}

/* Four bytes, two and one, through L1: neighbours have others of the same 32. */
GPU_DEVICE uint32_t gpu_load4(const void *global) {
    uint32_t x;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(global));
    return x;
}

GPU_DEVICE uint32_t gpu_load2(const void *global) {
    uint16_t x;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(x) : "l"(global));
    return x;
}

GPU_DEVICE uint32_t gpu_load1(const void *global) {
    uint32_t x;
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(x) : "l"(global));
    return x;
}

/* Brings the line of an address, which must be readable, into L1. */
GPU_DEVICE void gpu_prefetch_l1(const void *global) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(global));
}

/* Brings the line of an address, which must be readable, into L2. */
GPU_DEVICE void gpu_prefetch_l2_line(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/* The same for so many bytes; address and number are multiples of 16. Does nothing before 9.0. */
GPU_DEVICE void gpu_prefetch_l2(const void *global, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes));
#endif
}

/* Sixteen bytes or zeros, with a hint to bring all of the 128 bytes around them into L2: for a
 * stream of which a thread takes the next 64 bytes soon. */
GPU_DEVICE void gpu_cp_async16_zero_stream(uint32_t smem, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

/* Closes the thread's copies since the last call into a group; none is a group that is complete. */
GPU_DEVICE void gpu_cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most n of the thread's newest groups are unfinished. The instruction takes a constant,
 * so n is one, from 0 to 7, and the switch folds away. */
GPU_DEVICE void gpu_cp_async_wait(const int n) {
    switch (n) {
    case 1:
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        break;
    case 2:
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        break;
    case 3:
        asm volatile("cp.async.wait_group 3;" ::: "memory");
        break;
    case 4:
        asm volatile("cp.async.wait_group 4;" ::: "memory");
        break;
    case 5:
        asm volatile("cp.async.wait_group 5;" ::: "memory");
        break;
    case 6:
        asm volatile("cp.async.wait_group 6;" ::: "memory");
        break;
    case 7:
        asm volatile("cp.async.wait_group 7;" ::: "memory");
        break;
    default: /* 0, and whatever is no such constant: waiting for all is always right */
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        break;
    }
}

/* Until all of the thread's copies are finished, committed or not. */
GPU_DEVICE void gpu_cp_async_wait_all(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#undef GPU_DEVICE

#endif
