/* attend_wgmma_load.cuh - the tasks of attend_wgmma_kernel.cu, and its loading warps: records to the
 * stages.
 *
 *     list entry --ld--> slot --ld 16 B--> registers --convert--> stage (bf16 tile, smem)
 *
 * A warp has eight keys at a time, four threads a key, and a block of 64 is two such halves. Eight
 * threads side by side hold the same 16 bytes of eight keys: the loads fill 64 bytes of each record,
 * and the stores of converted chunks go to eight different places of the swizzle. As soon as a
 * register is converted it is loaded anew for the next half, whose list entries were read one half
 * earlier; the walk goes on into the next task. An entry that is no key is not followed: its row of
 * the tile is zero, so that a probability of zero meets a number.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_LOAD_CUH
#define MMLA_GPU_ATTEND_WGMMA_LOAD_CUH

#include "gpu/attend_mma_load.cuh"
#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_tile.h"
#include "gpu/barrier.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* What a CTA is to do, one after the other: a token, up to 64 heads, its share of the keys. Every role
 * finds it out by itself. */
typedef struct attend_wgmma_task {
    int64_t token;
    int32_t first_head;
    int32_t n_heads;
    int32_t position; /* -1: not in the table */
    int32_t n_blocks;
    attend_mma_walk walk;
} attend_wgmma_task;

GPU_DEVICE int32_t attend_wgmma_n_tasks(const attend_mma_params *p) {
    return (int32_t)p->n_tokens * p->n_head_tiles;
}

GPU_DEVICE int32_t attend_wgmma_n_blocks(int32_t places) {
    return (max(places, 0) + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
}

GPU_DEVICE attend_wgmma_task attend_wgmma_task_get(const attend_mma_params *p, int32_t i) {
    attend_wgmma_task task;
    task.token = p->first_token + (uint32_t)i / (uint32_t)p->n_head_tiles;
    task.first_head = (int32_t)((uint32_t)i % (uint32_t)p->n_head_tiles) * ATTEND_WGMMA_HEADS;
    task.n_heads = min(p->n_heads - task.first_head, ATTEND_WGMMA_HEADS);
    const int32_t position = p->positions[task.token];
    task.position = position >= 0 && position < p->rope_positions ? position : -1;
    task.walk = attend_mma_walk_get(p, task.token, blockIdx.x % p->n_splits);
    if (task.position < 0) {
        task.walk.end = task.walk.end1 = 0;
    }
    task.n_blocks = attend_wgmma_n_blocks(task.walk.end - task.walk.place) +
                    attend_wgmma_n_blocks(task.walk.end1 - task.walk.begin1);
    return task;
}

/* Loads of a record by its four threads, 16 bytes each: of the widest (V4), and of a bf16 row. */
enum {
    ATTEND_WGMMA_UNITS_MAX = MMLA_KV_V4_DATA_BYTES / ATTEND_WGMMA_PIECES / ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_V4_FP8_UNITS =
        MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_PIECES / ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_FP8_UNITS =
        MMLA_KV_FP8_DATA_BYTES / ATTEND_WGMMA_PIECES / ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_FP4_UNITS =
        MMLA_KV_FP4_DATA_BYTES / ATTEND_WGMMA_PIECES / ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_ROW_UNITS = MMLA_LATENT_DIM * 2 / ATTEND_WGMMA_PIECES / ATTEND_WGMMA_PIECE_BYTES
};

static_assert(ATTEND_WGMMA_FP8_UNITS <= ATTEND_WGMMA_UNITS_MAX &&
                  ATTEND_WGMMA_FP4_UNITS <= ATTEND_WGMMA_UNITS_MAX,
              "a thread's share of any record");

/* A thread's share of a record, on its way or there. */
typedef struct attend_wgmma_record {
    uint4 data[ATTEND_WGMMA_UNITS_MAX];
    uint32_t scale[4];
} attend_wgmma_record;

/* Where a thread's share of a record begins; NULL of what is no key. */
typedef struct attend_wgmma_source {
    const uint8_t *data;
    const uint8_t *scale;
    mmla_kv_format format;
} attend_wgmma_source;

GPU_DEVICE attend_wgmma_source attend_wgmma_source_get(const attend_mma_params *p,
                                                       int32_t list_i,
                                                       int32_t slot,
                                                       int32_t piece) {
    const attend_mma_list *list = &p->lists[list_i];
    attend_wgmma_source from = {NULL, NULL, list->view.format};
    if (slot >= 0) {
        from.data = list->pool + mmla_kv_data_offset(&list->view, slot) +
                    piece * ATTEND_WGMMA_PIECE_BYTES;
        from.scale = list->pool + mmla_kv_scale_offset(&list->view, slot);
    }
    return from;
}

/* Starts one load; zeros where there is no key. */
GPU_DEVICE uint4 attend_wgmma_unit_load(const attend_wgmma_source *from, int32_t unit) {
    return from->data == NULL ? make_uint4(0, 0, 0, 0)
                              : gpu_load16(from->data + attend_wgmma_piece_off(unit, 0));
}

/* Starts loading the scales of a thread's share. */
GPU_DEVICE void attend_wgmma_scale_load(const mmla_kv_format format,
                                        const attend_wgmma_source *from,
                                        int32_t piece,
                                        uint32_t scale[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        scale[i] = 0;
    }
    if (from->scale == NULL) {
        return;
    }
    switch (format) {
    case MMLA_KV_V4: {
        const uint2 s = __ldg((const uint2 *)from->scale);
        scale[0] = s.x;
        scale[1] = s.y;
        break;
    }
    case MMLA_KV_V41_FP8: {
        const uint4 s = __ldg((const uint4 *)from->scale);
        scale[0] = s.x;
        scale[1] = s.y;
        scale[2] = s.z;
        scale[3] = s.w;
        break;
    }
    default: {
#pragma unroll
        for (int32_t u = 0; u < ATTEND_WGMMA_FP4_UNITS; u++) {
            scale[u] = __ldg((const uint16_t *)(from->scale + 8 * u + 2 * piece));
        }
        break;
    }
    }
}

GPU_DEVICE int32_t attend_wgmma_units(const mmla_kv_format format) {
    return format == MMLA_KV_V4        ? ATTEND_WGMMA_UNITS_MAX
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
        r->data[u] = attend_wgmma_unit_load(from, u);
    }
    attend_wgmma_scale_load(format, from, piece, r->scale);
}

