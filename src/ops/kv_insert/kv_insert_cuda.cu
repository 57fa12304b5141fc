/* kv_insert_cuda.cu - rows into records: a warp a row of 512, a quarter of a warp a key of 128.
 *
 * PROBLEM    record(slots[t]) = quantise(rotate([norm](rows[t])))           (megamla/kv.h has shapes)
 *
 * BOUND      memory, a row: 1024 B read, 256 B of cos_sin read, 16 B of indices, and written
 *            V4 584 B, V41_FP8 528 B, V41_FP4 288 B. An index key: 256 + 256 + 16 B read, 132 or
 *            68 B written. Lines of cos_sin come from L2 when positions repeat. At the bandwidth of
 *            an H200 a multiprocessor issues 250 to 350 instructions in the time the bytes of a row
 *            take; README.md has how many the kernels have. With norm these are the bound. A call of
 *            few rows is bound by loads that wait for each other: two, slot and position, then the
 *            line of cos_sin, while the row comes from memory.
 *
 * MOVEMENT   slots, positions (L2) --a thread a row--> places (smem)
 *            rows (HBM) --2 x 16 B a lane, a row ahead--> words[8], 16 bf16 of a lane
 *                --[squares --> smem, transposed --> 16 partial sums --> r]--> words[8]
 *                --last four lanes: --> smem --a pair a lane, cos_sin (L2)--> smem --> words[8]
 *                --maxima of pairs, and unpacked: from here the next row is loaded--> x[16], fp32
 *                --maxima shuffled between lanes of a group--> scale --> codes
 *                --16 or 8 B a lane, one byte a group--> cache (HBM)
 *            slots --claims, behind the rows--> table (L2) --second launch--> owners
 *
 * TILES      lane l has dims 16 l .. 16 l + 15: no group is smaller, 16 codes of e4m3 are one store,
 *            and the rotated dims are whole lanes. They would be rotated by four lanes while 28 wait,
 *            so they go to all lanes, a pair each, and back. A block has up to 256 rows, so that each
 *            of its threads has one to look up; its warps take every eighth, or four keys of 32. A
 *            block of a repair takes every gridDim-th of what are blocks' rows before.
 *
 * ROLES      the first threads of a block look up places and deal with duplicates; all convert
 *
 * DUPLICATES of the rows of a slot the last has to stay. Few rows (kv_insert_step): a block compares
 *            its slots with all later ones. Many: rows are stored as they come, and then claim their
 *            slots; a second launch ends at once when no row met another's claim, and else stores the
 *            last row of every slot again.
 *
 * BUDGET     smem   places 256 x 24 B, pairs 8 warps x 128 B, slots and bits of a scan 64 B: 7,232 B a
 *                   block; with norm squares 8 warps x 3,200 B + weights 2,560 B more: 35,392 B
 *            regs   65536 / (4 x 256), so 64 a thread; with norm 65536 / (3 x 256), so 80
 *            flight 32 warps x 1 KiB a multiprocessor, of rows that wait while others are converted
 *
 * BARRIERS   __syncthreads: places and weights written; of a scan, bits written; of a repair, before
 *            places are written again. __syncwarp: pairs and squares of a warp, written and read
 *
 * ORDER      all launches are early (gpu/order.cuh). A call that overlaps lets the next begin at once, and
 *            waits for the launch before at its end, so that it does not end before it; all else waits first
 *
 * NUMERICS   the bytes of kv_insert_ref.c (kv_insert_encode.cuh)
 *
 * LIMITS     n_slots below 2^31; cos_sin and norm_weight are aligned to 4 bytes only
 */
#include "gpu/order.cuh"
#include "ops/kv_insert/kv_insert_encode.cuh"
#include "ops/kv_insert/kv_insert_slots.cuh"

/* Where a row of a block goes and where it is rotated; found by one thread for all lanes of its warp. */
typedef struct row_place {
    int64_t data_off; /* -1: it is not stored */
    int64_t position;
    int32_t scale_from_data; /* both rows of a record are of one page */
} row_place;

