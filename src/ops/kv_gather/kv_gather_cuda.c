/* kv_gather_cuda.c - the kernel of a format, and its launch. */
#include "ops/kv_gather/kv_gather_cuda.h"

static const void *kernel_of(const mmla_kv_gather_problem *p) {
    switch (p->cache.format) {
    case MMLA_KV_V4:
        return (const void *)kv_gather_cuda_v4;
    case MMLA_KV_V41_FP8:
        return (const void *)kv_gather_cuda_v41_fp8;
    default: /* a plan has checked the format */
        return (const void *)kv_gather_cuda_v41_fp4;
    }
}

mmla_status mmla_kv_gather_cuda_prepare(void *problem, mmla_error *err) {
    const mmla_kv_gather_problem *p = problem;
    return mmla_gpu_kernel_load(&p->gpu, kernel_of(p), 0, err);
}

mmla_status mmla_kv_gather_cuda(const mmla_kv_gather_problem *p,
                                const mmla_kv_gather_args *args,
                                void *stream) {
    const kv_gather_grid grid = kv_gather_grid_of(p, args->n_requests);
    const kv_gather_params params = {
        .problem = *p, .args = *args, .tile_rows = grid.tile_rows, .is_dealt = grid.is_dealt};
    const mmla_gpu_launch launch = {.kernel = kernel_of(p),
                                    .grid = {grid.x, grid.y, 1},
                                    .block = KV_GATHER_THREADS,
                                    .early = true};
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
