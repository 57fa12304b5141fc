/* attend_mma_load.cuh - the keys of attend_mma_kernel.cu: which places of the lists a CTA walks, from
 * list entry to address, records to a stage in shared memory, stage to a bf16 tile.
 *
 *     list entry --ld--> slot --cp.async 16 B--> stage, raw records --convert--> K tile, bf16
 *
 * An entry is read one block before its record is fetched, and a record is fetched while the block
 * before it is multiplied. An entry that is no key is neither fetched nor converted: its row of the
 * tile is zero, so that a probability of zero meets a number. bf16 rows are fetched straight into
 * one of two tiles.
 */
#ifndef MMLA_GPU_ATTEND_MMA_LOAD_CUH
#define MMLA_GPU_ATTEND_MMA_LOAD_CUH

#include "gpu/async.cuh"
#include "gpu/attend_mma.h"
#include "gpu/convert.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* Rows of a warp under conversion at a time. Blackwell's compiler runs out of registers with two. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
enum { ATTEND_MMA_CONVERT_ROWS = 1 };
#else
enum { ATTEND_MMA_CONVERT_ROWS = 2 };
#endif

/* Up to `keys` neighbouring places of one list; n 0: there are no more. */
typedef struct attend_mma_block {
    int32_t list;
    int32_t place;
    int32_t n;
} attend_mma_block;

/* The places of a CTA: its split of a token's two lists, laid end to end. */
typedef struct attend_mma_walk {
    int32_t list;
    int32_t place;
    int32_t end;    /* of the list it is in */
    int32_t begin1; /* of the second list, while it is in the first */
    int32_t end1;
} attend_mma_walk;

GPU_DEVICE int32_t attend_mma_length(const attend_mma_list *list, int64_t token) {
    if (list->width == 0 || list->lens == NULL) {
        return list->width;
    }
    return min(max(list->lens[token], 0), list->width);
}

/* A token's places divided evenly, in whole groups of 16, so that splits differ by one group. */
GPU_DEVICE attend_mma_walk attend_mma_walk_get(const attend_mma_params *p,
                                               int64_t token,
                                               int32_t split) {
    const int64_t len0 = attend_mma_length(&p->lists[0], token);
    const int64_t len1 = attend_mma_length(&p->lists[1], token);
    const int64_t total = len0 + len1;
    const int64_t share = (total + 16 * p->n_splits - 1) / (16 * p->n_splits) * 16;
    const int64_t first = min(split * share, total), last = min(first + share, total);
    attend_mma_walk w;
    w.list = 0;
    w.place = (int32_t)min(first, len0);
    w.end = (int32_t)min(last, len0);
    w.begin1 = (int32_t)(max(first, len0) - len0);
    w.end1 = (int32_t)(max(last, len0) - len0);
    return w;
}

GPU_DEVICE attend_mma_block attend_mma_next(attend_mma_walk *w, const int32_t keys) {
    if (w->list == 0 && w->place >= w->end) {
        w->list = 1;
        w->place = w->begin1;
        w->end = w->end1;
    }
    attend_mma_block b;
    b.list = w->list;
    b.place = w->place;
    b.n = max(min(keys, w->end - w->place), 0);
    w->place += b.n;
    return b;
}

/* The list entry of row `row` of a block, not looked at yet: whether it is a key is asked one block
 * later, when the load has long arrived. */
GPU_DEVICE int32_t attend_mma_entry(const attend_mma_params *p,
                                    int64_t token,
                                    attend_mma_block b,
                                    int32_t row) {
    const attend_mma_list *list = &p->lists[b.list];
    return row < b.n ? list->entries[token * list->stride + b.place + row] : -1;
}

/* The slot an entry names, -1 when it is no key. */
GPU_DEVICE int32_t attend_mma_slot(const attend_mma_params *p, attend_mma_block b, int32_t entry) {
    return b.n > 0 && mmla_kv_slot_is_legal(&p->lists[b.list].view, entry) ? entry : -1;
}

