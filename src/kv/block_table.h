/* block_table.h - from a position of a request to a slot of a paged cache.
 *
 * A request's row of the block table names the page of every page_tokens positions in turn. Neither
 * the row nor its entries are trusted: a position before 0, a place past the row and a page outside
 * the cache all lead to -1, before any address is formed.
 */
#ifndef MMLA_KV_BLOCK_TABLE_H
#define MMLA_KV_BLOCK_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"

typedef struct mmla_kv_table {
    int32_t page_tokens; /* at least 1 */
    int32_t width;       /* entries of a request's row */
    int64_t n_pages;     /* n_pages * page_tokens fits int32 */
} mmla_kv_table;

/* First slot of the page at `place` of a request's row, or -1. */
MMLA_INLINE int64_t mmla_kv_table_page_slot(const mmla_kv_table *table,
                                            const int32_t *row,
                                            int64_t place) {
    if (place < 0 || place >= table->width) {
        return -1;
    }
    const int64_t page = row[place];
    return page < 0 || page >= table->n_pages ? -1 : page * table->page_tokens;
}

/* Slot of position pos, or -1. */
MMLA_INLINE int64_t mmla_kv_table_slot(const mmla_kv_table *table,
                                       const int32_t *row,
                                       int64_t pos) {
    if (pos < 0) {
        return -1; /* C rounds a quotient towards zero, so -1 / 2 would be place 0 */
    }
    const int64_t first = mmla_kv_table_page_slot(table, row, pos / table->page_tokens);
    return first < 0 ? -1 : first + pos % table->page_tokens;
}

/* The same for a position of 32 bits, in arithmetic of 32 bits and with no branch but the one around
 * the load: a GPU that does several of these at once has their loads under way together. */
MMLA_INLINE int32_t mmla_kv_table_slot32(const mmla_kv_table *table,
                                         const int32_t *row,
                                         int32_t pos) {
    const uint32_t page_tokens = (uint32_t)table->page_tokens;
    const uint32_t place = (uint32_t)pos / page_tokens;
    const bool inside = pos >= 0 && place < (uint32_t)table->width;
    const int32_t page = inside ? row[place] : -1;
    const bool held = page >= 0 && page < table->n_pages;
    const uint32_t slot = (uint32_t)page * page_tokens + ((uint32_t)pos - place * page_tokens);
    return held ? (int32_t)slot : -1;
}

#endif
