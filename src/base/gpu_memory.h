/* gpu_memory.h - device memory, streams, graphs and clocks, for the command and the tests.
 *
 * No operation uses this: operations allocate nothing and wait for nothing. Like base/gpu.h it has an
 * implementation on the CUDA runtime and one for a library without it, and leaves the thread's
 * device as it was. Functions that return nothing are for cleaning up and take NULL.
 */
#ifndef MMLA_BASE_GPU_MEMORY_H
#define MMLA_BASE_GPU_MEMORY_H

#include "base/gpu.h"

/* bytes 0 gives a pointer that can be freed and not be used. */
mmla_status mmla_gpu_alloc(const mmla_gpu *gpu, size_t bytes, void **memory, mmla_error *err);
void mmla_gpu_free(const mmla_gpu *gpu, void *memory);

/* Copies that have happened when they return. */
mmla_status mmla_gpu_copy_in(
    const mmla_gpu *gpu, void *device, const void *host, size_t bytes, mmla_error *err);
mmla_status mmla_gpu_copy_out(
    const mmla_gpu *gpu, void *host, const void *device, size_t bytes, mmla_error *err);

/* A copy inside device memory, enqueued. */
mmla_status mmla_gpu_copy(
    const mmla_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, mmla_error *err);

/* Streams do not wait for the device's default stream, nor it for them. Waiting reports what went
 * wrong in the work enqueued so far. */
mmla_status mmla_gpu_stream_create(const mmla_gpu *gpu, void **stream, mmla_error *err);
void mmla_gpu_stream_destroy(const mmla_gpu *gpu, void *stream);
mmla_status mmla_gpu_stream_wait(const mmla_gpu *gpu, void *stream, mmla_error *err);

/* What is enqueued on stream by this thread between begin and end is recorded and not run; end makes
 * a graph that can be launched any number of times. After a begin there must be an end. */
typedef struct mmla_gpu_graph mmla_gpu_graph;
mmla_status mmla_gpu_capture_begin(const mmla_gpu *gpu, void *stream, mmla_error *err);
mmla_status
mmla_gpu_capture_end(const mmla_gpu *gpu, void *stream, mmla_gpu_graph **graph, mmla_error *err);
mmla_status
mmla_gpu_graph_launch(const mmla_gpu *gpu, mmla_gpu_graph *graph, void *stream, mmla_error *err);
void mmla_gpu_graph_destroy(const mmla_gpu *gpu, mmla_gpu_graph *graph);

/* A mark in a stream; elapsed waits for the second of two. */
typedef struct mmla_gpu_event mmla_gpu_event;
mmla_status mmla_gpu_event_create(const mmla_gpu *gpu, mmla_gpu_event **event, mmla_error *err);
void mmla_gpu_event_destroy(const mmla_gpu *gpu, mmla_gpu_event *event);
mmla_status
mmla_gpu_event_record(const mmla_gpu *gpu, mmla_gpu_event *event, void *stream, mmla_error *err);
mmla_status mmla_gpu_event_elapsed_us(
    const mmla_gpu *gpu, mmla_gpu_event *from, mmla_gpu_event *to, double *us, mmla_error *err);

/* For reports. CUDA versions are 13000 for 13.0; of the driver, the newest it supports. */
enum { MMLA_GPU_NAME_BYTES = 256 }; /* as long as CUDA's own */
typedef struct mmla_gpu_facts {
    char name[MMLA_GPU_NAME_BYTES];
    int64_t memory_bytes;
    int64_t free_bytes;
    int32_t driver_cuda;
    int32_t runtime_cuda;
} mmla_gpu_facts;
mmla_status mmla_gpu_facts_get(const mmla_gpu *gpu, mmla_gpu_facts *facts, mmla_error *err);

/* CUDA devices of this machine, usable or not; 0 without CUDA or without a driver. */
int32_t mmla_gpu_count(void);

#endif
