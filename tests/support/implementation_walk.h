/* implementation_walk.h - the implementations of an operation, for tests that hold each to the same.
 *
 *     const char *name;
 *     for (size_t i = 0; (name = test_implementation(ctx, "kv_gather", i)) != NULL; i++) {
 */
#ifndef MMLA_TESTS_IMPLEMENTATION_WALK_H
#define MMLA_TESTS_IMPLEMENTATION_WALK_H

#include <stddef.h>

#include <megamla/context.h>

/* The idx-th implementation of `op` that this context can use, the reference among them; NULL past
 * the last. Fails the test when there are fewer than two: a loop over nothing would pass. */
const char *test_implementation(const mmla_context *ctx, const char *op, size_t idx);

#endif
