/* kv_gather_cuda.h - what the host code and the kernels of kv_gather share: parameters, and how the
 * rows of a call are divided among warps. The latter is tested on the CPU (kv_gather_cuda_test.c).
 *
 * Only the device knows the lengths. Rows are dealt in tiles of eight: all tiles of a call, those of
 * request 0 first, stand in one line, and of W warps number w takes tiles w, w + W, w + 2 W, ... So the
 * work is that of the rows there are, whatever the lengths and the room for them, and differs by at
 * most one tile between warps. Where a request's tiles begin is the sum of the tiles before it, which
 * every block makes for itself, a chunk of requests at a time.
 */
#ifndef MMLA_OPS_KV_GATHER_CUDA_H
#define MMLA_OPS_KV_GATHER_CUDA_H

#include "base/checked.h"
#include "gpu/kernel.h"
#include "ops/kv_gather/kv_gather.h"

enum {
    KV_GATHER_THREADS = 256,
    KV_GATHER_BLOCKS = 3, /* a multiprocessor */
    KV_GATHER_WARP = 32,
    KV_GATHER_WARPS = KV_GATHER_THREADS / KV_GATHER_WARP,
    KV_GATHER_TILE_ROWS = 8, /* few, so that a short request is spread over the device */
    KV_GATHER_THREAD_REQUESTS = 4,
    KV_GATHER_CHUNK_REQUESTS = KV_GATHER_THREADS * KV_GATHER_THREAD_REQUESTS
};

typedef struct kv_gather_params {
    mmla_kv_gather_problem problem;
    mmla_kv_gather_args args;
} kv_gather_params;

MMLA_INLINE int64_t kv_gather_n_tiles(int64_t n_rows) {
    return (n_rows + KV_GATHER_TILE_ROWS - 1) / KV_GATHER_TILE_ROWS;
}

/* Blocks of a call: no more than the most tiles there can be, and one to count faults when there is
 * room for none. */
MMLA_INLINE uint32_t kv_gather_n_blocks(const mmla_kv_gather_problem *p, int64_t n_requests) {
    const int64_t n_tiles = n_requests * kv_gather_n_tiles(p->desc.rows - p->desc.offset);
    return (uint32_t)mmla_clamp_i64(n_tiles, 1, (int64_t)p->gpu.n_sms * KV_GATHER_BLOCKS);
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

MMLA_KERNEL(kv_gather_cuda_v4, kv_gather_params);
MMLA_KERNEL(kv_gather_cuda_v41_fp8, kv_gather_params);
MMLA_KERNEL(kv_gather_cuda_v41_fp4, kv_gather_params);

#endif