/* What a block shares; a warp has its own pairs. */
typedef struct insert_smem {
    row_place places[KV_INSERT_THREADS];
    uint32_t pairs[KV_INSERT_WARPS][PAIRS]; /* of a row, that are rotated */
    uint32_t slots[KV_INSERT_WARPS];        /* of a scan: low bits, of the rows of the block */
    uint32_t named[KV_INSERT_WARPS];        /* bit i: the warp saw a later row with slots[i] */
} insert_smem;

static_assert(sizeof(insert_smem) == 7232, "the budget above");
static_assert(KV_INSERT_WARPS * KV_INSERT_WARP <= +KV_INSERT_THREADS, "a thread a row");

/* What a lane loads of a row before the row before is converted. A lane of a key loads its cosines
 * and sines when it needs them. */
typedef struct row_input {
    uint32_t words[WORDS];
    float c, s;
} row_input;

INLINE row_place place_at(const insert_smem *smem, int row, int n_rows) {
    row_place none = {};
    none.data_off = -1;
    return row < n_rows ? smem->places[row] : none;
}

INLINE void load_turn(const kv_insert_params *p, int64_t position, int lane, row_input *in) {
    const float *line = p->args.cos_sin + position * MMLA_ROPE_DIM;
    in->c = __ldg(line + lane);
    in->s = __ldg(line + PAIRS + lane);
}

/* A lane's part of a row, if it is stored. */
INLINE void load_ahead(const kv_insert_params *p,
                       const bool is_index,
                       const row_place *place,
                       const uint16_t *part,
                       row_input *in) {
    if (place->data_off >= 0) {
        load_row(part, in->words);
        if (!is_index) {
            load_turn(p, place->position, threadIdx.x % KV_INSERT_WARP, in);
        }
    }
}

/* Finds the places of a block's rows, a thread a row, and which of them are the last of their slots when
 * the step asks for that; `later` are the thread's later slots in a scan. A barrier ends it. Bit i of what
 * it returns: row i of a scan is not stored after all. */
INLINE uint32_t find_places(const kv_insert_params *p,
                            const kv_insert_step step,
                            uint32_t call,
                            int64_t first,
                            int n_rows,
                            int64_t slot,
                            int64_t position,
                            const int64_t later[KV_INSERT_LATER],
                            insert_smem *smem) {
    const int i = threadIdx.x;
    const mmla_kv_insert_place place = place_of(p, slot, position);
    bool alive = place.slot >= 0;
    if (i / KV_INSERT_WARP * KV_INSERT_WARP < n_rows) { /* warps that have some */
        const uint32_t refused = __ballot_sync(ALL, place.fault != MMLA_KV_INSERT_NO_FAULT);
        if (step == KV_INSERT_REPAIR) {
            alive = is_last(p, call, first + i, place.slot);
        } else if (refused != 0 && i % KV_INSERT_WARP == 0 && p->args.n_faults != NULL) {
            atomicAdd(p->args.n_faults, __popc(refused));
        }
    }
    if (i < n_rows) {
        const int64_t legal = alive ? place.slot : 0; /* 0 is used for no address */
        const int64_t data_off = mmla_kv_data_offset(&p->problem.cache, legal);
        row_place *to = &smem->places[i];
        to->data_off = alive ? data_off : -1;
        to->position = place.position;
        to->scale_from_data = (int32_t)(mmla_kv_scale_offset(&p->problem.cache, legal) - data_off);
    }
    if (step == KV_INSERT_SCAN && i < KV_INSERT_WARPS) {
        smem->slots[i] = alive ? (uint32_t)place.slot : NO_SLOT;
    }
    __syncthreads();
    if (step == KV_INSERT_SCAN && (n_rows > 1 || first + n_rows < p->args.n_slots)) {
        return rows_named_later(p, first + KV_INSERT_WARPS, smem->slots, later, smem->named);
    }
    return 0;
}

