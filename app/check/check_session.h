/* check_session.h - every implementation on this machine against the reference, on inputs that hurt.
 *
 * A suite is one operation. A case is drawn from (seed, operation, number) alone, so that any one
 * of them can be replayed. Each case runs every implementation that the context can use, before the
 * reference does, and records a verdict for each: results within the tolerance, red zones and bytes
 * of no one's business untouched, the same bits again, with one thread, and for part of the batch.
 */
#ifndef APP_CHECK_CHECK_SESSION_H
#define APP_CHECK_CHECK_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <pthread.h>

#include <megamla/megamla.h>

#include "app/device/device_call.h"

enum {
    CHECK_ROWS_MAX = 64,            /* operations times implementations */
    CHECK_IMPLEMENTATIONS_MAX = 16, /* of one operation */
    CHECK_TEXT_BYTES = 320
};

struct check_session;

typedef struct check_options {
    uint64_t seed;
    bool quick;                 /* fewer and smaller cases */
    int64_t only_case;          /* -1: all */
    const char *op;             /* NULL: all */
    const char *implementation; /* NULL: all */
    int32_t n_threads;          /* of one call, on a GPU of cases at a time; 0: every core */
    mmla_device device;
    bool corrupt; /* damage every result before it is compared: the test of this test */
    bool copies;  /* stage calls on the CPU, too: the test of staging */
    void (*progress)(void *user, const char *op, int64_t done, int64_t total); /* may be NULL */
    void *progress_user;
    /* After each suite that added rows: they begin at first_row. May be NULL. */
    void (*finished)(void *user, const struct check_session *s, int first_row);
    void *finished_user;
} check_options;

/* What one implementation did with one case. */
typedef struct check_verdict {
    bool failed;
    double out_used; /* share of the tolerance of one value; 0 for byte identity */
    double cosine;   /* distance over all values of the result; 0 when it is not looked at */
    double lse_used; /* likewise of lse and max_logits */
    char why[CHECK_TEXT_BYTES];
} check_verdict;

/* One line of the report. */
typedef struct check_row {
    const char *op;
    const char *implementation;
    bool by_bytes; /* results must be identical, no tolerance applies */
    int64_t n_cases;
    int64_t n_refused; /* descriptions this implementation does not take */
    int64_t n_failed;
    double out_used; /* worst of all cases */
    double cosine;
    double lse_used;
    int64_t failed_case; /* first */
    char failed_shape[CHECK_TEXT_BYTES];
    char failed_why[CHECK_TEXT_BYTES];
} check_row;

typedef struct check_session {
    check_options options;
    /* Of the implementations that are checked. On the CPU `many` has the threads asked for, at least
     * 2 so that there is something to compare, and `other` has one; on a GPU both are alike. */
    mmla_context *many, *other;
    mmla_context *host; /* of the CPU: draws inputs and runs the reference */
    int32_t n_workers;  /* cases at a time; 1 on the CPU, whose calls take every core themselves */
    check_row rows[CHECK_ROWS_MAX];
    int n_rows;
    bool is_lost;         /* the device faulted; what ran afterwards says nothing */
    pthread_mutex_t lock; /* of the last three, when there are several workers */
} check_session;

/* One operation: `run` draws case idx and records a verdict for each implementation. */
typedef struct check_suite {
    const char *name;
    const char *op; /* the library's operation whose implementations run; NULL: it lists none */
    int64_t n_quick, n_full;
    void (*run)(check_session *s, int64_t idx); /* by several threads at once */
    bool gpu_only;
} check_suite;

extern const check_suite check_suite_attend;
extern const check_suite check_suite_merge;
extern const check_suite check_suite_chain;
extern const check_suite check_suite_attend_large;
extern const check_suite check_suite_kv_insert;
extern const check_suite check_suite_kv_gather;
extern const check_suite check_suite_project;
extern const check_suite check_suite_project_wide;
extern const check_suite check_suite_list;
extern const check_suite check_suite_weights;
extern const check_suite check_suite_graph;
extern const check_suite check_suite_streams;

/* Opens the contexts. On failure err says why; destroy is still needed. */
mmla_status check_session_init(check_session *s, const check_options *options, mmla_error *err);
void check_session_deinit(check_session *s);

/* Every suite in the order in which they run; NULL ends them. */
extern const check_suite *const check_suites[];

/* Runs what the options select. Returns the number of cases run, 0 when nothing matched. */
int64_t check_session_run(check_session *s);

/* Whether the implementations that are checked run on a GPU. */
bool check_session_is_gpu(const check_session *s);

/* Whether a suite runs in this session: some need a GPU, or what stands in for one. */
bool check_session_has(const check_session *s, const check_suite *suite);

/* How a call in `many` is staged, and one in `other`, which a GPU runs from a graph. */
device_options check_session_staging(const check_session *s, bool other, int64_t idx);

/* What makes `other` another way to run, for messages: "on one thread". */
const char *check_session_other(const check_session *s);

/* The status of a run in ctx that meets what only contents can tell, if is_bad. */
mmla_status check_status_wanted(const mmla_context *ctx, bool is_bad);

/* Implementations of op this context can use and the options select, the reference last. What lists
 * none has one, "portable" on the CPU and "cuda" on a GPU. Returns their number. */
int check_session_implementations(const check_session *s,
                                  const char *op,
                                  const char *names[CHECK_IMPLEMENTATIONS_MAX]);

/* Adds a verdict; `shape` describes the case to a person. */
void check_session_record(check_session *s,
                          const char *op,
                          const char *implementation,
                          bool by_bytes,
                          int64_t idx,
                          const char *shape,
                          const check_verdict *verdict);
void check_session_refuse(check_session *s, const char *op, const char *implementation);

/* Marks a verdict as failed; the first reason stays. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void check_verdict_fail(check_verdict *verdict, const char *format, ...);

/* Fails the verdict when staging found damage. */
void check_verdict_damage(check_verdict *verdict, const device_call *call);

/* With options.corrupt, flips one bit of a result; else does nothing. */
void check_session_corrupt(const check_session *s, void *result, int64_t bytes);

/* Value number 0 .. n-1 of dimension `dim` in case idx. Every n cases in a row take every value
 * once, in an order that differs from row to row and from dimension to dimension. n at most 64. */
int check_draw(uint64_t seed, int dim, int64_t idx, int n);

/* Failed cases of all rows. */
int64_t check_session_failures(const check_session *s);

#endif
