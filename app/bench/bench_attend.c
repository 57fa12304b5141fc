/* bench_attend.c - the fused call, the chain of separate steps, and OpenBLAS on the same shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/bench/bench_lens.h"
#include "app/bench/bench_pool.h"
#include "app/check/check_attend_call.h"
#include "app/check/check_attend_compare.h"
#include "app/check/check_num.h"

enum { POSITIONS = 4096, POISON = 0x5A };

static const bench_formats paged_formats[] = {
    {"528+288", MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
    {"528+528", MMLA_KV_V41_FP8, MMLA_KV_V41_FP8},
    {"584+584", MMLA_KV_V4, MMLA_KV_V4},
};
static const bench_formats rows_formats = {"bf16", MMLA_KV_NONE, MMLA_KV_NONE};

/* Caches that all rows of one pair of formats share. */
typedef struct pool {
    const bench_formats *formats;
    bench_cache window, compressed;
} pool;

/* One shape: inputs of n_sets calls, results of one. */
typedef struct shape {
    check_attend_case c; /* of the set in use */
    int64_t n_sets;
    int64_t n_window, n_compressed; /* keys of a call */
    check_buffer lists, compressed_lists;
    check_attend_buffers out;
    mmla_attend_plan *plan;
    mmla_chain_plan *chain;
    check_buffer workspace;
    mmla_status status;
} shape;

static pool pool_create(bench_session *s, const bench_formats *formats) {
    const int64_t bytes = bench_cold_bytes(s);
    pool p = {.formats = formats};
    if (formats->window == MMLA_KV_NONE) {
        p.window = bench_cache_create(s, MMLA_KV_NONE, bytes, 1);
        return p;
    }
    /* Shares of the bytes as a call reads them, so that both are walked through equally often. */
    const double window = (double)(BENCH_WINDOW * mmla_kv_record_bytes(formats->window));
    const double compressed =
        (double)(BENCH_COMPRESSED * mmla_kv_record_bytes(formats->compressed));
    const double share = window / (window + compressed);
    p.window = bench_cache_create(s, formats->window, (int64_t)(share * (double)bytes), 1);
    p.compressed =
        bench_cache_create(s, formats->compressed, (int64_t)((1.0 - share) * (double)bytes), 2);
    return p;
}

static void pool_destroy(pool *p) {
    bench_cache_destroy(&p->window);
    bench_cache_destroy(&p->compressed);
}

/* Points the arguments at the lists of call i. */
static void rotate(shape *x, int64_t i) {
    const int64_t set = i % x->n_sets, n = x->c.args.n_tokens;
    x->c.args.list = (const int32_t *)x->lists.data + set * n * x->c.desc.list_width;
    if (x->compressed_lists.data != NULL) {
        x->c.args.compressed_list =
            (const int32_t *)x->compressed_lists.data + set * n * x->c.desc.compressed_width;
    }
}

static mmla_attend_args args_of(shape *x) {
    mmla_attend_args args = x->c.args;
    args.out = x->out.out.data;
    args.out_scale = x->out.out_scale.data;
    args.lse = (float *)x->out.lse.data;
    args.max_logits = (float *)x->out.max_logits.data;
    return args;
}

static void call_fused(void *job, int64_t i) {
    shape *x = job;
    rotate(x, i);
    const mmla_attend_args args = args_of(x);
    const mmla_status status = mmla_attend_run(x->plan, &args, x->workspace.data, NULL);
    x->status = status != MMLA_OK ? status : x->status;
}

static void call_chain(void *job, int64_t i) {
    shape *x = job;
    rotate(x, i);
    const mmla_attend_args args = args_of(x);
    const mmla_status status = mmla_chain_run(x->chain, &args, x->workspace.data, NULL);
    x->status = status != MMLA_OK ? status : x->status;
}

