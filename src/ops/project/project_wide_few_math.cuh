/* project_wide_few_math.cuh - what a warpgroup of project_wide_few.cu does with its part of K: scales and codes of its
 * tokens, products.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_MATH_CUH
#define MMLA_OPS_PROJECT_WIDE_FEW_MATH_CUH

#include "ops/project/project_wide_few_feed.cuh"

/* One of a thread's two tokens. A quad of threads has the same, and a quarter of its scale words each: of lines lane % 4
 * of the part of K, and every fourth from there. */
typedef struct few_token {
    const uint8_t *from; /* the first word */
    uint32_t words[WORDS_MAX];
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
DEVICE void
words_ask(const mmla_project_few_params *p, few_token token[HALVES], const few_shape k) {
    const int32_t lane = threadIdx.x % QUAD;
    const int64_t stride = QUAD * p->p.x_scale_strides.word;
    if (p->p.x_scale_in_words) {
#pragma unroll
        for (int32_t i = 0; i < words_of(k) * HALVES; i++) {
            few_token *t = &token[i % HALVES];
            t->words[i / HALVES] = 0;
            if (lane + i / HALVES * QUAD < p->n_lines) {
                t->words[i / HALVES] = gpu_load4(t->from + i / HALVES * stride);
            }
        }
    } else { /* rare */
#pragma unroll
        for (int32_t i = 0; i < words_of(k) * HALVES; i++) {
            few_token *t = &token[i % HALVES];
            t->words[i / HALVES] = 0;
            if (lane + i / HALVES * QUAD < p->n_lines) {
                t->words[i / HALVES] = project_bytes_load(t->from + i / HALVES * stride);
            }
        }
    }
}

DEVICE uint32_t *
exponents_at(const few_smem *smem, const few_place *at, const int32_t half, const few_shape k) {
    return (uint32_t *)(smem->exponents + (at->part * k.tokens + at->token + 8 * half) *
                                              MMLA_PROJECT_FEW_PITCH(k.tokens));
}

/* What the token's part of K needs: the lane's exponents to the table, its mark, its factor. By all lanes of a warp, which
 * another barrier of theirs must follow. */
DEVICE void words_take(const mmla_project_few_params *p,
                       const few_smem *smem,
                       const mmla_project_tile *tile,
                       const few_place *at,
                       few_token *t,
                       const int32_t half,
                       const few_shape k) {
    const int32_t lane = threadIdx.x % QUAD;
    uint32_t *to = exponents_at(smem, at, half, k) + lane;
    project_wide_range range = project_wide_range_none();
#pragma unroll
    for (int32_t i = 0; i < words_of(k); i++) {
        if (lane + i * QUAD < p->n_lines) {
            project_wide_range_add(&range, &t->words[i], 1);
        }
    }
    mmla_project_wide_row row = project_wide_row_quick(range, QUAD);
#pragma unroll
    for (int32_t i = 0; i < words_of(k); i++) {
        to[i * QUAD] = mmla_project_wide_exponents_plain(t->words[i], row.base);
    }
    if (!row.is_plain) {               /* rare: small instead of fast */
        mmla_project_tile own = *tile; /* that begins with the token, and may have had none */
        own.token += token_get(tile, at, half);
        own.n_tokens = 1;
        const project_row r = project_row_get(&p->p, &own, 0, 0);
        row = project_wide_row_any(&r, at->first_line * LINE_GROUPS, p->n_lines * LINE_GROUPS);
#pragma unroll
        for (int32_t i = 0; i < words_of(k); i++) {
            to[i * QUAD] = mmla_project_wide_exponents(t->words[i], row.base);
        }
    }
    exponents_at(smem, at, half, k)[MMLA_PROJECT_FEW_LINES_MAX(k.tokens)] =
        __float_as_uint(row.factor); /* by all four alike */
    smem->token_marks[at->part * k.tokens + at->token + 8 * half] = row.is_odd ? PROJECT_ODD : 0;
}

/* The factor of sums of a token's part of K. */
DEVICE float
words_factor_get(const few_smem *smem, const few_place *at, const int32_t half, const few_shape k) {
    return __uint_as_float(exponents_at(smem, at, half, k)[MMLA_PROJECT_FEW_LINES_MAX(k.tokens)]);
}

/* The marks of the thread's two, in its part of K. */
DEVICE int32_t words_mark_get(const few_smem *smem, const few_place *at, const few_shape k) {
    const int32_t *marks = smem->token_marks + at->part * k.tokens + at->token;
    return marks[0] | marks[8];
}

/* Factor and mark of the thread's row of the tile, for the end. */
typedef struct few_row {
    float factor;
    int32_t mark;
} few_row;

DEVICE void row_ask(const mmla_project_few_params *p,
                    few_row *r,
                    const mmla_project_tile *tile,
                    const few_shape k) {
    if (threadIdx.x < k.rows) {
        const int64_t at = tile->g * p->group_rows + tile->row;
        r->factor = __ldg(p->factors + at + threadIdx.x);
        r->mark = __ldg(p->marks + at + threadIdx.x);
    }
}

DEVICE void row_take(const few_smem *smem, const few_row *r, const few_shape k) {
    if (threadIdx.x < k.rows) {
        smem->factors[threadIdx.x] = r->factor;
        smem->row_marks[threadIdx.x] = r->mark;
    }
}

/* What a thread has of its two tokens: codes of a step come to a place that no other thread reads. */
typedef struct few_codes {
    const uint8_t
        *from;     /* its unit of the first token, of the first step of this turn of the loop */
    int32_t eight; /* bytes from a token to the eighth from there */
    bool exists[HALVES]; /* the token */
    uint32_t at;         /* of the first of CODE_STEPS */
} few_codes;

DEVICE few_codes codes_get(const mmla_project_few_params *p,
                           const few_smem *smem,
                           const mmla_project_tile *tile,
                           const few_place *at) {
    few_codes codes;
    codes.from = p->p.x + ((tile->token + at->token) * p->p.n_groups + tile->g) * MMLA_PROJECT_DIM +
                 at->first_line * LINE + mmla_project_wg_unit(threadIdx.x) * MMLA_PROJECT_UNIT;
    codes.eight = 8 * p->p.n_groups * MMLA_PROJECT_DIM;
    codes.at = smem->codes + (uint32_t)(at->group * CODE_STEPS * HALVES * GROUP * 16 +
                                        (int32_t)threadIdx.x % GROUP * 16);
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        codes.exists[half] = at->token + 8 * half < tile->n_tokens;
    }
    return codes;
}

