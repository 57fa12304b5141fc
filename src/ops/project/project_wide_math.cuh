/* project_wide_math.cuh - what the multiplying warpgroups of project_wide.cu do: their tokens from codes to registers,
 * products, results.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_MATH_CUH
#define MMLA_OPS_PROJECT_WIDE_MATH_CUH

#include "ops/project/project_wide_tokens.cuh"

enum {
    WARP_COPIES = WARP_TOKENS / MMLA_PROJECT_WG_COPY_ROWS,
    LINE = MMLA_PROJECT_WG_LINE,
    LINE_STEPS = MMLA_PROJECT_WG_LINE_STEPS,
    SCALE_STEPS = 4, /* whose scales are one word */
    PIECE = MMLA_PROJECT_WG_ROWS
};

/* Of the warp's 16 tokens, the lane's unit of the line to be copied next, in the first token that it copies of. */
typedef struct code_stream {
    const uint8_t *at;
    int32_t n_tokens; /* from the lane's first one on to the last that the CTA has */
} code_stream;

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

DEVICE void
codes_begin(const mmla_project_wide_params *p, code_stream *s, uint32_t idx, const int32_t n) {
    s->n_tokens = 0;
    if (idx < p->n_tiles) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
        const int32_t token = warp_token() + mmla_project_wg_copy_row(lane);
        s->at = p->p.x + (tile.token + token) * codes_stride(p) +
                tile.g * (int64_t)MMLA_PROJECT_DIM +
                split_get(p, n) * n_steps_get(p, n) * MMLA_PROJECT_STEP +
                mmla_project_wg_copy_unit(lane) * MMLA_PROJECT_UNIT;
        s->n_tokens = tile.n_tokens - token;
    }
}

/* Where the line of a step lies. */
DEVICE constexpr uint32_t line_place(const int32_t step, const int32_t n) {
    return (uint32_t)(step / LINE_STEPS % lines_of(n) * MMLA_PROJECT_WIDE_LINE_BYTES);
}

/* The line of a step, and of the next, of the warp's tokens. */
DEVICE void codes_copy(const mmla_project_wide_params *p,
                       const wide_smem *smem,
                       code_stream *s,
                       const int32_t step,
                       const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const uint32_t to =
        smem->codes + line_place(step, n) +
        (uint32_t)mmla_project_wg_weight_off(warp_token() + mmla_project_wg_copy_row(lane),
                                             mmla_project_wg_copy_unit(lane), TOKENS);
#pragma unroll
    for (int32_t i = 0; i < WARP_COPIES; i++) {
        gpu_cp_async16_zero_stream(to + i * MMLA_PROJECT_WG_COPY_ROWS * MMLA_PROJECT_STEP,
                                   s->at + i * MMLA_PROJECT_WG_COPY_ROWS * codes_stride(p),
                                   s->n_tokens > i * MMLA_PROJECT_WG_COPY_ROWS);
    }
    gpu_cp_async_commit();
    s->at += LINE;
}

/* Scales of the thread's two tokens for its half of four steps, a byte each. */
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

/* The thread's codes of a step, of two tokens. Lanes have copied lines for each other: the first step of a line waits
 * for it. */
DEVICE void codes_load(const wide_smem *smem, uint4 codes[2], const int32_t step, const int32_t n) {
    const uint32_t from = smem->codes + line_place(step, n) +
                          step % LINE_STEPS * MMLA_PROJECT_WG_WEIGHT_STEP(TOKENS) +
                          (uint32_t)mmla_project_wg_weight_off(
                              own_token(), mmla_project_wg_unit(threadIdx.x), TOKENS);
    if (step % LINE_STEPS == 0) {
        gpu_cp_async_wait(lines_of(n) - 1);
        __syncwarp();
    }
    codes[0] = gpu_smem_load16(from);
    codes[1] = gpu_smem_load16(from + 8 * MMLA_PROJECT_STEP);
}

