/* kv_insert_cuda.cu - rows into records: a warp a row of 512, a quarter of a warp a key of 128.
 *
 * PROBLEM    record(slots[t]) = quantise(rotate([norm](rows[t])))           (megamla/kv.h has shapes)
 *
 * BOUND      memory, a row: 1024 B read, 256 B of cos_sin read, 16 B of indices, and written
 *            V4 584 B, V41_FP8 528 B, V41_FP4 288 B. An index key: 256 + 256 + 16 B read, 132 or
 *            68 B written. Lines of cos_sin come from L2 when positions repeat. At the bandwidth of
 *            an H200 a multiprocessor issues 250 to 350 instructions in the time the bytes of a row
 *            take; README.md has how many the kernels have. With norm these are the bound.
 *
 * MOVEMENT   rows (HBM) --2 x 16 B a lane, a row ahead--> words[8], 16 bf16 of a lane
 *                --[squares --> smem, transposed --> 16 partial sums --> r]--> words[8]
 *                --last four lanes: --> smem --a pair a lane, cos_sin (L2)--> smem --> words[8]
 *                --maxima, shuffled between lanes of a group--> scale --> codes
 *                --16 or 8 B a lane, one byte a group--> cache (HBM)
 *
 * TILES      lane l has dims 16 l .. 16 l + 15: no group is smaller, 16 codes of e4m3 are one store,
 *            and the rotated dims are whole lanes. They would be rotated by four lanes while 28 wait,
 *            so they go to all lanes, a pair each, and back. Up to 32 rows a warp, whose slots and
 *            positions are looked at by one lane each, all at once; then row after row, or four keys.
 *
 * ROLES      warps are independent but for the scan below; nothing is shared but the cache
 *
 * DUPLICATES of the rows of a slot the last has to stay. Few rows (kv_insert_step): a block compares
 *            its slots with all later ones. Many: rows are stored as they come, and claim their
 *            slots meanwhile; a second launch ends at once when no row met another's claim, and else
 *            stores the last row of every slot again.
 *
 * BUDGET     smem   pairs 8 warps x 128 B, bits of the scan 32 B: 1,056 B a block; with norm squares
 *                   8 warps x 3,200 B + weights 2,560 B more: 29,216 B
 *            regs   65536 / (4 x 256), so 64 a thread; with norm 65536 / (3 x 256), so 80
 *            flight 32 warps x 2 rows of 1 KiB, 64 KiB a multiprocessor
 *
 * BARRIERS   __syncthreads: weights written; bits of the scan written (a block's last rows skip it)
 *
 * NUMERICS   the bytes of kv_insert_ref.c: the same operations, each rounded where it rounds; where
 *            another way is taken, it is proved to end at the same code (kv_insert_e2m1_factor)
 *
 * LIMITS     n_slots below 2^31; cos_sin and norm_weight are aligned to 4 bytes only
 */
#include "ops/kv_insert/kv_insert_encode.cuh"
#include "ops/kv_insert/kv_insert_slots.cuh"

/* The rows of a warp as a lane sees them: its place in them, and where one of them goes, row number
 * `lane`, if bit `lane` of alive is set. */
typedef struct warp_rows {
    int lane, lanes, sub; /* lane `sub` of the `lanes` of a row */
    int to;               /* rows below are the warp's */
    uint32_t alive;
    const uint16_t *ahead; /* the lane's part of the row that is loaded next */
    int64_t ahead_step;
    int64_t position, data_off;
    int32_t scale_from_data;
} warp_rows;

/* What a lane loads of a row before the row before is converted. A lane of a key loads its cosines
 * and sines when it needs them. */
typedef struct row_input {
    uint32_t words[WORDS];
    float c, s;
} row_input;

INLINE bool is_alive(const warp_rows *w, int row) {
    return row < w->to && (w->alive >> row & 1) != 0;
}

INLINE void load_turn(const kv_insert_params *p, int64_t position, int lane, row_input *in) {
    const float *line = p->args.cos_sin + position * MMLA_ROPE_DIM;
    in->c = __ldg(line + lane);
    in->s = __ldg(line + PAIRS + lane);
}

