/* project_wgmma_block.cu - the projection of many tokens on Hopper.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      A step of 64 columns of 128 rows and N tokens takes 4 N cycles of the matrix units: 512
 *            for N = 128. Beside it, in cycles for N = 128: shared memory at 128 bytes each, codes of
 *            both written and read once, 256, tokens written once and read by each warpgroup, 128 +
 *            256; conversion, an instruction a code of which half run at half rate, 128 issue slots of
 *            four schedulers, and 90 more for loads, stores and scales; L2, 64 (128 + N) bytes, 32 a
 *            cycle for N = 128 and 48 for N = 64: all multiprocessors can get some 24 at once.
 *
 * MOVEMENT   w (L2) --cp.async--> codes (smem) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            x (L2) --cp.async--> codes (smem) --ld 16 B, convert--> stage (smem, fp16) --wgmma--> sums
 *            sums of 512 columns * factors --add--> total (registers) --stmatrix--> results --16 B--> z
 *
 * TILES      128 rows x 64 or 128 tokens; K in steps of 64. CTAs are as many as multiprocessors, and take
 *            tiles in turns.
 *
 * ROLES      warps 0 .. 7     two warpgroups: 64 rows each, their conversion, products, results   200 regs
 *            warps 8 .. 11    tokens                                                               64
 *            warps 12 .. 15   scales of both; they also bring codes into L2                        48
 *
 * BUDGET     smem   N 128: 4 * 16 KB stages, 32 KB results, 4 * 16 KB codes, 12 KB of scales, factors and
 *                   marks, twice each, 256 of barriers and flags: 176,384 B
 *                   Codes wait in shared memory, not in registers, where the compiler would have them come
 *                   late; a thread reads what it copied itself, so that it needs no barrier for them.
 *            regs   of a multiplying thread: 64 sums, 64 of the total, 2 * 16 of a.
 *                   512 threads begin with 128 each, 2 * 200 + 64 + 48 = 4 * 128
 *
 * BARRIERS   full[stage]      4 loading warps -> multiplying ones: a step of tokens is there
 *            empty[stage]     8 multiplying warps -> loading ones: its products are done
 *            table_full[i]    4 warps with scales -> all others: table i has a segment's scales and factors
 *            table_empty[i]   all others -> warps with scales: nobody reads them any more
 *                             A segment is 8 steps, two rounds of the stages, and a tile four rounds of
 *                             the tables, so that parities are those of step and segment.
 *            bar 3, 4         each multiplying warpgroup: its results are staged; they are stored
 *            Marks of a tile are of its parity. Who has seen its last table sees them; when its segment 2
 *            is left, the tile before is stored, and the marks of the tile after may be written.
 *
 * NUMERICS   project_wgmma_map.h. The same bits as project_wgmma_split.cu.
 *
 * LIMITS     Code for 9.0a. Any rank that is a multiple of 8, any number of tokens; operands aligned
 *            to 16 bytes.
 *
 * Long because three roles go through the same steps and barriers, which are read side by side.
 */
#include "gpu/barrier.cuh"
#include "gpu/mma.cuh"
#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wgmma_cuda.h"

enum {
    ROWS = MMLA_PROJECT_WG_BLOCK_ROWS,
    N_MAX = 128,
    STAGES = MMLA_PROJECT_WG_BLOCK_STAGES,
    GROUP = MMLA_PROJECT_WG_THREADS,
    MATH_THREADS = 2 * GROUP,
    MATH_WARPS = MATH_THREADS / MMLA_PROJECT_WARP,
    LOAD_WARPS = GROUP / MMLA_PROJECT_WARP,
    MATH_REGISTERS = 200,
    LOAD_REGISTERS = 64,
    TABLE_REGISTERS = 48,
    STEPS = MMLA_PROJECT_SEGMENT_STEPS,
    LAST_SEGMENT = MMLA_PROJECT_SEGMENTS - 1,
    TABLES = 2,
    PREFETCH = 2, /* segments that are brought into L2 at once */
    AHEAD = MMLA_PROJECT_WG_BLOCK_AHEAD,
    AT_ONCE =
        GROUP / MMLA_PROJECT_STEP_UNITS, /* tokens that the loading threads have side by side */
    TOKENS_MAX = N_MAX / AT_ONCE         /* of a loading thread */
};

