/* attend_mma_launch_test.c - what attend_mma_launch_cuda.c asks of a GPU, on a machine without one: the
 * file is part of this program, and so is a device that writes down its launches and runs nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/attend_mma_launch_cuda.c"
#include "gpu/attend_mma_params_cuda.c"

#define KERNEL(keys, tiles, blocks)                                         \
    void attend_bf16_sm80_k##keys##_h8x##tiles(const attend_mma_params p) { \
        (void)p;                                                            \
    }
#include "gpu/attend_mma_kernels.inc"
#undef KERNEL

/* What the launches of a call are held to. */
static struct {
    const mmla_attend_problem *p;
    const uint8_t *workspace;
    int64_t workspace_bytes;
    const uint8_t *cleared; /* by the last fill, not used by a launch yet */
    int64_t cleared_bytes;
    int64_t n_tokens; /* launched so far */
    int64_t n_fills;
} device;

static void assert_in_workspace(const void *from, int64_t bytes, int64_t alignment) {
    const int64_t at = (const uint8_t *)from - device.workspace;
    assert_true(at >= 0 && bytes >= 0 && at + bytes <= device.workspace_bytes);
    assert_int_equal(at % alignment, 0);
}

mmla_status
mmla_gpu_kernel_load(const mmla_gpu *gpu, const void *kernel, int32_t smem_bytes, mmla_error *err) {
    (void)err;
    assert_true(kernel != NULL && smem_bytes <= gpu->smem_bytes);
    return MMLA_OK;
}

mmla_status mmla_gpu_fill(
    const mmla_gpu *gpu, void *memory, int value, size_t bytes, void *stream, mmla_error *err) {
    (void)gpu;
    (void)stream;
    (void)err;
    assert_int_equal(value, 0);
    device.cleared = memory;
    device.cleared_bytes = (int64_t)bytes;
    device.n_fills++;
    assert_in_workspace(memory, (int64_t)bytes, 4);
    return MMLA_OK;
}

static const struct kernel *kernel_of(const void *function) {
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].function == function) {
            return &kernels[i];
        }
    }
    fail();
    return NULL;
}

static void check_parts(const attend_mma_params *a, int64_t groups, int64_t heads) {
    const int64_t parts = groups * a->n_splits;
    const int64_t o = parts * heads * MMLA_LATENT_DIM * 4, ml = parts * 2 * heads * 4;
    assert_in_workspace(a->part_o, o, 16);
    assert_in_workspace(a->part_ml, ml, 4);
    assert_in_workspace(a->part_n, parts * 4, 4);
    assert_in_workspace(a->arrived, groups * 4, 4);
    assert_true((const uint8_t *)a->part_o + o <= (const uint8_t *)a->part_ml);
    assert_true((const uint8_t *)a->part_ml + ml <= (const uint8_t *)a->part_n);
    assert_true(a->part_n + parts <= a->arrived);
}

mmla_status mmla_gpu_launch_run(const mmla_gpu *gpu,
                                const mmla_gpu_launch *launch,
                                const void *params,
                                void *stream,
                                mmla_error *err) {
    (void)stream;
    (void)err;
    const attend_mma_params *a = params;
    const struct kernel *k = kernel_of(launch->kernel);
    const int64_t groups = a->n_tokens * a->n_head_tiles, heads = 8 * k->n_tiles;
    assert_true(a->n_tokens > 0 && a->first_token == device.n_tokens);
    assert_true(a->n_head_tiles * heads >= a->n_heads);
    assert_true((a->n_head_tiles - 1) * heads < a->n_heads);
    assert_true(a->n_splits >= 1 && a->n_splits <= ATTEND_MMA_SPLITS_MAX);
    assert_true(groups * a->n_splits <= INT32_MAX);
    /* Else the kernel is empty in this device's code. */
    assert_true(attend_mma_smem_bytes(k->keys, k->n_tiles, ATTEND_MMA_FP4_PITCH) <=
                attend_mma_smem_limit(gpu->code));
    assert_int_equal(launch->grid[0], groups * a->n_splits);
    assert_int_equal(launch->grid[1] * launch->grid[2], 1);
    assert_int_equal(launch->block, ATTEND_MMA_THREADS);
    assert_true((int32_t)launch->smem_bytes <= gpu->smem_bytes);
    if (a->n_splits > 1) {
        check_parts(a, groups, heads);
        if (a->in_cluster) { /* the CTAs of a group, and no counter to clear */
            assert_true(gpu->code >= 90);
            assert_int_equal(launch->cluster, a->n_splits);
            assert_true(launch->cluster <= 8);
            assert_int_equal(device.n_fills, 0);
        } else {
            assert_true(launch->cluster <= 1);
            assert_true(device.cleared == (const uint8_t *)a->arrived);
            assert_int_equal(device.cleared_bytes, groups * 4);
            device.cleared = NULL;
        }
    }
    device.n_tokens += a->n_tokens;
    return MMLA_OK;
}

