/* plan.h - what the plans of all operations share: how one comes to be, and how it goes. */
#ifndef MMLA_API_PLAN_H
#define MMLA_API_PLAN_H

#include "base/impl.h"

/* First member of every plan. */
typedef struct mmla_plan_base {
    const mmla_context *ctx;
    const mmla_impl *impl;
} mmla_plan_base;

/* The three pointers of a plan_create, by name. */
mmla_status mmla_plan_check(const void *ctx, const void *desc, const void *plan, mmla_error *err);

/* Chooses an implementation of `list` for a checked problem (`name` NULL: the best) and allocates
 * `bytes` for a plan, zeroed but for its base. */
mmla_status mmla_plan_alloc(const mmla_context *ctx,
                            size_t bytes,
                            const mmla_impl *const *(*list)(size_t *n),
                            void *problem,
                            const char *name,
                            void **plan,
                            mmla_error *err);

/* Frees a plan; NULL is allowed. */
void mmla_plan_free(void *plan);

#endif