DEVICE uint32_t codes_place(const few_codes *codes, const int32_t step, const int32_t half) {
    return codes->at + (uint32_t)((step % CODE_STEPS * HALVES + half) * GROUP * 16);
}

/* Asks for those of step `step` of this turn, where there is one: a group of copies in any case. Of a token that does not
 * exist nothing is copied, and what happens to lie there is multiplied; the same line for all of them took 4 us. */
DEVICE void codes_ask(const few_codes *codes, const int32_t step, bool exists) {
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        gpu_cp_async16_if(codes_place(codes, step, half),
                          codes->from + half * codes->eight + step * MMLA_PROJECT_STEP,
                          exists && codes->exists[half]);
    }
    gpu_cp_async_commit();
}

/* All that a part of K needs at first. A multiprocessor gets what it asks for in about that order: scales, codes of two
 * steps, a step of weight of each part; the rest of what is under way when scales are there. */
DEVICE void few_ask(const mmla_project_few_params *p,
                    const few_smem *smem,
                    const mmla_project_tile *tile,
                    const few_place *at,
                    const few_codes *codes,
                    const few_shape k) {
    const few_first first = first_get(p, tile, k);
    few_token token[HALVES];
    few_row row;
    words_begin(p, tile, at, token);
    barriers_begin(p, smem, k);
    gpu_cluster_sync_begin_read(); /* barriers exist */
    gpu_cluster_sync_end();
    gpu_begin(false);
    words_ask(p, token, k);
#pragma unroll
    for (int32_t step = 0; step < LINE_STEPS; step++) {
        codes_ask(codes, step, true);
    }
    if (first.asks && first.stage < parts_of(k)) {
        stage_ask(smem, first.weight, first.stage, first.sharers, k);
    }
    __syncwarp();
    row_ask(p, &row, tile, k);
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        words_take(p, smem, tile, at, &token[half], half, k);
    }
    if (first.asks && first.stage >= parts_of(k)) {
        stage_ask(smem, first.weight, first.stage, first.sharers, k);
    }
    __syncwarp();
#pragma unroll
    for (int32_t step = LINE_STEPS; step < CODE_STEPS; step++) {
        codes_ask(codes, step, true);
    }
    row_take(smem, &row, k);
    __syncwarp(); /* exponents exist: a warp's tokens are its own */
}