static_assert(MMLA_PROJECT_WG_BLOCK_SMEM(128) == 176384, "as the page above says");
static_assert(STEPS % STAGES == 0 && STEPS / STAGES == 2 && STEPS % AHEAD == 0,
              "a step's stage, parities and place of codes are constants");
static_assert(MMLA_PROJECT_SEGMENTS % (2 * TABLES) == 0, "and a segment's table and parities");
static_assert(MMLA_PROJECT_WG_BLOCK_THREADS == 4 * GROUP &&
                  2 * MATH_REGISTERS + LOAD_REGISTERS + TABLE_REGISTERS <= 65536 / GROUP,
              "registers that are given away suffice for those that are taken");

#define DEVICE static __device__ __forceinline__

/* The parts of shared memory. */
typedef struct block_smem {
    uint8_t *exponents; /* [2][ROWS + N][16] */
    float *factors;     /* [2][ROWS + N] */
    int32_t *state;     /* [2][ROWS + N], of the tile's parity: PROJECT_ODD */
    int32_t *any;       /* [2]: whether a row of the tile has a state */
    uint32_t stages, results, weight_codes, token_codes, full, empty, table_full, table_empty;
} block_smem;

DEVICE block_smem block_smem_get(uint8_t *shared, const int32_t n) {
    const int32_t rows = ROWS + n;
    block_smem s;
    s.stages = gpu_smem_address(shared);
    s.results = s.stages + STAGES * n * MMLA_PROJECT_WG_ROW_BYTES;
    s.weight_codes = s.results + 2 * n * ROWS;
    s.token_codes = s.weight_codes + AHEAD * ROWS * MMLA_PROJECT_STEP;
    s.exponents = shared + STAGES * n * MMLA_PROJECT_WG_ROW_BYTES + 2 * n * ROWS +
                  AHEAD * rows * MMLA_PROJECT_STEP;
    s.factors = (float *)(s.exponents + 2 * rows * MMLA_PROJECT_WG_SCALES);
    s.state = (int32_t *)(s.factors + 2 * rows);
    s.any = s.state + 2 * rows;
    s.full = gpu_smem_address(s.any + 2);
    s.empty = s.full + STAGES * 8;
    s.table_full = s.empty + STAGES * 8;
    s.table_empty = s.table_full + TABLES * 8;
    return s;
}

/* The CTA's tiles are blockIdx.x, blockIdx.x + gridDim.x, .. of so many. */
DEVICE uint32_t n_tiles_get(const mmla_project_params *p, const int32_t n) {
    return (uint32_t)mmla_project_tiles(p->rank, ROWS) * (uint32_t)p->n_groups *
           (uint32_t)mmla_project_tiles(p->n_tokens, n);
}

DEVICE mmla_project_tile tile_get(const mmla_project_params *p, uint32_t idx, const int32_t n) {
    return mmla_project_wg_tile_get(idx, p->n_tokens, p->rank, n, ROWS);
}

/* ---- Loading ----------------------------------------------------------------------------------- */

/* A thread's units of tokens first, first + 32, .. of the step to be copied next. */
typedef struct token_stream {
    const uint8_t *at;
    int64_t stride;
    int32_t n_tokens; /* from the first on; none past the last tile */
} token_stream;

DEVICE void
tokens_begin(const mmla_project_params *p, token_stream *s, uint32_t idx, const int32_t n) {
    const int32_t first = threadIdx.x % GROUP / MMLA_PROJECT_STEP_UNITS;
    s->n_tokens = 0;
    if (idx < n_tiles_get(p, n)) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        s->at = p->x + ((tile.token + first) * p->n_groups + tile.g) * MMLA_PROJECT_DIM +
                mmla_project_wg_unit(threadIdx.x) * MMLA_PROJECT_UNIT;
        s->n_tokens = tile.n_tokens - first;
    }
}

/* Where a loading thread has its codes of a step: a unit of each of its tokens. */
DEVICE uint32_t token_codes(const block_smem *smem, const int32_t step, const int32_t n) {
    return smem->token_codes + step % AHEAD * n * MMLA_PROJECT_STEP +
           threadIdx.x % GROUP * MMLA_PROJECT_UNIT;
}

