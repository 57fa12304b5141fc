/* project_wgmma_cuda.c - which kernel multiplies which shape on Hopper. All of them give the same bits, so
 * this is a matter of speed alone. */
#include "ops/project/project_wgmma_cuda.h"

#include "base/check.h"
#include "base/error.h"

/* A kernel for tiles of so many tokens. */
struct kernel {
    const void *address;
    int32_t tokens;
};

#define KERNEL(tokens) {(const void *)project_wgmma_block_sm90a_n##tokens, tokens},
static const struct kernel blocks[] = {MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)};
#undef KERNEL
#define KERNEL(tokens) {(const void *)project_wgmma_split_sm90a_n##tokens, tokens},
static const struct kernel splits[] = {MMLA_PROJECT_WG_SPLIT_KERNELS(KERNEL)};
#undef KERNEL

/* How the warpgroups that share K are spread: so many in each of so many CTAs. */
struct spread {
    int32_t groups, ctas;
};
static const struct spread spreads[] = {{4, 1}, {4, 2}, {1, 8}};

enum {
    N_BLOCKS = sizeof blocks / sizeof blocks[0],
    N_SPLITS = sizeof splits / sizeof splits[0],
    N_SPREADS = sizeof spreads / sizeof spreads[0]
};

static_assert(N_SPLITS * N_SPREADS + N_BLOCKS == MMLA_PROJECT_CLUSTERS_MAX,
              "every launch has its count");

/* Places of their counts in a problem. */
static int split_count(int kernel, int spread) {
    return kernel * N_SPREADS + spread;
}
static int block_count(int kernel) {
    return N_SPLITS * N_SPREADS + kernel;
}

static int32_t turns_of(const struct spread *s) {
    return MMLA_PROJECT_SEGMENTS / (s->groups * s->ctas);
}

/* A launch of a split kernel, but for its grid. */
static mmla_gpu_launch split_launch(int kernel, int spread) {
    const struct spread *s = &spreads[spread];
    return (mmla_gpu_launch){
        .kernel = splits[kernel].address,
        .grid = {0, 1, 1},
        .block = (uint32_t)(s->groups * MMLA_PROJECT_WG_THREADS),
        .smem_bytes =
            (uint32_t)MMLA_PROJECT_WG_SPLIT_SMEM(splits[kernel].tokens, s->groups, turns_of(s)),
        .cluster = (uint32_t)s->ctas,
    };
}

static mmla_gpu_launch block_launch(int kernel) {
    return (mmla_gpu_launch){
        .kernel = blocks[kernel].address,
        .grid = {0, 1, 1},
        .block = MMLA_PROJECT_WG_BLOCK_THREADS,
        .smem_bytes = (uint32_t)MMLA_PROJECT_WG_BLOCK_SMEM(blocks[kernel].tokens),
        .cluster = MMLA_PROJECT_WG_BLOCK_CTAS,
    };
}

static int64_t
tiles_of(const mmla_project_problem *p, int64_t n_tokens, int32_t rows, int32_t tokens) {
    return mmla_project_tiles(p->desc.rank, rows) * p->desc.n_groups *
           mmla_project_tiles(n_tokens, tokens);
}

/* Estimated cycles. Only the order of two estimates decides anything: fitted to what all launches of 28 shapes took
 * on an H200, of which for 25 the fastest comes first, and for 3 one that takes 3 to 7 % longer. */

/* Of tiles that a cluster has. What a segment takes is loading its rows: a row's 512 codes in ROW cycles, whoever of
 * a multiprocessor's warpgroups wants them. */
static int64_t
split_cycles(const mmla_project_problem *p, int64_t n_tiles, int kernel, int spread) {
    enum { BEGIN = 1000, ROW = 35, JOIN = 2700, JOIN_CTA = 700 };
    const struct spread *s = &spreads[spread];
    const int64_t at_once = p->clusters[split_count(kernel, spread)];
    if (at_once == 0) {
        return INT64_MAX;
    }
    /* Warpgroups on the multiprocessor that has most. */
    const int64_t ctas = (n_tiles < at_once ? n_tiles : at_once) * s->ctas;
    const int64_t groups = mmla_project_tiles(ctas, p->gpu.n_sms) * s->groups;
    const int64_t turn = groups * (MMLA_PROJECT_WG_ROWS + splits[kernel].tokens) * ROW;
    const int64_t join = s->ctas > 1 ? JOIN + JOIN_CTA * s->ctas : 0;
    return BEGIN + mmla_project_tiles(n_tiles, at_once) * (turns_of(s) * turn + join);
}

