/* attend_check.h - the checks attend and chain share: one description, one set of arguments. */
#ifndef MMLA_API_ATTEND_CHECK_H
#define MMLA_API_ATTEND_CHECK_H

#include "kv/attend_problem.h"

/* Fills *p from desc, or says what is wrong. */
mmla_status mmla_attend_problem_init(const mmla_context *ctx,
                                     const mmla_attend_desc *desc,
                                     mmla_attend_problem *p,
                                     mmla_error *err);

/* Checks counts and pointers of a call; the message goes to args->error. A call of zero tokens
 * needs no pointer at all. */
mmla_status mmla_attend_args_check(const mmla_attend_problem *p, const mmla_attend_args *args);

/* The two strides of packed output scales for up to n_tokens tokens; n_heads has been checked. */
mmla_status mmla_out_scale_strides_check(
    mmla_error *err, int64_t word_stride, int64_t group_stride, int64_t n_tokens, int32_t n_heads);

/* out and out_scale of a call. */
mmla_status mmla_out_pointers_check(mmla_error *err,
                                    mmla_out_form form,
                                    const void *out,
                                    const void *out_scale);

#endif
