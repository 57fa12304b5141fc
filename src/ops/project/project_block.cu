/* project_block.cu - the projection of many tokens: a block of threads goes through K together.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      2 * 4096 flop a result. H200's data sheet: 989 TFLOP/s bf16, which only wgmma reaches;
 *            mma.sync is expected to stay near 60 % of it. Second: conversion, 12 instructions for 4
 *            codes of either operand, so a tile of M rows and N tokens spends 3 * (M + N) * 64 / 128
 *            cycles a step on it and M * N * 64 / 2048 on products: 384 and 512 for 128 x 128, 192 and
 *            128 for 64 x 64. Both share the issue slots with the loads of fragments.
 *
 * MOVEMENT   w, x (memory) --cp.async 16 B--> codes [stages][M + N rows][64]    a thread's own, no barrier
 *            codes --place, scale--> values [2][M + N rows][64] bf16 (smem, swizzled): each code once a
 *            block, while the step before is multiplied
 *            values --ldmatrix--> fragments --mma--> sums of 512 columns --add--> total (registers)
 *            total --> smem [token][row] bf16 --> z
 *
 * TILES      128 rows x 128 tokens, a warp 64 x 32; or 64 x 64, a warp 32 x 16; K in steps of 64.
 *            Grid: row tiles * token tiles * groups.
 *
 * ROLES      all warps alike: 2 of rows by 4 of tokens for the products; for copies and conversion
 *            thread t has unit t mod 4 of rows t / 4, t / 4 + 64, ..
 *
 * BUDGET     smem   128 x 128: 256 * (4 * 64 + 256) + 128 * 260 + 1024 = 165,376 B, one block; an A100
 *                   has 166,912
 *                   64 x 64:   128 * (3 * 64 + 256) + 128 * 132 +  512 =  74,752 B, two or three; GPUs
 *                   of 8.6, 8.9 and 12.0 have 101,376
 *            regs   128 x 128: 64 sums, 64 of the total, 24 of fragments; at most 255
 *                   64 x 64: 16, 16, 12; at most 80 from 9.0 on, for three blocks
 *
 * BARRIERS   one a step: values of the next step are written, those of this one read. In front of it
 *            lies the last read of the codes whose place the next copies take.
 *
 * NUMERICS   project_map.h: exact bf16 operands, segments of 512 in the tensor core, 8 of them in fp32;
 *            the same bits as project_split.cu. Rows of other scales and NaN: project_rows.cuh.
 *
 * LIMITS     any rank, any number of tokens; operands aligned to 16 bytes
 */
#include "gpu/async.cuh"
#include "gpu/convert.cuh"
#include "gpu/mma.cuh"
#include "ops/project/project_rows.cuh"

enum {
    TILE_MAX = 128, /* rows, and tokens */
    ROW_WARPS = 2,
    TOKEN_WARPS = 4,
    M_TILES_MAX = TILE_MAX / ROW_WARPS / 16,
    N_TILES_MAX = TILE_MAX / TOKEN_WARPS / 8,
    ROWS_AT_ONCE = MMLA_PROJECT_THREADS / MMLA_PROJECT_STEP_UNITS,
    UNITS_MAX = 2 * TILE_MAX / ROWS_AT_ONCE, /* of a thread, a step */
    STEP_MMAS = MMLA_PROJECT_STEP_UNITS,     /* instructions along K, a step */
    VALUE_BYTES = 2 * MMLA_PROJECT_STEP,     /* a row of a step as bf16 */
    OUT_PAD = 8                              /* results more between tokens: they meet 8 banks on */
};

static_assert(ROW_WARPS * TOKEN_WARPS == MMLA_PROJECT_WARPS, "every warp has its part of a tile");
static_assert(UNITS_MAX <= STEP_MMAS, "a unit is converted behind each instruction along K");
static_assert(MMLA_PROJECT_BLOCK_SMEM(128, 128, 4) == 165376 &&
                  MMLA_PROJECT_BLOCK_SMEM(64, 64, 3) == 74752,
              "as the page above says");
static_assert(TILE_MAX * (TILE_MAX + OUT_PAD) * 2 <= 2 * 2 * TILE_MAX * VALUE_BYTES &&
                  64 * (64 + OUT_PAD) * 2 <= 2 * 2 * 64 * VALUE_BYTES,
              "results fit where values were");

#define DEVICE static __device__ __forceinline__

/* The parts of shared memory; addresses for the instructions that take them. */
typedef struct block_smem {
    uint8_t *codes;  /* [stages][M + N][64] */
    uint8_t *values; /* [2][M + N][64] bf16 */
    uint8_t *scales; /* [128][M + N + 4]: exponents of factors */
    int32_t *state;  /* [M + N] */
    uint32_t codes_at, values_at;
} block_smem;

