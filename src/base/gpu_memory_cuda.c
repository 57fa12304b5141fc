/* gpu_memory_cuda.c - base/gpu_memory.h over the CUDA runtime. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "base/error.h"
#include "base/gpu_memory.h"

/* The current device of a call, and what it was before. */
struct entry {
    int before;
    cudaError_t status;
};

static struct entry enter(const mmla_gpu *gpu) {
    struct entry e = {0, cudaSuccess};
    e.status = cudaGetDevice(&e.before);
    if (e.status == cudaSuccess && e.before != gpu->index) {
        e.status = cudaSetDevice(gpu->index);
    }
    return e;
}

/* Ends a call whose work gave `status`. */
static mmla_status
leave(const mmla_gpu *gpu, struct entry e, cudaError_t status, const char *what, mmla_error *err) {
    if (e.before != gpu->index) {
        cudaSetDevice(e.before);
    }
    const cudaError_t first = e.status != cudaSuccess ? e.status : status;
    if (first == cudaSuccess) {
        return MMLA_OK;
    }
    const mmla_status kind = first == cudaErrorMemoryAllocation ? MMLA_E_MEMORY : MMLA_E_DEVICE;
    mmla_error_set(err, kind, "", "%s failed: %s (%s)", what, cudaGetErrorString(first),
                   cudaGetErrorName(first));
    if (err != NULL) {
        err->detail = (int64_t)first;
    }
    return kind;
}

/* Runs one call of the runtime on gpu's device. */
#define RETURN_CALL(what, call)                                                            \
    do {                                                                                   \
        const struct entry entry_ = enter(gpu);                                            \
        const cudaError_t status_ = entry_.status == cudaSuccess ? (call) : entry_.status; \
        return leave(gpu, entry_, status_, what, err);                                     \
    } while (0)

mmla_status mmla_gpu_alloc(const mmla_gpu *gpu, size_t bytes, void **memory, mmla_error *err) {
    *memory = NULL;
    RETURN_CALL("allocating device memory", cudaMalloc(memory, bytes > 0 ? bytes : 1));
}

void mmla_gpu_free(const mmla_gpu *gpu, void *memory) {
    const struct entry e = enter(gpu);
    leave(gpu, e, cudaFree(memory), "freeing", NULL);
}

mmla_status mmla_gpu_copy_in(
    const mmla_gpu *gpu, void *device, const void *host, size_t bytes, mmla_error *err) {
    /* Of pageable memory the copy may still be under way when the call returns, and our streams do
     * not wait for the default one. */
    const struct entry e = enter(gpu);
    cudaError_t status = cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
    if (status == cudaSuccess) {
        status = cudaStreamSynchronize(cudaStreamLegacy);
    }
    return leave(gpu, e, status, "copying to the device", err);
}

mmla_status mmla_gpu_copy_out(
    const mmla_gpu *gpu, void *host, const void *device, size_t bytes, mmla_error *err) {
    RETURN_CALL("copying from the device", cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

mmla_status mmla_gpu_copy(
    const mmla_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, mmla_error *err) {
    RETURN_CALL("copying on the device",
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream));
}

mmla_status mmla_gpu_stream_create(const mmla_gpu *gpu, void **stream, mmla_error *err) {
    *stream = NULL;
    RETURN_CALL("creating a stream",
                cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

void mmla_gpu_stream_destroy(const mmla_gpu *gpu, void *stream) {
    if (stream != NULL) {
        const struct entry e = enter(gpu);
        leave(gpu, e, cudaStreamDestroy((cudaStream_t)stream), "destroying a stream", NULL);
    }
}

mmla_status mmla_gpu_stream_wait(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    RETURN_CALL("the work of a stream", cudaStreamSynchronize((cudaStream_t)stream));
}

mmla_status mmla_gpu_capture_begin(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    RETURN_CALL("beginning a capture",
                cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

mmla_status
mmla_gpu_capture_end(const mmla_gpu *gpu, void *stream, mmla_gpu_graph **graph, mmla_error *err) {
    *graph = NULL;
    const struct entry e = enter(gpu);
    cudaGraph_t recorded = NULL;
    cudaError_t status = cudaStreamEndCapture((cudaStream_t)stream, &recorded);
    if (status == cudaSuccess) {
        status = cudaGraphInstantiate((cudaGraphExec_t *)graph, recorded, 0);
    }
    if (recorded != NULL) {
        cudaGraphDestroy(recorded);
    }
    return leave(gpu, e, status, "capturing a graph", err);
}

mmla_status
mmla_gpu_graph_launch(const mmla_gpu *gpu, mmla_gpu_graph *graph, void *stream, mmla_error *err) {
    RETURN_CALL("launching a graph", cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
}

void mmla_gpu_graph_destroy(const mmla_gpu *gpu, mmla_gpu_graph *graph) {
    if (graph != NULL) {
        const struct entry e = enter(gpu);
        leave(gpu, e, cudaGraphExecDestroy((cudaGraphExec_t)graph), "destroying a graph", NULL);
    }
}

mmla_status mmla_gpu_event_create(const mmla_gpu *gpu, mmla_gpu_event **event, mmla_error *err) {
    *event = NULL;
    RETURN_CALL("creating an event", cudaEventCreate((cudaEvent_t *)event));
}

void mmla_gpu_event_destroy(const mmla_gpu *gpu, mmla_gpu_event *event) {
    if (event != NULL) {
        const struct entry e = enter(gpu);
        leave(gpu, e, cudaEventDestroy((cudaEvent_t)event), "destroying an event", NULL);
    }
}

mmla_status
mmla_gpu_event_record(const mmla_gpu *gpu, mmla_gpu_event *event, void *stream, mmla_error *err) {
    RETURN_CALL("recording an event", cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

mmla_status mmla_gpu_event_elapsed_us(
    const mmla_gpu *gpu, mmla_gpu_event *from, mmla_gpu_event *to, double *us, mmla_error *err) {
    const struct entry e = enter(gpu);
    float ms = 0.0f;
    cudaError_t status = cudaEventSynchronize((cudaEvent_t)to);
    if (status == cudaSuccess) {
        status = cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to);
    }
    *us = 1e3 * (double)ms;
    return leave(gpu, e, status, "timing", err);
}

mmla_status mmla_gpu_facts_get(const mmla_gpu *gpu, mmla_gpu_facts *facts, mmla_error *err) {
    const struct entry e = enter(gpu);
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, bytes = 0;
    cudaError_t status = cudaGetDeviceProperties(&properties, gpu->index);
    *facts = (mmla_gpu_facts){0};
    if (status == cudaSuccess) {
        snprintf(facts->name, sizeof facts->name, "%s", properties.name);
        status = cudaMemGetInfo(&free_bytes, &bytes);
    }
    facts->memory_bytes = (int64_t)bytes;
    facts->free_bytes = (int64_t)free_bytes;
    status = status != cudaSuccess ? status : cudaDriverGetVersion(&facts->driver_cuda);
    status = status != cudaSuccess ? status : cudaRuntimeGetVersion(&facts->runtime_cuda);
    return leave(gpu, e, status, "asking for the device's properties", err);
}

int32_t mmla_gpu_count(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}
