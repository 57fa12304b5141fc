/* impl.h - one implementation of one operation, as lists, choice and queries see it.
 *
 * Each operation has a list of structs that begin with an mmla_impl, in the order of preference,
 * made from its *_variants.inc. An implementation outside its list cannot be reached.
 */
#ifndef MMLA_BASE_IMPL_H
#define MMLA_BASE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>

typedef struct mmla_impl {
    const char *op;
    const char *name;
    mmla_device_kind device;
    uint32_t features; /* all of these are needed: mmla_cpu_feature or mmla_gpu_feature */
    bool (*prefers)(const void *problem); /* whether it is worth taking unasked; NULL: always */
    bool by_name_only;                    /* never chosen unless asked for: the reference */
    /* What is to be done once before the first run of a plan: loading kernels, and filling the
     * parts of the problem that are the implementation's; NULL: nothing. */
    mmla_status (*prepare)(void *problem, mmla_error *err);
} mmla_impl;

/* "" when this context can use impl, else the reason why not (constant memory). */
const char *mmla_impl_unavailable(const mmla_context *ctx, const mmla_impl *impl);

/* The first of list that this context can use and that prefers the problem; with `name`, the one so
 * called, preferred or not. NULL and a message in err when there is none. Logs what was taken. */
const mmla_impl *mmla_impl_pick(const mmla_context *ctx,
                                const mmla_impl *const *list,
                                size_t n,
                                const void *problem,
                                const char *name,
                                mmla_error *err);

#endif