/* The same by the record's own format. */
GPU_DEVICE void attend_wgmma_record_refill(attend_wgmma_record *r,
                                           const attend_wgmma_source *from,
                                           int32_t piece) {
    switch (from->format) {
    case MMLA_KV_V4:
        attend_wgmma_record_load(MMLA_KV_V4, from, piece, r);
        break;
    case MMLA_KV_V41_FP8:
        attend_wgmma_record_load(MMLA_KV_V41_FP8, from, piece, r);
        break;
    case MMLA_KV_V41_FP4:
        attend_wgmma_record_load(MMLA_KV_V41_FP4, from, piece, r);
        break;
    default: /* a bf16 row, or none */
        break;
    }
}

/* Unit u of a thread's share of key `row`, from registers to the tile. */
GPU_DEVICE void attend_wgmma_unit_convert(const mmla_kv_format format,
                                          uint4 codes,
                                          const uint32_t scale[4],
                                          int32_t u,
                                          uint8_t *tile,
                                          int32_t row,
                                          int32_t piece) {
    if (format == MMLA_KV_V41_FP4) { /* 32 codes: scales 8 u + 2 piece and the next */
        const float2 x = gpu_f32x2_from_e4m3x2(scale[u]);
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            *(uint4 *)(tile + attend_wgmma_chunk_off(row, 4 * piece + i) +
                       2 * u * ATTEND_WGMMA_COLUMN_BYTES) =
                gpu_bf16x8_from_e2m1x8_128th(words[i], i < 2 ? x.x : x.y);
        }
        return;
    }
    if (format == MMLA_KV_V4 && u >= ATTEND_WGMMA_V4_FP8_UNITS) { /* eight bf16 */
        const int32_t c = MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_CHUNK_DIMS +
                          ATTEND_WGMMA_PIECES * (u - ATTEND_WGMMA_V4_FP8_UNITS) + piece;
        *(uint4 *)(tile + attend_wgmma_chunk_off(row, c)) = codes;
        return;
    }
    /* 16 codes: of V4 scale u, else scale 2 u + piece / 2 */
    const uint32_t byte = format == MMLA_KV_V4
                              ? scale[u / 4] >> u % 4 * 8 & 0xFFu
                              : scale[u / 2] >> (u % 2 * 16 + piece / 2 * 8) & 0xFFu;
    const float x = gpu_f32_from_ue8m0(byte);
    *(uint4 *)(tile + attend_wgmma_chunk_off(row, 2 * piece) + u * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.x, codes.y), x);
    *(uint4 *)(tile + attend_wgmma_chunk_off(row, 2 * piece + 1) + u * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.z, codes.w), x);
}

