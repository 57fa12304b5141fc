/* attend_wgmma_load.cuh - the tasks of attend_wgmma_kernel.cu, and its loading warps: records to the
 * stages.
 *
 *     list entry --cp.async--> ring --> slot --ld 16 B--> registers --convert--> stage (bf16 tile)
 *
 * Two warps have eight keys at a time, eight threads a key, and a block of 64 is two such halves. Eight
 * threads side by side hold the same 16 bytes of eight keys: the loads fill 64 bytes of each record,
 * and the stores of converted chunks go to eight different places of the swizzle. As soon as a
 * register is converted it is loaded anew for the next half, whose list entries came to the warp's ring
 * two blocks earlier; the walk goes on into the next task. An entry that is no key is not followed: its row of
 * the tile is zero, so that a probability of zero meets a number.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_LOAD_CUH
#define MMLA_GPU_ATTEND_WGMMA_LOAD_CUH

#include "gpu/attend_mma_load.cuh"
#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_tile.h"
#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE int32_t attend_wgmma_n_tasks(const attend_mma_params *p) {
    return (int32_t)p->n_tokens * p->n_head_tiles;
}

GPU_DEVICE int32_t attend_wgmma_n_blocks(int32_t places) {
    return (max(places, 0) + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
}

/* Task i, and its places. */
GPU_DEVICE attend_wgmma_task attend_wgmma_task_get(const attend_mma_params *p,
                                                   int32_t i,
                                                   attend_mma_walk *walk) {
    attend_wgmma_task task;
    task.token = p->first_token + (uint32_t)i / (uint32_t)p->n_head_tiles;
    task.first_head = (int32_t)((uint32_t)i % (uint32_t)p->n_head_tiles) * ATTEND_WGMMA_HEADS;
    task.n_heads = min(p->n_heads - task.first_head, ATTEND_WGMMA_HEADS);
    const int32_t position = p->positions[task.token];
    task.position = position >= 0 && position < p->rope_positions ? position : -1;
    *walk = attend_mma_walk_get(p, task.token, gpu_cluster_rank());
    if (task.position < 0) {
        walk->end = walk->end1 = 0;
    }
    task.turn = 0; /* known to whoever counts */
    task.n_blocks = attend_wgmma_n_blocks(walk->end - walk->place) +
                    attend_wgmma_n_blocks(walk->end1 - walk->begin1);
    return task;
}

/* Brings near what attend_wgmma_task_get will read of task i. */
GPU_DEVICE void attend_wgmma_task_prefetch(const attend_mma_params *p, int32_t i) {
    if (i >= attend_wgmma_n_tasks(p)) {
        return;
    }
    const int64_t token = p->first_token + (uint32_t)i / (uint32_t)p->n_head_tiles;
    gpu_prefetch_l1(p->positions + token);
    for (int32_t k = 0; k < 2; k++) {
        if (p->lists[k].lens != NULL) {
            gpu_prefetch_l1(p->lists[k].lens + token);
        }
    }
}

/* Loads of 16 bytes by each of a record's eight threads. Of V4 these are its codes, of the last 16 bytes
 * of which only four threads have some; its bf16 part needs no register. */
enum {
    ATTEND_WGMMA_UNIT_BYTES = ATTEND_WGMMA_PIECES * ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_V4_UNITS =
        (MMLA_KV_V4_FP8_DIMS + ATTEND_WGMMA_UNIT_BYTES - 1) / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_FP8_UNITS = MMLA_KV_FP8_DATA_BYTES / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_FP4_UNITS = MMLA_KV_FP4_DATA_BYTES / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_ROW_UNITS = MMLA_LATENT_DIM * 2 / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_UNITS_MAX = ATTEND_WGMMA_FP8_UNITS
};

/* A thread's share of a record, on its way or there. */
typedef struct attend_wgmma_record {
    uint4 data[ATTEND_WGMMA_UNITS_MAX];
    uint32_t scale[2];
} attend_wgmma_record;

