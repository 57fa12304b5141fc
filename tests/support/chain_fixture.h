/* chain_fixture.h - runs chain on the call of an attend_fixture. */
#ifndef MMLA_TESTS_CHAIN_FIXTURE_H
#define MMLA_TESTS_CHAIN_FIXTURE_H

#include "support/attend_fixture.h"

/* Plans, poisons the outputs, runs the whole chain; fails the test on a guard byte changed.
 * Returns the status of run. */
mmla_status chain_fixture_run(attend_fixture *f);

/* The same step by step. after[s], bf16 [T, H, 512], is what step s left; the caller frees them
 * with chain_fixture_free_steps. Returns the first failure. */
enum { CHAIN_FIXTURE_STEPS = 3 };
mmla_status chain_fixture_run_steps(attend_fixture *f, uint16_t *after[CHAIN_FIXTURE_STEPS]);
void chain_fixture_free_steps(uint16_t *after[CHAIN_FIXTURE_STEPS]);

/* Every result of f, as one block of bytes to compare: out, out_scale, lse, max_logits. */
test_buffer chain_fixture_results(const attend_fixture *f);

#endif
