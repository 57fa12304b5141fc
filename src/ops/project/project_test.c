/* project_test.c - every implementation of project against exact sums (support/project_exact.h).
 *
 * project_laws_test.c has what needs no exact sums.
 */
#include <math.h>
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

enum { K = MMLA_PROJECT_DIM };

static uint64_t seed;

/* Every implementation against exact sums. */
static void check_all(project_fixture *f) {
    project_exact e = project_exact_create(f);
    double worst = 0.0;
    const char *name;
    for (size_t i = 0; (name = project_implementation(f, i)) != NULL; i++) {
        project_fixture_run(f, name);
        worst = fmax(worst, project_exact_check(f, &e, name));
    }
    printf("# %lld tokens, %d groups, rank %d: worst %.2f of the tolerance\n",
           (long long)f->args.n_tokens, (int)f->desc.n_groups, (int)f->rank, worst);
    project_exact_destroy(&e);
}

static void project_every_shape_matches_exact_sums(void **state) {
    (void)state;
    static const struct {
        int32_t n_groups, rank;
        int64_t n_tokens;
    } shapes[] = {{1, 8, 1},  {1, 72, 2}, {2, 64, 3}, {3, 16, 5}, {16, 8, 7},
                  {1, 64, 9}, {2, 8, 48}, {1, 8, 49}, {1, 8, 99}, {1, 0, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const mmla_project_desc desc = {.n_groups = shapes[i].n_groups,
                                        .max_tokens = 100,
                                        .rank = shapes[i].rank,
                                        .x_scale_word_stride = i % 2 ? 101 : 0};
        project_fixture f = project_fixture_create(desc, shapes[i].n_tokens, 2);
        project_fixture_fill(&f, seed, 105, 125, 110, 122);
        check_all(&f);
        project_fixture_destroy(&f);
    }
}

static void project_scale_bytes_at_their_ends_keep_the_tolerance(void **state) {
    (void)state;
    /* x low, x high, weight low, weight high. */
    static const int ranges[][4] = {{0, 254, 0, 254},   {247, 254, 0, 20}, {0, 20, 247, 254},
                                    {240, 250, 5, 9},   {0, 3, 120, 127},  {120, 127, 0, 3},
                                    {50, 60, 50, 60},   {0, 127, 0, 127},  {0, 254, 10, 40},
                                    {127, 254, 0, 126}, {246, 247, 0, 2},  {200, 254, 200, 254}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 6, .rank = 16};
        project_fixture f = project_fixture_create(desc, 6, 1);
        project_fixture_fill(&f, seed, ranges[i][0], ranges[i][1], ranges[i][2], ranges[i][3]);
        check_all(&f);
        project_fixture_destroy(&f);
    }
}

static void project_one_product_lands_where_it_belongs(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 2, .max_tokens = 3, .rank = 16};
    project_fixture f = project_fixture_create(desc, 3, 1);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        for (int k = 0; k < K; k += 61) {
            project_fixture_fill(&f, seed, 120, 120, 120, 120);
            memset(f.x.data, 0, f.x.bytes);
            memset(f.weight.data, 0xB8, f.weight.bytes); /* -1, which a wrong place would meet */
            project_x_at(&f, 2, 1)[k] = 0x40;            /* 2 */
            project_weight_at(&f, 1, 9)[k] = 0x44;       /* 3 */
            *project_x_scale_at(&f, 2, 1, k / 32) = (uint8_t)(90 + k / 32 % 7);
            project_weight_scale_at(&f, 1, 9)[k / 32] = 131;
            project_fixture_run(&f, name);
            for (int64_t t = 0; t < 3; t++) {
                for (int64_t g = 0; g < 2; g++) {
                    for (int64_t n = 0; n < 16; n++) {
                        const bool here = t == 2 && g == 1;
                        const double w = n == 9 ? 3.0 * 0x1p4 : -1.0 * 0x1p-7;
                        const double want =
                            here ? 2.0 * ldexp(1.0, 90 + k / 32 % 7 - 127) * w : 0.0;
                        assert_true((double)mmla_bf16_to_f32(project_z_at(&f, t, g, n)) == want);
                    }
                }
            }
        }
    }
    project_fixture_destroy(&f);
}