/* Where a thread's share of a record begins; NULL of what is no key. */
typedef struct attend_wgmma_source {
    const uint8_t *data;
    int32_t to_scale; /* bytes to the record's scales: of one page, so 32 bits are enough */
} attend_wgmma_source;

/* Whether a thread has a unit of a format. */
GPU_DEVICE bool
attend_wgmma_has_unit(const mmla_kv_format format, const int32_t unit, int32_t piece) {
    return format != MMLA_KV_V4 ||
           unit * ATTEND_WGMMA_UNIT_BYTES + piece * ATTEND_WGMMA_PIECE_BYTES < MMLA_KV_V4_FP8_DIMS;
}

/* Starts one load; zeros where there is no key. */
GPU_DEVICE uint4 attend_wgmma_unit_load(const mmla_kv_format format,
                                        const attend_wgmma_source *from,
                                        const int32_t unit,
                                        int32_t piece) {
    const bool is_there = from->data != NULL && attend_wgmma_has_unit(format, unit, piece);
    return gpu_load16_or_zero(from->data + unit * ATTEND_WGMMA_UNIT_BYTES, is_there);
}

/* Starts loading the scales of a thread's share; of e4m3 codes a word, which the four threads of a
 * warp that share a record exchange. */
GPU_DEVICE void attend_wgmma_scale_load(const mmla_kv_format format,
                                        const attend_wgmma_source *from,
                                        int32_t piece,
                                        uint32_t scale[2]) {
    const bool is_there = from->data != NULL;
    const uint8_t *bytes = from->data + from->to_scale;
    switch (format) {
    case MMLA_KV_V4: {
        scale[0] = gpu_load4_or_zero(bytes + 4 * (piece % 2), is_there);
        break;
    }
    case MMLA_KV_V41_FP8: {
        scale[0] = gpu_load4_or_zero(bytes + 4 * (piece % 4), is_there);
        break;
    }
    default: {
#pragma unroll
        for (int32_t u = 0; u < ATTEND_WGMMA_FP4_UNITS; u++) { /* of dims 256 u + 32 piece on */
            const int32_t at = (u * ATTEND_WGMMA_UNIT_BYTES + piece * ATTEND_WGMMA_PIECE_BYTES) *
                               2 / MMLA_KV_FP4_GROUP;
            scale[u] = gpu_load2_or_zero(bytes + at, is_there);
        }
        break;
    }
    }
}

GPU_DEVICE int32_t attend_wgmma_units(const mmla_kv_format format) {
    return format == MMLA_KV_V4        ? ATTEND_WGMMA_V4_UNITS
           : format == MMLA_KV_V41_FP8 ? ATTEND_WGMMA_FP8_UNITS
                                       : ATTEND_WGMMA_FP4_UNITS;
}

/* Starts loading a thread's share of a record of a format. */
GPU_DEVICE void attend_wgmma_record_load(const mmla_kv_format format,
                                         const attend_wgmma_source *from,
                                         int32_t piece,
                                         attend_wgmma_record *r) {
#pragma unroll
    for (int32_t u = 0; u < attend_wgmma_units(format); u++) {
        r->data[u] = attend_wgmma_unit_load(format, from, u, piece);
    }
    attend_wgmma_scale_load(format, from, piece, r->scale);
}

/* What the units of a thread's share are multiplied with: of e4m3 codes a ue8m0 byte a unit, of e2m1
 * codes a factor for each half of a unit. Made of the scales before these are loaded anew. */
typedef union attend_wgmma_scales {
    uint32_t fp8;
    uint32_t fp4[2 * ATTEND_WGMMA_FP4_UNITS];
} attend_wgmma_scales;

static_assert(ATTEND_WGMMA_FP8_UNITS == 4, "a byte each in a word");

