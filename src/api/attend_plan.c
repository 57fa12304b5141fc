/* attend_plan.c - check, choose, run the fused call. */
#include "api/attend_check.h"
#include "api/plan.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/attend/attend.h"

struct mmla_attend_plan {
    mmla_plan_base base;
    mmla_attend_problem problem;
};

static const mmla_attend_impl *impl_of(const mmla_attend_plan *plan) {
    return (const mmla_attend_impl *)plan->base.impl;
}

mmla_status mmla_attend_plan_create(mmla_context *ctx,
                                    const mmla_attend_desc *desc,
                                    mmla_attend_plan **plan,
                                    mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_attend_problem problem;
    MMLA_RETURN_IF_FAILED(mmla_attend_problem_init(ctx, desc, &problem, err));
#if defined(MMLA_HAVE_CUDA)
    /* mmla_attend_merge has no plan: who joins results has made some, before any capture. */
    if (ctx->device.kind == MMLA_DEVICE_CUDA) {
        MMLA_RETURN_IF_FAILED(mmla_attend_merge_prepare(&ctx->gpu, err));
    }
#endif
    void *memory;
    MMLA_RETURN_IF_FAILED(mmla_plan_alloc(ctx, sizeof **plan, mmla_attend_list, &problem,
                                          desc->implementation, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_attend_plan_destroy(mmla_attend_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_attend_workspace_bytes(const mmla_attend_plan *plan) {
    return impl_of(plan)->workspace_bytes(&plan->problem);
}

const char *mmla_attend_plan_implementation(const mmla_attend_plan *plan) {
    return plan->base.impl->name;
}

mmla_status mmla_attend_run(const mmla_attend_plan *plan,
                            const mmla_attend_args *args,
                            void *workspace,
                            void *stream) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    MMLA_RETURN_IF_FAILED(mmla_attend_args_check(&plan->problem, args));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    if (mmla_attend_workspace_bytes(plan) > 0) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(args->error, "workspace", workspace, MMLA_WORKSPACE_ALIGNMENT));
    }
    return impl_of(plan)->run(&plan->problem, args, workspace, stream);
}
