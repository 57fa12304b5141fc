/* attend_wgmma_load.cuh - the loading warps of the Hopper kernels: records to the stages.
 *
 *     sources --> ld 16 B --> registers --convert--> stage (bf16 tile)
 *
 * A warp has eight keys of every block of its group. At a time it loads 512 bytes, one record of
 * fp8 or two of fp4: eight lanes side by side 128 bytes of one record, which costs the memory pipe
 * an eighth of what 16 bytes each of eight records do. A lane has the same dims of all keys, and
 * the order of chunks in a tile lets eight lanes store to eight different places. As soon as a
 * register is converted it is loaded anew, with what comes two loads later, if need be of the next
 * block: from L2, to where the list warp (attend_wgmma_list.cuh) has it brought. What is no key is
 * read as zeros, so that a probability of zero meets a number.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_LOAD_CUH
#define MMLA_GPU_ATTEND_WGMMA_LOAD_CUH

#include "gpu/attend_mma_load.cuh"
#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_wgmma_list.cuh"
#include "gpu/attend_wgmma_tile.h"
#include "gpu/barrier.cuh"
#include "gpu/wgmma.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* Loads that a lane has under way. */
enum { ATTEND_WGMMA_HELD = 2 };

/* One load: 16 codes of fp8, 32 of fp4, and the one or two scales of them, as in memory. */
typedef struct attend_wgmma_load16 {
    uint4 codes;
    uint32_t scale;
} attend_wgmma_load16;

/* How many bytes of a record share one of its scales. */
GPU_DEVICE int32_t attend_wgmma_group_bytes(const mmla_kv_format format) {
    return format == MMLA_KV_V4        ? (int32_t)MMLA_KV_V4_GROUP
           : format == MMLA_KV_V41_FP8 ? (int32_t)MMLA_KV_FP8_GROUP
                                       : (int32_t)MMLA_KV_FP4_GROUP / 2;
}

/* Starts a load of a record whose data begin at `data`; the lane's begin at byte `lane_at` of
 * them. */
GPU_DEVICE attend_wgmma_load16 attend_wgmma_load_begin(const mmla_kv_format format,
                                                       const uint8_t *data,
                                                       int32_t to_scale,
                                                       uint32_t lane_at) {
    attend_wgmma_load16 x;
    x.codes = gpu_load16(data + lane_at);
    const uint8_t *scale = data + to_scale + lane_at / (uint32_t)attend_wgmma_group_bytes(format);
    x.scale = format == MMLA_KV_V41_FP4 ? gpu_load2(scale) : gpu_load1(scale);
    return x;
}

/* A load, to its place in the tile. `to` is where the lane's first chunk of the warp's first key
 * lies, u the number of the load, a constant. */
GPU_DEVICE void attend_wgmma_load_convert(const mmla_kv_format format,
                                          attend_wgmma_load16 x,
                                          uint32_t to,
                                          const int32_t u) {
    const int32_t rows = u * attend_wgmma_load_keys(format); /* below the first */
    /* Tiles and groups of eight rows are aligned, so that moving a chunk in its row is a XOR. */
    const uint32_t at = (to ^ rows * ATTEND_WGMMA_PIECE_BYTES) + rows * GPU_WGMMA_ROW_BYTES;
    if (format == MMLA_KV_V41_FP4) {
        const uint32_t words[4] = {x.codes.x, x.codes.y, x.codes.z, x.codes.w};
        const float2 scale = gpu_f32x2_from_e4m3x2(x.scale);
        const uint32_t factors[2] = {gpu_e2m1_factor_128th(scale.x),
                                     gpu_e2m1_factor_128th(scale.y)};
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            gpu_smem_store16(at ^ i * ATTEND_WGMMA_PIECE_BYTES,
                             gpu_bf16x8_from_e2m1x8_by(words[i], factors[i / 2]));
        }
        return;
    }
    const float scale = gpu_f32_from_ue8m0(x.scale);
    const uint4 first = attend_mma_convert_fp8(make_uint2(x.codes.x, x.codes.y), scale);
    const uint4 second = attend_mma_convert_fp8(make_uint2(x.codes.z, x.codes.w), scale);
    /* Of a V4 record the last lanes have loaded what is no code. */
    if (attend_wgmma_load_has_codes(format, threadIdx.x % 32)) {
        gpu_smem_store16(at, first);
        gpu_smem_store16(at ^ ATTEND_WGMMA_PIECE_BYTES, second);
    }
}

