/* prefill.c - the steps of both routes, in one workspace. A client of the operations. */
#include <stdbool.h>

#include <megamla/kv.h>
#include <megamla/list.h>
#include <megamla/prefill.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "layer/prefill_route.h"

enum { WINDOW_MAX = 65536, ROUTES = MMLA_PREFILL_WORKSPACE + 1 };

/* Where the parts of the workspace begin, in bytes. Both routes use the same lists; rows are those of
 * one alone.
 *
 *     | list and lens of the first cache, or combined | of the second | attention's own | rows |
 */
typedef struct layout {
    int64_t list, lens, compressed_list, compressed_lens, attend, rows, total;
} layout;

struct mmla_prefill_plan {
    mmla_context *ctx;
    mmla_prefill_desc desc;
    bool has_compressed, has_workspace;
    layout at;
    mmla_list_plan *window_list, *compressed_list, *combined_list;
    mmla_kv_gather_plan *window_rows, *compressed_rows;
    mmla_attend_plan *from_caches, *from_rows;
};

/* --- the plan --------------------------------------------------------------------------------- */

static mmla_status check_unset(mmla_error *err, const mmla_attend_desc *d) {
    const struct field {
        const char *name;
        int64_t value;
    } fields[] = {
        {"attend.kind", d->kind},
        {"attend.list_width", d->list_width},
        {"attend.list_stride", d->list_stride},
        {"attend.compressed_width", d->compressed_width},
        {"attend.compressed_stride", d->compressed_stride},
        {"attend.max_rows", d->max_rows},
        {"attend.kv_row_stride", d->kv_row_stride},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        MMLA_RETURN_IF_FAILED(mmla_check_value(err, fields[i].name, fields[i].value, 0, 0));
    }
    return MMLA_OK;
}

/* The columns of an array of `rows` rows, and its stride, which is resolved. */
static mmla_status check_columns(mmla_error *err,
                                 const char *width_name,
                                 const char *stride_name,
                                 int32_t width,
                                 int32_t most,
                                 int64_t *stride,
                                 int64_t rows) {
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, width_name, width, 1, most));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, stride_name, *stride, width, 1, stride));
    return mmla_check_extent(err, stride_name, rows, *stride, sizeof(int32_t));
}

