/* project_test.c - every implementation of project against exact sums.
 *
 * Tolerance. Let z be the exact sum, S the sum of the terms' magnitudes. Every term is exact; an
 * implementation adds them in fp32 along chains of at most 4096 / 8 steps and joins 8 lanes in 3
 * more, so with u = 2^-24 and n = 515 its sum is within E = n u / (1 - n u) * S of z. Sums that
 * are subnormal in fp32 add at most 2^-150 for each of 4096 products, times 2^16 when both rows
 * were shifted down by 2^8 (project_body.inc). Rounding to bf16 adds 2^-8 of the result, or 2^-134.
 *
 * Where the positive terms alone exceed the range of fp32 a partial sum may become +inf, likewise
 * the negative ones -inf, and NaN where both do. An infinity of the sign that the exact sum does
 * not have needs more: every other lane must still have been finite, so |z| is below 16 times the
 * largest float, undoing the shift included.
 *
 * Long because one fixture, with its exact sums, serves three kinds of test: exact sums, laws (a
 * token's bits alone and in batches, layouts), and what only a GPU has (tiles).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "ops/project/project.h"
#include "support/gpu_mirror.h"
#include "support/guard.h"
#include "support/implementation_walk.h"
#include "support/rng.h"

enum { K = MMLA_PROJECT_DIM, SCALES = MMLA_PROJECT_SCALES };

static uint64_t seed;

struct fixture {
    mmla_context *ctx;
    mmla_project_desc desc;
    int32_t rank;
    test_buffer x, x_scale, weight, weight_scale, z;
    mmla_project_args args;
};

static int64_t scale_offset(const struct fixture *f, int64_t t, int64_t g, int64_t i) {
    const mmla_project_desc *d = &f->desc;
    if (d->x_scale_layout == MMLA_SCALE_BYTES) {
        return (t * d->n_groups + g) * SCALES + i;
    }
    const int64_t word =
        d->x_scale_word_stride ? d->x_scale_word_stride : (f->args.n_tokens + 3) / 4 * 4;
    const int64_t group = d->x_scale_group_stride ? d->x_scale_group_stride : 32 * word;
    return 4 * (g * group + i / 4 * word + t) + i % 4;
}

static uint8_t *x_scale_at(const struct fixture *f, int64_t t, int64_t g, int64_t i) {
    return (uint8_t *)f->x_scale.data + scale_offset(f, t, g, i);
}

static uint8_t *x_at(const struct fixture *f, int64_t t, int64_t g) {
    return (uint8_t *)f->x.data + (t * f->desc.n_groups + g) * K;
}

static uint8_t *weight_at(const struct fixture *f, int64_t g, int64_t n) {
    return (uint8_t *)f->weight.data + (g * f->rank + n) * K;
}

static uint8_t *weight_scale_at(const struct fixture *f, int64_t g, int64_t n) {
    return (uint8_t *)f->weight_scale.data + (g * f->rank + n) * SCALES;
}

static uint16_t z_at(const struct fixture *f, int64_t t, int64_t g, int64_t n) {
    return ((const uint16_t *)f->z.data)[(t * f->desc.n_groups + g) * f->rank + n];
}

/* Buffers with the least alignment the header asks for. Every byte that is not an operand, the
 * padding words of x_scale above all, is 0xFF: a NaN if it is read. */
static struct fixture fixture_create(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads) {
    struct fixture f = {.desc = desc, .rank = desc.rank ? desc.rank : 1024};
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &f.ctx, NULL), MMLA_OK);
    const size_t rows = (size_t)desc.n_groups * (size_t)f.rank;
    const size_t vectors = (size_t)n_tokens * (size_t)desc.n_groups;
    f.args.n_tokens = n_tokens;
    const int64_t last = scale_offset(&f, n_tokens - 1, desc.n_groups - 1, SCALES - 1);
    f.x = test_buffer_create(vectors * K, 16);
    f.x_scale =
        test_buffer_create((size_t)last + 1, desc.x_scale_layout == MMLA_SCALE_PACKED ? 4 : 1);
    f.weight = test_buffer_create(rows * K, 16);
    f.weight_scale = test_buffer_create(rows * SCALES, 1);
    f.z = test_buffer_create(vectors * (size_t)f.rank * 2, 2);
    memset(f.x_scale.data, 0xFF, f.x_scale.bytes);
    f.args = (mmla_project_args){.n_tokens = n_tokens,
                                 .x = f.x.data,
                                 .x_scale = f.x_scale.data,
                                 .weight = f.weight.data,
                                 .weight_scale = f.weight_scale.data,
                                 .z = f.z.data};
    return f;
}

