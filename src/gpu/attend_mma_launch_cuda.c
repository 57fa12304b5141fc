/* attend_mma_launch_cuda.c - which kernel, how many CTAs, how they divide the work, and the launches.
 *
 * Two numbers are chosen: groups of 8 heads of a CTA (more of them share a converted key; fewer make
 * more CTAs) and splits of a token's keys (more make more CTAs, and cost a merge). best_choice() tries
 * them and takes what a simple model of the time says is best. The splits and the keys of a block touch
 * the bits of a result, so the batch-invariant mode has the same of both for any number of tokens.
 */
#include "gpu/attend_mma.h"

#include "base/check.h"
#include "base/checked.h"

/* Kernels by keys of a block and groups of heads. */
static const struct kernel {
    const void *function;
    int32_t keys;
    int32_t n_tiles;
} kernels[] = {
#define KERNEL(keys, tiles, blocks) \
    {(const void *)(uintptr_t)attend_bf16_sm80_k##keys##_h8x##tiles, keys, tiles},
#include "gpu/attend_mma_kernels.inc"
#undef KERNEL
};

enum {
    N_KERNELS = sizeof kernels / sizeof kernels[0],
    SM_RESERVED_BYTES = 1024, /* of shared memory, for each CTA of a multiprocessor */
    CLUSTER_CAPABILITY = 90,
    CLUSTER_MAX = 8, /* CTAs every device with clusters can run at the same time */
    /* Most bytes of unmerged results; more tokens than fit take several launches. */
    PART_BYTES_MAX = 48 << 20
};

static_assert(PART_BYTES_MAX < 64 << 20, "the workspace stays below 64 MiB, whatever the call");

/* Widest record of the formats of a call, as it lies in the stage. */
static int32_t pitch_of(const mmla_attend_problem *p) {
    if (p->desc.kind == MMLA_ATTEND_ROWS) {
        return attend_mma_pitch(MMLA_KV_NONE);
    }
    const int32_t window = attend_mma_pitch(p->window.format);
    return p->compressed.format == MMLA_KV_NONE
               ? window
               : (int32_t)mmla_max_i64(window, attend_mma_pitch(p->compressed.format));
}

/* What a launch is made of. */
struct choice {
    const struct kernel *kernel;
    int32_t smem_bytes;
    int32_t n_head_tiles;
    int32_t n_splits;
};

/* CTAs a multiprocessor holds: by shared memory, and by registers, of which O takes most. */
static int32_t residents(const mmla_gpu *gpu, const struct kernel *k, int32_t smem_bytes) {
    const int32_t by_smem = gpu->sm_smem_bytes / (smem_bytes + SM_RESERVED_BYTES);
    const int32_t by_registers = k->n_tiles <= 2 ? 2 : 1;
    return by_smem < by_registers ? by_smem : by_registers;
}

/* Estimated cycles of a call of n tokens. The constants are fitted to 243 times of kernels and splits
 * on an H200, at 8 .. 128 heads and 1 .. 1024 tokens; only their order decides anything. What it takes
 * was the best of 28 of the 30 cases within 2 %, and of the others within 8 %. */
static double cycles(const mmla_attend_problem *p, const struct choice *c, int64_t n_tokens) {
    const int32_t n_tiles = c->kernel->n_tiles;
    const bool long_blocks = c->kernel->keys == ATTEND_MMA_KEYS_MAX;
    const double begin_and_end = 8440.0 + 500.0 * n_tiles;
    const double a_key = (long_blocks ? 15.8 : 23.1) + 10.0 * n_tiles;
    const double a_part = 300.0 * n_tiles; /* written, and read by those that merge */
    const int32_t resident = residents(&p->gpu, c->kernel, c->smem_bytes);
    const double ctas = (double)n_tokens * c->n_head_tiles * c->n_splits;
    double waves = ctas / ((double)p->gpu.n_sms * resident);
    waves = waves > 1.0 ? (double)(int64_t)(waves + 0.999) : 1.0;
    /* Two CTAs of a multiprocessor share it: each is slower once they fill the device. Clusters are
     * not spread evenly, so theirs meet a little before. */
    const bool large_clusters = c->n_splits >= 4 && long_blocks;
    const bool shared = resident > 1 && ctas > p->gpu.n_sms * (large_clusters ? 0.9 : 1.0);
    double one = begin_and_end + a_key * (double)mmla_attend_mma_width(p) / c->n_splits;
    if (c->n_splits > 1) {
        one += 420.0 + a_part * (1 + c->n_splits);
    }
    return waves * one * (shared ? long_blocks ? 1.44 : 1.52 : 1.0);
}

/* Asked of the code: PTX of an earlier GPU has no barrier of a cluster, wherever it runs. */
static bool has_clusters(const mmla_attend_problem *p) {
    return p->gpu.code >= CLUSTER_CAPABILITY;
}

static bool choice_init(const mmla_attend_problem *p,
                        const struct kernel *kernel,
                        int32_t n_splits,
                        struct choice *c) {
    const int32_t groups = p->desc.n_heads / MMLA_HEADS_PER_GROUP;
    c->kernel = kernel;
    c->smem_bytes = attend_mma_smem_bytes(kernel->keys, kernel->n_tiles, pitch_of(p));
    c->n_head_tiles = (groups + kernel->n_tiles - 1) / kernel->n_tiles;
    c->n_splits = n_splits;
    const int64_t limit = mmla_min_i64(p->gpu.smem_bytes, attend_mma_smem_limit(p->gpu.code));
    /* One group too many is better than another CTA that converts the same keys. */
    return c->smem_bytes <= limit && kernel->n_tiles <= groups + 1;
}

/* The largest power of two up to n; splits are, because clusters are then placed best. */
static int32_t power_below(int64_t n) {
    int32_t power = 1;
    while (2 * power <= n) {
        power *= 2;
    }
    return power;
}

/* Tries every kernel with no split, with as many as keep all CTAs at once on the device, and with half
 * of that. `keys` 0: blocks of any length. Costs about a microsecond, so a plan does it at its
 * creation. */
static struct choice
best_choice(const mmla_attend_problem *p, int64_t n_tokens, int32_t splits_max, int32_t keys) {
    struct choice best = {0};
    double best_cycles = 0.0;
    for (int i = 0; i < N_KERNELS; i++) {
        struct choice c;
        if (!choice_init(p, &kernels[i], 1, &c) || (keys != 0 && kernels[i].keys != keys)) {
            continue;
        }
        const int64_t room = (int64_t)p->gpu.n_sms * residents(&p->gpu, c.kernel, c.smem_bytes);
        const int32_t most =
            power_below(mmla_clamp_i64(room / (n_tokens * c.n_head_tiles), 1, splits_max));
        const int32_t splits[] = {1, most, most / 2};
        for (int k = 0; k < 3; k++) {
            c.n_splits = p->desc.batch_invariant ? mmla_attend_mma_invariant_splits(p) : splits[k];
            const double estimate = c.n_splits < 1 ? 0.0 : cycles(p, &c, n_tokens);
            if (c.n_splits >= 1 && (best.kernel == NULL || estimate < best_cycles)) {
                best = c;
                best_cycles = estimate;
            }
        }
    }
    return best;
}

/* Place of a count of tokens in a plan's table: every count has its own until there are so many that
 * keys are not split any more and waves are many. */
static int32_t place_of(int64_t n_tokens) {
    return (int32_t)mmla_min_i64(n_tokens, MMLA_ATTEND_LAUNCHES - 1);
}

/* A choice in 16 bits: the kernel's number, and the splits. */
static uint16_t pack(const struct choice *c) {
    return (uint16_t)((c->kernel - kernels) << 8 | c->n_splits);
}

static struct choice choose(const mmla_attend_problem *p, int64_t n_tokens) {
    const uint16_t packed = p->launches[place_of(n_tokens)];
    struct choice c;
    choice_init(p, &kernels[packed >> 8], packed & 0xFF, &c);
    return c;
}

/* Bytes one split of one group of heads leaves in the workspace. */
static int64_t part_bytes(int32_t n_tiles) {
    const int64_t heads = 8 * n_tiles;
    return heads * ATTEND_MMA_DIM * 4 + 2 * heads * 4 + 4;
}

/* Bytes of a token's unmerged results. */
static int64_t token_part_bytes(const struct choice *c) {
    return c->n_head_tiles * (c->n_splits * part_bytes(c->kernel->n_tiles) + 4);
}

size_t mmla_attend_mma_workspace_bytes_get(const mmla_attend_problem *p) {
    /* No choice for fewer tokens needs more of a token than the finest: 8 heads and all splits, but
     * that the last group of heads may have up to 7 tiles too many. */
    const int64_t tiles = p->desc.n_heads / MMLA_HEADS_PER_GROUP + ATTEND_MMA_TILES_MAX - 1;
    const int64_t a_token = tiles * (ATTEND_MMA_SPLITS_MAX * part_bytes(1) + 4);
    const int64_t slack = 4 * (int64_t)MMLA_WORKSPACE_ALIGNMENT; /* between the four arrays */
    return (size_t)(mmla_min_i64(PART_BYTES_MAX, p->desc.max_tokens * a_token) + slack);
}

/* Fills a plan's table of choices and loads the kernels. Invariant blocks are those best for many
 * tokens: few lose less by the wrong ones. */
static mmla_status prepare(mmla_attend_problem *p, int32_t splits_max, mmla_error *err) {
    const int64_t many_tokens = 8 * (MMLA_ATTEND_LAUNCHES - 1);
    const int32_t keys =
        p->desc.batch_invariant ? best_choice(p, many_tokens, splits_max, 0).kernel->keys : 0;
    for (int32_t n = 1; n <= place_of(p->desc.max_tokens); n++) {
        const bool is_last = n == MMLA_ATTEND_LAUNCHES - 1;
        const struct choice c = best_choice(p, is_last ? many_tokens : n, splits_max, keys);
        p->launches[n] = pack(&c);
    }
    for (int i = 0; i < N_KERNELS; i++) {
        struct choice c;
        if (choice_init(p, &kernels[i], 1, &c)) {
            MMLA_RETURN_IF_FAILED(
                mmla_gpu_kernel_load(&p->gpu, kernels[i].function, c.smem_bytes, err));
        }
    }
    return MMLA_OK;
}

mmla_status mmla_attend_mma_load(void *problem, mmla_error *err) {
    mmla_attend_problem *p = problem;
    return prepare(p, has_clusters(p) ? CLUSTER_MAX : ATTEND_MMA_SPLITS_MAX, err);
}

mmla_status mmla_attend_mma_counter_load(void *problem, mmla_error *err) {
    return prepare(problem, ATTEND_MMA_SPLITS_MAX, err);
}

/* Lays the four arrays of a launch of n tokens out in a workspace. */
static void
parts_init(attend_mma_params *params, const struct choice *c, int64_t n, void *workspace) {
    const int64_t groups = n * c->n_head_tiles, parts = groups * c->n_splits;
    const int64_t heads = 8 * c->kernel->n_tiles;
    uint8_t *at = workspace;
    params->part_o = (float *)(void *)at;
    at += parts * heads * ATTEND_MMA_DIM * 4;
    params->part_ml = (float *)(void *)at;
    at += mmla_round_up_i64(parts * 2 * heads * 4, MMLA_WORKSPACE_ALIGNMENT);
    params->part_n = (int32_t *)(void *)at;
    at += mmla_round_up_i64(parts * 4, MMLA_WORKSPACE_ALIGNMENT);
    params->arrived = (int32_t *)(void *)at;
}

/* Launches params for all tokens, as many at a time as the workspace and the grid take. */
static mmla_status launch(const mmla_attend_problem *p,
                          const mmla_attend_args *args,
                          attend_mma_params *params,
                          void *workspace,
                          void *stream) {
    const struct choice c = choose(p, args->n_tokens);
    params->n_head_tiles = c.n_head_tiles;
    params->n_splits = c.n_splits;
    int64_t at_once = INT32_MAX / (c.n_head_tiles * c.n_splits);
    if (c.n_splits > 1) {
        at_once = mmla_min_i64(at_once, PART_BYTES_MAX / token_part_bytes(&c));
    }
    for (int64_t first = 0; first < args->n_tokens; first += at_once) {
        params->first_token = first;
        params->n_tokens = mmla_min_i64(at_once, args->n_tokens - first);
        if (c.n_splits > 1) {
            parts_init(params, &c, params->n_tokens, workspace);
        }
        if (c.n_splits > 1 && !params->in_cluster) {
            MMLA_RETURN_IF_FAILED(
                mmla_gpu_fill(&p->gpu, params->arrived, 0,
                              (size_t)(params->n_tokens * c.n_head_tiles) * sizeof(int32_t), stream,
                              args->error));
        }
        const mmla_gpu_launch launch = {
            .kernel = c.kernel->function,
            .grid = {(uint32_t)(params->n_tokens * c.n_head_tiles * c.n_splits), 1, 1},
            .block = ATTEND_MMA_THREADS,
            .smem_bytes = (uint32_t)c.smem_bytes,
            .cluster = params->in_cluster ? (uint32_t)c.n_splits : 0,
        };
        MMLA_RETURN_IF_FAILED(mmla_gpu_launch_run(&p->gpu, &launch, params, stream, args->error));
    }
    return MMLA_OK;
}

mmla_status mmla_attend_mma_fused(const mmla_attend_problem *p,
                                  const mmla_attend_args *args,
                                  bool in_clusters,
                                  void *workspace,
                                  void *stream) {
    attend_mma_params params = mmla_attend_mma_fused_params_get(p, args);
    params.in_cluster = in_clusters && has_clusters(p);
    return launch(p, args, &params, workspace, stream);
}

mmla_status mmla_attend_mma_step(const mmla_attend_problem *p,
                                 const mmla_attend_args *args,
                                 const uint16_t *q,
                                 uint16_t *o,
                                 void *workspace,
                                 void *stream) {
    attend_mma_params params = mmla_attend_mma_params_get(p, args);
    params.rotate = 0;
    params.in_cluster = has_clusters(p);
    params.q = q;
    params.q_token_stride = (int64_t)p->desc.n_heads * MMLA_LATENT_DIM;
    params.q_layout = MMLA_Q_STANDARD;
    params.out = (uint8_t *)o;
    params.out_form = MMLA_OUT_BF16;
    return launch(p, args, &params, workspace, stream);
}