GPU_DEVICE void attend_wgmma_scales_get(const mmla_kv_format format,
                                        const uint32_t scale[2],
                                        int32_t piece,
                                        attend_wgmma_scales *s) {
    if (format == MMLA_KV_V41_FP4) {
#pragma unroll
        for (int32_t u = 0; u < ATTEND_WGMMA_FP4_UNITS; u++) {
            const float2 x = gpu_f32x2_from_e4m3x2(scale[u]);
            s->fp4[2 * u] = gpu_e2m1_factor_128th(x.x);
            s->fp4[2 * u + 1] = gpu_e2m1_factor_128th(x.y);
        }
    } else if (format == MMLA_KV_V41_FP8) { /* a scale is of two pieces: byte piece / 2 of word u */
        s->fp8 = 0;
#pragma unroll
        for (int32_t u = 0; u < ATTEND_WGMMA_FP8_UNITS; u++) {
            const uint32_t word =
                __shfl_sync(~0u, scale[0], threadIdx.x % ATTEND_WGMMA_WARP_KEYS + 8 * u);
            s->fp8 |= (word >> piece / 2 * 8 & 0xFFu) << 8 * u;
        }
    } else { /* of four pieces: byte 2 u + piece / 4 */
        const int32_t key = threadIdx.x % ATTEND_WGMMA_WARP_KEYS;
        s->fp8 = __byte_perm(__shfl_sync(~0u, scale[0], key), __shfl_sync(~0u, scale[0], key + 8),
                             piece < 4 ? 0x6420 : 0x7531);
    }
}

/* Unit u of a thread's share of key `row`, from registers to the tile. */
GPU_DEVICE void attend_wgmma_unit_convert(const mmla_kv_format format,
                                          uint4 codes,
                                          const attend_wgmma_scales *scales,
                                          const int32_t u,
                                          uint8_t *tile,
                                          int32_t row,
                                          int32_t piece) {
    enum { COLUMN = ATTEND_WGMMA_COLUMN_DIMS };
    if (format == MMLA_KV_V41_FP4) { /* 32 codes, four chunks */
        const int32_t column = u * 2 * ATTEND_WGMMA_UNIT_BYTES / COLUMN;
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            *(uint4 *)(tile + attend_wgmma_chunk_off(row, 4 * piece + i) +
                       column * ATTEND_WGMMA_COLUMN_BYTES) =
                gpu_bf16x8_from_e2m1x8_by(words[i], scales->fp4[2 * u + i / 2]);
        }
        return;
    }
    if (!attend_wgmma_has_unit(format, u, piece)) {
        return;
    }
    const int32_t column = u * ATTEND_WGMMA_UNIT_BYTES / COLUMN;
    const float x = gpu_f32_from_ue8m0(scales->fp8 >> u * 8 & 0xFFu);
    *(uint4 *)(tile + attend_wgmma_chunk_off(row, 2 * piece) + column * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.x, codes.y), x);
    *(uint4 *)(tile + attend_wgmma_chunk_off(row, 2 * piece + 1) +
               column * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.z, codes.w), x);
}

/* A thread's share of key `row` to the tile. Its registers are refilled one by one from the next
 * record, which has the same format or is none. */
GPU_DEVICE void attend_wgmma_record_convert(const mmla_kv_format format,
                                            attend_wgmma_record *r,
                                            uint8_t *tile,
                                            int32_t row,
                                            int32_t piece,
                                            const attend_wgmma_source *next) {
    attend_wgmma_scales scales;
    attend_wgmma_scales_get(format, r->scale, piece, &scales);
    attend_wgmma_scale_load(format, next, piece, r->scale);
#pragma unroll
    for (int32_t u = 0; u < attend_wgmma_units(format); u++) {
        attend_wgmma_unit_convert(format, r->data[u], &scales, u, tile, row, piece);
        r->data[u] = attend_wgmma_unit_load(format, next, u, piece);
    }
}