DEVICE block_smem block_smem_get(uint8_t *shared, const int rows, const int stages) {
    block_smem s;
    s.codes = shared;
    s.values = s.codes + stages * rows * MMLA_PROJECT_STEP;
    s.scales = s.values + 2 * rows * VALUE_BYTES;
    s.state = (int32_t *)(s.scales + MMLA_PROJECT_SCALES * (rows + 4));
    s.codes_at = gpu_smem_address(s.codes);
    s.values_at = gpu_smem_address(s.values);
    return s;
}

/* A thread's share of every step: unit threadIdx.x % 4 of rows first, first + 64, .. */
typedef struct share {
    const uint8_t *weight, *x;
    int64_t x_stride; /* between its tokens */
    int32_t n_rows, n_tokens;
    int32_t first;
} share;

DEVICE share share_get(const mmla_project_params *p, const mmla_project_tile *tile) {
    const int32_t first = threadIdx.x / MMLA_PROJECT_STEP_UNITS;
    const int64_t column = threadIdx.x % MMLA_PROJECT_STEP_UNITS * MMLA_PROJECT_UNIT;
    share s;
    s.weight =
        p->weight + column + ((int64_t)tile->g * p->rank + tile->row + first) * MMLA_PROJECT_DIM;
    s.x = p->x + column + ((tile->token + first) * p->n_groups + tile->g) * MMLA_PROJECT_DIM;
    s.x_stride = ROWS_AT_ONCE * (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    s.n_rows = tile->n_rows;
    s.n_tokens = tile->n_tokens;
    s.first = first;
    return s;
}

/* Begins to copy a step; closes the group of copies in any case, so that groups count steps. */
DEVICE void step_copy(const share *s,
                      const block_smem *smem,
                      int32_t step,
                      const int m,
                      const int n,
                      const int stages) {
    if (step < MMLA_PROJECT_STEPS) {
        const uint32_t to = smem->codes_at + step % stages * ((m + n) * MMLA_PROJECT_STEP) +
                            threadIdx.x * MMLA_PROJECT_UNIT;
        const int64_t column = step * MMLA_PROJECT_STEP;
#pragma unroll
        for (int i = 0; i < m / ROWS_AT_ONCE; i++) {
            gpu_cp_async16_zero_stream(to + i * ROWS_AT_ONCE * MMLA_PROJECT_STEP,
                                       s->weight + column +
                                           i * (int64_t)(ROWS_AT_ONCE * MMLA_PROJECT_DIM),
                                       s->first + i * ROWS_AT_ONCE < s->n_rows);
        }
#pragma unroll
        for (int i = 0; i < n / ROWS_AT_ONCE; i++) {
            gpu_cp_async16_zero_stream(to + (m + i * ROWS_AT_ONCE) * MMLA_PROJECT_STEP,
                                       s->x + column + i * s->x_stride,
                                       s->first + i * ROWS_AT_ONCE < s->n_tokens);
        }
    }
    gpu_cp_async_commit();
}

/* The exponents of all factors of the tile, and what is wrong with rows; true when something is. All
 * loads of a thread are asked for before the first is used. */
DEVICE bool scales_fill(const mmla_project_params *p,
                        const mmla_project_tile *tile,
                        const block_smem *smem,
                        const int m,
                        const int n) {
    enum {
        WORDS = MMLA_PROJECT_SCALE_WORDS, /* of a row */
        WORDS_AT_ONCE = MMLA_PROJECT_STEP_UNITS,
        TURNS = WORDS / WORDS_AT_ONCE
    };
    const int32_t rows = m + n, pitch = rows + 4;
    const int32_t word = threadIdx.x % WORDS_AT_ONCE, first = threadIdx.x / WORDS_AT_ONCE;
    int32_t wrong = 0;
#pragma unroll
    for (int i = 0; i < rows / ROWS_AT_ONCE; i++) {
        const int32_t row = first + i * ROWS_AT_ONCE;
        const project_row r = project_row_get(p, tile, row, m);
        uint32_t bytes[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            bytes[turn] = project_scales_load(&r, turn * WORDS_AT_ONCE + word);
        }
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int32_t at = turn * WORDS_AT_ONCE + word;
            const int32_t now = project_scales_state(&r, at, bytes[turn]);
            if (now != 0) {
                atomicOr(smem->state + row, now);
                wrong |= now;
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                smem->scales[(4 * at + k) * pitch + row] =
                    (uint8_t)mmla_project_factor_exponent(bytes[turn] >> 8 * k & 0xFFu);
            }
        }
    }
    return wrong != 0;
}

