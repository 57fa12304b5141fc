/* kv_insert_cuda.cu - rows into records: a warp a row of 512, a quarter of a warp a key of 128.
 *
 * PROBLEM    record(slots[t]) = quantise(rotate([norm](rows[t])))           (megamla/kv.h has shapes)
 *
 * BOUND      memory, a row: 1024 B read, 256 B of cos_sin read, 16 B of indices, and written
 *            V4 584 B, V41_FP8 528 B, V41_FP4 288 B. An index key: 256 + 256 + 16 B read, 132 or
 *            68 B written. Lines of cos_sin come from L2 when positions repeat. Instructions: 190 a
 *            row for e4m3, 300 for e2m1, 200 more with norm; at the bandwidth of an H200 a
 *            multiprocessor issues 250 to 350 in the time the bytes take, so with norm these are
 *            the bound.
 *
 * MOVEMENT   rows (HBM) --2 x 16 B a lane--> words[8], 16 bf16 of a lane
 *                --[squares --> smem, transposed --> 16 partial sums --> r]--> words[8]
 *                --[last four lanes: cos_sin (L2)]--> words[8]
 *                --maxima, shuffled between lanes of a group--> scale --> codes
 *                --16 or 8 B a lane, one byte a group--> cache (HBM)
 *
 * TILES      lane l has dims 16 l .. 16 l + 15: no group is smaller, 16 codes of e4m3 are one store,
 *            and the rotated dims are whole lanes. Up to 32 rows a warp, whose slots and positions
 *            are looked at by one lane each, all at once; then row after row, or four keys at once.
 *
 * ROLES      warps are independent; nothing is shared but the cache
 *
 * DUPLICATES a row is left out when a later legal row has its slot: a warp looks at all later slots,
 *            or, beyond KV_INSERT_SCAN_ROWS, in the table that kv_insert_cuda_claim has filled
 *
 * BUDGET     norm alone needs smem: squares 4 warps x 3,200 B + weights 2,560 B = 15,360 B a block;
 *            registers 65536 / (6 x 128), so 80 a thread. Six blocks of four warps keep 24 KiB of
 *            rows in flight.
 *
 * NUMERICS   the bytes of kv_insert_ref.c: the same operations, each rounded where it rounds; where
 *            another way is taken, it is proved to end at the same code (kv_insert_e2m1_factor)
 *
 * LIMITS     n_slots below 2^31; cos_sin and norm_weight are aligned to 4 bytes only
 */
#include "gpu/convert.cuh"
#include "num/norm.h"
#include "num/quant.h"
#include "num/rope.h"
#include "ops/kv_insert/kv_insert_cuda.h"

#define ALL 0xFFFFFFFFu
#define INLINE static __device__ __forceinline__

enum {
    WORDS = KV_INSERT_LANE_DIMS / 2, /* of two bf16 */
    ROPE_LANES = MMLA_ROPE_DIM / KV_INSERT_LANE_DIMS,
    PAIRS = MMLA_ROPE_DIM / 2,
    LATENT_LANES = MMLA_LATENT_DIM / KV_INSERT_LANE_DIMS,
    INDEX_LANES = MMLA_INDEX_DIM / KV_INSERT_LANE_DIMS,
    V4_FP8_LANES = MMLA_KV_V4_FP8_DIMS / KV_INSERT_LANE_DIMS,

    /* Squares of a row, transposed: 16 lines, one for each partial sum, of one element a lane. Lines
     * are four elements apart from a multiple of 32 banks, so that eight lanes read 16 bytes of
     * eight lines without conflict; keys are eight elements apart, so that four write without. */
    LINE_PAD = 4,
    KEY_PAD = 8,
    LATENT_SQUARES = MMLA_NORM_PARTIALS * (LATENT_LANES + LINE_PAD),
    INDEX_SQUARES = MMLA_NORM_PARTIALS * (INDEX_LANES + LINE_PAD) + KEY_PAD,
    INDEX_KEYS = KV_INSERT_WARP / INDEX_LANES,
    WARP_SQUARES = INDEX_KEYS * INDEX_SQUARES,