/* One of `lanes` threads copies its share of n chunks of 16 bytes. */
GPU_DEVICE void attend_mma_copy(
    uint32_t to, const uint8_t *from, const int32_t n, int32_t lane, const int32_t lanes) {
#pragma unroll
    for (int32_t i = 0; i < (n + lanes - 1) / lanes; i++) {
        const int32_t c = i * lanes + lane;
        if (n % lanes == 0 || c < n) {
            gpu_cp_async16(to + 16 * c, from + 16 * c);
        }
    }
}

/* Starts fetching this thread's part of a block: `lanes` threads share row `row`. */
GPU_DEVICE void attend_mma_fetch(const attend_mma_params *p,
                                 attend_mma_block b,
                                 int32_t slot,
                                 uint32_t stage,
                                 int32_t row,
                                 int32_t lane,
                                 const int32_t lanes) {
    if (b.n == 0) {
        return; /* b.list may be one that there is not */
    }
    const attend_mma_list *list = &p->lists[b.list];
    if (list->view.format == MMLA_KV_NONE) { /* straight into a tile, zeros where there is no key */
        const uint8_t *from = list->pool + max(slot, 0) * list->view.page_stride_bytes;
#pragma unroll
        for (int32_t i = 0; i < ATTEND_MMA_ROW_CHUNKS / lanes; i++) {
            const int32_t c = i * lanes + lane;
            gpu_cp_async16_zero(stage + attend_mma_chunk_off(row, c), from + 16 * c, slot >= 0);
        }
        return;
    }
    if (slot < 0) {
        return;
    }
    const uint8_t *data = list->pool + mmla_kv_data_offset(&list->view, slot);
    const uint8_t *scale = list->pool + mmla_kv_scale_offset(&list->view, slot);
    switch (list->view.format) {
    case MMLA_KV_V4: {
        const uint32_t to = stage + row * ATTEND_MMA_V4_PITCH;
        attend_mma_copy(to, data, MMLA_KV_V4_DATA_BYTES / 16, lane, lanes);
        if (lane == 0) {
            gpu_cp_async8(to + MMLA_KV_V4_DATA_BYTES, scale);
        }
        break;
    }
    case MMLA_KV_V41_FP8: {
        const uint32_t to = stage + row * ATTEND_MMA_FP8_PITCH;
        attend_mma_copy(to, data, MMLA_KV_FP8_DATA_BYTES / 16, lane, lanes);
        attend_mma_copy(to + MMLA_KV_FP8_DATA_BYTES, scale, MMLA_KV_FP8_SCALE_BYTES / 16, lane,
                        lanes);
        break;
    }
    default: {
        const uint32_t to = stage + row * ATTEND_MMA_FP4_PITCH;
        attend_mma_copy(to, data, MMLA_KV_FP4_DATA_BYTES / 16, lane, lanes);
        attend_mma_copy(to + MMLA_KV_FP4_DATA_BYTES, scale, MMLA_KV_FP4_SCALE_BYTES / 16, lane,
                        lanes);
        break;
    }
    }
}

/* What the rows of a format's tile are to be multiplied with: values of fp4 records are put there as
 * 128ths, which saves a multiplication each and is exact. */
GPU_DEVICE float attend_mma_tile_scale(mmla_kv_format format) {
    return format == MMLA_KV_V41_FP4 ? 128.0f : 1.0f;
}

/* Eight e4m3 codes times a scale. */
GPU_DEVICE uint4 attend_mma_convert_fp8(uint2 codes, float scale) {
    return make_uint4(gpu_bf16x2_from_e4m3x2(codes.x & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.x >> 16, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y >> 16, scale));
}

