/* bench_replay.h - timing calls by a graph of many of them, launched many times.
 *
 * A launch costs the host microseconds, and a clock on the device has its own grain; a graph of calls
 * that lasts a tenth of a millisecond hides both, and is how an engine runs a decode step. The calls
 * of a graph walk through all sets of inputs, so that none finds in the caches what the one before
 * it, or the replay before, left there.
 */
#ifndef APP_BENCH_BENCH_REPLAY_H
#define APP_BENCH_BENCH_REPLAY_H

#include <stdint.h>

#include <megamla/status.h>

#include "app/bench/bench_device.h"
#include "app/bench/bench_harness.h"

/* Enqueues call i, on inputs i modulo the number of sets. */
typedef mmla_status (*bench_enqueue_fn)(void *job, int64_t i, void *stream, mmla_error *err);

typedef struct bench_replay {
    bench_device *device;
    bench_enqueue_fn call;
    void *job;
    struct mmla_gpu_graph *graph; /* NULL where the host stands in */
    int64_t n_calls;
    double us; /* of one replay, about */
} bench_replay;

/* Runs every call once eagerly, so that whatever fails is found before it is recorded; records; and
 * warms up. After a failure, which the device keeps, the others do nothing. */
bench_replay bench_replay_create(bench_device *d, bench_enqueue_fn call, void *job, int64_t n_sets);
void bench_replay_destroy(bench_replay *r);

/* Microseconds of one call: replays until there are n_samples or the budget is spent, five at
 * least. `last` is the index of the last call, whose results are in memory. */
bench_timing bench_replay_measure(bench_replay *r, int64_t n_samples, double budget_s);

/* How many calls a graph holds when one takes `us`: all sets, as often as it takes to last. */
int64_t bench_replay_calls(double us, int64_t n_sets);

#endif
