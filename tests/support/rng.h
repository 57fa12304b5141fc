/* rng.h - the tests' random numbers: SplitMix64, the same on every machine.
 *
 * A test program prints its seed once and takes another from its first argument, so that a failure
 * can be repeated: `const uint64_t seed = test_seed(argc, argv);`
 */
#ifndef MMLA_TESTS_RNG_H
#define MMLA_TESTS_RNG_H

#include <stdint.h>

typedef struct test_rng {
    uint64_t state;
} test_rng;

/* The seed of this run: argv[1] when given, else a fixed number. Prints it as a TAP comment. */
uint64_t test_seed(int argc, char **argv);

uint64_t test_rng_next(test_rng *rng);

/* 0 .. n-1; n > 0. */
int64_t test_rng_below(test_rng *rng, int64_t n);

/* Uniform in [low, high). */
float test_rng_uniform(test_rng *rng, float low, float high);

/* Roughly normal, mean 0, deviation 1: a sum of uniforms, so it needs no libm. */
float test_rng_normal(test_rng *rng);

#endif