/* The rows of a tile; step, format and norm are constants of each kernel. `call` is the number of a
 * repair's call; a claim reads it with its first loads, and a scan has none. */
INLINE void insert(const kv_insert_params *p,
                   const kv_insert_step step,
                   const mmla_kv_format format,
                   const bool norm,
                   uint32_t call,
                   int64_t tile,
                   insert_smem *smem,
                   norm_smem *of_norm) {
    const bool is_index = format == MMLA_KV_INDEX_FP8 || format == MMLA_KV_INDEX_FP4;
    const int lanes = is_index ? INDEX_LANES : LATENT_LANES; /* of a row */
    const int rows_at_once = KV_INSERT_WARP / lanes, stride = KV_INSERT_WARPS * rows_at_once;
    const int lane = threadIdx.x % KV_INSERT_WARP, sub = lane % lanes, group = lane / lanes;
    const int warp = __shfl_sync(ALL, (int)threadIdx.x / KV_INSERT_WARP, 0); /* one for all lanes */
    const int floor_scale = p->problem.desc.scale_floor == MMLA_SCALE_FLOOR_SCALE;
    const int block_rows = KV_INSERT_WARPS * p->warp_rows;
    const int64_t first = tile * block_rows;
    const int n_rows = (int)mmla_min_i64(p->args.n_slots - first, block_rows);

    /* Everything that depends on nothing is loaded at once: the first row, too, is read before it is
     * known whether it is written. */
    row_input in = {};
    int64_t later[KV_INSERT_LATER], slot = -1, position = 0;
    int row = warp * rows_at_once + group;
    const int64_t ahead_step = stride * p->problem.desc.row_stride;
    const uint16_t *ahead =
        p->args.rows + (first + row) * p->problem.desc.row_stride + sub * KV_INSERT_LANE_DIMS;
    if (row < n_rows) {
        load_row(ahead, in.words);
    }
    if (threadIdx.x < n_rows) {
        /* Volatile: else the position is loaded when the slot has been looked at. */
        slot = *(const volatile int64_t *)&p->args.slots[first + threadIdx.x];
        position = *(const volatile int64_t *)&p->args.positions[first + threadIdx.x];
        if (step == KV_INSERT_CLAIM) {
            call = *(const volatile uint32_t *)&p->table->call;
        }
    }
    if (step == KV_INSERT_SCAN && first + n_rows < p->args.n_slots) {
        load_later(p, first + KV_INSERT_WARPS, later);
    }
    if (norm) { /* its barrier is that of the places */
        load_weight(p->args.norm_weight, lanes * KV_INSERT_LANE_DIMS, of_norm);
    }
    const uint32_t named = find_places(p, step, call, first, n_rows, slot, position, later, smem);

    row_place place = place_at(smem, row, n_rows);
    if (!is_index && row < n_rows) {
        load_turn(p, place.position, lane, &in);
    }
    if (step == KV_INSERT_SCAN && row < KV_INSERT_WARPS && (named >> row & 1) != 0) {
        place.data_off = -1;
    }
    for (int from = warp * rows_at_once; from < n_rows; from += stride) {
        row += stride;
        ahead += ahead_step;
        const row_place next = place_at(smem, row, n_rows);
        const bool stores = place.data_off >= 0;
        if (!__any_sync(ALL, stores)) {
            load_ahead(p, is_index, &next, ahead, &in);
            place = next;
            continue;
        }
        uint8_t *data = (uint8_t *)p->args.cache + (is_index && !stores ? 0 : place.data_off);
        uint8_t *scale = data + place.scale_from_data;
        uint32_t pair = 0;
        if (norm) {
            normalise(in.words, p->problem.desc.norm_eps, lanes, lane, of_norm->squares[warp],
                      of_norm->weight);
        }
        if (!is_index) {
            pair = rotate_row(in.words, in.c, in.s, format != MMLA_KV_V4, lane, smem->pairs[warp]);
        } else if (stores && sub >= lanes - ROPE_LANES) {
            rotate_lane(in.words, p->args.cos_sin + place.position * MMLA_ROPE_DIM +
                                      (sub - (lanes - ROPE_LANES)) * WORDS);
        }
        float x[KV_INSERT_LANE_DIMS];
        unpack(in.words, x);
        const float amax = lane_amax(in.words);
        load_ahead(p, is_index, &next, ahead, &in);
        place = next;
        switch (format) {
        case MMLA_KV_V4:
            encode_v4(x, amax, pair, floor_scale, sub, data, scale);
            break;
        case MMLA_KV_V41_FP8:
            encode_v41_fp8(x, amax, floor_scale, sub, data, scale);
            break;
        case MMLA_KV_V41_FP4:
            encode_v41_fp4(x, amax, sub, data, scale);
            break;
        case MMLA_KV_INDEX_FP8:
            encode_index_fp8(x, amax, sub, stores, data, scale);
            break;
        default:
            encode_index_fp4(x, amax, sub, stores, data, scale);
            break;
        }
    }
    if (step == KV_INSERT_CLAIM &&
        threadIdx.x < n_rows) { /* the last thing, for which no row waits */
        const int64_t legal = place_of(p, slot, position).slot;
        if (first + threadIdx.x == 0) {
            p->table->next = call + 1;
        }
        if (legal >= 0) {
            claim(p, call, (uint32_t)(first + threadIdx.x), legal);
        }
    }
}