/* To registers. After the second step of a line another takes its place. */
DEVICE void codes_convert(const mmla_project_wide_params *p,
                          const wide_smem *smem,
                          code_stream *s,
                          project_wg_step *a,
                          const uint4 codes[2],
                          const token_scales *scales,
                          const int32_t step,
                          const int32_t n) {
    const int32_t shift = 8 * (step % SCALE_STEPS);
    project_wg_step_convert(a, codes, scales->first >> shift & 0xFFu,
                            scales->second >> shift & 0xFFu);
    if (step % LINE_STEPS == LINE_STEPS - 1) {
        __syncwarp();
        codes_copy(p, smem, s, step, n);
    }
}

/* A lane's: nobody of the warp needs a stage any more, which lane i tells CTA i of those that have asked for it. */
DEVICE void stage_release(uint32_t empty, int32_t sharers, const int32_t stage) {
    if ((int32_t)threadIdx.x % MMLA_PROJECT_WARP < sharers) {
        gpu_cluster_arrive(empty + stage * 8);
    }
}

/* Eight results to z where it allows that at once, but what is odd; state is that of their rows. */
DEVICE void eight_store(const mmla_project_wide_params *p,
                        uint16_t *z,
                        const int32_t *state,
                        int32_t token_state,
                        bool some_odd,
                        uint4 eight) {
    if (p->p.z_in_chunks && !some_odd) {
        *(uint4 *)z = eight;
        return;
    }
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int32_t i = 0; i < 8; i++) {
        if ((state[i] | token_state) == 0) {
            z[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
        }
    }
}

/* Results of tokens first .. end - 1 that are odd, or whose row of weight is, by a warp: of 32 rows at a time, those. */
DEVICE void odd_store(const mmla_project_wide_params *p,
                      const mmla_project_tile *tile,
                      const int32_t *state,
                      int32_t first,
                      int32_t end,
                      const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
#pragma unroll 1
    for (int32_t rows = 0; rows < tile->n_rows; rows += MMLA_PROJECT_WARP) {
        const int32_t own = rows + lane < tile->n_rows ? state[rows + lane] : 0;
        const bool exists = rows + lane < tile->n_rows;
#pragma unroll 1
        for (int32_t token = first; token < end && token < tile->n_tokens; token++) {
            uint32_t odd =
                __ballot_sync(PROJECT_ALL_LANES, exists && (own | state[n + token]) != 0);
            for (; odd != 0; odd &= odd - 1) {
                project_wg_odd_store(&p->p, tile, rows + __ffs((int)odd) - 1, token, n);
            }
        }
    }
}

/* Sums times factors as bf16 to z, 64 rows at a time by the warp's own piece of shared memory. */
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
    const bool some_odd = smem->any[table] != 0;
    const float x[2] = {factors[n + own_token()], factors[n + own_token() + 8]};
    const uint32_t piece =
        smem->pieces + threadIdx.x / MMLA_PROJECT_WARP * MMLA_PROJECT_WIDE_PIECE_BYTES;
    /* A lane stores chunk `chunk` of every fourth token. */
    enum { EVERY = MMLA_PROJECT_WARP / (PIECE / 8) };
    const int32_t token = warp_token() + lane / (PIECE / 8), chunk = lane % (PIECE / 8);
    const int64_t stride = (int64_t)EVERY * p->p.n_groups * p->p.rank;
    uint16_t *z = p->p.z + project_z_index(&p->p, &tile, 8 * chunk, token);
#pragma unroll
    for (int32_t first = 0; first < n; first += PIECE) {
#pragma unroll
        for (int32_t eight = 0; eight < PIECE / 8; eight += 2) {
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
#pragma unroll
        for (int32_t i = 0; i < WARP_TOKENS / EVERY; i++) {
            const uint4 results =
                gpu_smem_load16(piece + (uint32_t)mmla_project_wg_result_off(
                                            lane / (PIECE / 8) + i * EVERY, chunk));
            if (first + 8 * chunk < tile.n_rows && token + i * EVERY < tile.n_tokens) {
                eight_store(p, z + i * stride + first, state + first + 8 * chunk,
                            state[n + token + i * EVERY], some_odd, results);
            }
        }
        __syncwarp();
    }
    if (some_odd) {
        odd_store(p, &tile, state, warp_token(), warp_token() + WARP_TOKENS, n);
    }
}

