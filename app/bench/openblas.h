/* openblas.h - single-precision products by OpenBLAS, when the machine has it.
 *
 * The baseline on the CPU: what a good general matrix product reaches on the two products of
 * attention, with nothing around them. It is loaded when a benchmark asks for it, so that the
 * command neither needs it nor pays for it at start-up.
 */
#ifndef APP_BENCH_OPENBLAS_H
#define APP_BENCH_OPENBLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "app/bench/bench_harness.h"

typedef struct openblas {
    void *library; /* NULL: not there */
    void (*sgemm)(int,
                  int,
                  int,
                  int,
                  int,
                  int,
                  float,
                  const float *,
                  int,
                  const float *,
                  int,
                  float,
                  float *,
                  int);
    void (*set_threads)(int);
} openblas;

/* Loads libopenblas.so.0 and makes it use n_threads. A machine without it gets a struct whose
 * library is NULL. */
openblas openblas_open(int32_t n_threads);
void openblas_close(openblas *blas);

/* Time of the two products of one token of attention, [H, 512] x [512, keys] and
 * [H, keys] x [keys, 512]. All zero without OpenBLAS. */
bench_timing openblas_measure_attend(
    const openblas *blas, int64_t n_heads, int64_t n_keys, int64_t n_samples, double budget_s);

/* Time of n_groups products [tokens, 4096] x [4096, rank]. */
bench_timing openblas_measure_project(const openblas *blas,
                                      int64_t n_tokens,
                                      int64_t n_groups,
                                      int64_t rank,
                                      int64_t n_samples,
                                      double budget_s);

#endif
