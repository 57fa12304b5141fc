/* attend_wgmma_load.cuh - the loading warps of attend_wgmma_kernel.cu: records to the stages.
 *
 *     sources --> ld 16 B --> registers --convert--> stage (bf16 tile)
 *
 * A warp has eight keys of every block, four threads a key. Eight threads side by side hold the
 * same 16 bytes of eight keys: the loads fill 64 bytes of each record, and the stores of converted
 * chunks go to eight different places of the swizzle. As soon as a register is converted it is
 * loaded anew, with what comes four units of 64 bytes later, if need be of the next record: from
 * L2, to where the list warp (attend_wgmma_list.cuh) has it brought. What is no key is read as
 * zeros, so that a probability of zero meets a number.
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

/* A record in units of 16 bytes of each of its four threads. Of V4 these are its codes; its bf16
 * part needs no register. */
enum {
    ATTEND_WGMMA_UNIT_BYTES = ATTEND_WGMMA_PIECES * ATTEND_WGMMA_PIECE_BYTES,
    ATTEND_WGMMA_V4_UNITS = MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_FP8_UNITS = MMLA_KV_FP8_DATA_BYTES / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_FP4_UNITS = MMLA_KV_FP4_DATA_BYTES / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_ROW_UNITS = MMLA_LATENT_DIM * 2 / ATTEND_WGMMA_UNIT_BYTES,
    ATTEND_WGMMA_UNITS_HELD = 4
};

static_assert(ATTEND_WGMMA_V4_UNITS * ATTEND_WGMMA_UNIT_BYTES == MMLA_KV_V4_FP8_DIMS &&
                  ATTEND_WGMMA_V4_UNITS >= ATTEND_WGMMA_UNITS_HELD &&
                  ATTEND_WGMMA_FP4_UNITS >= ATTEND_WGMMA_UNITS_HELD,
              "whole units, and at least as many as are held");

GPU_DEVICE int32_t attend_wgmma_units(const mmla_kv_format format) {
    return format == MMLA_KV_V4        ? ATTEND_WGMMA_V4_UNITS
           : format == MMLA_KV_V41_FP8 ? ATTEND_WGMMA_FP8_UNITS
                                       : ATTEND_WGMMA_FP4_UNITS;
}

/* A thread's share of a record, on its way or there: four units, and scales as in memory. */
typedef struct attend_wgmma_record {
    uint4 data[ATTEND_WGMMA_UNITS_HELD];
    uint32_t scale[4];
} attend_wgmma_record;

/* Where a thread's share of a record begins, and where the record's scales do. */
typedef struct attend_wgmma_source {
    const uint8_t *data;
    const uint8_t *scale;
} attend_wgmma_source;

GPU_DEVICE uint4 attend_wgmma_unit_load(const attend_wgmma_source *from, const int32_t unit) {
    return gpu_load16(from->data + unit * ATTEND_WGMMA_UNIT_BYTES);
}

/* Starts loading what the scales of a thread's share are made of. */
GPU_DEVICE void attend_wgmma_scale_load(const mmla_kv_format format,
                                        const attend_wgmma_source *from,
                                        int32_t piece,
                                        uint32_t scale[4]) {
    if (format == MMLA_KV_V4) {
        const uint2 x = gpu_load8(from->scale);
        scale[0] = x.x;
        scale[1] = x.y;
    } else if (format == MMLA_KV_V41_FP8) {
        const uint4 x = gpu_load16(from->scale);
        scale[0] = x.x;
        scale[1] = x.y;
        scale[2] = x.z;
        scale[3] = x.w;
    } else {
        enum {
            UNIT_SCALES = ATTEND_WGMMA_UNIT_BYTES * 2 / MMLA_KV_FP4_GROUP,
            PIECE_SCALES = ATTEND_WGMMA_PIECE_BYTES * 2 / MMLA_KV_FP4_GROUP
        };
        static_assert(PIECE_SCALES == 2, "two bytes are loaded");
#pragma unroll
        for (int32_t u = 0; u < ATTEND_WGMMA_FP4_UNITS; u++) {
            scale[u] = gpu_load2(from->scale + u * UNIT_SCALES + piece * PIECE_SCALES);
        }
    }
}

/* Starts loading a thread's share of a record of a format. */
GPU_DEVICE void attend_wgmma_record_load(const mmla_kv_format format,
                                         const attend_wgmma_source *from,
                                         int32_t piece,
                                         attend_wgmma_record *r) {
#pragma unroll
    for (int32_t u = 0; u < ATTEND_WGMMA_UNITS_HELD; u++) {
        r->data[u] = attend_wgmma_unit_load(from, u);
    }
    attend_wgmma_scale_load(format, from, piece, r->scale);
}

/* The scales of a thread's share, up to eight bytes: of e4m3 codes a ue8m0 byte a unit, of e2m1
 * codes two e4m3 a unit. Taken before they are loaded anew. */
typedef struct attend_wgmma_scales {
    uint32_t bytes[2];
} attend_wgmma_scales;