/* Unit i of a thread's share, from codes to values. */
DEVICE void unit_convert(const block_smem *smem,
                         int32_t step,
                         const int i,
                         uint32_t *found,
                         const int rows,
                         const int stages) {
    const int32_t unit = threadIdx.x % MMLA_PROJECT_STEP_UNITS;
    const int32_t row = threadIdx.x / MMLA_PROJECT_STEP_UNITS + i * ROWS_AT_ONCE;
    const uint4 codes = *(const uint4 *)(smem->codes + step % stages * (rows * MMLA_PROJECT_STEP) +
                                         row * MMLA_PROJECT_STEP + unit * MMLA_PROJECT_UNIT);
    const uint32_t group = 2 * step + unit / 2;
    const uint32_t factor = mmla_project_factor_pair(smem->scales[group * (rows + 4) + row]);
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t even[4], odd[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        even[k] = gpu_mul_bf16x2(mmla_project_place_even(words[k]), factor);
        odd[k] = gpu_mul_bf16x2(mmla_project_place_odd(words[k]), factor);
        *found = mmla_project_probe(*found, words[k]);
    }
    uint8_t *values = smem->values + step % 2 * (rows * VALUE_BYTES);
    *(uint4 *)(values + mmla_project_value_off(row, 2 * unit)) =
        make_uint4(even[0], even[1], even[2], even[3]);
    *(uint4 *)(values + mmla_project_value_off(row, 2 * unit + 1)) =
        make_uint4(odd[0], odd[1], odd[2], odd[3]);
}

/* Instruction k (of 4 along K) of a step, for all the warp's rows and tokens. */
DEVICE void columns_multiply(float sums[M_TILES_MAX][N_TILES_MAX][4],
                             uint32_t values,
                             const int k,
                             const int m,
                             const int n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x / MMLA_PROJECT_WARP;
    const int32_t row = warp % ROW_WARPS * (m / ROW_WARPS);
    const int32_t token = m + warp / ROW_WARPS * (n / TOKEN_WARPS);
    uint32_t a[M_TILES_MAX][4], b[N_TILES_MAX][2];
#pragma unroll
    for (int i = 0; i < m / ROW_WARPS / 16; i++) {
        gpu_ldmatrix_x4(a[i], values + (uint32_t)mmla_project_value_off(
                                           row + 16 * i + mmla_project_weight_row(lane),
                                           2 * k + mmla_project_weight_half(lane)));
    }
#pragma unroll
    for (int j = 0; j < n / TOKEN_WARPS / 8; j += 2) {
        uint32_t r[4];
        gpu_ldmatrix_x4(r, values + (uint32_t)mmla_project_value_off(
                                        token + 8 * j + mmla_project_token_row(lane),
                                        2 * k + mmla_project_token_half(lane)));
        b[j][0] = r[0];
        b[j][1] = r[1];
        b[j + 1][0] = r[2];
        b[j + 1][1] = r[3];
    }
#pragma unroll
    for (int i = 0; i < m / ROW_WARPS / 16; i++) {
#pragma unroll
        for (int j = 0; j < n / TOKEN_WARPS / 8; j++) {
            gpu_mma_bf16(sums[i][j], a[i], b[j]);
        }
    }
}

/* One step: its products, and between them the conversion of the next. */
DEVICE void step_run(float sums[M_TILES_MAX][N_TILES_MAX][4],
                     const share *from,
                     const block_smem *smem,
                     int32_t step,
                     uint32_t *found,
                     const int m,
                     const int n,
                     const int stages) {
    step_copy(from, smem, step + stages, m, n, stages);
    gpu_cp_async_wait(stages - 1); /* this thread's codes of the next step have come */
    const uint32_t values = smem->values_at + step % 2 * ((m + n) * VALUE_BYTES);
#pragma unroll
    for (int k = 0; k < STEP_MMAS; k++) {
        columns_multiply(sums, values, k, m, n);
        if (k < (m + n) / ROWS_AT_ONCE && step + 1 < MMLA_PROJECT_STEPS) {
            unit_convert(smem, step + 1, k, found, m + n, stages);
        }
    }
    __syncthreads();
}

