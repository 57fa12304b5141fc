/* bench_project.c - the output projection, against fp32 products of its shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/bench/bench.h"
#include "app/bench/bench_dot.h"
#include "app/check/check_buffer.h"
#include "app/check/check_near.h"
#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum { K = MMLA_GROUP_DIM, CHUNKS = K / MMLA_OUT_CHUNK_DIM, RANK = 1024, SETS_MAX = 16 };

typedef struct shape {
    mmla_project_desc desc;
    mmla_project_args args;
    check_buffer x, x_scale, weight, weight_scale, z, workspace;
    int64_t n_sets; /* copies of the weights, so that none stays in the processor's caches */
    mmla_project_plan *plan;
    mmla_status status;
} shape;

static check_buffer random_codes(int64_t n, check_rng *rng) {
    check_buffer b = check_buffer_create(n, 64, 0);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)(check_rng_next(rng) >> 40);
        b.data[i] = (code & 0x7F) == 0x7F ? 0 : code;
    }
    return b;
}

static check_buffer random_scales(int64_t n, check_rng *rng) {
    check_buffer b = check_buffer_create(n, 64, 0);
    for (int64_t i = 0; i < n; i++) {
        b.data[i] = (uint8_t)(116 + check_rng_below(rng, 6));
    }
    return b;
}

static shape shape_create(bench_session *s, int64_t groups, int64_t tokens) {
    check_rng rng = check_rng_at(s->options.seed, 4, (uint64_t)(groups * 1000 + tokens));
    shape x = {.desc = {.n_groups = (int32_t)groups,
                        .max_tokens = tokens,
                        .rank = RANK,
                        .x_scale_layout = MMLA_SCALE_BYTES,
                        .implementation = s->options.implementation},
               .args = {.n_tokens = tokens}};
    const int64_t weight_bytes = groups * RANK * K;
    x.n_sets = bench_cold_bytes(s) / weight_bytes + 1;
    x.n_sets = x.n_sets < SETS_MAX ? x.n_sets : SETS_MAX;
    x.x = random_codes(tokens * groups * K, &rng);
    x.x_scale = random_scales(tokens * groups * CHUNKS, &rng);
    x.weight = random_codes(x.n_sets * weight_bytes, &rng);
    x.weight_scale = random_scales(x.n_sets * groups * RANK * CHUNKS, &rng);
    x.z = check_buffer_create(tokens * groups * RANK * 2, 64, 0x5A);
    x.args.x = x.x.data;
    x.args.x_scale = x.x_scale.data;
    x.args.z = (uint16_t *)x.z.data;
    return x;
}

static void shape_destroy(shape *x) {
    mmla_project_plan_destroy(x->plan);
    check_buffer *const buffers[] = {&x->x, &x->x_scale,  &x->weight, &x->weight_scale,
                                     &x->z, &x->workspace};
    for (int i = 0; i < 6; i++) {
        check_buffer_destroy(buffers[i]);
    }
}

static void rotate(shape *x, int64_t i) {
    const int64_t set = i % x->n_sets, rows = x->desc.n_groups * (int64_t)RANK;
    x->args.weight = x->weight.data + set * rows * K;
    x->args.weight_scale = x->weight_scale.data + set * rows * CHUNKS;
}

static void call(void *job, int64_t i) {
    shape *x = job;
    rotate(x, i);
    const mmla_status status = mmla_project_run(x->plan, &x->args, x->workspace.data, NULL);
    x->status = status != MMLA_OK ? status : x->status;
}

/* Looks at a few hundred of the last timed call's results. */
static void verify(shape *x, int64_t last, bench_row *row) {
    const int64_t n = x->args.n_tokens * x->desc.n_groups * (int64_t)RANK;
    rotate(x, last);
    row->verified = x->status == MMLA_OK && check_buffer_is_intact(&x->z);
    for (int64_t i = 0; i < n && row->verified; i += n / 199 + 1) {
        const int64_t xg = i / RANK, w = xg % x->desc.n_groups * RANK + i % RANK;
        double bound;
        const double want =
            bench_dot(x->args.x + xg * K, (const uint8_t *)x->args.x_scale + xg * CHUNKS,
                      x->args.weight + w * K, x->args.weight_scale + w * CHUNKS, &bound);
        const double got = (double)check_bf16_to_f32(((const uint16_t *)x->z.data)[i]);
        if (!(fabs(got - want) <= bound)) {
            row->verified = false;
            snprintf(row->problem, sizeof row->problem, "z[%lld] is %.9g, should be %.9g",
                     (long long)i, got, want);
        }
    }
}

static void run_shape(bench_session *s, int64_t groups, int64_t tokens) {
    bench_row *row = bench_row_add(s, "project", NULL);
    if (row == NULL) {
        return;
    }
    const double budget_s = s->options.quick ? 0.1 : 0.4;
    row->heads = groups * MMLA_HEADS_PER_GROUP;
    row->tokens = tokens;
    row->flop = 2.0 * (double)(tokens * groups * RANK) * K;
    row->bytes = (double)(groups * RANK) * (K + CHUNKS);
    shape x = shape_create(s, groups, tokens);
    mmla_error err = {0};
    if (mmla_project_plan_create(s->ctx, &x.desc, &x.plan, &err) == MMLA_OK) {
        snprintf(row->implementation, sizeof row->implementation, "%s",
                 mmla_project_plan_implementation(x.plan));
        x.workspace = check_buffer_create((int64_t)mmla_project_workspace_bytes(x.plan), 64, 0x5A);
        row->fused = bench_measure(call, &x, s->options.n_samples, budget_s);
        verify(&x, row->fused.last, row);
        row->sgemm_us = bench_baseline_us(openblas_measure_project(&s->blas, tokens, groups, RANK,
                                                                   s->options.n_samples, budget_s));
        row->floor_us = bench_floor_us(s, row);
    } else {
        snprintf(row->problem, sizeof row->problem, "%.159s", err.message);
    }
    bench_row_finish(s);
    shape_destroy(&x);
}

void bench_project_run(bench_session *s) {
    static const int64_t heads_default[] = {64, 8}, tokens_default[] = {1, 16, 64};
    if (!bench_wants_op(s, "project") || s->options.formats != NULL) {
        return;
    }
    const int n = s->options.quick ? 1 : 2;
    const bench_list heads = bench_list_or(&s->options.heads, heads_default, n);
    const bench_list tokens = bench_list_or(&s->options.tokens, tokens_default, n + 1);
    for (int i = 0; i < heads.n; i++) {
        for (int j = 0; j < tokens.n; j++) {
            run_shape(s, heads.values[i] / MMLA_HEADS_PER_GROUP, tokens.values[j]);
        }
    }
}
