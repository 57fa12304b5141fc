/* bench_gpu_pool.c - gigabytes of records and numbers from a few. */
#include "app/bench/bench_gpu.h"

#include <string.h>

#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum {
    TILE_SLOTS = 2048,
    TILE_ELEMENTS = 1 << 20,
    STEP = 7919 * 16 /* elements between rows, modulo what a tile has */
};

bench_gpu_cache bench_gpu_cache_create(
    bench_session *s, bench_arena *arena, mmla_kv_format format, int64_t bytes, uint64_t stream) {
    const bool is_rows = format == MMLA_KV_NONE;
    const int32_t page_tokens = bench_page_tokens(&s->options);
    const int64_t page_bytes = is_rows ? 0 : mmla_kv_page_bytes(format, page_tokens);
    /* bench_cache_create makes one page more than fit. */
    const int64_t tile_bytes = is_rows ? BENCH_GPU_ROWS * MMLA_LATENT_DIM * 2
                                       : (TILE_SLOTS / page_tokens - 1) * page_bytes;
    bench_gpu_cache c = {.tile = bench_cache_create(s, format, tile_bytes, stream)};
    /* `bytes` are of one layer, a tile is of all. */
    const int64_t unit = c.tile.memory.bytes;
    const int64_t used = is_rows ? unit : c.tile.desc.n_pages * page_bytes;
    const int64_t n_tiles = bytes / used > 1 ? bytes / used : 1;
    c.desc = c.tile.desc;
    c.desc.n_pages *= n_tiles;
    c.n_slots = c.tile.n_slots * n_tiles;
    c.memory = bench_arena_repeat(arena, c.tile.memory.data, unit, n_tiles * unit);
    return c;
}

void bench_gpu_cache_destroy(bench_gpu_cache *c) {
    bench_cache_destroy(&c->tile);
    *c = (bench_gpu_cache){0};
}

static bench_tile tile_create(int64_t element_bytes) {
    return (bench_tile){.data = check_buffer_create(TILE_ELEMENTS * element_bytes, 64, 0),
                        .element_bytes = element_bytes,
                        .n_elements = TILE_ELEMENTS};
}

bench_tile bench_tile_bf16(uint64_t seed, uint64_t stream) {
    bench_tile t = tile_create(2);
    check_rng rng = check_rng_at(seed, stream, 0);
    for (int64_t i = 0; i < t.n_elements; i++) {
        ((uint16_t *)t.data.data)[i] = check_bf16_of_f32(check_rng_normal(&rng));
    }
    return t;
}

bench_tile bench_tile_codes(uint64_t seed, uint64_t stream) {
    bench_tile t = tile_create(1);
    check_rng rng = check_rng_at(seed, stream, 0);
    for (int64_t i = 0; i < t.n_elements; i++) {
        const uint8_t code = (uint8_t)(check_rng_next(&rng) >> 40);
        t.data.data[i] = (code & 0x7F) == 0x7F ? 0 : code;
    }
    return t;
}

bench_tile bench_tile_scales(uint64_t seed, uint64_t stream) {
    bench_tile t = tile_create(1);
    check_rng rng = check_rng_at(seed, stream, 0);
    for (int64_t i = 0; i < t.n_elements; i++) {
        t.data.data[i] = (uint8_t)(116 + check_rng_below(&rng, 6));
    }
    return t;
}

const void *bench_tile_row(const bench_tile *t, int64_t i, int64_t n) {
    return t->data.data + i * STEP % (t->n_elements - n) * t->element_bytes;
}

void bench_tile_destroy(bench_tile *t) {
    check_buffer_destroy(&t->data);
    *t = (bench_tile){0};
}
