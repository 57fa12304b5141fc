/* kv_insert_plan.c - check, choose, run. */
#include "api/plan.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/kv_insert/kv_insert.h"

struct mmla_kv_insert_plan {
    mmla_plan_base base;
    mmla_kv_insert_problem problem;
};

static const mmla_kv_insert_impl *impl_of(const mmla_kv_insert_plan *plan) {
    return (const mmla_kv_insert_impl *)plan->base.impl;
}

/* Fills p from a description, or says what is wrong with it. */
static mmla_status
resolve(const mmla_kv_insert_desc *desc, mmla_kv_insert_problem *p, mmla_error *err) {
    p->desc = *desc;
    MMLA_RETURN_IF_FAILED(mmla_kv_view_init(&desc->cache, "cache", &p->cache, err));
    p->dims = mmla_kv_dims(desc->cache.format);
    if (p->dims == 0) {
        return mmla_error_set(err, MMLA_E_FORMAT, "cache.format",
                              "is none, must be v4, v41_fp8, v41_fp4, index_fp8 or index_fp4");
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_tokens", desc->max_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(
        mmla_check_stride(err, "row_stride", desc->row_stride, p->dims, 8, &p->desc.row_stride));
    MMLA_RETURN_IF_FAILED(mmla_check_extent(err, "row_stride", desc->max_tokens, p->desc.row_stride,
                                            sizeof(uint16_t)));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", desc->ratio, 0, 2)); /* 0 is 1 */
    p->desc.ratio = desc->ratio == 0 ? 1 : desc->ratio;
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "scale_floor", (int)desc->scale_floor, 2));
    p->desc.norm = desc->norm != 0;
    if (p->desc.norm) {
        MMLA_RETURN_IF_FAILED(mmla_check_positive(err, "norm_eps", desc->norm_eps));
    }
    return mmla_check_range(err, "rope_positions", desc->rope_positions, 1,
                            INT64_MAX / (MMLA_ROPE_DIM * (int64_t)sizeof(float)));
}

mmla_status mmla_kv_insert_plan_create(mmla_context *ctx,
                                       const mmla_kv_insert_desc *desc,
                                       mmla_kv_insert_plan **plan,
                                       mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_kv_insert_problem problem = {.n_threads = ctx->n_threads, .gpu = ctx->gpu};
    MMLA_RETURN_IF_FAILED(resolve(desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(mmla_plan_alloc(ctx, sizeof **plan, mmla_kv_insert_list, &problem,
                                          desc->implementation, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_kv_insert_plan_destroy(mmla_kv_insert_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_kv_insert_workspace_bytes(const mmla_kv_insert_plan *plan) {
    const mmla_kv_insert_impl *impl = impl_of(plan);
    return impl->workspace_bytes == NULL ? 0 : impl->workspace_bytes(&plan->problem);
}

const char *mmla_kv_insert_plan_implementation(const mmla_kv_insert_plan *plan) {
    return plan->base.impl->name;
}

mmla_status mmla_kv_insert_run(const mmla_kv_insert_plan *plan,
                               const mmla_kv_insert_args *args,
                               void *workspace,
                               void *stream) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    mmla_error *err = args->error;
    const mmla_kv_insert_problem *p = &plan->problem;
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_rows", args->n_rows, 0, p->desc.max_tokens));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_slots", args->n_slots, 0, args->n_rows));
    if (args->n_slots == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "rows", args->rows, 16));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "positions", args->positions, 8));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "slots", args->slots, 8));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "cos_sin", args->cos_sin, 4));
    if (p->desc.norm) {
        MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "norm_weight", args->norm_weight, 4));
    }
    if (p->cache.n_slots > 0) { /* an empty cache needs no memory, and every slot is refused */
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "cache", args->cache, MMLA_KV_BASE_ALIGNMENT));
    }
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "n_faults", args->n_faults, 4));
    if (mmla_kv_insert_workspace_bytes(plan) > 0) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "workspace", workspace, MMLA_WORKSPACE_ALIGNMENT));
    }
    return impl_of(plan)->run(p, args, workspace, stream);
}
