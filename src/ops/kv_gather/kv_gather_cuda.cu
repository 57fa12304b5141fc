/* kv_gather_cuda.cu - records into rows: a warp a row, four rows in flight.
 *
 * PROBLEM    row = bf16(codes * scales), for the last records of every request
 *                                                                    (megamla/kv.h has shapes)
 *
 * BOUND      memory, a row: 1024 B written, and read V4 584 B, V41_FP8 528 B, V41_FP4 288 B at a place
 *            the block table gives. Instructions: some 150 a row for e4m3, 180 for e2m1; at the
 *            bandwidth of an H200 a multiprocessor can issue 250 to 310 meanwhile.
 *
 * MOVEMENT   lengths (L2) --> tiles of requests --sum over the block--> begin[1024] (smem)
 *            block table (L2) --a lane a row--> slots of a tile --shuffled-->
 *            codes, scales (HBM) --4 or 8 B and 1 B a lane, twice--> registers --> bf16
 *                --2 x 16 B a lane--> rows (HBM)
 *
 * TILES      eight rows of a request (kv_gather_cuda.h). Of a row, lane l has dims 8 l .. 8 l + 7 and
 *            256 + 8 l .. 256 + 8 l + 7: stores of a warp are 512 B side by side. With 16 dims side by
 *            side loads would be twice as wide, and every store would be half of each sector.
 *
 * ROLES      all warps convert tiles; block 0 counts the requests that do not fit, too
 *
 * BUDGET     smem   begin 8,192 B + sums of warps 64 B = 8,256 B a block, three blocks
 *            regs   65536 / (3 x 256), so 80 a thread
 *            flight 24 warps x 4 rows x 288 .. 584 B = 27 to 55 KiB a multiprocessor
 *
 * BARRIERS   __syncthreads: sums of warps written; begin written; begin no longer needed
 *
 * NUMERICS   an exact product in fp32, rounded to bf16 once; the bf16 part of V4 is copied
 *
 * LIMITS     any lengths, block table and page numbers: what they lead to is checked
 */
#include "gpu/convert.cuh"
#include "ops/kv_gather/kv_gather_cuda.h"

#define ALL 0xFFFFFFFFu
#define INLINE static __device__ __forceinline__

enum {
    ROWS_AT_ONCE = 4,
    PART_DIMS = 8, /* of a row, that a lane converts at once: 16 bytes of bf16 */
    PARTS = MMLA_LATENT_DIM / PART_DIMS,
    V4_FP8_PARTS = MMLA_KV_V4_FP8_DIMS / PART_DIMS
};

static_assert(PARTS == 2 * +KV_GATHER_WARP, "two parts a lane");
static_assert(V4_FP8_PARTS > +KV_GATHER_WARP && MMLA_KV_V4_FP8_DIMS % PART_DIMS == 0,
              "the first part of a lane is codes");
static_assert(KV_GATHER_TILE_ROWS % ROWS_AT_ONCE == 0 && KV_GATHER_TILE_ROWS <= +KV_GATHER_WARP,
              "a lane a row of a tile");
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
            own += kv_gather_n_tiles(span.n);
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

/* One of a lane's two parts, 0 or 1, of a record. */
INLINE void load_part(const mmla_kv_format format,
                      const uint8_t *data,
                      const uint8_t *scale,
                      int lane,
                      const int i,
                      raw_row *raw) {
    const int part = i * KV_GATHER_WARP + lane;
    uint4 *to = &raw->part[i];
    if (format == MMLA_KV_V41_FP4) {
        to->x = __ldg((const uint32_t *)data + part);
        raw->scale[i] = __ldg(scale + part / (MMLA_KV_FP4_GROUP / PART_DIMS));
    } else if (format == MMLA_KV_V4 && part >= V4_FP8_PARTS) {
        *to = __ldg((const uint4 *)(data + MMLA_KV_V4_FP8_DIMS) + (part - V4_FP8_PARTS));
    } else {
        const int group = format == MMLA_KV_V4 ? MMLA_KV_V4_GROUP : MMLA_KV_FP8_GROUP;
        const uint2 codes = __ldg((const uint2 *)data + part);
        to->x = codes.x;
        to->y = codes.y;
        raw->scale[i] = __ldg(scale + part / (group / PART_DIMS));
    }
}

