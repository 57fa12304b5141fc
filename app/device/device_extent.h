/* device_extent.h - how many bytes the arrays of a call have, from its description.
 *
 * To the last byte a call may touch, and no further: the padding behind the last row of a strided
 * array, or behind the records of a cache's last page, is not part of it.
 */
#ifndef APP_DEVICE_DEVICE_EXTENT_H
#define APP_DEVICE_DEVICE_EXTENT_H

#include <stdint.h>

#include <megamla/layout.h>

#include "base/checked.h"

/* rows of `width` elements, `stride` apart; 0 is the default: width. */
static inline int64_t
device_extent(int64_t rows, int64_t stride, int64_t width, int64_t element_bytes) {
    return rows > 0 ? ((rows - 1) * (stride != 0 ? stride : width) + width) * element_bytes : 0;
}

static inline int64_t device_cache_extent(const mmla_cache_desc *cache) {
    const int64_t page_bytes = cache->page_stride_bytes != 0
                                   ? cache->page_stride_bytes
                                   : mmla_kv_page_bytes(cache->format, cache->page_tokens);
    return device_extent(cache->n_pages, page_bytes,
                         cache->page_tokens * mmla_kv_record_bytes(cache->format), 1);
}

/* Packed scales, in int32 words: out_scale of attention, x_scale of project. Strides of 0 are the
 * defaults for n_tokens of the call. */
static inline int64_t device_packed_extent(int64_t n_tokens,
                                           int64_t n_groups,
                                           int64_t word_stride,
                                           int64_t group_stride) {
    enum { WORDS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4 };
    const int64_t words = word_stride != 0 ? word_stride : mmla_round_up_i64(n_tokens, 4);
    return device_extent(n_groups, group_stride != 0 ? group_stride : WORDS * words,
                         (WORDS - 1) * words + n_tokens, 4);
}

#endif
