/* bench_gpu_project.c - the output projection on a GPU, and cuBLAS in bf16 on the same shapes. Where weights can be made
 * wide, rows of formats "wide" have one; making it is no part of their time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/bench/bench_dot.h"
#include "app/bench/bench_gpu.h"
#include "app/bench/bench_replay.h"
#include "app/check/check_num.h"

enum {
    K = MMLA_GROUP_DIM,
    CHUNKS = K / MMLA_OUT_CHUNK_DIM,
    WORDS = CHUNKS / 4,
    RANK = 1024,
    LOOKED_AT = 400, /* numbers of a result */
    POISON = 0x5A,
    WIDE_TOKENS_MIN = 64 /* fewer take it or not, in the same time */
};

typedef struct shape {
    mmla_project_desc desc;
    mmla_project_args args; /* of set 0, on the device */
    /* On the host; the weights are of every set. */
    check_buffer x, x_scale, weight, weight_scale;
    int64_t n_tokens, n_groups, n_sets;
    bench_arena arena;
    void *workspace;
    uint8_t *wide; /* of every set, or NULL */
    mmla_project_plan *plan;
    const cublas *blas;
    cublas_product product; /* of set 0 */
} shape;

/* Rows of `n` elements, each from the tile. */
static check_buffer rows_create(const bench_tile *tile, int64_t n_rows, int64_t n) {
    check_buffer b = check_buffer_create(n_rows * n, 64, 0);
    for (int64_t i = 0; i < n_rows; i++) {
        memcpy(b.data + i * n, bench_tile_row(tile, i, n), (size_t)n);
    }
    return b;
}

/* Scale bytes [T, G, CHUNKS] as the fused call lays them out: words [G, WORDS, round4(T)]. */
static check_buffer packed_create(const shape *x) {
    const int64_t t_stride = (x->n_tokens + 3) / 4 * 4;
    check_buffer b = check_buffer_create(x->n_groups * WORDS * t_stride * 4, 64, 0);
    for (int64_t t = 0; t < x->n_tokens; t++) {
        for (int64_t gw = 0; gw < x->n_groups * WORDS; gw++) {
            memcpy(b.data + (gw * t_stride + t) * 4,
                   x->x_scale.data + (t * x->n_groups * WORDS + gw) * 4, 4);
        }
    }
    return b;
}

static shape shape_create(bench_session *s, int64_t groups, int64_t tokens) {
    const int64_t rows = groups * RANK, weight_bytes = rows * K, scale_bytes = rows * CHUNKS;
    shape x = {.desc = {.n_groups = (int32_t)groups,
                        .max_tokens = tokens,
                        .rank = RANK,
                        .x_scale_layout = MMLA_SCALE_PACKED,
                        .implementation = s->options.implementation},
               .n_tokens = tokens,
               .n_groups = groups,
               .n_sets = bench_gpu_sets_count(s, (double)(weight_bytes + scale_bytes)),
               .arena = {.device = &s->device},
               .blas = &s->gpu_blas};
    bench_tile codes = bench_tile_codes(s->options.seed, 4);
    bench_tile scales = bench_tile_scales(s->options.seed, 5);
    x.x = rows_create(&codes, tokens * groups, K);
    x.x_scale = rows_create(&scales, tokens * groups, CHUNKS);
    x.weight = rows_create(&codes, rows, K);
    x.weight_scale = rows_create(&scales, rows, CHUNKS);
    check_buffer packed = packed_create(&x);
    x.args.n_tokens = tokens;
    x.args.x = bench_arena_copy(&x.arena, x.x.data, x.x.bytes);
    x.args.x_scale = bench_arena_copy(&x.arena, packed.data, packed.bytes);
    x.args.weight =
        bench_arena_repeat(&x.arena, x.weight.data, weight_bytes, x.n_sets * weight_bytes);
    x.args.weight_scale =
        bench_arena_repeat(&x.arena, x.weight_scale.data, scale_bytes, x.n_sets * scale_bytes);
    x.args.z = bench_arena_add(&x.arena, tokens * rows * 2);
    check_buffer_destroy(&packed);
    bench_tile_destroy(&codes);
    bench_tile_destroy(&scales);
    return x;
}

