/* chain_steps_test.c - each step of the chain against its definition, written out here once more.
 *
 * Rotation, rotation back and quantising are exact: given what the step before left, their bytes
 * are fixed. Attention is compared with sums in double.
 *
 * Tolerance of the attention step, u = 2^-24. A logit is a dot product of 512 in 16 chains: 32
 * products and additions, 4 joins, one factor, which with q_norm holds half the error of another
 * such sum and three roundings more; 64 u times the sum of magnitudes covers both. Call the largest
 * such error of a head delta. Then e = exp(s - m) is off by 2 delta, a rounding of s - m (at most
 * 104, below which e is 0) and of expf, together 2 delta + 106 u of itself; z adds n roundings, and
 * so does the weighted sum, which is exact to (4 delta + (212 + 2 n + 10) u) of the sum of
 * magnitudes. Rounding the result to bf16 adds 2^-8 of it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kv/layout.h"
#include "kv/record.h"
#include "num/bf16.h"
#include "num/quant.h"
#include "support/chain_fixture.h"

enum { D = MMLA_LATENT_DIM, ROPE = MMLA_ROPE_DIM, NOPE = D - ROPE };

static uint64_t seed;

/* The rotation as the documentation states it, on codes. */
static void turn(uint16_t *head, const float *table, int sign) {
    for (int i = 0; i < ROPE / 2; i++) {
        uint16_t *pair = head + NOPE + 2 * i;
        const float c = table[i], s = (float)sign * table[32 + i];
        const float x0 = mmla_bf16_to_f32(pair[0]), x1 = mmla_bf16_to_f32(pair[1]);
        pair[0] = mmla_bf16_from_f32(fmaf(x0, c, -(x1 * s)));
        pair[1] = mmla_bf16_from_f32(fmaf(x0, s, x1 * c));
    }
}

static const float *table_of(const attend_fixture *f, int64_t t) {
    return f->args.cos_sin + 64 * f->args.positions[t];
}

static uint16_t raw_q(const attend_fixture *f, int64_t t, int32_t h, int32_t x) {
    const int64_t stride = f->desc.q_token_stride ? f->desc.q_token_stride : f->desc.n_heads * D;
    const int64_t at = f->desc.q_layout == MMLA_Q_STANDARD
                           ? h * D + x
                           : x / 16 * (f->desc.n_heads * 16) + h * 16 + x % 16;
    return f->args.q[t * stride + at];
}

static void check_rope_q(const attend_fixture *f, const uint16_t *got) {
    for (int64_t t = 0; t < f->n_tokens; t++) {
        for (int32_t h = 0; h < f->desc.n_heads; h++) {
            uint16_t want[D];
            for (int32_t x = 0; x < D; x++) {
                want[x] = raw_q(f, t, h, x);
            }
            turn(want, table_of(f, t), 1);
            assert_memory_equal(got + (t * f->desc.n_heads + h) * D, want, sizeof want);
        }
    }
}

static void check_unrope(const attend_fixture *f, const uint16_t *attended, const uint16_t *got) {
    for (int64_t row = 0; row < f->n_tokens * f->desc.n_heads; row++) {
        uint16_t want[D];
        memcpy(want, attended + row * D, sizeof want);
        turn(want, table_of(f, row / f->desc.n_heads), -1);
        for (int32_t x = 448; x < D; x++) {
            want[x] = want[x] == 0x8000 ? 0 : want[x]; /* minus zero becomes zero */
        }
        assert_memory_equal(got + row * D, want, sizeof want);
    }
}