/* A launch. A repair has a block a multiprocessor at most: nearly always it finds nothing to do. */
INLINE void run(const kv_insert_params *p,
                const kv_insert_step step,
                const mmla_kv_format format,
                const bool norm,
                insert_smem *smem,
                norm_smem *of_norm) {
    gpu_begin(step != KV_INSERT_REPAIR && p->args.overlap);
    if (step != KV_INSERT_REPAIR) {
        insert(p, step, format, norm, 0, blockIdx.x, smem, of_norm);
        gpu_wait_for_before();
        return;
    }
    const kv_insert_claim loser = p->table->loser;
    const uint32_t next = p->table->next, call = next - 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        p->table->call = next;
    }
    if (!has_lost(p, call, loser)) {
        return;
    }
    const int64_t n_tiles = kv_insert_n_blocks(p->args.n_slots, p->warp_rows);
#pragma unroll 1
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        insert(p, step, format, norm, call, tile, smem, of_norm);
        __syncthreads(); /* before places are written again */
    }
}

#define DEFINE_STEP(name, format, step)                                                   \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name, kv_insert_params, KV_INSERT_THREADS,        \
                       KV_INSERT_BLOCKS) {                                                \
        __shared__ __align__(16) insert_smem smem;                                        \
        run(&p, step, format, false, &smem, NULL);                                        \
    }                                                                                     \
    MMLA_KERNEL_BOUNDS(kv_insert_cuda_##name##_norm, kv_insert_params, KV_INSERT_THREADS, \
                       KV_INSERT_NORM_BLOCKS) {                                           \
        __shared__ __align__(16) insert_smem smem;                                        \
        __shared__ __align__(16) norm_smem of_norm;                                       \
        run(&p, step, format, true, &smem, &of_norm);                                     \
    }
#define DEFINE_INSERT(name, format)                    \
    DEFINE_STEP(name##_scan, format, KV_INSERT_SCAN)   \
    DEFINE_STEP(name##_claim, format, KV_INSERT_CLAIM) \
    DEFINE_STEP(name##_repair, format, KV_INSERT_REPAIR)
DEFINE_INSERT(v4, MMLA_KV_V4)
DEFINE_INSERT(v41_fp8, MMLA_KV_V41_FP8)
DEFINE_INSERT(v41_fp4, MMLA_KV_V41_FP4)
DEFINE_INSERT(index_fp8, MMLA_KV_INDEX_FP8)
DEFINE_INSERT(index_fp4, MMLA_KV_INDEX_FP4)
#undef DEFINE_INSERT
#undef DEFINE_STEP
