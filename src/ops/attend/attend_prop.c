/* attend_prop.c - laws that hold for every implementation: agreement with the fp64 reference over
 * shapes and forms, and what must not change a bit. The full matrix is `megamla check`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/attend_fixture.h"
#include "support/near.h"

static uint64_t seed;

static void *copy_of(const test_buffer *b) {
    void *copy = malloc(b->bytes + 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->bytes);
    return copy;
}

/* Out, scales, lse and max_logits of a run, kept for a comparison by bits. */
struct results {
    void *out, *out_scale, *lse, *max_logits;
};

static struct results keep(const attend_fixture *f) {
    return (struct results){copy_of(&f->out), copy_of(&f->out_scale), copy_of(&f->lse),
                            copy_of(&f->max_logits)};
}

static void expect_same_bits(const attend_fixture *f, const struct results *want) {
    assert_memory_equal(f->out.data, want->out, f->out.bytes);
    assert_memory_equal(f->out_scale.data, want->out_scale, f->out_scale.bytes);
    assert_memory_equal(f->lse.data, want->lse, f->lse.bytes);
    assert_memory_equal(f->max_logits.data, want->max_logits, f->max_logits.bytes);
}

static void drop(struct results *r) {
    free(r->out);
    free(r->out_scale);
    free(r->lse);
    free(r->max_logits);
}

/* Output may differ by one rounding of the cast: 1/8 of the value, or the smallest codes. Where the
 * probabilities are rounded to bf16, also by 2^-9 of the largest number averaged: the keys are
 * normal deviates, none beyond 6. docs/numerics.md derives both. */
static double absolute_tolerance(const char *name) {
    return strcmp(name, "avx512_bf16") == 0 ? 1.1e-3 + 6 * 0x1p-9 : 1.1e-3;
}

static void expect_near_reference(attend_fixture *f, const char *name) {
    const int64_t n = f->n_tokens * f->desc.n_heads;
    double *want = malloc((size_t)n * MMLA_LATENT_DIM * sizeof *want);
    assert_non_null(want);
    assert_int_equal(attend_fixture_run(f, "reference"), MMLA_OK);
    for (int64_t i = 0; i < n * MMLA_LATENT_DIM; i++) {
        want[i] = attend_fixture_out(f, 0, (int32_t)(i / MMLA_LATENT_DIM),
                                     (int32_t)(i % MMLA_LATENT_DIM));
    }
    struct results reference = keep(f);
    assert_int_equal(attend_fixture_run(f, name), MMLA_OK);
    struct near out = near_init("out", absolute_tolerance(name), 1.01 / 8);
    struct near lse = near_init("lse", 1e-5, 4.01 / 65536);
    struct near max = near_init("max_logits", 1e-5, 4.01 / 65536);
    for (int64_t i = 0; i < n * MMLA_LATENT_DIM; i++) {
        near_check(&out, i,
                   attend_fixture_out(f, 0, (int32_t)(i / MMLA_LATENT_DIM),
                                      (int32_t)(i % MMLA_LATENT_DIM)),
                   want[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        near_check(&lse, i, (double)((const float *)f->lse.data)[i],
                   (double)((const float *)reference.lse)[i]);
        near_check(&max, i, (double)((const float *)f->max_logits.data)[i],
                   (double)((const float *)reference.max_logits)[i]);
    }
    drop(&reference);
    free(want);
}

static void expect_all_near_reference(attend_fixture *f) {
    attend_fixture_fill(f, seed);
    const char *name;
    for (int32_t i = 0; (name = attend_fixture_implementation(f, i)) != NULL; i++) {
        expect_near_reference(f, name);
    }
    attend_fixture_destroy(f);
}

static void every_head_count_agrees_with_the_reference(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= MMLA_HEADS_MAX; heads += 8) {
        attend_fixture f = attend_fixture_paged(2);
        f.desc.n_heads = heads;
        f.desc.q_layout = heads % 16 == 0 ? MMLA_Q_FUSED : MMLA_Q_STANDARD;
        f.desc.out_form = MMLA_OUT_FP8; /* one token at a time below: heads are its rows */
        expect_all_near_reference(&f);
    }
}

static void every_form_agrees_with_the_reference(void **state) {
    (void)state;
    for (int form = MMLA_OUT_FP8_PERMUTED; form <= MMLA_OUT_BF16; form++) {
        attend_fixture f = attend_fixture_paged(1);
        f.desc.n_heads = 40;
        f.desc.out_form = (mmla_out_form)form;
        f.desc.q_norm = form % 2;
        f.desc.q_norm_eps = 1e-6f;
        expect_all_near_reference(&f);
    }
}

static void every_format_pair_agrees_with_the_reference(void **state) {
    (void)state;
    static const mmla_kv_format pairs[][2] = {
        {MMLA_KV_V4, MMLA_KV_NONE},      {MMLA_KV_V4, MMLA_KV_V4},
        {MMLA_KV_V41_FP8, MMLA_KV_NONE}, {MMLA_KV_V41_FP8, MMLA_KV_V41_FP8},
        {MMLA_KV_V41_FP4, MMLA_KV_NONE}, {MMLA_KV_V41_FP4, MMLA_KV_V41_FP4},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        attend_fixture f = attend_fixture_paged(1);
        f.desc.window.format = pairs[i][0];
        f.desc.compressed.format = pairs[i][1];
        f.desc.n_heads = 16;
        expect_all_near_reference(&f);
    }
}

static void every_list_width_agrees_with_the_reference(void **state) {
    (void)state;
    static const int32_t widths[] = {1, 2, 11, 12, 13, 47, 48, 49, 95, 97, 513};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        attend_fixture f = attend_fixture_rows(1);
        f.desc.list_width = widths[i];
        f.desc.n_heads = 24;
        f.n_rows = 61;
        expect_all_near_reference(&f);
    }
}

