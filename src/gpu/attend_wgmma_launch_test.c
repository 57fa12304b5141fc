/* attend_wgmma_launch_test.c - what attend_wgmma_launch_cuda.c launches, on a device that only
 * notes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "gpu/attend_mma_params_cuda.c"
#include "gpu/attend_wgmma_launch_cuda.c"

/* Host's stubs of the kernels with their shapes, and the device. */
void attend_wgmma_few8_bf16_sm90a(attend_mma_params p) {
    (void)p;
}

void attend_wgmma_few16_bf16_sm90a(attend_mma_params p) {
    (void)p;
}

void attend_wgmma_bf16_sm90a(attend_mma_params p) {
    (void)p;
}

const attend_wgmma_shape attend_wgmma_shape_few8 = {8, 768, 200 * 1024};
const attend_wgmma_shape attend_wgmma_shape_few16 = {16, 768, 210 * 1024};
const attend_wgmma_shape attend_wgmma_shape_64 = {64, 512, 220 * 1024};

static struct {
    int32_t clusters[4]; /* of 1, 2, 4, 8 blocks, at the same time */
    int64_t n_launches, n_tokens, n_ctas;
    int32_t n_splits, tile_heads, n_head_tiles;
    const void *kernel;
} device;

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    (void)err;
    assert_true(kernel != NULL && smem_bytes <= gpu->smem_bytes);
    return MMLA_OK;
}

mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err) {
    (void)gpu;
    (void)err;
    *n = device.clusters[log2_of((int32_t)launch->cluster)];
    return MMLA_OK;
}

mmla_status mmla_gpu_launch_run(const mmla_gpu *gpu,
                                const mmla_gpu_launch *launch,
                                const void *params,
                                void *stream,
                                mmla_error *err) {
    (void)gpu;
    (void)stream;
    (void)err;
    const attend_mma_params *a = params;
    assert_int_equal(a->first_token, device.n_tokens);
    assert_int_equal(launch->cluster, a->n_splits);
    assert_int_equal(launch->grid[0] % launch->cluster, 0);
    assert_in_range(a->tile_heads, 8, ATTEND_WGMMA_HEADS);
    const kernel_choice *k = kernel_for(a->tile_heads);
    assert_true(launch->kernel == k->kernel && a->tile_heads <= k->shape->heads);
    assert_int_equal(launch->block, k->shape->n_threads);
    assert_int_equal(launch->smem_bytes, k->shape->smem_bytes);
    assert_int_equal(a->n_head_tiles, (a->n_heads + a->tile_heads - 1) / a->tile_heads);
    assert_true(launch->grid[0] > 0 && launch->grid[0] <= INT32_MAX);
    device.n_launches++;
    device.n_tokens += a->n_tokens;
    device.n_ctas = launch->grid[0];
    device.n_splits = a->n_splits;
    device.tile_heads = a->tile_heads;
    device.n_head_tiles = a->n_head_tiles;
    device.kernel = launch->kernel;
    return MMLA_OK;
}

mmla_status mmla_attend_mma_load(void *problem, mmla_error *err) {
    (void)problem;
    (void)err;
    return MMLA_OK;
}

static mmla_attend_problem problem_of(int32_t heads, bool batch_invariant) {
    const int32_t clusters[4] = {132, 66, 32, 14};
    memcpy(device.clusters, clusters, sizeof clusters);
    mmla_attend_problem p = {
        .desc = {.n_heads = heads,
                 .max_tokens = INT64_MAX,
                 .list_width = 128,
                 .compressed_width = 512,
                 .batch_invariant = batch_invariant},
        .window = {.format = MMLA_KV_V41_FP8},
        .compressed = {.format = MMLA_KV_V41_FP4},
        .gpu = {.n_sms = 132, .smem_bytes = 227 * 1024},
    };
    assert_int_equal(mmla_attend_wgmma_load(&p, NULL), MMLA_OK);
    return p;
}

static void run(const mmla_attend_problem *p, int64_t n_tokens) {
    device.n_launches = device.n_tokens = 0;
    const mmla_attend_args args = {.n_tokens = n_tokens};
    assert_int_equal(mmla_attend_wgmma_fused(p, &args, NULL), MMLA_OK);
    assert_int_equal(device.n_tokens, n_tokens);
}

/* A cluster that had several tasks could lose count of those without keys. */
static void launch_clusters_have_one_task_each(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        for (int batch_invariant = 0; batch_invariant < 2; batch_invariant++) {
            const mmla_attend_problem p = problem_of(heads, batch_invariant != 0);
            for (int64_t n = 1; n < 2000; n = n * 3 / 2 + 1) {
                run(&p, n);
                assert_int_equal(device.n_launches, 1);
                const int64_t tasks = n * device.n_head_tiles;
                if (device.n_splits > 1) {
                    assert_int_equal(device.n_ctas, tasks * device.n_splits);
                } else {
                    assert_true(device.n_ctas <= 132 && device.n_ctas <= tasks);
                }
            }
        }
    }
}

