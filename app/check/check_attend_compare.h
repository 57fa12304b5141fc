/* check_attend_compare.h - a result of the fused call against the reference's. */
#ifndef APP_CHECK_CHECK_ATTEND_COMPARE_H
#define APP_CHECK_CHECK_ATTEND_COMPARE_H

#include "app/check/check_session.h"
#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_attend_tolerance.h"

/* got's tokens are first .. of the case, want's are all of it. Fails the verdict where got is
 * outside the tolerance, has a NaN or an infinity out of place, lets one token's NaN reach another,
 * or differs where results are fixed: tokens without a key and tokens outside the table. */
void check_attend_compare(const check_attend_case *c,
                          int64_t first,
                          const check_attend_result *got,
                          const check_attend_result *want,
                          check_verdict *verdict);

/* Fails the verdict unless b holds the same bits as tokens first .. of a. `bytes` of each token are
 * compared: token_bytes, or check_attend_cast_bytes when b was run without lse. `what` names b. */
void check_attend_same(const check_attend_result *a,
                       int64_t first,
                       const check_attend_result *b,
                       int64_t bytes,
                       const char *what,
                       check_verdict *verdict);

/* Largest finite magnitude of a result's out: bounds what a rounding to bf16 did to it. */
double check_attend_largest(const check_attend_case *c, const check_attend_result *result);

/* Runs the case by the reference with q in standard order and bf16 out; check_attend_forms.c says
 * why. False when it did not run. */
bool check_attend_plain_run(mmla_context *ctx,
                            const check_attend_case *c,
                            check_attend_result *result,
                            check_verdict *verdict);

/* Fails the verdict when got's values are not those of such a run. */
void check_attend_compare_plain(const check_attend_case *c,
                                const check_attend_result *got,
                                const check_attend_result *want,
                                check_verdict *verdict);

#endif