GPU_DEVICE attend_wgmma_scales attend_wgmma_scales_get(const mmla_kv_format format,
                                                       const uint32_t scale[4],
                                                       int32_t piece) {
    attend_wgmma_scales s;
    if (format == MMLA_KV_V41_FP4) {
        s.bytes[0] = __byte_perm(scale[0], scale[1], 0x5410);
        s.bytes[1] = __byte_perm(scale[2], scale[3], 0x5410);
    } else if (format == MMLA_KV_V41_FP8) { /* of two pieces: byte 2 u + piece / 2 */
        const uint32_t every_other = piece < 2 ? 0x6420 : 0x7531;
        s.bytes[0] = __byte_perm(scale[0], scale[1], every_other);
        s.bytes[1] = __byte_perm(scale[2], scale[3], every_other);
    } else { /* of a whole unit */
        s.bytes[0] = scale[0];
        s.bytes[1] = scale[1];
    }
    return s;
}

static_assert(ATTEND_WGMMA_UNIT_BYTES == (int)MMLA_KV_V4_GROUP &&
                  ATTEND_WGMMA_UNIT_BYTES == 2 * (int)MMLA_KV_FP8_GROUP,
              "which pieces share a scale");

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
        const float2 x = gpu_f32x2_from_e4m3x2(scales->bytes[u / 2] >> u % 2 * 16);
        const uint32_t factors[2] = {gpu_e2m1_factor_128th(x.x), gpu_e2m1_factor_128th(x.y)};
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            *(uint4 *)(tile + attend_wgmma_key_off(row, 4 * piece + i) +
                       column * ATTEND_WGMMA_COLUMN_BYTES) =
                gpu_bf16x8_from_e2m1x8_by(words[i], factors[i / 2]);
        }
        return;
    }
    const int32_t column = u * ATTEND_WGMMA_UNIT_BYTES / COLUMN;
    const float x = gpu_f32_from_ue8m0(scales->bytes[u / 4] >> u % 4 * 8 & 0xFFu);
    *(uint4 *)(tile + attend_wgmma_key_off(row, 2 * piece) + column * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.x, codes.y), x);
    *(uint4 *)(tile + attend_wgmma_key_off(row, 2 * piece + 1) +
               column * ATTEND_WGMMA_COLUMN_BYTES) =
        attend_mma_convert_fp8(make_uint2(codes.z, codes.w), x);
}

/* A thread's share of key `row` to the tile. Its registers are refilled one by one from the rest of
 * the record, and from the next, which has the same format or is zeros. */
GPU_DEVICE void attend_wgmma_record_convert(const mmla_kv_format format,
                                            attend_wgmma_record *r,
                                            uint8_t *tile,
                                            int32_t row,
                                            int32_t piece,
                                            const attend_wgmma_source *from,
                                            const attend_wgmma_source *next) {
    enum { HELD = ATTEND_WGMMA_UNITS_HELD };
    /* Or every address that they give would be kept, in registers that there are not. */
    asm volatile("" : "+r"(row), "+r"(piece));
    const attend_wgmma_scales scales = attend_wgmma_scales_get(format, r->scale, piece);
    attend_wgmma_scale_load(format, next, piece, r->scale);
    const int32_t n = attend_wgmma_units(format);
#pragma unroll
    for (int32_t u = 0; u < n; u++) {
        attend_wgmma_unit_convert(format, r->data[u % HELD], &scales, u, tile, row, piece);
        r->data[u % HELD] = u + HELD < n ? attend_wgmma_unit_load(from, u + HELD)
                                         : attend_wgmma_unit_load(next, u % HELD);
    }
}

/* A thread's share of key `row`, a bf16 row, straight into the tile. */
GPU_DEVICE void
attend_wgmma_row_fetch(const attend_wgmma_source *from, uint32_t tile, int32_t row, int32_t piece) {
#pragma unroll 4
    for (int32_t u = 0; u < ATTEND_WGMMA_ROW_UNITS; u++) {
        gpu_cp_async16(tile + attend_wgmma_key_off(row, ATTEND_WGMMA_PIECES * u + piece),
                       from->data + u * ATTEND_WGMMA_UNIT_BYTES);
    }
}

/* The bf16 part of a V4 record, which begins where the codes end, straight into the tile. */
GPU_DEVICE void attend_wgmma_tail_fetch(const attend_wgmma_source *from,
                                        uint32_t tile,
                                        int32_t row,
                                        int32_t piece) {
    enum { CHUNK = MMLA_KV_V4_FP8_DIMS / ATTEND_WGMMA_CHUNK_DIMS };
    static_assert(2 * MMLA_ROPE_DIM == 2 * ATTEND_WGMMA_UNIT_BYTES, "32 bytes of each thread");
    asm volatile("" : "+r"(row)); /* see attend_wgmma_record_convert */
#pragma unroll
    for (int32_t u = 0; u < 2; u++) {
        gpu_cp_async16(tile + attend_wgmma_key_off(row, CHUNK + ATTEND_WGMMA_PIECES * u + piece),
                       from->data + MMLA_KV_V4_FP8_DIMS + u * ATTEND_WGMMA_UNIT_BYTES);
    }
}

