/* context.h - what stands behind mmla_context, and what plans use of it. */
#ifndef MMLA_BASE_CONTEXT_H
#define MMLA_BASE_CONTEXT_H

#include <megamla/context.h>

#include "base/gpu.h"

struct mmla_context {
    mmla_device device;
    int32_t n_threads;
    uint32_t cpu_features; /* enum mmla_cpu_feature */
    mmla_gpu gpu;          /* of a CUDA device, else zero */
    mmla_allocator allocator;
    mmla_log_fn log;
    void *log_user;
};

/* Zeroed memory from the context's allocator, or NULL; and its return. */
void *mmla_context_alloc(const mmla_context *ctx, size_t bytes);
void mmla_context_free(const mmla_context *ctx, void *memory);

/* One line to the context's sink, if it has one. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void mmla_context_log(const mmla_context *ctx, const char *format, ...);

#endif
