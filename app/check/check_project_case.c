/* check_project_case.c - drawing a case, running it, and the tolerance of its results.
 *
 * The tolerance is derived, element by element. Products of two e4m3 codes and powers of two are
 * exact in fp32; a sum of K = 4096 of them in any order is off by at most K 2^-24 sum |x w|, which
 * is at most K 2^-24 |x| |w| (Cauchy and Schwarz). The reference rounds a sum in double to bf16;
 * the implementation's sum may lie on the other side of a rounding boundary, one bf16 step away:
 * 2^-7 |z|.
 */
#include "app/check/check_project_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_near.h"
#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum { K = MMLA_GROUP_DIM, CHUNK = MMLA_OUT_CHUNK_DIM, CHUNKS = K / CHUNK };

/* Where the scales of x lie, for n tokens, in bytes. */
typedef struct scale_layout {
    bool packed;
    int64_t n_groups, words, groups, bytes;
} scale_layout;

static scale_layout scale_layout_of(const mmla_project_desc *d, int64_t n) {
    scale_layout l = {.packed = d->x_scale_layout == MMLA_SCALE_PACKED, .n_groups = d->n_groups};
    l.words = d->x_scale_word_stride != 0 ? d->x_scale_word_stride : (n + 3) / 4 * 4;
    l.groups = d->x_scale_group_stride != 0 ? d->x_scale_group_stride : 32 * l.words;
    l.bytes = l.packed ? l.n_groups * l.groups * 4 : n * l.n_groups * CHUNKS;
    return l;
}

static int64_t scale_off(const scale_layout *l, int64_t t, int64_t g, int64_t chunk) {
    const int64_t word = g * l->groups + chunk / 4 * l->words + t;
    return l->packed ? word * 4 + chunk % 4 : (t * l->n_groups + g) * CHUNKS + chunk;
}

/* One row of 4096 codes and 128 scale bytes; its length. In one row of 12 a code or a scale is NaN; in one
 * of three some scales are the smallest, which a GPU takes another way. */
static double draw_row(uint8_t *codes, uint8_t *scales, const float *values, check_rng *rng) {
    for (int k = 0; k < K; k++) {
        const uint8_t code = (uint8_t)(check_rng_next(rng) >> 32);
        codes[k] = (code & 0x7F) == 0x7F ? 0 : code;
    }
    const double smallest = check_rng_chance(rng, 1.0 / 3.0) ? 0.03 : 0.0;
    for (int c = 0; c < CHUNKS; c++) {
        scales[c] = check_rng_chance(rng, smallest) ? 0 : (uint8_t)(112 + check_rng_below(rng, 20));
    }
    const double which = check_rng_uniform(rng);
    if (which < 0.04) {
        codes[check_rng_below(rng, K)] = 0xFF;
    } else if (which < 0.08) {
        scales[check_rng_below(rng, CHUNKS)] = 255;
    }
    double sum = 0.0;
    for (int k = 0; k < K; k++) {
        const double v = (double)values[codes[k]] * (double)check_ue8m0_to_f32(scales[k / CHUNK]);
        sum += v * v;
    }
    return sqrt(sum);
}

static void draw_inputs(check_project_case *c, check_rng *rng) {
    float values[256];
    uint8_t scales[CHUNKS];
    for (int code = 0; code < 256; code++) {
        values[code] = check_e4m3_to_f32((uint8_t)code);
    }
    const int64_t n = c->args.n_tokens, g_count = c->desc.n_groups, rank = c->desc.rank;
    const scale_layout layout = scale_layout_of(&c->desc, n);
    c->x = check_buffer_create(n * g_count * K, 16, 0xFF);
    c->x_scale = check_buffer_create(layout.bytes, 4, 0xFF);
    c->x_norm = check_alloc(n * g_count * 8);
    for (int64_t i = 0; i < n * g_count; i++) {
        c->x_norm[i] = draw_row(c->x.data + i * K, scales, values, rng);
        for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
            c->x_scale.data[scale_off(&layout, i / g_count, i % g_count, chunk)] = scales[chunk];
        }
    }
    c->weight = check_buffer_create(g_count * rank * K, 16, 0xFF);
    c->weight_scale = check_buffer_create(g_count * rank * CHUNKS, 1, 0xFF);
    c->weight_norm = check_alloc(g_count * rank * 8);
    for (int64_t i = 0; i < g_count * rank; i++) {
        c->weight_norm[i] =
            draw_row(c->weight.data + i * K, c->weight_scale.data + i * CHUNKS, values, rng);
    }
    c->args.x = c->x.data;
    c->args.x_scale = c->x_scale.data;
    c->args.weight = c->weight.data;
    c->args.weight_scale = c->weight_scale.data;
}

