/* gpu_memory_none.c - base/gpu_memory.h for a library built without CUDA: no device was opened, so
 * nothing here is reached with one. */
#include "base/gpu_memory.h"

mmla_status mmla_gpu_alloc(const mmla_gpu *gpu, size_t bytes, void **memory, mmla_error *err) {
    (void)bytes;
    (void)memory;
    return mmla_gpu_open(gpu->index, NULL, err);
}

void mmla_gpu_free(const mmla_gpu *gpu, void *memory) {
    (void)gpu;
    (void)memory;
}

mmla_status mmla_gpu_copy_in(
    const mmla_gpu *gpu, void *device, const void *host, size_t bytes, mmla_error *err) {
    (void)device;
    (void)host;
    (void)bytes;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_copy_out(
    const mmla_gpu *gpu, void *host, const void *device, size_t bytes, mmla_error *err) {
    (void)host;
    (void)device;
    (void)bytes;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_copy(
    const mmla_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, mmla_error *err) {
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_stream_create(const mmla_gpu *gpu, void **stream, mmla_error *err) {
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

void mmla_gpu_stream_destroy(const mmla_gpu *gpu, void *stream) {
    (void)gpu;
    (void)stream;
}

mmla_status mmla_gpu_stream_wait(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_capture_begin(const mmla_gpu *gpu, void *stream, mmla_error *err) {
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status
mmla_gpu_capture_end(const mmla_gpu *gpu, void *stream, mmla_gpu_graph **graph, mmla_error *err) {
    (void)stream;
    (void)graph;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status
mmla_gpu_graph_launch(const mmla_gpu *gpu, mmla_gpu_graph *graph, void *stream, mmla_error *err) {
    (void)graph;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

void mmla_gpu_graph_destroy(const mmla_gpu *gpu, mmla_gpu_graph *graph) {
    (void)gpu;
    (void)graph;
}

mmla_status mmla_gpu_event_create(const mmla_gpu *gpu, mmla_gpu_event **event, mmla_error *err) {
    (void)event;
    return mmla_gpu_open(gpu->index, NULL, err);
}

void mmla_gpu_event_destroy(const mmla_gpu *gpu, mmla_gpu_event *event) {
    (void)gpu;
    (void)event;
}

mmla_status
mmla_gpu_event_record(const mmla_gpu *gpu, mmla_gpu_event *event, void *stream, mmla_error *err) {
    (void)event;
    (void)stream;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_event_elapsed_us(
    const mmla_gpu *gpu, mmla_gpu_event *from, mmla_gpu_event *to, double *us, mmla_error *err) {
    (void)from;
    (void)to;
    (void)us;
    return mmla_gpu_open(gpu->index, NULL, err);
}

mmla_status mmla_gpu_facts_get(const mmla_gpu *gpu, mmla_gpu_facts *facts, mmla_error *err) {
    (void)facts;
    return mmla_gpu_open(gpu->index, NULL, err);
}

int32_t mmla_gpu_count(void) {
    return 0;
}
