/* check_project_case.h - one call of project: its description and inputs, and running it. */
#ifndef APP_CHECK_CHECK_PROJECT_CASE_H
#define APP_CHECK_CHECK_PROJECT_CASE_H

#include "app/check/check_buffer.h"
#include "app/check/check_session.h"

/* Case number CHECK_PROJECT_DRAWN has one group and CHECK_PROJECT_PERIOD tokens; before it, all is drawn. */
enum { CHECK_PROJECT_QUICK = 40, CHECK_PROJECT_DRAWN = 200, CHECK_PROJECT_PERIOD = 331 };

typedef struct check_project_case {
    mmla_project_desc desc;
    mmla_project_args args;
    check_buffer x, x_scale, weight, weight_scale;
    double *x_norm;      /* [T, G] Euclidean length, NaN where an element is */
    double *weight_norm; /* [G, rank] */
    char shape[CHECK_TEXT_BYTES];
} check_project_case;

check_project_case check_project_case_create(const check_session *s, int64_t idx);
void check_project_case_destroy(check_project_case *c);

/* The same weight with n_tokens: those of c, again and again. */
typedef struct check_project_repeat {
    check_project_case c; /* without norms; nothing of it to destroy */
    check_buffer x, x_scale;
} check_project_repeat;

check_project_repeat check_project_repeat_create(const check_project_case *c, int64_t n_tokens);
void check_project_repeat_destroy(check_project_repeat *r);

/* One run of one implementation, with a wide weight if is_wide, into z, which it makes and fills with
 * poison. False when the implementation does not take the description, or has no use for that weight. */
bool check_project_run(const check_project_case *c,
                       mmla_context *ctx,
                       const device_options *staging,
                       const char *name,
                       bool is_wide,
                       uint8_t poison,
                       check_buffer *z,
                       check_verdict *verdict);

/* Holds tokens that begin with the case's own, got, against the reference's results, want, which are of the
 * case's tokens alone. */
void check_project_compare(const check_project_case *c,
                           const check_buffer *got,
                           const check_buffer *want,
                           check_verdict *verdict);

#endif