/* Sums of a part of K to the CTA's own memory, where weight was. All multiplying threads. */
DEVICE void sums_leave(const wide_smem *smem, const float *sums, const int32_t n) {
    gpu_cp_async_wait_all();
    gpu_warps_sync(BAR_MATH, MATH_THREADS); /* nobody multiplies, or copies, any more */
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 2) {
        const int32_t token = mmla_project_wg_sum_row(threadIdx.x, i);
        const int32_t row = mmla_project_wg_sum_token(threadIdx.x, i);
        *(float2 *)(smem->sums + token * MMLA_PROJECT_WIDE_SUM_PITCH(n) + row) =
            make_float2(sums[i], sums[i + 1]);
    }
}

/* The CTA's share of the tokens of all parts: their sums in order, times factors, to z. After a barrier of the
 * cluster; another must follow. */
DEVICE void parts_join(const mmla_project_wide_params *p,
                       const wide_smem *smem,
                       const int32_t splits,
                       const int32_t n) {
    const mmla_project_tile tile = tile_get(p, gpu_cluster_number(), n);
    const int32_t first = split_get(p, n) * (TOKENS / splits), end = first + TOKENS / splits;
    const float *factors = smem->factors;
    const int32_t *state = smem->state;
    const bool some_odd = smem->any[0] != 0;
    const int32_t row = threadIdx.x % (n / 8) * 8;
    uint32_t from[MMLA_PROJECT_WIDE_SPLITS_MAX];
#pragma unroll
    for (int32_t i = 0; i < splits; i++) {
        from[i] = gpu_cluster_address(gpu_smem_address(smem->sums + row),
                                      (uint32_t)(i * p->sharers + part_get(p)));
    }
#pragma unroll 2
    for (int32_t token = first + threadIdx.x / (n / 8); token < end;
         token += MATH_THREADS / (n / 8)) {
        const uint32_t at = (uint32_t)(token * MMLA_PROJECT_WIDE_SUM_PITCH(n)) * sizeof(float);
        float4 a[MMLA_PROJECT_WIDE_SPLITS_MAX], b[MMLA_PROJECT_WIDE_SPLITS_MAX];
#pragma unroll
        for (int32_t i = 0; i < splits; i++) {
            a[i] = gpu_cluster_load4(from[i] + at);
            b[i] = gpu_cluster_load4(from[i] + at + 16);
        }
        float s[8] = {a[0].x, a[0].y, a[0].z, a[0].w, b[0].x, b[0].y, b[0].z, b[0].w};
#pragma unroll
        for (int32_t i = 1; i < splits; i++) {
            s[0] += a[i].x;
            s[1] += a[i].y;
            s[2] += a[i].z;
            s[3] += a[i].w;
            s[4] += b[i].x;
            s[5] += b[i].y;
            s[6] += b[i].z;
            s[7] += b[i].w;
        }
        const float x = factors[n + token];
        uint32_t r[4];
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            r[i] = gpu_bf16x2_from_f32x2(s[2 * i] * (x * factors[row + 2 * i]),
                                         s[2 * i + 1] * (x * factors[row + 2 * i + 1]));
        }
        if (row < tile.n_rows && token < tile.n_tokens) {
            eight_store(p, p->p.z + project_z_index(&p->p, &tile, row, token), state + row,
                        state[n + token], some_odd, make_uint4(r[0], r[1], r[2], r[3]));
        }
    }
    if (some_odd) { /* a warp's share of the share */
        const int32_t share = (end - first) / MATH_WARPS;
        const int32_t begin = first + (int32_t)threadIdx.x / MMLA_PROJECT_WARP * share;
        odd_store(p, &tile, state, begin, begin + share, n);
    }
}

DEVICE void wide_join(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    if (p->splits == 2) {
        parts_join(p, smem, 2, n);
    } else {
        parts_join(p, smem, MMLA_PROJECT_WIDE_SPLITS_MAX, n);
    }
}

/* Number of the cluster's tile `turn`. */
DEVICE uint32_t turn_tile(int32_t turn) {
    return gpu_cluster_number() + (uint32_t)turn * gpu_n_clusters();
}

/* The codes of the step after `step`, and their scales where those are others: they may be of the next round, or of the
 * next tile, whose table has to be there. */
