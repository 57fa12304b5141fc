/* check_weights.c - the weight layouts against the index maps of weights.h, written out. The last
 * cases have more rows than 16 bits count. */
#include <stdio.h>
#include <string.h>

#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_near.h"
#include "app/check/check_rng.h"

enum { D = MMLA_LATENT_DIM };
enum { CASES_QUICK = 60, CASES_DRAWN = 300, CASE_ROWS = CASES_DRAWN, CASE_SCALES, CASES_FULL };
enum { MANY_ROWS = 66000, MANY_SCALE_ROWS = 2100000 /* the latter of 65,625 blocks */ };

static const char *const kinds[] = {"permute_wq_b", "permute_wo_a", "expand_scales", "q_to_fused",
                                    "q_to_standard"};

/* Where row h * 512 + x of a head-major order goes in the chunk-interleaved one. */
static int64_t fused_place(int64_t n_heads, int64_t row) {
    const int64_t h = row / D, x = row % D;
    return x / 16 * (n_heads * 16) + h * 16 + x % 16;
}

/* Where column h * 512 + c * 32 + i of a group goes; with unit 1 and 16 chunks: its scale. */
static int64_t group_place(int64_t column, int64_t unit) {
    const int64_t chunk = column / unit, h = chunk / 16, c = chunk % 16;
    return (c * 8 + h) * unit + column % unit;
}

/* The definition: out and scale_out of a description and its args. */
static void
define(const mmla_weights_desc *d, const mmla_weights_args *a, uint8_t *out, uint8_t *scale_out) {
    const uint8_t *in = a->in;
    if (d->kind == MMLA_WEIGHTS_EXPAND_SCALES) {
        for (int64_t r = 0; r < d->rows && scale_out != NULL; r++) {
            memcpy(scale_out + r * d->scale_cols, a->scale_in + r / 32 * d->scale_cols,
                   (size_t)d->scale_cols);
        }
        return;
    }
    for (int64_t r = 0; r < d->rows; r++) {
        switch (d->kind) {
        case MMLA_WEIGHTS_PERMUTE_WQ_B:
            memcpy(out + fused_place(d->n_heads, r) * d->cols, in + r * d->cols, (size_t)d->cols);
            if (scale_out != NULL) {
                memcpy(scale_out + fused_place(d->n_heads, r) * d->scale_cols,
                       a->scale_in + r * d->scale_cols, (size_t)d->scale_cols);
            }
            break;
        case MMLA_WEIGHTS_PERMUTE_WO_A:
            for (int64_t k = 0; k < d->cols; k++) {
                out[r * d->cols + group_place(k, 32)] = in[r * d->cols + k];
            }
            for (int64_t k = 0; k < d->scale_cols && scale_out != NULL; k++) {
                scale_out[r * d->scale_cols + group_place(k, 1)] =
                    a->scale_in[r * d->scale_cols + k];
            }
            break;
        default:
            for (int64_t i = 0; i < d->n_heads * D; i++) {
                const int64_t token = r * d->n_heads * D, place = fused_place(d->n_heads, i);
                const bool to_fused = d->kind == MMLA_WEIGHTS_Q_TO_FUSED;
                memcpy(out + (token + (to_fused ? place : i)) * 2,
                       in + (token + (to_fused ? i : place)) * 2, 2);
            }
        }
    }
}

typedef struct weights_case {
    mmla_weights_desc desc;
    int64_t bytes, scale_in_bytes, scale_bytes;
    char shape[CHECK_TEXT_BYTES];
} weights_case;

static weights_case weights_case_create(const check_session *s, int64_t idx, check_rng *rng) {
    static const int32_t heads[] = {8, 16, 24, 64, 72, 128};
    const uint64_t seed = s->options.seed;
    weights_case c = {.desc = {.kind = (mmla_weights_kind)check_draw(seed, 60, idx, 5)}};
    mmla_weights_desc *d = &c.desc;
    if (idx >= CASES_DRAWN) {
        d->kind = idx == CASE_ROWS ? MMLA_WEIGHTS_PERMUTE_WO_A : MMLA_WEIGHTS_EXPAND_SCALES;
    }
    const int32_t n_heads = heads[check_draw(seed, 61, idx, 6)];
    switch (d->kind) {
    case MMLA_WEIGHTS_PERMUTE_WQ_B:
        d->n_heads = n_heads;
        d->rows = (int64_t)n_heads * D;
        d->cols = 1 + check_rng_below(rng, 40);
        d->scale_cols = 1 + check_rng_below(rng, 5);
        break;
    case MMLA_WEIGHTS_PERMUTE_WO_A:
        d->rows = idx == CASE_ROWS ? MANY_ROWS : check_rng_below(rng, 40);
        d->cols = MMLA_GROUP_DIM;
        d->scale_cols = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM;
        break;
    case MMLA_WEIGHTS_EXPAND_SCALES:
        d->rows = idx == CASE_SCALES ? MANY_SCALE_ROWS : check_rng_below(rng, 200);
        d->scale_cols = 1 + check_rng_below(rng, 9);
        break;
    default:
        d->n_heads = n_heads;
        d->rows = check_rng_below(rng, 5);
    }
    const bool is_q = d->kind >= MMLA_WEIGHTS_Q_TO_FUSED;
    c.bytes = is_q ? d->rows * n_heads * D * 2 : d->rows * d->cols;
    const bool expands = d->kind == MMLA_WEIGHTS_EXPAND_SCALES;
    c.scale_bytes = d->rows * d->scale_cols;
    c.scale_in_bytes = expands ? (d->rows + 31) / 32 * d->scale_cols : c.scale_bytes;
    snprintf(c.shape, sizeof c.shape, "%s heads=%d rows=%lld cols=%lld scale_cols=%lld",
             kinds[d->kind], d->n_heads, (long long)d->rows, (long long)d->cols,
             (long long)d->scale_cols);
    return c;
}