/* The sources of block n, once they are there. */
GPU_DEVICE const attend_wgmma_sources *attend_wgmma_sources_wait(attend_wgmma_state *state,
                                                                 uint32_t n) {
    const uint32_t i = n % ATTEND_WGMMA_RING;
    gpu_barrier_wait(gpu_smem_address(&state->sources_full[i]), n / ATTEND_WGMMA_RING & 1);
    return &state->sources[i];
}

/* Where a thread's share of a record of a block is: zeros, if the block has another format. */
GPU_DEVICE attend_wgmma_source attend_wgmma_source_get(const mmla_kv_format format,
                                                       const attend_wgmma_sources *block,
                                                       int32_t row,
                                                       int32_t piece) {
    const uint8_t *data = block->data[row];
    int32_t to_scale = block->to_scale[row];
    if (block->format != (int32_t)format) {
        data = (const uint8_t *)attend_wgmma_zeros;
        to_scale = 0;
    }
    const attend_wgmma_source from = {data + piece * ATTEND_WGMMA_PIECE_BYTES, data + to_scale};
    return from;
}

/* Where a loading warp is: a block's number, its stage, and the parity of the stage's use. */
typedef struct attend_wgmma_place {
    uint32_t n;
    uint32_t stage;
    uint32_t parity;
} attend_wgmma_place;

GPU_DEVICE void attend_wgmma_place_on(attend_wgmma_place *at) {
    at->n++;
    at->stage++;
    if (at->stage == ATTEND_WGMMA_STAGES) {
        at->stage = 0;
        at->parity ^= 1;
    }
}

/* Blocks of one format, until there is one of another, at which it leaves `at`. The format is a
 * constant, so that a record stays in the same registers. */
GPU_DEVICE void attend_wgmma_load_run(const mmla_kv_format format,
                                      uint8_t *smem,
                                      int32_t row,
                                      int32_t piece,
                                      attend_wgmma_place *at) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const attend_wgmma_sources *block = attend_wgmma_sources_wait(state, at->n);
    attend_wgmma_source from = attend_wgmma_source_get(format, block, row, piece);
    attend_wgmma_record record;
    if (format != MMLA_KV_NONE) {
        attend_wgmma_record_load(format, &from, piece, &record);
    }
    int32_t next_format;
    do {
        gpu_barrier_wait(gpu_smem_address(&state->empty[at->stage]), at->parity ^ 1);
        uint8_t *tile = smem + ATTEND_WGMMA_AT_STAGES + at->stage * ATTEND_WGMMA_TILE_BYTES;
        if (threadIdx.x == ATTEND_WGMMA_MATH_THREADS) {
            state->valid[at->stage] = block->valid;
            state->log2_scale[at->stage] = format == MMLA_KV_V41_FP4 ? 7 : 0; /* 128ths */
        }
        __syncwarp(); /* all have read the sources */
        if (threadIdx.x % 32 == 0) {
            gpu_barrier_arrive(gpu_smem_address(&state->sources_empty[at->n % ATTEND_WGMMA_RING]));
        }
        block = attend_wgmma_sources_wait(state, at->n + 1);
        next_format = block->format;
        const attend_wgmma_source next = attend_wgmma_source_get(format, block, row, piece);
        if (format == MMLA_KV_NONE) {
            attend_wgmma_row_fetch(&from, gpu_smem_address(tile), row, piece);
        } else {
            if (format == MMLA_KV_V4) {
                attend_wgmma_tail_fetch(&from, gpu_smem_address(tile), row, piece);
            }
            attend_wgmma_record_convert(format, &record, tile, row, piece, &from, &next);
        }
        from = next;
        if (format == MMLA_KV_NONE || format == MMLA_KV_V4) {
            gpu_cp_async_wait_all();
        }
        gpu_fence_async();
        gpu_barrier_arrive(gpu_smem_address(&state->full[at->stage]));
        attend_wgmma_place_on(at);
    } while (next_format == (int32_t)format);
}

/* What the loading warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_load(uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t warp = (threadIdx.x - ATTEND_WGMMA_MATH_THREADS) / 32, lane = threadIdx.x % 32;
    const int32_t row = attend_wgmma_load_row(warp, lane);
    const int32_t piece = attend_wgmma_load_piece(lane);
    attend_wgmma_place at = {0, 0, 0};
    for (;;) {
        const int32_t format = attend_wgmma_sources_wait(state, at.n)->format;
        switch (format) {
        case ATTEND_WGMMA_NO_BLOCK:
            return;
        case MMLA_KV_NONE:
            attend_wgmma_load_run(MMLA_KV_NONE, smem, row, piece, &at);
            break;
        case MMLA_KV_V4:
            attend_wgmma_load_run(MMLA_KV_V4, smem, row, piece, &at);
            break;
        case MMLA_KV_V41_FP8:
            attend_wgmma_load_run(MMLA_KV_V41_FP8, smem, row, piece, &at);
            break;
        default:
            attend_wgmma_load_run(MMLA_KV_V41_FP4, smem, row, piece, &at);
            break;
        }
    }
}

#undef GPU_DEVICE

#endif
