/* project_wgmma_cuda.c - which kernel multiplies which shape on Hopper. All of them give the same bits, but those with a
 * wide weight, so this is a matter of speed alone. */
#include "ops/project/project_wgmma_cuda.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/project/project_wide_cuda.h"
#include "ops/project/project_wide_few_cuda.h"

/* A kernel for tiles of so many tokens; with wide weight, of rows. */
struct kernel {
    const void *address;
    int32_t size;
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

#define KERNEL(rows) {(const void *)project_wide_sm90a_n##rows, rows},
static const struct kernel wide_kernels[] = {MMLA_PROJECT_WIDE_KERNELS(KERNEL)};
#undef KERNEL

/* Launches with wide weight: which of those kernels, tiles of tokens of a cluster; cycles of a step, and of a tile's end, on
 * an H200. */
struct wide {
    int32_t kernel, sharers;
    int64_t step, end;
};
static const struct wide wides[] = {
    {1, 2, 1060, 4000},
    {0, 2, 580, 2100},
    {0, 1, 590, 2100},
};

/* And those of few tiles, of so many tokens and rows. */
#define KERNEL(tokens, rows)                                                \
    {(const void *)project_wide_few_sm90a_m##tokens##n##rows, tokens, rows, \
     MMLA_PROJECT_FEW_SMEM(tokens, rows), MMLA_PROJECT_FEW_LINES_MAX(tokens)},
static const struct few_kernel {
    const void *address;
    int32_t tokens, rows, smem_bytes, n_lines;
} few_kernels[] = {MMLA_PROJECT_FEW_KERNELS(KERNEL)};
#undef KERNEL

/* Their launches: CTAs that share K, and tiles of a cluster that share weight; cycles of a step on an empty H200, and what
 * every CTA adds to it, in 16ths. */
struct few {
    int32_t kernel, splits_log2, sharers_log2;
    int64_t step, step_cta;
};
static const struct few fews[] = {
    {0, 1, 0, 110, 7}, {0, 0, 1, 100, 4}, {1, 1, 0, 150, 19}, {1, 0, 0, 112, 22},
    {1, 0, 1, 145, 5}, {2, 0, 1, 290, 5}, {3, 0, 1, 590, 3},
};

enum {
    N_WIDES = sizeof wides / sizeof wides[0],
    N_FEWS = sizeof fews / sizeof fews[0],
    N_BLOCKS = sizeof blocks / sizeof blocks[0],
    N_SPLITS = sizeof splits / sizeof splits[0],
    N_SPREADS = sizeof spreads / sizeof spreads[0],
    GRID_MAX = 65535 /* blocks of a grid's second and third dimension */
};

static_assert(N_SPLITS * N_SPREADS + N_BLOCKS + N_WIDES + N_FEWS == MMLA_PROJECT_CLUSTERS_MAX,
              "every launch has its count");

/* Places of their counts in a problem. */
static int split_count(int kernel, int spread) {
    return kernel * N_SPREADS + spread;
}
static int block_count(int kernel) {
    return N_SPLITS * N_SPREADS + kernel;
}

static int wide_count(int wide) {
    return block_count(N_BLOCKS) + wide;
}

static int few_count(int few) {
    return wide_count(N_WIDES) + few;
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
            (uint32_t)MMLA_PROJECT_WG_SPLIT_SMEM(splits[kernel].size, s->groups, turns_of(s)),
        .cluster = (uint32_t)s->ctas,
    };
}

static mmla_gpu_launch block_launch(int kernel) {
    return (mmla_gpu_launch){
        .kernel = blocks[kernel].address,
        .grid = {0, 1, 1},
        .block = MMLA_PROJECT_WG_BLOCK_THREADS,
        .smem_bytes = (uint32_t)MMLA_PROJECT_WG_BLOCK_SMEM(blocks[kernel].size),
        .cluster = MMLA_PROJECT_WG_BLOCK_CTAS,
        .early = true,
    };
}

static mmla_gpu_launch wide_launch(const struct wide *w) {
    const struct kernel *kernel = &wide_kernels[w->kernel];
    return (mmla_gpu_launch){
        .kernel = kernel->address,
        .grid = {0, 1, 1},
        .block = MMLA_PROJECT_WIDE_THREADS,
        .smem_bytes = (uint32_t)MMLA_PROJECT_WIDE_SMEM(kernel->size),
        .cluster = (uint32_t)w->sharers,
        .early = true,
    };
}

