/* project_laws_test.c - bits of project that must not change: with the layout of the scales, the batch,
 * the number of threads, and the way in which a GPU shares out the work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "num/ue8m0.h"
#include "support/project_fixture.h"
#include "support/rng.h"

enum { SCALES = MMLA_PROJECT_SCALES };

static uint64_t seed;

/* z of one implementation under another layout of the same scales, as bits. */
static void check_layout(const project_fixture *base, const char *name, mmla_project_desc desc) {
    project_fixture f = project_fixture_create(desc, base->args.n_tokens, 1);
    memcpy(f.x.data, base->x.data, base->x.bytes);
    memcpy(f.weight.data, base->weight.data, base->weight.bytes);
    memcpy(f.weight_scale.data, base->weight_scale.data, base->weight_scale.bytes);
    for (int64_t t = 0; t < f.args.n_tokens; t++) {
        for (int64_t g = 0; g < desc.n_groups; g++) {
            for (int64_t i = 0; i < SCALES; i++) {
                *project_x_scale_at(&f, t, g, i) = *project_x_scale_at(base, t, g, i);
            }
        }
    }
    project_fixture_run(&f, name);
    assert_memory_equal(f.z.data, base->z.data, base->z.bytes);
    project_fixture_destroy(&f);
}

static void project_layout_of_scales_changes_no_bit(void **state) {
    (void)state;
    const mmla_project_desc desc = {.n_groups = 2, .max_tokens = 7, .rank = 8};
    project_fixture f = project_fixture_create(desc, 5, 1);
    project_fixture_fill(&f, seed, 100, 130, 100, 130);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&f, i)) != NULL; i++) {
        project_fixture_run(&f, name);
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
    project_fixture_destroy(&f);
}

