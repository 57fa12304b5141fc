#include "app/device/device_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

mmla_status
device_memory_alloc(const mmla_gpu *gpu, int64_t bytes, uint8_t **memory, mmla_error *err) {
    if (gpu != NULL) {
        void *allocated = NULL;
        const mmla_status status = mmla_gpu_alloc(gpu, (size_t)bytes, &allocated, err);
        *memory = allocated;
        return status;
    }
    *memory = malloc(bytes > 0 ? (size_t)bytes : 1);
    return *memory != NULL
               ? MMLA_OK
               : mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory: %lld bytes were refused",
                                (long long)bytes);
}

void device_memory_free(const mmla_gpu *gpu, uint8_t *memory) {
    if (gpu == NULL) {
        free(memory);
    } else if (memory != NULL) {
        mmla_gpu_free(gpu, memory);
    }
}

mmla_status device_memory_fill(
    const mmla_gpu *gpu, uint8_t *memory, int value, int64_t bytes, mmla_error *err) {
    if (bytes <= 0) {
        return MMLA_OK;
    }
    if (gpu != NULL) {
        return mmla_gpu_fill(gpu, memory, value, (size_t)bytes, NULL, err);
    }
    memset(memory, value, (size_t)bytes);
    return MMLA_OK;
}

mmla_status device_memory_put(
    const mmla_gpu *gpu, uint8_t *memory, const void *host, int64_t bytes, mmla_error *err) {
    if (bytes <= 0) {
        return MMLA_OK;
    }
    if (gpu != NULL) {
        return mmla_gpu_copy_in(gpu, memory, host, (size_t)bytes, err);
    }
    memcpy(memory, host, (size_t)bytes);
    return MMLA_OK;
}

/* A copy from pageable memory may return while its last piece is still under way, and streams of
 * our own do not wait for the default stream, in which copies are. */
mmla_status device_memory_settle(const mmla_gpu *gpu, mmla_error *err) {
    return gpu != NULL ? mmla_gpu_stream_wait(gpu, NULL, err) : MMLA_OK;
}

mmla_status device_memory_get(
    const mmla_gpu *gpu, void *host, const uint8_t *memory, int64_t bytes, mmla_error *err) {
    if (bytes <= 0) {
        return MMLA_OK;
    }
    if (gpu != NULL) {
        return mmla_gpu_copy_out(gpu, host, memory, (size_t)bytes, err);
    }
    memcpy(host, memory, (size_t)bytes);
    return MMLA_OK;
}
