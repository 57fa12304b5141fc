/* project_wgmma_block.cu - the projection of many tokens on Hopper.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      A step of 64 columns of 128 rows and N tokens takes 4 N cycles of the matrix units: 512 for
 *            N = 128. Beside it, in cycles: shared memory at 128 bytes each, tokens written once and read
 *            by each warpgroup, 128 + 256 for N = 128; conversion, an instruction a code of which half
 *            run at half rate, 128 issue slots of four schedulers, and 90 more for loads, stores and
 *            scales; L2, 64 (128 + N) bytes, 32 a cycle for N = 128 and 48 for N = 64: of what all
 *            multiprocessors can get at once that is nearly all, and too much.
 *
 * MOVEMENT   w (L2) --ld 16 B--> codes (registers) --convert--> a (registers) --wgmma--> sums
 *            x (L2) --ld 16 B--> codes (registers) --convert--> stage (smem, fp16) --wgmma--> sums
 *            sums of 512 columns * factors --add--> total (registers) --stmatrix--> results --16 B--> z
 *
 * TILES      128 rows x 64 or 128 tokens; K in steps of 64. CTAs are as many as multiprocessors, and take
 *            tiles in turns.
 *
 * ROLES      warps 0 .. 7     two warpgroups: 64 rows each, their conversion, products, results   200 regs
 *            warps 8 .. 11    tokens, and the scales of both                                      104
 *
 * BUDGET     smem   N 128: 4 * 16 KB stages, 32 KB results, 12 KB of scales, factors and marks, twice
 *                   each, 128 of barriers: 110,720 B
 *            regs   of a multiplying thread: 64 sums, 64 of the total, 2 * 16 of a, 16 of codes.
 *                   384 threads begin with 168 each: 504 a lane of three warpgroups, 2 * 200 + 104 = 504
 *
 * BARRIERS   full[stage]      4 loading warps -> multiplying ones: a step of tokens is there
 *            empty[stage]     8 multiplying warps -> loading ones: its products are done
 *                             A segment is 8 steps, two rounds of the stages, so that parities are
 *                             those of the step within its segment.
 *            bar 1            all, once: barriers, and the scales of the first segment
 *            bar 2            loading warps: a table of scales is written
 *            bar 3, 4         each multiplying warpgroup: its results are staged; they are stored
 *            Scales of the next segment are written in step 4, to the table of the one before this. The
 *            stage of step 4 was empty: step 0 of this segment is done, so nobody reads that table any
 *            more. Who has seen step 4 full sees the new one. The marks of a tile are of the same rhythm.
 *
 * NUMERICS   project_wgmma_map.h. The same bits as project_wgmma_split.cu.
 *
 * LIMITS     Code for 9.0a. Any rank, any number of tokens; operands aligned to 16 bytes.
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
    LOAD_REGISTERS = 104,
    STEPS = MMLA_PROJECT_SEGMENT_STEPS,
    LAST_SEGMENT = MMLA_PROJECT_SEGMENTS - 1,
    TABLE_STEP = 4, /* in which the next segment's scales are written */
    W_AHEAD = 2,    /* steps of weight and of tokens that are on their way */
    X_AHEAD = 2,
    AT_ONCE =
        GROUP / MMLA_PROJECT_STEP_UNITS, /* tokens that the loading threads have side by side */
    TOKENS_MAX = N_MAX / AT_ONCE         /* of a loading thread */
};

static_assert(MMLA_PROJECT_WG_BLOCK_SMEM(128) == 110720, "as the page above says");
static_assert(STEPS % STAGES == 0 && STEPS / STAGES == 2 && TABLE_STEP >= STAGES &&
                  STEPS % W_AHEAD == 0 && STEPS % X_AHEAD == 0,
              "a step's stage, parities and registers are constants");
static_assert(2 * MATH_REGISTERS + LOAD_REGISTERS <= 3 * (65536 / 384 / 8 * 8),
              "registers that are given away suffice for those that are taken");

#define DEVICE static __device__ __forceinline__

