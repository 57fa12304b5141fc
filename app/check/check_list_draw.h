/* check_list_draw.h - lists of slots or rows as callers should not, but may, write them. */
#ifndef APP_CHECK_CHECK_LIST_DRAW_H
#define APP_CHECK_CHECK_LIST_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "app/check/check_attend_case.h"
#include "app/check/check_buffer.h"
#include "app/check/check_rng.h"

/* What the entries of one list may name. */
typedef struct check_list_pool {
    int32_t *used; /* rows with finite numbers */
    int64_t n_used;
    int64_t capacity;
    const check_cache *cache; /* where unused slots are found; NULL: unused_row */
    int32_t unused_row;       /* a row of NaN, -1 when there is none */
    int32_t infinite_row;     /* a row with an infinity in it, -1 when there is none */
    int64_t bound;            /* entries at and past it are no rows */
} check_list_pool;

void check_list_pool_set(check_list_pool *pool, const check_cache *cache);
void check_list_pool_add(check_list_pool *pool, int32_t row);
void check_list_pool_clear(check_list_pool *pool);

/* Draws [T, width] entries, *stride apart, and lengths (a buffer without data: NULL). Holes,
 * refused values and repeated entries stand inside the length; past it lie rows of NaN. Marks in
 * `tokens` those that were made to use one. `plain` draws full lists of good entries, no lengths.
 */
void check_list_draw(const check_list_pool *pool,
                     int64_t n_tokens,
                     int32_t width,
                     bool plain,
                     check_token *tokens,
                     int64_t *stride,
                     check_buffer *list,
                     check_buffer *lens,
                     check_rng *rng);

#endif
