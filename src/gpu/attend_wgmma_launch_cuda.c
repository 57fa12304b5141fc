/* attend_wgmma_launch_cuda.c - which kernel has how many of a token's heads on Hopper, how many CTAs
 * share its keys, and the launch. */
#include "gpu/attend_wgmma.h"
#include "gpu/attend_wgmma_tile.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

static int32_t log2_of(int32_t n_splits) {
    return n_splits == 8 ? 3 : n_splits == 4 ? 2 : n_splits == 2 ? 1 : 0;
}

/* The kernels, by the heads of a CTA, and how many cycles each takes for a block of keys. A CTA of
 * any fills a multiprocessor. */
typedef struct kernel_choice {
    const attend_wgmma_shape *shape;
    const void *kernel;
    int64_t block_cycles;
} kernel_choice;

static const kernel_choice kernels[] = {
    {&attend_wgmma_shape_few8, (const void *)(uintptr_t)attend_wgmma_few8_bf16_sm90a, 2100},
    {&attend_wgmma_shape_few16, (const void *)(uintptr_t)attend_wgmma_few16_bf16_sm90a, 2350},
    {&attend_wgmma_shape_64, (const void *)(uintptr_t)attend_wgmma_bf16_sm90a, 3300},
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

/* The smallest that has room for so many heads, or the last. */
static const kernel_choice *kernel_for(int32_t tile_heads) {
    const kernel_choice *k = kernels;
    while (k < kernels + N_KERNELS - 1 && tile_heads > k->shape->heads) {
        k++;
    }
    return k;
}

/* A launch of clusters of s CTAs, but for its grid. */
static mmla_gpu_launch launch_of(const kernel_choice *k, int32_t s) {
    return (mmla_gpu_launch){
        .kernel = k->kernel,
        .grid = {0, 1, 1},
        .block = (uint32_t)k->shape->n_threads,
        .smem_bytes = k->shape->smem_bytes,
        .cluster = (uint32_t)s,
        .early = true,
    };
}

/* How a call is divided: tasks of a token and up to tile_heads heads, each by n_splits CTAs. Which
 * kernel it is, and n_splits, change a result's bits. */
typedef struct division {
    int32_t tile_heads;
    int32_t n_splits;
} division;

static int64_t n_tasks_of(const mmla_attend_problem *p, int64_t n_tokens, int32_t tile_heads) {
    return n_tokens * ((p->desc.n_heads + tile_heads - 1) / tile_heads);
}

/* Splits that a plan cannot do without. */
static int32_t splits_needed(const mmla_attend_problem *p) {
    return p->desc.batch_invariant ? mmla_attend_mma_invariant_splits(p) : 1;
}

/* Estimated cycles of a call, of whose clusters p->clusters run at once. The constants were set by
 * hand after times on an H200 (8 .. 128 heads, 1 .. 1024 tokens, 128 + 512 keys of 528 + 288); only
 * the order of two estimates decides anything. */
static int64_t cycles(const mmla_attend_problem *p, int64_t n_tokens, division d) {
    enum { BEGIN = 8000, END = 6000, JOIN = 6000, JOIN_A_HEAD = 115 };
    const int64_t share = (mmla_attend_mma_width(p) + d.n_splits - 1) / d.n_splits;
    const int64_t blocks = (share + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
    const int64_t clusters = mmla_max_i64(p->clusters[log2_of(d.n_splits)], 1); /* at once */
    const int64_t turns = (n_tasks_of(p, n_tokens, d.tile_heads) + clusters - 1) / clusters;
    const int64_t heads = mmla_min_i64(d.tile_heads, p->desc.n_heads);
    const int64_t join = d.n_splits > 1 ? JOIN + JOIN_A_HEAD * heads : 0;
    return BEGIN + turns * (END + blocks * kernel_for(d.tile_heads)->block_cycles + join);
}

static division division_of(const mmla_attend_problem *p, int64_t n_tokens) {
    enum { FEWEST_HEADS = 8 };
    const kernel_choice *own = kernel_for(p->desc.n_heads);
    division best = {own->shape->heads, splits_needed(p)};
    int64_t fewest = cycles(p, n_tokens, best);
    for (int32_t s = 1; s <= ATTEND_WGMMA_SPLITS_MAX; s *= 2) {
        if (p->clusters[log2_of(s)] == 0 || (p->desc.batch_invariant && s != best.n_splits)) {
            continue;
        }
        for (int32_t heads = own->shape->heads; heads >= FEWEST_HEADS; heads /= 2) {
            const division d = {heads, s};
            if (p->desc.batch_invariant && kernel_for(heads) != own) {
                continue; /* the number of tokens must not decide the kernel */
            }
            const int64_t needed = cycles(p, n_tokens, d);
            if (needed < fewest) {
                fewest = needed;
                best = d;
            }
        }
    }
    return best;
}

/* The kernel counts places in 32 bits, up to the next whole block. */
static bool is_width_taken(const mmla_attend_problem *p) {
    const int32_t most = INT32_MAX - 2 * ATTEND_WGMMA_KEYS;
    return p->desc.list_width <= most && p->desc.compressed_width <= most;
}

bool mmla_attend_wgmma_supports(const mmla_attend_problem *p) {
    return is_width_taken(p) && p->clusters[log2_of(splits_needed(p))] > 0;
}

/* Loads the kernels, and asks how many clusters of every size run at once: as many of each. */
static mmla_status prepare(mmla_attend_problem *p, mmla_error *err) {
    for (int32_t k = 0; k < N_KERNELS; k++) {
        MMLA_RETURN_IF_FAILED(
            mmla_gpu_kernel_load(&p->gpu, kernels[k].kernel, kernels[k].shape->smem_bytes, err));
    }
    for (int32_t s = 1; s <= ATTEND_WGMMA_SPLITS_MAX; s *= 2) {
        const mmla_gpu_launch launch = launch_of(&kernels[N_KERNELS - 1], s);
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
    /* Numbers of tasks are 32 bits, to which the number of clusters is added, and so is that of
     * CTAs. */
    enum { TASKS_MAX = (1 << 30) / ATTEND_WGMMA_SPLITS_MAX };
    attend_mma_params params = mmla_attend_mma_fused_params_get(p, args);
    const division d = division_of(p, args->n_tokens);
    params.tile_heads = d.tile_heads;
    params.n_head_tiles = (int32_t)n_tasks_of(p, 1, d.tile_heads);
    params.n_splits = d.n_splits;
    const int64_t at_once = TASKS_MAX / params.n_head_tiles;
    for (int64_t first = 0; first < args->n_tokens; first += at_once) {
        params.first_token = first;
        params.n_tokens = mmla_min_i64(at_once, args->n_tokens - first);
        const int64_t n_tasks = params.n_tokens * params.n_head_tiles;
        /* CTAs on their own take tasks in turns; a cluster has one, so that its stages may hold the
         * sums of it at the end. */
        const int64_t clusters =
            params.n_splits > 1 ? n_tasks : mmla_min_i64(n_tasks, p->clusters[0]);
        mmla_gpu_launch launch = launch_of(kernel_for(d.tile_heads), params.n_splits);
        launch.grid[0] = (uint32_t)(clusters * params.n_splits);
        MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error));
    }
    return MMLA_OK;
}