static void fixture_destroy(struct fixture *f) {
    test_buffer_destroy(&f->x);
    test_buffer_destroy(&f->x_scale);
    test_buffer_destroy(&f->weight);
    test_buffer_destroy(&f->weight_scale);
    test_buffer_destroy(&f->z);
    mmla_context_destroy(f->ctx);
}

static uint8_t random_code(test_rng *rng) {
    const uint8_t code = (uint8_t)test_rng_below(rng, 256);
    return (code & 0x7F) == MMLA_E4M3_NAN ? 0x7E : code;
}

/* Scale bytes from x_low .. x_high and w_low .. w_high. */
static void fill(struct fixture *f, int x_low, int x_high, int w_low, int w_high) {
    test_rng rng = {seed};
    for (size_t i = 0; i < f->x.bytes; i++) {
        ((uint8_t *)f->x.data)[i] = random_code(&rng);
    }
    for (size_t i = 0; i < f->weight.bytes; i++) {
        ((uint8_t *)f->weight.data)[i] = random_code(&rng);
    }
    for (size_t i = 0; i < f->weight_scale.bytes; i++) {
        ((uint8_t *)f->weight_scale.data)[i] =
            (uint8_t)(w_low + test_rng_below(&rng, w_high - w_low + 1));
    }
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < f->desc.n_groups; g++) {
            for (int64_t i = 0; i < SCALES; i++) {
                *x_scale_at(f, t, g, i) =
                    (uint8_t)(x_low + test_rng_below(&rng, x_high - x_low + 1));
            }
        }
    }
}

/* The implementations of GPUs, and how many of them GPU 0 has; their runs are on copies of the arrays. */
static const char *const on_gpu[] = {"mma", "wgmma"};

static size_t n_on_gpu(void) {
    mmla_gpu gpu;
    if (mmla_gpu_count() == 0 || mmla_gpu_open(0, &gpu, NULL) != MMLA_OK) {
        return 0;
    }
    return gpu.features & MMLA_GPU_SM90A ? 2 : 1;
}

static const char *implementation(const struct fixture *f, size_t idx) {
    const size_t n = n_on_gpu();
    return idx < n ? on_gpu[idx] : test_implementation(f->ctx, "project", idx - n);
}

static bool is_on_gpu(const char *name) {
    return strcmp(name, on_gpu[0]) == 0 || strcmp(name, on_gpu[1]) == 0;
}

static void run_on_gpu(const struct fixture *f, const mmla_project_plan *plan) {
    static const size_t pointers[] = {
        offsetof(mmla_project_args, x), offsetof(mmla_project_args, x_scale),
        offsetof(mmla_project_args, weight), offsetof(mmla_project_args, weight_scale),
        offsetof(mmla_project_args, z)};
    const test_buffer *const all[] = {&f->x, &f->x_scale, &f->weight, &f->weight_scale, &f->z};
    mmla_project_args args = f->args;
    test_mirror m;
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < 5; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_move(&m, &args, pointers, sizeof pointers / sizeof pointers[0]);
    test_mirror_push(&m);
    assert_int_equal(mmla_project_workspace_bytes(plan), 0);
    assert_int_equal(mmla_project_run(plan, &args, NULL, m.stream), MMLA_OK);
    test_mirror_pull(&m, f->z.data);
    test_mirror_close(&m);
}

static void run_on_cpu(const struct fixture *f, const mmla_project_plan *plan) {
    const size_t bytes = mmla_project_workspace_bytes(plan);
    assert_true(bytes <= (size_t)mmla_context_get_threads(f->ctx) << 20);
    test_buffer work = test_buffer_create(bytes, 64);
    memset(work.data, 0xFF, bytes); /* NaN: nothing may rely on what a workspace holds */
    assert_int_equal(mmla_project_run(plan, &f->args, work.data, NULL), MMLA_OK);
    assert_true(test_buffer_is_intact(&work));
    test_buffer_destroy(&work);
}

