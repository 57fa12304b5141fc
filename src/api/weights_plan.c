/* weights_plan.c - check, choose, run. */
#include "api/plan.h"
#include "api/shape_check.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/weights/weights.h"

struct mmla_weights_plan {
    mmla_plan_base base;
    mmla_weights_problem problem;
};

static const mmla_weights_impl *impl_of(const mmla_weights_plan *plan) {
    return (const mmla_weights_impl *)plan->base.impl;
}

static bool moves_q(mmla_weights_kind kind) {
    return kind == MMLA_WEIGHTS_Q_TO_FUSED || kind == MMLA_WEIGHTS_Q_TO_STANDARD;
}

/* A size that the kind fixes: `only`, or 0 for it. Fills *out. */
static mmla_status
check_fixed(mmla_error *err, const char *name, int64_t value, int64_t only, int64_t *out) {
    *out = only;
    if (value == 0 || value == only) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_SHAPE, name, "is %lld, must be %lld (or 0)", (long long)value,
                          (long long)only);
}

/* Fills p from a description, or says what is wrong with it. Only the kind's own fields count. */
static mmla_status
resolve(const mmla_weights_desc *desc, mmla_weights_problem *p, mmla_error *err) {
    mmla_weights_desc *d = &p->desc;
    *d = *desc;
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "kind", (int)desc->kind, MMLA_WEIGHTS_KINDS));
    if (desc->kind == MMLA_WEIGHTS_PERMUTE_WQ_B || moves_q(desc->kind)) {
        MMLA_RETURN_IF_FAILED(mmla_heads_check(err, desc->n_heads));
    }
    switch (desc->kind) {
    case MMLA_WEIGHTS_PERMUTE_WQ_B:
        MMLA_RETURN_IF_FAILED(check_fixed(err, "rows", desc->rows,
                                          (int64_t)desc->n_heads * MMLA_LATENT_DIM, &d->rows));
        MMLA_RETURN_IF_FAILED(mmla_check_range(err, "cols", desc->cols, 1, INT32_MAX));
        return mmla_check_range(err, "scale_cols", desc->scale_cols, 0, INT32_MAX);
    case MMLA_WEIGHTS_PERMUTE_WO_A:
        MMLA_RETURN_IF_FAILED(mmla_check_range(err, "rows", desc->rows, 0, INT32_MAX));
        MMLA_RETURN_IF_FAILED(check_fixed(err, "cols", desc->cols, MMLA_GROUP_DIM, &d->cols));
        return check_fixed(err, "scale_cols", desc->scale_cols, MMLA_WEIGHTS_GROUP_SCALES,
                           &d->scale_cols);
    case MMLA_WEIGHTS_EXPAND_SCALES:
        MMLA_RETURN_IF_FAILED(mmla_check_range(err, "rows", desc->rows, 0, INT32_MAX));
        return mmla_check_range(err, "scale_cols", desc->scale_cols, 1, INT32_MAX);
    case MMLA_WEIGHTS_Q_TO_FUSED:
    case MMLA_WEIGHTS_Q_TO_STANDARD:
        d->cols = (int64_t)desc->n_heads * MMLA_LATENT_DIM;
        return mmla_check_range(err, "rows", desc->rows, 0, INT32_MAX);
    }
    return MMLA_OK;
}

mmla_status mmla_weights_plan_create(mmla_context *ctx,
                                     const mmla_weights_desc *desc,
                                     mmla_weights_plan **plan,
                                     mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_weights_problem problem = {.n_threads = ctx->n_threads, .gpu = ctx->gpu};
    MMLA_RETURN_IF_FAILED(resolve(desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(
        mmla_plan_alloc(ctx, sizeof **plan, mmla_weights_list, &problem, NULL, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_weights_plan_destroy(mmla_weights_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_weights_workspace_bytes(const mmla_weights_plan *plan) {
    (void)plan;
    return 0;
}

/* Permuting in place is the natural mistake, and would leave a mixture of both orders. */
static mmla_status check_apart(mmla_error *err,
                               const char *out_name,
                               const char *in_name,
                               const void *out,
                               int64_t out_bytes,
                               const void *in,
                               int64_t in_bytes) {
    const uintptr_t a = (uintptr_t)out, b = (uintptr_t)in;
    if (a >= b + (uintptr_t)in_bytes || b >= a + (uintptr_t)out_bytes) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_VALUE, out_name, "at %p overlaps %s at %p, must be apart",
                          out, in_name, in);
}

static mmla_status check_data(const mmla_weights_problem *p, const mmla_weights_args *args) {
    const size_t element = moves_q(p->desc.kind) ? sizeof(uint16_t) : 1;
    const int64_t bytes = p->desc.rows * p->desc.cols * (int64_t)element;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "in", args->in, element));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "out", args->out, element));
    return check_apart(args->error, "out", "in", args->out, bytes, args->in, bytes);
}

static mmla_status check_scales(const mmla_weights_problem *p, const mmla_weights_args *args) {
    const int64_t out_bytes = p->desc.rows * p->desc.scale_cols;
    int64_t in_bytes = out_bytes;
    if (p->desc.kind == MMLA_WEIGHTS_EXPAND_SCALES) {
        in_bytes = mmla_round_up_i64(p->desc.rows, MMLA_WEIGHTS_BLOCK_ROWS) /
                   MMLA_WEIGHTS_BLOCK_ROWS * p->desc.scale_cols;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "scale_in", args->scale_in, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "scale_out", args->scale_out, 1));
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(args->error, "scale_cols", p->desc.scale_cols, 1, INT32_MAX));
    return check_apart(args->error, "scale_out", "scale_in", args->scale_out, out_bytes,
                       args->scale_in, in_bytes);
}

mmla_status mmla_weights_run(const mmla_weights_plan *plan,
                             const mmla_weights_args *args,
                             void *workspace,
                             void *stream) {
    (void)workspace;
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    const mmla_weights_problem *p = &plan->problem;
    if (p->desc.rows == 0) {
        return MMLA_OK;
    }
    const bool expands = p->desc.kind == MMLA_WEIGHTS_EXPAND_SCALES;
    if (!expands) {
        MMLA_RETURN_IF_FAILED(check_data(p, args));
    }
    if (expands ||
        (!moves_q(p->desc.kind) && (args->scale_in != NULL || args->scale_out != NULL))) {
        MMLA_RETURN_IF_FAILED(check_scales(p, args));
    }
    return impl_of(plan)->run(p, args, stream);
}
