/* bench_replay.c - recording, warming up, samples between events. */
#include "app/bench/bench_replay.h"

#include "app/report/report_quantiles.h"
#include "app/term/term.h"
#include "base/gpu_memory.h"

enum { SAMPLES_MIN = 5, SAMPLES_MAX = 1024, TRIAL_CALLS = 16, CALLS_MAX = 4096 };

static const double least_us = 200.0;  /* of a replay */
static const double warm_us = 20000.0; /* clocks rise within some milliseconds */

int64_t bench_replay_calls(double us, int64_t n_sets) {
    const double wanted = us > 0.0 ? least_us / us : CALLS_MAX;
    const int64_t calls = wanted < CALLS_MAX ? (int64_t)wanted + 1 : CALLS_MAX;
    return (calls + n_sets - 1) / n_sets * n_sets;
}

/* Enqueues calls 0 .. n-1. */
static void enqueue(bench_replay *r, int64_t n) {
    mmla_error err = {0};
    for (int64_t i = 0; i < n && bench_device_is_well(r->device); i++) {
        bench_device_keep(r->device, r->call(r->job, i, r->device->stream, &err), &err);
    }
}

static void record(bench_replay *r, int64_t n) {
    bench_device *d = r->device;
    mmla_error err = {0};
    r->n_calls = n;
    if (d->gpu == NULL || !bench_device_is_well(d)) {
        return;
    }
    mmla_gpu_graph_destroy(d->gpu, r->graph);
    r->graph = NULL;
    if (bench_device_keep(d, mmla_gpu_capture_begin(d->gpu, d->stream, &err), &err)) {
        enqueue(r, n);
        /* A capture that began has to end, whatever came between. */
        bench_device_keep(d, mmla_gpu_capture_end(d->gpu, d->stream, &r->graph, &err), &err);
    }
}

static void launch(bench_replay *r) {
    bench_device *d = r->device;
    mmla_error err = {0};
    if (d->gpu == NULL) {
        enqueue(r, r->n_calls);
    } else if (bench_device_is_well(d)) {
        bench_device_keep(d, mmla_gpu_graph_launch(d->gpu, r->graph, d->stream, &err), &err);
    }
}

/* Samples of the host: its own clock. */
static void sample_host(bench_replay *r, int64_t n, double *us) {
    for (int64_t i = 0; i < n && bench_device_is_well(r->device); i++) {
        const double before = term_now();
        launch(r);
        us[i] = 1e6 * (term_now() - before);
    }
}

/* Samples of a GPU: n + 1 marks with a replay between each two. Everything is enqueued before the
 * first is waited for, and one replay goes ahead of the first mark, so that the device never waits
 * for the host. */
static void sample_gpu(bench_replay *r, int64_t n, double *us) {
    bench_device *d = r->device;
    mmla_gpu_event *marks[SAMPLES_MAX + 1] = {0};
    mmla_error err = {0};
    for (int64_t i = 0; i <= n && bench_device_is_well(d); i++) {
        bench_device_keep(d, mmla_gpu_event_create(d->gpu, &marks[i], &err), &err);
    }
    launch(r);
    for (int64_t i = 0; i <= n && bench_device_is_well(d); i++) {
        bench_device_keep(d, mmla_gpu_event_record(d->gpu, marks[i], d->stream, &err), &err);
        if (i < n) {
            launch(r);
        }
    }
    bench_device_wait(d);
    for (int64_t i = 0; i < n && bench_device_is_well(d); i++) {
        bench_device_keep(
            d, mmla_gpu_event_elapsed_us(d->gpu, marks[i], marks[i + 1], &us[i], &err), &err);
    }
    for (int64_t i = 0; i <= n; i++) {
        mmla_gpu_event_destroy(d->gpu, marks[i]);
    }
}

static void sample(bench_replay *r, int64_t n, double *us) {
    if (r->device->gpu == NULL) {
        sample_host(r, n, us);
    } else {
        sample_gpu(r, n, us);
    }
}

bench_replay
bench_replay_create(bench_device *d, bench_enqueue_fn call, void *job, int64_t n_sets) {
    bench_replay r = {.device = d, .call = call, .job = job};
    double us[2] = {0};
    enqueue(&r, n_sets);
    bench_device_wait(d);
    record(&r, n_sets < TRIAL_CALLS ? n_sets : TRIAL_CALLS);
    sample(&r, 2, us); /* the first uploads the graph */
    const int64_t n_calls = bench_replay_calls(us[1] / (double)r.n_calls, n_sets);
    record(&r, n_calls);
    r.us = us[1] / (double)(n_sets < TRIAL_CALLS ? n_sets : TRIAL_CALLS) * (double)n_calls;
    for (double spent = 0.0; spent < warm_us && bench_device_is_well(d); spent += r.us) {
        sample(&r, 1, &us[0]);
        r.us = us[0] > 1.0 ? us[0] : 1.0;
    }
    return r;
}

void bench_replay_destroy(bench_replay *r) {
    if (r->device->gpu != NULL) {
        mmla_gpu_graph_destroy(r->device->gpu, r->graph);
    }
    *r = (bench_replay){0};
}

bench_timing bench_replay_measure(bench_replay *r, int64_t n_samples, double budget_s) {
    double us[SAMPLES_MAX];
    if (!bench_device_is_well(r->device)) {
        return (bench_timing){0};
    }
    const double affordable = 1e6 * budget_s / r->us;
    int64_t n = n_samples < SAMPLES_MAX ? n_samples : SAMPLES_MAX;
    n = affordable < (double)n ? (int64_t)affordable : n;
    n = n > SAMPLES_MIN ? n : SAMPLES_MIN;
    sample(r, n, us);
    if (!bench_device_is_well(r->device)) {
        return (bench_timing){0};
    }
    for (int64_t i = 0; i < n; i++) {
        us[i] /= (double)r->n_calls;
    }
    const report_quantiles q = report_quantiles_of(us, n);
    return (bench_timing){.median_us = q.median,
                          .p10_us = q.p10,
                          .p90_us = q.p90,
                          .n_samples = n,
                          .last = r->n_calls - 1};
}
