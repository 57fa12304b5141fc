/* list_plan.c - the index builders: check, choose, run. */
#include <limits.h>

#include "api/plan.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "kv/layout.h"
#include "ops/lists/lists.h"

enum { WINDOW_MAX = 65536 };

struct mmla_list_plan {
    mmla_plan_base base;
    mmla_lists_problem problem;
};

static const mmla_lists_impl *impl_of(const mmla_list_plan *plan) {
    return (const mmla_lists_impl *)plan->base.impl;
}

/* A set of kinds, one bit each. */
#define OF(kind) (1u << MMLA_LIST_##kind)
enum {
    BY_QUERY = OF(WINDOW) | OF(DRAFT) | OF(COMBINED) | OF(IMAGE_SPANS),  /* query_start, seq_lens */
    BY_REQUEST = OF(COMPRESSED) | OF(COMPRESSED_SLOTS) | OF(RING_SLOTS), /* request */
    HAS_TABLE = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMPRESSED_SLOTS),
    HAS_LIST = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMBINED),
    HAS_SLOTS = OF(COMPRESSED_SLOTS) | OF(RING_SLOTS)
};

static bool is_of(const mmla_lists_problem *p, unsigned kinds) {
    return ((1u << p->desc.kind) & kinds) != 0;
}

/* Every slot page * page_tokens + record fits int32. */
static mmla_status check_pages(const mmla_list_desc *desc, mmla_lists_problem *p, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "page_tokens", desc->page_tokens, 1, MMLA_KV_PAGE_TOKENS_MAX));
    if (desc->kind == MMLA_LIST_RING_SLOTS && (desc->page_tokens & (desc->page_tokens - 1)) != 0) {
        return mmla_error_set(err, MMLA_E_SHAPE, "page_tokens",
                              "is %d, must be a power of two for a ring", (int)desc->page_tokens);
    }
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "n_pages", desc->n_pages, 0, INT32_MAX / desc->page_tokens));
    p->table = (mmla_kv_table){desc->page_tokens, 0, desc->n_pages};
    return MMLA_OK;
}

static mmla_status check_table(const mmla_list_desc *desc, mmla_lists_problem *p, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "table_width", desc->table_width, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "table_stride", desc->table_stride,
                                            desc->table_width, 1, &p->desc.table_stride));
    p->table.width = desc->table_width;
    return mmla_check_extent(err, "table_stride", desc->max_requests, p->desc.table_stride,
                             sizeof(int32_t));
}

static mmla_status check_topk(const mmla_list_desc *desc, mmla_lists_problem *p, mmla_error *err) {
    const int32_t least = desc->kind == MMLA_LIST_COMPRESSED ? 1 : 0;
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "topk_width", desc->topk_width, least, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "topk_stride", desc->topk_stride, desc->topk_width,
                                            1, &p->desc.topk_stride));
    return mmla_check_extent(err, "topk_stride", desc->max_tokens, p->desc.topk_stride,
                             sizeof(int32_t));
}

static mmla_status check_combined(const mmla_list_desc *desc, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", desc->ratio, 0, 2));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "topk", desc->topk, 0, desc->topk_width));
    /* The last workspace row of the last request is a list entry. */
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "request_rows", desc->request_rows, 0,
                                           INT32_MAX / mmla_max_i64(desc->max_requests, 1)));
    return mmla_check_range(err, "window_offset", desc->window_offset, 0, desc->request_rows);
}

/* The fewest columns that hold every list of the kind. */
static int64_t least_width(const mmla_list_desc *desc) {
    switch (desc->kind) {
    case MMLA_LIST_COMPRESSED:
        return desc->topk_width;
    case MMLA_LIST_COMBINED:
        return (int64_t)desc->topk + desc->window + desc->image_tokens;
    default:
        return desc->window;
    }
}

/* Fills p from a description, or says what is wrong with it. Only the kind's own fields count. */
static mmla_status resolve(const mmla_list_desc *desc, mmla_lists_problem *p, mmla_error *err) {
    p->desc = *desc;
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "kind", (int)desc->kind, MMLA_LIST_KINDS));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_tokens", desc->max_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_requests", desc->max_requests, 0, INT32_MAX));
    if (is_of(p, HAS_TABLE | OF(RING_SLOTS))) {
        MMLA_RETURN_IF_FAILED(check_pages(desc, p, err));
    }
    if (is_of(p, HAS_TABLE)) {
        MMLA_RETURN_IF_FAILED(check_table(desc, p, err));
    }
    if (is_of(p, OF(WINDOW) | OF(DRAFT) | OF(COMBINED))) {
        MMLA_RETURN_IF_FAILED(mmla_check_range(err, "window", desc->window, 1, WINDOW_MAX));
    }
    if (is_of(p, OF(COMBINED) | OF(IMAGE_SPANS))) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_range(err, "image_tokens", desc->image_tokens, 0, INT32_MAX));
    }
    if (is_of(p, OF(COMPRESSED) | OF(COMBINED))) {
        MMLA_RETURN_IF_FAILED(check_topk(desc, p, err));
    }
    if (is_of(p, OF(COMBINED))) {
        MMLA_RETURN_IF_FAILED(check_combined(desc, err));
    }
    if (is_of(p, OF(COMPRESSED_SLOTS))) {
        MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", desc->ratio, 1, 2));
    }
    if (is_of(p, HAS_LIST)) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_range(err, "width", desc->width, least_width(desc), INT32_MAX));
        MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "list_stride", desc->list_stride, desc->width,
                                                1, &p->desc.list_stride));
        MMLA_RETURN_IF_FAILED(mmla_check_extent(err, "list_stride", desc->max_tokens,
                                                p->desc.list_stride, sizeof(int32_t)));
    }
    return MMLA_OK;
}