/* Of tiles that a pair of CTAs has. */
static int64_t block_cycles(const mmla_project_problem *p, int64_t n_tiles, int kernel) {
    enum { BEGIN = 12900, END = 1500, STEP_CYCLES = 232, STEP_TOKEN_QUARTERS = 17 };
    const int64_t at_once = p->clusters[block_count(kernel)];
    if (at_once == 0) {
        return INT64_MAX;
    }
    const int64_t step = STEP_CYCLES + STEP_TOKEN_QUARTERS * blocks[kernel].tokens / 4;
    return BEGIN + mmla_project_tiles(n_tiles, at_once) * (END + MMLA_PROJECT_STEPS * step);
}

/* The launch that should be fastest. */
static mmla_gpu_launch
launch_pick(const mmla_project_problem *p, int64_t n_tokens, int64_t *n_tiles) {
    mmla_gpu_launch best = {0};
    int64_t least = INT64_MAX;
    for (int i = 0; i < N_SPLITS; i++) {
        const int64_t tiles = tiles_of(p, n_tokens, MMLA_PROJECT_WG_ROWS, splits[i].tokens);
        for (int j = 0; j < N_SPREADS; j++) {
            const int64_t cycles = split_cycles(p, tiles, i, j);
            if (cycles < least) {
                least = cycles;
                best = split_launch(i, j);
                best.grid[0] = (uint32_t)(tiles * spreads[j].ctas);
                *n_tiles = tiles * spreads[j].ctas;
            }
        }
    }
    for (int i = 0; i < N_BLOCKS; i++) {
        enum { CTAS = MMLA_PROJECT_WG_BLOCK_CTAS };
        const int64_t tiles =
            tiles_of(p, n_tokens, CTAS * MMLA_PROJECT_WG_BLOCK_ROWS, blocks[i].tokens);
        const int64_t cycles = block_cycles(p, tiles, i);
        if (cycles < least) {
            least = cycles;
            best = block_launch(i);
            const int64_t at_once = p->clusters[block_count(i)];
            best.grid[0] = (uint32_t)(CTAS * (tiles < at_once ? tiles : at_once));
            *n_tiles = tiles;
        }
    }
    return best;
}

mmla_status mmla_project_wgmma_prepare(void *problem, mmla_error *err) {
    mmla_project_problem *p = problem;
    for (int i = 0; i < N_BLOCKS; i++) {
        const mmla_gpu_launch launch = block_launch(i);
        MMLA_RETURN_IF_FAILED(
            mmla_gpu_kernel_load(&p->gpu, launch.kernel, (int32_t)launch.smem_bytes, err));
        MMLA_RETURN_IF_FAILED(
            mmla_gpu_clusters_get(&p->gpu, &launch, &p->clusters[block_count(i)], err));
    }
    for (int i = 0; i < N_SPLITS; i++) {
        for (int j = 0; j < N_SPREADS; j++) {
            const mmla_gpu_launch launch = split_launch(i, j);
            MMLA_RETURN_IF_FAILED(
                mmla_gpu_kernel_load(&p->gpu, launch.kernel, (int32_t)launch.smem_bytes, err));
            MMLA_RETURN_IF_FAILED(
                mmla_gpu_clusters_get(&p->gpu, &launch, &p->clusters[split_count(i, j)], err));
        }
    }
    return MMLA_OK;
}

mmla_status mmla_project_wgmma(const mmla_project_problem *p,
                               const mmla_project_args *args,
                               void *workspace,
                               void *stream) {
    (void)workspace;
    int64_t n_tiles = 0;
    const mmla_gpu_launch launch = launch_pick(p, args->n_tokens, &n_tiles);
    if (n_tiles > INT32_MAX) {
        return mmla_error_set(args->error, MMLA_E_SHAPE, "n_tokens",
                              "is %lld, which makes %lld tiles, must make at most %d",
                              (long long)args->n_tokens, (long long)n_tiles, INT32_MAX);
    }
    const mmla_project_params params = mmla_project_params_get(p, args);
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
