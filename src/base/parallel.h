/* parallel.h - the one parallel loop of the CPU backend. */
#ifndef MMLA_BASE_PARALLEL_H
#define MMLA_BASE_PARALLEL_H

#include <stdint.h>

/* The most threads one loop uses. Without OpenMP they are started anew by every loop, on the stack
 * of the caller. */
#if defined(_OPENMP)
enum { MMLA_PARALLEL_MAX = 4096 };
#else
enum { MMLA_PARALLEL_MAX = 64 };
#endif

/* One unit of work. `thread` is 0 .. n_threads-1 and unique among units that run at the same time:
 * it selects the unit's scratch. */
typedef void (*mmla_unit_fn)(void *job, int64_t unit, int32_t thread);

/* Calls fn for units 0 .. n_units-1, each once, in any order, on at most n_threads threads, and
 * returns when all are done. Units are handed out one by one, so unequal ones balance. Runs in the
 * calling thread when one thread or one unit is enough. */
void mmla_parallel_for(int32_t n_threads, int64_t n_units, mmla_unit_fn fn, void *job);

#endif
