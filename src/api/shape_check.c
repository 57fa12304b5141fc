#include "api/shape_check.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

#include <megamla/layout.h>

enum {
    SCALE_WORDS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4 /* int32 words of a group's scales */
};

mmla_status mmla_heads_check(mmla_error *err, int32_t n_heads) {
    if (n_heads >= MMLA_HEADS_PER_GROUP && n_heads <= MMLA_HEADS_MAX &&
        n_heads % MMLA_HEADS_PER_GROUP == 0) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_SHAPE, "n_heads", "is %d, must be a multiple of %d, %d .. %d",
                          (int)n_heads, MMLA_HEADS_PER_GROUP, MMLA_HEADS_PER_GROUP, MMLA_HEADS_MAX);
}

mmla_status mmla_packed_scales_check(mmla_error *err, const mmla_packed_scales *s) {
    int64_t word, group, least;
    MMLA_RETURN_IF_FAILED(
        mmla_check_stride(err, s->word_name, s->word_stride, s->n_tokens, 1, &word));
    if (s->word_stride == 0) {
        word = mmla_round_up_i64(s->n_tokens, 4);
    }
    MMLA_RETURN_IF_FAILED(mmla_check_extent(err, s->word_name, SCALE_WORDS, word, sizeof(int32_t)));
    least = SCALE_WORDS * word;
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, s->group_name, s->group_stride, least, 1, &group));
    return mmla_check_extent(err, s->group_name, s->n_groups, group, sizeof(int32_t));
}
