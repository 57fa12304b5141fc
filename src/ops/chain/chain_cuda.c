/* chain_cuda.c - the four steps on a CUDA device, a launch each. The second is the fused call's kernel
 * without its rotations, from the rotated q to a bf16 result. */
#include "base/checked.h"
#include "gpu/attend_mma.h"
#include "ops/chain/chain.h"
#include "ops/chain/chain_cuda.h"

bool mmla_chain_mma_layout(const mmla_attend_problem *p, mmla_chain_layout *layout) {
    *layout = (mmla_chain_layout){0};
    return mmla_chain_layout_init(p, (int64_t)mmla_attend_mma_workspace_bytes_get(p), 1, layout);
}

mmla_status mmla_chain_mma_prepare(void *problem, mmla_error *err) {
    const mmla_gpu *gpu = &((const mmla_attend_problem *)problem)->gpu;
    static const void *const kernels[] = {(const void *)mmla_chain_rope_q_kernel,
                                          (const void *)mmla_chain_unrope_kernel,
                                          (const void *)mmla_chain_quantise_kernel};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const mmla_status status = mmla_gpu_kernel_load(gpu, kernels[i], 0, err);
        if (status != MMLA_OK) {
            return status;
        }
    }
    return mmla_attend_mma_load(problem, err);
}

static mmla_chain_params params_of(const mmla_attend_problem *p,
                                   const mmla_chain_layout *layout,
                                   const mmla_attend_args *args,
                                   void *workspace) {
    const mmla_attend_desc *d = &p->desc;
    return (mmla_chain_params){
        .n_tokens = args->n_tokens,
        .n_heads = d->n_heads,
        .q_layout = d->q_layout,
        .q = args->q,
        .q_token_stride = d->q_token_stride,
        .positions = args->positions,
        .cos_sin = args->cos_sin,
        .rope_positions = d->rope_positions,
        .rotated = mmla_chain_q(layout, workspace),
        .o = mmla_chain_o(layout, workspace),
        .n_faults = args->n_faults,
        .to = {.out = args->out,
               .out_scale = args->out_scale,
               .form = d->out_form,
               .n_heads = d->n_heads,
               .strides = mmla_out_scale_strides_get(d->out_scale_word_stride,
                                                     d->out_scale_group_stride, args->n_tokens)},
    };
}

/* One kernel, on a block for each of n_blocks units or on as many as a grid has. */
static mmla_status launch(const mmla_attend_problem *p,
                          const mmla_attend_args *args,
                          const void *kernel,
                          int64_t n_blocks,
                          const mmla_chain_params *params,
                          void *stream) {
    const mmla_gpu_launch launch = {
        .kernel = kernel,
        .grid = {(uint32_t)mmla_min_i64(n_blocks, INT32_MAX), 1, 1},
        .block = GPU_HEAD_THREADS,
    };
    return mmla_gpu_launch_run(&p->gpu, &launch, params, stream, args->error);
}

mmla_status mmla_chain_mma(const mmla_attend_problem *p,
                           const mmla_chain_layout *layout,
                           mmla_chain_step step,
                           const mmla_attend_args *args,
                           void *workspace,
                           void *stream) {
    const mmla_chain_params params = params_of(p, layout, args, workspace);
    const int64_t heads = args->n_tokens * p->desc.n_heads, groups = heads / MMLA_HEADS_PER_GROUP;
    switch (step) {
    case MMLA_CHAIN_ROPE_Q:
        return launch(p, args, (const void *)mmla_chain_rope_q_kernel, groups, &params, stream);
    case MMLA_CHAIN_ATTEND:
        return mmla_attend_mma_step(p, args, params.rotated, params.o,
                                    mmla_chain_scratch(layout, workspace), stream);
    case MMLA_CHAIN_UNROPE:
        return launch(p, args, (const void *)mmla_chain_unrope_kernel,
                      (heads + MMLA_CHAIN_UNROPE_HEADS - 1) / MMLA_CHAIN_UNROPE_HEADS, &params,
                      stream);
    case MMLA_CHAIN_QUANTISE:
        return launch(p, args, (const void *)mmla_chain_quantise_kernel, groups, &params, stream);
    }
    return MMLA_E_VALUE;
}
