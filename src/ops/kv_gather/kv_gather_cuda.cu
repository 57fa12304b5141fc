/* kv_gather_cuda.cu - records into rows: a warp a row, up to four rows in flight.
 *
 * PROBLEM    row = bf16(codes * scales), for the last records of every request
 *                                                                    (megamla/kv.h has shapes)
 *
 * BOUND      memory, a row: 1024 B written, and read V4 584 B, V41_FP8 528 B, V41_FP4 288 B at a place
 *            the block table gives. At the bandwidth of an H200 a multiprocessor can issue 250 to 310
 *            instructions in the time of a row; README.md has how many the kernels have. A call of
 *            few rows is bound by the loads that wait for each other: the length of the request
 *            and, when whole sequences are gathered, its block table at the same time, then the record.
 *
 * MOVEMENT   room is covered:  number of the block -----------------------------------> rows of a warp
 *            tiles are dealt:  lengths (L2) --sum over the block--> begin[1024] (smem) --> rows of a warp
 *            block table (L2) --a lane a row--> offsets --shuffled-->
 *            codes, scales (HBM) --4 or 8 B and 1 B a lane, twice--> registers --> bf16
 *                --2 x 16 B a lane--> rows (HBM)
 *
 * TILES      one, two or four rows of a request (kv_gather_cuda.h). Of a row, lane l has dims
 *            8 l .. 8 l + 7 and 256 + 8 l .. 256 + 8 l + 7: stores of a warp are 512 B side by side. With
 *            16 dims side by side loads would be twice as wide, and every store would be half of
 *            each sector.
 *
 * ROLES      all warps convert tiles; a block of each request, or block 0, counts those that do not fit
 *
 * BUDGET     smem   begin 8,192 B + sums of warps 64 B = 8,256 B a block, four blocks
 *            regs   65536 / (4 x 256), so 64 a thread
 *            flight 32 warps x 4 rows x 288 .. 584 B = 36 to 73 KiB a multiprocessor
 *
 * BARRIERS   of dealt tiles, __syncthreads: sums of warps written; begin written; begin no longer
 *            needed. Warps of a room that is covered do not wait for each other
 *
 * ORDER      launched early (gpu/order.cuh)
 *
 * NUMERICS   an exact product in fp32, or for e2m1 in bf16, rounded to bf16 once; the bf16 part of V4 is
 *            copied
 *
 * LIMITS     any lengths, block table and page numbers: what they lead to is checked
 */
#include "gpu/convert.cuh"
#include "gpu/order.cuh"
#include "ops/kv_gather/kv_gather_cuda.h"

#define ALL 0xFFFFFFFFu
#define INLINE static __device__ __forceinline__

enum {
    PART_DIMS = 8, /* of a row, that a lane converts at once: 16 bytes of bf16 */
    PARTS = MMLA_LATENT_DIM / PART_DIMS,
    V4_FP8_PARTS = MMLA_KV_V4_FP8_DIMS / PART_DIMS
};

static_assert(PARTS == 2 * +KV_GATHER_WARP, "two parts a lane");
static_assert(V4_FP8_PARTS > +KV_GATHER_WARP && MMLA_KV_V4_FP8_DIMS % PART_DIMS == 0,
              "the first part of a lane is codes");
static_assert(KV_GATHER_TILE_ROWS <= +KV_GATHER_WARP, "a lane a row of a tile");
static_assert((KV_GATHER_CHUNK_REQUESTS & (KV_GATHER_CHUNK_REQUESTS - 1)) == 0, "halved in search");

typedef struct gather_smem {
    int64_t begin[KV_GATHER_CHUNK_REQUESTS]; /* the chunk's tiles before a request's */
    int64_t warp_tiles[KV_GATHER_WARPS];
} gather_smem;

static_assert(sizeof(gather_smem) == 8256, "the budget above");

/* The parts of a lane's row as they are in the cache. */
typedef struct raw_row {
    uint4 part[2]; /* 4 B of e2m1, 8 B of e4m3 or 16 B of bf16, from x on */
    uint32_t scale[2];
} raw_row;

/* Fills begin for requests `from` and on, and returns the tiles of the chunk; for all threads. Counts
 * the requests that do not fit. */
