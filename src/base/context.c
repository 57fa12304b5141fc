/* context.c - creating and closing contexts. */
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/parallel.h"

enum { THREADS_MAX = 4096, LOG_LINE_BYTES = 256 }; /* the former as context.h says */

static void *default_alloc(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static void default_free(void *user, void *memory) {
    (void)user;
    free(memory);
}

static mmla_status check_options(const mmla_context_options *o, mmla_error *err) {
    if (o->device.kind != MMLA_DEVICE_CPU && o->device.kind != MMLA_DEVICE_CUDA) {
        return mmla_error_set(err, MMLA_E_VALUE, "device.kind",
                              "is %d, must be MMLA_DEVICE_CPU or MMLA_DEVICE_CUDA",
                              (int)o->device.kind);
    }
    if (o->device.kind == MMLA_DEVICE_CPU && o->device.index != 0) {
        return mmla_error_set(err, MMLA_E_DEVICE, "device.index", "is %d, must be 0 for the CPU",
                              (int)o->device.index);
    }
    if (o->n_threads < 0 || o->n_threads > THREADS_MAX) {
        return mmla_error_set(err, MMLA_E_VALUE, "n_threads", "is %d, must be 0 (all) or 1 .. %d",
                              (int)o->n_threads, THREADS_MAX);
    }
    if ((o->allocator.alloc == NULL) != (o->allocator.free == NULL)) {
        return mmla_error_set(err, MMLA_E_VALUE, "allocator",
                              "has one of alloc and free, needs both");
    }
    return MMLA_OK;
}

mmla_status
mmla_context_create(const mmla_context_options *options, mmla_context **ctx, mmla_error *err) {
    if (ctx == NULL) {
        return mmla_error_set(err, MMLA_E_NULL, "ctx", "is NULL");
    }
    *ctx = NULL;
    const mmla_context_options o = options != NULL ? *options : (mmla_context_options){0};
    mmla_gpu gpu = {0};
    mmla_status status = check_options(&o, err);
    if (status == MMLA_OK && o.device.kind == MMLA_DEVICE_CUDA) {
        status = mmla_gpu_open(o.device.index, &gpu, err);
    }
    if (status != MMLA_OK) {
        return status;
    }
    mmla_allocator allocator = o.allocator;
    if (allocator.alloc == NULL) {
        allocator = (mmla_allocator){default_alloc, default_free, NULL};
    }
    mmla_context *c = allocator.alloc(allocator.user, sizeof *c);
    if (c == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "the allocator refused %zu bytes", sizeof *c);
    }
    *c = (mmla_context){
        .device = o.device,
        .n_threads = (int32_t)mmla_min_i64(o.n_threads > 0 ? o.n_threads : mmla_cpu_count(),
                                           MMLA_PARALLEL_MAX),
        .cpu_features = mmla_cpu_features(),
        .gpu = gpu,
        .allocator = allocator,
        .log = o.log,
        .log_user = o.log_user,
    };
    *ctx = c;
    return MMLA_OK;
}

void mmla_context_destroy(mmla_context *ctx) {
    if (ctx != NULL) {
        ctx->allocator.free(ctx->allocator.user, ctx);
    }
}

mmla_device mmla_context_get_device(const mmla_context *ctx) {
    return ctx->device;
}

int32_t mmla_context_get_threads(const mmla_context *ctx) {
    return ctx->n_threads;
}

void *mmla_context_alloc(const mmla_context *ctx, size_t bytes) {
    void *memory = ctx->allocator.alloc(ctx->allocator.user, bytes);
    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

void mmla_context_free(const mmla_context *ctx, void *memory) {
    if (memory != NULL) {
        ctx->allocator.free(ctx->allocator.user, memory);
    }
}

void mmla_context_log(const mmla_context *ctx, const char *format, ...) {
    if (ctx->log == NULL) {
        return;
    }
    char line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, line);
}