/* The fields that no step's description has under the same name. Resolves strides. */
static mmla_status check_desc(mmla_prefill_desc *d, mmla_error *err) {
    const bool has_compressed = d->attend.compressed.format != MMLA_KV_NONE;
    MMLA_RETURN_IF_FAILED(check_unset(err, &d->attend));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_requests", d->max_requests, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "attend.max_tokens", d->attend.max_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "window", d->window, 1, WINDOW_MAX));
    MMLA_RETURN_IF_FAILED(
        mmla_check_value(err, "ratio", d->ratio, has_compressed ? 1 : 0, has_compressed ? 2 : 0));
    MMLA_RETURN_IF_FAILED(check_columns(err, "window_table_width", "window_table_stride",
                                        d->window_table_width, INT32_MAX, &d->window_table_stride,
                                        d->max_requests));
    if (has_compressed) {
        MMLA_RETURN_IF_FAILED(check_columns(err, "topk_width", "topk_stride", d->topk_width,
                                            INT32_MAX - d->window, &d->topk_stride,
                                            d->attend.max_tokens));
        MMLA_RETURN_IF_FAILED(check_columns(
            err, "compressed_table_width", "compressed_table_stride", d->compressed_table_width,
            INT32_MAX, &d->compressed_table_stride, d->max_requests));
    } else {
        MMLA_RETURN_IF_FAILED(mmla_check_value(err, "topk_width", d->topk_width, 0, 0));
        d->topk_stride = 0; /* without columns it means nothing, on either route */
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_rows", d->max_rows, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "route", (int)d->route, ROUTES));
    return d->route != MMLA_PREFILL_WORKSPACE
               ? MMLA_OK
               : mmla_check_range(err, "max_rows", d->max_rows, 1, INT32_MAX);
}

/* What all three builders have in common. */
static mmla_list_desc list_desc(const mmla_prefill_desc *d, mmla_list_kind kind, int32_t width) {
    return (mmla_list_desc){.kind = kind,
                            .max_tokens = d->attend.max_tokens,
                            .max_requests = d->max_requests,
                            .window = d->window,
                            .width = width,
                            .topk_width = d->topk_width,
                            .topk_stride = d->topk_stride};
}

static mmla_list_desc table_list_desc(const mmla_prefill_desc *d,
                                      mmla_list_kind kind,
                                      int32_t width,
                                      const mmla_cache_desc *cache,
                                      int32_t table_width,
                                      int64_t table_stride) {
    mmla_list_desc list = list_desc(d, kind, width);
    list.page_tokens = cache->page_tokens;
    list.n_pages = cache->n_pages;
    list.table_width = table_width;
    list.table_stride = table_stride;
    return list;
}

static mmla_status create_paged(mmla_prefill_plan *p, mmla_error *err) {
    const mmla_prefill_desc *d = &p->desc;
    mmla_attend_desc attend = d->attend;
    attend.list_width = d->window;
    attend.compressed_width = d->topk_width;
    MMLA_RETURN_IF_FAILED(mmla_attend_plan_create(p->ctx, &attend, &p->from_caches, err));
    const mmla_list_desc window = table_list_desc(d, MMLA_LIST_WINDOW, d->window, &d->attend.window,
                                                  d->window_table_width, d->window_table_stride);
    MMLA_RETURN_IF_FAILED(mmla_list_plan_create(p->ctx, &window, &p->window_list, err));
    if (!p->has_compressed) {
        return MMLA_OK;
    }
    const mmla_list_desc compressed =
        table_list_desc(d, MMLA_LIST_COMPRESSED, d->topk_width, &d->attend.compressed,
                        d->compressed_table_width, d->compressed_table_stride);
    return mmla_list_plan_create(p->ctx, &compressed, &p->compressed_list, err);
}

/* Rows and offsets are those of each call. */
static mmla_status create_workspace(mmla_prefill_plan *p, mmla_error *err) {
    const mmla_prefill_desc *d = &p->desc;
    mmla_attend_desc attend = d->attend;
    attend.kind = MMLA_ATTEND_ROWS;
    attend.window = attend.compressed = (mmla_cache_desc){0};
    attend.list_width = d->window + d->topk_width;
    attend.max_rows = d->max_rows;
    MMLA_RETURN_IF_FAILED(mmla_attend_plan_create(p->ctx, &attend, &p->from_rows, err));
    mmla_list_desc combined = list_desc(d, MMLA_LIST_COMBINED, d->window + d->topk_width);
    combined.topk = d->topk_width;
    combined.ratio = d->ratio;
    MMLA_RETURN_IF_FAILED(mmla_list_plan_create(p->ctx, &combined, &p->combined_list, err));
    mmla_kv_gather_desc gather = {.cache = d->attend.window,
                                  .max_requests = d->max_requests,
                                  .table_width = d->window_table_width,
                                  .table_stride = d->window_table_stride,
                                  .rows = 1,
                                  .window = d->window};
    MMLA_RETURN_IF_FAILED(mmla_kv_gather_plan_create(p->ctx, &gather, &p->window_rows, err));
    if (!p->has_compressed) {
        return MMLA_OK;
    }
    gather.cache = d->attend.compressed;
    gather.table_width = d->compressed_table_width;
    gather.table_stride = d->compressed_table_stride;
    gather.window = 0;
    gather.ratio = d->ratio;
    return mmla_kv_gather_plan_create(p->ctx, &gather, &p->compressed_rows, err);
}

/* Appends `count` elements to a workspace that has `*total` bytes, and returns where they begin, or -1
 * when it would exceed 2^62. */
static int64_t append(int64_t *total, int64_t count, int64_t width, int64_t element_bytes) {
    const int64_t at = *total;
    int64_t bytes;
    if (at < 0 || !mmla_mul_i64(count, width, &bytes) ||
        !mmla_mul_i64(bytes, element_bytes, &bytes) ||
        bytes > INT64_MAX / 2 - at - MMLA_WORKSPACE_ALIGNMENT) {
        *total = -1;
        return -1;
    }
    *total = mmla_round_up_i64(at + bytes, MMLA_WORKSPACE_ALIGNMENT);
    return at;
}

static mmla_status lay_out(mmla_prefill_plan *p, mmla_error *err) {
    const mmla_prefill_desc *d = &p->desc;
    const int64_t n = d->attend.max_tokens;
    const size_t paged = mmla_attend_workspace_bytes(p->from_caches);
    const size_t rows = p->has_workspace ? mmla_attend_workspace_bytes(p->from_rows) : 0;
    layout *at = &p->at;
    *at = (layout){0};
    at->list = append(&at->total, n, d->window + (p->has_workspace ? d->topk_width : 0), 4);
    at->lens = append(&at->total, n, 1, 4);
    at->compressed_list = append(&at->total, n, d->topk_width, 4);
    at->compressed_lens = append(&at->total, n, 1, 4);
    at->attend = append(&at->total, (int64_t)(paged > rows ? paged : rows), 1, 1);
    at->rows = append(&at->total, p->has_workspace ? d->max_rows : 0, MMLA_LATENT_DIM, 2);
    return at->total >= 0 ? MMLA_OK
                          : mmla_error_set(err, MMLA_E_SIZE, "attend.max_tokens",
                                           "is %lld, its lists exceed 2^62 bytes", (long long)n);
}

mmla_status mmla_prefill_plan_create(mmla_context *ctx,
                                     const mmla_prefill_desc *desc,
                                     mmla_prefill_plan **plan,
                                     mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "plan", plan, 1));
    *plan = NULL;
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "ctx", ctx, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "desc", desc, 1));
    mmla_prefill_desc d = *desc;
    MMLA_RETURN_IF_FAILED(check_desc(&d, err));
    mmla_prefill_plan *p = mmla_context_alloc(ctx, sizeof *p);
    if (p == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "the allocator refused %zu bytes", sizeof *p);
    }
    p->ctx = ctx;
    p->desc = d;
    p->has_compressed = d.attend.compressed.format != MMLA_KV_NONE;
    p->has_workspace = d.max_rows > 0 && d.route != MMLA_PREFILL_PAGED;
    if (d.route == MMLA_PREFILL_AUTO &&
        (d.attend.batch_invariant || ctx->device.kind == MMLA_DEVICE_CPU)) {
        p->has_workspace = false;
    }
    mmla_status status = create_paged(p, err);
    if (status == MMLA_OK && p->has_workspace) {
        status = create_workspace(p, err);
    }
    if (status == MMLA_OK) {
        status = lay_out(p, err);
    }
    if (status != MMLA_OK) {
        mmla_prefill_plan_destroy(p);
        return status;
    }
    p->desc.attend.implementation = NULL; /* the caller's string need not outlive the call */
    *plan = p;
    return MMLA_OK;
}

