/* attend_fixture.h - a small attention call with everything it needs, for tests of attend and
 * chain.
 *
 * Shapes are chosen before attend_fixture_fill; contents may be changed after it. Outputs lie in
 * guarded, poisoned buffers of exactly their size.
 */
#ifndef MMLA_TESTS_ATTEND_FIXTURE_H
#define MMLA_TESTS_ATTEND_FIXTURE_H

#include <megamla/megamla.h>

#include "support/guard.h"
#include "support/rng.h"

typedef struct attend_fixture {
    mmla_context *ctx;
    mmla_attend_desc desc; /* fill in kind, n_heads, formats, widths, options */
    int64_t n_tokens;
    int64_t n_rows; /* ROWS */
    mmla_attend_args args;
    mmla_error error;
    test_buffer q, positions, cos_sin, sink, list, lens, compressed_list, compressed_lens;
    test_buffer window, compressed, kv;
    test_buffer out, out_scale, lse, max_logits;
} attend_fixture;

/* One token, 8 heads, 16 bf16 rows, list width 4, scale 512^-0.5; table of 64 positions. */
attend_fixture attend_fixture_rows(int32_t n_threads);

/* The same over a 528-byte window cache (page 16) and a 288-byte compressed cache (page 8). */
attend_fixture attend_fixture_paged(int32_t n_threads);

/* Allocates and fills every input at random: finite keys, lists of legal entries, lens and sink
 * set. */
void attend_fixture_fill(attend_fixture *f, uint64_t seed);

/* Plans with `implementation`, poisons the outputs, runs; fails the test on a guard byte changed.
 * Returns the status of run. */
mmla_status attend_fixture_run(attend_fixture *f, const char *implementation);

/* Frees everything, the context included. */
void attend_fixture_destroy(attend_fixture *f);

/* Dequantised output of dim x of a head, whatever the form. */
double attend_fixture_out(const attend_fixture *f, int64_t token, int32_t head, int32_t x);

/* Output code (an FP8 form) and ue8m0 scale byte of chunk c. */
uint8_t attend_fixture_code(const attend_fixture *f, int64_t token, int32_t head, int32_t x);
uint8_t attend_fixture_scale_byte(const attend_fixture *f, int64_t token, int32_t head, int32_t c);

/* The idx-th name of an implementation of attend usable on this machine, the reference included;
 * NULL past the last. */
const char *attend_fixture_implementation(const attend_fixture *f, int32_t idx);

#endif
