/* check_attend_case.c - from a wish to a description, caches and inputs. */
#include "app/check/check_attend_case.h"

#include "app/check/check_attend_tolerance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/check/check_list_draw.h"
#include "app/check/check_num.h"

enum {
    POSITIONS = 97, /* rows of the table */
    RECORDS = 600   /* in each cache: enough that 512 picks are mostly different */
};

static const int32_t heads[] = {8, 16, 24, 64, 72, 128};
static const int32_t widths[] = {1, 63, 65, 127, 128, 512, 513, 2048};
static const int32_t pages[] = {1, 2, 16, 61, 64, 128, 256};

/* Every legal choice of caches. */
static const mmla_kv_format pairs[][2] = {
    {MMLA_KV_V4, MMLA_KV_NONE},         {MMLA_KV_V4, MMLA_KV_V4},
    {MMLA_KV_V41_FP8, MMLA_KV_NONE},    {MMLA_KV_V41_FP8, MMLA_KV_V41_FP8},
    {MMLA_KV_V41_FP4, MMLA_KV_NONE},    {MMLA_KV_V41_FP4, MMLA_KV_V41_FP4},
    {MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
};

enum { PAIRS = sizeof pairs / sizeof pairs[0] };

#define PICK(array, dim) (array[check_draw(seed, dim, idx, (int)(sizeof array / sizeof array[0]))])

static check_attend_wish draw_wish(const check_session *s, int64_t idx) {
    const uint64_t seed = s->options.seed;
    check_attend_wish w = {.n_heads = PICK(heads, 0),
                           .width = PICK(widths, 1),
                           .compressed_width = PICK(widths, 2),
                           .page_tokens = PICK(pages, 3),
                           .compressed_page_tokens = PICK(pages, 4),
                           .out_form = (mmla_out_form)check_draw(seed, 5, idx, 4),
                           .stride = (check_stride)check_draw(seed, 6, idx, CHECK_STRIDES),
                           .q_layout = (mmla_q_layout)check_draw(seed, 7, idx, 2),
                           .q_norm = check_draw(seed, 8, idx, 3) == 0,
                           .sink = check_draw(seed, 9, idx, 3) != 0,
                           .amplified = check_draw(seed, 10, idx, 4) == 0,
                           .batch_invariant = check_draw(seed, 14, idx, 2) == 0};
    if (w.stride == CHECK_STRIDE_MILLION && s->options.copies) {
        w.stride = CHECK_STRIDE_ODD; /* copies in host memory would take gigabytes of it */
    }
    w.sharp = !w.amplified && w.width >= 127 && check_draw(seed, 13, idx, 3) == 0;
    const int source = check_draw(seed, 11, idx, PAIRS + 3); /* the rest: from rows */
    w.kind = source < PAIRS ? MMLA_ATTEND_PAGED : MMLA_ATTEND_ROWS;
    if (source < PAIRS) {
        w.window = pairs[source][0];
        w.compressed = pairs[source][1];
    }
    if (w.compressed == MMLA_KV_NONE) {
        w.compressed_width = 0;
    }
    /* Keys times heads that the double-precision reference is asked to do. */
    const int64_t budget = s->options.quick ? 30000 : 100000;
    const int64_t keys = w.width + w.compressed_width;
    for (int i = 5; i > 0 && w.n_heads * keys > 2 * budget; i--) {
        w.n_heads = w.n_heads > heads[i - 1] ? heads[i - 1] : w.n_heads;
    }
    const int64_t most = budget / (w.n_heads * keys) + 1;
    w.n_tokens = 1 + check_draw(seed, 12, idx, 6);
    w.n_tokens = w.n_tokens < most ? w.n_tokens : most;
    return w;
}
#undef PICK

static void describe(check_attend_case *c, const check_attend_wish *w) {
    static const char *const forms[] = {"fp8_permuted", "fp8", "fp8_128", "bf16"};
    char caches[160];
    if (w->kind == MMLA_ATTEND_ROWS) {
        snprintf(caches, sizeof caches, "rows=%lld row_stride=%lld", (long long)c->args.n_rows,
                 (long long)c->desc.kv_row_stride);
    } else {
        snprintf(caches, sizeof caches, "%s+%s pages=%lldx%d+%lldx%d page_stride=%lld+%lld",
                 mmla_kv_format_name(w->window), mmla_kv_format_name(w->compressed),
                 (long long)c->desc.window.n_pages, c->desc.window.page_tokens,
                 (long long)c->desc.compressed.n_pages, c->desc.compressed.page_tokens,
                 (long long)c->desc.window.page_stride_bytes,
                 (long long)c->desc.compressed.page_stride_bytes);
    }
    snprintf(c->shape, sizeof c->shape,
             "%s heads=%d tokens=%lld widths=%d+%d q=%s%s out=%s%s%s%s%s%s", caches, w->n_heads,
             (long long)w->n_tokens, w->width, w->compressed_width,
             w->q_layout == MMLA_Q_FUSED ? "fused" : "standard", w->q_norm ? " q_norm" : "",
             forms[w->out_form], w->sink ? " sink" : "", w->amplified ? " amplified" : "",
             w->batch_invariant ? " invariant" : "",
             c->args.lens != NULL || c->args.compressed_lens != NULL ? " lens" : "",
             c->n_faults > 0 ? " faults" : "");
}

/* q in the layout the description asks for; what lies between tokens stays NaN. */
static void draw_q(check_attend_case *c, bool plain, check_rng *rng) {
    const int64_t h_count = c->desc.n_heads, stride = c->desc.q_token_stride;
    c->q = check_buffer_create(c->args.n_tokens * stride * 2, 16, 0xFF);
    uint16_t *q = (uint16_t *)c->q.data;
    for (int64_t t = 0; t < c->args.n_tokens; t++) {
        for (int64_t h = 0; h < h_count; h++) {
            for (int64_t x = 0; x < MMLA_LATENT_DIM; x++) {
                const int64_t at = c->desc.q_layout == MMLA_Q_FUSED
                                       ? x / 16 * (h_count * 16) + h * 16 + x % 16
                                       : h * MMLA_LATENT_DIM + x;
                q[t * stride + at] = check_bf16_of_f32(check_rng_normal(rng));
            }
        }
        if (!plain && check_rng_chance(rng, 0.02)) {
            const float wild = check_rng_chance(rng, 0.5) ? NAN : INFINITY;
            q[t * stride + check_rng_below(rng, h_count * MMLA_LATENT_DIM)] =
                check_bf16_of_f32(wild);
            c->tokens[t] = CHECK_TOKEN_WILD;
        }
    }
    c->args.q = q;
}

static void draw_positions(check_attend_case *c, bool plain, check_rng *rng) {
    const int32_t outside[] = {-1, POSITIONS, INT32_MIN, INT32_MAX};
    c->desc.rope_positions = POSITIONS;
    c->cos_sin = check_cos_sin_create(POSITIONS, rng);
    c->positions = check_buffer_create(c->args.n_tokens * 4, 4, 0xFF);
    int32_t *positions = (int32_t *)c->positions.data;
    for (int64_t t = 0; t < c->args.n_tokens; t++) {
        positions[t] = (int32_t)check_rng_below(rng, POSITIONS);
        if (!plain && check_rng_chance(rng, 0.03)) {
            positions[t] = outside[check_rng_below(rng, 4)];
            c->tokens[t] = CHECK_TOKEN_FAULT;
            c->n_faults++;
        }
    }
    c->args.positions = positions;
    c->args.cos_sin = (const float *)c->cos_sin.data;
}

static void draw_sink(check_attend_case *c, check_rng *rng) {
    c->sink = check_buffer_create(c->desc.n_heads * 4, 4, 0xFF);
    float *sink = (float *)c->sink.data;
    for (int32_t h = 0; h < c->desc.n_heads; h++) {
        const double which = check_rng_uniform(rng);
        sink[h] = which < 0.1 ? INFINITY : which < 0.2 ? -INFINITY : 2.0f * check_rng_normal(rng);
    }
    c->args.sink = sink;
}

/* bf16 rows: NaN but for about RECORDS of them; row 0 is NaN like page 0. */
static void draw_rows(check_attend_case *c, check_list_pool *pool, bool amplified, check_rng *rng) {
    const int64_t n_rows = 3 + check_rng_below(rng, 2 * RECORDS);
    const int64_t stride = MMLA_LATENT_DIM + 8 * check_rng_below(rng, 3);
    c->args.n_rows = n_rows;
    c->desc.max_rows = n_rows + check_rng_below(rng, 3);
    c->desc.kv_row_stride = stride;
    c->kv = check_buffer_create(n_rows * stride * 2, 16, 0xFF);
    c->args.kv = (const uint16_t *)c->kv.data;
    for (int64_t row = 1; row < n_rows - 1; row += 1 + check_rng_below(rng, 2)) {
        check_row_fill((uint16_t *)c->kv.data + row * stride, MMLA_LATENT_DIM, amplified, rng);
        check_list_pool_add(pool, (int32_t)row);
    }
    /* Any row may be named past a length or by a token that is to become NaN; row 0 stands for
     * them. */
    pool->unused_row = 0;
    pool->bound = n_rows;
    /* The last row is finite but for one infinity. */
    uint16_t *last = (uint16_t *)c->kv.data + (n_rows - 1) * stride;
    check_row_fill(last, MMLA_LATENT_DIM, amplified, rng);
    last[check_rng_below(rng, MMLA_LATENT_DIM)] = check_bf16_of_f32(INFINITY);
    pool->infinite_row = (int32_t)(n_rows - 1);
}

static void
draw_caches(check_session *s, check_attend_case *c, const check_attend_wish *w, check_rng *rng) {
    const int32_t page_tokens[2] = {w->page_tokens, w->compressed_page_tokens};
    const mmla_kv_format formats[2] = {w->window, w->compressed};
    check_cache *caches[2] = {&c->window, &c->compressed};
    for (int i = 0; i < 2; i++) {
        if (formats[i] != MMLA_KV_NONE) {
            /* One cache in ten has a single page; the rest hold the records and half as much. */
            int64_t n_pages = check_rng_chance(rng, 0.1) ? 1 : 2 + RECORDS * 3 / 2 / page_tokens[i];
            n_pages = w->n_pages > 0 ? w->n_pages : n_pages;
            *caches[i] = check_cache_create(s->host, formats[i], page_tokens[i], n_pages, w->stride,
                                            RECORDS, w->amplified, rng);
        }
    }
    c->desc.window = c->window.desc;
    c->desc.compressed = c->compressed.desc;
    c->args.window_cache = c->window.memory.data;
    c->args.compressed_cache = c->compressed.memory.data;
}

double check_attend_largest_key(const check_attend_case *c) {
    return CHECK_KEY_LARGEST * (c->amplified ? CHECK_KEY_AMPLIFIER : 1);
}

/* What an implementation is allowed beyond them, whoever compares adds. */
static void set_tolerances(check_attend_case *c) {
    c->out_tolerance = check_attend_out_tolerance("", 0.0);
    c->lse_tolerance = check_attend_lse_tolerance();
    if (c->amplified) { /* logits are sums of terms hundreds of times their own size */
        c->out_tolerance = (check_tolerance){.abs = 1.0, .rel = 1.0, .cosine = 1e-3};
        c->lse_tolerance = (check_tolerance){.abs = 1e-4, .rel = 8.01 / 65536};
    }
}

static void fill_desc(check_attend_case *c, const check_attend_wish *w, check_rng *rng) {
    const int64_t spare = w->plain ? 0 : check_rng_below(rng, 3);
    c->desc = (mmla_attend_desc){.kind = w->kind,
                                 .n_heads = w->n_heads,
                                 .max_tokens = w->n_tokens + spare,
                                 .scale = 0.0323f, /* 512^-0.55 */
                                 .q_layout = w->q_layout,
                                 .q_norm = w->q_norm,
                                 .batch_invariant = w->batch_invariant,
                                 .q_norm_eps = w->q_norm ? 1e-4f : 0.0f,
                                 .out_form = w->out_form,
                                 .list_width = w->width,
                                 .compressed_width = w->compressed_width};
    c->desc.q_token_stride =
        (int64_t)w->n_heads * MMLA_LATENT_DIM + (w->plain ? 0 : 8 * check_rng_below(rng, 3));
    if (w->out_form == MMLA_OUT_FP8_PERMUTED && check_rng_chance(rng, 0.5)) {
        c->desc.out_scale_word_stride = c->desc.max_tokens + check_rng_below(rng, 6);
        c->desc.out_scale_group_stride =
            32 * c->desc.out_scale_word_stride + check_rng_below(rng, 9);
        /* Zero would be the default of both, and only one may then be checked against it. */
        if (c->desc.out_scale_word_stride == 0) {
            c->desc.out_scale_group_stride = 0;
        }
    }
}

check_attend_case
check_attend_case_wish(check_session *s, const check_attend_wish *w, check_rng *rng) {
    check_attend_case c = {.amplified = w->amplified, .args = {.n_tokens = w->n_tokens}};
    c.tokens = check_alloc((w->n_tokens + 1) * (int64_t)sizeof *c.tokens);
    for (int64_t t = 0; t < w->n_tokens; t++) {
        c.tokens[t] = CHECK_TOKEN_PLAIN;
    }
    fill_desc(&c, w, rng);
    set_tolerances(&c);
    draw_q(&c, w->plain, rng);
    draw_positions(&c, w->plain, rng);
    if (w->sink) {
        draw_sink(&c, rng);
    }
    check_list_pool pool = {.unused_row = -1, .infinite_row = -1}, compressed = pool;
    if (w->kind == MMLA_ATTEND_ROWS) {
        draw_rows(&c, &pool, w->amplified, rng);
    } else {
        draw_caches(s, &c, w, rng);
        check_list_pool_set(&pool, &c.window);
        check_list_pool_set(&compressed, &c.compressed);
        if (w->compressed != MMLA_KV_NONE) {
            check_list_draw(&compressed, w->n_tokens, w->compressed_width, w->plain, c.tokens,
                            &c.desc.compressed_stride, &c.compressed_list, &c.compressed_lens, rng);
            c.args.compressed_list = (const int32_t *)c.compressed_list.data;
            c.args.compressed_lens = (const int32_t *)c.compressed_lens.data;
        }
    }
    /* A sharp softmax, but only over enough different keys that no logit near zero is the whole
     * lse: there the fp32 sum of 512 products does not reach 1e-5. */
    if (w->sharp && pool.n_used >= 64) {
        c.desc.scale = 0.5f;
    }
    check_list_draw(&pool, w->n_tokens, w->width, w->plain || w->sharp, c.tokens,
                    &c.desc.list_stride, &c.list, &c.lens, rng);
    c.args.list = (const int32_t *)c.list.data;
    c.args.lens = (const int32_t *)c.lens.data;
    check_list_pool_clear(&pool);
    check_list_pool_clear(&compressed);
    describe(&c, w);
    return c;
}

check_attend_case check_attend_case_create(check_session *s, int64_t idx) {
    const check_attend_wish wish = draw_wish(s, idx);
    check_rng rng = check_rng_at(s->options.seed, 0x61747464, (uint64_t)idx);
    return check_attend_case_wish(s, &wish, &rng);
}

void check_attend_case_destroy(check_attend_case *c) {
    check_buffer *const buffers[] = {
        &c->q,    &c->positions,       &c->cos_sin,         &c->sink, &c->list,
        &c->lens, &c->compressed_list, &c->compressed_lens, &c->kv};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        check_buffer_destroy(buffers[i]);
    }
    check_cache_destroy(&c->window);
    check_cache_destroy(&c->compressed);
    free(c->tokens);
    *c = (check_attend_case){0};
}