DEVICE void
tokens_copy(const block_smem *smem, token_stream *s, const int32_t step, const int32_t n) {
#pragma unroll
    for (int32_t q = 0; q < n / AT_ONCE; q++) {
        gpu_cp_async16_zero(token_codes(smem, step, n) + q * GROUP * MMLA_PROJECT_UNIT,
                            s->at + q * s->stride, q * AT_ONCE < s->n_tokens);
    }
    gpu_cp_async_commit();
    s->at += MMLA_PROJECT_STEP;
}

/* A step of tokens from codes to its stage. */
DEVICE void
tokens_convert(const block_smem *smem, const int32_t step, int32_t table, const int32_t n) {
    const int32_t unit = mmla_project_wg_unit(threadIdx.x);
    const int32_t first = threadIdx.x % GROUP / MMLA_PROJECT_STEP_UNITS;
    const uint8_t *exponents = smem->exponents +
                               (table * (ROWS + n) + ROWS + first) * MMLA_PROJECT_WG_SCALES +
                               2 * step + unit / 2;
    const uint32_t tile = smem->stages + step % STAGES * n * MMLA_PROJECT_WG_ROW_BYTES;
    uint4 codes[TOKENS_MAX];
    uint32_t exponent[TOKENS_MAX]; /* all are asked for before the first store */
#pragma unroll
    for (int32_t q = 0; q < n / AT_ONCE; q++) {
        codes[q] = gpu_smem_load16(token_codes(smem, step, n) + q * GROUP * MMLA_PROJECT_UNIT);
        exponent[q] = exponents[q * AT_ONCE * MMLA_PROJECT_WG_SCALES];
    }
#pragma unroll
    for (int32_t q = 0; q < n / AT_ONCE; q++) {
        uint32_t pairs[MMLA_PROJECT_WG_PAIRS];
        project_wg_convert(pairs, codes[q], exponent[q]);
#pragma unroll
        for (int32_t pair = 0; pair < MMLA_PROJECT_WG_PAIRS; pair++) {
            /* AT_ONCE is a multiple of eight, so the swizzle is that of the first token. */
            gpu_smem_store4(tile + (uint32_t)mmla_project_wg_pair_off(first, unit, pair) +
                                q * AT_ONCE * MMLA_PROJECT_WG_ROW_BYTES,
                            pairs[pair]);
        }
    }
}

/* What the loading warps do, from the first tile to the last. */
DEVICE void block_load(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    token_stream from;
    from.stride = AT_ONCE * (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    tokens_begin(p, &from, blockIdx.x, n);
#pragma unroll
    for (int32_t i = 0; i < AHEAD; i++) {
        tokens_copy(smem, &from, i, n);
    }
#pragma unroll 1
    for (uint32_t idx = blockIdx.x; idx < n_tiles; idx += gridDim.x) {
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            const int32_t table = segment % TABLES;
            gpu_barrier_wait(smem->table_full + table * 8, segment / TABLES % 2);
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                if (step == STEPS - AHEAD && segment == LAST_SEGMENT) {
                    tokens_begin(p, &from, idx + gridDim.x, n);
                }
                gpu_cp_async_wait(AHEAD - 1);
                gpu_barrier_wait(smem->empty + step % STAGES * 8, step / STAGES ^ 1);
                tokens_convert(smem, step, table, n);
                gpu_fence_async();
                __syncwarp();
                if (is_first_lane) {
                    gpu_barrier_arrive(smem->full + step % STAGES * 8);
                }
                tokens_copy(smem, &from, step,
                            n); /* of the step AHEAD further, in the same place */
            }
            if (is_first_lane) {
                gpu_barrier_arrive(smem->table_empty + table * 8);
            }
        }
    }
    gpu_cp_async_wait_all();
}

/* ---- Scales ------------------------------------------------------------------------------------ */

/* One row's line of a table, and its mark. */
DEVICE void segment_row_write(const block_smem *smem,
                              const project_row *r,
                              const uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4],
                              int32_t row,
                              int32_t segment,
                              int32_t parity,
                              const int32_t n) {
    const mmla_project_wg_segment s = project_wg_segment_of(bytes, r, segment);
    const int32_t at = segment % TABLES * (ROWS + n) + row;
    *(uint4 *)(smem->exponents + at * MMLA_PROJECT_WG_SCALES) =
        make_uint4(s.exponents[0], s.exponents[1], s.exponents[2], s.exponents[3]);
    smem->factors[at] = s.factor;
    int32_t *state = smem->state + parity * (ROWS + n) + row;
    if (segment == 0) {
        *state = s.is_odd ? PROJECT_ODD : 0;
    } else if (s.is_odd) {
        *state = PROJECT_ODD;
    }
    if (s.is_odd) {
        smem->any[parity] = 1;
    }
}