check_project_case check_project_case_create(const check_session *s, int64_t idx) {
    static const int32_t groups[] = {1, 2, 3, 8, 16};
    static const int32_t ranks[] = {8, 16, 24, 64, 72, 256, 1024};
    const uint64_t seed = s->options.seed;
    check_rng rng = check_rng_at(seed, 0x70726F, (uint64_t)idx);
    check_project_case c = {
        .desc = {.n_groups = groups[check_draw(seed, 50, idx, 5)],
                 .rank = ranks[check_draw(seed, 51, idx, 7)],
                 .x_scale_layout = (mmla_scale_layout)check_draw(seed, 52, idx, 2)}};
    /* The reference takes tokens x groups x rank dot products of 4096 in double. */
    const int64_t budget = s->options.quick ? 2048 : 8192;
    if (idx == CHECK_PROJECT_DRAWN) {
        c.desc = (mmla_project_desc){.n_groups = 1, .rank = 8, .x_scale_layout = MMLA_SCALE_BYTES};
    }
    while (c.desc.n_groups * c.desc.rank > budget) {
        c.desc.n_groups = (c.desc.n_groups + 1) / 2;
    }
    const int64_t most = budget / (c.desc.n_groups * c.desc.rank) + 1;
    const int64_t wanted = check_draw(seed, 53, idx, 11);
    c.args.n_tokens = idx == CHECK_PROJECT_DRAWN ? CHECK_PROJECT_PERIOD
                      : wanted < most            ? wanted
                                                 : most;
    c.desc.max_tokens = c.args.n_tokens + check_rng_below(&rng, 3);
    if (c.desc.x_scale_layout == MMLA_SCALE_PACKED && c.desc.max_tokens > 0 &&
        check_rng_chance(&rng, 0.5)) {
        c.desc.x_scale_word_stride = c.desc.max_tokens + check_rng_below(&rng, 6);
        c.desc.x_scale_group_stride = 32 * c.desc.x_scale_word_stride + check_rng_below(&rng, 9);
    }
    draw_inputs(&c, &rng);
    snprintf(c.shape, sizeof c.shape, "tokens=%lld groups=%d rank=%d scales=%s word_stride=%lld",
             (long long)c.args.n_tokens, c.desc.n_groups, c.desc.rank,
             c.desc.x_scale_layout == MMLA_SCALE_PACKED ? "packed" : "bytes",
             (long long)c.desc.x_scale_word_stride);
    return c;
}

void check_project_case_destroy(check_project_case *c) {
    check_buffer_destroy(&c->x);
    check_buffer_destroy(&c->x_scale);
    check_buffer_destroy(&c->weight);
    check_buffer_destroy(&c->weight_scale);
    free(c->x_norm);
    free(c->weight_norm);
}

/* A stride that leaves as much behind its tokens as the case's does. */
static int64_t stride_moved(int64_t stride, int64_t from, int64_t to) {
    return stride != 0 ? stride - from + to : 0;
}

check_project_repeat check_project_repeat_create(const check_project_case *c, int64_t n_tokens) {
    check_project_repeat r = {.c = *c};
    const int64_t n = c->args.n_tokens, g_count = c->desc.n_groups, token_bytes = g_count * K;
    mmla_project_desc *d = &r.c.desc;
    d->max_tokens = r.c.args.n_tokens = n > 0 ? n_tokens : 0;
    d->x_scale_word_stride =
        stride_moved(c->desc.x_scale_word_stride, c->desc.max_tokens, d->max_tokens);
    d->x_scale_group_stride =
        stride_moved(c->desc.x_scale_group_stride, 32 * c->desc.x_scale_word_stride,
                     32 * d->x_scale_word_stride);
    const scale_layout from = scale_layout_of(&c->desc, n), to = scale_layout_of(d, d->max_tokens);
    r.x = check_buffer_create(d->max_tokens * token_bytes, 16, 0xFF);
    r.x_scale = check_buffer_create(to.bytes, 4, 0xFF);
    for (int64_t t = 0; t < d->max_tokens; t++) {
        memcpy(r.x.data + t * token_bytes, c->x.data + t % n * token_bytes, (size_t)token_bytes);
        for (int64_t i = 0; i < g_count * CHUNKS; i++) {
            r.x_scale.data[scale_off(&to, t, i / CHUNKS, i % CHUNKS)] =
                c->x_scale.data[scale_off(&from, t % n, i / CHUNKS, i % CHUNKS)];
        }
    }
    r.c.args.x = r.x.data;
    r.c.args.x_scale = r.x_scale.data;
    return r;
}

