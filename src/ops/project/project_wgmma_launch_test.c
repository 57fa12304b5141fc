/* project_wgmma_launch_test.c - what project_wgmma_cuda.c launches, on a device that only notes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "ops/project/project_wgmma_cuda.c"

/* A host's stubs of the kernels, and the device. */
#define KERNEL(tokens)                                                \
    void project_wgmma_block_sm90a_n##tokens(mmla_project_params p) { \
        (void)p;                                                      \
    }
MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)
#undef KERNEL
#define KERNEL(tokens)                                                \
    void project_wgmma_split_sm90a_n##tokens(mmla_project_params p) { \
        (void)p;                                                      \
    }
MMLA_PROJECT_WG_SPLIT_KERNELS(KERNEL)
#undef KERNEL

static struct {
    bool has_clusters;
    int64_t n_launches;
    mmla_gpu_launch launch;
} device;

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    (void)err;
    assert_true(kernel != NULL && smem_bytes <= gpu->smem_bytes);
    return MMLA_OK;
}

/* As many as threads of 128 registers, shared memory, and groups of 16 multiprocessors allow. */
mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err) {
    (void)err;
    const int32_t by_registers = 512 / (int32_t)launch->block;
    const int32_t by_smem = gpu->sm_smem_bytes / ((int32_t)launch->smem_bytes + 1024);
    const int32_t n_blocks = by_registers < by_smem ? by_registers : by_smem;
    assert_true(n_blocks > 0);
    *n = launch->cluster == 1  ? gpu->n_sms * n_blocks
         : device.has_clusters ? gpu->n_sms / 16 * (16 * n_blocks / (int32_t)launch->cluster)
                               : 0;
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
    assert_non_null(params);
    device.n_launches++;
    device.launch = *launch;
    return MMLA_OK;
}

static mmla_project_problem problem_of(int32_t groups, int32_t rank, bool has_clusters) {
    device.has_clusters = has_clusters;
    mmla_project_problem p = {
        .desc = {.n_groups = groups, .max_tokens = INT32_MAX, .rank = rank},
        .gpu = {.n_sms = 132, .smem_bytes = 227 * 1024, .sm_smem_bytes = 228 * 1024},
    };
    assert_int_equal(mmla_project_wgmma_prepare(&p, NULL), MMLA_OK);
    return p;
}

static void run(const mmla_project_problem *p, int64_t n_tokens) {
    device.n_launches = 0;
    const mmla_project_args args = {.n_tokens = n_tokens};
    assert_int_equal(mmla_project_wgmma(p, &args, NULL, NULL), MMLA_OK);
    assert_int_equal(device.n_launches, 1);
}

/* Tokens of the tile of the kernel that was launched; *is_split says of which kind it is. */
static int32_t launched(bool *is_split) {
    for (int i = 0; i < N_SPLITS; i++) {
        if (device.launch.kernel == splits[i].address) {
            *is_split = true;
            return splits[i].tokens;
        }
    }
    for (int i = 0; i < N_BLOCKS; i++) {
        if (device.launch.kernel == blocks[i].address) {
            *is_split = false;
            return blocks[i].tokens;
        }
    }
    fail();
    return 0;
}

/* The kernels divide 8 segments by what they find in their launch, and their memory by that. */
static void check_launch(const mmla_project_problem *p, int64_t n_tokens) {
    bool is_split;
    const int32_t tokens = launched(&is_split);
    const mmla_gpu_launch *l = &device.launch;
    assert_true(l->smem_bytes <= (uint32_t)p->gpu.smem_bytes);
    if (is_split) {
        const int32_t groups = (int32_t)l->block / MMLA_PROJECT_WG_THREADS;
        const int32_t all = groups * (int32_t)l->cluster;
        assert_true(groups <= MMLA_PROJECT_WG_SPLIT_GROUPS_MAX && l->block % 128 == 0);
        assert_true(all == 4 || all == 8);
        assert_int_equal(l->grid[0], l->cluster * tiles_of(p, n_tokens, 64, tokens));
        assert_int_equal(l->smem_bytes, MMLA_PROJECT_WG_SPLIT_SMEM(tokens, groups, 8 / all));
    } else {
        assert_int_equal(l->block, 512);
        /* A pair converts tokens for each other: none may be without the other. */
        assert_true(device.has_clusters);
        assert_int_equal(l->cluster, 2);
        assert_int_equal(l->grid[0] % 2, 0);
        assert_true(l->grid[0] <= 132 && l->grid[0] / 2 <= tiles_of(p, n_tokens, 256, tokens));
        assert_int_equal(l->smem_bytes, MMLA_PROJECT_WG_BLOCK_SMEM(tokens));
    }
}

static void project_launch_covers_its_tiles(void **state) {
    (void)state;
    static const int32_t ranks[] = {8, 72, 264, 1024, 65536};
    for (int32_t groups = 1; groups <= 16; groups++) {
        for (int i = 0; i < 5; i++) {
            for (int has_clusters = 0; has_clusters < 2; has_clusters++) {
                const mmla_project_problem p = problem_of(groups, ranks[i], has_clusters != 0);
                for (int64_t n = 1; n < 100000; n = n * 3 / 2 + 1) {
                    run(&p, n);
                    check_launch(&p, n);
                }
            }
        }
    }
}

static void project_launch_takes_the_kernel_for_the_shape(void **state) {
    (void)state;
    static const struct {
        int32_t n_groups, n_tokens;
        bool is_split;
        int32_t tokens, groups, ctas;
    } shapes[] = {
        {1, 1, true, 8, 1, 8},       {2, 16, true, 16, 1, 8},     {4, 1, true, 8, 4, 2},
        {8, 1, true, 8, 4, 1},       {8, 64, true, 64, 4, 1},     {1, 256, true, 64, 4, 2},
        {8, 128, false, 64, 0, 0},   {8, 256, false, 128, 0, 0},  {1, 1024, false, 64, 0, 0},
        {2, 1024, false, 128, 0, 0}, {8, 4096, false, 128, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const mmla_project_problem p = problem_of(shapes[i].n_groups, 1024, true);
        run(&p, shapes[i].n_tokens);
        bool is_split;
        assert_int_equal(launched(&is_split), shapes[i].tokens);
        assert_int_equal(is_split, shapes[i].is_split);
        if (is_split) {
            assert_int_equal(device.launch.block, shapes[i].groups * MMLA_PROJECT_WG_THREADS);
            assert_int_equal(device.launch.cluster, shapes[i].ctas);
        }
    }
}

static void project_launch_of_more_tiles_than_a_grid_has_is_refused(void **state) {
    (void)state;
    const mmla_project_problem p = problem_of(16, 65536, true);
    mmla_error err;
    const mmla_project_args args = {.n_tokens = INT32_MAX, .error = &err};
    device.n_launches = 0;
    assert_int_equal(mmla_project_wgmma(&p, &args, NULL, NULL), MMLA_E_SHAPE);
    assert_string_equal(err.argument, "n_tokens");
    assert_int_equal(device.n_launches, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project_launch_covers_its_tiles),
        cmocka_unit_test(project_launch_takes_the_kernel_for_the_shape),
        cmocka_unit_test(project_launch_of_more_tiles_than_a_grid_has_is_refused),
    };
    return cmocka_run_group_tests_name("project_wgmma_launch", tests, NULL, NULL);
}
