/* gpu_probe.h - what a GPU can do at most, for benchmarks: reading memory, and launching nothing.
 *
 * The copy inside device memory, another ceiling, is mmla_gpu_copy. The kernels are in src/gpu; like
 * base/gpu.h there is a version for a library without CUDA.
 */
#ifndef MMLA_BASE_GPU_PROBE_H
#define MMLA_BASE_GPU_PROBE_H

#include "base/gpu.h"

/* Loads both kernels, which is not legal while a stream is captured. */
mmla_status mmla_gpu_probe_load(const mmla_gpu *gpu, mmla_error *err);

/* The compute capability both were compiled for, once they are loaded. */
mmla_status mmla_gpu_probe_code_get(const mmla_gpu *gpu, int32_t *capability, mmla_error *err);

/* Enqueues reading `bytes` of device memory, 16-byte aligned and a multiple of 16. `sink` is four
 * bytes of device memory that are not written. */
mmla_status mmla_gpu_probe_read(const mmla_gpu *gpu,
                                const void *memory,
                                size_t bytes,
                                void *sink,
                                void *stream,
                                mmla_error *err);

/* Enqueues a kernel of one block that does nothing. */
mmla_status mmla_gpu_probe_empty(const mmla_gpu *gpu, void *stream, mmla_error *err);

/* Makes gpu the calling thread's current device and leaves it so: for another library, cuBLAS, that
 * works on whichever that is. */
mmla_status mmla_gpu_probe_select(const mmla_gpu *gpu, mmla_error *err);

#endif
