/* rope.h - the cosine and sine table every operation reads.
 *
 * fp32 [positions, 64]: row p holds 32 cosines, then 32 sines, of the angles p * f_i. The pair
 * (2i, 2i+1) of the last 64 dims turns by angle i.
 */
#ifndef MEGAMLA_ROPE_H
#define MEGAMLA_ROPE_H

#include <stdint.h>

#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* yarn_factor 0: plain frequencies theta^(-2i/64). Otherwise frequency-only YaRN on top of them. */
typedef struct mmla_rope_desc {
    double theta;                /* > 1 */
    double yarn_factor;          /* 0, or >= 1 */
    double yarn_beta_fast;       /* > 0 with a factor */
    double yarn_beta_slow;       /* > 0 with a factor */
    double yarn_original_tokens; /* > 0 with a factor */
} mmla_rope_desc;

/* mmla_rope_desc_for_ratio - the model's settings: ratio 0 (and draft layers) theta 10000, plain;
 * ratio 1 and 2 theta 160000, YaRN 16, 32, 1, 65536.
 * errors   MMLA_E_VALUE  ratio is not 0, 1 or 2; MMLA_E_NULL */
MMLA_API mmla_status mmla_rope_desc_for_ratio(int32_t ratio, mmla_rope_desc *desc, mmla_error *err);

/* mmla_rope_frequencies - the 32 frequencies f_i, computed in double and rounded to fp32 once.
 * errors   MMLA_E_VALUE, MMLA_E_NULL */
MMLA_API mmla_status mmla_rope_frequencies(const mmla_rope_desc *desc,
                                           float *frequencies,
                                           mmla_error *err);

/* mmla_rope_table_fill - rows first .. first + n - 1 of the table, host memory.
 *
 * The angle is fp32(p) * f_i rounded to fp32, and only then cosine and sine are taken (in double,
 * rounded once): near position 2^20 that differs from an exact angle by up to 0.03 rad, and is what
 * the released model does.
 *
 * shapes   table [n, 64] float
 * errors   MMLA_E_VALUE (desc, or first or n outside 0 .. 2^31 - 1), MMLA_E_NULL
 * since    0.1
 */
MMLA_API mmla_status mmla_rope_table_fill(
    const mmla_rope_desc *desc, int64_t first, int64_t n, float *table, mmla_error *err);

#ifdef __cplusplus
}
#endif

#endif