static mmla_gpu_launch few_launch(const struct few *f) {
    return (mmla_gpu_launch){
        .kernel = few_kernels[f->kernel].address,
        .grid = {0, 1, 1},
        .block = MMLA_PROJECT_FEW_THREADS,
        .smem_bytes = (uint32_t)few_kernels[f->kernel].smem_bytes,
        .cluster = 1u << (f->splits_log2 + f->sharers_log2),
        .early = true,
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
    const int64_t turn = groups * (MMLA_PROJECT_WG_ROWS + splits[kernel].size) * ROW;
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
    const int64_t step = STEP_CYCLES + STEP_TOKEN_QUARTERS * blocks[kernel].size / 4;
    return BEGIN + mmla_project_tiles(n_tiles, at_once) * (END + MMLA_PROJECT_STEPS * step);
}

/* What all weight takes from memory, with a wide one. */
static int64_t wide_weight_cycles(const mmla_project_problem *p) {
    enum { BYTES_A_CYCLE = 2500 };
    return mmla_project_wide_codes_bytes(p->desc.rank, p->desc.n_groups) / BYTES_A_CYCLE;
}

/* Of tiles that a cluster has with wide weight. By clock reads of single launches, in cycles that are about those of the
 * others: it was not fitted. Weight comes from memory once. */
static int64_t wide_cycles(const mmla_project_problem *p, int64_t n_tiles, int wide) {
    enum { BEGIN = 11000 };
    const struct wide *w = &wides[wide];
    const int64_t at_once = p->clusters[wide_count(wide)];
    if (at_once == 0) {
        return INT64_MAX;
    }
    const int64_t turns = mmla_project_tiles(n_tiles, at_once);
    const int64_t steps = turns * MMLA_PROJECT_STEPS * w->step;
    return BEGIN + mmla_max_i64(steps, wide_weight_cycles(p)) + turns * w->end;
}

/* Of few tiles, as many as share weight a cluster's; the more CTAs ask for weight, the longer a step. By what 25 shapes
 * took on an H200. */
static int64_t few_cycles(const mmla_project_problem *p, int64_t n_clusters, int few) {
    enum { BEGIN = 7000 };
    const struct few *f = &fews[few];
    const int64_t at_once = p->clusters[few_count(few)];
    if (at_once == 0) {
        return INT64_MAX;
    }
    const int64_t turns = mmla_project_tiles(n_clusters, at_once);
    const int64_t ctas = mmla_min_i64(n_clusters, at_once) << (f->splits_log2 + f->sharers_log2);
    const int64_t step = f->step + ctas * f->step_cta / 16;
    const int64_t steps = turns * (MMLA_PROJECT_STEPS >> f->splits_log2) * step;
    return turns * BEGIN + mmla_max_i64(steps, wide_weight_cycles(p));
}

/* A launch, how many tiles it has, and which of those with a wide weight it is, or none. */
struct choice {
    mmla_gpu_launch launch;
    int64_t n_tiles, cycles;
    const struct wide *wide;
    const struct few *few;
    int64_t n_ctas; /* of the grid, where tiles do not bound them */
};

static void split_choose(const mmla_project_problem *p, int64_t n_tokens, struct choice *best) {
    for (int i = 0; i < N_SPLITS; i++) {
        const int64_t tiles = tiles_of(p, n_tokens, MMLA_PROJECT_WG_ROWS, splits[i].size);
        for (int j = 0; j < N_SPREADS; j++) {
            const int64_t cycles = split_cycles(p, tiles, i, j);
            if (cycles < best->cycles) {
                *best = (struct choice){.launch = split_launch(i, j),
                                        .n_tiles = tiles * spreads[j].ctas,
                                        .cycles = cycles};
                best->launch.grid[0] = (uint32_t)(tiles * spreads[j].ctas);
            }
        }
    }
}

static void block_choose(const mmla_project_problem *p, int64_t n_tokens, struct choice *best) {
    enum { CTAS = MMLA_PROJECT_WG_BLOCK_CTAS };
    for (int i = 0; i < N_BLOCKS; i++) {
        const int64_t tiles =
            tiles_of(p, n_tokens, CTAS * MMLA_PROJECT_WG_BLOCK_ROWS, blocks[i].size);
        const int64_t cycles = block_cycles(p, tiles, i);
        if (cycles < best->cycles) {
            const int64_t at_once = p->clusters[block_count(i)];
            *best = (struct choice){.launch = block_launch(i), .n_tiles = tiles, .cycles = cycles};
            best->launch.grid[0] = (uint32_t)(CTAS * (tiles < at_once ? tiles : at_once));
        }
    }
}

static struct choice wide_choice(const mmla_project_problem *p, int64_t n_tokens, int wide) {
    const struct wide *w = &wides[wide];
    const int64_t at_once = p->clusters[wide_count(wide)];
    const int64_t tiles =
        tiles_of(p, n_tokens, wide_kernels[w->kernel].size, w->sharers * MMLA_PROJECT_WIDE_TOKENS);
    const int64_t clusters = mmla_min_i64(tiles, at_once);
    struct choice choice = {.launch = wide_launch(w),
                            .n_tiles = tiles,
                            .cycles = wide_cycles(p, tiles, wide),
                            .wide = w};
    choice.n_ctas = clusters * choice.launch.cluster;
    choice.launch.grid[0] = (uint32_t)choice.n_ctas;
    return choice;
}

static struct choice few_choice(const mmla_project_problem *p, int64_t n_tokens, int few) {
    const struct few *f = &fews[few];
    const struct few_kernel *kernel = &few_kernels[f->kernel];
    const int64_t row_tiles = mmla_project_tiles(p->desc.rank, kernel->rows);
    const int64_t shares = mmla_project_tiles(n_tokens, kernel->tokens << f->sharers_log2);
    const int64_t clusters = p->desc.n_groups * row_tiles * shares;
    struct choice choice = {.launch = few_launch(f),
                            .n_tiles = clusters << f->sharers_log2,
                            .cycles = shares <= GRID_MAX ? few_cycles(p, clusters, few) : INT64_MAX,
                            .few = f};
    choice.launch.grid[0] = (uint32_t)(row_tiles * choice.launch.cluster);
    choice.launch.grid[1] = (uint32_t)shares;
    choice.launch.grid[2] = (uint32_t)p->desc.n_groups;
    return choice;
}

/* Of 16 tokens and fewer the split kernels take less: they read half as many bytes of weight. */
static void wide_choose(const mmla_project_problem *p, int64_t n_tokens, struct choice *best) {
    enum { TOKENS_MIN = 17 };
    if (n_tokens < TOKENS_MIN) {
        return;
    }
    for (int i = 0; i < N_WIDES + N_FEWS; i++) {
        const struct choice choice =
            i < N_WIDES ? wide_choice(p, n_tokens, i) : few_choice(p, n_tokens, i - N_WIDES);
        if (choice.cycles < best->cycles) {
            *best = choice;
        }
    }
}

static mmla_status
launch_prepare(mmla_project_problem *p, const mmla_gpu_launch *launch, int count, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(
        mmla_gpu_kernel_load(&p->gpu, launch->kernel, (int32_t)launch->smem_bytes, err));
    return mmla_gpu_clusters_get(&p->gpu, launch, &p->clusters[count], err);
}

mmla_status mmla_project_wgmma_prepare(void *problem, mmla_error *err) {
    mmla_project_problem *p = problem;
    for (int i = 0; i < N_BLOCKS; i++) {
        const mmla_gpu_launch launch = block_launch(i);
        MMLA_RETURN_IF_FAILED(launch_prepare(p, &launch, block_count(i), err));
    }
    for (int i = 0; i < N_SPLITS * N_SPREADS; i++) {
        const mmla_gpu_launch launch = split_launch(i / N_SPREADS, i % N_SPREADS);
        MMLA_RETURN_IF_FAILED(
            launch_prepare(p, &launch, split_count(i / N_SPREADS, i % N_SPREADS), err));
    }
    for (int i = 0; i < N_WIDES; i++) {
        const mmla_gpu_launch launch = wide_launch(&wides[i]);
        MMLA_RETURN_IF_FAILED(launch_prepare(p, &launch, wide_count(i), err));
    }
    for (int i = 0; i < N_FEWS; i++) {
        const mmla_gpu_launch launch = few_launch(&fews[i]);
        MMLA_RETURN_IF_FAILED(launch_prepare(p, &launch, few_count(i), err));
    }
    return mmla_gpu_kernel_load(&p->gpu, (const void *)project_widen_sm90a, 0, err);
}

size_t mmla_project_wgmma_wide_bytes(const mmla_project_problem *p) {
    return (size_t)mmla_project_wide_bytes_of(p->desc.rank, p->desc.n_groups);
}

/* The parts of a wide weight. */
struct wide_arrays {
    uint8_t *codes;
    float *factors;
    int32_t *marks;
};
static struct wide_arrays wide_arrays_of(const mmla_project_problem *p, const void *wide) {
    uint8_t *codes = (uint8_t *)(uintptr_t)wide;
    uint8_t *factors = codes + mmla_project_wide_codes_bytes(p->desc.rank, p->desc.n_groups);
    uint8_t *marks = factors + mmla_project_wide_factors_bytes(p->desc.rank, p->desc.n_groups);
    return (struct wide_arrays){codes, (float *)(void *)factors, (int32_t *)(void *)marks};
}

mmla_status mmla_project_wgmma_widen(const mmla_project_problem *p,
                                     const mmla_project_widen_args *args,
                                     void *stream) {
    const struct wide_arrays wide = wide_arrays_of(p, args->wide);
    const mmla_project_widen_params params = {
        .p = {.n_groups = p->desc.n_groups,
              .rank = p->desc.rank,
              .weight = args->weight,
              .weight_scale = args->weight_scale,
              .weight_scale_in_words = mmla_project_is_aligned(args->weight_scale, 4)},
        .codes = wide.codes,
        .factors = wide.factors,
        .marks = wide.marks,
    };
    enum { BLOCK_ROWS = MMLA_PROJECT_WIDE_WIDEN_THREADS / MMLA_PROJECT_WARP };
    const int64_t rows = p->desc.n_groups * mmla_project_wide_rows(p->desc.rank);
    const mmla_gpu_launch launch = {
        .kernel = (const void *)project_widen_sm90a,
        .grid = {(uint32_t)(rows / BLOCK_ROWS), 1, 1},
        .block = MMLA_PROJECT_WIDE_WIDEN_THREADS,
    };
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}

/* What the kernel of a choice is told besides. */
static mmla_project_wide_params wide_params_get(const mmla_project_problem *p,
                                                const mmla_project_args *args,
                                                const struct choice *choice) {
    const struct wide *w = choice->wide;
    const struct wide_arrays wide = wide_arrays_of(p, args->weight_wide);
    return (mmla_project_wide_params){
        .p = mmla_project_params_get(p, args),
        .codes = wide.codes,
        .factors = wide.factors,
        .marks = wide.marks,
        .sharers = w->sharers,
        .row_tiles = (uint32_t)mmla_project_tiles(p->desc.rank, wide_kernels[w->kernel].size),
        .token_tiles =
            (uint32_t)mmla_project_tiles(args->n_tokens, w->sharers * MMLA_PROJECT_WIDE_TOKENS),
        .n_tiles = (uint32_t)choice->n_tiles,
    };
}

static mmla_project_few_params
few_params_get(const mmla_project_problem *p, const mmla_project_args *args, const struct few *f) {
    const struct wide_arrays wide = wide_arrays_of(p, args->weight_wide);
    return (mmla_project_few_params){
        .p = mmla_project_params_get(p, args),
        .codes = wide.codes,
        .factors = wide.factors,
        .marks = wide.marks,
        .group_rows = mmla_project_wide_rows(p->desc.rank),
        .splits_log2 = f->splits_log2,
        .sharers_log2 = f->sharers_log2,
        .n_lines = few_kernels[f->kernel].n_lines >> f->splits_log2,
    };
}

mmla_status mmla_project_wgmma(const mmla_project_problem *p,
                               const mmla_project_args *args,
                               void *workspace,
                               void *stream) {
    (void)workspace;
    struct choice best = {.cycles = INT64_MAX};
    split_choose(p, args->n_tokens, &best);
    block_choose(p, args->n_tokens, &best);
    if (args->weight_wide != NULL) {
        wide_choose(p, args->n_tokens, &best);
    }
    if (best.n_tiles > INT32_MAX || best.n_ctas > INT32_MAX) {
        return mmla_error_set(args->error, MMLA_E_SHAPE, "n_tokens",
                              "is %lld, which makes %lld tiles, must make at most %d",
                              (long long)args->n_tokens, (long long)best.n_tiles, INT32_MAX);
    }
    if (best.wide != NULL) {
        const mmla_project_wide_params params = wide_params_get(p, args, &best);
        return mmla_gpu_launch_run(&p->gpu, &best.launch, &params, stream, args->error);
    }
    if (best.few != NULL) {
        const mmla_project_few_params params = few_params_get(p, args, best.few);
        return mmla_gpu_launch_run(&p->gpu, &best.launch, &params, stream, args->error);
    }
    const mmla_project_params params = mmla_project_params_get(p, args);
    return mmla_gpu_launch_run(&p->gpu, &best.launch, &params, stream, args->error);
}
