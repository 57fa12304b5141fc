/* kv_gather_plan.c - check, choose, run. */
#include "api/plan.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "ops/kv_gather/kv_gather.h"

struct mmla_kv_gather_plan {
    mmla_plan_base base;
    mmla_kv_gather_problem problem;
};

static const mmla_kv_gather_impl *impl_of(const mmla_kv_gather_plan *plan) {
    return (const mmla_kv_gather_impl *)plan->base.impl;
}

/* Fills p from a description, or says what is wrong with it. */
static mmla_status
resolve(const mmla_kv_gather_desc *desc, mmla_kv_gather_problem *p, mmla_error *err) {
    p->desc = *desc;
    MMLA_RETURN_IF_FAILED(mmla_kv_view_init(&desc->cache, "cache", &p->cache, err));
    if (mmla_kv_dims(desc->cache.format) != MMLA_LATENT_DIM) {
        return mmla_error_set(err, MMLA_E_FORMAT, "cache.format",
                              "is %s, must be v4, v41_fp8 or v41_fp4",
                              mmla_kv_format_name(desc->cache.format));
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_requests", desc->max_requests, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "table_width", desc->table_width, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "table_stride", desc->table_stride,
                                            desc->table_width, 1, &p->desc.table_stride));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "rows", desc->rows, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "offset", desc->offset, 0, desc->rows));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "row_stride", desc->row_stride, MMLA_LATENT_DIM, 8,
                                            &p->desc.row_stride));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", desc->ratio, 0, 2));
    p->desc.ratio = desc->ratio == 0 ? 1 : desc->ratio;
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "window", desc->window, 0, INT32_MAX));
    if (desc->window > 0 && p->desc.ratio != 1) {
        return mmla_error_set(err, MMLA_E_VALUE, "window",
                              "is %d, must be 0 for records of ratio 2: a window is one of tokens",
                              (int)desc->window);
    }
    MMLA_RETURN_IF_FAILED(mmla_check_extent(err, "table_stride", desc->max_requests,
                                            p->desc.table_stride, sizeof(int32_t)));
    return mmla_check_extent(err, "row_stride", desc->max_requests * desc->rows, p->desc.row_stride,
                             sizeof(uint16_t));
}

mmla_status mmla_kv_gather_plan_create(mmla_context *ctx,
                                       const mmla_kv_gather_desc *desc,
                                       mmla_kv_gather_plan **plan,
                                       mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_kv_gather_problem problem = {.n_threads = ctx->n_threads, .gpu = ctx->gpu};
    MMLA_RETURN_IF_FAILED(resolve(desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(mmla_plan_alloc(ctx, sizeof **plan, mmla_kv_gather_list, &problem,
                                          desc->implementation, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_kv_gather_plan_destroy(mmla_kv_gather_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_kv_gather_workspace_bytes(const mmla_kv_gather_plan *plan) {
    (void)plan;
    return 0;
}

const char *mmla_kv_gather_plan_implementation(const mmla_kv_gather_plan *plan) {
    return plan->base.impl->name;
}

/* The rows of a request in this call, where it says so. */
static mmla_status
resolve_rows(mmla_kv_gather_problem *p, const mmla_kv_gather_args *args, mmla_error *err) {
    if (args->rows == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "rows", args->rows, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "offset", args->offset, 0, args->rows));
    p->desc.rows = args->rows;
    p->desc.offset = args->offset;
    if (mmla_check_extent(NULL, "", args->n_requests * args->rows, p->desc.row_stride,
                          sizeof(uint16_t)) != MMLA_OK) {
        return mmla_error_set(err, MMLA_E_SIZE, "rows",
                              "is %lld for each of %lld requests, which exceeds 2^63 bytes",
                              (long long)args->rows, (long long)args->n_requests);
    }
    return MMLA_OK;
}

mmla_status mmla_kv_gather_run(const mmla_kv_gather_plan *plan,
                               const mmla_kv_gather_args *args,
                               void *workspace,
                               void *stream) {
    (void)workspace;
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    mmla_error *err = args->error;
    mmla_kv_gather_problem problem = plan->problem;
    const mmla_kv_gather_problem *p = &problem;
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "n_requests", args->n_requests, 0, p->desc.max_requests));
    if (args->n_requests == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(resolve_rows(&problem, args, err));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "block_table", args->block_table, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "seq_lens", args->seq_lens, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "gather_lens", args->gather_lens, 4));
    if (args->gather_lens == NULL && p->desc.window > 0) {
        MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "query_start", args->query_start, 4));
    }
    if (p->cache.n_slots > 0) { /* an empty cache needs no memory: every row is +0 */
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "cache", args->cache, MMLA_KV_BASE_ALIGNMENT));
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "out", args->out, 16));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "n_faults", args->n_faults, 4));
    return impl_of(plan)->run(p, args, stream);
}
