/* bench_gpu_shape.c - drawing the inputs, and where each of them lies on the device. */
#include "app/bench/bench_gpu_shape.h"

#include <stdlib.h>
#include <string.h>

#include "app/bench/bench_lens.h"
#include "app/check/check_attend_tolerance.h"
#include "app/check/check_rng.h"

enum { POSITIONS = 4096, D = MMLA_LATENT_DIM, WORKSPACES_MAX = 64 };

bool bench_gpu_is_paged(const bench_formats *formats) {
    return formats->window != MMLA_KV_NONE;
}

int32_t bench_gpu_window(const bench_formats *formats) {
    return formats->compressed != MMLA_KV_NONE ? BENCH_WINDOW : BENCH_KEYS;
}

int32_t bench_gpu_compressed(const bench_formats *formats) {
    return formats->compressed != MMLA_KV_NONE ? BENCH_COMPRESSED : 0;
}

bench_gpu_pool bench_gpu_pool_create(bench_session *s, const bench_formats *formats) {
    bench_gpu_pool p = {.formats = formats, .arena = {.device = &s->device}};
    check_rng rng = check_rng_at(s->options.seed, 8, 0);
    p.q = bench_tile_bf16(s->options.seed, 3);
    p.cos_sin = check_cos_sin_create(POSITIONS, &rng);
    if (!bench_gpu_is_paged(formats)) {
        const int64_t bytes = (int64_t)BENCH_GPU_ROWS * D * 2;
        p.n_workspaces = bench_gpu_sets_count(s, (double)bytes);
        p.n_workspaces = p.n_workspaces < WORKSPACES_MAX ? p.n_workspaces : WORKSPACES_MAX;
        p.window = bench_gpu_cache_create(s, &p.arena, MMLA_KV_NONE, p.n_workspaces * bytes, 1);
        return p;
    }
    /* Shares of the bytes as a call reads them, so that both are walked through equally often. */
    const double window =
        (double)(bench_gpu_window(formats) * mmla_kv_record_bytes(formats->window));
    const double compressed =
        (double)(bench_gpu_compressed(formats) * mmla_kv_record_bytes(formats->compressed));
    const double share = window / (window + compressed), bytes = (double)s->pool_bytes;
    p.window = bench_gpu_cache_create(s, &p.arena, formats->window, (int64_t)(share * bytes), 1);
    if (formats->compressed != MMLA_KV_NONE) {
        p.compressed = bench_gpu_cache_create(s, &p.arena, formats->compressed,
                                              (int64_t)((1.0 - share) * bytes), 2);
    }
    return p;
}

void bench_gpu_pool_destroy(bench_gpu_pool *p) {
    bench_gpu_cache_destroy(&p->window);
    bench_gpu_cache_destroy(&p->compressed);
    bench_tile_destroy(&p->q);
    check_buffer_destroy(&p->cos_sin);
    bench_arena_destroy(&p->arena);
}

/* Inputs of every token but its lists: q as a projection just wrote it, a sink. */
static void draw_inputs(bench_gpu_shape *x, check_rng *rng) {
    check_attend_case *c = &x->c;
    const int64_t n = c->args.n_tokens, h = c->desc.n_heads;
    c->q = check_buffer_create(n * h * D * 2, 64, 0);
    c->positions = check_buffer_create(n * 4, 64, 0);
    c->sink = check_buffer_create(h * 4, 64, 0);
    for (int64_t t = 0; t < n; t++) {
        memcpy(c->q.data + t * h * D * 2, bench_tile_row(&x->pool->q, t, h * D),
               (size_t)(h * D * 2));
        ((int32_t *)c->positions.data)[t] = (int32_t)check_rng_below(rng, POSITIONS);
    }
    for (int64_t i = 0; i < h; i++) {
        ((float *)c->sink.data)[i] = check_rng_normal(rng);
    }
    c->args.q = (const uint16_t *)c->q.data;
    c->args.positions = (const int32_t *)c->positions.data;
    c->args.sink = (const float *)c->sink.data;
    c->args.cos_sin = (const float *)x->pool->cos_sin.data;
}