/* Out and out_scale from the rotated result, placed by the formulas of attend.h. */
static void check_quantise(const attend_fixture *f, const uint16_t *o) {
    const int64_t n_heads = f->desc.n_heads;
    const uint8_t *codes = f->out.data, *scale = f->out_scale.data;
    const int64_t word =
        f->desc.out_scale_word_stride ? f->desc.out_scale_word_stride : (f->n_tokens + 3) / 4 * 4;
    const int64_t group =
        f->desc.out_scale_group_stride ? f->desc.out_scale_group_stride : 32 * word;
    if (f->desc.out_form == MMLA_OUT_BF16) {
        assert_memory_equal(f->out.data, o, f->out.bytes);
        return;
    }
    for (int64_t row = 0; row < f->n_tokens * n_heads; row++) {
        const int64_t t = row / n_heads, h = row % n_heads;
        float x[D];
        uint8_t want[D];
        for (int i = 0; i < D; i++) {
            x[i] = mmla_bf16_to_f32(o[row * D + i]);
        }
        for (int c = 0; c < 16 && f->desc.out_form != MMLA_OUT_FP8_128; c++) {
            const uint8_t byte = mmla_quant_out_ue8m0(x + 32 * c, 1.0f, want);
            const int64_t place = c * 8 + h % 8;
            if (f->desc.out_form == MMLA_OUT_FP8) {
                assert_memory_equal(codes + row * D + 32 * c, want, 32);
                assert_int_equal(scale[row * 16 + c], byte);
            } else {
                assert_memory_equal(codes + t * n_heads * D + h / 8 * 4096 + place * 32, want, 32);
                assert_int_equal(scale[4 * (h / 8 * group + place / 4 * word + t) + place % 4],
                                 byte);
            }
        }
        for (int c = 0; c < 4 && f->desc.out_form == MMLA_OUT_FP8_128; c++) {
            const float s = mmla_quant_out_f32(x + 128 * c, 1.0f, want);
            assert_memory_equal(codes + row * D + 128 * c, want, 128);
            assert_true(((const float *)f->out_scale.data)[row * 4 + c] == s);
        }
    }
}

/* Appends the valid rows of one list to rows [*n][512]. */
static void append_rows(const attend_fixture *f, int which, int64_t t, float *rows, int *n) {
    const mmla_attend_desc *d = &f->desc;
    const int32_t *lists[] = {f->args.list, f->args.compressed_list};
    const int32_t *lens[] = {f->args.lens, f->args.compressed_lens};
    const int64_t widths[] = {d->list_width, d->compressed_width};
    const int64_t strides[] = {d->list_stride, d->compressed_stride};
    const mmla_cache_desc caches[] = {d->window, d->compressed};
    const uint8_t *pools[] = {f->args.window_cache, f->args.compressed_cache};
    const int64_t width = widths[which], stride = strides[which] ? strides[which] : width;
    const int64_t len = lens[which] ? lens[which][t] : width;
    for (int64_t i = 0; i < width && i < len; i++) {
        const int64_t entry = lists[which][t * stride + i];
        float *row = rows + (int64_t)*n * D;
        if (d->kind == MMLA_ATTEND_ROWS) {
            const int64_t row_stride = d->kv_row_stride ? d->kv_row_stride : D;
            if (entry >= 0 && entry < f->args.n_rows) {
                for (int x = 0; x < D; x++) {
                    row[x] = mmla_bf16_to_f32(f->args.kv[entry * row_stride + x]);
                }
                ++*n;
            }
            continue;
        }
        mmla_kv_view view;
        assert_int_equal(mmla_kv_view_init(&caches[which], "cache", &view, NULL), MMLA_OK);
        if (entry >= 0 && entry < caches[which].n_pages * caches[which].page_tokens) {
            mmla_kv_record_decode(view.format, pools[which] + mmla_kv_data_offset(&view, entry),
                                  pools[which] + mmla_kv_scale_offset(&view, entry), row);
            ++*n;
        }
    }
}

static double logit_factor(const attend_fixture *f, int64_t t, int32_t h) {
    double sum = 0.0;
    for (int32_t x = 0; x < D; x++) {
        const double q = mmla_bf16_to_f32(raw_q(f, t, h, x));
        sum += q * q;
    }
    return f->desc.q_norm ? 1.0 / sqrt(sum / D + (double)f->desc.q_norm_eps) : 1.0;
}

/* |got - want| as a fraction of what is allowed; fails above 1. */
static double used(const char *what, int64_t at, double got, double want, double allowed) {
    const double fraction = got == want ? 0.0 : fabs(got - want) / allowed;
    if (!(fraction <= 1.0)) {
        fail_msg("%s[%lld]: got %.9g, want %.9g, allowed difference %.3g", what, (long long)at, got,
                 want, allowed);
    }
    return fraction;
}