    LANE_WEIGHTS = KV_INSERT_LANE_DIMS + 4, /* apart, likewise without conflict */
    WEIGHTS = LATENT_LANES * LANE_WEIGHTS
};

static_assert(LATENT_LANES == +KV_INSERT_WARP && INDEX_LANES == 8, "a row and a key of lanes");
static_assert(MMLA_NORM_PARTIALS == +KV_INSERT_LANE_DIMS,
              "element j of a lane is of partial sum j");
static_assert(LATENT_SQUARES <= WARP_SQUARES && WARP_SQUARES == 800, "squares of a warp");
static_assert(MMLA_KV_V4_FP8_DIMS % KV_INSERT_LANE_DIMS == 0, "rotated dims are whole lanes");
static_assert(MMLA_KV_FP4_GROUP == +KV_INSERT_LANE_DIMS, "a group of V41_FP4 is a lane");
static_assert(sizeof(unsigned long long) == KV_INSERT_CLAIM_BYTES, "entries of the table");

/* A lane's place in its row: `sub` of `lanes`. */
INLINE void load_row(const uint16_t *row, int sub, uint32_t words[WORDS]) {
    const uint4 *from = (const uint4 *)(row + sub * KV_INSERT_LANE_DIMS);
    const uint4 a = __ldg(from), b = __ldg(from + 1);
    words[0] = a.x, words[1] = a.y, words[2] = a.z, words[3] = a.w;
    words[4] = b.x, words[5] = b.y, words[6] = b.z, words[7] = b.w;
}

/* A partial sum: the elements of a line, one after another. */
INLINE float line_sum(const float *line, const int lanes) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < lanes; i += 4) {
        const float4 x = *(const float4 *)(line + i);
        sum = sum + x.x;
        sum = sum + x.y;
        sum = sum + x.z;
        sum = sum + x.w;
    }
    return sum;
}

/* What a block with norm shares; a warp has its own squares. */
typedef struct norm_smem {
    float squares[KV_INSERT_WARPS][WARP_SQUARES];
    float weight[WEIGHTS];
} norm_smem;

static_assert(sizeof(norm_smem) == 15360, "the budget above");

/* norm_weight to smem, by all threads of the block; a barrier must follow. */
INLINE void load_weight(const float *weight, const int dims, norm_smem *smem) {
#pragma unroll
    for (int i = threadIdx.x; i < dims; i += KV_INSERT_THREADS) {
        const int lane = i / KV_INSERT_LANE_DIMS, element = i % KV_INSERT_LANE_DIMS;
        smem->weight[lane * LANE_WEIGHTS + element] = __ldg(&weight[i]);
    }
}

/* mmla_norm_rms. Sums over lanes by exchange are those of mmla_norm_reduce: a + b is b + a. */
INLINE void normalise(uint32_t words[WORDS],
                      float eps,
                      const int lanes,
                      int lane,
                      float *squares,
                      const float *weight) {
    const int line = lanes + LINE_PAD, sub = lane % lanes;
    float *own = squares + lane / lanes * INDEX_SQUARES;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const float2 x = gpu_f32x2_from_bf16x2(words[i]);
        own[2 * i * line + sub] = x.x * x.x;
        own[(2 * i + 1) * line + sub] = x.y * x.y;
    }
    __syncwarp();
    float sum;
    if (lanes == KV_INSERT_WARP) { /* lanes 16 and up do what lanes 0 to 15 do */
        sum = line_sum(own + lane % MMLA_NORM_PARTIALS * line, lanes);
        sum = sum + __shfl_xor_sync(ALL, sum, 8);
    } else {
        sum = line_sum(own + sub * line, lanes) + line_sum(own + (sub + 8) * line, lanes);
    }
