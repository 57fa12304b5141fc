/* project_wide_math.cuh - what the multiplying warpgroups of project_wide.cu do: their tokens from codes to registers,
 * products, results.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_MATH_CUH
#define MMLA_OPS_PROJECT_WIDE_MATH_CUH

#include "ops/project/project_wide_store.cuh"
#include "ops/project/project_wide_tokens.cuh"

enum {
    WARP_COPIES = WARP_TOKENS / MMLA_PROJECT_WG_COPY_ROWS,
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    SCALE_STEPS = 4, /* whose scales are one word */
    ROUNDS = MMLA_PROJECT_STEPS / STEPS,
    PIECE = MMLA_PROJECT_WG_ROWS
};

/* Of the warp's 16 tokens, the lane's unit of the line to be copied next, in the first token that it copies of. */
typedef struct line_stream {
    const uint8_t *codes;
    int32_t n_tokens; /* from the lane's first one on to the last that the CTA has */
} line_stream;

DEVICE int32_t warp_token(void) {
    return threadIdx.x / MMLA_PROJECT_WARP * WARP_TOKENS;
}

/* The thread's first token; the second is eight more. */
DEVICE int32_t own_token(void) {
    return mmla_project_wg_row(threadIdx.x);
}

/* Bytes from a token's codes to the next one's. */
DEVICE int64_t codes_stride(const mmla_project_wide_params *p) {
    return (int64_t)p->p.n_groups * MMLA_PROJECT_DIM;
}

DEVICE void lines_begin(const mmla_project_wide_params *p,
                        line_stream *s,
                        const mmla_project_tile *tile,
                        const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t token = warp_token() + mmla_project_wg_copy_row(lane);
    s->codes = p->p.x + (tile->token + token) * codes_stride(p) +
               tile->g * (int64_t)MMLA_PROJECT_DIM +
               mmla_project_wg_copy_unit(lane) * MMLA_PROJECT_UNIT;
    s->n_tokens = tile->n_tokens - token;
}

/* Of tile idx, which may be none. */
DEVICE void
lines_turn(const mmla_project_wide_params *p, line_stream *s, uint32_t idx, const int32_t n) {
    s->n_tokens = 0;
    if (idx < p->n_tiles) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        lines_begin(p, s, &tile, n);
    }
}

/* Where the line of a step lies. */
DEVICE constexpr uint32_t line_place(const int32_t step) {
    return (uint32_t)(step / LINE_STEPS % LINES * MMLA_PROJECT_WIDE_LINE_BYTES);
}

/* The line of a step, and of the next, of the warp's tokens. */
DEVICE void line_copy(const mmla_project_wide_params *p,
                      const wide_smem *smem,
                      line_stream *s,
                      const int32_t step) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const uint32_t to =
        smem->lines + line_place(step) +
        (uint32_t)mmla_project_wg_weight_off(warp_token() + mmla_project_wg_copy_row(lane),
                                             mmla_project_wg_copy_unit(lane), TOKENS);
#pragma unroll
    for (int32_t i = 0; i < WARP_COPIES; i++) {
        gpu_cp_async16_zero_stream(to + i * MMLA_PROJECT_WG_COPY_ROWS * MMLA_PROJECT_STEP,
                                   s->codes + i * MMLA_PROJECT_WG_COPY_ROWS * codes_stride(p),
                                   s->n_tokens > i * MMLA_PROJECT_WG_COPY_ROWS);
    }
    gpu_cp_async_commit();
    s->codes += LINE;
}

/* Exponents of the thread's two tokens for its half of four steps, a byte each. */
typedef struct token_scales {
    uint32_t first, second;
} token_scales;

DEVICE void scales_load(
    const wide_smem *smem, token_scales *s, int32_t table, int32_t round, const int32_t step) {
    const uint32_t *at =
        (const uint32_t *)(smem->exponents + (table * TOKENS + own_token()) * TABLE_PITCH +
                           round * MMLA_PROJECT_WG_SCALES +
                           mmla_project_wg_unit(threadIdx.x) / 2 * STEPS) +
        step / SCALE_STEPS;
    s->first = at[0];
    s->second = at[8 * TABLE_PITCH / 4];
}

