/* bench_device.c - base/gpu_memory.h, or the host's memory, behind one set of calls. */
#include "app/bench/bench_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/gpu_memory.h"

enum { ALIGNMENT = 256 /* of what a GPU's allocator returns */ };

bool bench_device_keep(bench_device *d, mmla_status status, const mmla_error *error) {
    if (status != MMLA_OK && d->error.status == MMLA_OK) {
        d->error = *error;
        d->error.status = status;
        if (error->message[0] == '\0') {
            mmla_error_set(&d->error, status, "", "%s", mmla_status_text(status));
        }
    }
    return status == MMLA_OK;
}

bool bench_device_is_well(const bench_device *d) {
    return d->error.status == MMLA_OK;
}

void bench_device_forget(bench_device *d) {
    d->error = (mmla_error){0};
}

void bench_device_init(bench_device *d, const mmla_context *ctx) {
    *d = (bench_device){.gpu = ctx->device.kind == MMLA_DEVICE_CUDA ? &ctx->gpu : NULL};
    if (d->gpu != NULL) {
        mmla_error err = {0};
        bench_device_keep(d, mmla_gpu_stream_create(d->gpu, &d->stream, &err), &err);
    }
}

void bench_device_deinit(bench_device *d) {
    if (d->gpu != NULL) {
        mmla_gpu_stream_destroy(d->gpu, d->stream);
    }
    *d = (bench_device){0};
}

void bench_device_wait(bench_device *d) {
    if (d->gpu != NULL && bench_device_is_well(d)) {
        mmla_error err = {0};
        bench_device_keep(d, mmla_gpu_stream_wait(d->gpu, d->stream, &err), &err);
    }
}

void bench_device_write(bench_device *d, void *to, const void *host, int64_t bytes) {
    bench_device_wait(d);
    if (!bench_device_is_well(d) || bytes == 0) {
        return;
    }
    if (d->gpu == NULL) {
        memcpy(to, host, (size_t)bytes);
        return;
    }
    mmla_error err = {0};
    if (bench_device_keep(d, mmla_gpu_copy_in(d->gpu, to, host, (size_t)bytes, &err), &err)) {
        /* The copy runs in the default stream and may still be on its way from a staging buffer,
         * for which our stream would not wait. */
        bench_device_keep(d, mmla_gpu_stream_wait(d->gpu, NULL, &err), &err);
    }
}

void bench_device_read(bench_device *d, void *host, const void *from, int64_t bytes) {
    bench_device_wait(d);
    if (!bench_device_is_well(d) || bytes == 0) {
        return;
    }
    if (d->gpu == NULL) {
        memcpy(host, from, (size_t)bytes);
        return;
    }
    mmla_error err = {0};
    bench_device_keep(d, mmla_gpu_copy_out(d->gpu, host, from, (size_t)bytes, &err), &err);
}

void bench_device_copy(bench_device *d, void *to, const void *from, int64_t bytes) {
    if (!bench_device_is_well(d) || bytes == 0) {
        return;
    }
    if (d->gpu == NULL) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    mmla_error err = {0};
    bench_device_keep(d, mmla_gpu_copy(d->gpu, to, from, (size_t)bytes, d->stream, &err), &err);
}

void bench_device_fill(bench_device *d, void *memory, uint8_t byte, int64_t bytes) {
    if (!bench_device_is_well(d) || bytes == 0) {
        return;
    }
    if (d->gpu == NULL) {
        memset(memory, byte, (size_t)bytes);
        return;
    }
    mmla_error err = {0};
    bench_device_keep(d, mmla_gpu_fill(d->gpu, memory, byte, (size_t)bytes, d->stream, &err), &err);
}

void *bench_arena_add(bench_arena *a, int64_t bytes) {
    bench_device *d = a->device;
    mmla_error err = {0};
    mmla_status status = MMLA_OK;
    void *memory = NULL;
    if (!bench_device_is_well(d)) {
        return NULL;
    }
    if (a->n == BENCH_ARENA_MAX) {
        status = mmla_error_set(&err, MMLA_E_MEMORY, "", "an arena is full");
    } else if (d->gpu != NULL) {
        status = mmla_gpu_alloc(d->gpu, (size_t)bytes, &memory, &err);
    } else {
        /* aligned_alloc wants whole multiples, and zero is not one to everyone. */
        memory = aligned_alloc(ALIGNMENT, ((size_t)bytes / ALIGNMENT + 1) * ALIGNMENT);
        status =
            memory != NULL ? MMLA_OK : mmla_error_set(&err, MMLA_E_MEMORY, "", "out of memory");
    }
    if (bench_device_keep(d, status, &err)) {
        a->memory[a->n++] = memory;
    }
    return memory;
}

void bench_arena_destroy(bench_arena *a) {
    for (int i = 0; i < a->n; i++) {
        if (a->device->gpu != NULL) {
            mmla_gpu_free(a->device->gpu, a->memory[i]);
        } else {
            free(a->memory[i]);
        }
    }
    a->n = 0;
}

void *bench_arena_copy(bench_arena *a, const void *host, int64_t bytes) {
    void *memory = bench_arena_add(a, bytes);
    bench_device_write(a->device, memory, host, bytes);
    return memory;
}

void *bench_arena_repeat(bench_arena *a, const void *host, int64_t bytes, int64_t total) {
    uint8_t *memory = bench_arena_add(a, total);
    int64_t done = bytes < total ? bytes : total;
    bench_device_write(a->device, memory, host, done);
    /* Twice as much every time: a transfer for each copy would take longer than the benchmark. */
    while (done < total && bench_device_is_well(a->device)) {
        const int64_t n = done < total - done ? done : total - done;
        bench_device_copy(a->device, memory + done, memory, n);
        done += n;
    }
    return memory;
}