/* Devices of every kind: with clusters, without, with little shared memory; and one that can have
 * clusters whose code, compiled by the driver from earlier PTX, has none. */
static const mmla_gpu gpus[] = {
    {.capability = 90, .code = 90, .n_sms = 132, .smem_bytes = 232448, .sm_smem_bytes = 233472},
    {.capability = 80, .code = 80, .n_sms = 108, .smem_bytes = 166912, .sm_smem_bytes = 167936},
    {.capability = 89, .code = 89, .n_sms = 128, .smem_bytes = 101376, .sm_smem_bytes = 102400},
    {.capability = 120, .code = 120, .n_sms = 170, .smem_bytes = 101376, .sm_smem_bytes = 102400},
    {.capability = 100, .code = 89, .n_sms = 148, .smem_bytes = 232448, .sm_smem_bytes = 233472},
};

static const struct caches {
    mmla_attend_kind kind;
    mmla_kv_format window;
    mmla_kv_format compressed;
} caches[] = {
    {MMLA_ATTEND_PAGED, MMLA_KV_V4, MMLA_KV_NONE},
    {MMLA_ATTEND_PAGED, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
    {MMLA_ATTEND_PAGED, MMLA_KV_V41_FP4, MMLA_KV_V41_FP4},
    {MMLA_ATTEND_ROWS, MMLA_KV_NONE, MMLA_KV_NONE},
};

enum { N_GPUS = sizeof gpus / sizeof gpus[0], N_CACHES = sizeof caches / sizeof caches[0] };

static void problem_init(mmla_attend_problem *p,
                         int gpu,
                         int cache,
                         int32_t n_heads,
                         int32_t width,
                         int64_t max_tokens,
                         bool invariant,
                         bool clusters) {
    *p = (mmla_attend_problem){
        .desc = {.kind = caches[cache].kind,
                 .n_heads = n_heads,
                 .max_tokens = max_tokens,
                 .scale = 1.0f,
                 .list_width = width,
                 .compressed_width = width,
                 .batch_invariant = invariant},
        .window = {.format = caches[cache].window},
        .compressed = {.format = caches[cache].compressed},
        .gpu = gpus[gpu],
    };
    assert_int_equal(
        clusters ? mmla_attend_mma_load(p, NULL) : mmla_attend_mma_counter_load(p, NULL), MMLA_OK);
}

/* Largest workspace of any call, of which nothing is touched. */
static uint8_t *memory;
enum { MEMORY_BYTES = 64 << 20 };

static void run(const mmla_attend_problem *p, int64_t n_tokens, bool clusters) {
    const mmla_attend_args args = {.n_tokens = n_tokens};
    memset(&device, 0, sizeof device);
    device.p = p;
    device.workspace = memory;
    device.workspace_bytes = (int64_t)mmla_attend_mma_workspace_bytes_get(p);
    assert_true(device.workspace_bytes <= MEMORY_BYTES);
    assert_int_equal(mmla_attend_mma_fused(p, &args, clusters, memory, NULL), MMLA_OK);
    assert_true(device.n_tokens == n_tokens);
    if (clusters) { /* the chain's step prepares as the fused call */
        device.n_tokens = 0;
        device.n_fills = 0;
        assert_int_equal(mmla_attend_mma_step(p, &args, NULL, NULL, memory, NULL), MMLA_OK);
        assert_true(device.n_tokens == n_tokens);
    }
}

/* Every call of every plan of up to 300 tokens, and some large ones. */
static void launches_cover_every_token_within_the_workspace(void **state) {
    (void)state;
    static const int64_t most[] = {0, 1, 2, 3, 5, 17, 64, 255, 256, 257, 300, 4097};
    for (int i = 0; i < N_GPUS * N_CACHES * 4; i++) {
        const bool invariant = i % 2 != 0, clusters = i / 2 % 2 != 0;
        for (int32_t n_heads = 8; n_heads <= 128; n_heads += 8) {
            for (size_t m = 0; m < sizeof most / sizeof most[0]; m++) {
                mmla_attend_problem p;
                problem_init(&p, i / 4 % N_GPUS, i / 4 / N_GPUS, n_heads, 512, most[m], invariant,
                             clusters);
                for (int64_t n = most[m] < 300 ? most[m] : 1; n <= most[m] && n > 0;
                     n += n < 300 ? 1 : 379) {
                    run(&p, n, clusters);
                }
            }
        }
    }
}

/* A call of fewer tokens than its plan allows may split finer than any call of the most. */
static void workspace_of_many_tokens_covers_few(void **state) {
    (void)state;
    for (int i = 0; i < N_GPUS * N_CACHES * 2; i++) {
        const bool clusters = i % 2 != 0;
        for (int32_t n_heads = 8; n_heads <= 128; n_heads += 8) {
            for (int64_t most = 1; most <= 300; most += most < 12 ? 1 : 97) {
                mmla_attend_problem p;
                problem_init(&p, i / 2 % N_GPUS, i / 2 / N_GPUS, n_heads, 4096, most, false,
                             clusters);
                for (int64_t n = 1; n <= most; n++) {
                    run(&p, n, clusters);
                }
            }
        }
    }
}

static void grids_of_the_most_tokens_have_31_bits(void **state) {
    (void)state;
    for (int gpu = 0; gpu < N_GPUS; gpu++) {
        mmla_attend_problem p;
        problem_init(&p, gpu, 0, 128, INT32_MAX, INT32_MAX, false, true);
        run(&p, INT32_MAX, true);
        problem_init(&p, gpu, 1, 128, 512, 100000, true, true); /* always split */
        run(&p, 100000, true);
    }
}

/* Both touch the bits of a result: block_keys and splits of one token alone are those of any number. */
static void batch_invariant_calls_divide_a_token_alike(void **state) {
    (void)state;
    for (int i = 0; i < N_GPUS * N_CACHES; i++) {
        for (int32_t n_heads = 8; n_heads <= 128; n_heads += 8) {
            for (int32_t width = 32; width <= 4096; width *= 2) {
                mmla_attend_problem one, p;
                problem_init(&one, i % N_GPUS, i / N_GPUS, n_heads, width, 1, true, true);
                problem_init(&p, i % N_GPUS, i / N_GPUS, n_heads, width, 100000, true, i % 2 == 0);
                const struct choice alone = choose(&one, 1);
                for (int64_t n = 1; n <= 300; n++) {
                    const struct choice c = choose(&p, n);
                    assert_int_equal(c.kernel->keys, alone.kernel->keys);
                    assert_int_equal(c.n_splits, alone.n_splits);
                }
            }
        }
    }
}

int main(void) {
    memory = aligned_alloc(MMLA_WORKSPACE_ALIGNMENT, MEMORY_BYTES);
    if (memory == NULL) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_cover_every_token_within_the_workspace),
        cmocka_unit_test(workspace_of_many_tokens_covers_few),
        cmocka_unit_test(grids_of_the_most_tokens_have_31_bits),
        cmocka_unit_test(batch_invariant_calls_divide_a_token_alike),
    };
    const int failed = cmocka_run_group_tests_name("attend_mma_launch", tests, NULL, NULL);
    free(memory);
    return failed;
}