INLINE int64_t chunk_tiles(const kv_gather_params *p,
                           int64_t from,
                           gather_smem *smem,
                           int32_t *n_faults) {
    const int lane = threadIdx.x % KV_GATHER_WARP, warp = threadIdx.x / KV_GATHER_WARP;
    const int first = threadIdx.x * KV_GATHER_THREAD_REQUESTS;
    int64_t begin[KV_GATHER_THREAD_REQUESTS], own = 0;
#pragma unroll
    for (int i = 0; i < KV_GATHER_THREAD_REQUESTS; i++) {
        begin[i] = own;
        if (from + first + i < p->args.n_requests) {
            const mmla_kv_gather_span span =
                mmla_kv_gather_span_get(&p->problem, &p->args, from + first + i);
            own += kv_gather_n_tiles(span.n, KV_GATHER_TILE_ROWS);
            *n_faults += !span.fits;
        }
    }
    int64_t sum = own; /* of the warp's threads up to this one */
#pragma unroll
    for (int width = 1; width < KV_GATHER_WARP; width *= 2) {
        const int64_t below = __shfl_up_sync(ALL, sum, width);
        sum += lane >= width ? below : 0;
    }
    if (lane == KV_GATHER_WARP - 1) {
        smem->warp_tiles[warp] = sum;
    }
    __syncthreads();
    int64_t before = sum - own, total = 0;
#pragma unroll
    for (int i = 0; i < KV_GATHER_WARPS; i++) {
        const int64_t tiles = smem->warp_tiles[i];
        before += i < warp ? tiles : 0;
        total += tiles;
    }
#pragma unroll
    for (int i = 0; i < KV_GATHER_THREAD_REQUESTS; i++) {
        smem->begin[first + i] = before + begin[i];
    }
    __syncthreads();
    return total;
}

/* One of a lane's two parts, 0 or 1, of a record. Not by __ldg: such loads the compiler moves behind the
 * stores of the rows before, and only one row would be in flight. */
INLINE void load_part(const mmla_kv_format format,
                      const uint8_t *data,
                      const uint8_t *scale,
                      int lane,
                      const int i,
                      raw_row *raw) {
    const int part = i * KV_GATHER_WARP + lane;
    uint4 *to = &raw->part[i];
    if (format == MMLA_KV_V41_FP4) {
        to->x = *((const uint32_t *)data + part);
        raw->scale[i] = scale[part / (MMLA_KV_FP4_GROUP / PART_DIMS)];
    } else if (format == MMLA_KV_V4 && part >= V4_FP8_PARTS) {
        *to = *((const uint4 *)(data + MMLA_KV_V4_FP8_DIMS) + (part - V4_FP8_PARTS));
    } else {
        const int group = format == MMLA_KV_V4 ? MMLA_KV_V4_GROUP : MMLA_KV_FP8_GROUP;
        const uint2 codes = *((const uint2 *)data + part);
        to->x = codes.x;
        to->y = codes.y;
        raw->scale[i] = scale[part / (group / PART_DIMS)];
    }
}

/* Two words of four e4m3 codes each, times a scale. */
INLINE uint4 from_e4m3(uint4 codes, float scale) {
    return make_uint4(gpu_bf16x2_from_e4m3x2(codes.x & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.x >> 16, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y >> 16, scale));
}

/* A word of eight e2m1 codes, times a scale: products have six bits, and each step is exact. */
INLINE uint4 from_e2m1(uint4 codes, float scale) {
    const uint32_t by_128 = gpu_bf16x2_from_f32x2(128.0f, 128.0f);
    const uint4 x = gpu_bf16x8_from_e2m1x8_128th(codes.x, scale);
    return make_uint4(gpu_mul_bf16x2(x.x, by_128), gpu_mul_bf16x2(x.y, by_128),
                      gpu_mul_bf16x2(x.z, by_128), gpu_mul_bf16x2(x.w, by_128));
}

INLINE uint4 decode_part(const mmla_kv_format format, const raw_row *raw, int lane, const int i) {
    if (format == MMLA_KV_V41_FP4) {
        return from_e2m1(raw->part[i], gpu_f32x2_from_e4m3x2(raw->scale[i]).x);
    }
    if (format == MMLA_KV_V4 && i * KV_GATHER_WARP + lane >= V4_FP8_PARTS) {
        return raw->part[i];
    }
    return from_e4m3(raw->part[i], gpu_f32_from_ue8m0(raw->scale[i]));
}

/* A request's rows. Volatile: else the compiler loads its lengths once for both uses below, and what
 * does not depend on them waits. */
INLINE int64_t load_len(const int32_t *lens, int64_t i) {
    return *(const volatile int32_t *)&lens[i];
}

INLINE mmla_kv_gather_span span_of(const kv_gather_params *p, int64_t request) {
    int64_t wanted = INT64_MAX;
    if (p->args.gather_lens != NULL) {
        wanted = load_len(p->args.gather_lens, request);
    } else if (p->problem.desc.window > 0) {
        wanted = mmla_kv_window_rows(load_len(p->args.query_start, request + 1) -
                                         load_len(p->args.query_start, request),
                                     p->problem.desc.window);
    }
    return mmla_kv_gather_span_of(&p->problem, load_len(p->args.seq_lens, request), wanted);
}

/* Whether row 0 of a request is its position 0. */
INLINE bool begins_at_0(const kv_gather_params *p) {
    return p->args.gather_lens == NULL && p->problem.desc.window == 0;
}

/* Rows i to i + tile_rows - 1 of a request, as far as it has them, by a warp. The block table is read
 * before it is known how far that is, and at the same time as the length when the whole sequence is
 * gathered: then row i is at position i. False when the request does not fit. */