#pragma unroll
    for (int width = 4; width > 0; width /= 2) {
        sum = sum + __shfl_xor_sync(ALL, sum, width);
    }
    __syncwarp(); /* the next row overwrites the squares */
    const float r = mmla_norm_factor(sum, lanes * KV_INSERT_LANE_DIMS, eps);
    const float4 *w = (const float4 *)(weight + sub * LANE_WEIGHTS);
#pragma unroll
    for (int i = 0; i < WORDS; i += 2) {
        const float4 own_w = w[i / 2];
        const float2 a = gpu_f32x2_from_bf16x2(words[i]);
        const float2 b = gpu_f32x2_from_bf16x2(words[i + 1]);
        words[i] = gpu_bf16x2_from_f32x2(a.x * r * own_w.x, a.y * r * own_w.y);
        words[i + 1] = gpu_bf16x2_from_f32x2(b.x * r * own_w.z, b.y * r * own_w.w);
    }
}

/* A lane's pairs, by its cosines turn[0 .. 7] and sines turn[8 .. 15]. */
INLINE void rotate(uint32_t words[WORDS], const float turn[2 * WORDS]) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        float2 x = gpu_f32x2_from_bf16x2(words[i]);
        mmla_rope_rotate(turn[i], turn[WORDS + i], &x.x, &x.y);
        words[i] = gpu_bf16x2_from_f32x2(x.x, x.y);
    }
}

/* Largest magnitude of a group of `lanes` lanes, NaN ignored: of a number and a NaN, quiet or
 * signalling, the GPU's maximum is the number. */
INLINE float group_amax(const uint32_t words[WORDS], const int lanes) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const float2 x = gpu_f32x2_from_bf16x2(words[i]);
        amax = fmaxf(fmaxf(amax, fabsf(x.x)), fabsf(x.y));
    }
#pragma unroll
    for (int width = 1; width < lanes; width *= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, width));
    }
    return amax;
}

INLINE void store_e4m3(const uint32_t words[WORDS], float inverse, uint8_t *codes) {
    uint32_t four[WORDS / 2];
#pragma unroll
    for (int i = 0; i < WORDS / 2; i++) {
        const float2 a = gpu_f32x2_from_bf16x2(words[2 * i]);
        const float2 b = gpu_f32x2_from_bf16x2(words[2 * i + 1]);
        four[i] = gpu_e4m3x2_from_f32x2(a.x * inverse, a.y * inverse) |
                  gpu_e4m3x2_from_f32x2(b.x * inverse, b.y * inverse) << 16;
    }
    *(uint4 *)codes = make_uint4(four[0], four[1], four[2], four[3]);
}

INLINE void store_bf16(const uint32_t words[WORDS], uint8_t *to) {
    ((uint4 *)to)[0] = make_uint4(words[0], words[1], words[2], words[3]);
    ((uint4 *)to)[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

/* Zeros in place of NaN, which is what their codes are; whether there were any. */
INLINE bool clear_nans(uint32_t words[WORDS]) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        any |= mmla_bf16x2_nans(words[i]);
    }
    if (any != 0) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            words[i] &= ~((mmla_bf16x2_nans(words[i]) >> 15) * 0xFFFFu);
        }
    }
    return any != 0;
}

/* No value may be NaN; factor gives 2^-14 times what is to be a code. */
INLINE void store_e2m1(const uint32_t words[WORDS], float factor, uint8_t *codes) {
    const float most = MMLA_E2M1_MAX * 0x1p-14f;
    uint32_t eight[WORDS / 4];
#pragma unroll
    for (int i = 0; i < WORDS / 4; i++) {
        eight[i] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t word = words[4 * i + j];
            const float2 x = gpu_f32x2_from_bf16x2(word);
            const uint32_t magnitudes = gpu_f16x2_from_f32x2(fminf(fabsf(x.x * factor), most),
                                                             fminf(fabsf(x.y * factor), most));
            eight[i] |= mmla_e2m1x2_from_f16x2_times_2_14th(magnitudes, word) << 8 * j;
        }
    }
    *(uint2 *)codes = make_uint2(eight[0], eight[1]);
}

