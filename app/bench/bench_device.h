/* bench_device.h - the memory and the stream of the device that is measured.
 *
 * With a context on the CPU the host stands in for the GPU: the same calls work on host memory. The
 * tests run the rows of a GPU this way.
 *
 * A benchmark makes some dozen calls a row, and after the first that fails the row is lost: the
 * failure is kept, what follows does nothing, and the row looks once, at its end.
 */
#ifndef APP_BENCH_BENCH_DEVICE_H
#define APP_BENCH_BENCH_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/context.h>

#include "base/gpu.h"

typedef struct bench_device {
    const mmla_gpu *gpu; /* NULL: the host stands in */
    void *stream;
    mmla_error error; /* of the first call that failed; status MMLA_OK: none did */
} bench_device;

/* The context must outlive the device. On failure the error says why; deinit is still needed. */
void bench_device_init(bench_device *d, const mmla_context *ctx);
void bench_device_deinit(bench_device *d);

/* False, and the failure is kept, unless status is MMLA_OK. */
bool bench_device_keep(bench_device *d, mmla_status status, const mmla_error *error);
bool bench_device_is_well(const bench_device *d);
void bench_device_forget(bench_device *d); /* the failure, before the next row */

/* Waits for everything enqueued. */
void bench_device_wait(bench_device *d);

/* Copies that have happened when they return, after everything enqueued. */
void bench_device_write(bench_device *d, void *to, const void *host, int64_t bytes);
void bench_device_read(bench_device *d, void *host, const void *from, int64_t bytes);

/* Enqueued. */
void bench_device_copy(bench_device *d, void *to, const void *from, int64_t bytes);
void bench_device_fill(bench_device *d, void *memory, uint8_t byte, int64_t bytes);

/* Device memory that is freed together. Begins as {.device = d}. */
enum { BENCH_ARENA_MAX = 32 };

typedef struct bench_arena {
    bench_device *device;
    void *memory[BENCH_ARENA_MAX];
    int n;
} bench_arena;

void bench_arena_destroy(bench_arena *a);

/* Memory aligned to 256; NULL after a failure. */
void *bench_arena_add(bench_arena *a, int64_t bytes);

/* The same, holding a copy of `host`, or `total` bytes of copies of it one behind the other. */
void *bench_arena_copy(bench_arena *a, const void *host, int64_t bytes);
void *bench_arena_repeat(bench_arena *a, const void *host, int64_t bytes, int64_t total);

#endif