void mmla_prefill_plan_destroy(mmla_prefill_plan *plan) {
    if (plan == NULL) {
        return;
    }
    mmla_list_plan_destroy(plan->window_list);
    mmla_list_plan_destroy(plan->compressed_list);
    mmla_list_plan_destroy(plan->combined_list);
    mmla_kv_gather_plan_destroy(plan->window_rows);
    mmla_kv_gather_plan_destroy(plan->compressed_rows);
    mmla_attend_plan_destroy(plan->from_caches);
    mmla_attend_plan_destroy(plan->from_rows);
    mmla_context_free(plan->ctx, plan);
}

size_t mmla_prefill_workspace_bytes(const mmla_prefill_plan *plan) {
    return (size_t)plan->at.total;
}

const char *mmla_prefill_plan_implementation(const mmla_prefill_plan *plan,
                                             mmla_prefill_route route) {
    const mmla_attend_plan *attend = NULL;
    if (route == MMLA_PREFILL_PAGED) {
        attend = plan->from_caches;
    } else if (route == MMLA_PREFILL_WORKSPACE) {
        attend = plan->from_rows;
    }
    return attend != NULL ? mmla_attend_plan_implementation(attend) : NULL;
}

/* --- a call ----------------------------------------------------------------------------------- */

/* The route of a call, and the shape of its workspace, if that has one. */
static mmla_status decide(const mmla_prefill_plan *plan,
                          const mmla_prefill_args *args,
                          mmla_prefill_route *route,
                          mmla_prefill_shape *shape) {
    const mmla_prefill_desc *d = &plan->desc;
    mmla_error *err = args->error;
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "n_tokens", args->n_tokens, 0, d->attend.max_tokens));
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "n_requests", args->n_requests, 0, d->max_requests));
    if (!plan->has_workspace || args->n_requests == 0 || args->n_tokens == 0) {
        *route = MMLA_PREFILL_PAGED;
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_prefill_shape_get(d, args, shape));
    const bool fits = shape->m <= d->max_rows / args->n_requests;
    if (!fits && d->route == MMLA_PREFILL_WORKSPACE) {
        return mmla_error_set(
            err, MMLA_E_SHAPE, "max_rows", "is %lld, must be at least %lld requests of %lld rows",
            (long long)d->max_rows, (long long)args->n_requests, (long long)shape->m);
    }
    const bool wins = d->route == MMLA_PREFILL_WORKSPACE ||
                      (fits && mmla_prefill_workspace_gain(
                                   mmla_attend_plan_implementation(plan->from_caches),
                                   d->attend.n_heads, plan->ctx->gpu.l2_bytes, shape) > 0.0);
    *route = wins ? MMLA_PREFILL_WORKSPACE : MMLA_PREFILL_PAGED;
    return MMLA_OK;
}

