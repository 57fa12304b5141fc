/* binding_kv.c - kv_insert, kv_gather. */
#include "python/src/binding_functions.h"

#include <inttypes.h>
#include <string.h>

#include "python/src/binding_call.h"

PLAN_KIND(kv_insert);
PLAN_KIND(kv_gather);

static int32_t *read_counter(call *c, int i) {
    const array a = call_optional(c, i, "n_faults", ELEMENT_I32, 1, 1);
    call_dim(c, &a, "n_faults", 0, 1, "a counter");
    return a.data;
}

enum {
    INSERT_ROWS,
    INSERT_POSITIONS,
    INSERT_SLOTS,
    INSERT_COS_SIN,
    INSERT_CACHE,
    INSERT_FORMAT,
    INSERT_PAGE_TOKENS,
    INSERT_NORM_WEIGHT,
    INSERT_NORM_EPS,
    INSERT_RATIO,
    INSERT_SCALE_FLOOR,
    INSERT_N_FAULTS,
    INSERT_OVERLAP,
    INSERT_IMPLEMENTATION,
    INSERT_WORKSPACE,
    INSERT_STREAM,
    INSERT_END
};

int binding_kv_insert(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"max_tokens", "rows"},
                                        {"row_stride", "rows"},
                                        {"rope_positions", "cos_sin"},
                                        {"n_slots", "slots"},
                                        {"cache.", "cache"},
                                        {"norm", "norm_weight"},
                                        {"n_rows", "rows"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, INSERT_END, fields)) {
        return -1;
    }
    mmla_kv_insert_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_kv_insert_args args = {.error = &err};
    memset(&desc, 0, sizeof desc); /* padding too: plans are found by its bytes */
    const array rows = call_array(&c, INSERT_ROWS, "rows", ELEMENT_BF16, 2, 2);
    const array positions = call_array(&c, INSERT_POSITIONS, "positions", ELEMENT_I64, 1, 1);
    const array slots = call_array(&c, INSERT_SLOTS, "slots", ELEMENT_I64, 1, 1);
    const array cos_sin = call_array(&c, INSERT_COS_SIN, "cos_sin", ELEMENT_F32, 2, 2);
    const array cache = call_array(&c, INSERT_CACHE, "cache", ELEMENT_BYTE, 2, 4);
    const array weight = call_optional(&c, INSERT_NORM_WEIGHT, "norm_weight", ELEMENT_F32, 1, 1);
    const int64_t t = rows.shape[0];
    desc.cache = call_cache(&c, &cache, "cache", INSERT_FORMAT, INSERT_PAGE_TOKENS, true);
    const int64_t dims = mmla_kv_dims(desc.cache.format);
    call_dim(&c, &rows, "rows", 1, dims, "the numbers of a record");
    call_contiguous(&c, &rows, "rows", 1);
    call_dim(&c, &positions, "positions", 0, t, "the rows");
    call_contiguous(&c, &positions, "positions", 0);
    call_contiguous(&c, &slots, "slots", 0);
    call_dim(&c, &cos_sin, "cos_sin", 1, MMLA_ROPE_DIM, "32 cosines and 32 sines");
    call_contiguous(&c, &cos_sin, "cos_sin", 0);
    call_dim(&c, &weight, "norm_weight", 0, dims, "the numbers of a record");
    call_contiguous(&c, &weight, "norm_weight", 0);
    if (!c.failed && slots.shape[0] > t) {
        call_fail(&c, "slots", "has %" PRId64 ", must have at most %" PRId64 ", the rows",
                  slots.shape[0], t);
    }
    desc.max_tokens = call_max_tokens(t, INT32_MAX);
    desc.row_stride = call_row_stride(&c, &rows, "rows");
    desc.ratio = (int32_t)call_integer(&c, INSERT_RATIO, "ratio", 0, INT32_MAX);
    desc.scale_floor = (mmla_scale_floor)call_integer(&c, INSERT_SCALE_FLOOR, "scale_floor", 0, 1);
    desc.norm = weight.given;
    desc.norm_eps = (float)call_real(&c, INSERT_NORM_EPS, "norm_eps", 0.0);
    desc.rope_positions = cos_sin.shape[0];
    args.n_rows = t;
    args.n_slots = slots.shape[0];
    args.rows = rows.data;
    args.positions = positions.data;
    args.slots = slots.data;
    args.cos_sin = cos_sin.data;
    args.norm_weight = weight.data;
    args.cache = cache.data;
    args.n_faults = read_counter(&c, INSERT_N_FAULTS);
    args.overlap = (int32_t)call_integer(&c, INSERT_OVERLAP, "overlap", 0, 1);
    c.overlaps = args.overlap != 0;
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, INSERT_IMPLEMENTATION, memory);
    return call_run(&c, &plan_kv_insert, &desc, run_kv_insert, &args, &err, INSERT_WORKSPACE,
                    INSERT_STREAM, result);
}