INLINE bool gather_tile(const kv_gather_params *p,
                        const mmla_kv_format format,
                        int64_t request,
                        int64_t i,
                        int tile_rows,
                        int lane) {
    const mmla_kv_gather_problem *problem = &p->problem;
    uint32_t pos = (uint32_t)i + (uint32_t)lane; /* neither sum reaches 2^32 */
    if (!begins_at_0(p)) {
        pos += (uint32_t)span_of(p, request).first;
    }

    /* One row a lane: where its record is. */
    const kv_gather_place place = kv_gather_place_of(problem, pos);
    int32_t page = -1;
    if (lane < tile_rows && kv_gather_has_entry(problem, place)) {
        page = __ldg(&p->args.block_table[request * problem->desc.table_stride + place.entry]);
    }
    const int32_t scale_from_data = kv_gather_scale_from_data(problem, place);
    const int64_t data_off = kv_gather_data_off(problem, place, page); /* -1: a row of zeros */

    const mmla_kv_gather_span span = span_of(p, request);
    const int n_rows = (int)mmla_clamp_i64(span.n - i, 0, tile_rows);
    const int64_t row_stride = problem->desc.row_stride;
    const uint8_t *cache = (const uint8_t *)p->args.cache;
    uint16_t *out =
        p->args.out + (request * problem->desc.rows + problem->desc.offset + i) * row_stride;
    raw_row raw[KV_GATHER_TILE_ROWS] = {};
#pragma unroll
    for (int k = 0; k < KV_GATHER_TILE_ROWS; k++) {
        const int64_t data = __shfl_sync(ALL, data_off, k);
        const int32_t to_scale = __shfl_sync(ALL, scale_from_data, k);
        if (k < n_rows && data >= 0) {
            load_part(format, cache + data, cache + data + to_scale, lane, 0, &raw[k]);
            load_part(format, cache + data, cache + data + to_scale, lane, 1, &raw[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < KV_GATHER_TILE_ROWS; k++) {
        if (k < n_rows) { /* no record gave zeros, and 0 times any scale below is +0 */
            uint4 *to = (uint4 *)(out + k * row_stride);
            to[lane] = decode_part(format, &raw[k], lane, 0);
            to[KV_GATHER_WARP + lane] = decode_part(format, &raw[k], lane, 1);
        }
    }
    return span.fits;
}

/* Adds the faults of a warp's lanes to the caller's counter. */
INLINE void count_faults(const kv_gather_params *p, int32_t n_faults, int lane) {
    n_faults = __reduce_add_sync(ALL, n_faults);
    if (lane == 0 && n_faults > 0 && p->args.n_faults != NULL) {
        atomicAdd(p->args.n_faults, n_faults);
    }
}

/* A block's share of all tiles. */
INLINE void gather_dealt(
    const kv_gather_params *p, const mmla_kv_format format, int warp, int lane, gather_smem *smem) {
    const int64_t n_warps = (int64_t)gridDim.x * KV_GATHER_WARPS;
    int64_t tile = kv_gather_first_tile(blockIdx.x, gridDim.x, warp);
    int64_t before = 0; /* tiles of the chunks before */
    int32_t n_faults = 0;
    for (int64_t from = 0; from < p->args.n_requests; from += KV_GATHER_CHUNK_REQUESTS) {
        const int64_t n_tiles = chunk_tiles(p, from, smem, &n_faults);
        for (; tile < before + n_tiles; tile += n_warps) {
            const int in_chunk = kv_gather_find(smem->begin, tile - before);
            const int64_t of_request = tile - before - smem->begin[in_chunk];
            gather_tile(p, format, from + in_chunk, of_request * KV_GATHER_TILE_ROWS,
                        KV_GATHER_TILE_ROWS, lane);
        }
        before += n_tiles;
        __syncthreads(); /* before begin is written again */
    }
    if (blockIdx.x == 0) {
        count_faults(p, n_faults, lane);
    }
}

/* The whole of it; format is a constant of each kernel. */
INLINE void gather(const kv_gather_params *p, const mmla_kv_format format, gather_smem *smem) {
    const int lane = threadIdx.x % KV_GATHER_WARP;
    const int warp = __shfl_sync(ALL, (int)threadIdx.x / KV_GATHER_WARP, 0); /* one for all lanes */
    gpu_begin(false);
    if (p->is_dealt) {
        gather_dealt(p, format, warp, lane, smem);
        return;
    }
    const int64_t tile = (int64_t)blockIdx.x * KV_GATHER_WARPS + warp;
    const bool fits = gather_tile(p, format, blockIdx.y, tile * p->tile_rows, p->tile_rows, lane);
    if (tile == 0) {
        count_faults(p, !fits && lane == 0, lane);
    }
}

#define DEFINE_GATHER(name, format)                                                \
    MMLA_KERNEL_BOUNDS(kv_gather_cuda_##name, kv_gather_params, KV_GATHER_THREADS, \
                       KV_GATHER_BLOCKS) {                                         \
        __shared__ gather_smem smem;                                               \
        gather(&p, format, &smem);                                                 \
    }
DEFINE_GATHER(v4, MMLA_KV_V4)
DEFINE_GATHER(v41_fp8, MMLA_KV_V41_FP8)
DEFINE_GATHER(v41_fp4, MMLA_KV_V41_FP4)
#undef DEFINE_GATHER
