/* project_wide_few_math.cuh - what a warpgroup of project_wide_few.cu does with its part of K: scales and codes of its
 * tokens to registers, weight to stages, products.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_MATH_CUH
#define MMLA_OPS_PROJECT_WIDE_FEW_MATH_CUH

#include "ops/project/project_wide_few.cuh"

/* One of a thread's two tokens. A quad of threads has the same, and a quarter of its scale words each: of lines lane % 4
 * of the part of K, and every fourth from there. */
typedef struct few_token {
    const uint8_t *from; /* the first word */
    uint32_t words[WORDS];
    float factor; /* of sums of the part of K */
} few_token;

/* Of the tile. The last one stands in for one that does not exist, so that there is something to read. */
DEVICE int32_t token_get(const mmla_project_tile *tile, const few_place *at, const int32_t half) {
    const int32_t token = at->token + 8 * half;
    return token < tile->n_tokens ? token : tile->n_tokens - 1;
}

DEVICE void words_begin(const mmla_project_few_params *p,
                        const mmla_project_tile *tile,
                        const few_place *at,
                        few_token token[HALVES]) {
    const mmla_project_scale_strides s = p->p.x_scale_strides;
    const uint8_t *first = p->p.x_scale + tile->token * s.token + tile->g * s.group +
                           (at->first_line + (int32_t)threadIdx.x % QUAD) * s.word;
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        token[half].from = first + token_get(tile, at, half) * (int32_t)s.token;
    }
}

/* Asks for them. Loads of words stand in a branch of their own: chosen one by one, each would wait for the one before. */
DEVICE void words_ask(const mmla_project_few_params *p, few_token token[HALVES]) {
    const int32_t lane = threadIdx.x % QUAD;
    const int64_t stride = QUAD * p->p.x_scale_strides.word;
    if (p->p.x_scale_in_words) {
#pragma unroll
        for (int32_t i = 0; i < WORDS * HALVES; i++) {
            few_token *t = &token[i % HALVES];
            t->words[i / HALVES] = 0;
            if (lane + i / HALVES * QUAD < p->n_lines) {
                t->words[i / HALVES] = gpu_load4(t->from + i / HALVES * stride);
            }
        }
    } else { /* rare */
#pragma unroll
        for (int32_t i = 0; i < WORDS * HALVES; i++) {
            few_token *t = &token[i % HALVES];
            t->words[i / HALVES] = 0;
            if (lane + i / HALVES * QUAD < p->n_lines) {
                t->words[i / HALVES] = project_bytes_load(t->from + i / HALVES * stride);
            }
        }
    }
}

DEVICE uint32_t *exponents_at(const few_smem *smem, const few_place *at, const int32_t half) {
    return (uint32_t *)(smem->exponents +
                        (at->part * TOKENS + at->token + 8 * half) * MMLA_PROJECT_FEW_PITCH);
}

/* What the token's part of K needs: the lane's exponents to the table, its mark, its factor. By all lanes of a warp, which
 * another barrier of theirs must follow. */
DEVICE void words_take(const mmla_project_few_params *p,
                       const few_smem *smem,
                       const mmla_project_tile *tile,
                       const few_place *at,
                       few_token *t,
                       const int32_t half) {
    const int32_t lane = threadIdx.x % QUAD;
    uint32_t *to = exponents_at(smem, at, half) + lane;
    project_wide_range range = project_wide_range_none();
#pragma unroll
    for (int32_t i = 0; i < WORDS; i++) {
        if (lane + i * QUAD < p->n_lines) {
            project_wide_range_add(&range, &t->words[i], 1);
        }
    }
    mmla_project_wide_row row = project_wide_row_quick(range, QUAD);
#pragma unroll
    for (int32_t i = 0; i < WORDS; i++) {
        to[i * QUAD] = mmla_project_wide_exponents_plain(t->words[i], row.base);
    }
    if (!row.is_plain) { /* rare: small instead of fast */
        const project_row r = project_row_get(&p->p, tile, token_get(tile, at, half), 0);
        row = project_wide_row_any(&r, at->first_line * LINE_GROUPS, p->n_lines * LINE_GROUPS);
#pragma unroll
        for (int32_t i = 0; i < WORDS; i++) {
            to[i * QUAD] = mmla_project_wide_exponents(t->words[i], row.base);
        }
    }
    t->factor = row.factor;
    smem->token_marks[at->part * TOKENS + at->token + 8 * half] =
        row.is_odd ? PROJECT_ODD : 0; /* by all four alike */
}