/* total as bf16 to shared memory, [token][row]. */
DEVICE void results_stage(uint16_t *out,
                          const float total[M_TILES_MAX][N_TILES_MAX][4],
                          const int m,
                          const int n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x / MMLA_PROJECT_WARP;
    const int32_t row = warp % ROW_WARPS * (m / ROW_WARPS);
    const int32_t token = warp / ROW_WARPS * (n / TOKEN_WARPS);
#pragma unroll
    for (int i = 0; i < m / ROW_WARPS / 16; i++) {
#pragma unroll
        for (int j = 0; j < n / TOKEN_WARPS / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int32_t r = row + 16 * i + mmla_project_sum_row(lane, e);
                const int32_t t = token + 8 * j + mmla_project_sum_token(lane, e);
                out[t * (m + OUT_PAD) + r] =
                    mmla_bf16_from_f32(total[i][j][e] * MMLA_PROJECT_UNSHIFT);
            }
        }
    }
}

/* From there to z, two rows at a time where z allows it, but what `state` marks. */
DEVICE void results_store(const mmla_project_params *p,
                          const mmla_project_tile *tile,
                          const uint16_t *out,
                          const int32_t *state,
                          bool some_wrong,
                          const int m,
                          const int n) {
    for (int32_t e = threadIdx.x; e < m / 2 * n; e += MMLA_PROJECT_THREADS) {
        const int32_t row = e % (m / 2) * 2, token = e / (m / 2);
        if (row >= tile->n_rows || token >= tile->n_tokens) { /* the number of rows is even */
            continue;
        }
        const uint16_t *pair = out + token * (m + OUT_PAD) + row;
        uint16_t *z = p->z + project_z_index(p, tile, row, token);
        if (p->z_in_pairs && !some_wrong) {
            *(uint32_t *)z = *(const uint32_t *)pair;
            continue;
        }
        for (int32_t i = 0; i < 2; i++) {
            if (!some_wrong || (state[row + i] | state[m + token]) == 0) {
                z[i] = pair[i];
            }
        }
    }
}

DEVICE void block_body(const mmla_project_params *p, const int m, const int n, const int stages) {
    extern __shared__ uint4 project_block_shared[];
    const block_smem smem = block_smem_get((uint8_t *)project_block_shared, m + n, stages);
    const mmla_project_tile tile = project_tile_of_block(p, m, n);
    const share from = share_get(p, &tile);
    for (int s = 0; s < stages; s++) {
        step_copy(&from, &smem, s, m, n, stages);
    }
    if (threadIdx.x < m + n) {
        smem.state[threadIdx.x] = 0;
    }
    __syncthreads();
    const bool scales_wrong = scales_fill(p, &tile, &smem, m, n);
    __syncthreads();

    uint32_t found = 0;
    gpu_cp_async_wait(stages - 1);
#pragma unroll
    for (int i = 0; i < (m + n) / ROWS_AT_ONCE; i++) {
        unit_convert(&smem, 0, i, &found, m + n, stages);
    }
    __syncthreads();

    float total[M_TILES_MAX][N_TILES_MAX][4] = {};
    for (int segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
        float sums[M_TILES_MAX][N_TILES_MAX][4] = {};
        for (int i = 0; i < MMLA_PROJECT_SEGMENT_STEPS; i++) {
            step_run(sums, &from, &smem, segment * MMLA_PROJECT_SEGMENT_STEPS + i, &found, m, n,
                     stages);
        }
#pragma unroll
        for (int i = 0; i < m / ROW_WARPS / 16; i++) {
#pragma unroll
            for (int j = 0; j < n / TOKEN_WARPS / 8; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    total[i][j][e] += sums[i][j][e];
                }
            }
        }
    }

    results_stage((uint16_t *)smem.values, total, m, n);
    const bool some_wrong =
        __syncthreads_or(scales_wrong || (found & MMLA_PROJECT_PROBE) != 0) != 0;
    if (some_wrong) {
        project_nan_codes_find(p, m, n, smem.state);
        __syncthreads();
    }
    results_store(p, &tile, (const uint16_t *)smem.values, smem.state, some_wrong, m, n);
    if (some_wrong) {
        project_marked_store(p, m, n, smem.state);
    }
}

/* Blocks a multiprocessor that registers must allow: GPUs before 9.0 have shared memory for two at most,
 * and need more registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BLOCKS(n) ((n) > 2 ? 2 : (n))
#else
#define BLOCKS(n) (n)
#endif

#define DEFINE_split(rows, tokens, stages, blocks)
#define DEFINE_block(rows, tokens, stages, blocks)                                 \
    MMLA_KERNEL_BOUNDS(project_block_sm80_m##rows##n##tokens, mmla_project_params, \
                       MMLA_PROJECT_THREADS, BLOCKS(blocks)) {                     \
        block_body(&p, rows, tokens, stages);                                      \
    }
#define KERNEL(structure, rows, tokens, stages, blocks, cost) \
    DEFINE_##structure(rows, tokens, stages, blocks)
MMLA_PROJECT_KERNELS(KERNEL)
