/* gpu.h - the CUDA device behind a context, for host code in C.
 *
 * The rest of the library sees a GPU through this file alone: what it is, its memory, and one way to
 * launch a kernel. gpu_cuda.c stands on the CUDA runtime; a library built without CUDA has
 * gpu_none.c, in which opening a device explains that and nothing else can be reached.
 *
 * Every function that touches the device leaves the calling thread's current device as it found it.
 */
#ifndef MMLA_BASE_GPU_H
#define MMLA_BASE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <megamla/status.h>

/* What an implementation may need of a GPU. One bit stands for all that its kernels are compiled
 * with. */
enum mmla_gpu_feature {
    MMLA_GPU_SM80 = 1 << 0, /* compute capability 8.0 or later: bf16 mma, cp.async */
    MMLA_GPU_SM90A = 1 << 1 /* exactly 9.0: wgmma, bulk copies, setmaxnreg */
};

/* A device, asked once per context. All zero for a context on the CPU. */
typedef struct mmla_gpu {
    int32_t index;
    uint32_t features;     /* enum mmla_gpu_feature */
    int32_t capability;    /* 90 for 9.0 */
    int32_t code;          /* the same of its kernels: less where the driver compiled PTX */
    int32_t n_sms;         /* multiprocessors */
    int32_t smem_bytes;    /* shared memory one block can have */
    int32_t sm_smem_bytes; /* shared memory of a multiprocessor */
    int64_t l2_bytes;
    bool has_early; /* launches may be early: kernels and driver know how, in graphs too */
} mmla_gpu;

/* Fills gpu, or says why the device cannot be used: MMLA_E_DEVICE. */
mmla_status mmla_gpu_open(int32_t index, mmla_gpu *gpu, mmla_error *err);

/* "compute capability 8.0 or later" and so on: the first feature of `needed` that `have` lacks, for
 * messages; "" when there is none. */
const char *mmla_gpu_missing(uint32_t needed, uint32_t have);

/* Loads a kernel and lets it have smem_bytes of dynamic shared memory. A plan does this at its
 * creation, because loading is not legal while a stream is captured. */
mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err);

/* The compute capability a loaded kernel was compiled for. */
mmla_status mmla_gpu_kernel_code_get(const mmla_gpu *gpu,
                                     const void *kernel,
                                     int32_t *capability,
                                     mmla_error *err);

/* A kernel is an extern "C" __global__ function that takes one struct (gpu/kernel.h). */
typedef struct mmla_gpu_launch {
    const void *kernel;
    uint32_t grid[3]; /* blocks; the second and third at most 65,535 */
    uint32_t block;   /* threads of a block */
    uint32_t smem_bytes;
    uint32_t cluster; /* blocks that run at the same time, from capability 9.0 on; 0: any */
    bool early;       /* it may begin before the launch before it has ended, and waits for that in
                         its kernel, before it touches memory unless the two may overlap
                         (gpu/order.cuh); without has_early it is one like any other */
} mmla_gpu_launch;

/* How many clusters of a launch run at the same time on an idle device, 0 when not even one does; of the
 * launch only grid is not looked at. How a device's multiprocessors are grouped decides it, and they are
 * not the same on all devices of a kind. The kernel is loaded. */
mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err);

/* Enqueues one launch on a stream, with a copy of *params. MMLA_E_LAUNCH with the runtime's code as
 * detail when it is refused. */
mmla_status mmla_gpu_launch_run(const mmla_gpu *gpu,
                                const mmla_gpu_launch *launch,
                                const void *params,
                                void *stream,
                                mmla_error *err);

/* Enqueues filling device memory with a byte. */
mmla_status mmla_gpu_fill(
    const mmla_gpu *gpu, void *memory, int value, size_t bytes, void *stream, mmla_error *err);

#endif
