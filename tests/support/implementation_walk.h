/* implementation_walk.h - the implementations of an operation, for tests that hold each to the same.
 *
 *     const char *name;
 *     for (size_t i = 0; (name = test_implementation(ctx, "kv_gather", i)) != NULL; i++) {
 */
#ifndef MMLA_TESTS_IMPLEMENTATION_WALK_H
#define MMLA_TESTS_IMPLEMENTATION_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include <megamla/context.h>

/* The idx-th implementation of `op` that this context can use, the reference among them; NULL past
 * the last. Fails the test when there are fewer than two: a loop over nothing would pass. */
const char *test_implementation(const mmla_context *ctx, const char *op, size_t idx);

/* The same with "cuda" before all others where there is a GPU, for fixtures that run it there on copies
 * of their arrays; ctx is on the CPU. */
const char *test_implementation_anywhere(const mmla_context *ctx, const char *op, size_t idx);
bool test_implementation_is_cuda(const char *name);

#endif
