/* shape_check.h - shapes that several operations describe alike: a rank's heads, packed scales. */
#ifndef MMLA_API_SHAPE_CHECK_H
#define MMLA_API_SHAPE_CHECK_H

#include <stdint.h>

#include <megamla/status.h>

/* n_heads is a multiple of 8, 8 .. 128. */
mmla_status mmla_heads_check(mmla_error *err, int32_t n_heads);

/* Packed scales of n_tokens x n_groups as a description gives them: strides in int32 words, 0 for
 * the default, and what messages call them. */
typedef struct mmla_packed_scales {
    const char *word_name;
    const char *group_name;
    int64_t word_stride;
    int64_t group_stride;
    int64_t n_tokens;
    int32_t n_groups;
} mmla_packed_scales;

/* Words of a group do not overlap, nor groups, and every byte has a 64-bit offset. */
mmla_status mmla_packed_scales_check(mmla_error *err, const mmla_packed_scales *scales);

#endif