static void project_equal_operands_give_the_sum_by_hand(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    project_fixture f = project_fixture_create(desc, 1, 1);
    project_fixture_fill(&f, seed, 120, 120, 130, 130);
    memset(f.x.data, 0x38, f.x.bytes);           /* 1 */
    memset(f.weight.data, 0x40, f.weight.bytes); /* 2 */
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        project_fixture_run(&f, name);
        for (int n = 0; n < 8; n++) { /* 4096 * 1 * 2 * 2^(120 + 130 - 254) = 512 */
            assert_int_equal(project_z_at(&f, 0, 0, n), 0x4400);
        }
    }
    project_fixture_destroy(&f);
}

static void project_sum_beyond_the_range_is_infinity(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    project_fixture f = project_fixture_create(desc, 1, 1);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        for (int scale = 185; scale <= 254; scale += 23) { /* from 2^128 on */
            project_fixture_fill(&f, seed, scale, scale, scale, scale);
            memset(f.x.data, 0x38, f.x.bytes);           /* 1 */
            memset(f.weight.data, 0xB8, f.weight.bytes); /* -1 */
            project_fixture_run(&f, name);
            for (int n = 0; n < 8; n++) {
                assert_int_equal(project_z_at(&f, 0, 0, n), 0xFF80);
            }
        }
    }
    project_fixture_destroy(&f);
}

static void project_zero_codes_under_the_largest_scales_give_zero(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 2, .rank = 8};
    project_fixture f = project_fixture_create(desc, 2, 1);
    project_fixture_fill(&f, seed, 254, 254, 254, 254);
    memset(f.x.data, 0, f.x.bytes);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        project_fixture_run(&f, name);
        for (int n = 0; n < 16; n++) {
            assert_int_equal(project_z_at(&f, n / 8, 0, n % 8) & 0x7FFF, 0);
        }
    }
    project_fixture_destroy(&f);
}

/* Only z[t 1][g 1] (from_x) or z[.][g 1][n 5] may be NaN. */
static void check_nan_places(const project_fixture *f, bool from_x) {
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < f->desc.n_groups; g++) {
            for (int64_t n = 0; n < f->rank; n++) {
                const bool want = from_x ? t == 1 && g == 1 : g == 1 && n == 5;
                const uint16_t z = project_z_at(f, t, g, n);
                if (want) {
                    assert_int_equal(z, MMLA_BF16_NAN);
                } else {
                    assert_true(isfinite(mmla_bf16_to_f32(z)));
                }
            }
        }
    }
}

static void project_nan_reaches_its_own_results_and_no_other(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 3, .max_tokens = 4, .rank = 8};
    project_fixture f = project_fixture_create(desc, 4, 2);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        for (int kind = 0; kind < 6; kind++) {
            project_fixture_fill(&f, seed, 110, 120, 110, 120);
            uint8_t *x = project_x_at(&f, 1, 1), *w = project_weight_at(&f, 1, 5);
            if (kind == 0) {
                x[4095] = 0x7F;
            } else if (kind == 1) {
                x[17] = 0xFF;
            } else if (kind == 2) { /* NaN, though every code under it is zero */
                memset(x + 32 * 126, 0, 32);
                *project_x_scale_at(&f, 1, 1, 126) = MMLA_UE8M0_NAN;
            } else if (kind == 3) {
                w[4095] = 0x7F;
            } else if (kind == 4) {
                w[2] = 0xFF;
            } else {
                memset(w + 32 * 3, 0, 32);
                project_weight_scale_at(&f, 1, 5)[3] = MMLA_UE8M0_NAN;
            }
            project_fixture_run(&f, name);
            check_nan_places(&f, kind < 3);
        }
    }
    project_fixture_destroy(&f);
}

