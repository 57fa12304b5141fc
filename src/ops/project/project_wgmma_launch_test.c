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

#define KERNEL(rows)                                              \
    void project_wide_sm90a_n##rows(mmla_project_wide_params p) { \
        (void)p;                                                  \
    }
MMLA_PROJECT_WIDE_KERNELS(KERNEL)
#undef KERNEL
#define KERNEL(tokens, rows)                                                    \
    void project_wide_few_sm90a_m##tokens##n##rows(mmla_project_few_params p) { \
        (void)p;                                                                \
    }
MMLA_PROJECT_FEW_KERNELS(KERNEL)
#undef KERNEL
void project_widen_sm90a(mmla_project_widen_params p) {
    (void)p;
}

static struct {
    bool has_clusters;
    int64_t n_launches;
    mmla_gpu_launch launch;
    mmla_project_wide_params wide; /* of a launch with wide weight, of many tiles */
    mmla_project_few_params few;   /* or of few */
} device;

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    (void)err;
    assert_true(kernel != NULL && smem_bytes <= gpu->smem_bytes);
    return MMLA_OK;
}

/* As many as threads of 128 registers, or one that has more of fewer, shared memory, and groups of 16 multiprocessors allow. */
mmla_status mmla_gpu_clusters_get(const mmla_gpu *gpu,
                                  const mmla_gpu_launch *launch,
                                  int32_t *n,
                                  mmla_error *err) {
    (void)err;
    const int32_t by_registers = launch->block > 512 ? 1 : 512 / (int32_t)launch->block;
    const int32_t by_smem = gpu->sm_smem_bytes / ((int32_t)launch->smem_bytes + 1024);
    const int32_t n_blocks = by_registers < by_smem ? by_registers : by_smem;
    assert_true(n_blocks > 0);
    const int32_t lost = launch->cluster == 4 ? 2 : 0; /* of groups that are a little smaller */
    *n = launch->cluster == 1  ? gpu->n_sms * n_blocks
         : device.has_clusters ? gpu->n_sms / 16 * (16 * n_blocks / (int32_t)launch->cluster) - lost
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
    const void *volatile any = params; /* the compiler sees other launches, of fewer bytes */
    if (launch->block == MMLA_PROJECT_WIDE_THREADS) {
        device.wide = *(const mmla_project_wide_params *)any;
    } else if (launch->block == MMLA_PROJECT_FEW_THREADS) {
        device.few = *(const mmla_project_few_params *)any;
    }
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

static void run_with(const mmla_project_problem *p, int64_t n_tokens, const void *wide) {
    device.n_launches = 0;
    const mmla_project_args args = {.n_tokens = n_tokens, .weight_wide = wide};
    assert_int_equal(mmla_project_wgmma(p, &args, NULL, NULL), MMLA_OK);
    assert_int_equal(device.n_launches, 1);
}

static void run(const mmla_project_problem *p, int64_t n_tokens) {
    run_with(p, n_tokens, NULL);
}

/* Tokens of the tile of the kernel that was launched; *is_split says of which kind it is. */
static int32_t launched(bool *is_split) {
    for (int i = 0; i < N_SPLITS; i++) {
        if (device.launch.kernel == splits[i].address) {
            *is_split = true;
            return splits[i].size;
        }
    }
    for (int i = 0; i < N_BLOCKS; i++) {
        if (device.launch.kernel == blocks[i].address) {
            *is_split = false;
            return blocks[i].size;
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

/* Which launch with wide weight ran, or -1. */
static int launched_wide(void) {
    for (int i = 0; i < N_WIDES; i++) {
        if (device.launch.kernel == wide_kernels[wides[i].kernel].address &&
            device.wide.sharers == wides[i].sharers) {
            return i;
        }
    }
    return -1;
}

/* Which launch of few tiles ran, or -1. */
static int launched_few(void) {
    for (int i = 0; i < N_FEWS; i++) {
        if (device.launch.kernel == few_kernels[fews[i].kernel].address &&
            device.few.splits_log2 == fews[i].splits_log2 &&
            device.few.sharers_log2 == fews[i].sharers_log2) {
            return i;
        }
    }
    return -1;
}

/* Every row and token has its tile, and all of K its line. */
static void check_few(const mmla_project_problem *p, int64_t n_tokens, int few) {
    const mmla_project_few_params *f = &device.few;
    const mmla_gpu_launch *l = &device.launch;
    const struct few_kernel *kernel = &few_kernels[fews[few].kernel];
    const int32_t k_parts = 1 << f->splits_log2, ctas = k_parts << f->sharers_log2;
    const int32_t tokens = kernel->tokens << f->sharers_log2, rows = kernel->rows;
    assert_true(ctas <= 2); /* clusters of two leave no multiprocessor out */
    assert_int_equal(l->cluster, ctas);
    assert_int_equal(l->grid[0], (p->desc.rank + rows - 1) / rows * ctas);
    assert_int_equal(l->grid[1], (n_tokens + tokens - 1) / tokens);
    assert_int_equal(l->grid[2], p->desc.n_groups);
    assert_true(l->grid[1] <= 65535);
    assert_int_equal(f->n_lines * (4 * 64 / kernel->tokens) * k_parts * 128, 4096);
    assert_int_equal(f->group_rows % 256, 0);
    assert_true(f->group_rows >= p->desc.rank && l->smem_bytes <= (uint32_t)p->gpu.smem_bytes);
}

/* Every row and token has its tile. */
static void check_wide(const mmla_project_problem *p, int64_t n_tokens, int wide) {
    const mmla_project_wide_params *w = &device.wide;
    const mmla_gpu_launch *l = &device.launch;
    const int32_t rows = wide_kernels[wides[wide].kernel].size, tokens = w->sharers * 128;
    assert_int_equal(l->cluster, w->sharers);
    assert_int_equal(l->grid[0] % l->cluster, 0);
    assert_int_equal(w->row_tiles, (p->desc.rank + rows - 1) / rows);
    assert_int_equal(w->token_tiles, (n_tokens + tokens - 1) / tokens);
    assert_int_equal(w->n_tiles, w->row_tiles * w->token_tiles * (uint32_t)p->desc.n_groups);
    assert_true(l->grid[0] / l->cluster <= w->n_tiles);
    assert_true(l->smem_bytes <= (uint32_t)p->gpu.smem_bytes);
}

static void project_wide_launch_covers_its_tiles(void **state) {
    (void)state;
    static const int32_t ranks[] = {8, 72, 264, 1024, 65536};
    static const uint8_t wide[1];
    int seen[N_WIDES] = {0}, few_seen[N_FEWS] = {0};
    for (int32_t groups = 1; groups <= 16; groups++) {
        for (int i = 0; i < 5; i++) {
            for (int has_clusters = 0; has_clusters < 2; has_clusters++) {
                const mmla_project_problem p = problem_of(groups, ranks[i], has_clusters != 0);
                for (int64_t n = 1; n < 100000; n = n * 3 / 2 + 1) {
                    run_with(&p, n, wide);
                    const int launched_idx = launched_wide();
                    if (launched_idx >= 0) {
                        seen[launched_idx]++;
                        check_wide(&p, n, launched_idx);
                    } else if (launched_few() >= 0) {
                        few_seen[launched_few()]++;
                        check_few(&p, n, launched_few());
                    } else {
                        check_launch(&p, n);
                    }
                }
            }
        }
    }
    for (int i = 0; i < N_WIDES; i++) {
        assert_true(seen[i] > 0); /* or it is of no use */
    }
    for (int i = 0; i < N_FEWS; i++) {
        assert_true(few_seen[i] > 0);
    }
}

/* The shapes of project_wide_test.c: between them they take every launch, of few tiles (tokens, rows, CTAs with parts of K)
 * or of many (tokens are 0). */
static void project_wide_launch_is_that_of_the_shape(void **state) {
    (void)state;
    static const uint8_t wide[1];
    static const struct {
        int32_t n_groups, rank, n_tokens;
        int32_t tokens, rows, sharers, splits;
    } shapes[] = {
        {2, 1000, 256, 64, 64, 2, 1},   {1, 1024, 380, 64, 64, 2, 1},
        {1, 1000, 1000, 64, 128, 2, 1}, {16, 1016, 380, 0, 128, 1, 1},
        {8, 1000, 250, 128, 128, 2, 1}, {8, 1024, 1000, 0, 256, 2, 1},
        {8, 264, 1500, 0, 128, 2, 1},   {16, 8, 1000, 64, 32, 2, 1},
        {1, 1016, 100, 64, 32, 1, 2},   {1, 1000, 150, 64, 32, 2, 1},
        {4, 1000, 61, 64, 64, 1, 2},    {8, 1016, 60, 64, 64, 1, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const mmla_project_problem p = problem_of(shapes[i].n_groups, shapes[i].rank, true);
        run_with(&p, shapes[i].n_tokens, wide);
        const int idx = launched_wide(), few = launched_few();
        if (shapes[i].tokens != 0) {
            assert_true(few >= 0);
            assert_int_equal(few_kernels[fews[few].kernel].tokens, shapes[i].tokens);
            assert_int_equal(few_kernels[fews[few].kernel].rows, shapes[i].rows);
            assert_int_equal(1 << fews[few].sharers_log2, shapes[i].sharers);
            assert_int_equal(1 << fews[few].splits_log2, shapes[i].splits);
        } else {
            assert_true(idx >= 0);
            assert_int_equal(wide_kernels[wides[idx].kernel].size, shapes[i].rows);
            assert_int_equal(wides[idx].sharers, shapes[i].sharers);
        }
    }
}

static void project_launch_of_more_tiles_than_a_grid_has_is_refused(void **state) {
    (void)state;
    static const uint8_t wide[1];
    const mmla_project_problem p = problem_of(16, 65536, true);
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        mmla_error err;
        const mmla_project_args args = {
            .n_tokens = INT32_MAX, .weight_wide = is_wide ? wide : NULL, .error = &err};
        device.n_launches = 0;
        assert_int_equal(mmla_project_wgmma(&p, &args, NULL, NULL), MMLA_E_SHAPE);
        assert_string_equal(err.argument, "n_tokens");
        assert_int_equal(device.n_launches, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project_launch_covers_its_tiles),
        cmocka_unit_test(project_launch_takes_the_kernel_for_the_shape),
        cmocka_unit_test(project_wide_launch_covers_its_tiles),
        cmocka_unit_test(project_wide_launch_is_that_of_the_shape),
        cmocka_unit_test(project_launch_of_more_tiles_than_a_grid_has_is_refused),
    };
    return cmocka_run_group_tests_name("project_wgmma_launch", tests, NULL, NULL);
}
