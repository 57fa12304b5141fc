/* project_split.cu - the projection of a few tokens: every warp of a block takes an eighth of K.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      a row of weight: 4096 + 128 bytes, read once from memory. G = 8, rank 1024: 34.6 MB, 7.2 us
 *            at 4.8 TB/s (H200). Second: conversion, 12 instructions for 4 codes, 128 lanes a
 *            multiprocessor and cycle: 33.5 M codes of weight take 3.4 us of 132 multiprocessors, and
 *            those of the tokens, converted again for every 32 rows, a quarter of that for every 8.
 *
 * MOVEMENT   w, x (memory) --cp.async 16 B--> ring [stages][32 + N rows][64 codes]       a warp's own
 *            ring --ldmatrix--> a word of 4 codes a thread --place, scale--> bf16 fragments (registers)
 *            fragments --mma--> sums [32][N] of 512 columns (registers)
 *            sums --> smem [token][row] --add 8 warps in order--> z
 *
 * TILES      M 32 rows of weight (they are the 16 of m16n8k16), N 8 or 16 tokens; K 512 a warp, in 8
 *            steps of 64. Grid: row tiles * token tiles * groups. At G = 8 that is 256 blocks, two for
 *            each of 124 multiprocessors: one wave.
 *
 * ROLES      all warps alike, each with its own ring, so that nothing but its lanes need meet until
 *            the end
 *
 * BUDGET     smem   N 8:  8 * 40 * (4 * 64 + 32) + 160 =  92,320 B        two blocks: 184,640 + 2 KiB
 *                   N 16: 8 * 48 * (3 * 64 + 32) + 192 =  86,208 B        of the 233,472 of an H200
 *            in flight, N 8: 2 blocks * 8 warps * 3 steps * 2,048 B of weight = 96 KiB a multiprocessor;
 *                   4.8 TB/s need about 30 KiB at 0.8 us
 *            regs   at most 128 a thread, for two blocks
 *
 * BARRIERS   __syncwarp between a warp's copies and its reads, and between its reads and the next
 *            copies to the same place; the block's at the start (state is clear), after the loop
 *            (sums are in smem), and around what is rare
 *
 * NUMERICS   project_map.h: exact bf16 operands, segments of 512 in the tensor core, 8 of them in fp32.
 *            Rows of other scales and NaN: project_rows.cuh.
 *
 * LIMITS     any rank, any number of tokens; operands aligned to 16 bytes
 */
#include "gpu/async.cuh"
#include "gpu/convert.cuh"
#include "gpu/mma.cuh"
#include "ops/project/project_rows.cuh"

enum {
    M = 32,
    M_TILES = M / 16,
    N_MAX = 16,
    N_TILES_MAX = N_MAX / 8,
    SUM_PITCH = M + 4 /* floats between tokens: threads of two tokens apart then meet 8 banks on */
};

static_assert(MMLA_PROJECT_SPLIT_SMEM(32, 8, 4) == 92320 &&
                  MMLA_PROJECT_SPLIT_SMEM(32, 16, 3) == 86208,
              "as the page above says");
static_assert(8 * SUM_PITCH * 4 <= 4 * (M + 8) * MMLA_PROJECT_STEP &&
                  16 * SUM_PITCH * 4 <= 3 * (M + 16) * MMLA_PROJECT_STEP,
              "a warp's sums fit where its ring was");

#define DEVICE static __device__ __forceinline__

/* What one warp has in shared memory. */
typedef struct warp_smem {
    uint8_t *ring;     /* [stages][M + N] rows of 64 codes, swizzled */
    uint32_t *factors; /* [8 steps][M + N]: two bf16, of the two groups of 32 of a step */
} warp_smem;

/* Where a lane's share of a step lies: rows lane / 4 and every eighth after it, unit lane % 4. */
typedef struct share {
    const uint8_t *weight, *x;
    int64_t x_stride; /* between its tokens */
    int32_t n_rows, n_tokens;
    int32_t first; /* row */
    uint32_t smem_off;
} share;

DEVICE share share_get(const mmla_project_params *p, const mmla_project_tile *tile, int32_t warp) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t first = lane / MMLA_PROJECT_STEP_UNITS, unit = lane % MMLA_PROJECT_STEP_UNITS;
    const int64_t column = warp * MMLA_PROJECT_SEGMENT + unit * MMLA_PROJECT_UNIT;
    share s;
    s.weight =
        p->weight + column + ((int64_t)tile->g * p->rank + tile->row + first) * MMLA_PROJECT_DIM;
    s.x = p->x + column + ((tile->token + first) * p->n_groups + tile->g) * MMLA_PROJECT_DIM;
    s.x_stride = 8 * (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    s.n_rows = tile->n_rows;
    s.n_tokens = tile->n_tokens;
    s.first = first;
    s.smem_off = (uint32_t)mmla_project_code_off(first, unit);
    return s;
}

/* Begins to copy a step into its place of the ring; closes the group of copies in any case, so that
 * groups count steps. */
