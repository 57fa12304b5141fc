/* bench_gpu_session.c - contexts of both devices, and the ceilings of the GPU. */
#include "app/bench/bench_gpu.h"

#include <stdio.h>
#include <string.h>

#include "app/bench/bench_replay.h"
#include "base/context.h"
#include "base/error.h"
#include "base/gpu_memory.h"
#include "base/gpu_probe.h"

enum {
    STREAM_BYTES_LOG2 = 31, /* of the bandwidth's buffers: 2 GiB */
    POOL_BYTES = 512 << 20, /* of the caches of one pair of formats */
    GEMM_DIM = 8192,
    NODES = 1000, /* of the graph of empty kernels */
    SETS_MAX = 4096
};

/* Where nothing can be measured: cuBLAS on one H200 (docs/performance.md). */
static const double hopper_tflops = 810.0;

double bench_gpu_budget_s(const bench_session *s) {
    return s->options.quick ? 0.05 : 0.15;
}

int64_t bench_gpu_sets_count(const bench_session *s, double bytes) {
    const double n = bytes > 0.0 ? (double)s->cold_bytes / bytes + 1.0 : 0.0;
    return n < 2.0 ? 2 : n < SETS_MAX ? (int64_t)n : SETS_MAX;
}

/* What the ceilings run on. */
typedef struct ceiling {
    const mmla_gpu *gpu;
    const cublas *blas;
    uint8_t *from, *to;
    int64_t bytes;
} ceiling;

static mmla_status read_call(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    const ceiling *c = job;
    return mmla_gpu_probe_read(c->gpu, c->from, (size_t)c->bytes, c->to, stream, err);
}

static mmla_status copy_call(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    const ceiling *c = job;
    return mmla_gpu_copy(c->gpu, c->to, c->from, (size_t)c->bytes, stream, err);
}

static mmla_status empty_call(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    return mmla_gpu_probe_empty(((const ceiling *)job)->gpu, stream, err);
}

/* Both factors and the product lie in the buffers of the bandwidth. */
static mmla_status gemm_call(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    (void)stream;
    const ceiling *c = job;
    const cublas_product p = {.m = GEMM_DIM,
                              .n = GEMM_DIM,
                              .k = GEMM_DIM,
                              .a_stride = GEMM_DIM,
                              .c_stride = GEMM_DIM,
                              .n_products = 1,
                              .a = c->from,
                              .b = c->from + (int64_t)GEMM_DIM * GEMM_DIM * 2,
                              .c = c->to};
    return cublas_run(c->blas, &p, err);
}

/* Median of one call, 0 after a failure. */
static double measured_us(bench_session *s, bench_enqueue_fn call, ceiling *c, int64_t n_calls) {
    bench_replay r = bench_replay_create(&s->device, call, c, n_calls);
    const bench_timing t = bench_replay_measure(&r, s->options.quick ? 10 : 30, 0.5);
    bench_replay_destroy(&r);
    return t.median_us;
}

static void measure_ceilings(bench_session *s) {
    bench_device *d = &s->device;
    bench_arena arena = {.device = d};
    mmla_gpu_facts facts = {0};
    mmla_error err = {0};
    bench_device_keep(d, mmla_gpu_facts_get(d->gpu, &facts, &err), &err);
    bench_device_keep(d, mmla_gpu_probe_load(d->gpu, &err), &err);
    const int64_t most = INT64_C(1) << STREAM_BYTES_LOG2, share = facts.free_bytes / 4;
    ceiling c = {
        .gpu = d->gpu, .blas = &s->gpu_blas, .bytes = share < most ? share / 256 * 256 : most};
    /* Random numbers: a product of zeros draws less power, and its clock stays higher. */
    bench_tile tile = bench_tile_bf16(s->options.seed, 7);
    c.from = bench_arena_repeat(&arena, tile.data.data, tile.data.bytes, c.bytes);
    c.to = bench_arena_add(&arena, c.bytes);
    bench_device_fill(d, c.to, 0, c.bytes);
    s->read_gbps = (double)c.bytes * 1e-3 / measured_us(s, read_call, &c, 1);
    s->copy_gbps = 2.0 * (double)c.bytes * 1e-3 / measured_us(s, copy_call, &c, 1);
    s->node_us = measured_us(s, empty_call, &c, NODES);
    if (s->gpu_blas.library != NULL && c.bytes >= (int64_t)GEMM_DIM * GEMM_DIM * 4 &&
        bench_device_is_well(d)) {
        const double us = measured_us(s, gemm_call, &c, 1);
        s->gemm_tflops = us > 0.0 ? 2e-6 * GEMM_DIM * GEMM_DIM * (double)GEMM_DIM / us : 0.0;
        if (us == 0.0) { /* a library that does not work here is as good as none */
            cublas_close(&s->gpu_blas);
            bench_device_forget(d);
        }
    }
    s->has_gemm_tflops = s->gemm_tflops > 0.0;
    if (!s->has_gemm_tflops && d->gpu->capability == 90) {
        s->gemm_tflops = hopper_tflops;
    }
    bench_tile_destroy(&tile);
    bench_arena_destroy(&arena);
}

mmla_status
bench_gpu_session_init(bench_session *s, const bench_options *options, mmla_error *err) {
    *s = (bench_session){.options = *options, .on_gpu = true};
    const mmla_context_options host = {.device = MMLA_CPU, .n_threads = options->n_threads};
    mmla_context_options device = host;
    device.device = options->device;
    mmla_status status = mmla_context_create(&host, &s->host, err);
    status = status != MMLA_OK ? status : mmla_context_create(&device, &s->ctx, err);
    if (status != MMLA_OK) {
        return status;
    }
    bench_device_init(&s->device, s->ctx);
    if (s->device.gpu == NULL) {
        s->read_gbps = s->copy_gbps = 10.0;
        s->cold_bytes = s->pool_bytes = s->cache_bytes = 1 << 20;
        return MMLA_OK;
    }
    s->cache_bytes = s->device.gpu->l2_bytes;
    s->cold_bytes = 3 * s->cache_bytes;
    s->pool_bytes = s->cold_bytes > POOL_BYTES ? s->cold_bytes : POOL_BYTES;
    s->gpu_blas = cublas_open(&s->device);
    measure_ceilings(s);
    if (!bench_device_is_well(&s->device)) {
        if (err != NULL) {
            *err = s->device.error;
        }
        return s->device.error.status;
    }
    return MMLA_OK;
}

void bench_gpu_session_deinit(bench_session *s) {
    cublas_close(&s->gpu_blas);
    bench_device_deinit(&s->device);
    mmla_context_destroy(s->ctx);
    mmla_context_destroy(s->host);
    s->ctx = s->host = NULL;
}

bench_row *bench_gpu_row_begin(
    bench_session *s, const char *op, const char *formats, int64_t heads, int64_t tokens) {
    bench_row *row = bench_row_add(s, op, formats);
    bench_device_forget(&s->device);
    if (row != NULL) {
        row->heads = heads;
        row->tokens = tokens;
    }
    return row;
}

void bench_gpu_row_finish(bench_session *s, bench_row *row) {
    if (!bench_device_is_well(&s->device)) {
        row->verified = false;
        snprintf(row->problem, sizeof row->problem, "%.159s", s->device.error.message);
    }
    row->floor_us = row->bytes > 0.0 ? bench_floor_us(s, row) : 0.0;
    bench_row_finish(s);
}
