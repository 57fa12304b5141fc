/* attend_wgmma_launch_cuda.c - how many CTAs share a token's keys on Hopper, and the launch. */
#include "gpu/attend_wgmma.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

static int32_t log2_of(int32_t n_splits) {
    return n_splits == 8 ? 3 : n_splits == 4 ? 2 : n_splits == 2 ? 1 : 0;
}

/* A launch of clusters of s CTAs, but for its grid. */
static mmla_gpu_launch launch_of(int32_t s) {
    return (mmla_gpu_launch){
        .kernel = (const void *)(uintptr_t)attend_wgmma_bf16_sm90a,
        .grid = {0, 1, 1},
        .block = ATTEND_WGMMA_THREADS,
        .smem_bytes = ATTEND_WGMMA_SMEM_BYTES,
        .cluster = (uint32_t)s,
    };
}

static int64_t n_tasks_of(const mmla_attend_problem *p, int64_t n_tokens) {
    return n_tokens * ((p->desc.n_heads + ATTEND_WGMMA_HEADS - 1) / ATTEND_WGMMA_HEADS);
}

/* Estimated cycles when s CTAs share a token, as many clusters of that size at a time as there are. The
 * constants were set by hand after times on an H200 (8 .. 128 heads, 1 .. 1024 tokens, 128 + 512 keys of
 * 528 + 288); only the order of two estimates decides anything. */
static int64_t cycles(const mmla_attend_problem *p, int64_t n_tasks, int32_t s) {
    enum { BEGIN = 12000, END = 6000, A_BLOCK = 7000, JOIN = 11000 };
    const int64_t share = (mmla_attend_mma_width(p) + s - 1) / s;
    const int64_t blocks = (share + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
    const int64_t clusters = p->clusters[log2_of(s)]; /* at the same time */
    const int64_t turns = (n_tasks + clusters - 1) / clusters;
    return BEGIN + turns * (END + blocks * A_BLOCK + (s > 1 ? JOIN : 0));
}

static int32_t splits_of(const mmla_attend_problem *p, int64_t n_tasks) {
    if (p->desc.batch_invariant) {
        return mmla_attend_mma_invariant_splits(p);
    }
    int32_t best = 1;
    for (int32_t s = 2; s <= ATTEND_WGMMA_SPLITS_MAX && p->clusters[log2_of(s)] > 0; s *= 2) {
        best = cycles(p, n_tasks, s) < cycles(p, n_tasks, best) ? s : best;
    }
    return best;
}

/* The kernel counts places in 32 bits, up to the next whole block. */
static bool is_width_taken(const mmla_attend_problem *p) {
    const int32_t most = INT32_MAX - 2 * ATTEND_WGMMA_KEYS;
    return p->desc.list_width <= most && p->desc.compressed_width <= most;
}

/* Splits that a plan cannot do without. */
static int32_t splits_needed(const mmla_attend_problem *p) {
    return p->desc.batch_invariant ? mmla_attend_mma_invariant_splits(p) : 1;
}

/* Where this kernel is behind those of every GPU (H200, 128 + 512 keys; src/ops/attend/README.md has the
 * times). It computes with 64 heads however few there are, so up to 16 pay for what is not there as soon
 * as every multiprocessor has a token of its own. And a handful of tokens with many heads is joined
 * faster through L2 than from one multiprocessor's memory to another's. A batch-invariant plan is of
 * one kind for any number of tokens. */
bool mmla_attend_wgmma_pays(const mmla_attend_problem *p, int64_t n_tokens) {
    enum { FEW_HEADS = 16, JOINED_HEADS = 24, FEW_TOKENS = 4 };
    if (!is_width_taken(p) || p->clusters[log2_of(splits_needed(p))] == 0) {
        return false;
    }
    if (p->desc.n_heads <= FEW_HEADS) {
        return !p->desc.batch_invariant && n_tasks_of(p, n_tokens) <= p->gpu.n_sms;
    }
    return p->desc.batch_invariant || p->desc.n_heads <= JOINED_HEADS || n_tokens > FEW_TOKENS;
}

/* Loads the kernel, and asks how many clusters of every size run at once. */
static mmla_status prepare(mmla_attend_problem *p, mmla_error *err) {
    mmla_gpu_launch launch = launch_of(1);
    MMLA_RETURN_IF_FAILED(
        mmla_gpu_kernel_load(&p->gpu, launch.kernel, ATTEND_WGMMA_SMEM_BYTES, err));
    for (int32_t s = 1; s <= ATTEND_WGMMA_SPLITS_MAX; s *= 2) {
        launch = launch_of(s);
        MMLA_RETURN_IF_FAILED(
            mmla_gpu_clusters_get(&p->gpu, &launch, &p->clusters[log2_of(s)], err));
    }
    return MMLA_OK;
}

mmla_status mmla_attend_wgmma_load(void *problem, mmla_error *err) {
    mmla_attend_problem *p = problem;
    MMLA_RETURN_IF_FAILED(prepare(p, err));
    if (!is_width_taken(p)) {
        return mmla_error_set(err, MMLA_E_SHAPE, "list_width",
                              "and compressed_width must be at most %d for this implementation",
                              INT32_MAX - 2 * (int)ATTEND_WGMMA_KEYS);
    }
    if (p->clusters[log2_of(splits_needed(p))] == 0) {
        return mmla_error_set(err, MMLA_E_DEVICE, "device",
                              "runs no cluster of %d blocks, which the kernel needs",
                              (int)splits_needed(p));
    }
    return MMLA_OK;
}

mmla_status mmla_attend_hopper_load(void *problem, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(prepare(problem, err));
    return mmla_attend_mma_load(problem, err);
}

mmla_status
mmla_attend_wgmma_fused(const mmla_attend_problem *p, const mmla_attend_args *args, void *stream) {
    /* Numbers of tasks are 32 bits, to which the number of clusters is added, and so is that of CTAs. */
    enum { TASKS_MAX = (1 << 30) / ATTEND_WGMMA_SPLITS_MAX };
    attend_mma_params params = mmla_attend_mma_fused_params_get(p, args);
    params.n_head_tiles = (int32_t)n_tasks_of(p, 1);
    const int64_t at_once = TASKS_MAX / params.n_head_tiles;
    for (int64_t first = 0; first < args->n_tokens; first += at_once) {
        params.first_token = first;
        params.n_tokens = mmla_min_i64(at_once, args->n_tokens - first);
        const int64_t n_tasks = params.n_tokens * params.n_head_tiles;
        params.n_splits = splits_of(p, n_tasks);
        /* CTAs on their own take tasks in turns; a cluster has one. Its loading warps wait for the end of the
         * task before by the parity of a barrier, and would lose count of several without keys. */
        const int64_t clusters =
            params.n_splits > 1 ? n_tasks : mmla_min_i64(n_tasks, p->clusters[0]);
        mmla_gpu_launch launch = launch_of(params.n_splits);
        launch.grid[0] = (uint32_t)(clusters * params.n_splits);
        MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error));
    }
    return MMLA_OK;
}