/* Inputs of every token but its lists: q as a projection just wrote it, a sink, lengths. */
static void draw_inputs(bench_session *s, shape *x) {
    check_attend_case *c = &x->c;
    const int64_t n = c->args.n_tokens, h = c->desc.n_heads;
    check_rng rng = check_rng_at(s->options.seed, 3, (uint64_t)(n * 1000 + h));
    c->q = check_buffer_create(n * h * MMLA_LATENT_DIM * 2, 64, 0);
    for (int64_t i = 0; i < n * h * MMLA_LATENT_DIM; i++) {
        ((uint16_t *)c->q.data)[i] = check_bf16_of_f32(check_rng_normal(&rng));
    }
    c->cos_sin = check_cos_sin_create(POSITIONS, &rng);
    c->positions = check_buffer_create(n * 4, 64, 0);
    c->lens = check_buffer_create(n * 4, 64, 0);
    c->compressed_lens = check_buffer_create(n * 4, 64, 0);
    c->sink = check_buffer_create(h * 4, 64, 0);
    c->tokens = check_alloc(n * (int64_t)sizeof *c->tokens);
    for (int64_t t = 0; t < n; t++) {
        c->tokens[t] = CHECK_TOKEN_PLAIN;
        ((int32_t *)c->positions.data)[t] = (int32_t)check_rng_below(&rng, POSITIONS);
    }
    int32_t *const lens = (int32_t *)c->lens.data;
    int32_t *const compressed_lens = (int32_t *)c->compressed_lens.data;
    bench_lens_draw(&s->options, (bench_widths){c->desc.list_width, c->desc.compressed_width}, n,
                    &rng, lens, compressed_lens);
    x->n_window = bench_lens_sum(lens, n);
    x->n_compressed = bench_lens_sum(compressed_lens, n);
    for (int64_t i = 0; i < h; i++) {
        ((float *)c->sink.data)[i] = check_rng_normal(&rng);
    }
    c->args.q = (const uint16_t *)c->q.data;
    c->args.cos_sin = (const float *)c->cos_sin.data;
    c->args.positions = (const int32_t *)c->positions.data;
    c->args.sink = (const float *)c->sink.data;
    c->args.lens = lens;
    c->args.compressed_lens = compressed_lens;
}

/* Lists of as many calls as it takes to walk through the cache; of one call when they are warm. */
static void draw_lists(const bench_session *s, const pool *p, shape *x) {
    const int64_t tokens = x->c.args.n_tokens;
    const int64_t n_keys = x->n_window > 0 ? x->n_window : 1;
    const bool paged = p->formats->window != MMLA_KV_NONE;
    x->n_sets = s->options.warm
                    ? 1
                    : bench_lists_limit(bench_sets_count(p->window.n_slots, n_keys), tokens);
    x->lists = bench_lists_create(&p->window, x->n_sets, tokens, x->c.desc.list_width,
                                  paged ? BENCH_WINDOW : 1, x->c.args.lens);
    if (paged) {
        x->compressed_lists = bench_lists_create(&p->compressed, x->n_sets, tokens,
                                                 BENCH_COMPRESSED, 1, x->c.args.compressed_lens);
    }
}

static shape shape_create(bench_session *s, const pool *p, int64_t heads, int64_t tokens) {
    const bool paged = p->formats->window != MMLA_KV_NONE;
    shape x = {0};
    x.c.desc = (mmla_attend_desc){.kind = paged ? MMLA_ATTEND_PAGED : MMLA_ATTEND_ROWS,
                                  .n_heads = (int32_t)heads,
                                  .max_tokens = tokens,
                                  .scale = 0.0441942f, /* 512^-0.5 */
                                  .q_layout = MMLA_Q_FUSED,
                                  .q_token_stride = heads * MMLA_LATENT_DIM,
                                  .rope_positions = POSITIONS,
                                  .out_form = MMLA_OUT_FP8_PERMUTED,
                                  .list_width = paged ? BENCH_WINDOW : BENCH_KEYS,
                                  .implementation = s->options.implementation};
    x.c.desc.list_stride = x.c.desc.list_width;
    x.c.args.n_tokens = tokens;
    if (paged) {
        x.c.desc.window = p->window.desc;
        x.c.desc.compressed = p->compressed.desc;
        x.c.desc.compressed_width = BENCH_COMPRESSED;
        x.c.desc.compressed_stride = BENCH_COMPRESSED;
        x.c.args.window_cache = p->window.memory.data;
        x.c.args.compressed_cache = p->compressed.memory.data;
    } else {
        x.c.desc.max_rows = x.c.args.n_rows = p->window.n_slots;
        x.c.args.kv = (const uint16_t *)p->window.memory.data;
    }
    x.c.lse_tolerance = check_attend_lse_tolerance();
    draw_inputs(s, &x);
    draw_lists(s, p, &x);
    x.out = check_attend_buffers_create(&x.c.desc, tokens, POISON);
    return x;
}