/* Encoders, like those of kv/record.c. data and scale are the row's; all lanes of the warp come here,
 * and those whose row is not alive store nothing. */
INLINE void encode_v4(const uint32_t words[WORDS],
                      int floor_scale,
                      int sub,
                      bool alive,
                      uint8_t *data,
                      uint8_t *scale) {
    const int group_lanes = MMLA_KV_V4_GROUP / KV_INSERT_LANE_DIMS;
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(words, group_lanes), floor_scale);
    if (!alive) {
        return;
    }
    if (sub < V4_FP8_LANES) {
        store_e4m3(words, mmla_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    } else {
        store_bf16(words, data + MMLA_KV_V4_FP8_DIMS +
                              (sub - V4_FP8_LANES) * KV_INSERT_LANE_DIMS * (int)sizeof(uint16_t));
    }
    if (sub % group_lanes ==
        0) { /* the rotated dims are as many as a group, and have the pad byte */
        scale[sub / group_lanes] = sub < V4_FP8_LANES ? byte : 0;
    }
}

INLINE void encode_v41_fp8(const uint32_t words[WORDS],
                           int floor_scale,
                           int sub,
                           bool alive,
                           uint8_t *data,
                           uint8_t *scale) {
    const int group_lanes = MMLA_KV_FP8_GROUP / KV_INSERT_LANE_DIMS;
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(words, group_lanes), floor_scale);
    if (!alive) {
        return;
    }
    store_e4m3(words, mmla_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    if (sub % group_lanes == 0) {
        scale[sub / group_lanes] = byte;
    }
}

INLINE void
encode_v41_fp4(uint32_t words[WORDS], int sub, bool alive, uint8_t *data, uint8_t *scale) {
    const bool had_nan = clear_nans(words);
    const uint8_t code = mmla_quant_e2m1_scale(group_amax(words, 1));
    if (!alive) {
        return;
    }
    store_e2m1(words, kv_insert_e2m1_factor(code), data + sub * KV_INSERT_LANE_DIMS / 2);
    scale[sub] = had_nan ? MMLA_E4M3_NAN : code;
}

INLINE void
encode_index_fp8(const uint32_t words[WORDS], int sub, bool alive, uint8_t *data, uint8_t *scale) {
    const uint8_t byte = mmla_quant_ue8m0_byte(group_amax(words, INDEX_LANES), 0);
    if (!alive) {
        return;
    }
    store_e4m3(words, mmla_ue8m0_inverse(byte), data + sub * KV_INSERT_LANE_DIMS);
    if (sub == 0) {
        *(float *)scale = mmla_ue8m0_to_f32(byte);
    }
}

INLINE void
encode_index_fp4(uint32_t words[WORDS], int sub, bool alive, uint8_t *data, uint8_t *scale) {
    const int group_lanes = MMLA_KV_INDEX_FP4_GROUP / KV_INSERT_LANE_DIMS;
    const bool own_nan = clear_nans(words);
    const bool had_nan = own_nan | __shfl_xor_sync(ALL, (int)own_nan, 1);
    const uint8_t byte = mmla_quant_e2m1_ue8m0_byte(group_amax(words, group_lanes));
    if (!alive) {
        return;
    }
    /* The inverse is a power of two: products are exact, or too small for a code but 0. */
    store_e2m1(words, mmla_ue8m0_inverse(byte) * 0x1p-14f, data + sub * KV_INSERT_LANE_DIMS / 2);
    if (sub % group_lanes == 0) {
        scale[sub / group_lanes] = had_nan ? MMLA_UE8M0_NAN : byte;
    }
}