/* Lengths as the options want them. */
static void draw_lens(const bench_session *s, bench_gpu_shape *x, check_rng *rng) {
    check_attend_case *c = &x->c;
    const int64_t n = c->args.n_tokens;
    const bench_widths widths = {c->desc.list_width, c->desc.compressed_width};
    c->lens = check_buffer_create(n * 4, 64, 0);
    c->compressed_lens = check_buffer_create(n * 4, 64, 0);
    bench_lens_draw(&s->options, widths, n, rng, (int32_t *)c->lens.data,
                    (int32_t *)c->compressed_lens.data);
}

static void take_lens(bench_gpu_shape *x) {
    check_attend_case *c = &x->c;
    const int64_t n = c->args.n_tokens;
    c->args.lens = (const int32_t *)c->lens.data;
    c->args.compressed_lens = (const int32_t *)c->compressed_lens.data;
    x->n_keys = bench_lens_sum(c->args.lens, n) + bench_lens_sum(c->args.compressed_lens, n);
}

check_buffer bench_gpu_prefill_lists(int64_t n_tokens) {
    /* A window row a token as long as half of the workspace holds them. */
    const int64_t wanted = n_tokens + BENCH_WINDOW - 1, half = BENCH_GPU_ROWS / 2;
    const int64_t n_window = wanted < half ? wanted : half, n_picked = BENCH_GPU_ROWS - n_window;
    const int64_t step = n_picked * 618 / 1000, places = n_window - BENCH_WINDOW + 1;
    check_buffer lists = check_buffer_create(n_tokens * BENCH_KEYS * 4, 64, 0);
    int32_t *list = (int32_t *)lists.data;
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t k = 0; k < BENCH_COMPRESSED; k++) {
            const int64_t mixed = k * 197 % BENCH_COMPRESSED; /* odd: each once, in another order */
            *list++ = (int32_t)((t * step + mixed * n_picked / BENCH_COMPRESSED) % n_picked);
        }
        for (int64_t k = 0; k < BENCH_WINDOW; k++) {
            *list++ = (int32_t)(n_picked + t % places + k);
        }
    }
    return lists;
}

static check_buffer paged_lists(const bench_gpu_cache *cache,
                                const bench_gpu_shape *x,
                                int32_t width,
                                int64_t run,
                                const int32_t *lens) {
    const bench_cache slots = {.n_slots = cache->n_slots};
    return bench_lists_create(&slots, x->n_sets, x->c.args.n_tokens, width, run, lens);
}

double bench_gpu_bytes(const bench_gpu_shape *x) {
    const bench_formats *f = x->pool->formats;
    const int64_t n = x->c.args.n_tokens;
    const double window = (double)bench_lens_sum(x->c.args.lens, n);
    const double compressed = (double)bench_lens_sum(x->c.args.compressed_lens, n);
    if (!bench_gpu_is_paged(f)) {
        return (window < BENCH_GPU_ROWS ? window : BENCH_GPU_ROWS) * D * 2;
    }
    return window * (double)mmla_kv_record_bytes(f->window) +
           compressed * (double)mmla_kv_record_bytes(f->compressed);
}

static void describe(const bench_session *s, bench_gpu_shape *x, int64_t heads, int64_t tokens) {
    const bench_formats *f = x->pool->formats;
    mmla_attend_desc *d = &x->c.desc;
    *d = (mmla_attend_desc){.kind = bench_gpu_is_paged(f) ? MMLA_ATTEND_PAGED : MMLA_ATTEND_ROWS,
                            .n_heads = (int32_t)heads,
                            .max_tokens = tokens,
                            .scale = 0.0441942f, /* 512^-0.5 */
                            .q_layout = MMLA_Q_FUSED,
                            .q_token_stride = heads * D,
                            .rope_positions = POSITIONS,
                            .out_form = MMLA_OUT_FP8_PERMUTED,
                            .list_width = bench_gpu_window(f),
                            .list_stride = bench_gpu_window(f),
                            .implementation = s->options.implementation,
                            .batch_invariant = s->options.batch_invariant};
    x->c.args.n_tokens = tokens;
    x->c.lse_tolerance = check_attend_lse_tolerance();
    if (bench_gpu_is_paged(f)) {
        d->window = x->pool->window.desc;
        x->c.args.window_cache = x->pool->window.tile.memory.data;
    } else {
        d->max_rows = x->c.args.n_rows = BENCH_GPU_ROWS;
        x->c.args.kv = (const uint16_t *)x->pool->window.tile.memory.data;
    }
    if (f->compressed != MMLA_KV_NONE) {
        d->compressed = x->pool->compressed.desc;
        d->compressed_width = BENCH_COMPRESSED;
        d->compressed_stride = BENCH_COMPRESSED;
        x->c.args.compressed_cache = x->pool->compressed.tile.memory.data;
    }
}