static check_buffer random_bytes(int64_t bytes, int64_t alignment, check_rng *rng) {
    check_buffer b = check_buffer_create(bytes, alignment, 0xFF);
    for (int64_t i = 0; i < bytes; i++) {
        b.data[i] = (uint8_t)(check_rng_next(rng) >> 32);
    }
    return b;
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX]; /* one, which plans need not be told */
    if (check_session_implementations(s, "weights", names) == 0) {
        return;
    }
    check_rng rng = check_rng_at(s->options.seed, 0x776774, (uint64_t)idx);
    const weights_case c = weights_case_create(s, idx, &rng);
    /* No alignment beyond the element's is promised. */
    const int64_t alignment = c.desc.kind >= MMLA_WEIGHTS_Q_TO_FUSED ? 2 : 1;
    check_buffer in = random_bytes(c.bytes, alignment, &rng);
    check_buffer scale_in = random_bytes(c.scale_in_bytes, 1, &rng);
    check_buffer out = check_buffer_create(c.bytes, alignment, 0x5A);
    check_buffer scale_out = check_buffer_create(c.scale_bytes, 1, 0x5A);
    check_buffer want = check_buffer_create(c.bytes, alignment, 0x5A);
    check_buffer scale_want = check_buffer_create(c.scale_bytes, 1, 0x5A);
    const bool with_scales = c.scale_bytes > 0 && (c.desc.kind == MMLA_WEIGHTS_EXPAND_SCALES ||
                                                   check_rng_chance(&rng, 0.7));
    mmla_error err = {0};
    const mmla_weights_args args = {.in = in.data,
                                    .out = out.data,
                                    .scale_in = with_scales ? scale_in.data : NULL,
                                    .scale_out = with_scales ? scale_out.data : NULL,
                                    .error = &err};
    check_verdict verdict = {0};
    mmla_weights_plan *plan;
    const bool other = idx % 2 == 1;
    const device_options staging = check_session_staging(s, other, idx);
    device_call call = {.ctx = other ? s->other : s->many, .options = &staging};
    mmla_status status = mmla_weights_plan_create(call.ctx, &c.desc, &plan, &err);
    if (status == MMLA_OK) {
        call.workspace_bytes = mmla_weights_workspace_bytes(plan);
        status = device_call_weights(&call, plan, &c.desc, &args);
        check_verdict_damage(&verdict, &call);
    }
    if (status != MMLA_OK) {
        check_verdict_fail(&verdict, "%s: %s", mmla_status_name(status), err.message);
    }
    mmla_weights_plan_destroy(plan);
    if (!check_buffer_is_intact(&out) || !check_buffer_is_intact(&scale_out)) {
        check_verdict_fail(&verdict, "bytes before or behind a result were written");
    }
    define(&c.desc, &args, want.data, with_scales ? scale_want.data : NULL);
    check_session_corrupt(s, out.data, out.bytes);
    const int64_t at = check_bytes_compare(out.data, want.data, out.bytes);
    const int64_t scale_at = check_bytes_compare(scale_out.data, scale_want.data, scale_out.bytes);
    if (at >= 0 || scale_at >= 0) {
        check_verdict_fail(&verdict, "byte %lld of %s differs from its definition",
                           (long long)(at >= 0 ? at : scale_at), at >= 0 ? "out" : "scale_out");
    }
    check_session_record(s, "weights", names[0], true, idx, c.shape, &verdict);
    check_buffer *const buffers[] = {&in, &scale_in, &out, &scale_out, &want, &scale_want};
    for (int i = 0; i < 6; i++) {
        check_buffer_destroy(buffers[i]);
    }
}

const check_suite check_suite_weights = {"weights",  "weights", CASES_QUICK,
                                         CASES_FULL, run_case,  false};
