/* project_wide_test.c - calls with a wide weight, of shapes that take every launch there is for it
 * (project_wgmma_launch_test.c): tokens all over a call against exact sums, bits again, and what must not reach a token
 * from others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "num/bf16.h"
#include "num/ue8m0.h"
#include "support/project_exact.h"
#include "support/project_fixture.h"
#include "support/rng.h"

enum { SCALES = MMLA_PROJECT_SCALES, LOOKED_AT = 9 };

static uint64_t seed;

/* The name of a call with a wide weight, where GPU 0 has one. */
static const char *wide_name(void) {
    for (size_t i = 0; i < project_n_on_gpu(); i++) {
        if (project_is_wide(project_on_gpu(i))) {
            return project_on_gpu(i);
        }
    }
    return NULL;
}

static const struct shape {
    int32_t n_groups, rank;
    int64_t n_tokens;
} shapes[] = {{2, 1000, 256}, {1, 1024, 380},  {1, 1000, 1000}, {16, 1016, 380},
              {8, 1000, 250}, {8, 1024, 1000}, {8, 264, 1500},  {16, 8, 1000},
              {1, 1016, 100}, {1, 1000, 150},  {4, 1000, 61},   {8, 1016, 60}};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static project_fixture fixture_of(const struct shape *s, int i) {
    const mmla_project_desc desc = {.n_groups = s->n_groups,
                                    .max_tokens = s->n_tokens + 1,
                                    .rank = s->rank,
                                    .x_scale_layout =
                                        i % 3 == 2 ? MMLA_SCALE_BYTES : MMLA_SCALE_PACKED,
                                    .x_scale_word_stride = i % 2 ? s->n_tokens + 1 : 0};
    return i % 2 ? project_fixture_create_aligned(desc, s->n_tokens, 1)
                 : project_fixture_create(desc, s->n_tokens, 1);
}

/* Token i of those that are looked at: the first and the last, and what lies between, at the ends of tiles too. */
static int64_t looked_at(int64_t n_tokens, int i) {
    static const int64_t ends[] = {0, 63, 64, 127, 128, 255, 256};
    return i < 7 && ends[i] < n_tokens ? ends[i] : i % 2 ? n_tokens - 1 : n_tokens / 2;
}

/* Those tokens of a call that has run, against exact sums; the fraction of the tolerance that was used. */
static double check_tokens(const project_fixture *f, const char *name) {
    const int64_t groups = f->desc.n_groups;
    const mmla_project_desc desc = {.n_groups = f->desc.n_groups,
                                    .max_tokens = LOOKED_AT,
                                    .rank = f->rank,
                                    .x_scale_layout = MMLA_SCALE_BYTES};
    project_fixture part = project_fixture_create(desc, LOOKED_AT, 1);
    memcpy(part.weight.data, f->weight.data, f->weight.bytes);
    memcpy(part.weight_scale.data, f->weight_scale.data, f->weight_scale.bytes);
    for (int i = 0; i < LOOKED_AT; i++) {
        const int64_t t = looked_at(f->args.n_tokens, i);
        memcpy(project_x_at(&part, i, 0), project_x_at(f, t, 0), (size_t)groups * MMLA_PROJECT_DIM);
        for (int64_t at = 0; at < groups * SCALES; at++) {
            *project_x_scale_at(&part, i, at / SCALES, at % SCALES) =
                *project_x_scale_at(f, t, at / SCALES, at % SCALES);
        }
        memcpy((uint16_t *)part.z.data + i * groups * f->rank,
               (const uint16_t *)f->z.data + t * groups * f->rank,
               (size_t)(groups * f->rank) * sizeof(uint16_t));
    }
    project_exact e = project_exact_create(&part);
    const double used = project_exact_check(&part, &e, name);
    project_exact_destroy(&e);
    project_fixture_destroy(&part);
    return used;
}