/* The warp's bf16 rows, straight into the tile. */
GPU_DEVICE void
attend_wgmma_rows_fetch(const attend_wgmma_sources *block, uint32_t tile, int32_t first) {
    const int32_t lane = threadIdx.x % 32;
#pragma unroll 2
    for (int32_t k = 0; k < ATTEND_WGMMA_LOAD_KEYS; k++) {
        const uint8_t *data = block->data[first + k] + lane * ATTEND_WGMMA_PIECE_BYTES;
#pragma unroll
        for (int32_t c = 0; c < 2; c++) {
            gpu_cp_async16(tile + attend_wgmma_key_off(first + k, lane + 32 * c),
                           data + c * 32 * ATTEND_WGMMA_PIECE_BYTES);
        }
    }
}

/* The bf16 parts of its V4 records, which begin where the codes end, straight into the tile. */
GPU_DEVICE void
attend_wgmma_tails_fetch(const attend_wgmma_sources *block, uint32_t tile, int32_t first) {
    enum {
        CHUNK = MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_CHUNK_DIMS,
        CHUNKS = MMLA_ROPE_DIM / ATTEND_WGMMA_CHUNK_DIMS
    };
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int32_t i = 0; i < ATTEND_WGMMA_LOAD_KEYS * CHUNKS / 32; i++) {
        const int32_t key = first + 32 / CHUNKS * i + lane / CHUNKS;
        gpu_cp_async16(tile + attend_wgmma_key_off(key, CHUNK + lane % CHUNKS),
                       block->data[key] + MMLA_KV_V4_FP8_DIMS +
                           lane % CHUNKS * ATTEND_WGMMA_PIECE_BYTES);
    }
}

/* The sources of block n, once they are there. */
GPU_DEVICE const attend_wgmma_sources *attend_wgmma_sources_wait(attend_wgmma_state *state,
                                                                 uint32_t n) {
    const uint32_t i = n % ATTEND_WGMMA_RING;
    gpu_barrier_wait(gpu_smem_address(&state->sources_full[i]), n / ATTEND_WGMMA_RING & 1);
    return &state->sources[i];
}

/* Where a loading warp is: a block's number, its stage, and the parity of the stage's use. Of a
 * power of two of stages the number tells the rest, which then takes no register. */
typedef struct attend_wgmma_place {
    uint32_t n;
    uint32_t stage;
    uint32_t parity;
} attend_wgmma_place;

GPU_DEVICE void attend_wgmma_place_on(attend_wgmma_place *at) {
    at->n += ATTEND_WGMMA_LOAD_GROUPS;
    if ((ATTEND_WGMMA_STAGES & (ATTEND_WGMMA_STAGES - 1)) == 0) {
        at->stage = at->n % ATTEND_WGMMA_STAGES;
        at->parity = at->n / ATTEND_WGMMA_STAGES & 1;
        return;
    }
    at->stage += ATTEND_WGMMA_LOAD_GROUPS;
    if (at->stage >= ATTEND_WGMMA_STAGES) {
        at->stage -= ATTEND_WGMMA_STAGES;
        at->parity ^= 1;
    }
}

/* Until the stage's block before is multiplied. */
GPU_DEVICE void attend_wgmma_wait_empty(attend_wgmma_state *state, const attend_wgmma_place *at) {
    gpu_barrier_wait(gpu_smem_address(&state->empty[at->stage]), at->parity ^ 1);
}

GPU_DEVICE void attend_wgmma_arrive_full(attend_wgmma_state *state, const attend_wgmma_place *at) {
    gpu_barrier_arrive(gpu_smem_address(&state->full[at->stage]));
}

/* The warp's keys of a block, of which the first loads are under way. `next` is the group's block
 * after it, whose first loads are started, or NULL when that has another format. */
GPU_DEVICE void attend_wgmma_load_block(const mmla_kv_format format,
                                        attend_wgmma_load16 held[ATTEND_WGMMA_HELD],
                                        const attend_wgmma_sources *block,
                                        const attend_wgmma_sources *next,
                                        uint32_t to,
                                        int32_t row,
                                        uint32_t lane_at) {
    enum { HELD = ATTEND_WGMMA_HELD };
    const int32_t n_loads = ATTEND_WGMMA_LOAD_KEYS / attend_wgmma_load_keys(format);
#pragma unroll
    for (int32_t u = 0; u < n_loads; u++) {
        const attend_wgmma_sources *from = u + HELD < n_loads ? block : next;
        if (from == NULL) {
            attend_wgmma_load_convert(format, held[u % HELD], to, u);
            continue;
        }
        /* The address is asked for before the conversion, for the load that follows it. */
        const int32_t key = row + (u + HELD) % n_loads * attend_wgmma_load_keys(format);
        const uint8_t *data = from->data[key];
        const int32_t to_scale = from->to_scale[key];
        attend_wgmma_load_convert(format, held[u % HELD], to, u);
        held[u % HELD] = attend_wgmma_load_begin(format, data, to_scale, lane_at);
        __syncwarp(); /* or the assembler would move all loads behind the last conversion */
    }
}