/* Until the line of the next step is there. Lanes have copied for each other. */
DEVICE void line_wait(void) {
    gpu_cp_async_wait(LINES - 1);
    __syncwarp();
}

/* The thread's codes of a step, of its first token, `half` 0, or its second. */
DEVICE uint4 codes_load(const wide_smem *smem, const int32_t half, const int32_t step) {
    const int32_t place = mmla_project_wg_weight_off(own_token() + 8 * half,
                                                     mmla_project_wg_unit(threadIdx.x), TOKENS);
    return gpu_smem_load16(smem->lines + line_place(step) +
                           step % LINE_STEPS * MMLA_PROJECT_WG_WEIGHT_STEP(TOKENS) +
                           (uint32_t)place);
}

/* The thread's codes of a step to registers. */
DEVICE void codes_convert(const wide_smem *smem,
                          project_wg_step *a,
                          const token_scales *scales,
                          const int32_t step) {
    const int32_t shift = 8 * (step % SCALE_STEPS);
    const uint32_t exponents[2] = {scales->first >> shift & 0xFFu, scales->second >> shift & 0xFFu};
#pragma unroll
    for (int32_t half = 0; half < 2; half++) {
        project_wg_half_convert(a, codes_load(smem, half, step), exponents[half], half);
    }
}

/* A lane's: nobody of the warp needs a stage any more, which lane i tells CTA i of those that have asked for it. */
DEVICE void stage_release(uint32_t empty, int32_t sharers, const int32_t stage) {
    if ((int32_t)threadIdx.x % MMLA_PROJECT_WARP < sharers) {
        gpu_cluster_arrive(empty + stage * 8);
    }
}

/* Results of the warp's tokens that are odd, or whose row of weight is: of 32 rows at a time, those. */
DEVICE void odd_store(const mmla_project_wide_params *p,
                      const mmla_project_tile *tile,
                      const int32_t *state,
                      const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t last_token = warp_token() + WARP_TOKENS;
#pragma unroll 1
    for (int32_t rows = 0; rows < tile->n_rows; rows += MMLA_PROJECT_WARP) {
        const bool exists = rows + lane < tile->n_rows;
        const int32_t own = exists ? state[rows + lane] : 0;
#pragma unroll 1
        for (int32_t token = warp_token(); token < last_token && token < tile->n_tokens; token++) {
            uint32_t odd =
                __ballot_sync(PROJECT_ALL_LANES, exists && (own | state[n + token]) != 0);
            for (; odd != 0; odd &= odd - 1) {
                project_wg_odd_store(&p->p, tile, rows + __ffs((int)odd) - 1, token, n);
            }
        }
    }
}

