/* kernel.h - declaring a kernel once for the .cu file that defines it and the .c file that launches
 * it.
 *
 *     typedef struct kv_insert_params { ... } kv_insert_params;        in kv_insert_cuda.h
 *     MMLA_KERNEL(kv_insert_cuda_kernel, kv_insert_params);
 *
 *     MMLA_KERNEL(kv_insert_cuda_kernel, kv_insert_params) { ... p.rows ... }      in the .cu file
 *
 * A kernel takes one struct, p, by value. For C the name is that of the host's stub, whose address
 * mmla_gpu_launch_run takes and which is never called.
 */
#ifndef MMLA_GPU_KERNEL_H
#define MMLA_GPU_KERNEL_H

#if defined(__CUDACC__)
#define MMLA_KERNEL(name, params) extern "C" __global__ void name(const __grid_constant__ params p)
/* The same with threads a block, and blocks a multiprocessor, fixed. */
#define MMLA_KERNEL_BOUNDS(name, params, threads, blocks)         \
    extern "C" __global__ void __launch_bounds__(threads, blocks) \
        name(const __grid_constant__ params p)
#else
#define MMLA_KERNEL(name, params) void name(params p)
#endif

#endif