/* Chunk c (8 dims) of a raw record as bf16. */
GPU_DEVICE uint4 attend_mma_convert(const mmla_kv_format format, const uint8_t *raw, int32_t c) {
    const int32_t x = c * ATTEND_MMA_CHUNK_DIMS;
    switch (format) {
    case MMLA_KV_V4: {
        if (x >= MMLA_KV_V4_FP8_DIMS) { /* bf16 already */
            return *(const uint4 *)(raw + MMLA_KV_V4_FP8_DIMS + 2 * (x - MMLA_KV_V4_FP8_DIMS));
        }
        const uint32_t byte = raw[MMLA_KV_V4_DATA_BYTES + x / MMLA_KV_V4_GROUP];
        return attend_mma_convert_fp8(*(const uint2 *)(raw + x), gpu_f32_from_ue8m0(byte));
    }
    case MMLA_KV_V41_FP8: {
        const uint32_t byte = raw[MMLA_KV_FP8_DATA_BYTES + x / MMLA_KV_FP8_GROUP];
        return attend_mma_convert_fp8(*(const uint2 *)(raw + x), gpu_f32_from_ue8m0(byte));
    }
    default: {
        const uint32_t byte = raw[MMLA_KV_FP4_DATA_BYTES + x / MMLA_KV_FP4_GROUP];
        return gpu_bf16x8_from_e2m1x8_128th(*(const uint32_t *)(raw + x / 2),
                                            gpu_f32x2_from_e4m3x2(byte).x);
    }
    }
}

/* A block's stage to its tile: a warp takes every eighth row, a lane the chunks lane and lane + 32. As
 * there are eight warps, the swizzle of a warp's rows is the same, and only the row's base moves. What
 * is not a key is converted too and then not used: a branch would keep the rows from overlapping. */
GPU_DEVICE void attend_mma_convert_block(const mmla_kv_format format,
                                         const uint8_t *stage,
                                         uint8_t *tile,
                                         const int32_t *valid,
                                         const int32_t keys) {
    static_assert(ATTEND_MMA_WARPS % 8 == 0 && ATTEND_MMA_ROW_CHUNKS == 64, "see above");
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32,
                  pitch = attend_mma_pitch(format);
    const uint8_t *raw = stage + warp * pitch;
    uint8_t *to = tile + attend_mma_chunk_off(warp, lane);
#pragma unroll ATTEND_MMA_CONVERT_ROWS
    for (int32_t row = warp; row < keys; row += ATTEND_MMA_WARPS) {
        const bool is_key = valid[row] != 0;
#pragma unroll
        for (int32_t half = 0; half < 2; half++) {
            uint4 chunk = attend_mma_convert(format, raw, lane + 32 * half);
            chunk.x = is_key ? chunk.x : 0;
            chunk.y = is_key ? chunk.y : 0;
            chunk.z = is_key ? chunk.z : 0;
            chunk.w = is_key ? chunk.w : 0;
            *(uint4 *)(to + half * 32 * ATTEND_MMA_CHUNK_BYTES) = chunk;
        }
        raw += ATTEND_MMA_WARPS * pitch;
        to += ATTEND_MMA_WARPS * ATTEND_MMA_ROW_BYTES;
    }
}

/* Starts fetching heads first_head .. of a token's q into its tile; rows past n_heads are zeros. */
GPU_DEVICE void attend_mma_fetch_q(const attend_mma_params *p,
                                   int64_t token,
                                   int32_t first_head,
                                   uint32_t tile,
                                   const int32_t n_tiles) {
    const uint16_t *q = p->q + token * p->q_token_stride;
    const int32_t heads = 8 * n_tiles;
#pragma unroll 2
    for (int32_t i = threadIdx.x; i < heads * ATTEND_MMA_ROW_CHUNKS; i += ATTEND_MMA_THREADS) {
        /* Neighbouring threads take what lies side by side in memory: in the fused layout the two
         * chunks of 16 dims, then the next head; else the chunks of one head. */
        const bool fused = p->q_layout == MMLA_Q_FUSED;
        const int32_t h = fused ? i / 2 % heads : i / ATTEND_MMA_ROW_CHUNKS;
        const int32_t c = fused ? i / (2 * heads) * 2 + i % 2 : i % ATTEND_MMA_ROW_CHUNKS;
        const bool exists = first_head + h < p->n_heads;
        const int64_t at = mmla_q_index(p->q_layout, p->n_heads, exists ? first_head + h : 0,
                                        c * ATTEND_MMA_CHUNK_DIMS);
        gpu_cp_async16_zero(tile + attend_mma_chunk_off(h, c), q + at, exists);
    }
}

#undef GPU_DEVICE

#endif
