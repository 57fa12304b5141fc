/* bench_harness.c - warm-up, samples, percentiles. */
#include "app/bench/bench_harness.h"

#include <stdlib.h>
#include <time.h>

#include "app/cli/term.h"

enum { SAMPLES_MIN = 5, SAMPLES_MAX = 1024 };

static const double sample_s = 50e-6; /* far above the clock's own cost */
static const double warm_s = 0.02;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls, at least twice, until they have taken warm_s; returns the seconds of one. */
static double warm_up(bench_call_fn call, void *job, int64_t *i) {
    const double start = term_now();
    double elapsed = 0.0;
    int64_t n = 0;
    for (; n < 2 || (elapsed < warm_s && n < 1000); n++) {
        call(job, (*i)++);
        elapsed = term_now() - start;
    }
    return elapsed / (double)n;
}

bench_timing bench_measure(bench_call_fn call, void *job, int64_t n_samples, double budget_s) {
    double samples[SAMPLES_MAX];
    const int64_t most = n_samples < SAMPLES_MAX ? n_samples : SAMPLES_MAX;
    int64_t i = 0, n = 0;
    const double once = warm_up(call, job, &i);
    const int64_t repeats = once < sample_s ? (int64_t)(sample_s / once) + 1 : 1;
    const double start = term_now();
    while (n < most && (n < SAMPLES_MIN || term_now() - start < budget_s)) {
        const double before = term_now();
        for (int64_t r = 0; r < repeats; r++) {
            call(job, i++);
        }
        samples[n++] = 1e6 * (term_now() - before) / (double)repeats;
    }
    qsort(samples, (size_t)n, sizeof samples[0], by_value);
    return (bench_timing){.median_us = samples[n / 2],
                          .p10_us = samples[n / 10],
                          .p90_us = samples[n - 1 - n / 10],
                          .n_samples = n,
                          .last = i - 1};
}

void bench_settle(void) {
    nanosleep(&(struct timespec){.tv_nsec = 60 * 1000 * 1000}, NULL);
}
