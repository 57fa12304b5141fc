/* gpu_probe_none.c - base/gpu_probe.h for a library built without CUDA: no device was opened. */
#include "base/gpu_probe.h"

mmla_status mmla_gpu_probe_load(const mmla_gpu *gpu, mmla_error *err) {
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_probe_code_get(const mmla_gpu *gpu, int32_t *capability, mmla_error *err) {
    (void)capability;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_probe_read(const mmla_gpu *gpu,
                                const void *memory,
                                size_t bytes,
                                void *sink,
                                void *stream,
                                mmla_error *err) {
    (void)memory;
    (void)bytes;
    (void)sink;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_probe_empty(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_probe_select(const mmla_gpu *gpu, mmla_error *err) {
    return mmla_gpu_open(gpu->index, NULL, err);
}
