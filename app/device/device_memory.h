/* device_memory.h - the memory that copies of a call's arrays lie in: a GPU's, or the host's.
 *
 * The host serves where staging itself is tested, on machines without a GPU. `gpu` NULL means it.
 */
#ifndef APP_DEVICE_DEVICE_MEMORY_H
#define APP_DEVICE_DEVICE_MEMORY_H

#include <stdint.h>

#include "base/gpu_memory.h"

mmla_status
device_memory_alloc(const mmla_gpu *gpu, int64_t bytes, uint8_t **memory, mmla_error *err);
void device_memory_free(const mmla_gpu *gpu, uint8_t *memory); /* NULL is allowed */

/* In order with each other; complete after device_memory_settle. Nothing for bytes <= 0. */
mmla_status
device_memory_fill(const mmla_gpu *gpu, uint8_t *memory, int value, int64_t bytes, mmla_error *err);
mmla_status device_memory_put(
    const mmla_gpu *gpu, uint8_t *memory, const void *host, int64_t bytes, mmla_error *err);
mmla_status device_memory_settle(const mmla_gpu *gpu, mmla_error *err);

/* Complete when it returns. */
mmla_status device_memory_get(
    const mmla_gpu *gpu, void *host, const uint8_t *memory, int64_t bytes, mmla_error *err);

#endif