/* Sums of a tile times factors as bf16 to z, by the warp's own piece of shared memory. */
DEVICE void wide_end(const mmla_project_wide_params *p,
                     const wide_smem *smem,
                     uint32_t idx,
                     int32_t table,
                     const float *sums,
                     const int32_t n) {
    const mmla_project_tile tile = tile_get(p, idx, n);
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const float *factors = smem->factors + table * (n + TOKENS);
    const int32_t *state = smem->state + table * (n + TOKENS);
    const bool some_odd = (*any_row(smem, table) | *any_token(smem, table, warp_token())) != 0;
    const float x[2] = {factors[n + own_token()], factors[n + own_token() + 8]};
    const uint32_t piece =
        smem->pieces + threadIdx.x / MMLA_PROJECT_WARP * MMLA_PROJECT_WIDE_PIECE_BYTES;
    enum { CHUNKS = PIECE / 8, EVERY = MMLA_PROJECT_WARP / CHUNKS };
    /* A lane stores chunk `chunk` of every so manyth token. */
    const int32_t token = warp_token() + lane / CHUNKS, chunk = lane % CHUNKS;
    const int64_t stride = (int64_t)EVERY * p->p.n_groups * p->p.rank;
    uint16_t *z = p->p.z + project_z_index(&p->p, &tile, 8 * chunk, token);
#pragma unroll
    for (int32_t first = 0; first < n; first += PIECE) {
#pragma unroll
        for (int32_t eight = 0; eight < CHUNKS; eight += 2) {
            uint32_t r[4];
#pragma unroll
            for (int32_t i = 0; i < 2; i++) {
                const float *s = sums + (first + (eight + i) * 8) / 2;
                const float2 w =
                    *(const float2 *)(factors + first + (eight + i) * 8 + threadIdx.x % 4 * 2);
                r[2 * i] = gpu_bf16x2_from_f32x2(s[0] * (x[0] * w.x), s[1] * (x[0] * w.y));
                r[2 * i + 1] = gpu_bf16x2_from_f32x2(s[2] * (x[1] * w.x), s[3] * (x[1] * w.y));
            }
            /* Matrix lane / 8 of four: tokens 8 (lane / 8 % 2), rows 8 (lane / 16) of 16. */
            gpu_stmatrix_x4(
                piece + (uint32_t)mmla_project_wg_result_off(lane % 16, eight + lane / 16), r);
        }
        __syncwarp();
        uint16_t *at = z + first;
#pragma unroll
        for (int32_t i = 0; i < WARP_TOKENS / EVERY; i++, at += stride) {
            const uint4 results = gpu_smem_load16(
                piece + (uint32_t)mmla_project_wg_result_off(lane / CHUNKS + i * EVERY, chunk));
            const int32_t row = first + 8 * chunk;
            if (row < tile.n_rows && token + i * EVERY < tile.n_tokens) {
                project_wide_eight_store(&p->p, at, state + row, state[n + token + i * EVERY],
                                         some_odd, results);
            }
        }
        __syncwarp();
    }
    if (some_odd) {
        odd_store(p, &tile, state, n);
    }
}

/* Number of the cluster's tile `turn`. */
DEVICE uint32_t turn_tile(int32_t turn) {
    return gpu_cluster_number() + (uint32_t)turn * gpu_n_clusters();
}

/* What a multiplying thread keeps from step to step. */
typedef struct math_state {
    line_stream from;
    token_scales scales;
    uint32_t empty;  /* barriers of stages in CTA `lane` of those that share them */
    uint32_t parity; /* of full stages */
    int32_t turn, round;
    project_wg_step a[2];
} math_state;

/* Asks for the first lines, and makes the scales of the first tile's tokens: nobody else would be faster. */
DEVICE void math_begin(const mmla_project_wide_params *p,
                       const wide_smem *smem,
                       math_state *m,
                       const int32_t n) {
    enum { LANES = 4, AT_ONCE = MMLA_PROJECT_WARP / LANES };
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const mmla_project_tile tile = tile_get(p, turn_tile(0), n);
    token_share shares[WARP_TOKENS / AT_ONCE];
    m->empty = gpu_cluster_address(smem->empty, (uint32_t)(lane % p->sharers));
    m->parity = 0;
    lines_begin(p, &m->from, &tile, n);
    gpu_begin(false);
#pragma unroll
    for (int32_t i = 0; i < WARP_TOKENS / AT_ONCE; i++) {
        share_ask(p, &shares[i], &tile, warp_token() + i * AT_ONCE, LANES, n);
    }
#pragma unroll
    for (int32_t i = 0; i < LINES; i++) {
        line_copy(p, smem, &m->from, i * LINE_STEPS);
    }
    gpu_cluster_sync_end(); /* barriers exist, and flags are 0 */
    gpu_barrier_arrive_if(smem->asked, lane == 0);
#pragma unroll
    for (int32_t i = 0; i < WARP_TOKENS / AT_ONCE; i++) {
        if (share_write(smem, &shares[i], &tile, warp_token() + i * AT_ONCE, 0, LANES, n)) {
            *any_token(smem, 0, warp_token()) = 1;
        }
    }
    line_wait(); /* and for what other lanes wrote */
    scales_load(smem, &m->scales, 0, 0, 0);
    codes_convert(smem, &m->a[0], &m->scales, 0);
}

