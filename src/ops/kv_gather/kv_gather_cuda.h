/* kv_gather_cuda.h - what the host code and the kernels of kv_gather share: parameters, and how the
 * rows of a call are divided among warps. The latter is tested on the CPU (kv_gather_cuda_test.c).
 *
 * Only the device knows the lengths, the host knows the room. Rows come in tiles of 1, 2 or 4, which a
 * warp converts at once.
 *
 * Where the room is small, it is covered: a block has eight tiles of one request, and a warp knows its
 * rows from the number of its block. Warps beyond the request's length end when they have read that.
 *
 * A large room may be nearly empty, so there tiles are dealt: all tiles of a call, those of request 0
 * first, stand in one line, and of W warps number w takes tiles w, w + W, w + 2 W, ... So the work is
 * that of the rows there are, whatever the lengths and the room for them, and differs by at most one
 * tile between warps. Where a request's tiles begin is the sum of the tiles before it, which every
 * block makes for itself, a chunk of requests at a time; that costs it some microseconds.
 */
#ifndef MMLA_OPS_KV_GATHER_CUDA_H
#define MMLA_OPS_KV_GATHER_CUDA_H

#include "base/checked.h"
#include "gpu/kernel.h"
#include "ops/kv_gather/kv_gather.h"

enum {
    KV_GATHER_THREADS = 256,
    KV_GATHER_BLOCKS = 4, /* a multiprocessor has registers for so many */
    KV_GATHER_WARP = 32,
    KV_GATHER_WARPS = KV_GATHER_THREADS / KV_GATHER_WARP,
    KV_GATHER_TILE_ROWS = 4, /* the most; as few as give all warps of the device one */
    KV_GATHER_WAVES = 8,     /* a room is covered by no more blocks than fit the device so often */
    KV_GATHER_GRID_Y = 65535,
    KV_GATHER_THREAD_REQUESTS = 4,
    KV_GATHER_CHUNK_REQUESTS = KV_GATHER_THREADS * KV_GATHER_THREAD_REQUESTS
};

typedef struct kv_gather_params {
    mmla_kv_gather_problem problem;
    mmla_kv_gather_args args;
    int32_t tile_rows;
    bool is_dealt; /* else block (x, y) has part x of the room of request y */
} kv_gather_params;

typedef struct kv_gather_grid {
    uint32_t x, y;
    int32_t tile_rows;
    bool is_dealt;
} kv_gather_grid;

MMLA_INLINE int64_t kv_gather_n_tiles(int64_t n_rows, int32_t tile_rows) {
    return (n_rows + tile_rows - 1) / tile_rows;
}

/* Blocks that cover the room of a request: one at least, which counts its fault even when there is room
 * for no row. */
MMLA_INLINE int64_t kv_gather_room_blocks(const mmla_kv_gather_problem *p, int32_t tile_rows) {
    const int64_t room = p->desc.rows - p->desc.offset;
    return mmla_max_i64(kv_gather_n_tiles(room, tile_rows * KV_GATHER_WARPS), 1);
}

/* Blocks of a call with at least one request. */
MMLA_INLINE kv_gather_grid kv_gather_grid_of(const mmla_kv_gather_problem *p, int64_t n_requests) {
    const int64_t n_resident = (int64_t)p->gpu.n_sms * KV_GATHER_BLOCKS;
    int32_t tile_rows = 1;
    while (tile_rows < KV_GATHER_TILE_ROWS &&
           n_requests * kv_gather_room_blocks(p, tile_rows) > n_resident) {
        tile_rows *= 2;
    }
    const int64_t x = kv_gather_room_blocks(p, tile_rows);
    kv_gather_grid grid = {(uint32_t)x, (uint32_t)n_requests, tile_rows, false};
    if (n_requests > KV_GATHER_GRID_Y || n_requests * x > KV_GATHER_WAVES * n_resident) {
        grid.x = (uint32_t)n_resident;
        grid.y = 1;
        grid.tile_rows = KV_GATHER_TILE_ROWS;
        grid.is_dealt = true;
    }
    return grid;
}

/* The first tile of a warp. Neighbouring tiles are in different blocks, so that a few tiles find as
 * many multiprocessors. */
MMLA_INLINE int64_t kv_gather_first_tile(uint32_t block, uint32_t n_blocks, int32_t warp) {
    return (int64_t)warp * n_blocks + block;
}

/* The request of a chunk that a tile belongs to: the last whose tiles begin at or before it. begin
 * rises from 0, and tile is below the sum of all. */
MMLA_INLINE int32_t kv_gather_find(const int64_t begin[KV_GATHER_CHUNK_REQUESTS], int64_t tile) {
    int32_t request = 0;
    for (int32_t step = KV_GATHER_CHUNK_REQUESTS / 2; step > 0; step /= 2) {
        if (begin[request + step] <= tile) {
            request += step;
        }
    }
    return request;
}

/* Where position pos of a request is: the entry of its row of the block table, and the record of that
 * page. mmla_kv_gather_slot in two steps, so that a kernel divides before it has the page. */
typedef struct kv_gather_place {
    uint32_t entry, record;
} kv_gather_place;

MMLA_INLINE kv_gather_place kv_gather_place_of(const mmla_kv_gather_problem *p, uint32_t pos) {
    const uint32_t page_tokens = (uint32_t)p->cache.page_tokens, entry = pos / page_tokens;
    const kv_gather_place place = {entry, pos - entry * page_tokens};
    return place;
}

MMLA_INLINE bool kv_gather_has_entry(const mmla_kv_gather_problem *p, kv_gather_place place) {
    return place.entry < (uint32_t)p->desc.table_width;
}

/* Of a record of page number `page`, as the table has it: the offset of its data row, or -1. */
MMLA_INLINE int64_t kv_gather_data_off(const mmla_kv_gather_problem *p,
                                       kv_gather_place place,
                                       int32_t page) {
    const int64_t in_page = mmla_kv_data_offset(&p->cache, place.record);
    const bool is_page = page >= 0 && page < p->desc.cache.n_pages;
    return is_page ? page * p->cache.page_stride_bytes + in_page : -1;
}

/* From a record's data row to its scale row, which is in the same page. */
MMLA_INLINE int32_t kv_gather_scale_from_data(const mmla_kv_gather_problem *p,
                                              kv_gather_place place) {
    return (int32_t)(mmla_kv_scale_offset(&p->cache, place.record) -
                     mmla_kv_data_offset(&p->cache, place.record));
}

MMLA_KERNEL(kv_gather_cuda_v4, kv_gather_params);
MMLA_KERNEL(kv_gather_cuda_v41_fp8, kv_gather_params);
MMLA_KERNEL(kv_gather_cuda_v41_fp4, kv_gather_params);

#endif
