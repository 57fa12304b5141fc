/* binding_list.c - the index builders. */
#include "python/src/binding_functions.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "python/src/binding_call.h"

PLAN_KIND(list);

/* A builder leaves what it has no use for None, or 0. */
enum {
    LIST_KIND,
    LIST_N_TOKENS,
    LIST_QUERY_START,
    LIST_SEQ_LENS,
    LIST_GATHER_LENS,
    LIST_BLOCK_TABLE,
    LIST_RING_BLOCKS,
    LIST_REQUEST,
    LIST_TOPK,
    LIST_POSITIONS,
    LIST_SLOTS,
    LIST_VALID,
    LIST_LEFT,
    LIST_RIGHT,
    LIST_SPAN_START,
    LIST_SPANS,
    LIST_OUT_LIST,
    LIST_OUT_LENS,
    LIST_OUT_SLOTS,
    LIST_OUT_LEFT,
    LIST_OUT_RIGHT,
    LIST_N_FAULTS,
    LIST_WINDOW,
    LIST_PAGE_TOKENS,
    LIST_N_PAGES,
    LIST_RATIO,
    LIST_TOPK_LIMIT,
    LIST_REQUEST_ROWS,
    LIST_WINDOW_OFFSET,
    LIST_IMAGE_TOKENS,
    LIST_OVERLAP,
    LIST_STREAM,
    LIST_END
};
static_assert((int)LIST_END <= (int)CALL_ARGUMENTS_MAX, "a call has no room for its arguments");

/* One number for each of n, which are `what`. */
static array
read_column(call *c, int i, const char *name, element kind, int64_t n, const char *what) {
    const array a = call_optional(c, i, name, kind, 1, 1);
    call_dim(c, &a, name, 0, n, what);
    call_contiguous(c, &a, name, 0);
    return a;
}

/* Rows of int32 with a stride between them. */
static array read_table(call *c, int i, const char *name, int64_t n, const char *what) {
    const array a = call_optional(c, i, name, ELEMENT_I32, 2, 2);
    call_dim(c, &a, name, 0, n, what);
    call_contiguous(c, &a, name, 1);
    if (!c->failed && a.given && a.shape[1] > INT32_MAX) {
        call_fail(c, name, "has %" PRId64 " columns, must have less than 2^31", a.shape[1]);
    }
    return a;
}

/* The number of requests, from whichever argument tells it. */
static int64_t count_requests(call *c) {
    const array table = call_optional(c, LIST_BLOCK_TABLE, "block_table", ELEMENT_I32, 2, 2);
    const array rings = call_optional(c, LIST_RING_BLOCKS, "ring_blocks", ELEMENT_I32, 1, 1);
    const array lens = call_optional(c, LIST_SEQ_LENS, "seq_lens", ELEMENT_I32, 1, 1);
    return lens.given    ? lens.shape[0]
           : table.given ? table.shape[0]
           : rings.given ? rings.shape[0]
                         : 0;
}

static void read_requests(call *c, int64_t r, mmla_list_args *args, mmla_list_desc *desc) {
    static const char *const what = "the requests";
    args->n_requests = r;
    args->query_start = read_column(c, LIST_QUERY_START, "query_start", ELEMENT_I32, r + 1,
                                    "one more than the requests")
                            .data;
    args->seq_lens = read_column(c, LIST_SEQ_LENS, "seq_lens", ELEMENT_I32, r, what).data;
    args->gather_lens = read_column(c, LIST_GATHER_LENS, "gather_lens", ELEMENT_I32, r, what).data;
    args->ring_blocks = read_column(c, LIST_RING_BLOCKS, "ring_blocks", ELEMENT_I32, r, what).data;
    args->span_start = read_column(c, LIST_SPAN_START, "span_start", ELEMENT_I32, r + 1,
                                   "one more than the requests")
                           .data;
    const array table = read_table(c, LIST_BLOCK_TABLE, "block_table", r, what);
    args->block_table = table.data;
    desc->table_width = (int32_t)(table.given ? table.shape[1] : 0);
    desc->table_stride = call_row_stride(c, &table, "block_table");
    const array spans = call_optional(c, LIST_SPANS, "spans", ELEMENT_I32, 2, 2);
    call_dim(c, &spans, "spans", 1, 2, "first and last position");
    call_contiguous(c, &spans, "spans", 0);
    args->spans = spans.data;
    args->n_spans = spans.given ? spans.shape[0] : 0;
}

