/* kv_insert_rows.c - which rows are written, where, in which order, and by which thread.
 *
 * Rows with the same slot must be stored in the order of the call, whatever the number of threads.
 * So work is divided by slot, not by row: every unit walks all rows and takes those whose slot is
 * its own. A walk costs a few nanoseconds a row, a record several hundred.
 */
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ops/kv_insert/kv_insert.h"

enum { ROWS_PER_UNIT = 16 }; /* below that, a thread costs more than it brings */

mmla_status mmla_kv_insert_report(const mmla_kv_insert_problem *p,
                                  const mmla_kv_insert_args *args) {
    int64_t n_faults = 0, first = 0;
    mmla_kv_insert_fault fault = MMLA_KV_INSERT_NO_FAULT; /* of the first refused row */
    for (int64_t t = 0; t < args->n_slots; t++) {
        const mmla_kv_insert_place place = mmla_kv_insert_place_get(p, args, t);
        if (place.fault != MMLA_KV_INSERT_NO_FAULT && n_faults++ == 0) {
            first = t;
            fault = place.fault;
        }
    }
    if (n_faults > 0 && args->n_faults != NULL) {
        *args->n_faults = mmla_add_count(*args->n_faults, n_faults);
    }
    switch (fault) {
    case MMLA_KV_INSERT_NO_FAULT:
        break;
    case MMLA_KV_INSERT_BAD_SLOT:
        return mmla_error_set(args->error, MMLA_E_INDEX, "slots",
                              "of row %lld is %lld, must be below the capacity %lld; rows refused: "
                              "%lld",
                              (long long)first, (long long)args->slots[first],
                              (long long)p->cache.n_slots, (long long)n_faults);
    case MMLA_KV_INSERT_BAD_POSITION:
        return mmla_error_set(
            args->error, MMLA_E_INDEX, "positions",
            "of row %lld is %lld, must have one of the %lld lines of cos_sin; rows "
            "refused: %lld",
            (long long)first, (long long)args->positions[first], (long long)p->desc.rope_positions,
            (long long)n_faults);
    }
    return MMLA_OK;
}

struct job {
    const mmla_kv_insert_problem *p;
    const mmla_kv_insert_args *args;
    mmla_kv_insert_row_fn fn;
    int64_t n_units;
};

/* The unit that owns a slot. Four neighbours go together, because their scale rows share a cache
 * line. The product spreads the rest: without it the one open record of every page, which is what a
 * decode step writes, would fall to the same unit for many page sizes. */
static int64_t owner(int64_t slot, int64_t n_units) {
    const uint64_t spread = ((uint64_t)slot >> 2) * 0x9E3779B97F4A7C15u;
    return (int64_t)((spread >> 32) % (uint64_t)n_units);
}

static void run_unit(void *arg, int64_t unit, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const mmla_kv_insert_problem *p = job->p;
    const mmla_kv_insert_args *args = job->args;
    uint8_t *cache = args->cache;
    for (int64_t t = 0; t < args->n_slots; t++) {
        if (job->n_units > 1 && owner(args->slots[t], job->n_units) != unit) {
            continue;
        }
        const mmla_kv_insert_place place = mmla_kv_insert_place_get(p, args, t);
        if (place.slot >= 0) {
            job->fn(p, args, args->rows + t * p->desc.row_stride,
                    args->cos_sin + place.position * MMLA_ROPE_DIM,
                    cache + mmla_kv_data_offset(&p->cache, place.slot),
                    cache + mmla_kv_scale_offset(&p->cache, place.slot));
        }
    }
}

mmla_status mmla_kv_insert_rows(const mmla_kv_insert_problem *p,
                                const mmla_kv_insert_args *args,
                                mmla_kv_insert_row_fn fn) {
    const int64_t wanted = (args->n_slots + ROWS_PER_UNIT - 1) / ROWS_PER_UNIT;
    struct job job = {p, args, fn, mmla_clamp_i64(wanted, 1, p->n_threads)};
    mmla_parallel_for(p->n_threads, job.n_units, run_unit, &job);
    return mmla_kv_insert_report(p, args);
}