static void shape_destroy(shape *x) {
    check_buffer *const buffers[] = {&x->x, &x->x_scale, &x->weight, &x->weight_scale};
    mmla_project_plan_destroy(x->plan);
    for (int i = 0; i < 4; i++) {
        check_buffer_destroy(buffers[i]);
    }
    bench_arena_destroy(&x->arena);
}

static mmla_status call(void *job, int64_t i, void *stream, mmla_error *err) {
    const shape *x = job;
    const int64_t rows = i % x->n_sets * x->n_groups * RANK;
    mmla_project_args args = x->args;
    args.weight += rows * K;
    args.weight_scale += rows * CHUNKS;
    if (x->wide != NULL) {
        args.weight_wide = x->wide + i % x->n_sets * (int64_t)mmla_project_wide_bytes(x->plan);
    }
    args.error = err;
    return mmla_project_run(x->plan, &args, x->workspace, stream);
}

/* Every set's weight, wide. */
static void widen(bench_session *s, shape *x) {
    const int64_t bytes = (int64_t)mmla_project_wide_bytes(x->plan), rows = x->n_groups * RANK;
    x->wide = bench_arena_add(&x->arena, x->n_sets * bytes);
    for (int64_t i = 0; i < x->n_sets && bench_device_is_well(&s->device); i++) {
        mmla_error err = {0};
        const mmla_project_widen_args args = {.weight = x->args.weight + i * rows * K,
                                              .weight_scale =
                                                  x->args.weight_scale + i * rows * CHUNKS,
                                              .wide = x->wide + i * bytes,
                                              .error = &err};
        bench_device_keep(&s->device, mmla_project_widen(x->plan, &args, s->device.stream), &err);
    }
}

/* Looks at numbers all over the last timed call's result. Every set has the same weights. */
static void verify(bench_session *s, const shape *x, bench_row *row) {
    const int64_t n = x->n_tokens * x->n_groups * RANK;
    check_buffer z = check_buffer_create(n * 2, 64, 0);
    bench_device_read(&s->device, z.data, x->args.z, z.bytes);
    if (s->options.corrupt == BENCH_CORRUPT_FUSED) {
        memset(z.data, POISON, (size_t)z.bytes);
    }
    row->verified = bench_device_is_well(&s->device);
    for (int64_t i = 0; i < n && row->verified; i += n / LOOKED_AT + 1) {
        const int64_t xg = i / RANK, w = xg % x->n_groups * RANK + i % RANK;
        double bound;
        const double want =
            bench_dot(x->x.data + xg * K, x->x_scale.data + xg * CHUNKS, x->weight.data + w * K,
                      x->weight_scale.data + w * CHUNKS, &bound);
        const double got = (double)check_bf16_to_f32(((const uint16_t *)z.data)[i]);
        if (!(fabs(got - want) <= bound)) {
            row->verified = false;
            snprintf(row->problem, sizeof row->problem, "z[%lld] is %.9g, should be %.9g",
                     (long long)i, got, want);
        }
    }
    check_buffer_destroy(&z);
}

static mmla_status call_cublas(void *job, int64_t i, void *stream, mmla_error *err) {
    (void)stream; /* the handle has it */
    const shape *x = job;
    cublas_product p = x->product;
    p.b = (const uint16_t *)p.b + i % x->n_sets * x->n_groups * RANK * K;
    return cublas_run(x->blas, &p, err);
}

/* cuBLAS with both operands in bf16, which holds every code times its scale as it is; random numbers
 * of the same kind instead of the same ones. A failure costs the row this figure only. */
