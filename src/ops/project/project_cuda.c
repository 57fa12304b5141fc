/* project_cuda.c - which kernel multiplies which shape. Every kernel gives the same bits, so this is a
 * matter of speed alone. */
#include "base/error.h"
#include "ops/project/project_cuda.h"

/* A kernel with what its tile needs. */
struct kernel {
    const void *address;
    int32_t rows;
    int32_t tokens;
    int32_t smem_bytes;
    int32_t cost;
};

#define BYTES_split MMLA_PROJECT_SPLIT_SMEM
#define BYTES_block MMLA_PROJECT_BLOCK_SMEM
#define KERNEL(structure, rows, tokens, stages, blocks, cost)                   \
    {(const void *)project_##structure##_sm80_m##rows##n##tokens, rows, tokens, \
     BYTES_##structure(rows, tokens, stages), cost},
static const struct kernel kernels[] = {MMLA_PROJECT_KERNELS(KERNEL)};
#undef KERNEL

enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

static bool fits(const mmla_project_problem *p, const struct kernel *k) {
    return k->smem_bytes <= p->gpu.smem_bytes;
}

static int64_t tiles_of(const mmla_project_problem *p, int64_t n_tokens, const struct kernel *k) {
    return mmla_project_tiles(p->desc.rank, k->rows) * p->desc.n_groups *
           mmla_project_tiles(n_tokens, k->tokens);
}

/* The kernel whose busiest multiprocessor has least to do. Small tiles use all of them, large ones
 * read and convert each operand less often. The first two fit every GPU there is, so that there
 * always is one. */
static const struct kernel *kernel_pick(const mmla_project_problem *p, int64_t n_tokens) {
    const struct kernel *best = &kernels[0];
    int64_t least = INT64_MAX;
    for (int i = 0; i < N_KERNELS; i++) {
        const int64_t time =
            mmla_project_tiles(tiles_of(p, n_tokens, &kernels[i]), p->gpu.n_sms) * kernels[i].cost;
        if (fits(p, &kernels[i]) && time < least) {
            best = &kernels[i];
            least = time;
        }
    }
    return best;
}

mmla_status mmla_project_mma_prepare(void *problem, mmla_error *err) {
    const mmla_project_problem *p = problem;
    for (int i = 0; i < N_KERNELS; i++) {
        if (fits(p, &kernels[i])) {
            const mmla_status status =
                mmla_gpu_kernel_load(&p->gpu, kernels[i].address, kernels[i].smem_bytes, err);
            if (status != MMLA_OK) {
                return status;
            }
        }
    }
    return MMLA_OK;
}

mmla_status mmla_project_mma(const mmla_project_problem *p,
                             const mmla_project_args *args,
                             void *workspace,
                             void *stream) {
    (void)workspace;
    const struct kernel *kernel = kernel_pick(p, args->n_tokens);
    const int64_t n_tiles = tiles_of(p, args->n_tokens, kernel);
    if (n_tiles > INT32_MAX) {
        return mmla_error_set(args->error, MMLA_E_SHAPE, "n_tokens",
                              "is %lld, which makes %lld tiles, must make at most %d",
                              (long long)args->n_tokens, (long long)n_tiles, INT32_MAX);
    }
    const mmla_project_params params = mmla_project_params_get(p, args);
    const mmla_gpu_launch launch = {
        .kernel = kernel->address,
        .grid = {(uint32_t)n_tiles, 1, 1},
        .block = MMLA_PROJECT_THREADS,
        .smem_bytes = (uint32_t)kernel->smem_bytes,
    };
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
