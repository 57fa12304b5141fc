/* check_session.c - contexts, verdicts, and running the suites that were asked for. */
#include "app/check/check_session.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "app/check/check_rng.h"
#include "base/checked.h"
#include "base/parallel.h"

enum { WORKERS_MAX = 16 /* each keeps a case in host and device memory */ };

const check_suite *const check_suites[] = {
    &check_suite_kv_insert,
    &check_suite_kv_gather,
    &check_suite_list,
    &check_suite_weights,
    &check_suite_attend,
    &check_suite_graph,
    &check_suite_streams,
    &check_suite_attend_large,
    &check_suite_merge,
    &check_suite_chain,
    &check_suite_project,
    &check_suite_project_wide,
    NULL,
};

static mmla_status init_cpu(check_session *s, mmla_error *err) {
    mmla_context_options o = {.n_threads = 1};
    mmla_status status = mmla_context_create(&o, &s->other, err);
    o.n_threads = s->options.n_threads;
    status = status == MMLA_OK ? mmla_context_create(&o, &s->host, err) : status;
    status = status == MMLA_OK ? mmla_context_create(&o, &s->many, err) : status;
    if (status != MMLA_OK || mmla_context_get_threads(s->many) > 1) {
        return status;
    }
    mmla_context_destroy(s->many);
    o.n_threads = 2;
    return mmla_context_create(&o, &s->many, err);
}

/* The reference has a thread a case, so that all cores work while it, slow as it is, runs. */
static mmla_status init_gpu(check_session *s, mmla_error *err) {
    const mmla_context_options cpu = {.n_threads = 1};
    const mmla_context_options gpu = {.device = s->options.device,
                                      .n_threads = s->options.n_threads};
    mmla_status status = mmla_context_create(&cpu, &s->host, err);
    status = status == MMLA_OK ? mmla_context_create(&gpu, &s->other, err) : status;
    status = status == MMLA_OK ? mmla_context_create(&gpu, &s->many, err) : status;
    if (status == MMLA_OK) {
        s->n_workers = (int32_t)mmla_min_i64(mmla_context_get_threads(s->many), WORKERS_MAX);
    }
    return status;
}

mmla_status check_session_init(check_session *s, const check_options *options, mmla_error *err) {
    *s = (check_session){.options = *options, .n_workers = 1};
    pthread_mutex_init(&s->lock, NULL);
    return check_session_is_gpu(s) ? init_gpu(s, err) : init_cpu(s, err);
}

void check_session_deinit(check_session *s) {
    mmla_context_destroy(s->many);
    mmla_context_destroy(s->other);
    mmla_context_destroy(s->host);
    s->many = s->other = s->host = NULL;
    pthread_mutex_destroy(&s->lock);
}

bool check_session_is_gpu(const check_session *s) {
    return s->options.device.kind == MMLA_DEVICE_CUDA;
}

bool check_session_has(const check_session *s, const check_suite *suite) {
    return check_session_is_gpu(s) || s->options.copies || !suite->gpu_only;
}

device_options check_session_staging(const check_session *s, bool other, int64_t idx) {
    /* -1 as an index and NaN; huge as an index; 0. */
    static const uint8_t blanks[] = {0xFF, 0x7F, 0};
    return (device_options){.copies = s->options.copies, .graph = other, .blank = blanks[idx % 3]};
}

const char *check_session_other(const check_session *s) {
    return check_session_is_gpu(s) ? "from a graph" : "on one thread";
}

mmla_status check_status_wanted(const mmla_context *ctx, bool is_bad) {
    const bool is_gpu = mmla_context_get_device(ctx).kind == MMLA_DEVICE_CUDA;
    return is_bad && !is_gpu ? MMLA_E_INDEX : MMLA_OK;
}

/* A suite's cases, while workers take them. */
typedef struct suite_job {
    check_session *session;
    const check_suite *suite;
    int64_t first, n_cases, n_done;
} suite_job;

static void run_unit(void *job, int64_t unit, int32_t thread) {
    suite_job *j = job;
    check_session *s = j->session;
    (void)thread;
    pthread_mutex_lock(&s->lock);
    if (s->options.progress != NULL) {
        s->options.progress(s->options.progress_user, j->suite->name, j->n_done, j->n_cases);
    }
    j->n_done++;
    const bool is_lost = s->is_lost;
    pthread_mutex_unlock(&s->lock);
    if (is_lost) {
        return;
    }
    j->suite->run(s, j->first + unit);
    if (device_is_lost(s->many)) {
        pthread_mutex_lock(&s->lock);
        s->is_lost = true;
        pthread_mutex_unlock(&s->lock);
    }
}

/* Returns the number of cases. */
static int64_t run_suite(check_session *s, const check_suite *suite) {
    const check_options *o = &s->options;
    const int64_t n = o->quick ? suite->n_quick : suite->n_full;
    const int64_t only = o->only_case;
    suite_job job = {s, suite, only >= 0 ? only : 0, n, only >= 0 ? only : 0};
    const int64_t n_units = only < 0 ? n : only < n ? 1 : 0;
    mmla_parallel_for(s->n_workers, n_units, run_unit, &job);
    return n_units;
}

int64_t check_session_run(check_session *s) {
    const check_options *o = &s->options;
    int64_t n_run = 0;
    for (int i = 0; check_suites[i] != NULL && !s->is_lost; i++) {
        const check_suite *suite = check_suites[i];
        const char *names[CHECK_IMPLEMENTATIONS_MAX];
        const int first_row = s->n_rows;
        if ((o->op != NULL && strcmp(o->op, suite->name) != 0) || !check_session_has(s, suite) ||
            check_session_implementations(s, suite->op, names) == 0) {
            continue;
        }
        n_run += run_suite(s, suite);
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
    const char *only = check_session_is_gpu(s) ? "cuda" : "portable";
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
    if (!listed && (wanted == NULL || strcmp(wanted, only) == 0)) {
        names[n++] = only;
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
    pthread_mutex_lock(&s->lock);
    check_row *row = row_of(s, op, implementation);
    row->by_bytes = by_bytes;
    row->n_cases++;
    row->out_used = fmax(row->out_used, verdict->out_used);
    row->cosine = fmax(row->cosine, verdict->cosine);
    row->lse_used = fmax(row->lse_used, verdict->lse_used);
    /* Several workers do not come in order. */
    if (verdict->failed && (row->n_failed++ == 0 || idx < row->failed_case)) {
        row->failed_case = idx;
        snprintf(row->failed_shape, sizeof row->failed_shape, "%s", shape);
        snprintf(row->failed_why, sizeof row->failed_why, "%s", verdict->why);
    }
    pthread_mutex_unlock(&s->lock);
}

void check_session_refuse(check_session *s, const char *op, const char *implementation) {
    pthread_mutex_lock(&s->lock);
    row_of(s, op, implementation)->n_refused++;
    pthread_mutex_unlock(&s->lock);
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

void check_verdict_damage(check_verdict *verdict, const device_call *call) {
    if (call->damage[0] != '\0') {
        check_verdict_fail(verdict, "%s were written", call->damage);
    }
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