/* A call against its tokens in smaller calls, with such scale bytes. */
static void check_batches(int x_low, int x_high, int w_low, int w_high) {
    enum { TOKENS = 51, RANK = 72 };
    const mmla_project_desc desc = {
        .n_groups = 2, .max_tokens = TOKENS, .rank = RANK, .x_scale_layout = MMLA_SCALE_BYTES};
    project_fixture whole = project_fixture_create(desc, TOKENS, 3);
    project_fixture_fill(&whole, seed, x_low, x_high, w_low, w_high);
    const char *name;
    for (size_t i = 0; (name = project_implementation(&whole, i)) != NULL; i++) {
        if (strcmp(name, "reference") == 0 || project_is_wide(name)) {
            continue; /* one sum a result, too slow for all these batches; bits follow the batch */
        }
        project_fixture_run(&whole, name);
        for (int64_t first = 0, n = 1; first < TOKENS; first += n, n = n % 9 + 1) {
            n = first + n > TOKENS ? TOKENS - first : n;
            project_fixture part = project_fixture_create(desc, n, 1 + (int32_t)(n % 2));
            memcpy(part.x.data, project_x_at(&whole, first, 0), part.x.bytes);
            memcpy(part.x_scale.data, project_x_scale_at(&whole, first, 0, 0), part.x_scale.bytes);
            memcpy(part.weight.data, whole.weight.data, whole.weight.bytes);
            memcpy(part.weight_scale.data, whole.weight_scale.data, whole.weight_scale.bytes);
            project_fixture_run(&part, name);
            assert_memory_equal(part.z.data, (const uint16_t *)whole.z.data + first * 2 * RANK,
                                part.z.bytes);
            project_fixture_destroy(&part);
        }
    }
    project_fixture_destroy(&whole);
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
static void check_tiles(project_fixture *whole, const int64_t *calls, size_t n_calls) {
    for (size_t k = 0; k < project_n_on_gpu(); k++) {
        if (project_is_wide(project_on_gpu(k))) {
            continue; /* whose order of sums follows the number of tokens */
        }
        project_fixture_run(whole, project_on_gpu(k));
        for (size_t i = 0; i < n_calls; i++) {
            project_fixture part = project_fixture_create(whole->desc, calls[i], 1);
            memcpy(part.x.data, whole->x.data, part.x.bytes);
            memcpy(part.x_scale.data, whole->x_scale.data, part.x_scale.bytes);
            memcpy(part.weight.data, whole->weight.data, part.weight.bytes);
            memcpy(part.weight_scale.data, whole->weight_scale.data, part.weight_scale.bytes);
            project_fixture_run(&part, project_on_gpu(k));
            assert_memory_equal(part.z.data, whole->z.data, part.z.bytes);
            project_fixture_destroy(&part);
        }
    }
}

/* Enough tokens for every tile that a GPU has, and for several of them a CTA, in calls of one to all. */
static void check_every_tile(int x_low, int x_high, int w_low, int w_high) {
    enum { TOKENS = 1200, GROUPS = 16, RANK = 264 }; /* the last of every tile is part of one */
    static const int64_t calls[] = {1, 8, 16, 40, 300, TOKENS};
    const mmla_project_desc desc = {
        .n_groups = GROUPS, .max_tokens = TOKENS, .rank = RANK, .x_scale_layout = MMLA_SCALE_BYTES};
    project_fixture whole = project_fixture_create(desc, TOKENS, 1);
    project_fixture_fill(&whole, seed, x_low, x_high, w_low, w_high);
    *project_x_scale_at(&whole, 3, 1, 7) = 200; /* its token is not of the usual kind; others are */
    project_x_at(&whole, 5, 2)[77] = 0x7F;
    project_weight_scale_at(&whole, 14, 200)[5] = 200; /* and a row each of late groups */
    project_weight_scale_at(&whole, 15, 263)[127] = MMLA_UE8M0_NAN;
    check_tiles(&whole, calls, sizeof calls / sizeof calls[0]);
    project_fixture_destroy(&whole);
}

static void project_every_tile_of_a_gpu_gives_the_same_bits(void **state) {
    (void)state;
    if (project_n_on_gpu() == 0) {
        skip();
    }
    check_every_tile(112, 124, 114, 122); /* an engine's, for which a GPU has other instructions */
    check_every_tile(90, 140, 90, 140);
}

/* The same of scales as an engine has them, for all ways to share K: few groups are shared out most. */
static void project_every_way_of_a_gpu_to_share_k_gives_the_same_bits(void **state) {
    (void)state;
    enum { RANK = 1016, TOKENS = 2041 }; /* of one group */
    if (project_n_on_gpu() == 0) {
        skip();
    }
    for (int32_t groups = 1; groups <= 8; groups *= 2) {
        const int64_t tokens = TOKENS / groups;
        const int64_t calls[] = {1, 7, 9, 16, 31, 60, 100, 190, tokens / 2};
        const mmla_project_desc desc = {.n_groups = groups,
                                        .max_tokens = tokens,
                                        .rank = RANK,
                                        .x_scale_layout = MMLA_SCALE_BYTES};
        project_fixture whole = project_fixture_create(desc, tokens, 1);
        project_fixture_fill(&whole, seed, 112, 124, 114, 122);
        *project_x_scale_at(&whole, 0, 0, 77) =
            60; /* odd, whatever shares the work; and so is a row */
        *project_weight_scale_at(&whole, 0, 1015) = 150;
        project_x_at(&whole, 5, 0)[4095] = 0xFF;
        *project_weight_scale_at(&whole, 0, 7) = MMLA_UE8M0_NAN;
        check_tiles(&whole, calls, sizeof calls / sizeof calls[0]);
        project_fixture_destroy(&whole);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project_layout_of_scales_changes_no_bit),
        cmocka_unit_test(project_token_bits_do_not_depend_on_batch_or_threads),
        cmocka_unit_test(project_token_bits_do_not_depend_on_batch_under_usual_scales),
        cmocka_unit_test(project_every_tile_of_a_gpu_gives_the_same_bits),
        cmocka_unit_test(project_every_way_of_a_gpu_to_share_k_gives_the_same_bits),
    };
    return cmocka_run_group_tests_name("project_laws", tests, NULL, NULL);
}