/* What a call without a wide weight gives. */
static test_buffer plain_z(project_fixture *f) {
    test_buffer z = test_buffer_create(f->z.bytes, 2);
    project_fixture_run(f, "wgmma");
    memcpy(z.data, f->z.data, f->z.bytes);
    return z;
}

/* A call, and again for the same bits. */
static void check_call(project_fixture *f) {
    const char *name = wide_name();
    test_buffer before = test_buffer_create(f->z.bytes, 2);
    project_fixture_run(f, name);
    memcpy(before.data, f->z.data, f->z.bytes);
    project_fixture_run(f, name);
    assert_memory_equal(before.data, f->z.data, f->z.bytes);
    printf("# %lld tokens, %d groups, rank %d: %.2f of the tolerance\n",
           (long long)f->args.n_tokens, (int)f->desc.n_groups, (int)f->rank, check_tokens(f, name));
    test_buffer_destroy(&before);
}

static void wide_usual_scales_match_exact_sums(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        project_fixture_fill(&f, seed + (uint64_t)i, 112, 120, 110, 122);
        test_buffer plain = plain_z(&f);
        check_call(&f);
        /* Of so many sums in another order one is rounded to another number, or they were not. */
        assert_memory_not_equal(plain.data, f.z.data, f.z.bytes);
        test_buffer_destroy(&plain);
        project_fixture_destroy(&f);
    }
}

/* Scales 2^21 apart, the most that fp16 takes, of which the smallest are subnormal there. */
static void wide_scales_at_the_ends_of_fp16_match_exact_sums(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        project_fixture_fill(&f, seed + (uint64_t)i, 105, 126, 108, 129);
        check_call(&f);
        project_fixture_destroy(&f);
    }
}

/* z where neither the row nor the token is one of two each, as it was before. */
static void
check_others(const project_fixture *f, const test_buffer *before, const int64_t tokens[2]) {
    const int64_t n_groups = f->desc.n_groups;
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < n_groups; g++) {
            for (int64_t n = 0; n < f->rank; n++) {
                const bool is_row =
                    (g == n_groups - 1 && n == f->rank - 1) || (g == 0 && n == f->rank / 2);
                if (t != tokens[0] && t != tokens[1] && !is_row) {
                    assert_int_equal(
                        project_z_at(f, t, g, n),
                        ((const uint16_t *)before->data)[(t * n_groups + g) * f->rank + n]);
                }
            }
        }
    }
}

/* Rows and tokens whose scales lie too far apart, among others, whose bits they leave alone. */
static void wide_odd_rows_and_tokens_match_exact_sums(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        test_buffer before = test_buffer_create(f.z.bytes, 2);
        const int64_t tokens[2] = {0, f.args.n_tokens - 1}, group = f.desc.n_groups - 1;
        project_fixture_fill(&f, seed + (uint64_t)i, 112, 120, 110, 122);
        project_fixture_run(&f, wide_name());
        memcpy(before.data, f.z.data, f.z.bytes);
        *project_x_scale_at(&f, tokens[0], 0, 0) = 150;
        *project_x_scale_at(&f, tokens[1], group, 127) = 60;
        *project_weight_scale_at(&f, group, f.rank - 1) = 80;
        project_weight_scale_at(&f, 0, f.rank / 2)[64] = 146;
        check_call(&f);
        check_others(&f, &before, tokens);
        test_buffer_destroy(&before);
        project_fixture_destroy(&f);
    }
}

/* Sums of nothing but -0, by whichever way they come to z: an odd token changes that of its tile. */
static void wide_negative_zeros_do_not_hang_on_other_tokens(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        test_buffer before = test_buffer_create(f.z.bytes, 2);
        const size_t token = (size_t)f.desc.n_groups * MMLA_PROJECT_DIM;
        project_fixture_fill(&f, seed + (uint64_t)i, 112, 120, 110, 122);
        memset((uint8_t *)f.x.data + token, 0x80, f.x.bytes - token);
        project_fixture_run(&f, wide_name());
        memcpy(before.data, f.z.data, f.z.bytes);
        *project_x_scale_at(&f, 0, 0, 0) = 150;
        project_fixture_run(&f, wide_name());
        assert_memory_not_equal(f.z.data, before.data, f.z.bytes);
        const size_t row = (size_t)(f.desc.n_groups * f.rank);
        assert_memory_equal((const uint16_t *)f.z.data + row, (const uint16_t *)before.data + row,
                            (size_t)(f.args.n_tokens - 1) * row * sizeof(uint16_t));
        test_buffer_destroy(&before);
        project_fixture_destroy(&f);
    }
}

