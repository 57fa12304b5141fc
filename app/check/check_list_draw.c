/* check_list_draw.c - holes, repeats, refused values, lengths of every kind. */
#include "app/check/check_list_draw.h"

#include <stdlib.h>
#include <string.h>

enum style { FULL, PREFIX, HOLES, REPEATS, NOTHING, STYLES };
enum length { NO_LENS, LENS_WIDTH, LENS_RANDOM, LENS_ZERO, LENS_WILD, LENGTHS };

void check_list_pool_add(check_list_pool *pool, int32_t row) {
    if (pool->n_used == pool->capacity) {
        pool->capacity = 2 * pool->capacity + 64;
        int32_t *grown = check_alloc(pool->capacity * (int64_t)sizeof *grown);
        if (pool->n_used > 0) {
            memcpy(grown, pool->used, (size_t)pool->n_used * sizeof *grown);
        }
        free(pool->used);
        pool->used = grown;
    }
    pool->used[pool->n_used++] = row;
}

void check_list_pool_set(check_list_pool *pool, const check_cache *cache) {
    pool->cache = cache;
    pool->bound = cache->n_slots;
    for (int64_t i = 0; i < cache->n_used; i++) {
        check_list_pool_add(pool, cache->used[i]);
    }
}

void check_list_pool_clear(check_list_pool *pool) {
    free(pool->used);
    *pool = (check_list_pool){.unused_row = -1, .infinite_row = -1};
}

static int32_t unused(const check_list_pool *pool, check_rng *rng) {
    return pool->cache != NULL ? check_cache_unused_slot(pool->cache, rng) : pool->unused_row;
}

/* An entry that names a good row, or -1 when there is none. */
static int32_t good(const check_list_pool *pool, int64_t among, check_rng *rng) {
    const int64_t n = pool->n_used < among ? pool->n_used : among;
    return n > 0 ? pool->used[check_rng_below(rng, n)] : -1;
}

static int32_t
draw_entry(const check_list_pool *pool, enum style style, bool in_prefix, check_rng *rng) {
    switch (style) {
    case PREFIX:
        return in_prefix ? good(pool, INT32_MAX, rng) : -1;
    case HOLES:
        return check_rng_chance(rng, 0.3) ? check_rng_bad_index(rng, pool->bound)
                                          : good(pool, INT32_MAX, rng);
    case REPEATS:
        return good(pool, 3, rng);
    case NOTHING:
        return check_rng_bad_index(rng, pool->bound);
    default:
        return good(pool, INT32_MAX, rng);
    }
}

static int32_t draw_length(enum length kind, int32_t width, check_rng *rng) {
    const int32_t wild[] = {width + 7, INT32_MAX, -1, INT32_MIN, 0, 1};
    switch (kind) {
    case LENS_RANDOM:
        return (int32_t)check_rng_below(rng, width + 1);
    case LENS_ZERO:
        return 0;
    case LENS_WILD:
        return wild[check_rng_below(rng, 6)];
    default:
        return width;
    }
}

/* Entries at and past a length: rows of NaN, refused values, and, so that a reader that ignores
 * the length is wrong in more than NaN, good rows. */
static int32_t draw_past(const check_list_pool *pool, check_rng *rng) {
    const double which = check_rng_uniform(rng);
    return which < 0.6   ? unused(pool, rng)
           : which < 0.8 ? good(pool, INT32_MAX, rng)
                         : check_rng_bad_index(rng, pool->bound);
}

void check_list_draw(const check_list_pool *pool,
                     int64_t n_tokens,
                     int32_t width,
                     bool plain,
                     check_token *tokens,
                     int64_t *stride,
                     check_buffer *list,
                     check_buffer *lens,
                     check_rng *rng) {
    *stride = width + (plain ? 0 : check_rng_below(rng, 4));
    *list = check_buffer_create(n_tokens * *stride * 4, 4, 0xFF);
    const enum length kind = plain ? NO_LENS : (enum length)check_rng_below(rng, LENGTHS);
    if (kind != NO_LENS) {
        *lens = check_buffer_create(n_tokens * 4, 4, 0xFF);
    }
    for (int64_t t = 0; t < n_tokens; t++) {
        int32_t *row = (int32_t *)list->data + t * *stride;
        /* Full lists half the time: they find most of the ordinary mistakes. */
        const enum style style =
            plain || check_rng_chance(rng, 0.4) ? FULL : (enum style)check_rng_below(rng, STYLES);
        const int64_t prefix = check_rng_below(rng, width + 1);
        const int32_t length = draw_length(kind, width, rng);
        for (int64_t k = 0; k < *stride; k++) {
            row[k] = k < length && k < width ? draw_entry(pool, style, k < prefix, rng)
                                             : draw_past(pool, rng);
        }
        if (kind != NO_LENS) {
            ((int32_t *)lens->data)[t] = length;
        }
        const int64_t n_read = length < width ? length : width;
        const int32_t nan = unused(pool, rng);
        if (!plain && n_read > 0 && nan >= 0 && tokens[t] == CHECK_TOKEN_PLAIN &&
            check_rng_chance(rng, 0.04)) {
            row[check_rng_below(rng, n_read)] = nan;
            tokens[t] = CHECK_TOKEN_NAN;
        }
        if (!plain && n_read > 0 && pool->infinite_row >= 0 && tokens[t] == CHECK_TOKEN_PLAIN &&
            check_rng_chance(rng, 0.04)) {
            row[check_rng_below(rng, n_read)] = pool->infinite_row;
            tokens[t] = CHECK_TOKEN_WILD;
        }
    }
}
