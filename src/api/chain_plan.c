/* chain_plan.c - check, choose, run the steps. */
#include "api/attend_check.h"
#include "api/plan.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/chain/chain.h"

struct mmla_chain_plan {
    mmla_plan_base base;
    mmla_attend_problem problem;
    mmla_chain_layout layout;
};

static const mmla_chain_impl *impl_of(const mmla_chain_plan *plan) {
    return (const mmla_chain_impl *)plan->base.impl;
}

mmla_status mmla_chain_plan_create(mmla_context *ctx,
                                   const mmla_attend_desc *desc,
                                   mmla_chain_plan **plan,
                                   mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_attend_problem problem;
    MMLA_RETURN_IF_FAILED(mmla_attend_problem_init(ctx, desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(mmla_plan_alloc(ctx, sizeof **plan, mmla_chain_list, &problem,
                                          desc->implementation, &memory, err));
    mmla_chain_plan *made = memory;
    made->problem = problem;
    if (!impl_of(made)->layout(&problem, &made->layout)) {
        mmla_plan_free(made);
        return mmla_error_set(err, MMLA_E_SIZE, "max_tokens",
                              "is %lld, its intermediates exceed 2^63 bytes",
                              (long long)desc->max_tokens);
    }
    *plan = made;
    return MMLA_OK;
}

void mmla_chain_plan_destroy(mmla_chain_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_chain_workspace_bytes(const mmla_chain_plan *plan) {
    return (size_t)plan->layout.total_bytes;
}

uint16_t *
mmla_chain_intermediate(const mmla_chain_plan *plan, mmla_chain_step step, void *workspace) {
    switch (step) {
    case MMLA_CHAIN_ROPE_Q:
        return mmla_chain_q(&plan->layout, workspace);
    case MMLA_CHAIN_ATTEND:
    case MMLA_CHAIN_UNROPE:
        return mmla_chain_o(&plan->layout, workspace);
    case MMLA_CHAIN_QUANTISE:
        break;
    }
    return NULL;
}

/* What every run checks; *empty when there is nothing to do. */
static mmla_status check_call(const mmla_chain_plan *plan,
                              const mmla_attend_args *args,
                              const void *workspace,
                              bool *empty) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    MMLA_RETURN_IF_FAILED(mmla_attend_args_check(&plan->problem, args));
    *empty = args->n_tokens == 0;
    return *empty
               ? MMLA_OK
               : mmla_check_pointer(args->error, "workspace", workspace, MMLA_WORKSPACE_ALIGNMENT);
}

mmla_status mmla_chain_step_run(const mmla_chain_plan *plan,
                                mmla_chain_step step,
                                const mmla_attend_args *args,
                                void *workspace,
                                void *stream) {
    bool empty;
    if (plan != NULL && args != NULL) {
        MMLA_RETURN_IF_FAILED(mmla_check_enum(args->error, "step", (int)step, MMLA_CHAIN_STEPS));
    }
    MMLA_RETURN_IF_FAILED(check_call(plan, args, workspace, &empty));
    return empty ? MMLA_OK
                 : impl_of(plan)->run_step(&plan->problem, &plan->layout, step, args, workspace,
                                           stream);
}

mmla_status mmla_chain_run(const mmla_chain_plan *plan,
                           const mmla_attend_args *args,
                           void *workspace,
                           void *stream) {
    bool empty;
    MMLA_RETURN_IF_FAILED(check_call(plan, args, workspace, &empty));
    mmla_status result = MMLA_OK;
    for (int step = 0; step < MMLA_CHAIN_STEPS && !empty; step++) {
        const mmla_status status = impl_of(plan)->run_step(
            &plan->problem, &plan->layout, (mmla_chain_step)step, args, workspace, stream);
        /* An illegal position makes its own token NaN; the others are still completed. */
        result = result == MMLA_OK ? status : result;
        if (status != MMLA_OK && status != MMLA_E_INDEX) {
            break;
        }
    }
    return result;
}
