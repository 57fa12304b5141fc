/* gpu_probe_cuda.h - parameters of the kernels behind base/gpu_probe.h. */
#ifndef MMLA_GPU_GPU_PROBE_CUDA_H
#define MMLA_GPU_GPU_PROBE_CUDA_H

#include <stdint.h>

#include "gpu/kernel.h"

enum {
    GPU_PROBE_THREADS = 512,
    GPU_PROBE_BLOCKS = 2, /* of a multiprocessor */
    GPU_PROBE_LOADS = 8   /* in flight at once, of 16 bytes each */
};

typedef struct gpu_probe_read_params {
    const void *from;
    int64_t n; /* pieces of 16 bytes */
    uint32_t *sink;
} gpu_probe_read_params;

typedef struct gpu_probe_empty_params {
    int32_t nothing;
} gpu_probe_empty_params;

MMLA_KERNEL(gpu_probe_read_kernel, gpu_probe_read_params);
MMLA_KERNEL(gpu_probe_empty_kernel, gpu_probe_empty_params);

#endif