/* The table of a segment; thread i has row i of weight and then token i. Scales are asked for before there
 * is a place for them. */
DEVICE void segment_write(const mmla_project_params *p,
                          const block_smem *smem,
                          const mmla_project_tile *tile,
                          int32_t segment,
                          int32_t parity,
                          const int32_t n) {
    static_assert(ROWS == GROUP && N_MAX <= GROUP, "two rows a thread");
    uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4], later[MMLA_PROJECT_WG_SCALES / 4];
    int32_t row = threadIdx.x % GROUP;
    {
        const project_row w = project_row_get(p, tile, row, ROWS);
        project_wg_scales_load(bytes, &w, segment);
        const project_row x = project_row_get(p, tile, ROWS + row % n, ROWS);
        project_wg_scales_load(later, &x, segment);
    }
    gpu_barrier_wait(smem->table_empty + segment % TABLES * 8, segment / TABLES % 2 ^ 1);
    if (segment == MMLA_PROJECT_SEGMENTS / 2 && row == 0) {
        smem->any[parity ^ 1] = 0; /* of the tile before, which is stored */
    }
#pragma unroll 1
    for (; row < ROWS + n; row += GROUP) {
        const project_row r = project_row_get(p, tile, row, ROWS);
        segment_row_write(smem, &r, bytes, row, segment, parity, n);
#pragma unroll
        for (int32_t i = 0; i < MMLA_PROJECT_WG_SCALES / 4; i++) {
            bytes[i] = later[i];
        }
    }
}

/* Every `every`-th of so many rows of codes to L2, from the first on; a warp's instruction, so lanes would not
 * make it faster. */
DEVICE void rows_prefetch(const uint8_t *codes,
                          int64_t stride,
                          int32_t first,
                          int32_t every,
                          int32_t n_rows,
                          const int32_t bytes) {
#pragma unroll 1
    for (int32_t row = first + threadIdx.x % GROUP / MMLA_PROJECT_WARP * every; row < n_rows;
         row += GROUP / MMLA_PROJECT_WARP * every) {
        if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
            gpu_prefetch_l2(codes + row * stride, bytes);
        }
    }
}

/* Brings PREFETCH segments of a tile into L2. CTAs that have the same rows or tokens at this time share the
 * work; where they do not, because some are a tile ahead, or because of a rank so large that fewer tiles of
 * tokens run at once, loads wait longer. */
DEVICE void
segments_prefetch(const mmla_project_params *p, uint32_t idx, int32_t segment, const int32_t n) {
    enum { BYTES = PREFETCH * MMLA_PROJECT_SEGMENT, SHARERS_MAX = 8 };
    if (idx >= n_tiles_get(p, n)) {
        return;
    }
    const mmla_project_tile tile = tile_get(p, idx, n);
    const int32_t column = segment * MMLA_PROJECT_SEGMENT;
    const int32_t row_tiles = (int32_t)mmla_project_tiles(p->rank, ROWS);
    const int64_t token_tiles = mmla_project_tiles(p->n_tokens, n);
    const int32_t x_sharers = row_tiles < SHARERS_MAX ? row_tiles : SHARERS_MAX;
    const int32_t w_sharers = token_tiles < SHARERS_MAX ? (int32_t)token_tiles : SHARERS_MAX;
    rows_prefetch(p->weight + ((int64_t)tile.g * p->rank + tile.row) * MMLA_PROJECT_DIM + column,
                  MMLA_PROJECT_DIM, (int32_t)(tile.token / n % w_sharers), w_sharers, tile.n_rows,
                  BYTES);
    rows_prefetch(p->x + (tile.token * p->n_groups + tile.g) * MMLA_PROJECT_DIM + column,
                  (int64_t)p->n_groups * MMLA_PROJECT_DIM, tile.row / ROWS % x_sharers, x_sharers,
                  tile.n_tokens, BYTES);
}

