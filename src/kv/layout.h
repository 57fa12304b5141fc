/* layout.h - the bytes of the cache: the only file that knows an offset or a size.
 *
 * A page of P records, little-endian, 16-byte aligned:
 *
 *     page + i * data_bytes                       data row of record i      0 <= i < P
 *     page + P * data_bytes + i * scale_bytes     scale row of record i
 *     page + P * record_bytes .. page stride      padding, never read, never written
 *
 *     V4         data 576 = 448 x e4m3, 64 x bf16       scales 8 = 7 x ue8m0 (per 64 dims), one 0
 *     V41_FP8    data 512 = 512 x e4m3                  scales 16 x ue8m0 (per 32 dims)
 *     V41_FP4    data 256 = 512 x e2m1, low nibble even scales 32 x e4m3 (per 16 dims)
 *     INDEX_FP8  data 128 = 128 x e4m3                  scale 4 = one fp32 power of two
 *     INDEX_FP4  data  64 = 128 x e2m1, low nibble even scales 4 x ue8m0 (per 32 dims)
 */
#ifndef MMLA_KV_LAYOUT_H
#define MMLA_KV_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <megamla/layout.h>

#include "base/inline.h"

enum {
    MMLA_KV_V4_FP8_DIMS = MMLA_LATENT_DIM - MMLA_ROPE_DIM, /* the e4m3 part of a V4 row */
    MMLA_KV_V4_GROUP = 64,
    MMLA_KV_V4_SCALES =
        MMLA_KV_V4_FP8_DIMS / MMLA_KV_V4_GROUP, /* used scale bytes; one pad byte more */
    MMLA_KV_V4_DATA_BYTES = MMLA_KV_V4_FP8_DIMS + 2 * MMLA_ROPE_DIM,
    MMLA_KV_V4_SCALE_BYTES = MMLA_KV_V4_SCALES + 1,

    MMLA_KV_FP8_GROUP = 32,
    MMLA_KV_FP8_DATA_BYTES = MMLA_LATENT_DIM,
    MMLA_KV_FP8_SCALE_BYTES = MMLA_LATENT_DIM / MMLA_KV_FP8_GROUP,

    MMLA_KV_FP4_GROUP = 16,
    MMLA_KV_FP4_DATA_BYTES = MMLA_LATENT_DIM / 2,
    MMLA_KV_FP4_SCALE_BYTES = MMLA_LATENT_DIM / MMLA_KV_FP4_GROUP,

    MMLA_KV_INDEX_FP8_DATA_BYTES = MMLA_INDEX_DIM,
    MMLA_KV_INDEX_FP8_SCALE_BYTES = 4,

    MMLA_KV_INDEX_FP4_GROUP = 32,
    MMLA_KV_INDEX_FP4_DATA_BYTES = MMLA_INDEX_DIM / 2,
    MMLA_KV_INDEX_FP4_SCALE_BYTES = MMLA_INDEX_DIM / MMLA_KV_INDEX_FP4_GROUP,

    MMLA_KV_BASE_ALIGNMENT = 16,
    MMLA_KV_PAGE_TOKENS_MAX = 65536
};

static_assert(MMLA_KV_V4_DATA_BYTES == 576 && MMLA_KV_V4_SCALE_BYTES == 8,
              "V4 record is 584 bytes");
static_assert(MMLA_KV_FP8_DATA_BYTES + MMLA_KV_FP8_SCALE_BYTES == 528, "fp8 record is 528 bytes");
static_assert(MMLA_KV_FP4_DATA_BYTES + MMLA_KV_FP4_SCALE_BYTES == 288, "fp4 record is 288 bytes");
static_assert(MMLA_KV_INDEX_FP8_DATA_BYTES + MMLA_KV_INDEX_FP8_SCALE_BYTES == 132, "index fp8 row");
static_assert(MMLA_KV_INDEX_FP4_DATA_BYTES + MMLA_KV_INDEX_FP4_SCALE_BYTES == 68, "index fp4 row");

/* One line of the table above. */
typedef struct mmla_kv_geometry {
    const char *name;
    int32_t dims;
    int32_t data_bytes;
    int32_t scale_bytes;
    int32_t page_alignment; /* what engines round a page up to */
} mmla_kv_geometry;

/* The line of a format; all zero (name "none") for MMLA_KV_NONE, NULL for an unknown format. */
const mmla_kv_geometry *mmla_kv_geometry_get(mmla_kv_format format);

/* A cache ready for addressing: the description resolved, with its sizes beside it. */
typedef struct mmla_kv_view {
    mmla_kv_format format;
    int32_t page_tokens;
    int32_t data_bytes;
    int32_t scale_bytes;
    uint32_t page_factor; /* slot / page_tokens is slot * page_factor >> page_shift */
    int32_t page_shift;
    int64_t page_stride_bytes;
    int64_t n_slots; /* n_pages * page_tokens: a slot is legal below it */
} mmla_kv_view;

/* Sets page_tokens, 1 .. MMLA_KV_PAGE_TOKENS_MAX, and what divides by it. */
MMLA_INLINE void mmla_kv_view_page_tokens_set(mmla_kv_view *view, int32_t page_tokens) {
    int32_t log2 = 0;
    while ((int64_t)1 << log2 < page_tokens) {
        log2++;
    }
    /* The factor times page_tokens exceeds 2^shift by page_tokens at most. A slot is below 2^31, so
     * that times a slot is below 2^shift: too little for the quotient to reach the next page. */
    view->page_tokens = page_tokens;
    view->page_shift = 31 + log2;
    view->page_factor = (uint32_t)(((uint64_t)1 << view->page_shift) / (uint32_t)page_tokens + 1);
}

/* Checks a description and fills view. `argument` names it in messages ("window" gives
 * "window.page_tokens: ..."). View of MMLA_KV_NONE has n_slots 0. */
mmla_status mmla_kv_view_init(const mmla_cache_desc *desc,
                              const char *argument,
                              mmla_kv_view *view,
                              mmla_error *err);

MMLA_INLINE bool mmla_kv_slot_is_legal(const mmla_kv_view *view, int64_t slot) {
    return slot >= 0 && slot < view->n_slots;
}

/* The page of a legal slot. A division would be a loop of a GPU's, so it is a multiplication. */
MMLA_INLINE int64_t mmla_kv_page(const mmla_kv_view *view, int64_t slot) {
    return (int64_t)((uint64_t)(uint32_t)slot * view->page_factor >> view->page_shift);
}

/* Byte offsets of a legal slot's two rows from the cache's base. All products are 64-bit, but for a
 * record's within its page. */
MMLA_INLINE int64_t mmla_kv_data_offset(const mmla_kv_view *view, int64_t slot) {
    const int64_t page = mmla_kv_page(view, slot);
    const int32_t record = (int32_t)slot - (int32_t)page * view->page_tokens;
    return page * view->page_stride_bytes + record * view->data_bytes;
}

MMLA_INLINE int64_t mmla_kv_scale_offset(const mmla_kv_view *view, int64_t slot) {
    const int64_t page = mmla_kv_page(view, slot);
    const int32_t record = (int32_t)slot - (int32_t)page * view->page_tokens;
    return page * view->page_stride_bytes + view->page_tokens * view->data_bytes +
           record * view->scale_bytes;
}

#endif
