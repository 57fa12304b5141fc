/* attend_merge_cuda_test.c - two parts joined on a GPU and on the CPU. Weights are in fp32 there and in
 * double here: lse may differ by its last bits, a code by one where it lies next to a tie. Skipped
 * where there is no GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kv/attend_output.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "ops/attend/attend.h"
#include "support/gpu_mirror.h"
#include "support/rng.h"

enum { D = MMLA_LATENT_DIM, CHUNKS = D / MMLA_OUT_CHUNK_DIM, WORD_STRIDE = 13 };

static uint64_t seed;

struct call {
    mmla_attend_merge_args args;
    test_buffer out_a, lse_a, out_b, lse_b, sink, out, out_scale, lse;
};

static float drawn(test_rng *rng, float scale) {
    return scale * test_rng_normal(rng);
}

/* Rows of every kind: both parts with keys, one or none, far apart, and one that is NaN. What a part
 * without keys holds is NaN. */
static void fill_row(struct call *c, int64_t row, test_rng *rng) {
    uint16_t *const parts[] = {c->out_a.data, c->out_b.data};
    float *const lse[] = {c->lse_a.data, c->lse_b.data};
    const int kind = (int)(row % 11);
    for (int part = 0; part < 2; part++) {
        const bool empty = kind == 1 + part || kind == 3;
        lse[part][row] = empty ? INFINITY : 5.0f + drawn(rng, kind == 4 ? 60.0f : 2.0f);
        for (int x = 0; x < D; x++) {
            parts[part][row * D + x] =
                empty ? 0xFFC1 : mmla_bf16_from_f32(drawn(rng, part == 0 ? 1.0f : 3.0f));
        }
    }
    if (kind == 5) {
        lse[row / 11 % 2][row] = NAN;
    }
    for (int x = 0; x < 4 && kind > 5; x++) { /* zeros of all signs, whose sum has one of its own */
        parts[0][row * D + x] = (uint16_t)(x % 2 << 15);
        parts[1][row * D + x] = (uint16_t)(x / 2 << 15);
    }
}

static struct call call_create(mmla_out_form form, int32_t n_heads, int64_t n_tokens) {
    test_rng rng = {seed + (uint64_t)form};
    const size_t rows = (size_t)n_tokens * (size_t)n_heads;
    const size_t scale_bytes[] = {(size_t)n_heads / 8 * 32 * WORD_STRIDE * 4, rows * CHUNKS,
                                  rows * 4 * sizeof(float), 0};
    struct call c = {.out_a = test_buffer_create(rows * D * 2, 16),
                     .lse_a = test_buffer_create(rows * 4, 4),
                     .out_b = test_buffer_create(rows * D * 2, 16),
                     .lse_b = test_buffer_create(rows * 4, 4),
                     .sink = test_buffer_create((size_t)n_heads * 4, 4),
                     .out = test_buffer_create(rows * D * (form == MMLA_OUT_BF16 ? 2 : 1), 32),
                     .out_scale = test_buffer_create(scale_bytes[form], 4),
                     .lse = test_buffer_create(rows * 4, 4)};
    for (size_t row = 0; row < rows; row++) {
        fill_row(&c, (int64_t)row, &rng);
    }
    for (int32_t h = 0; h < n_heads; h++) {
        ((float *)c.sink.data)[h] =
            h % 5 == 0 ? -INFINITY : (h % 7 == 0 ? INFINITY : drawn(&rng, 5.0f));
    }
    const bool packed = form == MMLA_OUT_FP8_PERMUTED;
    c.args = (mmla_attend_merge_args){
        .n_tokens = n_tokens,
        .n_heads = n_heads,
        .out_form = form,
        .out_scale_word_stride = packed ? WORD_STRIDE : 0,
        .out_a = c.out_a.data,
        .lse_a = c.lse_a.data,
        .out_b = c.out_b.data,
        .lse_b = c.lse_b.data,
        .sink = c.sink.data,
        .out = c.out.data,
        .out_scale = form == MMLA_OUT_BF16 ? NULL : c.out_scale.data,
        .lse = c.lse.data,
    };
    return c;
}

static void call_destroy(struct call *c) {
    test_buffer *const all[] = {&c->out_a, &c->lse_a, &c->out_b,     &c->lse_b,
                                &c->sink,  &c->out,   &c->out_scale, &c->lse};
    for (int i = 0; i < 8; i++) {
        assert_true(test_buffer_is_intact(all[i]));
        test_buffer_destroy(all[i]);
    }
}

static void poison(struct call *c) {
    test_buffer_poison(&c->out);
    test_buffer_poison(&c->out_scale);
    test_buffer_poison(&c->lse);
}

