/* binding_prefill.c - attend_prefill, and the chunks of a prefill that takes its steps one by one. */
#include "python/src/binding_functions.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "python/src/binding_attend.h"
#include "python/src/binding_call.h"
#include "python/src/binding_places.h"

PLAN_KIND(prefill);

/* A column in host memory, whatever the device of the rest. */
static array read_host(call *c, int i, const char *name, element kind) {
    const bool has_device = c->has_device;
    const mmla_device device = c->device;
    const char *const argument = c->device_argument;
    c->has_device = true;
    c->device = MMLA_CPU;
    c->device_argument = "host memory";
    const array a = call_optional(c, i, name, kind, 1, 1);
    call_contiguous(c, &a, name, 0);
    c->has_device = has_device;
    c->device = device;
    c->device_argument = argument;
    return a;
}

/* A column of int32 for each of n, which are `what`. */
static const int32_t *
read_column(call *c, int i, const char *name, int64_t n, const char *what, bool needed) {
    const array a = needed ? call_array(c, i, name, ELEMENT_I32, 1, 1)
                           : call_optional(c, i, name, ELEMENT_I32, 1, 1);
    call_dim(c, &a, name, 0, n, what);
    call_contiguous(c, &a, name, 0);
    return a.data;
}

/* Rows of int32 with a stride between them. */
typedef struct table {
    const int32_t *data;
    int32_t width;
    int64_t stride;
} table;

static table
read_table(call *c, int i, const char *name, int64_t n, const char *what, bool needed) {
    const array a = needed ? call_array(c, i, name, ELEMENT_I32, 2, 2)
                           : call_optional(c, i, name, ELEMENT_I32, 2, 2);
    call_dim(c, &a, name, 0, n, what);
    call_contiguous(c, &a, name, 1);
    if (!c->failed && a.given && a.shape[1] > INT32_MAX) {
        call_fail(c, name, "has %" PRId64 " columns, must have less than 2^31", a.shape[1]);
    }
    return (table){a.data, (int32_t)(a.given ? a.shape[1] : 0), call_row_stride(c, &a, name)};
}

static_assert((int)AT_PREFILL_END <= (int)CALL_ARGUMENTS_MAX,
              "a call has no room for its arguments");

/* Lengths, block tables and picks. Those of a compressed cache are needed with one, and refused
 * without: they would be ignored. */
static void read_requests(call *c, bool two, mmla_prefill_desc *desc, mmla_prefill_args *args) {
    static const char *const requests = "the requests of seq_lens", *const tokens =
                                                                        "the tokens of q";
    const array seq = call_array(c, AT_SEQ_LENS, "seq_lens", ELEMENT_I32, 1, 1);
    const int64_t r = seq.shape[0], t = args->n_tokens;
    call_contiguous(c, &seq, "seq_lens", 0);
    args->n_requests = r;
    args->seq_lens = seq.data;
    args->query_start = read_column(c, AT_QUERY_START, "query_start", r + 1,
                                    "one more than the requests of seq_lens", true);
    const table window = read_table(c, AT_WINDOW_TABLE, "window_table", r, requests, true);
    args->window_table = window.data;
    desc->window_table_width = window.width;
    desc->window_table_stride = window.stride;
    static const struct {
        int place;
        const char *name;
    } of_compressed[] = {
        {AT_COMPRESSED_TABLE, "compressed_table"}, {AT_TOPK, "topk"}, {AT_REQUEST, "request"}};
    for (size_t i = 0; i < sizeof of_compressed / sizeof of_compressed[0]; i++) {
        if (!c->failed && !two && !call_is_none(c, of_compressed[i].place)) {
            call_fail(c, of_compressed[i].name, "was given without compressed_cache");
        }
    }
    const table pages = read_table(c, AT_COMPRESSED_TABLE, "compressed_table", r, requests, two);
    args->compressed_table = pages.data;
    desc->compressed_table_width = pages.width;
    desc->compressed_table_stride = pages.stride;
    const table picks = read_table(c, AT_TOPK, "topk", t, tokens, two);
    args->topk = picks.data;
    desc->topk_width = picks.width;
    desc->topk_stride = picks.stride;
    args->request = read_column(c, AT_REQUEST, "request", t, tokens, two);
    const array query_lens = read_host(c, AT_HOST_QUERY_LENS, "host_query_lens", ELEMENT_I32);
    const array seq_lens = read_host(c, AT_HOST_SEQ_LENS, "host_seq_lens", ELEMENT_I32);
    call_dim(c, &query_lens, "host_query_lens", 0, r, requests);
    call_dim(c, &seq_lens, "host_seq_lens", 0, r, requests);
    args->host_query_lens = query_lens.data;
    args->host_seq_lens = seq_lens.data;
    desc->max_requests = call_max_tokens(r, INT32_MAX);
}

