/* attend_plan.c - check, choose, run the fused call. */
#include "api/attend_check.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/attend/attend.h"

enum { WORKSPACE_ALIGNMENT = 64 };

struct mmla_attend_plan {
    const mmla_context *ctx;
    const mmla_attend_impl *impl;
    mmla_attend_problem problem;
};

mmla_status mmla_attend_plan_create(mmla_context *ctx,
                                    const mmla_attend_desc *desc,
                                    mmla_attend_plan **plan,
                                    mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "plan", plan, 1));
    *plan = NULL;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "ctx", ctx, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "desc", desc, 1));

    mmla_attend_problem problem;
    MMLA_RETURN_IF_FAILED(mmla_attend_problem_init(ctx, desc, &problem, err));
    size_t n;
    const mmla_impl *const *list = mmla_attend_list(&n);
    const mmla_impl *impl = mmla_impl_pick(ctx, list, n, &problem, desc->implementation, err);
    if (impl == NULL) {
        return MMLA_E_NO_IMPLEMENTATION;
    }
    mmla_attend_plan *p = mmla_context_alloc(ctx, sizeof *p);
    if (p == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "the allocator refused %zu bytes", sizeof *p);
    }
    *p = (mmla_attend_plan){ctx, (const mmla_attend_impl *)impl, problem};
    *plan = p;
    return MMLA_OK;
}

void mmla_attend_plan_destroy(mmla_attend_plan *plan) {
    if (plan != NULL) {
        mmla_context_free(plan->ctx, plan);
    }
}

size_t mmla_attend_workspace_bytes(const mmla_attend_plan *plan) {
    return plan->impl->workspace_bytes(&plan->problem);
}

const char *mmla_attend_plan_implementation(const mmla_attend_plan *plan) {
    return plan->impl->base.name;
}

mmla_status mmla_attend_run(const mmla_attend_plan *plan,
                            const mmla_attend_args *args,
                            void *workspace,
                            void *stream) {
    if (plan == NULL || args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_attend_args_check(&plan->problem, args));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    if (mmla_attend_workspace_bytes(plan) > 0) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(args->error, "workspace", workspace, WORKSPACE_ALIGNMENT));
    }
    return plan->impl->run(&plan->problem, args, workspace, stream);
}
