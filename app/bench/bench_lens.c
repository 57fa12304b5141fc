/* bench_lens.c - lengths as an engine has them: full, of every size in one batch, or none at all. */
#include "app/bench/bench_lens.h"

#include "app/check/check_rng.h"

enum { SHORT_OF = 8 /* lengths "short" are an eighth */ };

int64_t bench_padded_count(const bench_options *o, int64_t n_tokens) {
    return n_tokens * o->padded_percent / 100;
}

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Keys of one token that has some. */
static bench_widths draw(const bench_options *o, bench_widths widths, check_rng *rng) {
    bench_widths lens = widths;
    switch (o->lengths) {
    case BENCH_LENGTHS_FULL:
        break;
    case BENCH_LENGTHS_MIXED: /* a token sees itself at least, but there may be no pick yet */
        lens.window = 1 + (int32_t)check_rng_below(rng, widths.window);
        lens.compressed = (int32_t)check_rng_below(rng, widths.compressed + 1);
        break;
    case BENCH_LENGTHS_SHORT:
        lens.window = (widths.window + SHORT_OF - 1) / SHORT_OF;
        lens.compressed = (widths.compressed + SHORT_OF - 1) / SHORT_OF;
        break;
    case BENCH_LENGTHS_KEYS: /* the window fills first */
        lens.window = smaller(o->n_keys, widths.window);
        lens.compressed = smaller(o->n_keys - lens.window, widths.compressed);
        break;
    }
    return lens;
}

void bench_lens_draw(const bench_options *o,
                     bench_widths widths,
                     int64_t n_tokens,
                     check_rng *rng,
                     int32_t *window,
                     int32_t *compressed) {
    const int64_t n_live = n_tokens - bench_padded_count(o, n_tokens);
    for (int64_t t = 0; t < n_tokens; t++) {
        const bench_widths lens = t < n_live ? draw(o, widths, rng) : (bench_widths){0, 0};
        window[t] = lens.window;
        compressed[t] = lens.compressed;
    }
}

int64_t bench_lens_sum(const int32_t *lens, int64_t n_tokens) {
    int64_t sum = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        sum += lens[t];
    }
    return sum;
}
