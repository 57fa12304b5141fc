/* gpu_cuda.c - base/gpu.h over the CUDA runtime, which is linked statically and looks for the driver
 * when it is first asked something: without a driver the library loads, and opening fails. */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/gpu.h"
#include "base/gpu_probe.h"

/* Fills err. The runtime also keeps the error for whoever asks it next, which is not the program's
 * business: it is taken back. */
static mmla_status
failed(mmla_error *err, mmla_status status, const char *argument, const char *what, cudaError_t e) {
    (void)cudaGetLastError();
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

/* The instructions of 9.0a are in kernels only if the library was built for it. */
static uint32_t features_of(int32_t capability) {
    const bool hopper = capability == 90 && strstr(MMLA_CUDA_ARCHS, "90a") != NULL;
    return (capability >= 80 ? MMLA_GPU_SM80 : 0u) | (hopper ? MMLA_GPU_SM90A : 0u);
}

static cudaError_t
attribute(int32_t index, enum cudaDeviceAttr which, int32_t *value, cudaError_t before) {
    return before != cudaSuccess ? before : cudaDeviceGetAttribute(value, which, index);
}

/* Why the machine's devices cannot even be counted. The runtime has one code for a driver that is
 * too old and for none at all. */
static mmla_status no_devices(int32_t index, cudaError_t e, mmla_error *err) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (e == cudaErrorNoDevice) {
        mmla_error_set(err, MMLA_E_DEVICE, "device",
                       "is CUDA device %d, but the NVIDIA driver finds no device", (int)index);
    } else if (e == cudaErrorInsufficientDriver && driver == 0) {
        mmla_error_set(err, MMLA_E_DEVICE, "device",
                       "is CUDA device %d, but this machine has no NVIDIA driver", (int)index);
    } else if (e == cudaErrorInsufficientDriver && driver < runtime) {
        mmla_error_set(err, MMLA_E_DEVICE, "device",
                       "is CUDA device %d, but the NVIDIA driver supports CUDA %d.%d, and this "
                       "library was built with %d.%d",
                       (int)index, driver / 1000, driver % 1000 / 10, runtime / 1000,
                       runtime % 1000 / 10);
    } else {
        mmla_error_set(err, MMLA_E_DEVICE, "device",
                       "is CUDA device %d, but CUDA does not start: %s (%s)", (int)index,
                       cudaGetErrorString(e), cudaGetErrorName(e));
    }
    if (err != NULL) {
        err->detail = (int64_t)e;
    }
    return MMLA_E_DEVICE;
}

/* Loads kernels: only that shows whether the library has code for this device that its driver takes,
 * and which. A GPU the library was not built for is refused here, and not by the first plan. */
static mmla_status check_code(mmla_gpu *gpu, mmla_error *err) {
    mmla_error why;
    if (mmla_gpu_probe_load(gpu, &why) == MMLA_OK &&
        mmla_gpu_probe_code_get(gpu, &gpu->code, &why) == MMLA_OK) {
        return MMLA_OK;
    }
    const cudaError_t e = (cudaError_t)why.detail;
    mmla_error_set(err, MMLA_E_DEVICE, "device",
                   "is CUDA device %d of compute capability %d.%d, but a kernel of this library, "
                   "built for " MMLA_CUDA_ARCHS ", does not load: %s (%s)",
                   (int)gpu->index, (int)(gpu->capability / 10), (int)(gpu->capability % 10),
                   cudaGetErrorString(e), cudaGetErrorName(e));
    if (err != NULL) {
        err->detail = (int64_t)e;
    }
    return MMLA_E_DEVICE;
}

/* Whether kernels for this capability can be launched early, as edges of a graph too, which runtime
 * and driver have since CUDA 12.3. */
static bool early_is_known(int32_t code) {
    int driver = 0, runtime = 0;
    return code >= 90 && cudaDriverGetVersion(&driver) == cudaSuccess &&
           cudaRuntimeGetVersion(&runtime) == cudaSuccess && driver >= 12030 && runtime >= 12030;
}