/* What the warps with scales do, from the first tile to the last. */
DEVICE void block_tables(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    int32_t parity = 0; /* of the tile among the CTA's */
#pragma unroll 1
    for (uint32_t idx = blockIdx.x; idx < n_tiles; idx += gridDim.x) {
        const mmla_project_tile tile = tile_get(p, idx, n);
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            segment_write(p, smem, &tile, segment, parity, n);
            __syncwarp();
            if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
                gpu_barrier_arrive(smem->table_full + segment % TABLES * 8);
            }
            if (segment == 0 && idx == blockIdx.x) {
                segments_prefetch(p, idx, 0, n);
            }
            if (segment % PREFETCH == 0) {
                const int32_t next = segment + PREFETCH;
                const bool is_here = next < MMLA_PROJECT_SEGMENTS;
                segments_prefetch(p, is_here ? idx : idx + gridDim.x, is_here ? next : 0, n);
            }
        }
        parity ^= 1;
    }
}

/* ---- Multiplying ------------------------------------------------------------------------------- */

/* A thread's unit of its two rows, of the step to be loaded next. */
typedef struct weight_stream {
    const uint8_t *at;
    bool has_row, has_row_8;
} weight_stream;

DEVICE int32_t own_row(void) {
    return threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS + mmla_project_wg_row(threadIdx.x % GROUP);
}

DEVICE void
weight_begin(const mmla_project_params *p, weight_stream *s, uint32_t idx, const int32_t n) {
    s->has_row = s->has_row_8 = false;
    if (idx < n_tiles_get(p, n)) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        s->at = p->weight + ((int64_t)tile.g * p->rank + tile.row + own_row()) * MMLA_PROJECT_DIM +
                mmla_project_wg_unit(threadIdx.x) * MMLA_PROJECT_UNIT;
        s->has_row = own_row() < tile.n_rows;
        s->has_row_8 = own_row() + 8 < tile.n_rows;
    }
}

/* Where a multiplying thread has its codes of a step: its unit of two rows. */
DEVICE uint32_t weight_codes(const block_smem *smem, const int32_t step) {
    return smem->weight_codes + step % AHEAD * ROWS * MMLA_PROJECT_STEP +
           threadIdx.x * MMLA_PROJECT_UNIT;
}

DEVICE void weight_copy(const block_smem *smem, weight_stream *s, const int32_t step) {
    const uint32_t to = weight_codes(smem, step);
    gpu_cp_async16_zero_stream(to, s->at, s->has_row);
    gpu_cp_async16_zero_stream(to + MATH_THREADS * MMLA_PROJECT_UNIT, s->at + 8 * MMLA_PROJECT_DIM,
                               s->has_row_8);
    gpu_cp_async_commit();
    s->at += MMLA_PROJECT_STEP;
}

/* A step of weight from codes to registers, which the step AHEAD further replaces. */
DEVICE void weight_convert(const block_smem *smem,
                           weight_stream *s,
                           project_wg_step *a,
                           const int32_t step,
                           int32_t table,
                           const int32_t n) {
    const uint8_t *exponents = smem->exponents +
                               (table * (ROWS + n) + own_row()) * MMLA_PROJECT_WG_SCALES +
                               2 * step + mmla_project_wg_unit(threadIdx.x) / 2;
    const uint32_t from = weight_codes(smem, step);
    gpu_cp_async_wait(AHEAD - 1);
    const uint4 codes[2] = {gpu_smem_load16(from),
                            gpu_smem_load16(from + MATH_THREADS * MMLA_PROJECT_UNIT)};
    project_wg_step_convert(a, codes, exponents[0], exponents[8 * MMLA_PROJECT_WG_SCALES]);
    weight_copy(smem, s, step);
}

/* total += sums * factors, of one segment. */
DEVICE void
sums_add(const block_smem *smem, float *total, const float *sums, int32_t table, const int32_t n) {
    const float *factors = smem->factors + table * (ROWS + n);
    const float w[2] = {factors[own_row()], factors[own_row() + 8]};
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 4) {
        const float2 x =
            *(const float2 *)(factors + ROWS + mmla_project_wg_sum_token(threadIdx.x % GROUP, i));
        total[i] = fmaf(sums[i], w[0] * x.x, total[i]);
        total[i + 1] = fmaf(sums[i + 1], w[0] * x.y, total[i + 1]);
        total[i + 2] = fmaf(sums[i + 2], w[1] * x.x, total[i + 2]);
        total[i + 3] = fmaf(sums[i + 3], w[1] * x.y, total[i + 3]);
    }
}