/* Two words of four e4m3 codes each, times a scale. */
INLINE uint4 from_e4m3(uint4 codes, float scale) {
    return make_uint4(gpu_bf16x2_from_e4m3x2(codes.x & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.x >> 16, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y & 0xFFFFu, scale),
                      gpu_bf16x2_from_e4m3x2(codes.y >> 16, scale));
}

/* A word of eight e2m1 codes, times a scale. */
INLINE uint4 from_e2m1(uint4 codes, float scale) {
    return make_uint4(gpu_bf16x2_from_e2m1x2(codes.x & 0xFFu, scale),
                      gpu_bf16x2_from_e2m1x2(codes.x >> 8 & 0xFFu, scale),
                      gpu_bf16x2_from_e2m1x2(codes.x >> 16 & 0xFFu, scale),
                      gpu_bf16x2_from_e2m1x2(codes.x >> 24, scale));
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

/* Tile number `tile` of the chunk that begins at request `from`, by a warp. */
INLINE void gather_tile(const kv_gather_params *p,
                        const mmla_kv_format format,
                        int64_t from,
                        int64_t tile,
                        int lane,
                        const gather_smem *smem) {
    const int in_chunk = kv_gather_find(smem->begin, tile);
    const int64_t request = from + in_chunk;
    const int64_t first = (tile - smem->begin[in_chunk]) * KV_GATHER_TILE_ROWS;
    const mmla_kv_gather_span span = mmla_kv_gather_span_get(&p->problem, &p->args, request);
    const int n_rows = (int)mmla_min_i64(span.n - first, KV_GATHER_TILE_ROWS);
    const uint8_t *cache = (const uint8_t *)p->args.cache;
    const int64_t row_stride = p->problem.desc.row_stride;
    uint16_t *out = p->args.out +
                    (request * p->problem.desc.rows + p->problem.desc.offset + first) * row_stride;

    /* One row a lane: where its record is. */
    int64_t data_off = -1, scale_off = 0; /* negative: no record, a row of zeros */
    if (lane < n_rows) {
        const int64_t slot =
            mmla_kv_gather_slot(&p->problem, &p->args, request, span.first + first + lane);
        if (slot >= 0) {
            data_off = mmla_kv_data_offset(&p->problem.cache, slot);
            scale_off = mmla_kv_scale_offset(&p->problem.cache, slot);
        }
    }
    for (int i = 0; i < n_rows; i += ROWS_AT_ONCE) {
        raw_row raw[ROWS_AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++) {
            const int64_t data = __shfl_sync(ALL, data_off, i + k);
            const int64_t scale = __shfl_sync(ALL, scale_off, i + k);
            if (data >= 0) {
                load_part(format, cache + data, cache + scale, lane, 0, &raw[k]);
                load_part(format, cache + data, cache + scale, lane, 1, &raw[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++) {
            if (i + k < n_rows) { /* no record gave zeros, and 0 times any scale below is +0 */
                uint4 *to = (uint4 *)(out + (i + k) * row_stride);
                to[lane] = decode_part(format, &raw[k], lane, 0);
                to[KV_GATHER_WARP + lane] = decode_part(format, &raw[k], lane, 1);
            }
        }
    }
}

/* The whole of it; format is a constant of each kernel. */
INLINE void gather(const kv_gather_params *p, const mmla_kv_format format, gather_smem *smem) {
    const int lane = threadIdx.x % KV_GATHER_WARP, warp = threadIdx.x / KV_GATHER_WARP;
    const int64_t n_warps = (int64_t)gridDim.x * KV_GATHER_WARPS;
    int64_t tile = kv_gather_first_tile(blockIdx.x, gridDim.x, warp);
    int64_t before = 0; /* tiles of the chunks before */
    int32_t n_faults = 0;
    for (int64_t from = 0; from < p->args.n_requests; from += KV_GATHER_CHUNK_REQUESTS) {
        const int64_t n_tiles = chunk_tiles(p, from, smem, &n_faults);
        for (; tile < before + n_tiles; tile += n_warps) {
            gather_tile(p, format, from, tile - before, lane, smem);
        }
        before += n_tiles;
        __syncthreads(); /* before begin is written again */
    }
    if (blockIdx.x == 0 && p->args.n_faults != NULL) {
        n_faults = __reduce_add_sync(ALL, n_faults);
        if (lane == 0 && n_faults > 0) {
            atomicAdd(p->args.n_faults, n_faults);
        }
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
