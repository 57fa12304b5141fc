/* kv_insert_cuda.c - the kernel of a format, and its one or two launches. */
#include "base/check.h"
#include "ops/kv_insert/kv_insert_cuda.h"

static const void *kernel_of(const mmla_kv_insert_problem *p) {
#define KERNEL(format)                                           \
    (p->desc.norm ? (const void *)kv_insert_cuda_##format##_norm \
                  : (const void *)kv_insert_cuda_##format)
    switch (p->cache.format) {
    case MMLA_KV_V4:
        return KERNEL(v4);
    case MMLA_KV_V41_FP8:
        return KERNEL(v41_fp8);
    case MMLA_KV_V41_FP4:
        return KERNEL(v41_fp4);
    case MMLA_KV_INDEX_FP8:
        return KERNEL(index_fp8);
    case MMLA_KV_INDEX_FP4:
        return KERNEL(index_fp4);
    case MMLA_KV_NONE:
        break;
    }
#undef KERNEL
    return NULL; /* a plan has checked the format */
}

mmla_status mmla_kv_insert_cuda_prepare(void *problem, mmla_error *err) {
    const mmla_kv_insert_problem *p = problem;
    return mmla_gpu_kernel_load(&p->gpu, kernel_of(p), 0, err);
}

/* Claims, and the word behind them; no slot is legal in an empty cache, and nobody claims one. */
static size_t claims_bytes(const mmla_kv_insert_problem *p, int64_t n) {
    const size_t n_claims = kv_insert_n_claims(p, n);
    return n > KV_INSERT_SCAN_ROWS && n_claims > 0 ? (n_claims + 1) * sizeof(uint32_t) : 0;
}

size_t mmla_kv_insert_cuda_workspace_bytes(const mmla_kv_insert_problem *p) {
    return claims_bytes(p, p->desc.max_tokens);
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
    const size_t bytes = claims_bytes(p, n);
    const bool scan = n <= KV_INSERT_SCAN_ROWS;
    kv_insert_params params = {.problem = *p,
                               .args = *args,
                               .step = scan ? KV_INSERT_SCAN : KV_INSERT_CLAIM,
                               .warp_rows = scan ? 1 : warp_rows_of(p, n)};
    const mmla_gpu_launch launch = {.kernel = kernel_of(p),
                                    .grid = {kv_insert_n_blocks(n, params.warp_rows), 1, 1},
                                    .block = KV_INSERT_THREADS};
    if (bytes > 0) {
        params.claims = workspace;
        params.n_claims = kv_insert_n_claims(p, n);
        /* No row has the number that all bits make, so these are no claims. */
        MMLA_RETURN_IF_FAILED(mmla_gpu_fill(&p->gpu, workspace, 0xFF, bytes, stream, args->error));
    }
    MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error));
    if (bytes == 0) {
        return MMLA_OK;
    }
    params.step = KV_INSERT_REPAIR;
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