/* One head of one token: q rotated, its rows, and the results. Returns the worst fraction. */
static double check_head(const attend_fixture *f,
                         int64_t t,
                         int32_t h,
                         const float *rows,
                         int n,
                         const uint16_t *q,
                         const uint16_t *got) {
    const int64_t index = t * f->desc.n_heads + h;
    const double u = 0x1p-24, factor = (double)f->desc.scale * logit_factor(f, t, h);
    double m = -INFINITY, z = 0.0, delta = 0.0;
    double *s = malloc((size_t)(n + 1) * sizeof *s);
    for (int j = 0; j < n; j++) {
        double sum = 0.0, magnitude = 0.0;
        for (int x = 0; x < D; x++) {
            const double term = (double)mmla_bf16_to_f32(q[x]) * (double)rows[j * D + x];
            sum += term;
            magnitude += fabs(term);
        }
        s[j] = factor * sum;
        m = fmax(m, s[j]);
        delta = fmax(delta, 64 * u * factor * magnitude);
    }
    for (int j = 0; j < n; j++) {
        z += exp(s[j] - m);
    }
    const double sink = f->args.sink ? exp((double)f->args.sink[h] - m) : 0.0;
    const double relative = 4 * delta + (222 + 2 * n) * u;
    double worst = 0.0;
    for (int x = 0; x < D; x++) {
        double o = 0.0, magnitude = 0.0;
        for (int j = 0; j < n; j++) {
            o += exp(s[j] - m) * (double)rows[j * D + x];
            magnitude += exp(s[j] - m) * fabs((double)rows[j * D + x]);
        }
        o = n ? o / (z + sink) : 0.0;
        const double error = n ? relative * magnitude / (z + sink) : 0.0;
        const double allowed = error + 0x1p-8 * (fabs(o) + error) + 0x1p-134;
        worst = fmax(worst, used("o", index * D + x, (double)mmla_bf16_to_f32(got[x]), o, allowed));
    }
    const double lse = n ? m + log(z) : INFINITY;
    const double lse_allowed = 3 * delta + (116 + n + 4 * (fabs(m) + log(n + 1.0))) * u;
    if (f->args.lse) {
        worst = fmax(worst, used("lse", index, (double)f->args.lse[index], lse, lse_allowed));
    }
    if (f->args.max_logits) {
        worst = fmax(worst,
                     used("max", index, (double)f->args.max_logits[index], m, delta + fabs(m) * u));
    }
    free(s);
    return worst;
}

static void check_attend(const attend_fixture *f, const uint16_t *q, const uint16_t *got) {
    const int64_t n_heads = f->desc.n_heads;
    const size_t most = (size_t)(f->desc.list_width + f->desc.compressed_width);
    float *rows = malloc(most * D * sizeof *rows);
    double worst = 0.0;
    for (int64_t t = 0; t < f->n_tokens; t++) {
        int n = 0;
        append_rows(f, 0, t, rows, &n);
        if (f->desc.kind == MMLA_ATTEND_PAGED && f->desc.compressed.format != MMLA_KV_NONE) {
            append_rows(f, 1, t, rows, &n);
        }
        for (int32_t h = 0; h < n_heads; h++) {
            const int64_t at = (t * n_heads + h) * D;
            worst = fmax(worst, check_head(f, t, h, rows, n, q + at, got + at));
        }
    }
    printf("# attend: %lld tokens, %lld heads, worst %.2f of the tolerance\n",
           (long long)f->n_tokens, (long long)n_heads, worst);
    free(rows);
}

/* Entries that are no keys among those that are: negative, past the pool, past the length. */
static void make_lists_nasty(attend_fixture *f) {
    static const int32_t nasty[] = {-1, INT32_MIN, INT32_MAX, -123456, 1 << 20};
    int32_t *lists[] = {f->list.data, f->compressed_list.data};
    int32_t *lens[] = {f->lens.data, f->compressed_lens.data};
    const int32_t widths[] = {f->desc.list_width, f->desc.compressed_width};
    test_rng rng = {seed + 1};
    for (int which = 0; which < 2; which++) {
        for (int64_t t = 0; t < f->n_tokens && lists[which] != NULL; t++) {
            for (int32_t i = 0; i < widths[which]; i++) {
                if (test_rng_below(&rng, 4) == 0) {
                    lists[which][t * widths[which] + i] = nasty[test_rng_below(&rng, 5)];
                }
            }
            lens[which][t] = (int32_t)test_rng_below(&rng, widths[which] + 3) - 1;
        }
    }
}