/* A batch of tokens with threads, compared with each token alone on one thread. */
static void threads_and_batch_change_no_bit(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_paged(1);
    f.n_tokens = 5;
    f.desc.n_heads = 72;
    f.desc.list_width = 60;
    f.desc.out_form = MMLA_OUT_FP8;
    attend_fixture_fill(&f, seed);
    const int32_t threads[] = {1, 2, 3, 7, 16};
    const char *name;
    for (int32_t i = 0; (name = attend_fixture_implementation(&f, i)) != NULL; i++) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        struct results want = keep(&f);
        for (int t = 0; t < 5; t++) {
            mmla_context *kept = f.ctx;
            const mmla_context_options options = {.n_threads = threads[t]};
            assert_int_equal(mmla_context_create(&options, &f.ctx, NULL), MMLA_OK);
            assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
            expect_same_bits(&f, &want);
            mmla_context_destroy(f.ctx);
            f.ctx = kept;
        }
        attend_fixture one = f; /* token 3 alone, into the same buffers */
        one.args.n_tokens = 1;
        one.args.q += 3 * 72 * MMLA_LATENT_DIM;
        one.args.positions += 3;
        one.args.list += 3 * 60;
        one.args.lens += 3;
        one.args.compressed_list += 3 * f.desc.compressed_width;
        one.args.compressed_lens += 3;
        assert_int_equal(attend_fixture_run(&one, name), MMLA_OK);
        const size_t row = 72 * MMLA_LATENT_DIM;
        assert_memory_equal(one.out.data, (const uint8_t *)want.out + 3 * row, row);
        assert_memory_equal(one.lse.data, (const float *)want.lse + 3 * 72, 72 * sizeof(float));
        drop(&want);
    }
    attend_fixture_destroy(&f);
}

/* The same keys in the same order, with holes between them and wild entries past the length. */
static void holes_and_entries_past_the_length_change_no_bit(void **state) {
    (void)state;
    static const int32_t wild[] = {INT32_MIN, -123456, -1, 48, 49, 114514, 2147480000, INT32_MAX};
    attend_fixture f = attend_fixture_paged(1);
    f.desc.n_heads = 16;
    f.desc.list_width = 64;
    attend_fixture_fill(&f, seed);
    int32_t *list = f.list.data, keys[20];
    memcpy(keys, list, sizeof keys);
    *(int32_t *)f.lens.data = 20;
    const char *name;
    for (int32_t i = 0; (name = attend_fixture_implementation(&f, i)) != NULL; i++) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        struct results want = keep(&f);
        for (int32_t k = 0; k < 60; k++) {
            list[k] = k % 3 == 1 ? keys[k / 3] : wild[k % 8];
        }
        *(int32_t *)f.lens.data = 60; /* slots 60 .. 63 are legal and must not count */
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        expect_same_bits(&f, &want);
        memcpy(list, keys, sizeof keys);
        *(int32_t *)f.lens.data = 20;
        drop(&want);
    }
    attend_fixture_destroy(&f);
}