/* Blocks of one format, until there is one of another, at which it leaves `at`; the warp's keys begin
 * at row `first`. The format is a constant, so that loads stay in the same registers. */
GPU_DEVICE void attend_wgmma_load_run(const mmla_kv_format format,
                                      uint8_t *smem,
                                      int32_t first,
                                      attend_wgmma_place *at) {
    enum { HELD = ATTEND_WGMMA_HELD };
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const attend_wgmma_sources *block = attend_wgmma_sources_wait(state, at->n);
    const int32_t row = first + attend_wgmma_load_row(format, threadIdx.x % 32);
    const uint32_t lane_at =
        attend_wgmma_load_piece(format, threadIdx.x % 32) * ATTEND_WGMMA_PIECE_BYTES;
    const uint32_t place =
        attend_wgmma_key_off(row, attend_wgmma_load_chunk(format, threadIdx.x % 32));
    attend_wgmma_load16 held[HELD];
    if (format != MMLA_KV_NONE) {
#pragma unroll
        for (int32_t u = 0; u < HELD; u++) {
            const int32_t key = row + u * attend_wgmma_load_keys(format);
            held[u] =
                attend_wgmma_load_begin(format, block->data[key], block->to_scale[key], lane_at);
        }
    }
    bool goes_on;
    do {
        attend_wgmma_wait_empty(state, at);
        const uint32_t tile =
            gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES + at->stage * ATTEND_WGMMA_TILE_BYTES;
        if (threadIdx.x == ATTEND_WGMMA_MATH_THREADS ||
            (ATTEND_WGMMA_LOAD_GROUPS == 2 &&
             threadIdx.x == ATTEND_WGMMA_MATH_THREADS + ATTEND_WGMMA_LOAD_THREADS)) {
            state->valid[at->stage] = block->valid;
            state->log2_scale[at->stage] = format == MMLA_KV_V41_FP4 ? 7 : 0; /* 128ths */
        }
        const attend_wgmma_sources *next =
            attend_wgmma_sources_wait(state, at->n + ATTEND_WGMMA_LOAD_GROUPS);
        goes_on = next->format == (int32_t)format;
        if (format == MMLA_KV_NONE) {
            attend_wgmma_rows_fetch(block, tile, first);
        } else {
            if (format == MMLA_KV_V4) {
                attend_wgmma_tails_fetch(block, tile, first);
            }
            if (goes_on) {
                attend_wgmma_load_block(format, held, block, next, tile + place, row, lane_at);
            } else {
                attend_wgmma_load_block(format, held, block, NULL, tile + place, row, lane_at);
            }
        }
        gpu_barrier_arrive(gpu_smem_address(&state->sources_empty[at->n % ATTEND_WGMMA_RING]));
        block = next;
        if (format == MMLA_KV_NONE || format == MMLA_KV_V4) {
            gpu_cp_async_wait_all();
        }
        gpu_fence_async();
        attend_wgmma_arrive_full(state, at);
        attend_wgmma_place_on(at);
    } while (goes_on);
}

/* The end of a task: the stage, once it is empty, to those who multiply. */
GPU_DEVICE void attend_wgmma_give_stage(attend_wgmma_state *state, attend_wgmma_place *at) {
    attend_wgmma_wait_empty(state, at);
    gpu_barrier_arrive(gpu_smem_address(&state->sources_empty[at->n % ATTEND_WGMMA_RING]));
    attend_wgmma_arrive_full(state, at);
    attend_wgmma_place_on(at);
}

/* What the loading warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_load(uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t warp = (threadIdx.x - ATTEND_WGMMA_MATH_THREADS) / 32;
    const int32_t group = warp / ATTEND_WGMMA_LOAD_WARPS;
    const int32_t first = warp % ATTEND_WGMMA_LOAD_WARPS * ATTEND_WGMMA_LOAD_KEYS;
    attend_wgmma_place at = {(uint32_t)group, (uint32_t)group, 0};
    for (;;) {
        const int32_t format = attend_wgmma_sources_wait(state, at.n)->format;
        switch (format) {
        case ATTEND_WGMMA_NO_BLOCK:
            return;
        case ATTEND_WGMMA_END:
            attend_wgmma_give_stage(state, &at);
            break;
        case MMLA_KV_NONE:
            attend_wgmma_load_run(MMLA_KV_NONE, smem, first, &at);
            break;
        case MMLA_KV_V4:
            attend_wgmma_load_run(MMLA_KV_V4, smem, first, &at);
            break;
        case MMLA_KV_V41_FP8:
            attend_wgmma_load_run(MMLA_KV_V41_FP8, smem, first, &at);
            break;
        default:
            attend_wgmma_load_run(MMLA_KV_V41_FP4, smem, first, &at);
            break;
        }
    }
}

#undef GPU_DEVICE

#endif
