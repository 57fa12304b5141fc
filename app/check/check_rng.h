/* check_rng.h - seeded random numbers: one 64-bit state, the same sequence everywhere. */
#ifndef APP_CHECK_RNG_H
#define APP_CHECK_RNG_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct check_rng {
    uint64_t state;
} check_rng;

static inline uint64_t check_rng_next(check_rng *rng) {
    uint64_t z = rng->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* A generator of its own for every (seed, stream, index): a case can be drawn without those before
 * it. */
static inline check_rng check_rng_at(uint64_t seed, uint64_t stream, uint64_t index) {
    check_rng rng = {seed};
    rng.state = check_rng_next(&rng) ^ stream;
    rng.state = check_rng_next(&rng) ^ index;
    check_rng_next(&rng);
    return rng;
}

/* 0 .. n-1, n >= 1. The bias of the remainder does not matter here. */
static inline int64_t check_rng_below(check_rng *rng, int64_t n) {
    return (int64_t)(check_rng_next(rng) % (uint64_t)n);
}

/* 0 <= x < 1. */
static inline double check_rng_uniform(check_rng *rng) {
    return (double)(check_rng_next(rng) >> 11) * 0x1p-53;
}

static inline bool check_rng_chance(check_rng *rng, double p) {
    return check_rng_uniform(rng) < p;
}

/* Roughly normal, mean 0, deviation 1: the sum of four uniforms, cheap and without tails. */
static inline float check_rng_normal(check_rng *rng) {
    const uint64_t u = check_rng_next(rng);
    const double sum = (double)(u & 0xFFFF) + (double)((u >> 16) & 0xFFFF) +
                       (double)((u >> 32) & 0xFFFF) + (double)(u >> 48);
    return (float)((sum / 65536.0 - 2.0) * 1.7320508);
}

/* An index the library must refuse: negative, at or past the bound, or absurd. */
static inline int32_t check_rng_bad_index(check_rng *rng, int64_t bound) {
    const int64_t nasty[] = {INT32_MIN, -123456, -1,         bound,
                             bound + 1, 114514,  2147480000, INT32_MAX};
    const int64_t index = nasty[check_rng_below(rng, 8)];
    return index >= 0 && (index < bound || index > INT32_MAX) ? -1 : (int32_t)index;
}

#endif