mmla_status mmla_prefill_route_get(const mmla_prefill_plan *plan,
                                   const mmla_prefill_args *args,
                                   mmla_prefill_route *route) {
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "route", route, 1));
    mmla_prefill_shape shape;
    return decide(plan, args, route, &shape);
}

/* All pointers, under the names they have here and before the first step: the last one would
 * complain when the others have been enqueued. */
static mmla_status check_args(const mmla_prefill_plan *plan, const mmla_prefill_args *args) {
    const mmla_attend_desc *d = &plan->desc.attend;
    const bool some = args->n_requests > 0, both = plan->has_compressed;
    const struct pointer {
        const char *name;
        const void *at;
        size_t alignment;
        bool needed, optional;
    } pointers[] = {
        {"query_start", args->query_start, 4, some, false},
        {"seq_lens", args->seq_lens, 4, some, false},
        {"request", args->request, 4, both, false},
        {"topk", args->topk, 4, both, false},
        {"window_table", args->window_table, 4, some, false},
        {"compressed_table", args->compressed_table, 4, some && both, false},
        {"window_cache", args->window_cache, 16, d->window.n_pages > 0, false},
        {"compressed_cache", args->compressed_cache, 16, both && d->compressed.n_pages > 0, false},
        {"q", args->q, 16, true, false},
        {"positions", args->positions, 4, true, false},
        {"cos_sin", args->cos_sin, 4, true, false},
        {"out", args->out, 32, true, false},
        {"out_scale", args->out_scale, 4, d->out_form != MMLA_OUT_BF16, false},
        {"sink", args->sink, 4, true, true},
        {"lse", args->lse, 4, true, true},
        {"max_logits", args->max_logits, 4, true, true},
        {"n_faults", args->n_faults, 4, true, true},
    };
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
        const struct pointer *p = &pointers[i];
        if (p->needed) {
            MMLA_RETURN_IF_FAILED(
                p->optional ? mmla_check_optional(args->error, p->name, p->at, p->alignment)
                            : mmla_check_pointer(args->error, p->name, p->at, p->alignment));
        }
    }
    return MMLA_OK;
}

/* What both calls of attention are given; lists and keys are missing. */
static mmla_attend_args attend_args(const mmla_prefill_args *args) {
    return (mmla_attend_args){.n_tokens = args->n_tokens,
                              .q = args->q,
                              .positions = args->positions,
                              .cos_sin = args->cos_sin,
                              .sink = args->sink,
                              .out = args->out,
                              .out_scale = args->out_scale,
                              .lse = args->lse,
                              .max_logits = args->max_logits,
                              .n_faults = args->n_faults,
                              .error = args->error};
}