/* A thread's share of key `row`, a bf16 row, straight into the tile. */
GPU_DEVICE void
attend_wgmma_row_fetch(const attend_wgmma_source *from, uint32_t tile, int32_t row, int32_t piece) {
#pragma unroll 4
    for (int32_t u = 0; u < ATTEND_WGMMA_ROW_UNITS; u++) {
        gpu_cp_async16_zero(tile + attend_wgmma_chunk_off(row, ATTEND_WGMMA_PIECES * u + piece),
                            from->data + u * ATTEND_WGMMA_UNIT_BYTES, from->data != NULL);
    }
}

/* The bf16 part of a V4 record, which begins where the codes end, straight into the tile. */
GPU_DEVICE void attend_wgmma_tail_fetch(const attend_wgmma_source *from,
                                        uint32_t tile,
                                        int32_t row,
                                        int32_t piece) {
    enum { CHUNK = MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_CHUNK_DIMS };
    static_assert(2 * MMLA_ROPE_DIM == ATTEND_WGMMA_UNIT_BYTES, "16 bytes of each thread");
    asm volatile("" : "+r"(row)); /* see attend_wgmma_load_half */
    gpu_cp_async16_zero(tile + attend_wgmma_chunk_off(row, CHUNK + piece),
                        from->data + MMLA_KV_V4_FP8_DIMS, from->data != NULL);
}

/* Blocks are numbered through all tasks of a CTA. A block's `what`: bit 0 is the list, and from bit 1 on
 * stands how many tasks begin with it; those before the last of them have no keys. */
#define ATTEND_WGMMA_NO_BLOCK (~0u)

GPU_DEVICE attend_wgmma_entries *attend_wgmma_ring_at(attend_wgmma_state *state, uint32_t n) {
    uint32_t warp = (threadIdx.x - ATTEND_WGMMA_MATH_THREADS) / 32;
    asm volatile("" : "+r"(warp));
    return &state->ring[n % ATTEND_WGMMA_RING][warp];
}

/* Starts fetching the list entries of block n, the next, to the warp's ring: its first threads one each. A
 * block has keys of one list. */
GPU_DEVICE void
attend_wgmma_fetch_entries(const attend_mma_params *p, attend_wgmma_state *state, uint32_t n) {
    uint32_t thread = threadIdx.x - ATTEND_WGMMA_MATH_THREADS;
    asm volatile(""
                 : "+r"(thread)); /* or what it gives would be kept, see attend_wgmma_load_half */
    const int32_t warp = thread / 32, lane = thread % 32;
    attend_wgmma_entries *block = attend_wgmma_ring_at(state, n);
    attend_wgmma_feed f = state->feeds[warp];
    uint32_t n_begun = 0;
    bool exists = f.i < attend_wgmma_n_tasks(p);
    while (exists && f.place >= f.end) {
        const bool is_new = f.list == 1;
        if (is_new) {
            f.i += gpu_n_clusters();
            exists = f.i < attend_wgmma_n_tasks(p);
            n_begun++;
        }
        if (exists) {
            attend_mma_walk walk;
            const attend_wgmma_task task = attend_wgmma_task_get(p, f.i, &walk);
            f.token = (int32_t)(task.token - p->first_token);
            f.list = is_new ? 0 : 1;
            f.place = is_new ? walk.place : walk.begin1;
            f.end = is_new ? walk.end : walk.end1;
            if (is_new) {
                attend_wgmma_task_prefetch(p, f.i + gpu_n_clusters());
            }
        }
    }
    if (lane < 2 * ATTEND_WGMMA_WARP_KEYS) {
        const int32_t place = f.place + attend_wgmma_load_row(warp, lane) +
                              lane / ATTEND_WGMMA_WARP_KEYS * ATTEND_WGMMA_LOAD_KEYS;
        if (exists && place < f.end) {
            const attend_mma_list *list = &p->lists[f.list];
            gpu_cp_async4(gpu_smem_address(&block->entries[lane]),
                          list->entries + (p->first_token + f.token) * list->stride + place);
        } else {
            block->entries[lane] = -1;
        }
    }
    f.place += ATTEND_WGMMA_KEYS;
    __syncwarp(); /* all have read the feed */
    if (lane == 0) {
        block->what = exists ? n_begun << 1 | (uint32_t)f.list : ATTEND_WGMMA_NO_BLOCK;
        state->feeds[warp] = f;
    }
    gpu_cp_async_commit();
}

