/* bench_sample.h - a few tokens of a large call, and what the reference makes of them.
 *
 * A result of a thousand tokens cannot be compared whole: the reference would take minutes. Tokens do
 * not depend on each other, so some of them, spread over the batch, are made into a small call of
 * their own, with caches of one tile (bench_gpu.h) and slots to fit.
 */
#ifndef APP_BENCH_BENCH_SAMPLE_H
#define APP_BENCH_BENCH_SAMPLE_H

#include <stdint.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_near.h"

enum { BENCH_SAMPLE_MAX = 8, BENCH_SAMPLE_POISON = 0x5A };

typedef struct bench_sample {
    int64_t tokens[BENCH_SAMPLE_MAX];
    int64_t n;
    check_attend_case c;      /* the small call; all its memory is on the host */
    check_attend_result want; /* the reference's; empty when it did not run */
} bench_sample;

/* Tokens spread over 0 .. n_tokens-1, first and last among them, rising. Returns their number. */
int64_t bench_sample_pick(int64_t n_tokens, int64_t tokens[BENCH_SAMPLE_MAX]);

/* Of a call in host memory whose caches are tiles: slots are taken modulo those. Runs the reference;
 * the verdict fails when that is not possible. The sample borrows sink, table and caches. */
bench_sample bench_sample_create(const check_attend_case *call,
                                 const mmla_cache_desc *window_tile,
                                 const mmla_cache_desc *compressed_tile,
                                 mmla_context *host,
                                 check_verdict *verdict);
void bench_sample_destroy(bench_sample *x);

/* Holds results of the whole call, in host memory, against the reference's: the sampled tokens by
 * value; of all others that their lse is one; and that padding kept its poison. `chain` rounds more
 * often. */
void bench_sample_compare(bench_sample *x,
                          const check_attend_case *call,
                          const check_attend_buffers *got,
                          const char *implementation,
                          bool chain,
                          check_verdict *verdict);

#endif