static mmla_list_args list_args(const mmla_prefill_args *args, int32_t *list, int32_t *lens) {
    return (mmla_list_args){.n_tokens = args->n_tokens,
                            .n_requests = args->n_requests,
                            .query_start = args->query_start,
                            .seq_lens = args->seq_lens,
                            .request = args->request,
                            .topk = args->topk,
                            .list = list,
                            .lens = lens,
                            .n_faults = args->n_faults,
                            .error = args->error};
}

static mmla_status run_paged(const mmla_prefill_plan *plan,
                             const mmla_prefill_args *args,
                             uint8_t *workspace,
                             void *stream) {
    const layout *at = &plan->at;
    mmla_list_args window =
        list_args(args, (int32_t *)(workspace + at->list), (int32_t *)(workspace + at->lens));
    window.block_table = args->window_table;
    MMLA_RETURN_IF_FAILED(mmla_list_run(plan->window_list, &window, NULL, stream));
    mmla_attend_args attend = attend_args(args);
    attend.list = window.list;
    attend.lens = window.lens;
    attend.window_cache = args->window_cache;
    if (plan->has_compressed) {
        mmla_list_args compressed = list_args(args, (int32_t *)(workspace + at->compressed_list),
                                              (int32_t *)(workspace + at->compressed_lens));
        compressed.block_table = args->compressed_table;
        compressed.overlap = 1; /* with the list before it */
        MMLA_RETURN_IF_FAILED(mmla_list_run(plan->compressed_list, &compressed, NULL, stream));
        attend.compressed_list = compressed.list;
        attend.compressed_lens = compressed.lens;
        attend.compressed_cache = args->compressed_cache;
    }
    return mmla_attend_run(plan->from_caches, &attend, workspace + at->attend, stream);
}

static mmla_status run_workspace(const mmla_prefill_plan *plan,
                                 const mmla_prefill_args *args,
                                 const mmla_prefill_shape *shape,
                                 uint8_t *workspace,
                                 void *stream) {
    const layout *at = &plan->at;
    mmla_kv_gather_args gather = {.n_requests = args->n_requests,
                                  .block_table = args->compressed_table,
                                  .seq_lens = args->seq_lens,
                                  .rows = shape->m,
                                  .cache = args->compressed_cache,
                                  .out = (uint16_t *)(workspace + at->rows),
                                  .n_faults = args->n_faults,
                                  .error = args->error};
    if (plan->has_compressed) {
        MMLA_RETURN_IF_FAILED(mmla_kv_gather_run(plan->compressed_rows, &gather, NULL, stream));
    }
    gather.block_table = args->window_table;
    gather.query_start = args->query_start;
    gather.offset = shape->n;
    gather.cache = args->window_cache;
    MMLA_RETURN_IF_FAILED(mmla_kv_gather_run(plan->window_rows, &gather, NULL, stream));

    mmla_list_args combined =
        list_args(args, (int32_t *)(workspace + at->list), (int32_t *)(workspace + at->lens));
    combined.request_rows = shape->m;
    combined.window_offset = shape->n;
    combined.overlap = 1; /* with the rows, which it does not read */
    MMLA_RETURN_IF_FAILED(mmla_list_run(plan->combined_list, &combined, NULL, stream));
    mmla_attend_args attend = attend_args(args);
    attend.list = combined.list;
    attend.lens = combined.lens;
    attend.kv = gather.out;
    attend.n_rows = args->n_requests * shape->m;
    return mmla_attend_run(plan->from_rows, &attend, workspace + at->attend, stream);
}

mmla_status mmla_prefill_run(const mmla_prefill_plan *plan,
                             const mmla_prefill_args *args,
                             void *workspace,
                             void *stream) {
    mmla_prefill_route route = MMLA_PREFILL_PAGED;
    mmla_prefill_shape shape = {0};
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    MMLA_RETURN_IF_FAILED(decide(plan, args, &route, &shape));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(
        mmla_check_pointer(args->error, "workspace", workspace, MMLA_WORKSPACE_ALIGNMENT));
    MMLA_RETURN_IF_FAILED(check_args(plan, args));
    return route == MMLA_PREFILL_PAGED ? run_paged(plan, args, workspace, stream)
                                       : run_workspace(plan, args, &shape, workspace, stream);
}
