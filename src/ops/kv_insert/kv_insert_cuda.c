/* kv_insert_cuda.c - which kernels a call needs, and their launches. */
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
    MMLA_RETURN_IF_FAILED(mmla_gpu_kernel_load(&p->gpu, kernel_of(p), 0, err));
    return p->desc.max_tokens > KV_INSERT_SCAN_ROWS
               ? mmla_gpu_kernel_load(&p->gpu, (const void *)kv_insert_cuda_claim, 0, err)
               : MMLA_OK;
}

static size_t claims_bytes(const mmla_kv_insert_problem *p, int64_t n) {
    return n > KV_INSERT_SCAN_ROWS ? (size_t)kv_insert_n_claims(p, n) * KV_INSERT_CLAIM_BYTES : 0;
}

size_t mmla_kv_insert_cuda_workspace_bytes(const mmla_kv_insert_problem *p) {
    return claims_bytes(p, p->desc.max_tokens);
}

/* Empties the table of claims and lets the rows make theirs. */
static mmla_status enqueue_claims(const kv_insert_params *params, size_t bytes, void *stream) {
    const mmla_gpu *gpu = &params->problem.gpu;
    const int64_t n = params->args.n_slots;
    const mmla_gpu_launch launch = {
        .kernel = (const void *)kv_insert_cuda_claim,
        .grid = {(uint32_t)((n + KV_INSERT_CLAIM_THREADS - 1) / KV_INSERT_CLAIM_THREADS), 1, 1},
        .block = KV_INSERT_CLAIM_THREADS};
    mmla_error *err = params->args.error;
    MMLA_RETURN_IF_FAILED(mmla_gpu_fill(gpu, params->claims, 0, bytes, stream, err));
    return mmla_gpu_launch_run(gpu, &launch, params, stream, err);
}

mmla_status mmla_kv_insert_cuda(const mmla_kv_insert_problem *p,
                                const mmla_kv_insert_args *args,
                                void *workspace,
                                void *stream) {
    const int64_t n = args->n_slots;
    const size_t bytes = claims_bytes(p, n);
    const int32_t row_lanes = p->dims / KV_INSERT_LANE_DIMS;
    kv_insert_params params = {
        .problem = *p,
        .args = *args,
        .warp_rows = kv_insert_warp_rows(n, p->gpu.n_sms, KV_INSERT_WARP / row_lanes)};
    if (bytes > 0) {
        params.claims = workspace;
        params.n_claims = kv_insert_n_claims(p, n);
        MMLA_RETURN_IF_FAILED(enqueue_claims(&params, bytes, stream));
    }
    const mmla_gpu_launch launch = {.kernel = kernel_of(p),
                                    .grid = {kv_insert_n_blocks(n, params.warp_rows), 1, 1},
                                    .block = KV_INSERT_THREADS};
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