/* total as bf16 to the warpgroup's results, [token][row]. */
DEVICE void results_stage(uint32_t results, const float *total, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    /* Matrix lane / 8 of four: rows 8 (lane / 8 % 2) of the warp's 16, tokens 8 (lane / 16) of 16. */
    const uint32_t at = results + (uint32_t)mmla_project_wg_result_off(lane / 16 * 8 + lane % 8,
                                                                       2 * warp + lane / 8 % 2);
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 8) {
        const uint32_t r[4] = {gpu_bf16x2_from_f32x2(total[i], total[i + 1]),
                               gpu_bf16x2_from_f32x2(total[i + 2], total[i + 3]),
                               gpu_bf16x2_from_f32x2(total[i + 4], total[i + 5]),
                               gpu_bf16x2_from_f32x2(total[i + 6], total[i + 7])};
        gpu_stmatrix_x4_trans(at + i / 8 * 16 * (2 * MMLA_PROJECT_WG_ROWS), r);
    }
}

/* From there to z, eight rows at a time where z allows it, but what `state` marks. */
DEVICE void results_store(const mmla_project_params *p,
                          const mmla_project_tile *tile,
                          uint32_t results,
                          const int32_t *state,
                          bool some_odd,
                          const int32_t n) {
    const int32_t first = threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS;
#pragma unroll 1
    for (int32_t e = threadIdx.x % GROUP; e < n * (MMLA_PROJECT_WG_ROWS / 8); e += GROUP) {
        const int32_t chunk = e % (MMLA_PROJECT_WG_ROWS / 8);
        const int32_t token = e / (MMLA_PROJECT_WG_ROWS / 8), row = first + 8 * chunk;
        if (row >= tile->n_rows ||
            token >= tile->n_tokens) { /* the number of rows is a multiple of 8 */
            continue;
        }
        const uint4 eight =
            gpu_smem_load16(results + (uint32_t)mmla_project_wg_result_off(token, chunk));
        uint16_t *z = p->z + project_z_index(p, tile, row, token);
        if (p->z_in_chunks && !some_odd) {
            *(uint4 *)z = eight;
            continue;
        }
        const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int32_t i = 0; i < 8; i++) {
            if (!some_odd || (state[row + i] | state[ROWS + token]) == 0) {
                z[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
            }
        }
    }
}

/* Results of the warpgroup's rows that are odd, or whose token is. */
DEVICE void odd_store(const mmla_project_params *p,
                      const mmla_project_tile *tile,
                      const int32_t *state,
                      const int32_t n) {
    const int32_t first = threadIdx.x / GROUP * MMLA_PROJECT_WG_ROWS;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    const int32_t end =
        tile->n_rows - first < MMLA_PROJECT_WG_ROWS ? tile->n_rows : first + MMLA_PROJECT_WG_ROWS;
#pragma unroll 1
    for (int32_t token = 0; token < tile->n_tokens; token++) {
#pragma unroll 1
        for (int32_t row = first + warp; row < end; row += GROUP / MMLA_PROJECT_WARP) {
            if ((state[row] | state[ROWS + token]) == 0) {
                continue;
            }
            const project_row w = project_row_get(p, tile, row, ROWS);
            const project_row x = project_row_get(p, tile, ROWS + token, ROWS);
            const uint16_t z = project_wg_odd_result(&w, &x);
            if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
                p->z[project_z_index(p, tile, row, token)] = z;
            }
        }
    }
}

/* The end of a tile. */
DEVICE void block_end(const mmla_project_params *p,
                      const block_smem *smem,
                      uint32_t idx,
                      const float *total,
                      int32_t parity,
                      const int32_t n) {
    const int32_t group = threadIdx.x / GROUP;
    const uint32_t results = smem->results + (uint32_t)(group * n * 2 * MMLA_PROJECT_WG_ROWS);
    const int32_t *state = smem->state + parity * (ROWS + n);
    const mmla_project_tile tile = tile_get(p, idx, n);
    const bool some_odd = smem->any[parity] != 0;
    results_stage(results, total, n);
    gpu_warps_sync(3 + group, GROUP);
    results_store(p, &tile, results, state, some_odd, n);
    if (some_odd) {
        odd_store(p, &tile, state, n);
    }
    gpu_warps_sync(3 + group,
                   GROUP); /* all have read the results, which the next tile's overwrite */
}