/* What a thread keeps from step to step. A turn of the loop is CODE_STEPS steps, so that slots and places of codes are
 * known when it is compiled. */
typedef struct few_loop {
    few_codes codes;
    const uint32_t *exponents; /* of the first token and the turn's first line */
    uint32_t scales[HALVES];   /* exponents of the line, of the thread's half of each step */
    project_wg_step a;
    uint32_t full, stages;  /* the part's first */
    uint32_t empty[2];      /* the same, of the CTA that asks for slots 0, 2, ..; for 1, 3, .. */
    int32_t first, n_steps; /* the turn's first step; all of the part */
    bool is_first_lane;     /* of its warp */
} few_loop;

DEVICE few_loop loop_get(const mmla_project_few_params *p,
                         const few_smem *smem,
                         const few_place *at,
                         const few_codes *codes,
                         const few_shape k) {
    few_loop l;
    l.codes = *codes;
    l.full = smem->full + at->part * 8;
    l.stages = smem->stages + (uint32_t)(at->part * stage_bytes_of(k));
    l.first = 0;
    l.n_steps = p->n_lines * LINE_STEPS;
    l.is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        const int32_t asker = asker_get(p, at->part, i);
        l.empty[i] =
            gpu_cluster_address(smem->empty + at->part * 8, cta_get(p, split_get(p), asker));
    }
    l.exponents = exponents_at(smem, at, 0, k);
    return l;
}

/* The phase of the slot that the turn's step `step` takes. */
DEVICE uint32_t phase_get(const few_loop *l, int32_t step, const few_shape k) {
    return (uint32_t)(l->first + step) / (uint32_t)ahead_of(k);
}

/* Codes of the turn's step `step`, or the next one's first, and asks for others in their place. */
DEVICE void codes_take(few_loop *l, uint4 codes[HALVES], const int32_t step, const few_shape k) {
#pragma unroll
    for (int32_t half = 0; half < HALVES && step % LINE_STEPS == 0; half++) {
        const int32_t eight = 8 * MMLA_PROJECT_FEW_PITCH(k.tokens) / (int32_t)sizeof(uint32_t);
        l->scales[half] = l->exponents[half * eight + step / LINE_STEPS] >>
                          8 * (mmla_project_wg_unit(threadIdx.x) / 2);
    }
    gpu_cp_async_wait(CODE_STEPS - 1);
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        codes[half] = gpu_smem_load16(codes_place(&l->codes, step, half));
    }
    codes_ask(&l->codes, step + CODE_STEPS, l->first + step + CODE_STEPS < l->n_steps);
}

/* Products of the turn's step `step`, whose codes are taken; under them the next one's are. */
DEVICE void step_multiply(
    few_loop *l, uint4 codes[HALVES], float *sums, const int32_t step, const few_shape k) {
    const int32_t ahead = ahead_of(k), slot = step % ahead;
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        project_wg_half_convert(&l->a, codes[half],
                                l->scales[half] >> 16 * (step % LINE_STEPS) & 0xFFu, half);
    }
    gpu_barrier_wait(l->full + slot * parts_of(k) * 8, phase_get(l, step, k) & 1);
    project_wg_step_multiply(
        sums, &l->a, gpu_wgmma_tile(l->stages + (uint32_t)(slot * parts_of(k) * stage_bytes_of(k))),
        step == 0 && l->first == 0, k.rows);
    codes_take(l, codes, step + 1, k);
    gpu_wgmma_wait_all(); /* who reads the registers, and the stage */
    gpu_cluster_arrive_if(l->empty[slot % 2] + slot * parts_of(k) * 8,
                          l->is_first_lane && l->first + step + ahead < l->n_steps);
}

/* Sums of the warpgroup's part of K. */
DEVICE void few_multiply(few_loop *l, float *sums, const few_shape k) {
    uint4 codes[HALVES];
    codes_take(l, codes, 0, k);
#pragma unroll 1
    for (; l->first < l->n_steps; l->first += CODE_STEPS) {
#pragma unroll
        for (int32_t step = 0; step < CODE_STEPS; step++) {
            step_multiply(l, codes, sums, step, k);
        }
        l->codes.from += CODE_STEPS * MMLA_PROJECT_STEP;
        l->exponents += CODE_STEPS / LINE_STEPS;
    }
    gpu_wgmma_use(sums, k.rows / 2);
}

#endif