void check_project_repeat_destroy(check_project_repeat *r) {
    check_buffer_destroy(&r->x);
    check_buffer_destroy(&r->x_scale);
}

bool check_project_run(const check_project_case *c,
                       mmla_context *ctx,
                       const device_options *staging,
                       const char *name,
                       bool is_wide,
                       uint8_t poison,
                       check_buffer *z,
                       check_verdict *verdict) {
    mmla_project_desc desc = c->desc;
    desc.implementation = name;
    mmla_error err = {0};
    mmla_project_plan *plan;
    const mmla_status planned = mmla_project_plan_create(ctx, &desc, &plan, &err);
    *z = (check_buffer){0};
    if (planned != MMLA_OK) {
        if (planned != MMLA_E_NO_IMPLEMENTATION) {
            check_verdict_fail(verdict, "the plan was refused: %s", err.message);
        }
        return planned != MMLA_E_NO_IMPLEMENTATION;
    }
    const int64_t wide_bytes = is_wide ? (int64_t)mmla_project_wide_bytes(plan) : 0;
    if (is_wide && wide_bytes == 0) {
        mmla_project_plan_destroy(plan);
        return false;
    }
    check_buffer wide = check_buffer_create(wide_bytes, 128, poison);
    *z = check_buffer_create(c->args.n_tokens * desc.n_groups * desc.rank * 2, 2, poison);
    check_buffer workspace =
        check_buffer_create((int64_t)mmla_project_workspace_bytes(plan), 64, poison);
    mmla_project_args args = c->args;
    args.z = (uint16_t *)z->data;
    args.error = &err;
    device_call call = {.ctx = ctx,
                        .options = staging,
                        .workspace = workspace.data,
                        .workspace_bytes = mmla_project_workspace_bytes(plan)};
    const mmla_status status =
        device_call_project(&call, plan, &desc, &args, is_wide ? wide.data : NULL);
    check_verdict_damage(verdict, &call);
    if (status != MMLA_OK) {
        check_verdict_fail(verdict, "run returned %s: %s", mmla_status_name(status), err.message);
    }
    if (!check_buffer_is_intact(z) || !check_buffer_is_intact(&workspace)) {
        check_verdict_fail(verdict, "bytes before or behind z or the workspace were written");
    }
    check_buffer_destroy(&workspace);
    check_buffer_destroy(&wide);
    mmla_project_plan_destroy(plan);
    return true;
}

void check_project_compare(const check_project_case *c,
                           const check_buffer *got,
                           const check_buffer *want,
                           check_verdict *verdict) {
    const int64_t g_count = c->desc.n_groups, rank = c->desc.rank;
    if (got->data == NULL || want->data == NULL) {
        check_verdict_fail(verdict, "there is nothing to compare: the reference failed");
        return;
    }
    for (int64_t i = 0; i < got->bytes / 2; i++) {
        const int64_t n = i % rank, tg = i / rank, g = tg % g_count;
        const float a = check_bf16_to_f32(((const uint16_t *)got->data)[i]);
        const float b = check_bf16_to_f32(((const uint16_t *)want->data)[i]);
        const double norms = c->x_norm[tg] * c->weight_norm[g * rank + n];
        if (isnan(a) != (norms != norms)) {
            check_verdict_fail(verdict,
                               "z of token %lld, group %lld, row %lld is %g; its operands %s",
                               (long long)(tg / g_count), (long long)g, (long long)n, (double)a,
                               norms != norms ? "have a NaN" : "have none");
            return;
        }
        check_near near = check_near_begin(
            (check_tolerance){.rel = 0x1p-7, .add = norms == norms ? K * 0x1p-24 * norms : 0.0});
        check_near_add(&near, &a, &b, 1, i);
        verdict->out_used = fmax(verdict->out_used, near.worst);
        if (!(near.worst <= 1.0)) {
            check_verdict_fail(
                verdict, "z of token %lld, group %lld, row %lld is %.9g, reference %.9g",
                (long long)(tg / g_count), (long long)g, (long long)n, (double)a, (double)b);
            return;
        }
    }
}
