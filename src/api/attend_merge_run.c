/* attend_merge_run.c - checks of mmla_attend_merge. */
#include "api/attend_check.h"
#include "api/shape_check.h"
#include "base/check.h"
#include "base/context.h"
#include "ops/attend/attend.h"

/* A context on a CUDA device exists only where the library was built for it. */
static mmla_status
run(const mmla_context *ctx, const mmla_attend_merge_args *args, void *stream, mmla_error *err) {
#if defined(MMLA_HAVE_CUDA)
    if (ctx->device.kind == MMLA_DEVICE_CUDA) {
        return mmla_attend_merge_gpu(&ctx->gpu, args, stream, err);
    }
#endif
    (void)stream;
    (void)err;
    mmla_attend_merge_parts(args, ctx->n_threads);
    return MMLA_OK;
}

mmla_status mmla_attend_merge(mmla_context *ctx,
                              const mmla_attend_merge_args *args,
                              void *stream,
                              mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "ctx", ctx, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "args", args, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_tokens", args->n_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_heads_check(err, args->n_heads));
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "out_form", (int)args->out_form, MMLA_OUT_BF16 + 1));
    if (args->out_form == MMLA_OUT_FP8_PERMUTED) {
        MMLA_RETURN_IF_FAILED(mmla_out_scale_strides_check(err, args->out_scale_word_stride,
                                                           args->out_scale_group_stride,
                                                           args->n_tokens, args->n_heads));
    }
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "out_a", args->out_a, 16));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "lse_a", args->lse_a, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "out_b", args->out_b, 16));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "lse_b", args->lse_b, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "sink", args->sink, 4));
    MMLA_RETURN_IF_FAILED(mmla_out_pointers_check(err, args->out_form, args->out, args->out_scale));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "lse", args->lse, 4));
    return run(ctx, args, stream, err);
}