static double measure_cublas(bench_session *s, shape *x) {
    const int64_t t = x->n_tokens, g = x->n_groups, rows = g * RANK;
    if (x->blas->library == NULL) {
        return 0.0;
    }
    bench_tile tile = bench_tile_bf16(s->options.seed, 6);
    bench_arena arena = {.device = &s->device};
    x->product = (cublas_product){.m = t,
                                  .n = RANK,
                                  .k = K,
                                  .a_stride = g * K,
                                  .c_stride = rows,
                                  .n_products = g,
                                  .a_step = K,
                                  .b_step = (int64_t)RANK * K,
                                  .c_step = RANK};
    x->product.a = bench_arena_repeat(&arena, tile.data.data, tile.data.bytes, t * g * K * 2);
    x->product.b =
        bench_arena_repeat(&arena, tile.data.data, tile.data.bytes, x->n_sets * rows * K * 2);
    x->product.c = bench_arena_add(&arena, t * rows * 2);
    bench_replay r = bench_replay_create(&s->device, call_cublas, x, x->n_sets);
    const bench_timing timing =
        bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
    bench_replay_destroy(&r);
    bench_device_forget(&s->device);
    bench_arena_destroy(&arena);
    bench_tile_destroy(&tile);
    return timing.median_us;
}

static void run_shape(bench_session *s, int64_t groups, int64_t tokens, bool is_wide) {
    bench_row *row = bench_gpu_row_begin(s, "project", is_wide ? "wide" : NULL,
                                         groups * MMLA_HEADS_PER_GROUP, tokens);
    if (row == NULL) {
        return;
    }
    row->flop = 2.0 * (double)(tokens * groups * RANK) * K;
    row->bytes = (double)(groups * RANK) * (K + CHUNKS);
    shape x = shape_create(s, groups, tokens);
    mmla_error err = {0};
    if (bench_device_keep(&s->device, mmla_project_plan_create(s->ctx, &x.desc, &x.plan, &err),
                          &err)) {
        snprintf(row->implementation, sizeof row->implementation, "%s",
                 mmla_project_plan_implementation(x.plan));
        x.workspace = bench_arena_add(&x.arena, (int64_t)mmla_project_workspace_bytes(x.plan));
        if (is_wide) {
            widen(s, &x);
        }
        bench_replay r = bench_replay_create(&s->device, call, &x, x.n_sets);
        bench_device_fill(&s->device, x.args.z, POISON, tokens * groups * RANK * 2);
        row->fused = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
        bench_replay_destroy(&r);
        verify(s, &x, row);
        if (row->verified) {
            row->cublas_us = measure_cublas(s, &x);
        }
    }
    bench_gpu_row_finish(s, row);
    shape_destroy(&x);
}

/* Whether the implementation that rows have can use a wide weight. */
static bool has_wide(bench_session *s) {
    const mmla_project_desc desc = {.n_groups = 1, .implementation = s->options.implementation};
    mmla_project_plan *plan;
    const bool has = mmla_project_plan_create(s->ctx, &desc, &plan, NULL) == MMLA_OK &&
                     mmla_project_wide_bytes(plan) > 0;
    mmla_project_plan_destroy(plan);
    return has;
}

void bench_gpu_project_run(bench_session *s) {
    static const int64_t heads_default[] = {64, 8, 16}, few_tokens[] = {1, 1024};
    static const int64_t all_tokens[] = {1, 64, 256, 1024, 4096};
    if (!bench_wants_op(s, "project") || s->options.formats != NULL) {
        return;
    }
    const bool quick = s->options.quick;
    const bench_list heads = bench_list_or(&s->options.heads, heads_default, quick ? 2 : 3);
    const bench_list tokens = quick ? bench_list_or(&s->options.tokens, few_tokens, 2)
                                    : bench_list_or(&s->options.tokens, all_tokens, 5);
    const bool wide = has_wide(s);
    for (int i = 0; i < heads.n; i++) {
        for (int j = 0; j < tokens.n; j++) {
            const int64_t groups = heads.values[i] / MMLA_HEADS_PER_GROUP;
            run_shape(s, groups, tokens.values[j], false);
            if (wide && tokens.values[j] >= WIDE_TOKENS_MIN) {
                run_shape(s, groups, tokens.values[j], true);
            }
        }
    }
}