/* So many tokens that a GPU takes its largest tiles. */
static void project_many_tokens_on_a_gpu_match_exact_sums(void **state) {
    (void)state;
    enum { TOKENS = 190 };
    if (project_n_on_gpu() == 0) {
        skip();
    }
    const mmla_project_desc desc = {.n_groups = 4, .max_tokens = TOKENS, .rank = 1016};
    project_fixture f = project_fixture_create(desc, TOKENS, 1);
    project_fixture_fill(&f, seed, 112, 120, 110, 122);
    check_all(&f);
    project_fixture_destroy(&f);
}

/* Scales as close as those of an engine's rows, for which a GPU has other instructions, where a tile ends
 * and where it does not. */
static void project_usual_scales_match_exact_sums(void **state) {
    (void)state;
    static const struct {
        int32_t n_groups, rank;
        int64_t n_tokens;
    } shapes[] = {{1, 64, 1},  {1, 72, 8},   {2, 136, 9}, {3, 16, 17},
                  {8, 64, 33}, {1, 200, 65}, {4, 8, 130}, {1, 1024, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const mmla_project_desc desc = {.n_groups = shapes[i].n_groups,
                                        .max_tokens = 200,
                                        .rank = shapes[i].rank,
                                        .x_scale_word_stride = i % 2 ? 201 : 0};
        project_fixture f = project_fixture_create(desc, shapes[i].n_tokens, 2);
        project_fixture_fill(&f, seed, 112, 120, 110, 122);
        check_all(&f);
        project_fixture_destroy(&f);
    }
}

/* One product of small operands, in every place, between large ones whose partner is zero: whoever adds a
 * few products at once relative to the largest must not count those. */
static void project_small_product_beside_zero_times_large_is_kept(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    project_fixture f = project_fixture_create(desc, 1, 1);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        for (int k = 0; k < K; k += 37) {
            project_fixture_fill(&f, seed, 120, 120, 120, 120);
            for (int at = 0; at < K;
                 at++) { /* 448 and 0, or 0 and 448; where the product is: zeros */
                const bool near = at / 32 == k / 32;
                project_x_at(&f, 0, 0)[at] = near || at % 2 ? 0x00 : 0x7E;
                for (int n = 0; n < 8; n++) {
                    project_weight_at(&f, 0, n)[at] = !near && at % 2 ? 0xFE : 0x80;
                }
            }
            project_x_at(&f, 0, 0)[k] = 0x07; /* 7 * 2^-9 */
            project_weight_at(&f, 0, 3)[k] = 0x07;
            *project_x_scale_at(&f, 0, 0, k / 32) = 120 - 12;
            project_weight_scale_at(&f, 0, 3)[k / 32] = 120 - 12;
            project_fixture_run(&f, name);
            for (int n = 0; n < 8; n++) {
                const double want = n == 3 ? 49.0 * ldexp(1.0, -18 + 2 * (108 - 127)) : 0.0;
                const double got = mmla_bf16_to_f32(project_z_at(&f, 0, 0, n));
                if (got != want) {
                    fail_msg("%s: column %d, row %d: got %.9g, want %.9g", name, k, n, got, want);
                }
            }
        }
    }
    project_fixture_destroy(&f);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project_every_shape_matches_exact_sums),
        cmocka_unit_test(project_scale_bytes_at_their_ends_keep_the_tolerance),
        cmocka_unit_test(project_one_product_lands_where_it_belongs),
        cmocka_unit_test(project_equal_operands_give_the_sum_by_hand),
        cmocka_unit_test(project_sum_beyond_the_range_is_infinity),
        cmocka_unit_test(project_zero_codes_under_the_largest_scales_give_zero),
        cmocka_unit_test(project_nan_reaches_its_own_results_and_no_other),
        cmocka_unit_test(project_many_tokens_on_a_gpu_match_exact_sums),
        cmocka_unit_test(project_usual_scales_match_exact_sums),
        cmocka_unit_test(project_small_product_beside_zero_times_large_is_kept),
    };
    return cmocka_run_group_tests_name("project", tests, NULL, NULL);
}