/* Whether a legal row after t names the slot, by all lanes looking at all later slots. */
INLINE bool is_named_later(const kv_insert_params *p, int64_t t, int64_t slot, int lane) {
    enum { LOADS = 4 };
    const int64_t n = p->args.n_slots;
    bool later = false;
    for (int64_t from = t + 1 + lane; from < n; from += LOADS * KV_INSERT_WARP) {
        bool same[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int64_t u = from + i * KV_INSERT_WARP;
            same[i] = u < n && __ldg(&p->args.slots[u]) == slot;
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (same[i]) {
                const int64_t u = from + i * KV_INSERT_WARP;
                later |= mmla_kv_insert_place_get(&p->problem, &p->args, u).slot >= 0;
            }
        }
    }
    return __any_sync(ALL, later);
}

/* The row that claimed the slot: the last one that names it. A slot without a claim, which only
 * indices that change during the call can lead to, is nobody's. */
INLINE int64_t owner_of(const kv_insert_params *p, int64_t slot) {
    uint32_t at = kv_insert_claim_first(slot, p->n_claims);
    for (;;) {
        const uint64_t claim = p->claims[at];
        if (claim == 0 || kv_insert_claim_slot(claim) == slot) {
            return kv_insert_claim_row(claim);
        }
        at = kv_insert_claim_next(at, p->n_claims);
    }
}

/* Bit i: row base + i is to be written. Each lane comes with the place of its own row. */
INLINE uint32_t rows_to_write(const kv_insert_params *p, int64_t base, int64_t slot, int lane) {
    if (p->claims != NULL) {
        return __ballot_sync(ALL, slot >= 0 && owner_of(p, slot) == base + lane);
    }
    uint32_t alive = __ballot_sync(ALL, slot >= 0);
    for (uint32_t rest = alive; rest != 0; rest &= rest - 1) {
        const int i = __ffs((int)rest) - 1;
        if (is_named_later(p, base + i, __shfl_sync(ALL, slot, i), lane)) {
            alive &= ~(1u << i);
        }
    }
    return alive;
}

/* The whole of it; format and norm are constants of each kernel. */
INLINE void
insert(const kv_insert_params *p, const mmla_kv_format format, const bool norm, norm_smem *smem) {
    const bool is_index = format == MMLA_KV_INDEX_FP8 || format == MMLA_KV_INDEX_FP4;
    const int lanes = is_index ? INDEX_LANES : LATENT_LANES;
    const int rows_at_once = KV_INSERT_WARP / lanes;
    const int lane = threadIdx.x % KV_INSERT_WARP, warp = threadIdx.x / KV_INSERT_WARP;
    const int sub = lane % lanes;
    const int64_t base = ((int64_t)blockIdx.x * KV_INSERT_WARPS + warp) * p->warp_rows;
    if (norm) {
        load_weight(p->args.norm_weight, lanes * KV_INSERT_LANE_DIMS, smem);
    }

    /* One row a lane: where it goes, and whether it does. */
    mmla_kv_insert_place place = {-1, 0, MMLA_KV_INSERT_NO_FAULT};
    if (lane < p->warp_rows && base + lane < p->args.n_slots) {
        place = mmla_kv_insert_place_get(&p->problem, &p->args, base + lane);
    }
    const uint32_t refused = __ballot_sync(ALL, place.fault != MMLA_KV_INSERT_NO_FAULT);
    if (refused != 0 && lane == 0 && p->args.n_faults != NULL) {
        atomicAdd(p->args.n_faults, __popc(refused));
    }
    const uint32_t alive = rows_to_write(p, base, place.slot, lane);
    const int64_t slot = place.slot < 0 ? 0 : place.slot; /* 0 is used for no address */
    const int64_t data_off = mmla_kv_data_offset(&p->problem.cache, slot);
    const int64_t scale_off = mmla_kv_scale_offset(&p->problem.cache, slot);

    if (norm) {
        __syncthreads(); /* the weights are there */
    }
    for (int i = 0; i < p->warp_rows; i += rows_at_once) {
        if ((alive >> i & ((1u << rows_at_once) - 1)) == 0) {
            continue;
        }
        const int row = i + lane / lanes; /* of the warp's, below 32 */
        const bool is_alive = alive >> row & 1;
        const int64_t position = __shfl_sync(ALL, place.position, row);
        uint8_t *data = (uint8_t *)p->args.cache + __shfl_sync(ALL, data_off, row);
        uint8_t *scale = (uint8_t *)p->args.cache + __shfl_sync(ALL, scale_off, row);
        const bool is_rotated = is_alive && sub >= lanes - ROPE_LANES;
        uint32_t words[WORDS] = {0};
        float turn[2 * WORDS];
        if (is_alive) {
            load_row(p->args.rows + (base + row) * p->problem.desc.row_stride, sub, words);
        }
        if (is_rotated) {
            const float *from =
                p->args.cos_sin + position * MMLA_ROPE_DIM + (sub - (lanes - ROPE_LANES)) * WORDS;
#pragma unroll
            for (int j = 0; j < WORDS; j++) {
                turn[j] = __ldg(from + j);
                turn[WORDS + j] = __ldg(from + PAIRS + j);
            }
        }
        if (norm) {
            normalise(words, p->problem.desc.norm_eps, lanes, lane, smem->squares[warp],
                      smem->weight);
        }
        if (is_rotated) {
            rotate(words, turn);
        }
        const int floor_scale = p->problem.desc.scale_floor == MMLA_SCALE_FLOOR_SCALE;
        switch (format) {
        case MMLA_KV_V4:
            encode_v4(words, floor_scale, sub, is_alive, data, scale);
            break;
        case MMLA_KV_V41_FP8:
            encode_v41_fp8(words, floor_scale, sub, is_alive, data, scale);
            break;
        case MMLA_KV_V41_FP4:
            encode_v41_fp4(words, sub, is_alive, data, scale);
            break;
        case MMLA_KV_INDEX_FP8:
            encode_index_fp8(words, sub, is_alive, data, scale);
            break;
        default:
            encode_index_fp4(words, sub, is_alive, data, scale);
            break;
        }
    }
}