/* All steps of one call against their definitions; then all in one against all one by one. */
static void check_call(attend_fixture *f) {
    uint16_t *after[CHAIN_FIXTURE_STEPS];
    assert_int_equal(chain_fixture_run_steps(f, after), MMLA_OK);
    check_rope_q(f, after[MMLA_CHAIN_ROPE_Q]);
    check_attend(f, after[MMLA_CHAIN_ROPE_Q], after[MMLA_CHAIN_ATTEND]);
    check_unrope(f, after[MMLA_CHAIN_ATTEND], after[MMLA_CHAIN_UNROPE]);
    check_quantise(f, after[MMLA_CHAIN_UNROPE]);
    chain_fixture_free_steps(after);
    test_buffer steps = chain_fixture_results(f);
    assert_int_equal(chain_fixture_run(f), MMLA_OK);
    test_buffer whole = chain_fixture_results(f);
    assert_memory_equal(steps.data, whole.data, whole.bytes);
    test_buffer_destroy(&steps);
    test_buffer_destroy(&whole);
}

static void chain_every_format_and_form_follows_its_definition(void **state) {
    (void)state;
    static const mmla_kv_format pairs[][2] = {
        {MMLA_KV_V4, MMLA_KV_NONE},         {MMLA_KV_V41_FP8, MMLA_KV_NONE},
        {MMLA_KV_V41_FP4, MMLA_KV_NONE},    {MMLA_KV_V4, MMLA_KV_V4},
        {MMLA_KV_V41_FP8, MMLA_KV_V41_FP8}, {MMLA_KV_V41_FP4, MMLA_KV_V41_FP4},
        {MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
    };
    static const int32_t pages[] = {1, 2, 61, 64};
    for (int i = 0; i < 14; i++) {
        attend_fixture f = attend_fixture_paged(1 + i % 3);
        f.n_tokens = 1 + i % 5;
        f.desc.n_heads = i == 6 ? 64 : 8 * (1 + i % 3);
        f.desc.window = (mmla_cache_desc){pairs[i % 7][0], pages[i % 4], 3, 0};
        f.desc.compressed = (mmla_cache_desc){pairs[i % 7][1], pages[(i + 1) % 4], 5, 0};
        f.desc.list_width = 1 + 5 * (i % 4);
        f.desc.compressed_width = 1 + 7 * (i % 3);
        f.desc.q_layout = i % 2 ? MMLA_Q_FUSED : MMLA_Q_STANDARD;
        f.desc.q_norm = i % 3 == 0;
        f.desc.q_norm_eps = 1e-4f;
        f.desc.out_form = (mmla_out_form)(i % 4);
        f.desc.out_scale_word_stride = i % 8 == 4 ? 9 : 0;
        f.desc.out_scale_group_stride = i % 8 == 4 ? 9 * 32 + 3 : 0;
        attend_fixture_fill(&f, seed + (uint64_t)i);
        if (i >= 7) {
            make_lists_nasty(&f);
        }
        check_call(&f);
        attend_fixture_destroy(&f);
    }
}

static void chain_rows_and_absent_options_follow_the_definition(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        attend_fixture f = attend_fixture_rows(1 + i % 2);
        f.n_tokens = 4;
        f.n_rows = 37;
        f.desc.list_width = 33;
        f.desc.q_layout = i % 2 ? MMLA_Q_FUSED : MMLA_Q_STANDARD;
        f.desc.out_form = (mmla_out_form)(i % 4);
        attend_fixture_fill(&f, seed + (uint64_t)i);
        if (i > 2) {
            make_lists_nasty(&f);
        }
        f.args.sink = i == 1 ? NULL : f.args.sink;
        f.args.lens = i == 2 ? NULL : f.args.lens;
        f.args.lse = i == 3 ? NULL : f.args.lse;
        f.args.max_logits = i == 4 ? NULL : f.args.max_logits;
        check_call(&f);
        attend_fixture_destroy(&f);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_every_format_and_form_follows_its_definition),
        cmocka_unit_test(chain_rows_and_absent_options_follow_the_definition),
    };
    return cmocka_run_group_tests_name("chain_steps", tests, NULL, NULL);
}