/* The source of a thread's row of half a block; none when there is no block, or one of another format. */
GPU_DEVICE attend_wgmma_source attend_wgmma_source_get(const attend_mma_params *p,
                                                       const mmla_kv_format format,
                                                       const attend_wgmma_entries *block,
                                                       const int32_t half,
                                                       int32_t piece) {
    attend_wgmma_source from = {NULL, 0};
    if (block->what == ATTEND_WGMMA_NO_BLOCK) {
        return from;
    }
    const attend_mma_list *list = &p->lists[block->what & 1];
    const int32_t entry =
        block->entries[half * ATTEND_WGMMA_WARP_KEYS + threadIdx.x % ATTEND_WGMMA_WARP_KEYS];
    if (list->view.format == format && mmla_kv_slot_is_legal(&list->view, entry)) {
        const uint32_t first = piece * ATTEND_WGMMA_PIECE_BYTES;
        const int64_t at = mmla_kv_data_offset(&list->view, entry) + first;
        from.data = list->pool + at;
        from.to_scale = (int32_t)(mmla_kv_scale_offset(&list->view, entry) - at);
    }
    return from;
}

/* Before the first block of a task: waits until the sums of the tasks before it are out. */
GPU_DEVICE void
attend_wgmma_await_tasks(const attend_mma_params *p, attend_wgmma_state *state, uint32_t what) {
    if (gpu_cluster_size() == 1 || what == ATTEND_WGMMA_NO_BLOCK) {
        return;
    }
    const int32_t warp = (threadIdx.x - ATTEND_WGMMA_MATH_THREADS) / 32;
    uint32_t n_begun = state->n_begun[warp];
    for (uint32_t k = 0; k < what >> 1; k++, n_begun++) {
        gpu_barrier_wait(gpu_smem_address(&state->parts_empty), (n_begun & 1) ^ 1);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        state->n_begun[warp] = n_begun;
    }
    __syncwarp();
}

/* Half a block to its tile, and which of its rows are keys. */
GPU_DEVICE void attend_wgmma_load_half(const mmla_kv_format format,
                                       uint8_t *smem,
                                       uint32_t stage,
                                       attend_wgmma_record *record,
                                       int32_t row,
                                       int32_t piece,
                                       const attend_wgmma_source *from,
                                       const attend_wgmma_source *next) {
    const uint32_t keys = __ballot_sync(~0u, from->data != NULL);
    /* Or every address that they give would be kept, in registers that there are not. */
    asm volatile("" : "+r"(row), "+r"(piece));
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    uint8_t *tile = smem + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES;
    if (format == MMLA_KV_NONE) {
        attend_wgmma_row_fetch(from, gpu_smem_address(tile), row, piece);
    } else {
        attend_wgmma_record_convert(format, record, tile, row, piece, next);
    }
    if (piece == 0 && row % 8 == 0) {
        ((uint8_t *)&state->valid[stage])[row / 8] = (uint8_t)keys;
    }
}

/* Blocks of one format, from number n on, until there is one of another; returns its number. The format is
 * a constant, so that a record stays in the same registers. */