/* What the step after `step` takes, from codes to registers: it may be of the next round, or of the next tile, whose
 * table has to be there. After the second step of a line another takes its place. */
DEVICE void next_convert(const mmla_project_wide_params *p,
                         const wide_smem *smem,
                         math_state *m,
                         const int32_t step,
                         const int32_t n) {
    const int32_t next = (step + 1) % STEPS;
    const bool is_last = m->round == ROUNDS - 1, is_of_next = next == 0 && is_last;
    if (is_of_next && turn_tile(m->turn + 1) < p->n_tiles) {
        gpu_barrier_wait(smem->table_full + (m->turn + 1) % TABLES * 8,
                         (uint32_t)((m->turn + 1) / TABLES % 2));
    }
    if (next % SCALE_STEPS == 0) {
        const int32_t round = is_of_next ? 0 : next == 0 ? m->round + 1 : m->round;
        scales_load(smem, &m->scales, (m->turn + is_of_next) % TABLES, round, next);
    }
    if (next % LINE_STEPS == 0) {
        line_wait();
    }
    codes_convert(smem, &m->a[next % 2], &m->scales, next);
    if (next % LINE_STEPS == LINE_STEPS - 1) {
        if (next == STEPS - LINES * LINE_STEPS + LINE_STEPS - 1 && is_last) {
            lines_turn(p, &m->from, turn_tile(m->turn + 1), n);
        }
        __syncwarp();
        line_copy(p, smem, &m->from, next);
    }
}

/* Products of a step, and under them the next one's codes to registers. */
DEVICE void step_multiply(const mmla_project_wide_params *p,
                          const wide_smem *smem,
                          math_state *m,
                          float *sums,
                          const int32_t step,
                          const int32_t n) {
    const int32_t stage = step % stages_of(n);
    gpu_barrier_wait(smem->full + stage * 8, m->parity ^ (uint32_t)(step / stages_of(n) % 2));
    project_wg_step_multiply(
        sums, &m->a[step % 2],
        gpu_wgmma_tile(smem->stages + (uint32_t)(stage * n * MMLA_PROJECT_WG_ROW_BYTES)),
        m->round == 0 && step == 0, n);
    gpu_wgmma_wait_but_newest(); /* the step before is done: its stage, its registers */
    if (step > 0) {
        stage_release(m->empty, p->sharers, (step - 1) % stages_of(n));
    }
    next_convert(p, smem, m, step, n);
}

/* Products and results, from the first tile to the last. */
DEVICE void
wide_multiply(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    math_state m;
    math_begin(p, smem, &m, n);
#pragma unroll 1
    for (m.turn = 0; turn_tile(m.turn) < p->n_tiles; m.turn++) {
        float sums[N_MAX / 2];
#pragma unroll 1
        for (m.round = 0; ROUNDS > m.round; m.round++) {
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                step_multiply(p, smem, &m, sums, step, n);
            }
            gpu_wgmma_wait_all();
            stage_release(m.empty, p->sharers, (STEPS - 1) % stages_of(n));
            m.parity ^= (uint32_t)(STEPS / stages_of(n) % 2);
        }
        gpu_wgmma_use(sums, n / 2);
        if (m.turn == 0) {
            gpu_barrier_wait(smem->table_full, 0); /* what is known of weight */
        }
        wide_end(p, smem, turn_tile(m.turn), m.turn % TABLES, sums, n);
        gpu_barrier_arrive(smem->table_empty + m.turn % TABLES * 8);
    }
    gpu_cp_async_wait_all();
}

#endif
