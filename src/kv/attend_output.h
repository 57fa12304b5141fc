/* attend_output.h - the output forms of attention: where a head's codes and scales lie, and scalar
 * stores of them.
 *
 * include/megamla/attend.h draws the four forms (mmla_out_form). attend and chain both end here.
 */
#ifndef MMLA_KV_ATTEND_OUTPUT_H
#define MMLA_KV_ATTEND_OUTPUT_H

#include "kv/attend_problem.h"

enum { MMLA_OUT_WIDE_DIM = 128 }; /* dims under one fp32 scale of MMLA_OUT_FP8_128 */

/* Strides of the packed output scales in int32 words, with the call's n_tokens for the default. */
typedef struct mmla_out_scale_strides {
    int64_t word;
    int64_t group;
} mmla_out_scale_strides;

mmla_out_scale_strides
mmla_out_scale_strides_get(int64_t word_stride, int64_t group_stride, int64_t n_tokens);

/* Place of dim x of head h in one token's FP8_PERMUTED output. */
MMLA_INLINE int64_t mmla_out_permuted_index(int32_t h, int32_t x) {
    const int32_t chunk = x / MMLA_OUT_CHUNK_DIM;
    const int32_t in_group = chunk * MMLA_HEADS_PER_GROUP + h % MMLA_HEADS_PER_GROUP;
    return (int64_t)(h / MMLA_HEADS_PER_GROUP) * MMLA_GROUP_DIM +
           (int64_t)in_group * MMLA_OUT_CHUNK_DIM + x % MMLA_OUT_CHUNK_DIM;
}

/* Byte offset in out_scale of chunk c of head h of a token, FP8_PERMUTED. */
MMLA_INLINE int64_t mmla_out_scale_offset(mmla_out_scale_strides s,
                                          int64_t token,
                                          int32_t h,
                                          int32_t c) {
    const int32_t in_group = c * MMLA_HEADS_PER_GROUP + h % MMLA_HEADS_PER_GROUP;
    return 4 * ((int64_t)(h / MMLA_HEADS_PER_GROUP) * s.group + (int64_t)(in_group / 4) * s.word +
                token) +
           in_group % 4;
}

/* Stores one head's finished row, already rotated back: codes come from o * scale (num/quant.h).
 * Every implementation's bytes equal these for equal o and scale. */
void mmla_attend_store_head(const mmla_attend_problem *p,
                            const mmla_attend_args *args,
                            int64_t token,
                            int32_t head,
                            const float *o,
                            float scale);

/* NaN in lse and max_logits, where they are asked for, of heads first .. first + n - 1 of a token
 * whose position is not in the table. */
void mmla_attend_store_nan_logits(const mmla_attend_problem *p,
                                  const mmla_attend_args *args,
                                  int64_t token,
                                  int32_t first,
                                  int32_t n);

/* The same in every result. */
void mmla_attend_store_nan(const mmla_attend_problem *p,
                           const mmla_attend_args *args,
                           int64_t token,
                           int32_t first,
                           int32_t n);

#endif