/* Runs one implementation into poisoned z; no guard byte may change. */
static void run(struct fixture *f, const char *name) {
    const bool is_gpu = is_on_gpu(name);
    mmla_context *gpu = NULL;
    if (is_gpu) {
        const mmla_context_options options = {.device = MMLA_CUDA(0)};
        assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    }
    f->desc.implementation = name;
    mmla_error err;
    mmla_project_plan *plan;
    if (mmla_project_plan_create(is_gpu ? gpu : f->ctx, &f->desc, &plan, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(mmla_project_plan_implementation(plan), name);
    test_buffer_poison(&f->z);
    if (is_gpu) {
        run_on_gpu(f, plan);
    } else {
        run_on_cpu(f, plan);
    }
    assert_true(test_buffer_is_intact(&f->z));
    mmla_project_plan_destroy(plan);
    mmla_context_destroy(gpu);
}

static double value_of(uint8_t code, uint8_t scale) {
    return ldexp((double)mmla_e4m3_to_f32(code), scale - MMLA_UE8M0_BIAS);
}

/* Exact sum and sum of magnitudes of every result, and 1 or 2^16 when rows may have been shifted.
 */
struct exact {
    double *z, *magnitude, *shift;
};

static struct exact exact_create(const struct fixture *f) {
    const int64_t n_groups = f->desc.n_groups;
    const size_t n = f->z.bytes / 2;
    struct exact e = {calloc(n, 8), calloc(n, 8), calloc(n, 8)};
    double *x = malloc(K * sizeof *x);
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < n_groups; g++) {
            double shift = 1.0;
            for (int k = 0; k < K; k++) {
                const uint8_t scale = *x_scale_at(f, t, g, k / 32);
                x[k] = value_of(x_at(f, t, g)[k], scale);
                shift = scale > 246 ? 0x1p16 : shift;
            }
            for (int64_t r = 0; r < f->rank; r++) {
                const int64_t at = (t * n_groups + g) * f->rank + r;
                const uint8_t *scales = weight_scale_at(f, g, r), *codes = weight_at(f, g, r);
                e.shift[at] = shift;
                for (int k = 0; k < K; k++) {
                    const double term = x[k] * value_of(codes[k], scales[k / 32]);
                    e.z[at] += term;
                    e.magnitude[at] += fabs(term);
                    e.shift[at] = scales[k / 32] > 246 ? 0x1p16 : e.shift[at];
                }
            }
        }
    }
    free(x);
    return e;
}

static void exact_destroy(struct exact *e) {
    free(e->z);
    free(e->magnitude);
    free(e->shift);
}

/* Whether a result that is not finite may stand where the exact sum is z. */
static bool overflow_is_right(double got, double z, double magnitude, double shift) {
    const bool positive = (magnitude + z) / 2.0 >= 0x1.FFp127;
    const bool negative = (magnitude - z) / 2.0 >= 0x1.FFp127;
    if (isnan(got)) {
        return positive && negative;
    }
    const bool sign_of_z = (got > 0.0) == (z > 0.0);
    return (got > 0.0 ? positive : negative) && (sign_of_z || fabs(z) < 0x1p132 * shift);
}

/* Fraction of the tolerance that was used. */
static double check_exact(const struct fixture *f, const struct exact *e, const char *name) {
    const double u = 515 * 0x1p-24, relative = u / (1 - u);
    double worst = 0.0;
    for (size_t i = 0; i < f->z.bytes / 2; i++) {
        const double got = mmla_bf16_to_f32(((const uint16_t *)f->z.data)[i]);
        const double sum_error = relative * e->magnitude[i] + K * 0x1p-150 * e->shift[i];
        const double allowed = sum_error + fmax(0x1p-8 * (fabs(e->z[i]) + sum_error), 0x1p-134);
        if (!isfinite(got) &&
            overflow_is_right(got, e->z[i], e->magnitude[i] + 2.0 * sum_error, e->shift[i])) {
            continue;
        }
        const double used = fabs(got - e->z[i]) / allowed;
        if (!(used <= 1.0)) {
            fail_msg("%s z[%zu]: got %.9g, want %.9g, allowed difference %.3g", name, i, got,
                     e->z[i], allowed);
        }
        worst = fmax(worst, used);
    }
    return worst;
}

