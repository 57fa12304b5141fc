/* check_attend_tolerance.h - how far a result of the fused call may be from the reference's.
 *
 * One rule for the doctor, for comparisons of captures and for the benchmark; docs/numerics.md
 * has the reasons.
 */
#ifndef APP_CHECK_CHECK_ATTEND_TOLERANCE_H
#define APP_CHECK_CHECK_ATTEND_TOLERANCE_H

#include "app/check/check_near.h"

/* Of out, dequantised. `largest_key` bounds the elements of the keys. */
check_tolerance check_attend_out_tolerance(const char *implementation, double largest_key);

/* Of lse and max_logits. */
check_tolerance check_attend_lse_tolerance(void);

/* The part of the first for implementations that round probabilities to bf16: each probability is
 * off by at most 2^-8 of itself, and they average the keys, whose elements are mostly below half of
 * the largest one: 2^-9 of that. 0 for the others. */
double check_attend_probability_error(const char *implementation, double largest_key);

#endif