/* What the multiplying warps do, from the first tile to the last. */
DEVICE void block_multiply(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    weight_stream from;
    project_wg_step a[2];
    weight_begin(p, &from, blockIdx.x, n);
#pragma unroll
    for (int32_t i = 0; i < AHEAD; i++) {
        weight_copy(smem, &from, i);
    }
    gpu_barrier_wait(smem->table_full, 0);
    weight_convert(smem, &from, &a[0], 0, 0, n);

    int32_t parity = 0;
#pragma unroll 1
    for (uint32_t idx = blockIdx.x; idx < n_tiles; idx += gridDim.x) {
        float total[N_MAX / 2];
#pragma unroll
        for (int32_t i = 0; i < n / 2; i++) {
            total[i] = 0.0f;
        }
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            float sums[N_MAX / 2];
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                gpu_barrier_wait(smem->full + step % STAGES * 8, step / STAGES);
                project_wg_step_multiply(
                    sums, &a[step % 2],
                    smem->stages + step % STAGES * n * MMLA_PROJECT_WG_ROW_BYTES, step == 0, n);
                gpu_wgmma_wait_but_newest(); /* the step before is done: its stage, its registers */
                if (step > 0 && is_first_lane) {
                    gpu_barrier_arrive(smem->empty + (step - 1) % STAGES * 8);
                }
                /* The step after this one, which may be of the next segment or tile. */
                const int32_t next = (step + 1) % STEPS;
                const int32_t of = (segment + (step + 1) / STEPS) % MMLA_PROJECT_SEGMENTS;
                if (next == 0 && (of != 0 || idx + gridDim.x < n_tiles)) {
                    gpu_barrier_wait(smem->table_full + of % TABLES * 8, of / TABLES % 2);
                }
                if (next == STEPS - AHEAD && segment == LAST_SEGMENT) {
                    weight_begin(p, &from, idx + gridDim.x, n);
                }
                weight_convert(smem, &from, &a[(step + 1) % 2], next, of % TABLES, n);
            }
            gpu_wgmma_wait_all();
            gpu_wgmma_use(sums, n / 2);
            if (is_first_lane) {
                gpu_barrier_arrive(smem->empty + (STEPS - 1) % STAGES * 8);
            }
            sums_add(smem, total, sums, segment % TABLES, n);
            __syncwarp();
            if (is_first_lane) {
                gpu_barrier_arrive(smem->table_empty + segment % TABLES * 8);
            }
        }
        block_end(p, smem, idx, total, parity, n);
        parity ^= 1;
    }
    gpu_cp_async_wait_all();
}

DEVICE void block_begin(const block_smem *smem) {
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < STAGES; i++) {
            gpu_barrier_init(smem->full + i * 8, LOAD_WARPS);
            gpu_barrier_init(smem->empty + i * 8, MATH_WARPS);
        }
        for (int32_t i = 0; i < TABLES; i++) {
            gpu_barrier_init(smem->table_full + i * 8, LOAD_WARPS);
            gpu_barrier_init(smem->table_empty + i * 8, MATH_WARPS + LOAD_WARPS);
        }
        gpu_barrier_inits_publish();
    }
    if (threadIdx.x < 2) {
        smem->any[threadIdx.x] = 0;
    }
    __syncthreads();
}

/* Elsewhere an empty kernel, which is never launched. */
#define KERNEL(tokens)                                                              \
    MMLA_KERNEL_BOUNDS(project_wgmma_block_sm90a_n##tokens, mmla_project_params,    \
                       MMLA_PROJECT_WG_BLOCK_THREADS, 1) {                          \
        if (!GPU_HAS_WGMMA) {                                                       \
            return;                                                                 \
        }                                                                           \
        extern __shared__ __align__(1024) uint8_t project_wgmma_block_shared[];     \
        const block_smem smem = block_smem_get(project_wgmma_block_shared, tokens); \
        block_begin(&smem);                                                         \
        if (threadIdx.x < MATH_THREADS) {                                           \
            GPU_REGISTERS_RAISE(MATH_REGISTERS);                                    \
            block_multiply(&p, &smem, tokens);                                      \
        } else if (threadIdx.x < MATH_THREADS + GROUP) {                            \
            GPU_REGISTERS_LOWER(LOAD_REGISTERS);                                    \
            block_load(&p, &smem, tokens);                                          \
        } else {                                                                    \
            GPU_REGISTERS_LOWER(TABLE_REGISTERS);                                   \
            block_tables(&p, &smem, tokens);                                        \
        }                                                                           \
    }
MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)