mmla_status mmla_gpu_open(int32_t index, mmla_gpu *gpu, mmla_error *err) {
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0) {
        return no_devices(index, e == cudaSuccess ? cudaErrorNoDevice : e, err);
    }
    if (index < 0 || index >= n) {
        return mmla_error_set(err, MMLA_E_DEVICE, "device.index",
                              "is %d, but this machine has %d CUDA device%s, must be 0 .. %d",
                              (int)index, n, n == 1 ? "" : "s", n - 1);
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
        return mmla_error_set(
            err, MMLA_E_DEVICE, "device",
            "is CUDA device %d, but its compute capability is %d.%d, must have %s", (int)index,
            (int)major, (int)minor, missing);
    }
    MMLA_RETURN_IF_FAILED(check_code(&g, err));
    g.has_early = early_is_known(g.code);
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
    /* Always the most there is, and never what this plan needs: another thread that prepares a plan
     * with less would take it away again. */
    if (e == cudaSuccess && smem_bytes > attributes.maxDynamicSharedSizeBytes) {
        const int most = gpu->smem_bytes - (int)attributes.sharedSizeBytes;
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    }
    leave(gpu, before);
    return e == cudaSuccess ? MMLA_OK
                            : failed(err, MMLA_E_DEVICE, "device", "does not load the kernel", e);
}

mmla_status mmla_gpu_kernel_code_get(const mmla_gpu *gpu,
                                     const void *kernel,
                                     int32_t *capability,
                                     mmla_error *err) {
    int before;
    cudaError_t e = enter(gpu, &before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "cannot be made current", e);
    }
    struct cudaFuncAttributes attributes;
    e = cudaFuncGetAttributes(&attributes, kernel);
    leave(gpu, before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "does not load the kernel", e);
    }
    *capability = attributes.ptxVersion; /* of native code too: what it was made from */
    return MMLA_OK;
}

mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err) {
    int before;
    cudaError_t e = enter(gpu, &before);
    if (e != cudaSuccess) {
        return failed(err, MMLA_E_DEVICE, "device", "cannot be made current", e);
    }
    cudaLaunchAttribute cluster = {
        .id = cudaLaunchAttributeClusterDimension,
        .val.clusterDim = {.x = launch->cluster, .y = 1, .z = 1},
    };
    const cudaLaunchConfig_t config = {
        .gridDim = {launch->cluster, 1, 1},
        .blockDim = {launch->block, 1, 1},
        .dynamicSmemBytes = launch->smem_bytes,
        .attrs = &cluster,
        .numAttrs = 1,
    };
    int count = 0;
    e = cudaOccupancyMaxActiveClusters(&count, launch->kernel, &config);
    if (e == cudaErrorInvalidClusterSize) { /* not even one */
        (void)cudaGetLastError();
        count = 0;
        e = cudaSuccess;
    }
    leave(gpu, before);
    *n = count;
    return e == cudaSuccess
               ? MMLA_OK
               : failed(err, MMLA_E_DEVICE, "device", "does not tell how many clusters it runs", e);
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
    cudaLaunchAttribute attributes[2];
    uint32_t n_attributes = 0;
    if (launch->cluster > 1) {
        attributes[n_attributes++] = (cudaLaunchAttribute){
            .id = cudaLaunchAttributeClusterDimension,
            .val.clusterDim = {.x = launch->cluster, .y = 1, .z = 1},
        };
    }
    if (launch->early && gpu->has_early) {
        attributes[n_attributes++] = (cudaLaunchAttribute){
            .id = cudaLaunchAttributeProgrammaticStreamSerialization,
            .val.programmaticStreamSerializationAllowed = 1,
        };
    }
    const cudaLaunchConfig_t config = {
        .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .blockDim = {launch->block, 1, 1},
        .dynamicSmemBytes = launch->smem_bytes,
        .stream = (cudaStream_t)stream,
        .attrs = attributes,
        .numAttrs = n_attributes,
    };
    e = cudaLaunchKernelExC(&config, launch->kernel, arguments);
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