static void rerun_and_unused_bytes_change_no_bit(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_paged(2);
    f.desc.n_heads = 16;
    f.desc.window.page_stride_bytes = 16 * 528 + 4096;
    attend_fixture_fill(&f, seed);
    for (int32_t k = 0; k < f.desc.list_width; k++) {
        ((int32_t *)f.list.data)[k] = 17 + k; /* page 1 */
    }
    const char *name;
    for (int32_t i = 0; (name = attend_fixture_implementation(&f, i)) != NULL; i++) {
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        struct results want = keep(&f);
        memset(f.window.data, 0x7F, 16 * 528 + 4096); /* page 0 and its padding: NaN codes */
        assert_int_equal(attend_fixture_run(&f, name), MMLA_OK);
        expect_same_bits(&f, &want);
        drop(&want);
    }
    attend_fixture_destroy(&f);
}

/* Two calls over halves of the list, without a sink, joined with it: what one call gives. */
static void merged_halves_agree_with_the_whole(void **state) {
    (void)state;
    for (int form = MMLA_OUT_FP8_PERMUTED; form <= MMLA_OUT_BF16; form++) {
        attend_fixture f = attend_fixture_rows(1);
        f.desc.n_heads = 16;
        f.desc.list_width = 40;
        f.desc.out_form = MMLA_OUT_BF16;
        attend_fixture_fill(&f, seed);
        const float *sink = f.args.sink;
        f.args.sink = NULL;
        *(int32_t *)f.lens.data = 25;
        assert_int_equal(attend_fixture_run(&f, NULL), MMLA_OK);
        struct results a = keep(&f);
        const int32_t *list = f.args.list;
        f.args.list += 25;
        *(int32_t *)f.lens.data = 15;
        assert_int_equal(attend_fixture_run(&f, NULL), MMLA_OK);
        struct results b = keep(&f);

        attend_fixture whole = f;
        whole.desc.out_form = (mmla_out_form)form;
        whole.args.list = list;
        whole.args.sink = sink;
        *(int32_t *)f.lens.data = 40;
        test_buffer scales = test_buffer_create(4096, 4);
        whole.out_scale = scales;
        whole.args.out_scale = scales.data;
        assert_int_equal(attend_fixture_run(&whole, "reference"), MMLA_OK);
        double want[16 * MMLA_LATENT_DIM];
        for (int32_t i = 0; i < 16 * MMLA_LATENT_DIM; i++) {
            want[i] = attend_fixture_out(&whole, 0, i / MMLA_LATENT_DIM, i % MMLA_LATENT_DIM);
        }
        float lse[16];
        memcpy(lse, whole.lse.data, sizeof lse);
        const mmla_attend_merge_args merge = {.n_tokens = 1,
                                              .n_heads = 16,
                                              .out_form = (mmla_out_form)form,
                                              .out_a = a.out,
                                              .lse_a = a.lse,
                                              .out_b = b.out,
                                              .lse_b = b.lse,
                                              .sink = sink,
                                              .out = whole.out.data,
                                              .out_scale = scales.data,
                                              .lse = whole.lse.data};
        test_buffer_poison(&whole.out);
        assert_int_equal(mmla_attend_merge(f.ctx, &merge, NULL, NULL), MMLA_OK);
        /* The parts were rounded to bf16 before they were joined: 2^-9 of the larger ones more. */
        struct near out = near_init("merged out", 1.1e-3 + 0x1p-8, 1.01 / 8);
        for (int32_t i = 0; i < 16 * MMLA_LATENT_DIM; i++) {
            near_check(&out, i,
                       attend_fixture_out(&whole, 0, i / MMLA_LATENT_DIM, i % MMLA_LATENT_DIM),
                       want[i]);
        }
        struct near merged_lse = near_init("merged lse", 1e-5, 4.01 / 65536);
        for (int32_t h = 0; h < 16; h++) {
            near_check(&merged_lse, h, (double)((const float *)whole.lse.data)[h], (double)lse[h]);
        }
        assert_true(test_buffer_is_intact(&scales));
        test_buffer_destroy(&scales);
        drop(&a);
        drop(&b);
        attend_fixture_destroy(&f);
    }
}