DEVICE void next_load(const mmla_project_wide_params *p,
                      const wide_smem *smem,
                      uint4 codes[2],
                      token_scales *scales,
                      int32_t turn,
                      int32_t round,
                      const int32_t step,
                      const int32_t n) {
    const int32_t next = (step + 1) % STEPS, n_rounds = n_steps_get(p, n) / STEPS;
    const bool is_of_next = next == 0 && round == n_rounds - 1;
    if (is_of_next && turn_tile(turn + 1) < p->n_tiles) {
        gpu_barrier_wait(smem->table_full + (turn + 1) % TABLES * 8,
                         (uint32_t)((turn + 1) / TABLES % 2));
    }
    if (next % SCALE_STEPS == 0) {
        const int32_t of = is_of_next ? 0 : next == 0 ? round + 1 : round;
        scales_load(smem, scales, (turn + is_of_next) % TABLES, split_get(p, n) * n_rounds + of,
                    next);
    }
    codes_load(smem, codes, next, n);
}

/* Products of the CTA's part of K, from the first tile to the last. With several parts there is one tile, whose sums
 * stay in shared memory. */
DEVICE void
wide_multiply(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const uint32_t empty = gpu_cluster_address(
        smem->empty, (uint32_t)(split_get(p, n) * p->sharers + lane % p->sharers));
    const int32_t n_rounds = n_steps_get(p, n) / STEPS;
    uint32_t parity = 0;
    code_stream from;
    token_scales scales;
    project_wg_step a[2];
    uint4 codes[2];
    codes_begin(p, &from, turn_tile(0), n);
#pragma unroll
    for (int32_t i = 0; i < lines_of(n); i++) {
        codes_copy(p, smem, &from, i * LINE_STEPS, n);
    }
    const mmla_project_tile first_tile = tile_get(p, turn_tile(0), n);
    const bool is_odd = tokens_write(p, smem, &first_tile, warp_token(), 0, n);
    gpu_cluster_sync_end(); /* barriers exist, and flags are 0 */
    if (is_odd) {
        smem->any[0] = 1;
    }
    __syncwarp();
    scales_load(smem, &scales, 0, split_get(p, n) * n_rounds, 0);
    codes_load(smem, codes, 0, n);
    codes_convert(p, smem, &from, &a[0], codes, &scales, 0, n);

#pragma unroll 1
    for (int32_t turn = 0; turn_tile(turn) < p->n_tiles; turn++) {
        float sums[N_MAX / 2];
#pragma unroll 1
        for (int32_t round = 0; round < n_rounds; round++) {
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                const int32_t stage = step % stages_of(n), next = (step + 1) % STEPS;
                gpu_barrier_wait(smem->full + stage * 8,
                                 parity ^ (uint32_t)(step / stages_of(n) % 2));
                project_wg_step_multiply(
                    sums, &a[step % 2],
                    gpu_wgmma_tile(smem->stages +
                                   (uint32_t)(stage * n * MMLA_PROJECT_WG_ROW_BYTES)),
                    round == 0 && step == 0, n);
                gpu_wgmma_wait_but_newest(); /* the step before is done: its stage, its registers */
                if (step > 0) {
                    stage_release(empty, p->sharers, (step - 1) % stages_of(n));
                }
                next_load(p, smem, codes, &scales, turn, round, step, n);
                /* After the second step of the last line but lines_of(n), the next tile's first is copied. */
                if (next == STEPS - lines_of(n) * LINE_STEPS + LINE_STEPS - 1 &&
                    round == n_rounds - 1) {
                    codes_begin(p, &from, turn_tile(turn + 1), n);
                }
                codes_convert(p, smem, &from, &a[(step + 1) % 2], codes, &scales, next, n);
            }
            gpu_wgmma_wait_all();
            stage_release(empty, p->sharers, (STEPS - 1) % stages_of(n));
            parity ^= (uint32_t)(STEPS / stages_of(n) % 2);
        }
        gpu_wgmma_use(sums, n / 2);
        if (turn == 0) {
            gpu_barrier_wait(smem->table_full, 0); /* what is known of weight */
        }
        if (splits_get(p, n) > 1) {
            sums_leave(smem, sums, n);
            break;
        }
        wide_end(p, smem, turn_tile(turn), turn % TABLES, sums, n);
        gpu_barrier_arrive(smem->table_empty + turn % TABLES * 8);
    }
    gpu_cp_async_wait_all();
}

#endif
