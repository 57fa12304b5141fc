/* bench_session.c - the context, the ceilings, and what the options select. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/bench/bench.h"
#include "app/check/check_buffer.h"
#include "base/parallel.h"

enum { UNIT_BYTES = 1 << 20, PAGE_TOKENS = 64 /* when nothing else was asked for */ };

/* The ceilings' job: threads read, or copy, units of a buffer of their own. */
typedef struct stream {
    int32_t n_threads;
    int64_t n_units;
    const uint64_t *from;
    uint64_t *to; /* NULL: read only */
    uint64_t sums[4096];
} stream;

static void stream_unit(void *job, int64_t unit, int32_t thread) {
    stream *s = job;
    const int64_t n = UNIT_BYTES / 8, first = unit * n;
    if (s->to != NULL) {
        memcpy(s->to + first, s->from + first, UNIT_BYTES);
        return;
    }
    /* Independent sums, so that no addition waits for the one before it. */
    uint64_t sum[8] = {0};
    for (int64_t i = first; i < first + n; i += 8) {
        for (int j = 0; j < 8; j++) {
            sum[j] += s->from[i + j];
        }
    }
    for (int j = 0; j < 8; j++) {
        s->sums[thread] += sum[j];
    }
}

static void stream_call(void *job, int64_t i) {
    (void)i;
    stream *s = job;
    mmla_parallel_for(s->n_threads, s->n_units, stream_unit, s);
}

int64_t bench_cold_bytes(const bench_session *s) {
    const int64_t most = (int64_t)(s->options.quick ? 64 : 256) << 20;
    const int64_t wanted = 3 * s->cache_bytes;
    return wanted < most ? wanted : most;
}

static void measure_ceilings(bench_session *s) {
    stream *job = check_alloc(sizeof *job);
    const int64_t bytes = bench_cold_bytes(s) / UNIT_BYTES * UNIT_BYTES;
    uint64_t *from = check_alloc(bytes), *to = check_alloc(bytes);
    memset(from, 1, (size_t)bytes);
    memset(to, 2, (size_t)bytes);
    *job = (stream){
        .n_threads = mmla_context_get_threads(s->ctx), .n_units = bytes / UNIT_BYTES, .from = from};
    s->read_gbps = (double)bytes * 1e-3 / bench_measure(stream_call, job, 15, 0.5).median_us;
    job->to = to;
    s->copy_gbps = 2.0 * (double)bytes * 1e-3 / bench_measure(stream_call, job, 15, 0.5).median_us;
    free(from);
    free(to);
    free(job);
}

mmla_status bench_session_init(bench_session *s, const bench_options *options, mmla_error *err) {
    *s = (bench_session){.options = *options};
    const mmla_context_options o = {.device = MMLA_CPU, .n_threads = options->n_threads};
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    s->cache_bytes = cache > 0 ? cache : 32 << 20;
    const mmla_status status = mmla_context_create(&o, &s->ctx, err);
    s->host = s->ctx;
    if (status == MMLA_OK) {
        s->blas = openblas_open(mmla_context_get_threads(s->ctx));
        measure_ceilings(s);
        const double us = bench_sgemm_attend(s, 64).median_us;
        const double flop = 64.0 * (BENCH_WINDOW + BENCH_COMPRESSED) * 4.0 * MMLA_LATENT_DIM;
        s->sgemm_gflops = us > 0.0 ? flop * 1e-3 / us : 0.0;
    }
    return status;
}

void bench_session_deinit(bench_session *s) {
    openblas_close(&s->blas);
    mmla_context_destroy(s->ctx);
    s->ctx = s->host = NULL;
}

static const bench_op cpu_ops[] = {
    {"attend_paged", "attend", {"528+288", "528+528", "584+584"}},
    {"attend_rows", "attend", {"bf16"}},
    {"project", "project", {NULL}},
    {"kv_insert", "kv_insert", {"584", "528", "288"}},
    {"kv_gather", "kv_gather", {"584", "528", "288"}},
    {0},
};

