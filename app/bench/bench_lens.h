/* bench_lens.h - how many keys each token of a call has. */
#ifndef APP_BENCH_BENCH_LENS_H
#define APP_BENCH_BENCH_LENS_H

#include <stdint.h>

#include "app/bench/bench.h"

struct check_rng;

/* Widths of the two lists a token has; the second may be 0. */
typedef struct bench_widths {
    int32_t window, compressed;
} bench_widths;

/* Tokens at the end of a call that have no key: what a batch is filled up with to the size that a
 * graph was recorded for. */
int64_t bench_padded_count(const bench_options *o, int64_t n_tokens);

/* Fills both arrays, [n_tokens], as the options say. */
void bench_lens_draw(const bench_options *o,
                     bench_widths widths,
                     int64_t n_tokens,
                     struct check_rng *rng,
                     int32_t *window,
                     int32_t *compressed);

/* Keys of all tokens in one of the lists. */
int64_t bench_lens_sum(const int32_t *lens, int64_t n_tokens);

#endif
