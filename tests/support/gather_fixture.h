/* gather_fixture.h - a kv_gather call with everything it needs.
 *
 * Shapes are chosen before gather_fixture_fill, the call's own rows and offset among them; contents may
 * be changed after it. The workspace has the rows of the call and no more, guarded and poisoned, so that
 * every row that should not change is known; the cache's padding is filled with bytes that mean NaN.
 */
#ifndef MMLA_TESTS_GATHER_FIXTURE_H
#define MMLA_TESTS_GATHER_FIXTURE_H

#include <megamla/megamla.h>

#include "kv/layout.h"
#include "support/guard.h"
#include "support/rng.h"

typedef struct gather_fixture {
    mmla_context *ctx;
    mmla_kv_gather_desc desc;
    mmla_kv_gather_args args; /* n_requests, rows and offset are chosen, the rest is filled */
    mmla_kv_view view;
    mmla_error error;
    int32_t n_faults;
    test_buffer block_table, seq_lens, gather_lens, query_start, cache, out;
} gather_fixture;

/* Three requests over eight pages of five records of `format`; a table of four pages each, 24
 * workspace rows each, of which the first two are skipped. */
gather_fixture gather_fixture_create(mmla_kv_format format);

/* Opens the context and fills the inputs: records of random rows, legal pages, lengths that fit, and
 * queries that are no longer than their sequences. */
void gather_fixture_fill(gather_fixture *f, int32_t n_threads, uint64_t seed);

void gather_fixture_destroy(gather_fixture *f);

/* Plans with `implementation`, poisons the workspace and the results, runs; fails the test when a
 * guard byte changed. "cuda" runs on GPU 0, on copies; requests that do not fit, which only n_faults
 * tells then, give MMLA_E_INDEX here as on the CPU, without a message. */
mmla_status gather_fixture_run(gather_fixture *f, const char *implementation);

/* Pointers into the inputs. */
int32_t *gather_fixture_table(gather_fixture *f, int64_t r);
int32_t *gather_fixture_seq_lens(gather_fixture *f);
int32_t *gather_fixture_gather_lens(gather_fixture *f);
int32_t *gather_fixture_query_start(gather_fixture *f);
uint8_t *gather_fixture_data(gather_fixture *f, int64_t slot);
uint8_t *gather_fixture_scale(gather_fixture *f, int64_t slot);

/* M and offset of the call. */
int64_t gather_fixture_rows(const gather_fixture *f);
int64_t gather_fixture_offset(const gather_fixture *f);

/* Workspace row `row` of request r, counted without the offset. */
const uint16_t *gather_fixture_out(const gather_fixture *f, int64_t r, int64_t row);

/* Fails the test unless row `row` of request r is what the scalar decoder makes of `slot`; of -1, a
 * row of +0. */
void gather_fixture_assert_row(gather_fixture *f, int64_t r, int64_t row, int64_t slot);

/* Fails the test unless rows from .. to - 1 of request r are untouched. */
void gather_fixture_assert_untouched(const gather_fixture *f, int64_t r, int64_t from, int64_t to);

#endif