/* Every implementation against exact sums. */
static void check_all(struct fixture *f) {
    struct exact e = exact_create(f);
    double worst = 0.0;
    const char *name;
    for (size_t i = 0; (name = implementation(f, i)) != NULL; i++) {
        run(f, name);
        worst = fmax(worst, check_exact(f, &e, name));
    }
    printf("# %lld tokens, %d groups, rank %d: worst %.2f of the tolerance\n",
           (long long)f->args.n_tokens, (int)f->desc.n_groups, (int)f->rank, worst);
    exact_destroy(&e);
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
        struct fixture f = fixture_create(desc, shapes[i].n_tokens, 2);
        fill(&f, 105, 125, 110, 122);
        check_all(&f);
        fixture_destroy(&f);
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
        struct fixture f = fixture_create(desc, 6, 1);
        fill(&f, ranges[i][0], ranges[i][1], ranges[i][2], ranges[i][3]);
        check_all(&f);
        fixture_destroy(&f);
    }
}

static void project_one_product_lands_where_it_belongs(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 2, .max_tokens = 3, .rank = 16};
    struct fixture f = fixture_create(desc, 3, 1);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        for (int k = 0; k < K; k += 61) {
            fill(&f, 120, 120, 120, 120);
            memset(f.x.data, 0, f.x.bytes);
            memset(f.weight.data, 0xB8, f.weight.bytes); /* -1, which a wrong place would meet */
            x_at(&f, 2, 1)[k] = 0x40;                    /* 2 */
            weight_at(&f, 1, 9)[k] = 0x44;               /* 3 */
            *x_scale_at(&f, 2, 1, k / 32) = (uint8_t)(90 + k / 32 % 7);
            weight_scale_at(&f, 1, 9)[k / 32] = 131;
            run(&f, name);
            for (int64_t t = 0; t < 3; t++) {
                for (int64_t g = 0; g < 2; g++) {
                    for (int64_t n = 0; n < 16; n++) {
                        const bool here = t == 2 && g == 1;
                        const double w = n == 9 ? 3.0 * 0x1p4 : -1.0 * 0x1p-7;
                        const double want =
                            here ? 2.0 * ldexp(1.0, 90 + k / 32 % 7 - 127) * w : 0.0;
                        assert_true((double)mmla_bf16_to_f32(z_at(&f, t, g, n)) == want);
                    }
                }
            }
        }
    }
    fixture_destroy(&f);
}

static void project_equal_operands_give_the_sum_by_hand(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    struct fixture f = fixture_create(desc, 1, 1);
    fill(&f, 120, 120, 130, 130);
    memset(f.x.data, 0x38, f.x.bytes);           /* 1 */
    memset(f.weight.data, 0x40, f.weight.bytes); /* 2 */
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        run(&f, name);
        for (int n = 0; n < 8; n++) { /* 4096 * 1 * 2 * 2^(120 + 130 - 254) = 512 */
            assert_int_equal(z_at(&f, 0, 0, n), 0x4400);
        }
    }
    fixture_destroy(&f);
}

static void project_sum_beyond_the_range_is_infinity(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    struct fixture f = fixture_create(desc, 1, 1);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        for (int scale = 185; scale <= 254; scale += 23) { /* from 2^128 on */
            fill(&f, scale, scale, scale, scale);
            memset(f.x.data, 0x38, f.x.bytes);           /* 1 */
            memset(f.weight.data, 0xB8, f.weight.bytes); /* -1 */
            run(&f, name);
            for (int n = 0; n < 8; n++) {
                assert_int_equal(z_at(&f, 0, 0, n), 0xFF80);
            }
        }
    }
    fixture_destroy(&f);
}