mmla_status mmla_list_plan_create(mmla_context *ctx,
                                  const mmla_list_desc *desc,
                                  mmla_list_plan **plan,
                                  mmla_error *err) {
    if (plan != NULL) {
        *plan = NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_plan_check(ctx, desc, plan, err));

    mmla_lists_problem problem = {.n_threads = ctx->n_threads, .gpu = ctx->gpu};
    MMLA_RETURN_IF_FAILED(resolve(desc, &problem, err));
    void *memory;
    MMLA_RETURN_IF_FAILED(
        mmla_plan_alloc(ctx, sizeof **plan, mmla_lists_list, &problem, NULL, &memory, err));
    *plan = memory;
    (*plan)->problem = problem;
    return MMLA_OK;
}

void mmla_list_plan_destroy(mmla_list_plan *plan) {
    mmla_plan_free(plan);
}

size_t mmla_list_workspace_bytes(const mmla_list_plan *plan) {
    (void)plan;
    return 0;
}

/* spans may be missing when there are none, which the implementation sees in span_start. Only a GPU
 * must be told how many there are: nobody has looked at span_start before its kernel runs, and the
 * kernel can be held to no other bound. */
static mmla_status check_spans(mmla_device_kind device, const mmla_list_args *args) {
    MMLA_RETURN_IF_FAILED(mmla_check_optional(args->error, "spans", args->spans, 4));
    const bool must_tell =
        device == MMLA_DEVICE_CUDA && args->n_requests > 0 && args->spans != NULL;
    return mmla_check_range(args->error, "n_spans", args->n_spans, must_tell ? 1 : 0, INT32_MAX);
}

/* The pointers of args that the plan's kind reads and writes. What belongs to requests may be
 * missing when there are none: every token is padding then. */
static mmla_status
check_args(const mmla_lists_problem *p, mmla_device_kind device, const mmla_list_args *args) {
    const unsigned some = args->n_requests > 0 ? ~0u : 0u;
    const bool picks = is_of(p, OF(COMPRESSED)) || (p->desc.ratio > 0 && p->desc.topk > 0);
    const bool images = p->desc.image_tokens > 0;
    const struct pointer {
        const char *name;
        const void *at;
        size_t alignment;
        unsigned needed_by;
    } pointers[] = {
        {"query_start", args->query_start, 4, BY_QUERY & some},
        {"seq_lens", args->seq_lens, 4, BY_QUERY & some},
        {"block_table", args->block_table, 4, HAS_TABLE & some},
        {"ring_blocks", args->ring_blocks, 4, OF(RING_SLOTS) & some},
        {"span_start", args->span_start, 4, OF(IMAGE_SPANS) & some},
        {"request", args->request, 4, BY_REQUEST},
        {"topk", args->topk, 4, picks ? OF(COMPRESSED) | OF(COMBINED) : 0},
        {"positions", args->positions, 8, HAS_SLOTS},
        {"slots", args->slots, 8, HAS_SLOTS},
        {"left", args->left, 4, images ? OF(COMBINED) : 0},
        {"right", args->right, 4, images ? OF(COMBINED) : 0},
        {"list", args->list, 4, HAS_LIST},
        {"lens", args->lens, 4, HAS_LIST},
        {"out_slots", args->out_slots, 8, HAS_SLOTS},
        {"out_left", args->out_left, 4, OF(IMAGE_SPANS)},
        {"out_right", args->out_right, 4, OF(IMAGE_SPANS)},
    };
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
        if (is_of(p, pointers[i].needed_by)) {
            MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, pointers[i].name, pointers[i].at,
                                                     pointers[i].alignment));
        }
    }
    if (is_of(p, OF(IMAGE_SPANS))) {
        MMLA_RETURN_IF_FAILED(check_spans(device, args));
    }
    if (is_of(p, OF(COMBINED))) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_optional(args->error, "gather_lens", args->gather_lens, 4));
    }
    return mmla_check_optional(args->error, "n_faults", args->n_faults, 4);
}

/* The workspace rows of a request in this call, where it says so. */
static mmla_status resolve_rows(mmla_lists_problem *p, const mmla_list_args *args) {
    if (!is_of(p, OF(COMBINED)) || args->request_rows == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(args->error, "request_rows", args->request_rows, 0,
                                           INT32_MAX / mmla_max_i64(args->n_requests, 1)));
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(args->error, "window_offset", args->window_offset, 0, args->request_rows));
    p->desc.request_rows = args->request_rows;
    p->desc.window_offset = args->window_offset;
    return MMLA_OK;
}

mmla_status mmla_list_run(const mmla_list_plan *plan,
                          const mmla_list_args *args,
                          void *workspace,
                          void *stream) {
    (void)workspace;
    if (args == NULL) {
        return MMLA_E_NULL;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(args->error, "plan", plan, 1));
    mmla_lists_problem problem = plan->problem;
    const mmla_lists_problem *p = &problem;
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(args->error, "n_tokens", args->n_tokens, 0, p->desc.max_tokens));
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(args->error, "n_requests", args->n_requests, 0, p->desc.max_requests));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(check_args(p, plan->base.impl->device, args));
    MMLA_RETURN_IF_FAILED(resolve_rows(&problem, args));
    return impl_of(plan)->run(p, args, stream);
}
#undef OF