/* The parts of shared memory. */
typedef struct block_smem {
    uint8_t *exponents; /* [2][ROWS + N][16] */
    float *factors;     /* [2][ROWS + N] */
    int32_t *state;     /* [2][ROWS + N], of the tile's parity: PROJECT_ODD */
    int32_t *any;       /* [2]: whether a row of the tile has a state */
    uint32_t stages, results, full, empty;
} block_smem;

DEVICE block_smem block_smem_get(uint8_t *shared, const int32_t n) {
    const int32_t rows = ROWS + n;
    block_smem s;
    s.stages = gpu_smem_address(shared);
    s.results = s.stages + STAGES * n * MMLA_PROJECT_WG_ROW_BYTES;
    s.exponents = shared + STAGES * n * MMLA_PROJECT_WG_ROW_BYTES + 2 * n * ROWS;
    s.factors = (float *)(s.exponents + 2 * rows * MMLA_PROJECT_WG_SCALES);
    s.state = (int32_t *)(s.factors + 2 * rows);
    s.any = s.state + 2 * rows;
    s.full = gpu_smem_address(s.any + 2);
    s.empty = s.full + STAGES * 8;
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

/* A thread's unit of tokens first, first + 32, .. of the step to be loaded next. */
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

DEVICE void tokens_load(token_stream *s, uint4 codes[TOKENS_MAX], const int32_t n) {
#pragma unroll
    for (int32_t q = 0; q < n / AT_ONCE; q++) {
        codes[q] = gpu_load16_or_zero(s->at + q * s->stride, q * AT_ONCE < s->n_tokens);
    }
    s->at += MMLA_PROJECT_STEP;
}

/* A step of tokens from codes to its stage. */
DEVICE void tokens_convert(const block_smem *smem,
                           const uint4 codes[TOKENS_MAX],
                           const int32_t step,
                           int32_t table,
                           const int32_t n) {
    const int32_t unit = mmla_project_wg_unit(threadIdx.x);
    const int32_t first = threadIdx.x % GROUP / MMLA_PROJECT_STEP_UNITS;
    const uint8_t *exponents = smem->exponents +
                               (table * (ROWS + n) + ROWS + first) * MMLA_PROJECT_WG_SCALES +
                               2 * step + unit / 2;
    const uint32_t tile = smem->stages + step % STAGES * n * MMLA_PROJECT_WG_ROW_BYTES;
    uint32_t exponent[TOKENS_MAX]; /* all are asked for before the first store */
#pragma unroll
    for (int32_t q = 0; q < n / AT_ONCE; q++) {
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

/* One row's line of a table, and its mark. */
DEVICE void segment_row_write(const block_smem *smem,
                              const project_row *r,
                              int32_t row,
                              int32_t segment,
                              int32_t parity,
                              const int32_t n) {
    const mmla_project_wg_segment s = project_wg_segment_get(r, segment);
    const int32_t at = segment % 2 * (ROWS + n) + row;
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

/* The table of a segment; thread i has row i of weight and then token i. */
DEVICE void segment_write(const mmla_project_params *p,
                          const block_smem *smem,
                          uint32_t idx,
                          int32_t segment,
                          int32_t parity,
                          const int32_t n) {
    const mmla_project_tile tile = tile_get(p, idx, n);
#pragma unroll 1
    for (int32_t row = threadIdx.x % GROUP; row < ROWS + n; row += GROUP) {
        const project_row r = project_row_get(p, &tile, row, ROWS);
        segment_row_write(smem, &r, row, segment, parity, n);
    }
}

/* What the loading warps do, from the first tile to the last. */
DEVICE void block_load(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    token_stream from;
    uint4 codes[X_AHEAD][TOKENS_MAX];
    from.stride = AT_ONCE * (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    tokens_begin(p, &from, blockIdx.x, n);
#pragma unroll
    for (int32_t i = 0; i < X_AHEAD; i++) {
        tokens_load(&from, codes[i], n);
    }
    segment_write(p, smem, blockIdx.x, 0, 0, n);
    gpu_warps_sync(1, MMLA_PROJECT_WG_BLOCK_THREADS);

    int32_t parity = 0; /* of the tile among the CTA's */
#pragma unroll 1
    for (uint32_t idx = blockIdx.x; idx < n_tiles; idx += gridDim.x) {
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            const bool is_last = segment == LAST_SEGMENT;
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                if (step == STEPS - X_AHEAD && is_last) {
                    tokens_begin(p, &from, idx + gridDim.x, n);
                }
                gpu_barrier_wait(smem->empty + step % STAGES * 8, step / STAGES ^ 1);
                tokens_convert(smem, codes[step % X_AHEAD], step, segment % 2, n);
                tokens_load(&from, codes[step % X_AHEAD], n);
                if (step == TABLE_STEP) {
                    if (segment == LAST_SEGMENT / 2 && threadIdx.x % GROUP == 0) {
                        smem->any[parity ^ 1] = 0; /* of the tile before, which is stored */
                    }
                    const uint32_t whose = is_last ? idx + gridDim.x : idx;
                    if (whose < n_tiles) {
                        segment_write(p, smem, whose, is_last ? 0 : segment + 1,
                                      parity ^ (int32_t)is_last, n);
                    }
                    gpu_warps_sync(2, GROUP);
                }
                gpu_fence_async();
                __syncwarp();
                if (is_first_lane) {
                    gpu_barrier_arrive(smem->full + step % STAGES * 8);
                }
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

DEVICE void weight_load(weight_stream *s, uint4 codes[2]) {
    codes[0] = gpu_load16_or_zero_stream(s->at, s->has_row);
    codes[1] = gpu_load16_or_zero_stream(s->at + 8 * MMLA_PROJECT_DIM, s->has_row_8);
    s->at += MMLA_PROJECT_STEP;
}

DEVICE void weight_convert(const block_smem *smem,
                           project_wg_step *a,
                           const uint4 codes[2],
                           const int32_t step,
                           int32_t table,
                           const int32_t n) {
    const uint8_t *exponents = smem->exponents +
                               (table * (ROWS + n) + own_row()) * MMLA_PROJECT_WG_SCALES +
                               2 * step + mmla_project_wg_unit(threadIdx.x) / 2;
    project_wg_step_convert(a, codes, exponents[0], exponents[8 * MMLA_PROJECT_WG_SCALES]);
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
    uint4 codes[W_AHEAD][2];
    project_wg_step a[2];
    weight_begin(p, &from, blockIdx.x, n);
#pragma unroll
    for (int32_t i = 0; i < W_AHEAD; i++) {
        weight_load(&from, codes[i]);
    }
    gpu_warps_sync(1, MMLA_PROJECT_WG_BLOCK_THREADS);
    weight_convert(smem, &a[0], codes[0], 0, 0, n);
    weight_load(&from, codes[0]);

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
                weight_convert(smem, &a[(step + 1) % 2], codes[next % W_AHEAD], next,
                               (segment + (step + 1) / STEPS) % 2, n);
                if (step == STEPS - 1 - W_AHEAD && segment == LAST_SEGMENT) {
                    weight_begin(p, &from, idx + gridDim.x, n);
                }
                weight_load(&from, codes[next % W_AHEAD]);
            }
            gpu_wgmma_wait();
            gpu_wgmma_use(sums, n / 2);
            if (is_first_lane) {
                gpu_barrier_arrive(smem->empty + (STEPS - 1) % STAGES * 8);
            }
            sums_add(smem, total, sums, segment % 2, n);
        }
        block_end(p, smem, idx, total, parity, n);
        parity ^= 1;
    }
}

DEVICE void block_begin(const block_smem *smem) {
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < STAGES; i++) {
            gpu_barrier_init(smem->full + i * 8, LOAD_WARPS);
            gpu_barrier_init(smem->empty + i * 8, MATH_WARPS);
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
        } else {                                                                    \
            GPU_REGISTERS_LOWER(LOAD_REGISTERS);                                    \
            block_load(&p, &smem, tokens);                                          \
        }                                                                           \
    }
MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)