static void shape_destroy(shape *x) {
    mmla_attend_plan_destroy(x->plan);
    mmla_chain_plan_destroy(x->chain);
    check_buffer_destroy(&x->workspace);
    check_attend_buffers_destroy(&x->out);
    check_buffer_destroy(&x->lists);
    check_buffer_destroy(&x->compressed_lists);
    check_attend_case_destroy(&x->c);
}

static double token_largest(const check_attend_result *result, int64_t n_heads) {
    double largest = 0.0;
    for (int64_t i = 0; i < n_heads * MMLA_LATENT_DIM; i++) {
        const double magnitude = fabs((double)result->out[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Results are poison again, so that what is compared was written by the calls that follow. */
static void results_reset(shape *x) {
    check_attend_buffers_destroy(&x->out);
    x->out = check_attend_buffers_create(&x->c.desc, x->c.args.n_tokens, POISON);
    x->status = MMLA_OK;
}

/* Compares one token of the last timed call with the reference; `chain` rounds more often. */
static void
verify_token(bench_session *s, shape *x, int64_t t, bool chain, check_verdict *verdict) {
    const int64_t h = x->c.desc.n_heads, n = x->c.args.n_tokens;
    check_attend_result all = check_attend_result_create(&x->out, &x->c.desc, n), want;
    const check_attend_result got = {.n_tokens = 1,
                                     .token_bytes = all.token_bytes,
                                     .n_scales = all.n_scales,
                                     .bytes = all.bytes + t * all.token_bytes,
                                     .out = all.out + t * h * MMLA_LATENT_DIM,
                                     .scale = all.scale + t * all.n_scales,
                                     .lse = all.lse + t * h,
                                     .max_logits = all.max_logits + t * h};
    const check_attend_call call = {
        .ctx = s->ctx, .implementation = "reference", .first = t, .n_tokens = 1, .poison = POISON};
    check_attend_buffers_check(&x->out, &x->c.desc, n, POISON, verdict);
    if (check_attend_call_run(&call, &x->c, &want, verdict) && want.bytes != NULL) {
        if (chain) { /* to bf16 before it rotates back, and again before it casts */
            x->c.out_tolerance.add += 0x1p-8 * token_largest(&want, h);
        }
        check_attend_compare(&x->c, 0, &got, &want, verdict);
    }
    check_attend_result_destroy(&want);
    check_attend_result_destroy(&all);
}

/* The results of the last timed call, by `implementation` or by the chain. False, and the row says
 * why, when they are wrong. */
static bool verify(bench_session *s,
                   shape *x,
                   const char *implementation,
                   bool chain,
                   int64_t last,
                   bench_row *row) {
    check_verdict verdict = {0};
    const int64_t n = x->c.args.n_tokens;
    rotate(x, last);
    if (s->options.corrupt == (chain ? BENCH_CORRUPT_CHAIN : BENCH_CORRUPT_FUSED)) {
        memset(x->out.out.data, POISON, (size_t)x->out.out.bytes);
    }
    if (x->status != MMLA_OK) {
        check_verdict_fail(&verdict, "run returned %s", mmla_status_name(x->status));
    }
    /* The first, the last that has keys, and the last; the first will do for a quick look. */
    const int64_t last_live = n - bench_padded_count(&s->options, n) - 1;
    const int64_t tokens[] = {0, last_live, n - 1};
    for (int i = 0; i < (s->options.quick ? 1 : 3); i++) {
        if (i == 0 || tokens[i] > tokens[i - 1]) {
            x->c.out_tolerance = check_attend_out_tolerance(implementation, BENCH_KEY_LARGEST);
            verify_token(s, x, tokens[i], chain, &verdict);
        }
    }
    row->verified = !verdict.failed;
    snprintf(row->problem, sizeof row->problem, "%s%.140s",
             chain && verdict.failed ? "chain: " : "", verdict.why);
    return row->verified;
}

static void workspace_set(shape *x, size_t bytes) {
    check_buffer_destroy(&x->workspace);
    x->workspace = check_buffer_create((int64_t)bytes, 64, POISON);
}

/* Times the shape both ways and fills the row. */
static void measure(bench_session *s, shape *x, bench_row *row) {
    const double budget_s = s->options.quick ? 0.1 : 0.4;
    mmla_error err = {0};
    if (mmla_attend_plan_create(s->ctx, &x->c.desc, &x->plan, &err) != MMLA_OK) {
        snprintf(row->problem, sizeof row->problem, "%.159s", err.message);
        return;
    }
    snprintf(row->implementation, sizeof row->implementation, "%s",
             mmla_attend_plan_implementation(x->plan));
    workspace_set(x, mmla_attend_workspace_bytes(x->plan));
    row->fused = bench_measure(call_fused, x, s->options.n_samples, budget_s);
    if (!verify(s, x, row->implementation, false, row->fused.last, row)) {
        return;
    }
    /* The chain has steps of its own; a name of attend's need not be one of them. */
    mmla_attend_desc desc = x->c.desc;
    desc.implementation = NULL;
    if (mmla_chain_plan_create(s->ctx, &desc, &x->chain, &err) == MMLA_OK) {
        workspace_set(x, mmla_chain_workspace_bytes(x->chain));
        results_reset(x);
        const bench_timing chain = bench_measure(call_chain, x, s->options.n_samples, budget_s);
        if (verify(s, x, "", true, chain.last, row)) {
            row->chain_us = chain.median_us;
        }
    }
}

static void run_shape(bench_session *s, const pool *p, int64_t heads, int64_t tokens) {
    const bool paged = p->formats->window != MMLA_KV_NONE;
    bench_row *row = bench_row_add(s, paged ? "attend_paged" : "attend_rows", p->formats->name);
    if (row == NULL) {
        return;
    }
    row->out_form = "fp8_permuted";
    row->heads = heads;
    row->tokens = tokens;
    row->window = paged ? BENCH_WINDOW : BENCH_KEYS;
    row->compressed = paged ? BENCH_COMPRESSED : 0;
    shape x = shape_create(s, p, heads, tokens);
    const int64_t n_keys = x.n_window + x.n_compressed;
    row->keys = (double)n_keys / (double)tokens;
    row->flop = (double)(n_keys * heads) * BENCH_FLOP_PER_KEY;
    row->bytes = (double)(paged ? x.n_window * mmla_kv_record_bytes(p->formats->window) +
                                      x.n_compressed * mmla_kv_record_bytes(p->formats->compressed)
                                : n_keys * MMLA_LATENT_DIM * 2);
    measure(s, &x, row);
    /* At the rate of 640 keys: products of fewer are no faster. */
    row->sgemm_us = (double)n_keys / BENCH_KEYS * bench_baseline_us(bench_sgemm_attend(s, heads));
    row->floor_us = bench_floor_us(s, row);
    bench_row_finish(s);
    shape_destroy(&x);
}

static void run_formats(bench_session *s, const bench_formats *formats, bool main_rows) {
    static const int64_t all_heads[] = {64, 32, 16, 8, 128}, all_tokens[] = {1, 4, 16, 64};
    static const int64_t few_tokens[] = {1, 16};
    const bool few = !main_rows || s->options.quick;
    const bench_list heads =
        bench_list_or(&s->options.heads, all_heads, main_rows ? (s->options.quick ? 3 : 5) : 1);
    const bench_list tokens =
        bench_list_or(&s->options.tokens, few ? few_tokens : all_tokens, few ? 2 : 4);
    pool p = pool_create(s, formats);
    for (int i = 0; i < heads.n; i++) {
        for (int j = 0; j < tokens.n; j++) {
            run_shape(s, &p, heads.values[i], tokens.values[j]);
        }
    }
    pool_destroy(&p);
}

void bench_attend_run(bench_session *s) {
    const int n = (int)(sizeof paged_formats / sizeof paged_formats[0]);
    for (int i = 0; i < n && bench_wants_op(s, "attend_paged"); i++) {
        const bool asked = s->options.formats != NULL;
        if (bench_wants_formats(s, paged_formats[i].name) &&
            (i == 0 || asked || !s->options.quick)) {
            run_formats(s, &paged_formats[i], i == 0 || asked);
        }
    }
    if (bench_wants_op(s, "attend_rows") && bench_wants_formats(s, rows_formats.name)) {
        run_formats(s, &rows_formats, s->options.op != NULL);
    }
}