/* Factor and mark of the thread's row of the tile, for the end. */
typedef struct few_row {
    float factor;
    int32_t mark;
} few_row;

DEVICE void row_ask(const mmla_project_few_params *p,
                    few_row *r,
                    const mmla_project_tile *tile,
                    const int32_t n) {
    if (threadIdx.x < n) {
        const int64_t at = tile->g * p->group_rows + tile->row;
        r->factor = __ldg(p->factors + at + threadIdx.x);
        r->mark = __ldg(p->marks + at + threadIdx.x);
    }
}

DEVICE void row_take(const few_smem *smem, const few_row *r, const int32_t n) {
    if (threadIdx.x < n) {
        smem->factors[threadIdx.x] = r->factor;
        smem->row_marks[threadIdx.x] = r->mark;
    }
}

/* A step's stage in the ring, and the parity of its phase. Parts of K take stages in turns. */
typedef struct few_ring {
    int32_t stage;
    uint32_t parity;
} few_ring;

/* What a thread keeps from step to step. */
typedef struct few_state {
    const uint8_t *from[HALVES]; /* its unit of the line that is used, of both tokens */
    uint4 codes[LINE_STEPS]
               [HALVES];        /* of the line's steps that are not done, and the next line's */
    uint32_t exponents[HALVES]; /* of the line, of its half of each step */
    project_wg_step a;
    few_ring ring, before; /* of this step, of the last */
} few_state;

DEVICE void codes_begin(const mmla_project_few_params *p,
                        const mmla_project_tile *tile,
                        const few_place *at,
                        few_state *m) {
    const uint8_t *x = p->p.x + (tile->token * p->p.n_groups + tile->g) * MMLA_PROJECT_DIM;
    const int32_t line_off =
        at->first_line * LINE + mmla_project_wg_unit(threadIdx.x) * MMLA_PROJECT_UNIT;
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        m->from[half] =
            x + (token_get(tile, at, half) * p->p.n_groups * MMLA_PROJECT_DIM + line_off);
    }
}

/* Asks for codes of a step of the line that lies so many bytes further on. */
DEVICE void codes_ask(few_state *m, const int32_t step, const int32_t on, bool exists) {
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        m->codes[step][half] =
            gpu_load16_or_zero(m->from[half] + on + step * MMLA_PROJECT_STEP, exists);
    }
}

/* Barriers, a stage's by a warp. */
DEVICE void barriers_begin(const few_smem *smem) {
    const int32_t stage = (int32_t)(threadIdx.x / MMLA_PROJECT_WARP);
    if (threadIdx.x % MMLA_PROJECT_WARP == 0) {
        gpu_barrier_init(smem->full + stage * 8, 1);
        gpu_barrier_init(smem->empty + stage * 8, GROUP_WARPS);
        gpu_barrier_inits_publish();
    }
    __syncwarp();
}

/* Weight of step `step` of K, of 64. */
DEVICE const uint8_t *
weight_at(const mmla_project_few_params *p, const mmla_project_tile *tile, int32_t step) {
    return p->codes + mmla_project_wide_off(p->p.rank, tile->g, tile->row, step);
}

/* Asks for it, to a stage, by one thread. */
DEVICE void stage_ask(const few_smem *smem, const uint8_t *weight, int32_t stage, const int32_t n) {
    gpu_barrier_arrive_expect(smem->full + stage * 8, (uint32_t)stage_bytes_of(n));
    gpu_bulk_load(smem->stages + (uint32_t)(stage * stage_bytes_of(n)), weight,
                  (uint32_t)stage_bytes_of(n), smem->full + stage * 8);
}

/* The stage that a warp asks for at the beginning, and what goes there, where there is so much. */
typedef struct few_first {
    const uint8_t *weight;
    int32_t stage;
    bool asks; /* this thread */
} few_first;

DEVICE few_first first_get(const mmla_project_few_params *p, const mmla_project_tile *tile) {
    few_first f;
    f.stage = (int32_t)(threadIdx.x / MMLA_PROJECT_WARP);
    const int32_t step = f.stage / PARTS;
    f.weight = weight_at(p, tile, first_line_get(p, f.stage % PARTS) * LINE_STEPS + step);
    f.asks = threadIdx.x % MMLA_PROJECT_WARP == 0 && step < p->n_lines * LINE_STEPS;
    return f;
}

