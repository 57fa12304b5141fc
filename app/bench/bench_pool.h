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

/* As many slots as `bytes` hold, in whole pages, filled from the seed. */
bench_cache
bench_cache_create(bench_session *s, mmla_kv_format format, int64_t bytes, uint64_t stream);
void bench_cache_destroy(bench_cache *cache);

/* Lists of n_sets calls, [n_sets, T, width]. Every slot is named once before any is named again, so
 * a call finds nothing that the calls before it left in the processor's caches. `run` slots in a
 * row are neighbours: a whole window, or 1 for picked records. */
check_buffer bench_lists_create(
    const bench_cache *cache, int64_t n_sets, int64_t n_tokens, int64_t width, int64_t run);

/* Calls until a cache of n_slots has been walked through, at least 2, at most 256. */
int64_t bench_sets_count(int64_t n_slots, int64_t slots_per_call);

#endif