/* Row i, or keys i to i + 3. */
INLINE void
load_ahead(const kv_insert_params *p, const bool is_index, warp_rows *w, int i, row_input *in) {
    if (i >= w->to) {
        return;
    }
    const int row = i + w->lane / w->lanes;
    const int64_t position = __shfl_sync(ALL, w->position, row);
    w->ahead += w->ahead_step;
    if (is_alive(w, row)) {
        load_row(w->ahead, in->words);
        if (!is_index) {
            load_turn(p, position, w->lane, in);
        }
    }
}

/* What a block shares; a warp has its own pairs. */
typedef struct insert_smem {
    uint32_t pairs[KV_INSERT_WARPS][PAIRS]; /* of a row, that are rotated */
    uint32_t named[KV_INSERT_WARPS]; /* bit i: the warp saw a later row with the slot of row i */
} insert_smem;

static_assert(sizeof(insert_smem) == 1056, "the budget above");

/* The whole of it; format and norm are constants of each kernel. */
INLINE void insert(const kv_insert_params *p,
                   const mmla_kv_format format,
                   insert_smem *smem,
                   const bool norm,
                   norm_smem *of_norm) {
    const bool is_index = format == MMLA_KV_INDEX_FP8 || format == MMLA_KV_INDEX_FP4;
    const int lanes = is_index ? INDEX_LANES : LATENT_LANES;
    const int rows_at_once = KV_INSERT_WARP / lanes;
    const int lane = threadIdx.x % KV_INSERT_WARP;
    const int warp = __shfl_sync(ALL, (int)threadIdx.x / KV_INSERT_WARP, 0); /* one for all lanes */
    const int floor_scale = p->problem.desc.scale_floor == MMLA_SCALE_FLOOR_SCALE;
    const int64_t n = p->args.n_slots, row_stride = p->problem.desc.row_stride;
    if (p->step == KV_INSERT_REPAIR && !has_loser(p)) {
        return;
    }

    /* Of the rows from `first` on, the warp has `from` to w.to - 1, and looks at the slots of n_places,
     * a lane each. In a scan these are the rows of the block, of which the warp has one. */
    const bool scan = p->step == KV_INSERT_SCAN;
    const int64_t block_or_warp =
        scan ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * KV_INSERT_WARPS + warp;
    const int n_places = scan ? KV_INSERT_WARPS : p->warp_rows;
    const int64_t first = block_or_warp * n_places;
    const int from = scan ? warp : 0;
    warp_rows w = {};
    w.lane = lane, w.lanes = lanes, w.sub = lane % lanes;
    w.to = scan ? warp + 1 : p->warp_rows;
    w.ahead =
        p->args.rows + (first + from + lane / lanes) * row_stride + w.sub * KV_INSERT_LANE_DIMS;
    w.ahead_step = rows_at_once * row_stride;

    /* Everything that depends on nothing is loaded at once: the first row, too, is read before it is
     * known whether it is written. */
    row_input in = {};
    int64_t later[KV_INSERT_LATER];
    if (from + lane / lanes < w.to && first + from + lane / lanes < n) {
        load_row(w.ahead, in.words);
    }
    int64_t slot = -1, position = 0;
    if (lane < n_places && first + lane < n) {
        /* Volatile: else the position is loaded when the slot has been looked at. */
        slot = *(const volatile int64_t *)&p->args.slots[first + lane];
        position = *(const volatile int64_t *)&p->args.positions[first + lane];
    }
    if (scan && first + KV_INSERT_WARPS < n) {
        load_later(p, first + KV_INSERT_WARPS, later);
    }
    if (norm) {
        load_weight(p->args.norm_weight, lanes * KV_INSERT_LANE_DIMS, of_norm);
    }
    const mmla_kv_insert_place place = place_of(p, slot, position);
    const uint32_t refused = __ballot_sync(ALL, place.fault != MMLA_KV_INSERT_NO_FAULT);
    const bool counts = scan ? warp == 0 : p->step == KV_INSERT_CLAIM;
    if (refused != 0 && counts && lane == 0 && p->args.n_faults != NULL) {
        atomicAdd(p->args.n_faults, __popc(refused));
    }
    w.alive = __ballot_sync(ALL, place.slot >= 0);
    w.position = place.position;
    if (!is_index && (w.alive >> from & 1) != 0) {
        load_turn(p, __shfl_sync(ALL, w.position, from), lane, &in);
    }
    if (scan) {
        if (is_named_later(p, first + KV_INSERT_WARPS, place.slot, later, warp, lane,
                           smem->named)) {
            w.alive &= ~(1u << warp);
        }
    } else if (p->step == KV_INSERT_REPAIR) {
        w.alive = rows_to_repair(p, first, place.slot, lane);
    } else if (place.slot >= 0) {
        claim(p, (uint32_t)(first + lane), place.slot);
    }
    slot = place.slot < 0 ? 0 : place.slot; /* 0 is used for no address */
    w.data_off = mmla_kv_data_offset(&p->problem.cache, slot);
    w.scale_from_data = /* both are of one page */
        (int32_t)(mmla_kv_scale_offset(&p->problem.cache, slot) - w.data_off);

    if (norm) {
        __syncthreads(); /* the weights are there */
    }
    const int rope_sub = lanes - ROPE_LANES;
    for (int i = from; i < w.to; i += rows_at_once) {
        const int row = i + lane / lanes;
        const bool stores = is_alive(&w, row);
        if (!__any_sync(ALL, stores)) {
            load_ahead(p, is_index, &w, i + rows_at_once, &in);
            continue;
        }
        uint8_t *data = (uint8_t *)p->args.cache + __shfl_sync(ALL, w.data_off, row);
        uint8_t *scale = data + __shfl_sync(ALL, w.scale_from_data, row);
        uint32_t pair = 0;
        if (norm) {
            normalise(in.words, p->problem.desc.norm_eps, lanes, lane, of_norm->squares[warp],
                      of_norm->weight);
        }
        if (is_index) {
            const int64_t position = __shfl_sync(ALL, w.position, row);
            if (stores && w.sub >= rope_sub) {
                rotate_lane(in.words, p->args.cos_sin + position * MMLA_ROPE_DIM +
                                          (w.sub - rope_sub) * WORDS);
            }
        } else {
            pair = rotate_row(in.words, in.c, in.s, format != MMLA_KV_V4, lane, smem->pairs[warp]);
        }
        float x[KV_INSERT_LANE_DIMS];
        unpack(in.words, x);
        load_ahead(p, is_index, &w, i + rows_at_once, &in);
        switch (format) {
        case MMLA_KV_V4:
            encode_v4(x, pair, floor_scale, w.sub, data, scale);
            break;
        case MMLA_KV_V41_FP8:
            encode_v41_fp8(x, floor_scale, w.sub, data, scale);
            break;
        case MMLA_KV_V41_FP4:
            encode_v41_fp4(x, w.sub, data, scale);
            break;
        case MMLA_KV_INDEX_FP8:
            encode_index_fp8(x, w.sub, stores, data, scale);
            break;
        default:
            encode_index_fp4(x, w.sub, stores, data, scale);
            break;
        }
    }
}

#define DEFINE_INSERT(name, format)                                                       \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name, kv_insert_params, KV_INSERT_THREADS,        \
                       KV_INSERT_BLOCKS) {                                                \
        __shared__ __align__(16) insert_smem smem;                                        \
        insert(&p, format, &smem, false, NULL);                                           \
    }                                                                                     \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name##_norm, kv_insert_params, KV_INSERT_THREADS, \
                       KV_INSERT_NORM_BLOCKS) {                                           \
        __shared__ __align__(16) insert_smem smem;                                        \
        __shared__ __align__(16) norm_smem of_norm;                                       \
        insert(&p, format, &smem, true, &of_norm);                                        \
    }
DEFINE_INSERT(v4, MMLA_KV_V4)
DEFINE_INSERT(v41_fp8, MMLA_KV_V41_FP8)
DEFINE_INSERT(v41_fp4, MMLA_KV_V41_FP4)
DEFINE_INSERT(index_fp8, MMLA_KV_INDEX_FP8)
DEFINE_INSERT(index_fp4, MMLA_KV_INDEX_FP4)
#undef DEFINE_INSERT
