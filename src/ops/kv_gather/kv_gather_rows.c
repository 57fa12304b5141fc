/* kv_gather_rows.c - which records are read, where they go, and by which thread.
 *
 * Requests differ in length, so work is divided by rows: all rows of the call stand in one line,
 * and every unit takes an equal piece of it, finding its place by walking the requests. No two rows
 * share an output, so nothing depends on the number of threads.
 */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ops/kv_gather/kv_gather.h"

enum {
    ROWS_PER_UNIT = 16,  /* below that, a thread costs more than it brings */
    UNITS_PER_THREAD = 4 /* several, because a piece may be slow: its pages may be cold */
};

mmla_status mmla_kv_gather_report(const mmla_kv_gather_problem *p,
                                  const mmla_kv_gather_args *args) {
    const int64_t room = p->desc.rows - p->desc.offset;
    int64_t n_faults = 0, first = 0;
    for (int64_t r = 0; r < args->n_requests; r++) {
        if (!mmla_kv_gather_span_get(p, args, r).fits && n_faults++ == 0) {
            first = r;
        }
    }
    if (n_faults == 0) {
        return MMLA_OK;
    }
    if (args->n_faults != NULL) {
        *args->n_faults = mmla_add_count(*args->n_faults, n_faults);
    }
    return mmla_error_set(args->error, MMLA_E_INDEX,
                          args->gather_lens == NULL ? "seq_lens" : "gather_lens",
                          "of request %lld is more than the %lld rows past offset; requests cut "
                          "short: %lld",
                          (long long)first, (long long)room, (long long)n_faults);
}

struct job {
    const mmla_kv_gather_problem *p;
    const mmla_kv_gather_args *args;
    mmla_kv_gather_row_fn fn;
    int64_t n_rows, n_units;
};

/* Rows from .. to - 1 of request r. */
static void
run_rows(const struct job *job, int64_t r, mmla_kv_gather_span span, int64_t from, int64_t to) {
    const mmla_kv_gather_problem *p = job->p;
    const uint8_t *cache = job->args->cache;
    uint16_t *out = job->args->out + (r * p->desc.rows + p->desc.offset) * p->desc.row_stride;
    for (int64_t i = from; i < to; i++) {
        const int64_t slot = mmla_kv_gather_slot(p, job->args, r, span.first + i);
        if (slot >= 0) {
            job->fn(p, cache + mmla_kv_data_offset(&p->cache, slot),
                    cache + mmla_kv_scale_offset(&p->cache, slot), out + i * p->desc.row_stride);
        } else {
            memset(out + i * p->desc.row_stride, 0, MMLA_LATENT_DIM * sizeof *out);
        }
    }
}

static void run_unit(void *arg, int64_t unit, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const int64_t share = job->n_rows / job->n_units, rest = job->n_rows % job->n_units;
    int64_t begin = unit * share + mmla_min_i64(unit, rest);
    int64_t left = share + (unit < rest ? 1 : 0);
    for (int64_t r = 0; left > 0; r++) {
        const mmla_kv_gather_span span = mmla_kv_gather_span_get(job->p, job->args, r);
        if (begin < span.n) {
            const int64_t end = mmla_min_i64(begin + left, span.n);
            run_rows(job, r, span, begin, end);
            left -= end - begin;
            begin = 0;
        } else {
            begin -= span.n;
        }
    }
}

mmla_status mmla_kv_gather_rows(const mmla_kv_gather_problem *p,
                                const mmla_kv_gather_args *args,
                                mmla_kv_gather_row_fn fn) {
    struct job job = {p, args, fn, 0, 1};
    for (int64_t r = 0; r < args->n_requests; r++) {
        job.n_rows += mmla_kv_gather_span_get(p, args, r).n;
    }
    if (p->n_threads > 1) {
        job.n_units =
            mmla_clamp_i64(job.n_rows / ROWS_PER_UNIT, 1, (int64_t)p->n_threads * UNITS_PER_THREAD);
    }
    mmla_parallel_for(p->n_threads, job.n_units, run_unit, &job);
    return mmla_kv_gather_report(p, args);
}