static void project_zero_codes_under_the_largest_scales_give_zero(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 2, .rank = 8};
    struct fixture f = fixture_create(desc, 2, 1);
    fill(&f, 254, 254, 254, 254);
    memset(f.x.data, 0, f.x.bytes);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        run(&f, name);
        for (int n = 0; n < 16; n++) {
            assert_int_equal(z_at(&f, n / 8, 0, n % 8) & 0x7FFF, 0);
        }
    }
    fixture_destroy(&f);
}

/* Only z[t 1][g 1] (from_x) or z[.][g 1][n 5] may be NaN. */
static void check_nan_places(const struct fixture *f, bool from_x) {
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < f->desc.n_groups; g++) {
            for (int64_t n = 0; n < f->rank; n++) {
                const bool want = from_x ? t == 1 && g == 1 : g == 1 && n == 5;
                const uint16_t z = z_at(f, t, g, n);
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
    struct fixture f = fixture_create(desc, 4, 2);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        for (int kind = 0; kind < 6; kind++) {
            fill(&f, 110, 120, 110, 120);
            uint8_t *x = x_at(&f, 1, 1), *w = weight_at(&f, 1, 5);
            if (kind == 0) {
                x[4095] = 0x7F;
            } else if (kind == 1) {
                x[17] = 0xFF;
            } else if (kind == 2) { /* NaN, though every code under it is zero */
                memset(x + 32 * 126, 0, 32);
                *x_scale_at(&f, 1, 1, 126) = MMLA_UE8M0_NAN;
            } else if (kind == 3) {
                w[4095] = 0x7F;
            } else if (kind == 4) {
                w[2] = 0xFF;
            } else {
                memset(w + 32 * 3, 0, 32);
                weight_scale_at(&f, 1, 5)[3] = MMLA_UE8M0_NAN;
            }
            run(&f, name);
            check_nan_places(&f, kind < 3);
        }
    }
    fixture_destroy(&f);
}

/* z of one implementation under another layout of the same scales, as bits. */
static void check_layout(const struct fixture *base, const char *name, mmla_project_desc desc) {
    struct fixture f = fixture_create(desc, base->args.n_tokens, 1);
    memcpy(f.x.data, base->x.data, base->x.bytes);
    memcpy(f.weight.data, base->weight.data, base->weight.bytes);
    memcpy(f.weight_scale.data, base->weight_scale.data, base->weight_scale.bytes);
    for (int64_t t = 0; t < f.args.n_tokens; t++) {
        for (int64_t g = 0; g < desc.n_groups; g++) {
            for (int64_t i = 0; i < SCALES; i++) {
                *x_scale_at(&f, t, g, i) = *x_scale_at(base, t, g, i);
            }
        }
    }
    run(&f, name);
    assert_memory_equal(f.z.data, base->z.data, base->z.bytes);
    fixture_destroy(&f);
}

static void project_layout_of_scales_changes_no_bit(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 2, .max_tokens = 7, .rank = 8};
    struct fixture f = fixture_create(desc, 5, 1);
    fill(&f, 100, 130, 100, 130);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        run(&f, name);
        mmla_project_desc other = desc;
        other.x_scale_layout = MMLA_SCALE_BYTES;
        check_layout(&f, name, other);
        other = desc;
        other.x_scale_word_stride = 7;
        check_layout(&f, name, other);
        other.x_scale_word_stride = 33;
        other.x_scale_group_stride = 33 * 32 + 5;
        check_layout(&f, name, other);
    }
    fixture_destroy(&f);
}

