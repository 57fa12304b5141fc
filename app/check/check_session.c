/* check_session.c - contexts, verdicts, and running the suites that were asked for. */
#include "app/check/check_session.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "app/check/check_rng.h"

const check_suite *const check_suites[] = {
    &check_suite_kv_insert, &check_suite_kv_gather,
    &check_suite_list,      &check_suite_weights,
    &check_suite_attend,    &check_suite_attend_large,
    &check_suite_merge,     &check_suite_chain,
    &check_suite_project,   NULL,
};

mmla_status check_session_init(check_session *s, const check_options *options, mmla_error *err) {
    *s = (check_session){.options = *options};
    mmla_context_options o = {.device = options->device, .n_threads = 1};
    const mmla_status status = mmla_context_create(&o, &s->one, err);
    if (status != MMLA_OK) {
        return status;
    }
    o.n_threads = options->n_threads;
    const mmla_status many = mmla_context_create(&o, &s->many, err);
    if (many != MMLA_OK || mmla_context_get_threads(s->many) > 1) {
        return many;
    }
    mmla_context_destroy(s->many);
    o.n_threads = 2;
    return mmla_context_create(&o, &s->many, err);
}

void check_session_deinit(check_session *s) {
    mmla_context_destroy(s->many);
    mmla_context_destroy(s->one);
    s->many = s->one = NULL;
}

int64_t check_session_run(check_session *s) {
    const check_options *o = &s->options;
    int64_t n_run = 0;
    for (int i = 0; check_suites[i] != NULL; i++) {
        const check_suite *suite = check_suites[i];
        const char *names[CHECK_IMPLEMENTATIONS_MAX];
        const int first_row = s->n_rows;
        if ((o->op != NULL && strcmp(o->op, suite->name) != 0) ||
            check_session_implementations(s, suite->op, names) == 0) {
            continue;
        }
        const int64_t n = o->quick ? suite->n_quick : suite->n_full;
        const bool one = o->only_case >= 0;
        const int64_t end = one ? (o->only_case < n ? o->only_case + 1 : 0) : n;
        for (int64_t idx = one ? o->only_case : 0; idx < end; idx++) {
            if (o->progress != NULL) {
                o->progress(o->progress_user, suite->name, idx, n);
            }
            suite->run(s, idx);
            n_run++;
        }
        if (o->finished != NULL && s->n_rows > first_row) {
            o->finished(o->finished_user, s, first_row);
        }
    }
    return n_run;
}

int check_session_implementations(const check_session *s,
                                  const char *op,
                                  const char *names[CHECK_IMPLEMENTATIONS_MAX]) {
    const char *wanted = s->options.implementation, *reference = NULL;
    bool listed = false;
    int n = 0;
    for (int32_t i = 0; i < mmla_implementation_count(s->many); i++) {
        mmla_implementation impl;
        if (mmla_implementation_get(s->many, i, &impl, NULL) != MMLA_OK || op == NULL ||
            strcmp(impl.op, op) != 0) {
            continue;
        }
        listed = true;
        if (!impl.available || (wanted != NULL && strcmp(wanted, impl.name) != 0)) {
            continue;
        }
        if (strcmp(impl.name, "reference") == 0) {
            reference = impl.name;
        } else if (n < CHECK_IMPLEMENTATIONS_MAX - 1) {
            names[n++] = impl.name;
        }
    }
    if (reference != NULL) {
        names[n++] = reference;
    }
    if (!listed && (wanted == NULL || strcmp(wanted, "portable") == 0)) {
        names[n++] = "portable";
    }
    return n;
}

static check_row *row_of(check_session *s, const char *op, const char *implementation) {
    for (int i = 0; i < s->n_rows; i++) {
        if (strcmp(s->rows[i].op, op) == 0 &&
            strcmp(s->rows[i].implementation, implementation) == 0) {
            return &s->rows[i];
        }
    }
    check_row *row = &s->rows[s->n_rows < CHECK_ROWS_MAX ? s->n_rows++ : CHECK_ROWS_MAX - 1];
    *row = (check_row){.op = op, .implementation = implementation, .failed_case = -1};
    return row;
}

void check_session_record(check_session *s,
                          const char *op,
                          const char *implementation,
                          bool by_bytes,
                          int64_t idx,
                          const char *shape,
                          const check_verdict *verdict) {
    check_row *row = row_of(s, op, implementation);
    row->by_bytes = by_bytes;
    row->n_cases++;
    row->out_used = fmax(row->out_used, verdict->out_used);
    row->cosine = fmax(row->cosine, verdict->cosine);
    row->lse_used = fmax(row->lse_used, verdict->lse_used);
    if (verdict->failed && row->n_failed++ == 0) {
        row->failed_case = idx;
        snprintf(row->failed_shape, sizeof row->failed_shape, "%s", shape);
        snprintf(row->failed_why, sizeof row->failed_why, "%s", verdict->why);
    }
}

void check_session_refuse(check_session *s, const char *op, const char *implementation) {
    row_of(s, op, implementation)->n_refused++;
}

void check_verdict_fail(check_verdict *verdict, const char *format, ...) {
    const bool is_first = !verdict->failed;
    verdict->failed = true;
    va_list arguments;
    va_start(arguments, format);
    if (is_first) {
        /* clang-tidy 14 loses sight of va_start in the second file of one process. */
        /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
        vsnprintf(verdict->why, sizeof verdict->why, format, arguments);
    }
    va_end(arguments);
}

void check_session_corrupt(const check_session *s, void *result, int64_t bytes) {
    if (s->options.corrupt && bytes > 0) {
        /* A high bit in the middle: of a code its sign or exponent, of a list entry its value. */
        ((uint8_t *)result)[bytes / 2] ^= 0x40;
    }
}

int check_draw(uint64_t seed, int dim, int64_t idx, int n) {
    int order[64];
    check_rng rng = check_rng_at(seed, 0x64696D00u + (uint64_t)dim, (uint64_t)(idx / n));
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)check_rng_below(&rng, i + 1), held = order[i];
        order[i] = order[j];
        order[j] = held;
    }
    return order[idx % n];
}

int64_t check_session_failures(const check_session *s) {
    int64_t n = 0;
    for (int i = 0; i < s->n_rows; i++) {
        n += s->rows[i].n_failed;
    }
    return n;
}
