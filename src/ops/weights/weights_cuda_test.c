/* weights_cuda_test.c - the five layouts on a GPU, byte for byte as the CPU makes them, on every
 * alignment that is legal. Skipped where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/weights.h>

#include "support/gpu_mirror.h"
#include "support/guard.h"
#include "support/rng.h"

static uint64_t seed;
static mmla_context *cpu, *gpu; /* gpu is NULL where there is none */

static int open_contexts(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    if (mmla_gpu_count() > 0 && mmla_context_create(&options, &gpu, NULL) != MMLA_OK) {
        return -1;
    }
    return mmla_context_create(NULL, &cpu, NULL) == MMLA_OK ? 0 : -1;
}

static int close_contexts(void **state) {
    (void)state;
    mmla_context_destroy(gpu);
    mmla_context_destroy(cpu);
    return 0;
}

/* Bytes of the arrays of a description; 0 where the kind has none. */
typedef struct sizes {
    size_t data, scale_in, scale_out;
} sizes;

static sizes sizes_of(const mmla_weights_desc *d) {
    const size_t rows = (size_t)d->rows, heads = (size_t)d->n_heads;
    switch (d->kind) {
    case MMLA_WEIGHTS_PERMUTE_WQ_B: {
        const size_t scales = heads * 512 * (size_t)d->scale_cols;
        return (sizes){heads * 512 * (size_t)d->cols, scales, scales};
    }
    case MMLA_WEIGHTS_PERMUTE_WO_A:
        return (sizes){rows * 4096, rows * 128, rows * 128};
    case MMLA_WEIGHTS_EXPAND_SCALES:
        return (sizes){0, (rows + 31) / 32 * (size_t)d->scale_cols, rows * (size_t)d->scale_cols};
    default:
        return (sizes){rows * heads * 1024, 0, 0};
    }
}

static void
run(mmla_context *ctx, const mmla_weights_desc *desc, const mmla_weights_args *args, void *stream) {
    mmla_weights_plan *plan;
    mmla_error err;
    mmla_weights_args a = *args;
    a.error = &err;
    if (mmla_weights_plan_create(ctx, desc, &plan, &err) != MMLA_OK ||
        mmla_weights_run(plan, &a, NULL, stream) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    mmla_weights_plan_destroy(plan);
}

static test_buffer random_buffer(test_rng *rng, size_t bytes, size_t alignment) {
    test_buffer b = test_buffer_create(bytes, alignment);
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)b.data)[i] = (uint8_t)test_rng_next(rng);
    }
    return b;
}

/* Both devices on the same arrays, of which each is a multiple of its alignment and of no more. */
static void compare(const mmla_weights_desc *desc, size_t in_alignment, size_t out_alignment) {
    test_rng rng = {seed + (uint64_t)desc->kind};
    const sizes n = sizes_of(desc);
    test_buffer in = random_buffer(&rng, n.data, in_alignment);
    test_buffer scale_in = random_buffer(&rng, n.scale_in, in_alignment);
    test_buffer want = test_buffer_create(n.data, out_alignment);
    test_buffer got = test_buffer_create(n.data, out_alignment);
    test_buffer want_scale = test_buffer_create(n.scale_out, out_alignment);
    test_buffer got_scale = test_buffer_create(n.scale_out, out_alignment);
    mmla_weights_args args = {.in = in.data, .out = want.data};
    if (n.scale_out > 0) {
        args.scale_in = scale_in.data;
        args.scale_out = want_scale.data;
    }
    run(cpu, desc, &args, NULL);

    test_mirror m;
    assert_true(test_mirror_open(&m));
    test_buffer *const all[] = {&in, &scale_in, &got, &got_scale, &want, &want_scale};
    for (int i = 0; i < 4; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_push(&m);
    args.in = test_mirror_at(&m, in.data);
    args.out = test_mirror_at(&m, got.data);
    if (n.scale_out > 0) {
        args.scale_in = test_mirror_at(&m, scale_in.data);
        args.scale_out = test_mirror_at(&m, got_scale.data);
    }
    run(gpu, desc, &args, m.stream);
    test_mirror_pull(&m, got.data);
    test_mirror_pull(&m, got_scale.data);
    test_mirror_close(&m);
    assert_memory_equal(got.data, want.data, n.data);
    assert_memory_equal(got_scale.data, want_scale.data, n.scale_out);
    for (int i = 0; i < 6; i++) {
        assert_true(test_buffer_is_intact(all[i]));
        test_buffer_destroy(all[i]);
    }
}

static void compare_alignments(const mmla_weights_desc *desc, size_t element) {
    if (gpu == NULL) {
        skip();
    }
    static const size_t alignments[][2] = {{256, 256}, {16, 16}, {0, 16}, {16, 0}, {8, 8}, {0, 0}};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        compare(desc, alignments[i][0] > 0 ? alignments[i][0] : element,
                alignments[i][1] > 0 ? alignments[i][1] : element);
    }
}