/* A call against its tokens in smaller calls, with such scale bytes. */
static void check_batches(int x_low, int x_high, int w_low, int w_high) {
    enum { TOKENS = 51, RANK = 72 };
    const mmla_project_desc desc = {
        .n_groups = 2, .max_tokens = TOKENS, .rank = RANK, .x_scale_layout = MMLA_SCALE_BYTES};
    struct fixture whole = fixture_create(desc, TOKENS, 3);
    fill(&whole, x_low, x_high, w_low, w_high);
    const char *name;
    for (size_t i = 0; (name = implementation(&whole, i)) != NULL; i++) {
        if (strcmp(name, "reference") == 0) {
            continue; /* one sum a result; too slow to run over all these batches */
        }
        run(&whole, name);
        for (int64_t first = 0, n = 1; first < TOKENS; first += n, n = n % 9 + 1) {
            n = first + n > TOKENS ? TOKENS - first : n;
            struct fixture part = fixture_create(desc, n, 1 + (int32_t)(n % 2));
            memcpy(part.x.data, x_at(&whole, first, 0), part.x.bytes);
            memcpy(part.x_scale.data, x_scale_at(&whole, first, 0, 0), part.x_scale.bytes);
            memcpy(part.weight.data, whole.weight.data, whole.weight.bytes);
            memcpy(part.weight_scale.data, whole.weight_scale.data, whole.weight_scale.bytes);
            run(&part, name);
            assert_memory_equal(part.z.data, (const uint16_t *)whole.z.data + first * 2 * RANK,
                                part.z.bytes);
            fixture_destroy(&part);
        }
    }
    fixture_destroy(&whole);
}

static void project_token_bits_do_not_depend_on_batch_or_threads(void **state) {
    (void)state;
    check_batches(90, 250, 10, 120);
}

/* The scales of an engine, for which a GPU has other instructions. */
static void project_token_bits_do_not_depend_on_batch_under_usual_scales(void **state) {
    (void)state;
    check_batches(112, 124, 114, 122);
}

/* One call against its first tokens in calls of other sizes, by every implementation of the GPU. */
static void check_tiles(struct fixture *whole, const int64_t *calls, size_t n_calls) {
    for (size_t k = 0; k < n_on_gpu(); k++) {
        run(whole, on_gpu[k]);
        for (size_t i = 0; i < n_calls; i++) {
            struct fixture part = fixture_create(whole->desc, calls[i], 1);
            memcpy(part.x.data, whole->x.data, part.x.bytes);
            memcpy(part.x_scale.data, whole->x_scale.data, part.x_scale.bytes);
            memcpy(part.weight.data, whole->weight.data, part.weight.bytes);
            memcpy(part.weight_scale.data, whole->weight_scale.data, part.weight_scale.bytes);
            run(&part, on_gpu[k]);
            assert_memory_equal(part.z.data, whole->z.data, part.z.bytes);
            fixture_destroy(&part);
        }
    }
}

/* Enough tokens for every tile that a GPU has, and for several of them a CTA, in calls of one to all. */
static void check_every_tile(int x_low, int x_high, int w_low, int w_high) {
    enum { TOKENS = 1200, GROUPS = 16, RANK = 264 }; /* the last of every tile is part of one */
    static const int64_t calls[] = {1, 8, 16, 40, 300, TOKENS};
    const mmla_project_desc desc = {
        .n_groups = GROUPS, .max_tokens = TOKENS, .rank = RANK, .x_scale_layout = MMLA_SCALE_BYTES};
    struct fixture whole = fixture_create(desc, TOKENS, 1);
    fill(&whole, x_low, x_high, w_low, w_high);
    *x_scale_at(&whole, 3, 1, 7) = 200; /* its token is not of the usual kind; others are */
    x_at(&whole, 5, 2)[77] = 0x7F;
    weight_scale_at(&whole, 14, 200)[5] = 200; /* and a row each of late groups */
    weight_scale_at(&whole, 15, 263)[127] = MMLA_UE8M0_NAN;
    check_tiles(&whole, calls, sizeof calls / sizeof calls[0]);
    fixture_destroy(&whole);
}

static void project_every_tile_of_a_gpu_gives_the_same_bits(void **state) {
    (void)state;
    if (mmla_gpu_count() == 0) {
        skip();
    }
    check_every_tile(112, 124, 114, 122); /* an engine's, for which a GPU has other instructions */
    check_every_tile(90, 140, 90, 140);
}

/* So many tokens that a GPU takes its largest tiles. */
static void project_many_tokens_on_a_gpu_match_exact_sums(void **state) {
    (void)state;
    enum { TOKENS = 190 };
    if (mmla_gpu_count() == 0) {
        skip();
    }
    const mmla_project_desc desc = {.n_groups = 4, .max_tokens = TOKENS, .rank = 1016};
    struct fixture f = fixture_create(desc, TOKENS, 1);
    fill(&f, 112, 120, 110, 122);
    check_all(&f);
    fixture_destroy(&f);
}