/* Of all scale bytes there are, where nearly every row and token is odd. */
static void wide_all_scale_bytes_match_exact_sums(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    project_fixture f = fixture_of(&(const struct shape){1, 1024, 380}, 0);
    project_fixture_fill(&f, seed, 0, 254, 0, 254);
    check_call(&f);
    project_fixture_destroy(&f);
}

/* Codes of one sign, whose sums grow to the end, so that what is cut off adds up. */
static void wide_sums_of_one_sign_match_exact_sums(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        project_fixture_fill(&f, seed + (uint64_t)i, 118, 120, 118, 120);
        for (size_t k = 0; k < f.x.bytes; k++) {
            ((uint8_t *)f.x.data)[k] &= 0x7F;
        }
        for (size_t k = 0; k < f.weight.bytes; k++) {
            ((uint8_t *)f.weight.data)[k] &= 0x7F;
        }
        check_call(&f);
        project_fixture_destroy(&f);
    }
}

/* z after some operands of tokens `own` and of a row of weight have changed: NaN in their results and no other bit. */
static void check_changes(project_fixture *f, const test_buffer *before, const int64_t own[2]) {
    const int64_t n_groups = f->desc.n_groups, group = n_groups - 1;
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < n_groups; g++) {
            const bool is_nan = (t == own[0] && g == group) || (t == own[1] && g == 0);
            for (int64_t n = 0; n < f->rank; n++) {
                const int64_t at = (t * n_groups + g) * f->rank + n;
                const bool is_row = g == group && n == f->rank - 3;
                assert_int_equal(((const uint16_t *)f->z.data)[at],
                                 is_nan || is_row ? MMLA_BF16_NAN
                                                  : ((const uint16_t *)before->data)[at]);
            }
        }
    }
}

static void wide_nan_reaches_its_own_results_and_no_other(void **state) {
    (void)state;
    if (wide_name() == NULL) {
        skip();
    }
    for (int i = 0; i < N_SHAPES; i++) {
        project_fixture f = fixture_of(&shapes[i], i);
        test_buffer before = test_buffer_create(f.z.bytes, 2);
        const int64_t own[2] = {7, f.args.n_tokens - 1}, group = f.desc.n_groups - 1;
        project_fixture_fill(&f, seed + (uint64_t)i, 112, 120, 110, 122);
        project_fixture_run(&f, wide_name());
        memcpy(before.data, f.z.data, f.z.bytes);
        project_x_at(&f, own[0], group)[4095] = 0x7F;
        *project_x_scale_at(&f, own[1], 0, 126) = MMLA_UE8M0_NAN;
        project_weight_at(&f, group, f.rank - 3)[2] = 0xFF;
        project_fixture_run(&f, wide_name());
        check_changes(&f, &before, own);
        test_buffer_destroy(&before);
        project_fixture_destroy(&f);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_usual_scales_match_exact_sums),
        cmocka_unit_test(wide_scales_at_the_ends_of_fp16_match_exact_sums),
        cmocka_unit_test(wide_odd_rows_and_tokens_match_exact_sums),
        cmocka_unit_test(wide_negative_zeros_do_not_hang_on_other_tokens),
        cmocka_unit_test(wide_all_scale_bytes_match_exact_sums),
        cmocka_unit_test(wide_sums_of_one_sign_match_exact_sums),
        cmocka_unit_test(wide_nan_reaches_its_own_results_and_no_other),
    };
    return cmocka_run_group_tests_name("project_wide", tests, NULL, NULL);
}