static void wq_b_equals_the_cpu_for_any_row_and_alignment(void **state) {
    (void)state;
    static const int64_t cols[][2] = {{1, 1}, {16, 16}, {48, 0}, {50, 7}, {1536, 48}, {1032, 33}};
    for (int i = 0; i < 6; i++) {
        const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WQ_B,
                                        .n_heads = i % 2 == 0 ? 8 : 24,
                                        .cols = cols[i][0],
                                        .scale_cols = cols[i][1]};
        compare_alignments(&desc, 1);
    }
}

static void a_row_longer_than_an_item_is_moved_in_parts(void **state) {
    (void)state;
    const int64_t cols[] = {16384, 16400, 40000};
    for (int i = 0; i < 3; i++) {
        const mmla_weights_desc desc = {
            .kind = MMLA_WEIGHTS_EXPAND_SCALES, .rows = 70, .scale_cols = cols[i]};
        compare_alignments(&desc, 1);
    }
}

static void wo_a_equals_the_cpu_for_any_alignment(void **state) {
    (void)state;
    const int64_t rows[] = {1, 3, 4, 65};
    for (int i = 0; i < 4; i++) {
        const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = rows[i]};
        compare_alignments(&desc, 1);
    }
}

static void expanded_scales_equal_the_cpu(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {31, 5}, {33, 16}, {1000, 48}, {65, 224}, {700, 3}};
    for (int i = 0; i < 6; i++) {
        const mmla_weights_desc desc = {
            .kind = MMLA_WEIGHTS_EXPAND_SCALES, .rows = shapes[i][0], .scale_cols = shapes[i][1]};
        compare_alignments(&desc, 1);
    }
}

static void q_equals_the_cpu_both_ways_for_every_head_count(void **state) {
    (void)state;
    static const int32_t heads[] = {8, 16, 24, 72, 128};
    for (int i = 0; i < 5; i++) {
        for (int way = 0; way < 2; way++) {
            const mmla_weights_desc desc = {.kind = way == 0 ? MMLA_WEIGHTS_Q_TO_FUSED
                                                             : MMLA_WEIGHTS_Q_TO_STANDARD,
                                            .n_heads = heads[i],
                                            .rows = 1 + i};
            compare_alignments(&desc, 2);
        }
    }
}

static void more_than_65535_blocks_are_legal(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    const mmla_weights_desc desc = {
        .kind = MMLA_WEIGHTS_EXPAND_SCALES, .rows = 14000, .scale_cols = 4097};
    compare(&desc, 1, 1); /* five items a row */
}

static void no_rows_launch_nothing(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_Q_TO_FUSED, .n_heads = 64};
    const mmla_weights_args args = {.in = NULL};
    run(gpu, &desc, &args, NULL);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wq_b_equals_the_cpu_for_any_row_and_alignment),
        cmocka_unit_test(a_row_longer_than_an_item_is_moved_in_parts),
        cmocka_unit_test(wo_a_equals_the_cpu_for_any_alignment),
        cmocka_unit_test(expanded_scales_equal_the_cpu),
        cmocka_unit_test(q_equals_the_cpu_both_ways_for_every_head_count),
        cmocka_unit_test(more_than_65535_blocks_are_legal),
        cmocka_unit_test(no_rows_launch_nothing),
    };
    return cmocka_run_group_tests_name("weights_cuda", tests, open_contexts, close_contexts);
}