/* The join is a third of a token's time with all heads in a CTA, and CTAs are free. */
static void launch_heads_of_one_token_are_spread(void **state) {
    (void)state;
    const mmla_attend_problem p = problem_of(64, false);
    run(&p, 1);
    assert_int_equal(device.tile_heads, 8);
    assert_int_equal(device.n_ctas, 8 * 8);
    run(&p, 1024); /* as few conversions of a key as possible */
    assert_int_equal(device.tile_heads, 64);
}

static void launch_few_tokens_are_split_as_far_as_clusters_fit(void **state) {
    (void)state;
    const mmla_attend_problem p = problem_of(64, false);
    run(&p, 1);
    assert_int_equal(device.n_splits, 8);
    run(&p, 3);
    assert_int_equal(device.n_splits, 8);
    run(&p, 8); /* more of them would wait for a place */
    assert_int_equal(device.n_splits, 4);
    run(&p, 64);
    assert_int_equal(device.n_splits, 2);
    run(&p, 128);
    assert_int_equal(device.n_splits, 1);
}

static void launch_invariant_splits_are_those_of_the_widths(void **state) {
    (void)state;
    const mmla_attend_problem p = problem_of(64, true);
    for (int64_t n = 1; n <= 4096; n *= 8) {
        run(&p, n);
        assert_int_equal(device.n_splits, 4);
    }
}

static void launch_more_tokens_than_numbers_take_several(void **state) {
    (void)state;
    const mmla_attend_problem p = problem_of(128, true);
    run(&p, (int64_t)1 << 30);
    assert_true(device.n_launches > 1);
}

static const void *expected_kernel(int32_t heads) {
    return heads <= 8    ? (const void *)(uintptr_t)attend_wgmma_few8_bf16_sm90a
           : heads <= 16 ? (const void *)(uintptr_t)attend_wgmma_few16_bf16_sm90a
                         : (const void *)(uintptr_t)attend_wgmma_bf16_sm90a;
}

static void launch_few_heads_have_kernels_of_their_own(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        const mmla_attend_problem p = problem_of(heads, false);
        run(&p, 1024);
        assert_int_equal(device.tile_heads, heads <= 8 ? 8 : heads <= 16 ? 16 : 64);
        assert_true(device.kernel == expected_kernel(heads));
    }
}

/* Kernels do not add in the same order. */
static void launch_invariant_kernel_is_that_of_the_heads(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        const mmla_attend_problem p = problem_of(heads, true);
        for (int64_t n = 1; n <= 4096; n *= 4) {
            run(&p, n);
            assert_true(device.kernel == expected_kernel(heads));
        }
    }
}

static void launch_does_without_clusters_where_there_are_none(void **state) {
    (void)state;
    mmla_attend_problem p = problem_of(64, false);
    p.clusters[1] = p.clusters[2] = p.clusters[3] = 0;
    run(&p, 1);
    assert_int_equal(device.n_splits, 1);
    p = problem_of(64, true);
    p.clusters[2] = 0;
    assert_false(mmla_attend_wgmma_supports(&p));
    memset(device.clusters, 0, sizeof device.clusters);
    assert_int_equal(mmla_attend_wgmma_load(&p, NULL), MMLA_E_DEVICE);
}

static void launch_leaves_the_widest_lists_to_the_other_kernels(void **state) {
    (void)state;
    mmla_attend_problem p = problem_of(64, false);
    p.desc.list_width = INT32_MAX;
    assert_false(mmla_attend_wgmma_supports(&p));
    assert_int_equal(mmla_attend_wgmma_load(&p, NULL), MMLA_E_SHAPE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch_clusters_have_one_task_each),
        cmocka_unit_test(launch_heads_of_one_token_are_spread),
        cmocka_unit_test(launch_few_tokens_are_split_as_far_as_clusters_fit),
        cmocka_unit_test(launch_invariant_splits_are_those_of_the_widths),
        cmocka_unit_test(launch_more_tokens_than_numbers_take_several),
        cmocka_unit_test(launch_few_heads_have_kernels_of_their_own),
        cmocka_unit_test(launch_invariant_kernel_is_that_of_the_heads),
        cmocka_unit_test(launch_does_without_clusters_where_there_are_none),
        cmocka_unit_test(launch_leaves_the_widest_lists_to_the_other_kernels),
    };
    return cmocka_run_group_tests_name("attend_wgmma_launch", tests, NULL, NULL);
}