#define DEFINE_INSERT(name, format)                                                       \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name, kv_insert_params, KV_INSERT_THREADS,        \
                       KV_INSERT_BLOCKS) {                                                \
        insert(&p, format, false, NULL);                                                  \
    }                                                                                     \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name##_norm, kv_insert_params, KV_INSERT_THREADS, \
                       KV_INSERT_BLOCKS) {                                                \
        __shared__ __align__(16) norm_smem smem;                                          \
        insert(&p, format, true, &smem);                                                  \
    }
DEFINE_INSERT(v4, MMLA_KV_V4)
DEFINE_INSERT(v41_fp8, MMLA_KV_V41_FP8)
DEFINE_INSERT(v41_fp4, MMLA_KV_V41_FP4)
DEFINE_INSERT(index_fp8, MMLA_KV_INDEX_FP8)
DEFINE_INSERT(index_fp4, MMLA_KV_INDEX_FP4)
#undef DEFINE_INSERT

/* Every row that is to be written claims its slot, in a table of zeros. The table has room for all
 * slots that can be named, so the search ends. */
MMLA_KERNEL(kv_insert_cuda_claim, kv_insert_params) {
    const int64_t t = (int64_t)blockIdx.x * KV_INSERT_CLAIM_THREADS + threadIdx.x;
    if (t >= p.args.n_slots) {
        return;
    }
    const int64_t slot = mmla_kv_insert_place_get(&p.problem, &p.args, t).slot;
    if (slot < 0) {
        return;
    }
    const unsigned long long own = kv_insert_claim(slot, t);
    uint32_t at = kv_insert_claim_first(slot, p.n_claims);
    for (;;) {
        const unsigned long long there = atomicCAS(&p.claims[at], 0ull, own);
        if (there == 0) {
            return;
        }
        if (kv_insert_claim_slot(there) == slot) {
            atomicMax(&p.claims[at], own);
            return;
        }
        at = kv_insert_claim_next(at, p.n_claims);
    }
}
