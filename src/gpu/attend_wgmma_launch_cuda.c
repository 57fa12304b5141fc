/* attend_wgmma_launch_cuda.c - how many CTAs share a token's keys on Hopper, and the launch. */
#include "gpu/attend_wgmma.h"

#include "base/check.h"
#include "base/checked.h"

/* Estimated cycles when s CTAs share a token: clusters of that size take the tasks in turns. */
static int64_t cycles(const mmla_attend_problem *p, int64_t n_tasks, int32_t s) {
    enum { BEGIN_AND_END = 6000, A_BLOCK = 2300, JOIN = 1500 };
    const int64_t share = (mmla_attend_mma_width(p) + s - 1) / s;
    const int64_t blocks = (share + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
    const int64_t clusters = p->gpu.n_sms / s;
    const int64_t turns = (n_tasks + clusters - 1) / clusters;
    return turns * (BEGIN_AND_END + blocks * A_BLOCK + (s > 1 ? JOIN : 0));
}

static int32_t splits_of(const mmla_attend_problem *p, int64_t n_tasks) {
    if (p->desc.batch_invariant) {
        return mmla_attend_mma_invariant_splits(p);
    }
    int32_t best = 1;
    for (int32_t s = 2; s <= ATTEND_WGMMA_SPLITS_MAX && s <= p->gpu.n_sms; s *= 2) {
        best = cycles(p, n_tasks, s) < cycles(p, n_tasks, best) ? s : best;
    }
    return best;
}

mmla_status mmla_attend_wgmma_load(void *problem, mmla_error *err) {
    mmla_attend_problem *p = problem;
    return mmla_gpu_kernel_load(&p->gpu, (const void *)(uintptr_t)attend_wgmma_bf16_sm90a,
                                ATTEND_WGMMA_SMEM_BYTES, err);
}

mmla_status mmla_attend_wgmma_fused(const mmla_attend_problem *p,
                                    const mmla_attend_args *args,
                                    void *stream) {
    enum { TASKS_MAX = 1 << 30 }; /* their numbers are 32 bits, and a stride is added */
    attend_mma_params params = mmla_attend_mma_fused_params_get(p, args);
    params.n_head_tiles = (p->desc.n_heads + ATTEND_WGMMA_HEADS - 1) / ATTEND_WGMMA_HEADS;
    const int64_t at_once = TASKS_MAX / params.n_head_tiles;
    for (int64_t first = 0; first < args->n_tokens; first += at_once) {
        params.first_token = first;
        params.n_tokens = mmla_min_i64(at_once, args->n_tokens - first);
        const int64_t n_tasks = params.n_tokens * params.n_head_tiles;
        params.n_splits = splits_of(p, n_tasks);
        const int64_t clusters = mmla_min_i64(n_tasks, p->gpu.n_sms / params.n_splits);
        const mmla_gpu_launch launch = {
            .kernel = (const void *)(uintptr_t)attend_wgmma_bf16_sm90a,
            .grid = {(uint32_t)(clusters * params.n_splits), 1, 1},
            .block = ATTEND_WGMMA_THREADS,
            .smem_bytes = ATTEND_WGMMA_SMEM_BYTES,
            .cluster = params.n_splits > 1 ? (uint32_t)params.n_splits : 0,
        };
        MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error));
    }
    return MMLA_OK;
}
