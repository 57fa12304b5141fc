#include "base/impl.h"

#include <string.h>

#include "base/context.h"
#include "base/cpu.h"
#include "base/error.h"

const char *mmla_impl_unavailable(const mmla_context *ctx, const mmla_impl *impl) {
    if (impl->device != ctx->device.kind) {
        return impl->device == MMLA_DEVICE_CPU ? "it runs on the CPU" : "it runs on a CUDA device";
    }
    return impl->device == MMLA_DEVICE_CPU ? mmla_cpu_missing(impl->features, ctx->cpu_features)
                                           : mmla_gpu_missing(impl->features, ctx->gpu.features);
}

const mmla_impl *mmla_impl_pick(const mmla_context *ctx,
                                const mmla_impl *const *list,
                                size_t n,
                                const void *problem,
                                const char *name,
                                mmla_error *err) {
    const char *why = NULL; /* why the last candidate by that name was refused */
    for (size_t i = 0; i < n; i++) {
        const mmla_impl *impl = list[i];
        if (name != NULL ? strcmp(name, impl->name) != 0 : impl->by_name_only) {
            continue;
        }
        why = mmla_impl_unavailable(ctx, impl);
        if (why[0] == '\0' && name == NULL && impl->prefers != NULL && !impl->prefers(problem)) {
            why = "another is faster for this description";
        }
        if (why[0] == '\0') {
            mmla_context_log(ctx, "%s: taking %s", impl->op, impl->name);
            return impl;
        }
        mmla_context_log(ctx, "%s: not %s: %s", impl->op, impl->name, why);
    }
    if (name == NULL) {
        mmla_error_set(err, MMLA_E_NO_IMPLEMENTATION, "",
                       "no implementation of %s serves this device",
                       n > 0 ? list[0]->op : "the operation");
    } else if (why == NULL) {
        mmla_error_set(err, MMLA_E_NO_IMPLEMENTATION, "implementation",
                       "is \"%.40s\", which %s does not have", name,
                       n > 0 ? list[0]->op : "the operation");
    } else {
        mmla_error_set(err, MMLA_E_NO_IMPLEMENTATION, "implementation",
                       "is \"%.40s\", which cannot be used: %s", name, why);
    }
    return NULL;
}
