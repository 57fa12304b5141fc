#include "api/plan.h"

#include "base/check.h"
#include "base/context.h"
#include "base/error.h"

mmla_status mmla_plan_check(const void *ctx, const void *desc, const void *plan, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "plan", plan, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "ctx", ctx, 1));
    return mmla_check_pointer(err, "desc", desc, 1);
}

mmla_status mmla_plan_alloc(const mmla_context *ctx,
                            size_t bytes,
                            const mmla_impl *const *(*list)(size_t *n),
                            void *problem,
                            const char *name,
                            void **plan,
                            mmla_error *err) {
    size_t n;
    const mmla_impl *const *implementations = list(&n);
    const mmla_impl *impl = mmla_impl_pick(ctx, implementations, n, problem, name, err);
    if (impl == NULL) {
        return MMLA_E_NO_IMPLEMENTATION;
    }
    if (impl->prepare != NULL) {
        const mmla_status status = impl->prepare(problem, err);
        if (status != MMLA_OK) {
            return status;
        }
    }
    mmla_plan_base *base = mmla_context_alloc(ctx, bytes);
    if (base == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "the allocator refused %zu bytes", bytes);
    }
    *base = (mmla_plan_base){ctx, impl};
    *plan = base;
    return MMLA_OK;
}

void mmla_plan_free(void *plan) {
    if (plan != NULL) {
        mmla_context_free(((mmla_plan_base *)plan)->ctx, plan);
    }
}
