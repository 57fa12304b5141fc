/* bench_harness.h - timing one call many times. */
#ifndef APP_BENCH_BENCH_HARNESS_H
#define APP_BENCH_BENCH_HARNESS_H

#include <stdint.h>

/* Microseconds of one call. */
typedef struct bench_timing {
    double median_us, p10_us, p90_us;
    int64_t n_samples;
    int64_t last; /* the index the last timed call was given */
} bench_timing;

/* One call; `i` counts all calls and selects which of the rotated inputs to use. */
typedef void (*bench_call_fn)(void *job, int64_t i);

/* Warms up, then takes samples until there are n_samples or the time budget is spent, five at
 * least. A sample is one call, or as many in a row as last 50 us. */
bench_timing bench_measure(bench_call_fn call, void *job, int64_t n_samples, double budget_s);

/* Waits until the idle workers of a thread pool have stopped spinning: OpenMP's and OpenBLAS's keep
 * their cores busy for some milliseconds after the last call, which the next row would pay. */
void bench_settle(void);

#endif