enum {
    GATHER_CACHE,
    GATHER_FORMAT,
    GATHER_PAGE_TOKENS,
    GATHER_BLOCK_TABLE,
    GATHER_SEQ_LENS,
    GATHER_GATHER_LENS,
    GATHER_QUERY_START,
    GATHER_RATIO,
    GATHER_WINDOW,
    GATHER_OFFSET,
    GATHER_OUT,
    GATHER_N_FAULTS,
    GATHER_IMPLEMENTATION,
    GATHER_WORKSPACE,
    GATHER_STREAM,
    GATHER_END
};

int binding_kv_gather(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"max_requests", "seq_lens"},
                                        {"table_width", "block_table"},
                                        {"table_stride", "block_table"},
                                        {"rows", "out"},
                                        {"row_stride", "out"},
                                        {"cache.", "cache"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, GATHER_END, fields)) {
        return -1;
    }
    mmla_kv_gather_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_kv_gather_args args = {.error = &err};
    memset(&desc, 0, sizeof desc);
    const array cache = call_array(&c, GATHER_CACHE, "cache", ELEMENT_BYTE, 2, 4);
    const array table = call_array(&c, GATHER_BLOCK_TABLE, "block_table", ELEMENT_I32, 2, 2);
    const array lens = call_array(&c, GATHER_SEQ_LENS, "seq_lens", ELEMENT_I32, 1, 1);
    const array some = call_optional(&c, GATHER_GATHER_LENS, "gather_lens", ELEMENT_I32, 1, 1);
    const array starts = call_optional(&c, GATHER_QUERY_START, "query_start", ELEMENT_I32, 1, 1);
    const array out = call_array(&c, GATHER_OUT, "out", ELEMENT_BF16, 3, 3);
    const int64_t requests = lens.shape[0];
    desc.cache = call_cache(&c, &cache, "cache", GATHER_FORMAT, GATHER_PAGE_TOKENS, false);
    call_dim(&c, &table, "block_table", 0, requests, "the requests of seq_lens");
    call_contiguous(&c, &table, "block_table", 1);
    call_contiguous(&c, &lens, "seq_lens", 0);
    call_dim(&c, &some, "gather_lens", 0, requests, "the requests of seq_lens");
    call_contiguous(&c, &some, "gather_lens", 0);
    call_dim(&c, &starts, "query_start", 0, requests + 1, "one more than the requests of seq_lens");
    call_contiguous(&c, &starts, "query_start", 0);
    call_dim(&c, &out, "out", 0, requests, "the requests of seq_lens");
    call_dim(&c, &out, "out", 2, MMLA_LATENT_DIM, "the width of a row");
    call_contiguous(&c, &out, "out", 0);
    if (!c.failed && table.shape[1] > INT32_MAX) {
        call_fail(&c, "block_table", "has %" PRId64 " columns, must have less than 2^31",
                  table.shape[1]);
    }
    desc.max_requests = call_max_tokens(requests, INT32_MAX);
    desc.table_width = (int32_t)table.shape[1];
    desc.table_stride = call_row_stride(&c, &table, "block_table");
    desc.ratio = (int32_t)call_integer(&c, GATHER_RATIO, "ratio", 1, 2);
    desc.window = (int32_t)call_integer(&c, GATHER_WINDOW, "window", 0, INT32_MAX);
    if (!c.failed && desc.window > 0 && !some.given && !starts.given) {
        call_fail(&c, "query_start", "is None, must be given with window and without gather_lens");
    }
    /* Rows and offset are those of the call, so that one plan serves workspaces of all sizes. */
    desc.rows = out.shape[1] > 0;
    args.rows = out.shape[1];
    args.offset = call_integer(&c, GATHER_OFFSET, "offset", 0, INT64_MAX);
    args.n_requests = requests;
    args.block_table = table.data;
    args.seq_lens = lens.data;
    args.gather_lens = some.data;
    args.query_start = starts.data;
    args.cache = cache.data;
    args.out = out.data;
    args.n_faults = read_counter(&c, GATHER_N_FAULTS);
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, GATHER_IMPLEMENTATION, memory);
    return call_run(&c, &plan_kv_gather, &desc, run_kv_gather, &args, &err, GATHER_WORKSPACE,
                    GATHER_STREAM, result);
}