DEVICE void step_copy(const share *s, uint32_t ring, int32_t step, const int n, const int stages) {
    if (step < MMLA_PROJECT_SEGMENT_STEPS) {
        const uint32_t to =
            ring + (uint32_t)(step % stages * (M + n) * MMLA_PROJECT_STEP) + s->smem_off;
        const int64_t column = step * MMLA_PROJECT_STEP;
#pragma unroll
        for (int i = 0; i < M / 8; i++) {
            gpu_cp_async16_zero_stream(to + 8 * i * MMLA_PROJECT_STEP,
                                       s->weight + column + 8 * i * (int64_t)MMLA_PROJECT_DIM,
                                       s->first + 8 * i < s->n_rows);
        }
#pragma unroll
        for (int i = 0; i < n / 8; i++) {
            gpu_cp_async16_zero(to + (M + 8 * i) * MMLA_PROJECT_STEP,
                                s->x + column + i * s->x_stride, s->first + 8 * i < s->n_tokens);
        }
    }
    gpu_cp_async_commit();
}

/* The factors of all rows for the warp's segment, and what is wrong with rows; true when something
 * is. All loads are asked for before the first is used. */
DEVICE bool factors_fill(const mmla_project_params *p,
                         const mmla_project_tile *tile,
                         int32_t warp,
                         uint32_t *factors,
                         int32_t *state,
                         const int n) {
    enum { WORDS = MMLA_PROJECT_SEGMENT / MMLA_PROJECT_GROUP / 4, TURNS_MAX = (M + N_MAX) / 8 };
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP, word = lane % WORDS;
    uint32_t bytes[TURNS_MAX];
    int32_t wrong = 0;
#pragma unroll
    for (int i = 0; i < (M + n) / 8; i++) {
        const project_row r = project_row_get(p, tile, lane / WORDS + 8 * i, M);
        bytes[i] = project_scales_load(&r, warp * WORDS + word);
    }
#pragma unroll
    for (int i = 0; i < (M + n) / 8; i++) {
        const int32_t row = lane / WORDS + 8 * i;
        const project_row r = project_row_get(p, tile, row, M);
        const int32_t now = project_scales_state(&r, warp * WORDS + word, bytes[i]);
        if (now != 0) {
            atomicOr(state + row, now);
            wrong |= now;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) { /* of the word: one step of 64 columns each */
            const uint32_t low = mmla_project_factor_exponent(bytes[i] >> 16 * half & 0xFFu);
            const uint32_t high = mmla_project_factor_exponent(bytes[i] >> (16 * half + 8) & 0xFFu);
            factors[(2 * word + half) * (M + n) + row] = low << 7 | high << 23;
        }
    }
    return wrong != 0;
}

/* A word of four codes to the two registers of an operand that it holds. */
DEVICE void
word_convert(uint32_t codes, uint32_t factor, uint32_t *even, uint32_t *odd, uint32_t *found) {
    *even = gpu_mul_bf16x2(mmla_project_place_even(codes), factor);
    *odd = gpu_mul_bf16x2(mmla_project_place_odd(codes), factor);
    *found = mmla_project_probe(*found, codes);
}

/* Half a step, 32 columns under one scale: two instructions for each 16 rows and 8 tokens. */
DEVICE void half_multiply(float sums[M_TILES][N_TILES_MAX][4],
                          uint32_t codes,
                          const uint32_t *factors,
                          const int half,
                          uint32_t *found,
                          const int n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP, group = lane / 4;
    const uint32_t pick = half == 0 ? 0x1010u : 0x3232u; /* the half's bf16, twice */
    uint32_t b[N_TILES_MAX][2][2], r[4];
#pragma unroll
    for (int j = 0; j < n / 8; j += 2) {
        const uint32_t at =
            codes + (uint32_t)mmla_project_code_off(
                        M + 8 * j + mmla_project_token_row(n == 8 ? lane & 15 : lane),
                        2 * half + mmla_project_token_half(lane));
        if (n == 8) {
            gpu_ldmatrix_x2(r, at);
        } else {
            gpu_ldmatrix_x4(r, at);
        }
#pragma unroll
        for (int t = j; t < j + 2 && t < n / 8; t++) {
            const uint32_t factor = __byte_perm(factors[M + 8 * t + group], 0, pick);
            word_convert(r[2 * (t - j)], factor, &b[t][0][0], &b[t][0][1], found);
            word_convert(r[2 * (t - j) + 1], factor, &b[t][1][0], &b[t][1][1], found);
        }
    }
#pragma unroll
    for (int i = 0; i < M_TILES; i++) {
        const uint32_t low = __byte_perm(factors[16 * i + group], 0, pick);
        const uint32_t high = __byte_perm(factors[16 * i + 8 + group], 0, pick);
        uint32_t a[2][4];
        gpu_ldmatrix_x4(
            r, codes + (uint32_t)mmla_project_code_off(16 * i + mmla_project_weight_row(lane),
                                                       2 * half + mmla_project_weight_half(lane)));
        word_convert(r[0], low, &a[0][0], &a[0][2], found);
        word_convert(r[1], high, &a[0][1], &a[0][3], found);
        word_convert(r[2], low, &a[1][0], &a[1][2], found);
        word_convert(r[3], high, &a[1][1], &a[1][3], found);
#pragma unroll
        for (int k = 0; k < 2; k++) {
#pragma unroll
            for (int t = 0; t < n / 8; t++) {
                gpu_mma_bf16(sums[i][t], a[k], b[t][k]);
            }
        }
    }
}

