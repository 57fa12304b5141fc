/* weights_cuda.c - which kernels move what, on how many blocks. What belongs to a description is known
 * when the plan is made; whether 16 bytes can move at once, the pointers of a call decide. */
#include "ops/weights/weights_cuda.h"

enum { WIDE = 16 };

/* The kernels of a kind: by 16 bytes, and by elements. */
struct pair {
    const void *wide, *narrow;
    int32_t element_bytes;
};

static struct pair kernels_of(mmla_weights_kind kind) {
#define KERNEL(name) (const void *)mmla_weights_##name
    switch (kind) {
    case MMLA_WEIGHTS_PERMUTE_WO_A:
        return (struct pair){KERNEL(wo_a_by16), KERNEL(wo_a_by1), 1};
    case MMLA_WEIGHTS_Q_TO_FUSED:
        return (struct pair){KERNEL(q_to_fused_by16), KERNEL(q_to_fused_by2), sizeof(uint16_t)};
    case MMLA_WEIGHTS_Q_TO_STANDARD:
        return (struct pair){KERNEL(q_to_standard_by16), KERNEL(q_to_standard_by2),
                             sizeof(uint16_t)};
    case MMLA_WEIGHTS_PERMUTE_WQ_B:
    case MMLA_WEIGHTS_EXPAND_SCALES:
        break;
    }
    return (struct pair){KERNEL(rows_by16), KERNEL(rows_by1), 1};
#undef KERNEL
}

mmla_status mmla_weights_cuda_prepare(void *problem, mmla_error *err) {
    const mmla_weights_problem *p = problem;
    const struct pair kernels = kernels_of(p->desc.kind);
    const mmla_status status = mmla_gpu_kernel_load(&p->gpu, kernels.wide, 0, err);
    return status != MMLA_OK ? status : mmla_gpu_kernel_load(&p->gpu, kernels.narrow, 0, err);
}

static mmla_status launch(const mmla_weights_problem *p,
                          const void *kernel,
                          int64_t n_items,
                          const void *params,
                          void *stream,
                          mmla_error *err) {
    const mmla_gpu_launch launch = {
        .kernel = kernel,
        .grid = {(uint32_t)mmla_min_i64(n_items, INT32_MAX), 1, 1},
        .block = MMLA_WEIGHTS_THREADS,
    };
    return mmla_gpu_launch_run(&p->gpu, &launch, params, stream, err);
}

static bool is_aligned(const void *in, const void *out, int64_t row_bytes) {
    return (((uintptr_t)in | (uintptr_t)out | (uintptr_t)row_bytes) % WIDE) == 0;
}

static mmla_status move_rows(const mmla_weights_problem *p,
                             const void *in,
                             void *out,
                             int64_t row_bytes,
                             void *stream,
                             mmla_error *err) {
    const struct pair kernels = kernels_of(p->desc.kind);
    const bool wide = is_aligned(in, out, row_bytes);
    const mmla_weights_rows params = {
        .in = in,
        .out = out,
        .tiling = mmla_weights_tiling_get(p->desc.rows, wide ? row_bytes / WIDE : row_bytes),
        .kind = p->desc.kind,
        .n_heads = p->desc.n_heads,
    };
    return launch(p, wide ? kernels.wide : kernels.narrow, params.tiling.n_items, &params, stream,
                  err);
}

static mmla_status
move_chunks(const mmla_weights_problem *p, const mmla_weights_args *args, void *stream) {
    const struct pair kernels = kernels_of(p->desc.kind);
    const int64_t row_bytes = p->desc.cols * kernels.element_bytes;
    const bool wide = is_aligned(args->in, args->out, row_bytes);
    const bool scales = p->desc.kind == MMLA_WEIGHTS_PERMUTE_WO_A;
    const mmla_weights_chunks params = {
        .in = args->in,
        .out = args->out,
        .scale_in = scales ? args->scale_in : NULL,
        .scale_out = scales ? args->scale_out : NULL,
        .rows = p->desc.rows,
        .cols = (int32_t)p->desc.cols,
        .n_heads = p->desc.n_heads,
    };
    const int64_t row_units = row_bytes / (wide ? WIDE : kernels.element_bytes);
    return launch(p, wide ? kernels.wide : kernels.narrow,
                  mmla_weights_chunk_items(p->desc.rows, row_units), &params, stream, args->error);
}

mmla_status
mmla_weights_cuda(const mmla_weights_problem *p, const mmla_weights_args *args, void *stream) {
    const mmla_weights_desc *d = &p->desc;
    if (d->kind == MMLA_WEIGHTS_EXPAND_SCALES) {
        return move_rows(p, args->scale_in, args->scale_out, d->scale_cols, stream, args->error);
    }
    if (d->kind != MMLA_WEIGHTS_PERMUTE_WQ_B) {
        return move_chunks(p, args, stream);
    }
    const mmla_status status = move_rows(p, args->in, args->out, d->cols, stream, args->error);
    if (status != MMLA_OK || args->scale_in == NULL) {
        return status;
    }
    return move_rows(p, args->scale_in, args->scale_out, d->scale_cols, stream, args->error);
}