static void merge_of_an_empty_part_ignores_what_it_holds(void **state) {
    (void)state;
    mmla_context *ctx;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    test_buffer a = test_buffer_create(8 * 512 * 2, 16), b = test_buffer_create(8 * 512 * 2, 16);
    test_buffer out = test_buffer_create(8 * 512 * 2, 32);
    float lse_a[8], lse_b[8], lse[8];
    memset(a.data, 0xFF, a.bytes); /* NaN */
    memset(b.data, 0, b.bytes);
    for (int h = 0; h < 8; h++) {
        lse_a[h] = INFINITY;
        lse_b[h] = h < 4 ? 1.5f : INFINITY;
    }
    const mmla_attend_merge_args args = {.n_tokens = 1,
                                         .n_heads = 8,
                                         .out_form = MMLA_OUT_BF16,
                                         .out_a = a.data,
                                         .lse_a = lse_a,
                                         .out_b = b.data,
                                         .lse_b = lse_b,
                                         .out = out.data,
                                         .lse = lse};
    assert_int_equal(mmla_attend_merge(ctx, &args, NULL, NULL), MMLA_OK);
    for (int i = 0; i < 8 * 512; i++) {
        assert_int_equal(((const uint16_t *)out.data)[i], 0);
    }
    assert_true(lse[0] == 1.5f && lse[7] == INFINITY);
    test_buffer_destroy(&a);
    test_buffer_destroy(&b);
    test_buffer_destroy(&out);
    mmla_context_destroy(ctx);
}

static void merge_of_large_equal_lse_is_their_mean(void **state) {
    (void)state;
    mmla_context *ctx;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    test_buffer a = test_buffer_create(8 * 512 * 2, 16), b = test_buffer_create(8 * 512 * 2, 16);
    test_buffer out = test_buffer_create(8 * 512 * 2, 32);
    float lse[8];
    for (int i = 0; i < 8 * 512; i++) {
        ((uint16_t *)a.data)[i] = 0x3F80; /* 1 */
        ((uint16_t *)b.data)[i] = 0x4000; /* 2 */
    }
    for (int h = 0; h < 8; h++) {
        lse[h] = 1e38f;
    }
    const mmla_attend_merge_args args = {.n_tokens = 1,
                                         .n_heads = 8,
                                         .out_form = MMLA_OUT_BF16,
                                         .out_a = a.data,
                                         .lse_a = lse,
                                         .out_b = b.data,
                                         .lse_b = lse,
                                         .out = out.data};
    assert_int_equal(mmla_attend_merge(ctx, &args, NULL, NULL), MMLA_OK);
    assert_int_equal(((const uint16_t *)out.data)[17], 0x3FC0); /* 1.5 */
    test_buffer_destroy(&a);
    test_buffer_destroy(&b);
    test_buffer_destroy(&out);
    mmla_context_destroy(ctx);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_count_agrees_with_the_reference),
        cmocka_unit_test(every_form_agrees_with_the_reference),
        cmocka_unit_test(every_format_pair_agrees_with_the_reference),
        cmocka_unit_test(every_list_width_agrees_with_the_reference),
        cmocka_unit_test(threads_and_batch_change_no_bit),
        cmocka_unit_test(holes_and_entries_past_the_length_change_no_bit),
        cmocka_unit_test(rerun_and_unused_bytes_change_no_bit),
        cmocka_unit_test(merged_halves_agree_with_the_whole),
        cmocka_unit_test(merge_of_an_empty_part_ignores_what_it_holds),
        cmocka_unit_test(merge_of_large_equal_lse_is_their_mean),
    };
    seed = test_seed(argc, argv);
    return cmocka_run_group_tests_name("attend_prop", tests, NULL, NULL);
}
