/* gpu_none.c - base/gpu.h for a library built without CUDA. */
#include "base/error.h"
#include "base/gpu.h"

mmla_status mmla_gpu_open(int32_t index, mmla_gpu *gpu, mmla_error *err) {
    (void)gpu;
    return mmla_error_set(err, MMLA_E_DEVICE, "device",
                          "is CUDA device %d, but this library was built without CUDA", (int)index);
}

const char *mmla_gpu_missing(uint32_t needed, uint32_t have) {
    (void)needed;
    (void)have;
    return "this library was built without CUDA";
}

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    (void)kernel;
    (void)smem_bytes;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_kernel_code_get(const mmla_gpu *gpu,
                                     const void *kernel,
                                     int32_t *capability,
                                     mmla_error *err) {
    (void)kernel;
    (void)capability;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err) {
    (void)launch;
    (void)n;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_launch_run(const mmla_gpu *gpu,
                                const mmla_gpu_launch *launch,
                                const void *params,
                                void *stream,
                                mmla_error *err) {
    (void)launch;
    (void)params;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_fill(
    const mmla_gpu *gpu, void *memory, int value, size_t bytes, void *stream, mmla_error *err) {
    (void)memory;
    (void)value;
    (void)bytes;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}
