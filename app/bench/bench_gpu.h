/* bench_gpu.h - the rows of a GPU.
 *
 * Inputs are drawn on the host and copied once; caches are copies of a small tile of records, one
 * behind the other, so that gigabytes of distinct addresses cost no time to fill and a reference on
 * the host needs the tile alone. Calls are timed as nodes of a graph (bench_replay.h), after which a
 * few tokens of the last call's results are compared with the reference.
 *
 * Everything here also runs with a context on the CPU in the GPU's place; the tests do that.
 */
#ifndef APP_BENCH_BENCH_GPU_H
#define APP_BENCH_BENCH_GPU_H

#include "app/bench/bench.h"
#include "app/bench/bench_pool.h"

/* Opens the contexts and measures the ceilings. On failure err says why; deinit is still needed.
 * options->device on the CPU makes the host stand in: no ceilings, small caches. */
mmla_status bench_gpu_session_init(bench_session *s, const bench_options *options, mmla_error *err);
void bench_gpu_session_deinit(bench_session *s);

/* Each measures its operation's shapes, as far as the options select them, and adds rows. */
void bench_gpu_attend_run(bench_session *s);
void bench_gpu_prefill_run(bench_session *s);
void bench_gpu_project_run(bench_session *s);
void bench_gpu_kv_run(bench_session *s);
void bench_gpu_list_run(bench_session *s);
void bench_gpu_step_run(bench_session *s);

/* A row with the description's part filled in; NULL when the table is full. The device forgets the
 * failures of the row before. finish says what has failed since, and that the row is complete. */
bench_row *bench_gpu_row_begin(
    bench_session *s, const char *op, const char *formats, int64_t heads, int64_t tokens);
void bench_gpu_row_finish(bench_session *s, bench_row *row);

/* Seconds for the samples of one row. */
double bench_gpu_budget_s(const bench_session *s);

/* Sets of inputs whose calls together touch more than the device's caches hold; `bytes` of a call
 * are what differs between sets. 2 at least, and 2 when nothing differs. */
int64_t bench_gpu_sets_count(const bench_session *s, double bytes);

/* A cache that repeats a tile, or a workspace of bf16 rows (format NONE, one tile long). */
typedef struct bench_gpu_cache {
    bench_cache tile; /* on the host */
    mmla_cache_desc desc;
    int64_t n_slots;
    void *memory; /* on the device */
} bench_gpu_cache;

enum { BENCH_GPU_ROWS = 16384 /* of a workspace of prefill */ };

/* As many whole tiles as `bytes` hold, one at least. The device keeps a failure. */
bench_gpu_cache bench_gpu_cache_create(
    bench_session *s, bench_arena *arena, mmla_kv_format format, int64_t bytes, uint64_t stream);
void bench_gpu_cache_destroy(bench_gpu_cache *cache); /* the tile; the rest is the arena's */

/* Many random numbers from a few: `n` elements of `element_bytes` for row i, cut from a tile of random
 * elements at a place of its own. For inputs of hundreds of megabytes. */
typedef struct bench_tile {
    check_buffer data;
    int64_t element_bytes, n_elements;
} bench_tile;

const void *bench_tile_row(const bench_tile *tile, int64_t i, int64_t n);
bench_tile bench_tile_bf16(uint64_t seed,
                           uint64_t stream); /* as normal distributed as check_rng's */
bench_tile bench_tile_codes(uint64_t seed, uint64_t stream);  /* e4m3 without NaN */
bench_tile bench_tile_scales(uint64_t seed, uint64_t stream); /* ue8m0 around 2^-8 */
void bench_tile_destroy(bench_tile *tile);

#endif
