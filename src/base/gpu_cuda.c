/* gpu_cuda.c - base/gpu.h over the CUDA runtime, which is linked statically and looks for the driver
 * when it is first asked something: without a driver the library loads, and opening fails. */
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "base/gpu.h"

static mmla_status
failed(mmla_error *err, mmla_status status, const char *argument, const char *what, cudaError_t e) {
    mmla_error_set(err, status, argument, "%s: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
    if (err != NULL) {
        err->detail = (int64_t)e;
    }
    return status;
}

/* Makes gpu the thread's device; *before is what to give to leave(). */
static cudaError_t enter(const mmla_gpu *gpu, int *before) {
    const cudaError_t e = cudaGetDevice(before);
    return e != cudaSuccess || *before == gpu->index ? e : cudaSetDevice(gpu->index);
}

static void leave(const mmla_gpu *gpu, int before) {
    if (before != gpu->index) {
        cudaSetDevice(before);
    }
}

static uint32_t features_of(int32_t capability) {
    return (capability >= 80 ? MMLA_GPU_SM80 : 0u) | (capability == 90 ? MMLA_GPU_SM90A : 0u);
}

static cudaError_t
attribute(int32_t index, enum cudaDeviceAttr which, int32_t *value, cudaError_t before) {
    return before != cudaSuccess ? before : cudaDeviceGetAttribute(value, which, index);
}

mmla_status mmla_gpu_open(int32_t index, mmla_gpu *gpu, mmla_error *err) {
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "is a CUDA device, and there is none", e);
    }
    if (index < 0 || index >= n) {
        return mmla_error_set(err, MMLA_E_DEVICE, "device.index",
                              "is %d, must be 0 .. %d: this machine has %d CUDA device%s",
                              (int)index, n - 1, n, n == 1 ? "" : "s");
    }
    int32_t major = 0, minor = 0, l2 = 0;
    mmla_gpu g = {.index = index};
    e = attribute(index, cudaDevAttrComputeCapabilityMajor, &major, e);
    e = attribute(index, cudaDevAttrComputeCapabilityMinor, &minor, e);
    e = attribute(index, cudaDevAttrMultiProcessorCount, &g.n_sms, e);
    e = attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin, &g.smem_bytes, e);
    e = attribute(index, cudaDevAttrMaxSharedMemoryPerMultiprocessor, &g.sm_smem_bytes, e);
    e = attribute(index, cudaDevAttrL2CacheSize, &l2, e);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "does not tell its properties", e);
    }
    g.capability = 10 * major + minor;
    g.features = features_of(g.capability);
    g.l2_bytes = l2;
    const char *missing = mmla_gpu_missing(MMLA_GPU_SM80, g.features);
    if (missing[0] != '\0') {
        return mmla_error_set(err, MMLA_E_DEVICE, "device",
                              "is CUDA device %d of compute capability %d.%d, must have %s",
                              (int)index, (int)major, (int)minor, missing);
    }
    *gpu = g;
    return MMLA_OK;
}

const char *mmla_gpu_missing(uint32_t needed, uint32_t have) {
    const uint32_t lacking = needed & ~have;
    if (lacking & MMLA_GPU_SM80) {
        return "compute capability 8.0 or later";
    }
    return lacking & MMLA_GPU_SM90A ? "compute capability 9.0 (Hopper)" : "";
}

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    int before;
    cudaError_t e = enter(gpu, &before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "cannot be made current", e);
    }
    struct cudaFuncAttributes attributes; /* asking for them is what loads the kernel */
    e = cudaFuncGetAttributes(&attributes, kernel);
    if (e == cudaSuccess && smem_bytes > attributes.maxDynamicSharedSizeBytes) {
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    }
    leave(gpu, before);
    return e == cudaSuccess ? MMLA_OK
                            : failed(err, MMLA_E_DEVICE, "device", "does not load the kernel", e);
}

mmla_status mmla_gpu_launch_run(const mmla_gpu *gpu,
                                const mmla_gpu_launch *launch,
                                const void *params,
                                void *stream,
                                mmla_error *err) {
    int before;
    cudaError_t e = enter(gpu, &before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_LAUNCH, "stream", "its device cannot be made current", e);
    }
    /* The runtime copies what the pointer leads to and does not write there. */
    void *arguments[1] = {(void *)(uintptr_t)params};
    const dim3 grid = {launch->grid[0], launch->grid[1], launch->grid[2]};
    const dim3 block = {launch->block, 1, 1};
    e = cudaLaunchKernel(launch->kernel, grid, block, arguments, launch->smem_bytes,
                         (cudaStream_t)stream);
    leave(gpu, before);
    return e == cudaSuccess ? MMLA_OK
                            : failed(err, MMLA_E_LAUNCH, "stream", "refused the launch", e);
}

mmla_status mmla_gpu_fill(
    const mmla_gpu *gpu, void *memory, int value, size_t bytes, void *stream, mmla_error *err) {
    int before;
    cudaError_t e = enter(gpu, &before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_LAUNCH, "stream", "its device cannot be made current", e);
    }
    e = cudaMemsetAsync(memory, value, bytes, (cudaStream_t)stream);
    leave(gpu, before);
    return e == cudaSuccess ? MMLA_OK
                            : failed(err, MMLA_E_LAUNCH, "stream", "refused to fill memory", e);
}