static void draw_lists(const bench_session *s, bench_gpu_shape *x) {
    const bench_gpu_pool *p = x->pool;
    const int64_t tokens = x->c.args.n_tokens;
    if (!bench_gpu_is_paged(p->formats)) {
        x->n_sets = p->n_workspaces;
        x->lists = bench_gpu_prefill_lists(tokens);
        return;
    }
    const bool has_compressed = p->formats->compressed != MMLA_KV_NONE;
    x->n_sets = s->options.warm
                    ? 1
                    : bench_lists_limit(bench_gpu_sets_count(s, bench_gpu_bytes(x)), tokens);
    x->lists = paged_lists(&p->window, x, x->c.desc.list_width, has_compressed ? BENCH_WINDOW : 1,
                           x->c.args.lens);
    if (has_compressed) {
        x->compressed_lists =
            paged_lists(&p->compressed, x, BENCH_COMPRESSED, 1, x->c.args.compressed_lens);
    }
}

static const void *copied(bench_gpu_shape *x, const check_buffer *b) {
    return b->data != NULL ? bench_arena_copy(&x->arena, b->data, b->bytes) : NULL;
}

static void upload(bench_gpu_shape *x) {
    mmla_attend_args *a = &x->args;
    const bool is_paged = bench_gpu_is_paged(x->pool->formats);
    *a = x->c.args;
    a->q = copied(x, &x->c.q);
    a->positions = copied(x, &x->c.positions);
    a->sink = copied(x, &x->c.sink);
    a->lens = copied(x, &x->c.lens);
    a->compressed_lens = copied(x, &x->c.compressed_lens);
    a->cos_sin = copied(x, &x->pool->cos_sin);
    a->list = copied(x, &x->lists);
    a->compressed_list = copied(x, &x->compressed_lists);
    a->window_cache = is_paged ? x->pool->window.memory : NULL;
    a->compressed_cache = x->pool->compressed.memory;
    a->kv = is_paged ? NULL : x->pool->window.memory;
    check_attend_buffers sizes =
        check_attend_buffers_create(&x->c.desc, a->n_tokens, BENCH_SAMPLE_POISON);
    a->out = bench_arena_add(&x->arena, sizes.out.bytes);
    a->out_scale = bench_arena_add(&x->arena, sizes.out_scale.bytes);
    a->lse = bench_arena_add(&x->arena, sizes.lse.bytes);
    a->max_logits = bench_arena_add(&x->arena, sizes.max_logits.bytes);
    check_attend_buffers_destroy(&sizes);
}

bench_gpu_shape
bench_gpu_shape_create(bench_session *s, const bench_gpu_pool *p, int64_t heads, int64_t tokens) {
    bench_gpu_shape x = {.pool = p, .arena = {.device = &s->device}};
    check_rng rng = check_rng_at(s->options.seed, 9, (uint64_t)(tokens * 1000 + heads));
    describe(s, &x, heads, tokens);
    draw_inputs(&x, &rng);
    draw_lens(s, &x, &rng);
    take_lens(&x);
    draw_lists(s, &x);
    upload(&x);
    return x;
}

bench_gpu_shape bench_gpu_shape_create_with(bench_session *s,
                                            const bench_gpu_pool *p,
                                            int64_t heads,
                                            int64_t tokens,
                                            const bench_gpu_lists *lists) {
    bench_gpu_shape x = {.pool = p, .arena = {.device = &s->device}, .n_sets = 1};
    check_rng rng = check_rng_at(s->options.seed, 9, (uint64_t)(tokens * 1000 + heads));
    describe(s, &x, heads, tokens);
    draw_inputs(&x, &rng);
    x.c.lens = lists->lens;
    x.c.compressed_lens = lists->compressed_lens;
    x.lists = lists->list;
    x.compressed_lists = lists->compressed_list;
    take_lens(&x);
    upload(&x);
    return x;
}