static void read_tokens(call *c, int64_t t, mmla_list_args *args, mmla_list_desc *desc) {
    static const char *const what = "the tokens";
    args->n_tokens = t;
    args->request = read_column(c, LIST_REQUEST, "request", ELEMENT_I32, t, what).data;
    args->positions = read_column(c, LIST_POSITIONS, "positions", ELEMENT_I64, t, what).data;
    args->slots = read_column(c, LIST_SLOTS, "slots", ELEMENT_I64, t, what).data;
    args->valid = read_column(c, LIST_VALID, "valid", ELEMENT_FLAG, t, what).data;
    args->left = read_column(c, LIST_LEFT, "left", ELEMENT_I32, t, what).data;
    args->right = read_column(c, LIST_RIGHT, "right", ELEMENT_I32, t, what).data;
    const array topk = read_table(c, LIST_TOPK, "topk", t, what);
    args->topk = topk.data;
    desc->topk_width = (int32_t)(topk.given ? topk.shape[1] : 0);
    desc->topk_stride = call_row_stride(c, &topk, "topk");
    const array list = read_table(c, LIST_OUT_LIST, "list", t, what);
    args->list = list.data;
    desc->width = (int32_t)(list.given ? list.shape[1] : 0);
    desc->list_stride = call_row_stride(c, &list, "list");
    args->lens = read_column(c, LIST_OUT_LENS, "lens", ELEMENT_I32, t, what).data;
    args->out_slots = read_column(c, LIST_OUT_SLOTS, "out", ELEMENT_I64, t, what).data;
    args->out_left = read_column(c, LIST_OUT_LEFT, "out_left", ELEMENT_I32, t, what).data;
    args->out_right = read_column(c, LIST_OUT_RIGHT, "out_right", ELEMENT_I32, t, what).data;
}

int binding_list_build(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"table_width", "block_table"},
                                        {"table_stride", "block_table"},
                                        {"width", "list"},
                                        {"list_stride", "list"},
                                        {"topk_width", "topk"},
                                        {"topk_stride", "topk"},
                                        {"max_tokens", "n_tokens"},
                                        {"max_requests", "seq_lens"},
                                        {"out_slots", "out"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, LIST_END, fields)) {
        return -1;
    }
    mmla_list_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_list_args args = {.error = &err};
    memset(&desc, 0, sizeof desc); /* padding too: plans are found by its bytes */
    desc.kind = (mmla_list_kind)call_integer(&c, LIST_KIND, "kind", 0, MMLA_LIST_IMAGE_SPANS);
    const int64_t t = call_integer(&c, LIST_N_TOKENS, "n_tokens", 0, INT32_MAX);
    const int64_t r = count_requests(&c);
    read_requests(&c, r, &args, &desc);
    read_tokens(&c, t, &args, &desc);
    const array faults = call_optional(&c, LIST_N_FAULTS, "n_faults", ELEMENT_I32, 1, 1);
    call_dim(&c, &faults, "n_faults", 0, 1, "a counter");
    args.n_faults = faults.data;
    desc.max_tokens = call_max_tokens(t, INT32_MAX);
    desc.max_requests = call_max_tokens(r, INT32_MAX);
    desc.window = (int32_t)call_integer(&c, LIST_WINDOW, "window", INT32_MIN, INT32_MAX);
    desc.page_tokens =
        (int32_t)call_integer(&c, LIST_PAGE_TOKENS, "page_tokens", INT32_MIN, INT32_MAX);
    desc.n_pages = call_integer(&c, LIST_N_PAGES, "n_pages", INT64_MIN, INT64_MAX);
    desc.ratio = (int32_t)call_integer(&c, LIST_RATIO, "ratio", INT32_MIN, INT32_MAX);
    desc.topk = (int32_t)call_integer(&c, LIST_TOPK_LIMIT, "topk_limit", INT32_MIN, INT32_MAX);
    const int64_t rows = call_integer(&c, LIST_REQUEST_ROWS, "request_rows", INT64_MIN, INT64_MAX);
    const int64_t offset =
        call_integer(&c, LIST_WINDOW_OFFSET, "window_offset", INT64_MIN, INT64_MAX);
    if (rows > 0) { /* those of the call, so that one plan serves workspaces of all sizes */
        args.request_rows = rows;
        args.window_offset = offset;
    } else { /* 0 would stand for those of the plan */
        desc.request_rows = rows;
        desc.window_offset = offset;
    }
    desc.image_tokens =
        (int32_t)call_integer(&c, LIST_IMAGE_TOKENS, "image_tokens", INT32_MIN, INT32_MAX);
    args.overlap = (int32_t)call_integer(&c, LIST_OVERLAP, "overlap", 0, 1);
    return call_run(&c, &plan_list, &desc, run_list, &args, &err, -1, LIST_STREAM, result);
}
