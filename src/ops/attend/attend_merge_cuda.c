/* attend_merge_cuda.c - launches the kernel of mmla_attend_merge. */
#include "base/checked.h"
#include "ops/attend/attend.h"
#include "ops/attend/attend_merge_cuda.h"

mmla_status mmla_attend_merge_prepare(const mmla_gpu *gpu, mmla_error *err) {
    return mmla_gpu_kernel_load(gpu, (const void *)mmla_attend_merge_kernel, 0, err);
}

mmla_status mmla_attend_merge_gpu(const mmla_gpu *gpu,
                                  const mmla_attend_merge_args *args,
                                  void *stream,
                                  mmla_error *err) {
    const mmla_attend_merge_params params = {
        .n_tokens = args->n_tokens,
        .out_a = args->out_a,
        .out_b = args->out_b,
        .lse_a = args->lse_a,
        .lse_b = args->lse_b,
        .sink = args->sink,
        .lse = args->lse,
        .to = {.out = args->out,
               .out_scale = args->out_scale,
               .form = args->out_form,
               .n_heads = args->n_heads,
               .strides = mmla_out_scale_strides_get(args->out_scale_word_stride,
                                                     args->out_scale_group_stride, args->n_tokens)},
    };
    const int64_t n_groups = args->n_tokens * (args->n_heads / MMLA_HEADS_PER_GROUP);
    const mmla_gpu_launch launch = {
        .kernel = (const void *)mmla_attend_merge_kernel,
        .grid = {(uint32_t)mmla_min_i64(n_groups, INT32_MAX), 1, 1},
        .block = GPU_HEAD_THREADS,
    };
    return mmla_gpu_launch_run(gpu, &launch, &params, stream, err);
}
