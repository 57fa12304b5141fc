#include "base/gpu_probe.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "gpu/gpu_probe_cuda.h"

enum { PIECE_BYTES = 16 };

mmla_status mmla_gpu_probe_load(const mmla_gpu *gpu, mmla_error *err) {
    const mmla_status status =
        mmla_gpu_kernel_load(gpu, (const void *)gpu_probe_read_kernel, 0, err);
    return status != MMLA_OK
               ? status
               : mmla_gpu_kernel_load(gpu, (const void *)gpu_probe_empty_kernel, 0, err);
}

mmla_status mmla_gpu_probe_code_get(const mmla_gpu *gpu, int32_t *capability, mmla_error *err) {
    return mmla_gpu_kernel_code_get(gpu, (const void *)gpu_probe_read_kernel, capability, err);
}

mmla_status mmla_gpu_probe_read(const mmla_gpu *gpu,
                                const void *memory,
                                size_t bytes,
                                void *sink,
                                void *stream,
                                mmla_error *err) {
    const gpu_probe_read_params p = {
        .from = memory, .n = (int64_t)(bytes / PIECE_BYTES), .sink = sink};
    const mmla_gpu_launch launch = {.kernel = (const void *)gpu_probe_read_kernel,
                                    .grid = {(uint32_t)gpu->n_sms * GPU_PROBE_BLOCKS, 1, 1},
                                    .block = GPU_PROBE_THREADS};
    return mmla_gpu_launch_run(gpu, &launch, &p, stream, err);
}

mmla_status mmla_gpu_probe_empty(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    const gpu_probe_empty_params p = {0};
    const mmla_gpu_launch launch = {
        .kernel = (const void *)gpu_probe_empty_kernel, .grid = {1, 1, 1}, .block = 32};
    return mmla_gpu_launch_run(gpu, &launch, &p, stream, err);
}

mmla_status mmla_gpu_probe_select(const mmla_gpu *gpu, mmla_error *err) {
    const cudaError_t e = cudaSetDevice(gpu->index);
    return e == cudaSuccess ? MMLA_OK
                            : mmla_error_set(err, MMLA_E_DEVICE, "device",
                                             "cannot be made current: %s", cudaGetErrorString(e));
}