static const bench_op gpu_ops[] = {
    {"attend_paged", "attend", {"528+288", "528+528", "528", "584+584", "584"}},
    {"attend_rows", "attend", {"bf16"}},
    {"prefill_paged", "attend", {"528+288"}},
    {"prefill_workspace", "attend", {"528+288"}},
    {"project", "project", {NULL}},
    {"kv_insert", "kv_insert", {"584", "528", "288"}},
    {"kv_gather", "kv_gather", {"584", "528", "288"}},
    {"list_window", "lists", {NULL}},
    {"list_compressed", "lists", {NULL}},
    {"list_combined", "lists", {NULL}},
    {"list_slots", "lists", {NULL}},
    {"step", "kv_insert", {"528"}},
    {"step_apart", "kv_insert", {"528"}},
    {"host_cost", "attend", {NULL}},
    {0},
};

const bench_op *bench_ops(mmla_device_kind kind) {
    return kind == MMLA_DEVICE_CPU ? cpu_ops : gpu_ops;
}

static bool has_implementation(const bench_session *s, const char *library_op, const char *name) {
    mmla_implementation impl;
    for (int32_t i = 0; mmla_implementation_get(s->ctx, i, &impl, NULL) == MMLA_OK; i++) {
        /* A CPU's and a GPU's may have the same name. */
        if (strcmp(impl.op, library_op) == 0 && strcmp(impl.name, name) == 0 && impl.available) {
            return true;
        }
    }
    return false;
}

bool bench_wants_op(const bench_session *s, const char *op) {
    const bench_op *it = bench_ops(s->on_gpu ? MMLA_DEVICE_CUDA : MMLA_DEVICE_CPU);
    while (strcmp(it->name, op) != 0) {
        it++;
    }
    return (s->options.op == NULL || strcmp(s->options.op, op) == 0) &&
           (s->options.implementation == NULL ||
            has_implementation(s, it->library_op, s->options.implementation));
}

bool bench_wants_formats(const bench_session *s, const char *formats) {
    return s->options.formats == NULL || strcmp(s->options.formats, formats) == 0;
}

bench_list bench_list_or(const bench_list *given, const int64_t *values, int n) {
    if (given->n > 0) {
        return *given;
    }
    bench_list list = {.n = n};
    memcpy(list.values, values, (size_t)n * sizeof values[0]);
    return list;
}

int32_t bench_page_tokens(const bench_options *o) {
    return o->page_tokens > 0 ? o->page_tokens : PAGE_TOKENS;
}

int32_t bench_layers(const bench_options *o) {
    return o->n_layers > 0 ? o->n_layers : 1;
}

bench_row *bench_row_add(bench_session *s, const char *op, const char *formats) {
    if (s->n_rows == BENCH_ROWS_MAX) {
        return NULL;
    }
    bench_row *row = &s->rows[s->n_rows++];
    *row = (bench_row){.op = op, .formats = formats};
    if (s->options.progress != NULL) {
        s->options.progress(s->options.progress_user, op, s->n_rows, 0);
    }
    return row;
}

void bench_row_finish(bench_session *s) {
    if (s->options.finished != NULL) {
        s->options.finished(s->options.finished_user, s);
    }
}

double bench_floor_us(const bench_session *s, const bench_row *row) {
    const double cached = s->options.warm ? (double)s->cache_bytes : 0.0;
    const double memory = fmax(row->bytes - cached, 0.0) * 1e-3 / s->read_gbps;
    const double launch = s->on_gpu ? s->node_us : 0.0;
    const double math = !s->on_gpu             ? row->sgemm_us
                        : s->gemm_tflops > 0.0 ? row->flop * 1e-6 / s->gemm_tflops
                                               : 0.0;
    return fmax(fmax(math, memory), launch);
}

bench_timing bench_sgemm_attend(const bench_session *s, int64_t n_heads) {
    return openblas_measure_attend(&s->blas, n_heads, BENCH_WINDOW + BENCH_COMPRESSED,
                                   s->options.n_samples, s->options.quick ? 0.05 : 0.15);
}

bool bench_is_wide(const bench_timing *t) {
    return t->p90_us > 2.0 * t->p10_us;
}

double bench_baseline_us(bench_timing t) {
    return bench_is_wide(&t) ? 0.0 : t.median_us;
}