/* The same of scales as an engine has them, for all ways to share K: few groups are shared out most. */
static void project_every_way_of_a_gpu_to_share_k_gives_the_same_bits(void **state) {
    (void)state;
    enum { RANK = 1016, TOKENS = 2041 }; /* of one group */
    if (mmla_gpu_count() == 0) {
        skip();
    }
    for (int32_t groups = 1; groups <= 8; groups *= 2) {
        const int64_t tokens = TOKENS / groups;
        const int64_t calls[] = {1, 7, 9, 16, 31, 60, 100, 190, tokens / 2};
        const mmla_project_desc desc = {.n_groups = groups,
                                        .max_tokens = tokens,
                                        .rank = RANK,
                                        .x_scale_layout = MMLA_SCALE_BYTES};
        struct fixture whole = fixture_create(desc, tokens, 1);
        fill(&whole, 112, 124, 114, 122);
        *x_scale_at(&whole, 0, 0, 77) = 60; /* odd, whatever shares the work; and so is a row */
        *weight_scale_at(&whole, 0, 1015) = 150;
        x_at(&whole, 5, 0)[4095] = 0xFF;
        *weight_scale_at(&whole, 0, 7) = MMLA_UE8M0_NAN;
        check_tiles(&whole, calls, sizeof calls / sizeof calls[0]);
        fixture_destroy(&whole);
    }
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
        struct fixture f = fixture_create(desc, shapes[i].n_tokens, 2);
        fill(&f, 112, 120, 110, 122);
        check_all(&f);
        fixture_destroy(&f);
    }
}

/* One product of small operands, in every place, between large ones whose partner is zero: whoever adds a
 * few products at once relative to the largest must not count those. */
static void project_small_product_beside_zero_times_large_is_kept(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 1, .max_tokens = 1, .rank = 8};
    struct fixture f = fixture_create(desc, 1, 1);
    const char *name;
    for (size_t i = 0; (name = implementation(&f, i)) != NULL; i++) {
        for (int k = 0; k < K; k += 37) {
            fill(&f, 120, 120, 120, 120);
            for (int at = 0; at < K;
                 at++) { /* 448 and 0, or 0 and 448; where the product is: zeros */
                const bool near = at / 32 == k / 32;
                x_at(&f, 0, 0)[at] = near || at % 2 ? 0x00 : 0x7E;
                for (int n = 0; n < 8; n++) {
                    weight_at(&f, 0, n)[at] = !near && at % 2 ? 0xFE : 0x80;
                }
            }
            x_at(&f, 0, 0)[k] = 0x07; /* 7 * 2^-9 */
            weight_at(&f, 0, 3)[k] = 0x07;
            *x_scale_at(&f, 0, 0, k / 32) = 120 - 12;
            weight_scale_at(&f, 0, 3)[k / 32] = 120 - 12;
            run(&f, name);
            for (int n = 0; n < 8; n++) {
                const double want = n == 3 ? 49.0 * ldexp(1.0, -18 + 2 * (108 - 127)) : 0.0;
                const double got = mmla_bf16_to_f32(z_at(&f, 0, 0, n));
                if (got != want) {
                    fail_msg("%s: column %d, row %d: got %.9g, want %.9g", name, k, n, got, want);
                }
            }
        }
    }
    fixture_destroy(&f);
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
        cmocka_unit_test(project_layout_of_scales_changes_no_bit),
        cmocka_unit_test(project_token_bits_do_not_depend_on_batch_or_threads),
        cmocka_unit_test(project_token_bits_do_not_depend_on_batch_under_usual_scales),
        cmocka_unit_test(project_every_tile_of_a_gpu_gives_the_same_bits),
        cmocka_unit_test(project_many_tokens_on_a_gpu_match_exact_sums),
        cmocka_unit_test(project_every_way_of_a_gpu_to_share_k_gives_the_same_bits),
        cmocka_unit_test(project_usual_scales_match_exact_sums),
        cmocka_unit_test(project_small_product_beside_zero_times_large_is_kept),
    };
    return cmocka_run_group_tests_name("project", tests, NULL, NULL);
}