/* A thread's share of key `row` to the tile. Its registers are refilled one by one from the next
 * record, when that has the same format. */
GPU_DEVICE void attend_wgmma_record_convert(const mmla_kv_format format,
                                            attend_wgmma_record *r,
                                            uint8_t *tile,
                                            int32_t row,
                                            int32_t piece,
                                            const attend_wgmma_source *next) {
    const bool refill = next->format == format;
    uint32_t scale[4];
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        scale[i] = r->scale[i];
    }
    if (refill) {
        attend_wgmma_scale_load(format, next, piece, r->scale);
    }
#pragma unroll
    for (int32_t u = 0; u < attend_wgmma_units(format); u++) {
        attend_wgmma_unit_convert(format, r->data[u], scale, u, tile, row, piece);
        if (refill) {
            r->data[u] = attend_wgmma_unit_load(next, u);
        }
    }
    if (!refill) {
        attend_wgmma_record_refill(r, next, piece);
    }
}

/* A thread's share of key `row`, a bf16 row, straight into the tile. */
GPU_DEVICE void attend_wgmma_row_fetch(const attend_wgmma_source *from,
                                       uint32_t tile,
                                       int32_t row,
                                       int32_t piece) {
#pragma unroll 4
    for (int32_t u = 0; u < ATTEND_WGMMA_ROW_UNITS; u++) {
        gpu_cp_async16_zero(tile + attend_wgmma_chunk_off(row, ATTEND_WGMMA_PIECES * u + piece),
                            from->data + attend_wgmma_piece_off(u, 0), from->data != NULL);
    }
}

/* Half a block of keys on its way, as one loading thread knows it. */
typedef struct attend_wgmma_half {
    bool exists;
    int32_t n_task; /* of the CTA's tasks */
    int32_t list;
    int32_t second; /* of the block: 0 or 1 */
    int32_t entry;  /* of the thread's row, not looked at yet */
} attend_wgmma_half;

/* Where a loading thread's walk over all tasks is. */
typedef struct attend_wgmma_feed {
    int32_t i; /* number of the task among all CTAs' */
    int32_t n_task;
    int64_t token;
    attend_mma_walk walk;
    attend_mma_block block;
    int32_t second;
} attend_wgmma_feed;

/* The next half block; its entry is on its way. */
GPU_DEVICE attend_wgmma_half
attend_wgmma_feed_next(const attend_mma_params *p, attend_wgmma_feed *feed, int32_t row) {
    attend_wgmma_half half = {.exists = true};
    if (feed->block.n > 0 && feed->second == 0) {
        feed->second = 1;
    } else {
        feed->second = 0;
        feed->block = attend_mma_next(&feed->walk, ATTEND_WGMMA_KEYS);
        while (feed->block.n == 0) { /* the next task that has keys */
            feed->i += gridDim.x / p->n_splits;
            feed->n_task++;
            if (feed->i >= attend_wgmma_n_tasks(p)) {
                half.exists = false;
                return half;
            }
            const attend_wgmma_task task = attend_wgmma_task_get(p, feed->i);
            feed->token = task.token;
            feed->walk = task.walk;
            feed->block = attend_mma_next(&feed->walk, ATTEND_WGMMA_KEYS);
        }
    }
    half.n_task = feed->n_task;
    half.list = feed->block.list;
    half.second = feed->second;
    half.entry = attend_mma_entry(p, feed->token, feed->block,
                                  half.second * ATTEND_WGMMA_LOAD_KEYS + row);
    return half;
}

