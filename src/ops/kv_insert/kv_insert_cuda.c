/* kv_insert_cuda.c - the kernels of a format, one a step, and the one or two launches of a call. */
#include "base/check.h"
#include "ops/kv_insert/kv_insert_cuda.h"

static const void *kernel_of(const mmla_kv_insert_problem *p, kv_insert_step step) {
    static const void *const kernels[][KV_INSERT_STEPS][2] = {
#define STEP(name) {(const void *)kv_insert_cuda_##name, (const void *)kv_insert_cuda_##name##_norm}
#define KERNELS(format) \
    { STEP(format##_scan), STEP(format##_claim), STEP(format##_repair) }
        [MMLA_KV_V4] = KERNELS(v4),
        [MMLA_KV_V41_FP8] = KERNELS(v41_fp8),
        [MMLA_KV_V41_FP4] = KERNELS(v41_fp4),
        [MMLA_KV_INDEX_FP8] = KERNELS(index_fp8),
        [MMLA_KV_INDEX_FP4] = KERNELS(index_fp4),
#undef KERNELS
#undef STEP
    };
    return kernels[p->cache.format][step][p->desc.norm]; /* a plan has checked the format */
}

mmla_status mmla_kv_insert_cuda_prepare(void *problem, mmla_error *err) {
    const mmla_kv_insert_problem *p = problem;
    for (kv_insert_step step = KV_INSERT_SCAN; step < KV_INSERT_STEPS; step++) {
        MMLA_RETURN_IF_FAILED(mmla_gpu_kernel_load(&p->gpu, kernel_of(p, step), 0, err));
    }
    return MMLA_OK;
}

static size_t table_bytes(const mmla_kv_insert_problem *p, int64_t n) {
    const size_t claims = kv_insert_n_claims(p, n) * sizeof(kv_insert_claim);
    return n > KV_INSERT_SCAN_ROWS ? sizeof(kv_insert_table) + claims : 0;
}

size_t mmla_kv_insert_cuda_workspace_bytes(const mmla_kv_insert_problem *p) {
    return table_bytes(p, p->desc.max_tokens);
}

static int32_t warp_rows_of(const mmla_kv_insert_problem *p, int64_t n) {
    const int32_t row_lanes = p->dims / KV_INSERT_LANE_DIMS;
    const int32_t blocks = p->desc.norm ? KV_INSERT_NORM_BLOCKS : KV_INSERT_BLOCKS;
    const int64_t n_warps = (int64_t)p->gpu.n_sms * blocks * KV_INSERT_WARPS;
    return kv_insert_warp_rows(n, n_warps, KV_INSERT_WARP / row_lanes);
}

mmla_status mmla_kv_insert_cuda(const mmla_kv_insert_problem *p,
                                const mmla_kv_insert_args *args,
                                void *workspace,
                                void *stream) {
    const int64_t n = args->n_slots;
    const bool scan = n <= KV_INSERT_SCAN_ROWS;
    const kv_insert_params params = {.problem = *p,
                                     .args = *args,
                                     .warp_rows = scan ? 1 : warp_rows_of(p, n),
                                     .n_claims = kv_insert_n_claims(p, n),
                                     .table = scan ? NULL : workspace};
    mmla_gpu_launch launch = {.kernel = kernel_of(p, scan ? KV_INSERT_SCAN : KV_INSERT_CLAIM),
                              .grid = {kv_insert_n_blocks(n, params.warp_rows), 1, 1},
                              .block = KV_INSERT_THREADS,
                              .early = true};
    MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error));
    if (scan) {
        return MMLA_OK;
    }
    launch.kernel = kernel_of(p, KV_INSERT_REPAIR);
    launch.grid[0] = (uint32_t)mmla_min_i64(launch.grid[0], p->gpu.n_sms);
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
