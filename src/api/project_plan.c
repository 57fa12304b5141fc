/* project_plan.c - check, choose, run. */
#include "api/plan.h"
#include "api/shape_check.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/project/project.h"

enum {
    GROUPS_MAX = MMLA_HEADS_MAX / MMLA_HEADS_PER_GROUP,
    RANK_MAX = 65536,
    RANK_DEFAULT = 1024,
    OPERAND_ALIGNMENT = 16,
    WIDE_ALIGNMENT = 128
};

struct mmla_project_plan {
    mmla_plan_base base;
    mmla_project_problem problem;
};

static const mmla_project_impl *impl_of(const mmla_project_plan *plan) {
    return (const mmla_project_impl *)plan->base.impl;
}

static mmla_status resolve_rank(const mmla_project_desc *desc, int32_t *rank, mmla_error *err) {
    *rank = desc->rank == 0 ? RANK_DEFAULT : desc->rank;
    if (*rank < MMLA_PROJECT_RANK_MULTIPLE || *rank > RANK_MAX ||
        *rank % MMLA_PROJECT_RANK_MULTIPLE != 0) {
        return mmla_error_set(err, MMLA_E_SHAPE, "rank",
                              "is %d, must be 0 (%d) or a multiple of %d, %d .. %d",
                              (int)desc->rank, RANK_DEFAULT, MMLA_PROJECT_RANK_MULTIPLE,
                              MMLA_PROJECT_RANK_MULTIPLE, RANK_MAX);
    }
    return MMLA_OK;
}

/* The strides stay as given: a word stride of 0 follows the call's n_tokens. */
static mmla_status check_scale_strides(const mmla_project_desc *desc, mmla_error *err) {
    const mmla_packed_scales scales = {.word_name = "x_scale_word_stride",
                                       .group_name = "x_scale_group_stride",
                                       .word_stride = desc->x_scale_word_stride,
                                       .group_stride = desc->x_scale_group_stride,
                                       .n_tokens = desc->max_tokens,
                                       .n_groups = desc->n_groups};
    return mmla_packed_scales_check(err, &scales);
}

/* Fills p from a description, or says what is wrong with it. */
static mmla_status
resolve(const mmla_project_desc *desc, mmla_project_problem *p, mmla_error *err) {
    p->desc = *desc;
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_groups", desc->n_groups, 1, GROUPS_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_tokens", desc->max_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(resolve_rank(desc, &p->desc.rank, err));
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "x_scale_layout", (int)desc->x_scale_layout, 2));
    return desc->x_scale_layout == MMLA_SCALE_PACKED ? check_scale_strides(desc, err) : MMLA_OK;
}

mmla_status mmla_project_plan_create(mmla_context *ctx,
                                     const mmla_project_desc *desc,
                                     mmla_project_plan **plan,
                                     mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_project_problem problem = {.n_threads = ctx->n_threads, .gpu = ctx->gpu};
    MMLA_RETURN_IF_FAILED(resolve(desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(mmla_plan_alloc(ctx, sizeof **plan, mmla_project_list, &problem,
                                          desc->implementation, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_project_plan_destroy(mmla_project_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_project_workspace_bytes(const mmla_project_plan *plan) {
    return impl_of(plan)->thread_bytes * (size_t)plan->problem.n_threads;
}

const char *mmla_project_plan_implementation(const mmla_project_plan *plan) {
    return plan->base.impl->name;
}

size_t mmla_project_wide_bytes(const mmla_project_plan *plan) {
    const mmla_project_impl *impl = impl_of(plan);
    return impl->wide_bytes != NULL ? impl->wide_bytes(&plan->problem) : 0;
}

mmla_status mmla_project_widen(const mmla_project_plan *plan,
                               const mmla_project_widen_args *args,
                               void *stream) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    mmla_error *err = args->error;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "plan", plan, 1));
    if (impl_of(plan)->widen == NULL) {
        return mmla_error_set(err, MMLA_E_NO_IMPLEMENTATION, "plan",
                              "runs %s, which has no use for a wide weight", plan->base.impl->name);
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "weight", args->weight, OPERAND_ALIGNMENT));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "weight_scale", args->weight_scale, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "wide", args->wide, WIDE_ALIGNMENT));
    return impl_of(plan)->widen(&plan->problem, args, stream);
}

mmla_status mmla_project_run(const mmla_project_plan *plan,
                             const mmla_project_args *args,
                             void *workspace,
                             void *stream) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    mmla_error *err = args->error;
    const mmla_project_problem *p = &plan->problem;
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_tokens", args->n_tokens, 0, p->desc.max_tokens));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    const bool packed = p->desc.x_scale_layout == MMLA_SCALE_PACKED;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "x", args->x, OPERAND_ALIGNMENT));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "x_scale", args->x_scale, packed ? 4 : 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "weight", args->weight, OPERAND_ALIGNMENT));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "weight_scale", args->weight_scale, 1));
    if (args->weight_wide != NULL && impl_of(plan)->widen != NULL) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "weight_wide", args->weight_wide, WIDE_ALIGNMENT));
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "z", args->z, sizeof *args->z));
    if (impl_of(plan)->thread_bytes > 0) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "workspace", workspace, MMLA_WORKSPACE_ALIGNMENT));
    }
    return impl_of(plan)->run(p, args, workspace, stream);
}