/* All that a part of K needs at first. A multiprocessor gets some 47 bytes a cycle, in the order in which they were asked
 * for: scales, codes, a step of weight of each part; three more of each when scales are there. */
DEVICE void few_ask(const mmla_project_few_params *p,
                    const few_smem *smem,
                    const mmla_project_tile *tile,
                    const few_place *at,
                    few_token token[HALVES],
                    few_state *m,
                    const int32_t n) {
    const few_first first = first_get(p, tile);
    few_row row;
    words_begin(p, tile, at, token);
    codes_begin(p, tile, at, m);
    barriers_begin(smem);
    gpu_begin(false);
    words_ask(p, token);
#pragma unroll
    for (int32_t step = 0; step < LINE_STEPS; step++) {
        codes_ask(m, step, 0, true);
    }
    if (first.asks && first.stage < PARTS) {
        stage_ask(smem, first.weight, first.stage, n);
    }
    __syncwarp();
    row_ask(p, &row, tile, n);
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        words_take(p, smem, tile, at, &token[half], half);
    }
    if (first.asks && first.stage >= PARTS) {
        stage_ask(smem, first.weight, first.stage, n);
    }
    __syncwarp();
    row_take(smem, &row, n);
    __syncthreads(); /* barriers exist, and exponents */
}

/* Products of a step of a line. */
DEVICE void step_multiply(const mmla_project_few_params *p,
                          const few_smem *smem,
                          const mmla_project_tile *tile,
                          const few_place *at,
                          few_state *m,
                          float *sums,
                          int32_t line,
                          const int32_t step,
                          const int32_t n) {
    const int32_t next = line * LINE_STEPS + step - 1 + AHEAD; /* takes the place of the last */
    const bool replaces = (line > 0 || step > 0) && next < p->n_lines * LINE_STEPS;
    gpu_wgmma_wait_all(); /* who reads the registers, and the last stage */
    gpu_barrier_arrive_if(smem->empty + m->before.stage * 8,
                          replaces && threadIdx.x % MMLA_PROJECT_WARP == 0);
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        project_wg_half_convert(&m->a, m->codes[step][half],
                                m->exponents[half] >> 16 * step & 0xFFu, half);
    }
    codes_ask(m, step, LINE, line + 1 < p->n_lines);
    if (replaces && threadIdx.x % GROUP == 0) {
        gpu_barrier_wait(smem->empty + m->before.stage * 8, m->before.parity);
        stage_ask(smem, weight_at(p, tile, at->first_line * LINE_STEPS + next), m->before.stage, n);
    }
    __syncwarp();
    gpu_barrier_wait(smem->full + m->ring.stage * 8, m->ring.parity);
    project_wg_step_multiply(
        sums, &m->a, gpu_wgmma_tile(smem->stages + (uint32_t)(m->ring.stage * stage_bytes_of(n))),
        line == 0 && step == 0, n);
    m->before = m->ring;
    m->ring.stage = (m->ring.stage + PARTS) % STAGES;
    m->ring.parity ^= m->ring.stage < PARTS;
}

/* Sums of the warpgroup's part of K. */
DEVICE void few_multiply(const mmla_project_few_params *p,
                         const few_smem *smem,
                         const mmla_project_tile *tile,
                         const few_place *at,
                         few_state *m,
                         float *sums,
                         const int32_t n) {
    m->ring.stage = at->part;
    m->ring.parity = 0;
    m->before = m->ring;
#pragma unroll 1
    for (int32_t line = 0; line < p->n_lines; line++) {
#pragma unroll
        for (int32_t half = 0; half < HALVES; half++) {
            m->exponents[half] =
                exponents_at(smem, at, half)[line] >> 8 * (mmla_project_wg_unit(threadIdx.x) / 2);
        }
#pragma unroll
        for (int32_t step = 0; step < LINE_STEPS; step++) {
            step_multiply(p, smem, tile, at, m, sums, line, step, n);
        }
#pragma unroll
        for (int32_t half = 0; half < HALVES; half++) {
            m->from[half] += LINE;
        }
    }
    gpu_wgmma_wait_all();
    gpu_wgmma_use(sums, n / 2);
}

#endif
