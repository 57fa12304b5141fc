/* bench_harness.c - warm-up and samples. */
#include "app/bench/bench_harness.h"

#include <time.h>

#include "app/term/term.h"
#include "app/report/report_quantiles.h"

enum { SAMPLES_MIN = 5, SAMPLES_MAX = 1024 };

static const double sample_s = 50e-6; /* far above the clock's own cost */
static const double warm_s = 0.02;

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
    const report_quantiles q = report_quantiles_of(samples, n);
    return (bench_timing){
        .median_us = q.median, .p10_us = q.p10, .p90_us = q.p90, .n_samples = n, .last = i - 1};
}

void bench_settle(void) {
    nanosleep(&(struct timespec){.tv_nsec = 60 * 1000 * 1000}, NULL);
}