/* The call on copies of its arrays on GPU 0. */
static void run_on_gpu(struct call *c) {
    static const size_t pointers[] = {
        offsetof(mmla_attend_merge_args, out_a),     offsetof(mmla_attend_merge_args, lse_a),
        offsetof(mmla_attend_merge_args, out_b),     offsetof(mmla_attend_merge_args, lse_b),
        offsetof(mmla_attend_merge_args, sink),      offsetof(mmla_attend_merge_args, out),
        offsetof(mmla_attend_merge_args, out_scale), offsetof(mmla_attend_merge_args, lse)};
    const test_buffer *const all[] = {&c->out_a, &c->lse_a, &c->out_b,     &c->lse_b,
                                      &c->sink,  &c->out,   &c->out_scale, &c->lse};
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    mmla_context *gpu;
    mmla_error err;
    mmla_attend_merge_args args = c->args;
    test_mirror m;
    poison(c);
    assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < 8; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_move(&m, &args, pointers, sizeof pointers / sizeof pointers[0]);
    test_mirror_push(&m);
    if (mmla_attend_merge(gpu, &args, m.stream, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    test_mirror_pull(&m, c->out.data);
    test_mirror_pull(&m, (char *)c->out_scale.data - TEST_GUARD_BYTES);
    test_mirror_pull(&m, c->lse.data);
    test_mirror_close(&m);
    mmla_context_destroy(gpu);
}

/* Value of a result; *step, how far the next code is from it at most. */
static double value_of(const struct call *c, int64_t row, int32_t x, double *step) {
    const int32_t n_heads = c->args.n_heads, h = (int32_t)(row % n_heads);
    const int64_t token = row / n_heads, at = row * D + x;
    const uint8_t *codes = c->out.data, *bytes = c->out_scale.data;
    double scale = 1.0, code;
    switch (c->args.out_form) {
    case MMLA_OUT_BF16:
        code = (double)mmla_bf16_to_f32(((const uint16_t *)c->out.data)[at]);
        *step = fabs(code) / 128.0 + 0x1p-133;
        return code;
    case MMLA_OUT_FP8_128:
        scale = (double)((const float *)c->out_scale.data)[at / MMLA_OUT_WIDE_DIM];
        code = (double)mmla_e4m3_to_f32(codes[at]);
        break;
    case MMLA_OUT_FP8:
        scale = (double)mmla_ue8m0_to_f32(bytes[at / MMLA_OUT_CHUNK_DIM]);
        code = (double)mmla_e4m3_to_f32(codes[at]);
        break;
    default: {
        const mmla_out_scale_strides s = mmla_out_scale_strides_get(WORD_STRIDE, 0, 0);
        scale = (double)mmla_ue8m0_to_f32(
            bytes[mmla_out_scale_offset(s, token, h, x / MMLA_OUT_CHUNK_DIM)]);
        code = (double)mmla_e4m3_to_f32(codes[token * n_heads * D + mmla_out_permuted_index(h, x)]);
        break;
    }
    }
    *step = scale * (fabs(code) / 8.0 + 0x1p-9) * 1.0001;
    return scale * code;
}

static void check_row(const struct call *got, const struct call *want, int64_t row) {
    const double g = (double)((const float *)got->lse.data)[row];
    const double w = (double)((const float *)want->lse.data)[row];
    if (isfinite(w)) {
        assert_true(fabs(g - w) <= 0x1p-22 * fmax(1.0, fabs(w)));
    } else {
        assert_true(isnan(w) ? isnan(g) : g == w);
    }
    for (int32_t x = 0; x < D; x++) {
        double step, other;
        const double value = value_of(want, row, x, &step);
        const double is = value_of(got, row, x, &other);
        const bool same_zero = value != 0.0 || is != 0.0 || !signbit(value) == !signbit(is);
        if (!same_zero || !(isnan(value) ? isnan(is) : fabs(is - value) <= fmax(step, other))) {
            fail_msg("row %lld dim %d: got %.9g, want %.9g", (long long)row, (int)x, is, value);
        }
    }
}

static void merge_on_a_gpu_is_that_of_the_cpu(void **state) {
    (void)state;
    if (mmla_gpu_count() == 0) {
        skip();
    }
    static const int32_t heads[] = {8, 24, 64, 128};
    for (int i = 0; i < 16; i++) {
        const mmla_out_form form = (mmla_out_form)(i % 4);
        struct call want = call_create(form, heads[i / 4], 1 + 3 * (i % 5));
        struct call got = call_create(form, heads[i / 4], 1 + 3 * (i % 5));
        if (i % 3 == 2) {
            got.args.sink = want.args.sink = NULL;
        }
        poison(&want);
        mmla_attend_merge_parts(&want.args, 2);
        run_on_gpu(&got);
        for (int64_t row = 0; row < want.args.n_tokens * heads[i / 4]; row++) {
            check_row(&got, &want, row);
        }
        if (form == MMLA_OUT_FP8_PERMUTED) { /* words between the tokens' stay as they were */
            const uint32_t *words = got.out_scale.data;
            for (size_t word = 0; word < got.out_scale.bytes / 4; word++) {
                if ((int64_t)(word % WORD_STRIDE) >= got.args.n_tokens) {
                    assert_int_equal(words[word], 0x01010101u * TEST_POISON);
                }
            }
        }
        call_destroy(&want);
        call_destroy(&got);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge_on_a_gpu_is_that_of_the_cpu),
    };
    return cmocka_run_group_tests_name("attend_merge_cuda", tests, NULL, NULL);
}