GPU_DEVICE uint32_t attend_wgmma_load_run(const attend_mma_params *p,
                                          const mmla_kv_format format,
                                          uint8_t *smem,
                                          int32_t row,
                                          int32_t piece,
                                          uint32_t n) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    attend_wgmma_source from =
        attend_wgmma_source_get(p, format, attend_wgmma_ring_at(state, n), 0, piece);
    attend_wgmma_record record;
    if (format != MMLA_KV_NONE) {
        attend_wgmma_record_load(format, &from, piece, &record);
    }
    uint32_t what;
    do {
        attend_wgmma_fetch_entries(p, state, n + ATTEND_WGMMA_AHEAD);
        const uint32_t stage = n % ATTEND_WGMMA_STAGES;
        uint32_t same_stage = stage;
        asm volatile("" : "+r"(same_stage));
        gpu_barrier_wait(gpu_smem_address(&state->empty[stage]), (n / ATTEND_WGMMA_STAGES & 1) ^ 1);
        const attend_wgmma_source second =
            attend_wgmma_source_get(p, format, attend_wgmma_ring_at(state, n), 1, piece);
        if (format == MMLA_KV_V4) {
            const uint32_t tile =
                gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES;
            attend_wgmma_tail_fetch(&from, tile, row, piece);
            attend_wgmma_tail_fetch(&second, tile, ATTEND_WGMMA_LOAD_KEYS + row, piece);
        }
        attend_wgmma_load_half(format, smem, stage, &record, row, piece, &from, &second);
        n++;
        gpu_cp_async_wait(ATTEND_WGMMA_AHEAD - 1); /* the entries of block n are there */
        __syncwarp();
        const attend_wgmma_entries *block = attend_wgmma_ring_at(state, n);
        from = attend_wgmma_source_get(p, format, block, 0, piece);
        what = block->what;
        attend_wgmma_load_half(format, smem, same_stage, &record, ATTEND_WGMMA_LOAD_KEYS + row,
                               piece, &second, &from);
        if (threadIdx.x == ATTEND_WGMMA_MATH_THREADS) {
            state->log2_scale[stage] = format == MMLA_KV_V41_FP4 ? 7.0f : 0.0f; /* 128ths */
        }
        if (format == MMLA_KV_NONE || format == MMLA_KV_V4) {
            gpu_cp_async_wait_all();
        }
        gpu_fence_async();
        gpu_barrier_arrive(gpu_smem_address(&state->full[stage]));
        /* The stages hold sums of a task until these are out. */
        attend_wgmma_await_tasks(p, state, what);
    } while (what != ATTEND_WGMMA_NO_BLOCK && p->lists[what & 1].view.format == format);
    return n;
}

/* What the loading warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_load(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t warp = (threadIdx.x - ATTEND_WGMMA_MATH_THREADS) / 32, lane = threadIdx.x % 32;
    const int32_t row = attend_wgmma_load_row(warp, lane);
    const int32_t piece = attend_wgmma_load_piece(warp, lane);
    if (lane == 0) {
        const attend_wgmma_feed feed = {
            .i = (int32_t)gpu_cluster_number() - (int32_t)gpu_n_clusters(), .list = 1};
        state->feeds[warp] = feed;
        state->n_begun[warp] = 0;
    }
    __syncwarp();
    for (uint32_t n = 0; n < ATTEND_WGMMA_AHEAD; n++) {
        attend_wgmma_fetch_entries(p, state, n);
        __syncwarp();
    }
    gpu_cp_async_wait(ATTEND_WGMMA_AHEAD - 1);
    __syncwarp();
    attend_wgmma_await_tasks(p, state, attend_wgmma_ring_at(state, 0)->what);
    for (uint32_t n = 0;;) {
        const uint32_t what = attend_wgmma_ring_at(state, n)->what;
        if (what == ATTEND_WGMMA_NO_BLOCK) {
            break;
        }
        switch (p->lists[what & 1].view.format) {
        case MMLA_KV_NONE:
            n = attend_wgmma_load_run(p, MMLA_KV_NONE, smem, row, piece, n);
            break;
        case MMLA_KV_V4:
            n = attend_wgmma_load_run(p, MMLA_KV_V4, smem, row, piece, n);
            break;
        case MMLA_KV_V41_FP8:
            n = attend_wgmma_load_run(p, MMLA_KV_V41_FP8, smem, row, piece, n);
            break;
        default:
            n = attend_wgmma_load_run(p, MMLA_KV_V41_FP4, smem, row, piece, n);
            break;
        }
    }
    gpu_cp_async_wait_all();
}

#undef GPU_DEVICE

#endif