/* The source of a half block's row; of none when there is no half block. */
GPU_DEVICE attend_wgmma_source attend_wgmma_half_source(const attend_mma_params *p,
                                                        const attend_wgmma_half *half,
                                                        int32_t piece) {
    attend_wgmma_source none = {NULL, NULL, MMLA_KV_NONE};
    if (!half->exists) {
        return none;
    }
    const int32_t slot =
        mmla_kv_slot_is_legal(&p->lists[half->list].view, half->entry) ? half->entry : -1;
    return attend_wgmma_source_get(p, half->list, slot, piece);
}

/* What the loading warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_load(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t warp = (threadIdx.x - ATTEND_WGMMA_LOAD_FIRST) / 32, lane = threadIdx.x % 32;
    const int32_t row = warp * 8 + lane % 8, piece = lane / 8;
    int32_t n_free = 0;  /* tasks before which the stages are known to be free */
    uint32_t turn = 0;   /* blocks */
    attend_wgmma_feed feed = {.i = (int32_t)(blockIdx.x / p->n_splits) -
                                   (int32_t)(gridDim.x / p->n_splits),
                              .n_task = -1};
    attend_wgmma_half now = attend_wgmma_feed_next(p, &feed, row);
    attend_wgmma_half next = attend_wgmma_feed_next(p, &feed, row);
    attend_wgmma_source from = attend_wgmma_half_source(p, &now, piece);
    attend_wgmma_record record;
    attend_wgmma_record_refill(&record, &from, piece);
    while (now.exists) {
        const attend_wgmma_source next_from = attend_wgmma_half_source(p, &next, piece);
        for (; n_free <= now.n_task; n_free++) {
            /* The stages hold sums until those of the task before are out. */
            gpu_barrier_wait_cluster(gpu_smem_address(&state->parts_empty), n_free & 1 ^ 1);
        }
        const int32_t stage = turn % ATTEND_WGMMA_STAGES;
        const int32_t tile_row = now.second * ATTEND_WGMMA_LOAD_KEYS + row;
        uint8_t *tile = smem + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES;
        if (now.second == 0) {
            gpu_barrier_wait(gpu_smem_address(&state->empty[stage]),
                             (turn / ATTEND_WGMMA_STAGES & 1) ^ 1);
        }
        const uint32_t keys = __ballot_sync(~0u, from.data != NULL);
        switch (from.format) {
        case MMLA_KV_NONE:
            attend_wgmma_row_fetch(&from, gpu_smem_address(tile), tile_row, piece);
            gpu_cp_async_commit();
            gpu_cp_async_wait(0);
            break;
        case MMLA_KV_V4:
            attend_wgmma_record_convert(MMLA_KV_V4, &record, tile, tile_row, piece, &next_from);
            break;
        case MMLA_KV_V41_FP8:
            attend_wgmma_record_convert(MMLA_KV_V41_FP8, &record, tile, tile_row, piece,
                                        &next_from);
            break;
        default:
            attend_wgmma_record_convert(MMLA_KV_V41_FP4, &record, tile, tile_row, piece,
                                        &next_from);
            break;
        }
        if (lane == 0) {
            ((uint8_t *)&state->valid[stage])[tile_row / 8] = (uint8_t)keys;
            state->tile_scale[stage] = attend_mma_tile_scale(from.format);
        }
        if (now.second == 1) {
            gpu_fence_async();
            gpu_barrier_arrive(gpu_smem_address(&state->full[stage]));
            turn++;
        }
        now = next;
        from = next_from;
        next = attend_wgmma_feed_next(p, &feed, row);
    }
}

#undef GPU_DEVICE

#endif