void bench_gpu_shape_destroy(bench_gpu_shape *x) {
    mmla_attend_plan_destroy(x->plan);
    mmla_chain_plan_destroy(x->chain);
    check_attend_case_destroy(&x->c);
    check_buffer_destroy(&x->lists);
    check_buffer_destroy(&x->compressed_lists);
    bench_arena_destroy(&x->arena);
}

/* Points `a` at the lists, or at the workspace, of call i. */
static void rotate(const bench_gpu_shape *x, int64_t i, mmla_attend_args *a) {
    const int64_t set = i % x->n_sets, n = a->n_tokens;
    if (!bench_gpu_is_paged(x->pool->formats)) {
        return;
    }
    a->list += set * n * x->c.desc.list_width;
    if (a->compressed_list != NULL) {
        a->compressed_list += set * n * x->c.desc.compressed_width;
    }
}

mmla_attend_args bench_gpu_shape_args(const bench_gpu_shape *x, int64_t i) {
    mmla_attend_args a = x->args;
    rotate(x, i, &a);
    if (a.kv != NULL) {
        a.kv += i % x->n_sets * BENCH_GPU_ROWS * D;
    }
    return a;
}

check_attend_case bench_gpu_shape_case(const bench_gpu_shape *x, int64_t i) {
    check_attend_case c = x->c;
    c.args.list = (const int32_t *)x->lists.data;
    c.args.compressed_list = (const int32_t *)x->compressed_lists.data;
    rotate(x, i, &c.args);
    return c;
}

static void fill(bench_gpu_shape *x, void *memory, const check_buffer *like) {
    bench_device_fill(x->arena.device, memory, BENCH_SAMPLE_POISON, like->bytes);
}

void bench_gpu_shape_reset(bench_gpu_shape *x) {
    check_attend_buffers sizes =
        check_attend_buffers_create(&x->c.desc, x->args.n_tokens, BENCH_SAMPLE_POISON);
    fill(x, x->args.out, &sizes.out);
    fill(x, x->args.out_scale, &sizes.out_scale);
    fill(x, x->args.lse, &sizes.lse);
    fill(x, x->args.max_logits, &sizes.max_logits);
    check_attend_buffers_destroy(&sizes);
}

check_attend_buffers bench_gpu_shape_results(bench_gpu_shape *x) {
    bench_device *d = x->arena.device;
    check_attend_buffers b =
        check_attend_buffers_create(&x->c.desc, x->args.n_tokens, BENCH_SAMPLE_POISON);
    bench_device_read(d, b.out.data, x->args.out, b.out.bytes);
    bench_device_read(d, b.out_scale.data, x->args.out_scale, b.out_scale.bytes);
    bench_device_read(d, b.lse.data, x->args.lse, b.lse.bytes);
    bench_device_read(d, b.max_logits.data, x->args.max_logits, b.max_logits.bytes);
    return b;
}

void bench_gpu_shape_verify(bench_session *s,
                            bench_gpu_shape *x,
                            int64_t last,
                            const char *implementation,
                            bool chain,
                            check_verdict *verdict) {
    const check_attend_case call = bench_gpu_shape_case(x, last);
    const mmla_cache_desc none = {0};
    const bool is_paged = call.desc.kind == MMLA_ATTEND_PAGED;
    bench_sample sample = bench_sample_create(&call, is_paged ? &x->pool->window.tile.desc : &none,
                                              &x->pool->compressed.tile.desc, s->host, verdict);
    check_attend_buffers got = bench_gpu_shape_results(x);
    if (s->options.corrupt == (chain ? BENCH_CORRUPT_CHAIN : BENCH_CORRUPT_FUSED)) {
        memset(got.out.data, BENCH_SAMPLE_POISON, (size_t)got.out.bytes);
    }
    bench_sample_compare(&sample, &call, &got, implementation, chain, verdict);
    check_attend_buffers_destroy(&got);
    bench_sample_destroy(&sample);
}