/* What attention is given, in the fields of prefill. */
static void set_args(const mmla_attend_args *from, mmla_prefill_args *args) {
    args->n_tokens = from->n_tokens;
    args->q = from->q;
    args->positions = from->positions;
    args->cos_sin = from->cos_sin;
    args->sink = from->sink;
    args->window_cache = from->window_cache;
    args->compressed_cache = from->compressed_cache;
    args->out = from->out;
    args->out_scale = from->out_scale;
    args->lse = from->lse;
    args->max_logits = from->max_logits;
    args->n_faults = from->n_faults;
}

int binding_attend_prefill(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"n_heads", "q"},
                                        {"max_tokens", "q"},
                                        {"attend.max_tokens", "q"},
                                        {"q_token_stride", "q"},
                                        {"rope_positions", "cos_sin"},
                                        {"out_scale_word_stride", "out_scale"},
                                        {"out_scale_group_stride", "out_scale"},
                                        {"window.", "window_cache"},
                                        {"compressed.", "compressed_cache"},
                                        {"max_requests", "seq_lens"},
                                        {"window_table_width", "window_table"},
                                        {"window_table_stride", "window_table"},
                                        {"compressed_table_width", "compressed_table"},
                                        {"compressed_table_stride", "compressed_table"},
                                        {"topk_width", "topk"},
                                        {"topk_stride", "topk"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, AT_PREFILL_END, fields)) {
        return -1;
    }
    mmla_prefill_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_attend_args attend = {.error = NULL};
    mmla_prefill_args args = {.error = &err};
    memset(&desc, 0, sizeof desc); /* padding too: plans are found by its bytes */
    attend_read(&c, &desc.attend, &attend);
    const bool two = attend_read_caches(&c, &desc.attend, &attend);
    set_args(&attend, &args);
    read_requests(&c, two, &desc, &args);
    desc.window = (int32_t)call_integer(&c, AT_WINDOW, "window", INT32_MIN, INT32_MAX);
    desc.ratio = (int32_t)call_integer(&c, AT_RATIO, "ratio", INT32_MIN, INT32_MAX);
    desc.max_rows = call_integer(&c, AT_MAX_ROWS, "max_rows", INT64_MIN, INT64_MAX);
    desc.route = (mmla_prefill_route)call_integer(&c, AT_ROUTE, "route", 0, MMLA_PREFILL_WORKSPACE);
    char memory[CALL_TEXT_BYTES];
    desc.attend.implementation = call_implementation(&c, AT_IMPLEMENTATION, memory);
    return call_run(&c, &plan_prefill, &desc, run_prefill, &args, &err, AT_WORKSPACE, AT_STREAM,
                    result);
}

enum {
    CHUNK_QUERY_LENS,
    CHUNK_SEQ_LENS,
    CHUNK_FIRST,
    CHUNK_WINDOW,
    CHUNK_RATIO,
    CHUNK_MAX_MODEL_TOKENS,
    CHUNK_MAX_BATCH_TOKENS,
    CHUNK_OUT, /* int64 [4]: first, last, n, m */
    CHUNK_END
};

int binding_prefill_chunk(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    (void)result; /* stays None */
    if (!call_init(&c, self, argv, argc, CHUNK_END, NULL)) {
        return -1;
    }
    const array lens = read_host(&c, CHUNK_QUERY_LENS, "query_lens", ELEMENT_I32);
    const array seq = read_host(&c, CHUNK_SEQ_LENS, "seq_lens", ELEMENT_I32);
    const array out = read_host(&c, CHUNK_OUT, "out", ELEMENT_I64);
    call_dim(&c, &seq, "seq_lens", 0, lens.shape[0], "the requests of query_lens");
    call_dim(&c, &out, "out", 0, 4, "fields of a chunk");
    const mmla_prefill_chunk_desc desc = {
        .window = (int32_t)call_integer(&c, CHUNK_WINDOW, "window", INT32_MIN, INT32_MAX),
        .ratio = (int32_t)call_integer(&c, CHUNK_RATIO, "ratio", INT32_MIN, INT32_MAX),
        .max_model_tokens =
            call_integer(&c, CHUNK_MAX_MODEL_TOKENS, "max_model_tokens", INT64_MIN, INT64_MAX),
        .max_batch_tokens =
            call_integer(&c, CHUNK_MAX_BATCH_TOKENS, "max_batch_tokens", INT64_MIN, INT64_MAX)};
    const int64_t first = call_integer(&c, CHUNK_FIRST, "first", INT64_MIN, INT64_MAX);
    if (c.failed) {
        return -1;
    }
    mmla_prefill_chunk chunk;
    mmla_error err;
    const mmla_status status =
        mmla_prefill_chunk_next(&desc, lens.data, seq.data, lens.shape[0], first, &chunk, &err);
    if (status != MMLA_OK) {
        return call_fail_status(&c, status, &err);
    }
    int64_t *fields = out.data;
    fields[0] = chunk.first;
    fields[1] = chunk.last;
    fields[2] = chunk.n;
    fields[3] = chunk.m;
    return 0;
}
