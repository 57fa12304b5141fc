/* insert_fixture.h - a kv_insert call with everything it needs.
 *
 * Shapes are chosen before insert_fixture_fill; contents may be changed after it. The cache is
 * guarded and poisoned, so that every byte that should not change is known.
 */
#ifndef MMLA_TESTS_INSERT_FIXTURE_H
#define MMLA_TESTS_INSERT_FIXTURE_H

#include <megamla/megamla.h>

#include "kv/layout.h"
#include "support/guard.h"
#include "support/rng.h"

typedef struct insert_fixture {
    mmla_context *ctx;
    mmla_kv_insert_desc desc;
    mmla_kv_insert_args args; /* n_rows and n_slots are chosen, the rest is filled */
    mmla_kv_view view;
    mmla_error error;
    int32_t n_faults;
    test_buffer rows, positions, slots, cos_sin, norm_weight, cache;
} insert_fixture;

/* Eight rows into three pages of seven records of `format`; 64 positions; one thread. */
insert_fixture insert_fixture_create(mmla_kv_format format);

/* Opens the context and fills the inputs: random rows, positions in the table, slots all different
 * (as many as fit). */
void insert_fixture_fill(insert_fixture *f, int32_t n_threads, uint64_t seed);

void insert_fixture_destroy(insert_fixture *f);

/* Plans with `implementation`, poisons the cache and the results, runs; fails the test when a guard
 * byte or an input changed. "cuda" runs on GPU 0, on copies; refused rows, which only n_faults tells
 * then, give MMLA_E_INDEX here as on the CPU, without a message. */
mmla_status insert_fixture_run(insert_fixture *f, const char *implementation);

/* Pointers into the inputs. */
uint16_t *insert_fixture_row(insert_fixture *f, int64_t t);
int64_t *insert_fixture_positions(insert_fixture *f);
int64_t *insert_fixture_slots(insert_fixture *f);
float *insert_fixture_cos_sin(insert_fixture *f);

/* The record a slot holds after a run. */
const uint8_t *insert_fixture_data(const insert_fixture *f, int64_t slot);
const uint8_t *insert_fixture_scale(const insert_fixture *f, int64_t slot);

/* Fails the test unless exactly the records of these slots have changed since the poison; every
 * other byte of the cache, padding included, must still be poison. */
void insert_fixture_assert_only(const insert_fixture *f, const int64_t *slots, int64_t n);

#endif
