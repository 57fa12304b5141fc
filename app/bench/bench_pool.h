/* bench_pool.h - caches full of records, larger than the processor's, and lists that walk through
 * them. */
#ifndef APP_BENCH_BENCH_POOL_H
#define APP_BENCH_BENCH_POOL_H

#include <stdint.h>

#include <megamla/megamla.h>

#include "app/bench/bench.h"
#include "app/check/check_buffer.h"

/* One cache, every slot of which holds a record; or bf16 rows, when format is NONE. */
typedef struct bench_cache {
    mmla_cache_desc desc;
    check_buffer memory;
    int64_t n_slots;
} bench_cache;

/* As many slots as `bytes` hold, in whole pages, filled from the seed. With several layers the
 * memory is as many times larger: between two pages lie those of the other layers, all NaN. */
bench_cache
bench_cache_create(bench_session *s, mmla_kv_format format, int64_t bytes, uint64_t stream);
void bench_cache_destroy(bench_cache *cache);

/* Lists of n_sets calls, [n_sets, T, width], for tokens with `lens` [T] keys; NULL: all have `width`.
 * Every slot is a key once before any is a key again, so a call finds nothing that the calls before
 * it left in the processor's caches; what stands behind a list's length is legal too. `run` slots in
 * a row are neighbours: a whole window, or 1 for picked records. */
check_buffer bench_lists_create(const bench_cache *cache,
                                int64_t n_sets,
                                int64_t n_tokens,
                                int64_t width,
                                int64_t run,
                                const int32_t *lens);

/* n_sets, or as many as lists of all sets may have bytes; 2 at least. */
int64_t bench_lists_limit(int64_t n_sets, int64_t n_tokens);

/* Calls until a cache of n_slots has been walked through, at least 2, at most 256. */
int64_t bench_sets_count(int64_t n_slots, int64_t slots_per_call);

#endif