/* Stores a tile from the sums of all warps, but what `state` marks. */
DEVICE void results_store(const mmla_project_params *p,
                          const mmla_project_tile *tile,
                          const uint8_t *shared,
                          int32_t ring_bytes,
                          const int32_t *state,
                          bool some_wrong,
                          const int n) {
    for (int32_t e = threadIdx.x; e < M * n; e += MMLA_PROJECT_THREADS) {
        const int32_t row = e % M, token = e / M;
        if (row >= tile->n_rows || token >= tile->n_tokens ||
            (some_wrong && (state[row] | state[M + token]) != 0)) {
            continue;
        }
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < MMLA_PROJECT_WARPS; w++) {
            sum += ((const float *)(shared + w * ring_bytes))[token * SUM_PITCH + row];
        }
        p->z[project_z_index(p, tile, row, token)] = mmla_bf16_from_f32(sum * MMLA_PROJECT_UNSHIFT);
    }
}

DEVICE void split_body(const mmla_project_params *p, const int n, const int stages) {
    extern __shared__ uint4 project_split_shared[];
    uint8_t *shared = (uint8_t *)project_split_shared;
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x / MMLA_PROJECT_WARP;
    const int32_t ring_bytes = stages * (M + n) * MMLA_PROJECT_STEP;
    const int32_t factor_bytes = MMLA_PROJECT_SEGMENT_STEPS * (M + n) * (int32_t)sizeof(uint32_t);
    const warp_smem mine = {
        shared + warp * ring_bytes,
        (uint32_t *)(shared + MMLA_PROJECT_WARPS * ring_bytes + warp * factor_bytes)};
    int32_t *state = (int32_t *)(shared + MMLA_PROJECT_WARPS * (ring_bytes + factor_bytes));
    const mmla_project_tile tile = project_tile_of_block(p, M, n);

    const share from = share_get(p, &tile, warp);
    const uint32_t ring = gpu_smem_address(mine.ring);
    for (int s = 0; s < stages - 1; s++) {
        step_copy(&from, ring, s, n, stages);
    }
    if (threadIdx.x < M + n) {
        state[threadIdx.x] = 0;
    }
    __syncthreads();
    const bool scales_wrong = factors_fill(p, &tile, warp, mine.factors, state, n);

    float sums[M_TILES][N_TILES_MAX][4] = {};
    uint32_t found = 0;
    for (int step = 0; step < MMLA_PROJECT_SEGMENT_STEPS; step++) {
        gpu_cp_async_wait(stages - 2); /* this step has come */
        __syncwarp(); /* for all lanes; and the step before is read, so its place is free */
        step_copy(&from, ring, step + stages - 1, n, stages);
        const uint32_t codes = ring + (uint32_t)(step % stages * (M + n) * MMLA_PROJECT_STEP);
        const uint32_t *factors = mine.factors + step * (M + n);
        half_multiply(sums, codes, factors, 0, &found, n);
        half_multiply(sums, codes, factors, 1, &found, n);
    }

    __syncwarp(); /* all lanes have read the ring, which now takes the sums */
#pragma unroll
    for (int i = 0; i < M_TILES; i++) {
#pragma unroll
        for (int t = 0; t < n / 8; t++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                ((float *)mine.ring)[(8 * t + mmla_project_sum_token(lane, e)) * SUM_PITCH +
                                     16 * i + mmla_project_sum_row(lane, e)] = sums[i][t][e];
            }
        }
    }
    const bool some_wrong =
        __syncthreads_or(scales_wrong || (found & MMLA_PROJECT_PROBE) != 0) != 0;
    if (some_wrong) {
        project_nan_codes_find(p, M, n, state);
        __syncthreads();
    }
    results_store(p, &tile, shared, ring_bytes, state, some_wrong, n);
    if (some_wrong) {
        project_marked_store(p, M, n, state);
    }
}

#define DEFINE_split(rows, tokens, stages, blocks)                                 \
    static_assert(rows == M && tokens <= N_MAX, "the tile that the body has");     \
    MMLA_KERNEL_BOUNDS(project_split_sm80_m##rows##n##tokens, mmla_project_params, \
                       MMLA_PROJECT_THREADS, blocks) {                             \
        split_body(&p, tokens, stages);                                            \
    }
#define DEFINE_block(rows, tokens, stages, blocks)
#define KERNEL(structure, rows, tokens, stages, blocks, cost) \
    DEFINE_##structure(rows, tokens, stages, blocks)
MMLA_PROJECT_KERNELS(KERNEL)
