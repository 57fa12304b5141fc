#include "support/rng.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t test_seed(int argc, char **argv) {
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20251u;
    printf("# seed %llu\n", (unsigned long long)seed);
    return seed;
}

uint64_t test_rng_next(test_rng *rng) {
    rng->state += 0x9E3779B97F4A7C15u;
    uint64_t z = rng->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t test_rng_below(test_rng *rng, int64_t n) {
    return (int64_t)(test_rng_next(rng) % (uint64_t)n);
}

float test_rng_uniform(test_rng *rng, float low, float high) {
    const float unit = (float)(test_rng_next(rng) >> 40) * 0x1p-24f;
    return low + (high - low) * unit;
}

float test_rng_normal(test_rng *rng) {
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += test_rng_uniform(rng, 0.0f, 1.0f);
    }
    return sum;
}
