/* check_cache.h - caches with few records in them and NaN everywhere else. */
#ifndef APP_CHECK_CHECK_CACHE_H
#define APP_CHECK_CHECK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/megamla.h>

#include "app/check/check_buffer.h"
#include "app/check/check_rng.h"
#include "app/device/device_stage.h"

/* Unused slots, page padding and, where there is another page, page 0 are all NaN: whatever reads
 * one of them and uses it shows. */
typedef struct check_cache {
    mmla_cache_desc desc;
    check_buffer memory;
    int64_t n_slots;
    int32_t *used; /* slots that hold a record */
    int64_t n_used;
    uint8_t *is_used;   /* a bit a slot */
    device_part *parts; /* the pages with records, in order */
    int64_t n_parts;
} check_cache;

/* How far apart pages lie. */
typedef enum check_stride {
    CHECK_STRIDE_DEFAULT = 0, /* desc says 0 */
    CHECK_STRIDE_EXACT = 1,   /* the records and no more, rounded up to 16 */
    CHECK_STRIDE_ODD = 2,     /* some multiple of 16 more */
    CHECK_STRIDE_MILLION = 3, /* 2^20 bytes more: layers interleaved in one pool */
    CHECK_STRIDE_FAR = 4      /* so much that the last page begins beyond 2^31 bytes */
} check_stride;

enum {
    CHECK_KEY_AMPLIFIER = 256, /* of the few large elements of amplified rows */
    CHECK_KEY_LARGEST = 6 /* no element of another row exceeds it: twice the square root of 3 drawn,
                             times the square root of 2 rotated, times 17/16 quantised */
};

enum { CHECK_STRIDES = 4 /* the ones that are drawn; FAR has cases of its own */ };

/* A cache of n_pages pages with about n_records records, written by the reference of kv_insert from
 * random rows of very different sizes. `amplified`: one element in 50 is CHECK_KEY_AMPLIFIER times
 * as large. */
check_cache check_cache_create(mmla_context *ctx,
                               mmla_kv_format format,
                               int32_t page_tokens,
                               int64_t n_pages,
                               check_stride stride,
                               int64_t n_records,
                               bool amplified,
                               check_rng *rng);
void check_cache_destroy(check_cache *cache);

/* A slot that is legal and holds NaN, -1 when every one has a record. */
int32_t check_cache_unused_slot(const check_cache *cache, check_rng *rng);

/* One bf16 row as above: dims values. */
void check_row_fill(uint16_t *row, int dims, bool amplified, check_rng *rng);

/* A table [positions, 64] of 32 cosines and 32 sines of random angles. */
check_buffer check_cos_sin_create(int64_t positions, check_rng *rng);

int64_t check_cache_stride_bytes(const check_cache *cache);

/* What is to be copied of a cache that is too large to be copied whole; all zero for the others. */
device_sparse check_cache_sparse(const check_cache *cache);

#endif
