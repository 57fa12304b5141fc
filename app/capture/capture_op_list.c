/* capture_op_list.c - the index builders: window_list, compressed_list, combined_list and
 * compressed_slots. One plan and one run of the library serve all, so they differ in tables and in
 * how the description is filled. */
#include <megamla/list.h>

#include "app/capture/capture_op.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

enum { COMBINED_WIDTH_MULTIPLE = 128 };

typedef struct state {
    mmla_list_plan *plan;
    mmla_list_args args;
} state;

static mmla_status plan(capture_call *call, const mmla_list_desc *desc, mmla_error *err) {
    state *s = call->state;
    MMLA_RETURN_IF_FAILED(mmla_list_plan_create(call->ctx, desc, &s->plan, err));
    s->args.n_tokens = desc->max_tokens;
    s->args.n_requests = desc->max_requests;
    s->args.n_faults = &call->n_faults;
    return capture_workspace_create(call, mmla_list_workspace_bytes(s->plan), err);
}

/* list [T, width] and lens [T]. */
static mmla_status list_outputs(capture_call *call, const mmla_list_desc *desc, mmla_error *err) {
    const int64_t shape[] = {desc->max_tokens, desc->width};
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "list", SAFETENSORS_I32, 2, shape, err));
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "lens", SAFETENSORS_I32, 1, shape, err));
    state *s = call->state;
    s->args.list = call->memory[0];
    s->args.lens = call->memory[1];
    device_stage_list(&call->stage, desc, &s->args);
    return MMLA_OK;
}

static mmla_status list_run(capture_call *call, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_list_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static void list_destroy(capture_call *call) {
    mmla_list_plan_destroy(((state *)call->state)->plan);
}

/* window_list */
static const capture_input window_inputs[] = {
    {"seq_lens", SAFETENSORS_I32, "R", 4, false},
    {"query_start", SAFETENSORS_I32, "1+R", 4, false},
    {"block_table", SAFETENSORS_I32, "R B", 4, false},
    {"valid", SAFETENSORS_U8, "T", 1, true},
    {0},
};
enum { WINDOW_SEQ_LENS, WINDOW_QUERY_START, WINDOW_BLOCK_TABLE, WINDOW_VALID };

static const capture_attr window_attrs[] = {
    {"window", CAPTURE_INT, "128", NULL, 1, INT32_MAX, NULL},
    {"page_tokens", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {"width", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {0},
};
enum { WINDOW_WINDOW, WINDOW_PAGE_TOKENS, WINDOW_WIDTH };

static mmla_status window_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    s->args = (mmla_list_args){
        .query_start = c->data[WINDOW_QUERY_START],
        .seq_lens = c->data[WINDOW_SEQ_LENS],
        .block_table = c->data[WINDOW_BLOCK_TABLE],
        .valid = c->data[WINDOW_VALID],
    };
    const int64_t page_tokens = c->attrs[WINDOW_PAGE_TOKENS].integer;
    const int64_t n_requests = capture_dim(c, 'R');
    /* Without valid, the last query ends the tokens. */
    const int64_t n_tokens = c->inputs[WINDOW_VALID] != NULL
                                 ? capture_dim(c, 'T')
                                 : mmla_max_i64(s->args.query_start[n_requests], 0);
    const mmla_list_desc desc = {
        .kind = MMLA_LIST_WINDOW,
        .max_tokens = n_tokens,
        .max_requests = n_requests,
        .window = (int32_t)c->attrs[WINDOW_WINDOW].integer,
        .page_tokens = (int32_t)page_tokens,
        .n_pages = capture_pages_max(page_tokens),
        .table_width = capture_dim32(c, 'B'),
        .width = (int32_t)c->attrs[WINDOW_WIDTH].integer,
    };
    MMLA_RETURN_IF_FAILED(plan(call, &desc, err));
    return list_outputs(call, &desc, err);
}

const capture_op capture_op_window_list = {
    "window_list", window_inputs, window_attrs, "lists",      false,
    window_create, list_run,      NULL,         list_destroy,
};

/* compressed_list */
static const capture_input compressed_inputs[] = {
    {"topk", SAFETENSORS_I32, "T 512", 4, false},
    {"request", SAFETENSORS_I32, "T", 4, false},
    {"block_table", SAFETENSORS_I32, "R B", 4, false},
    {"valid", SAFETENSORS_U8, "T", 1, true},
    {0},
};
enum { COMPRESSED_TOPK, COMPRESSED_REQUEST, COMPRESSED_BLOCK_TABLE, COMPRESSED_VALID };
enum { COMPRESSED_WIDTH = 512 };

static const capture_attr compressed_attrs[] = {
    {"page_tokens", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {0},
};

static mmla_status
compressed_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    s->args = (mmla_list_args){
        .topk = c->data[COMPRESSED_TOPK],
        .request = c->data[COMPRESSED_REQUEST],
        .block_table = c->data[COMPRESSED_BLOCK_TABLE],
        .valid = c->data[COMPRESSED_VALID],
    };
    const int64_t page_tokens = c->attrs[0].integer;
    const mmla_list_desc desc = {
        .kind = MMLA_LIST_COMPRESSED,
        .max_tokens = capture_dim(c, 'T'),
        .max_requests = capture_dim(c, 'R'),
        .page_tokens = (int32_t)page_tokens,
        .n_pages = capture_pages_max(page_tokens),
        .table_width = capture_dim32(c, 'B'),
        .topk_width = COMPRESSED_WIDTH,
        .width = COMPRESSED_WIDTH,
    };
    MMLA_RETURN_IF_FAILED(plan(call, &desc, err));
    return list_outputs(call, &desc, err);
}

const capture_op capture_op_compressed_list = {
    "compressed_list",
    compressed_inputs,
    compressed_attrs,
    "lists",
    false,
    compressed_create,
    list_run,
    NULL,
    list_destroy,
};

/* combined_list */
static const capture_input combined_inputs[] = {
    {"topk", SAFETENSORS_I32, "T W", 4, false},
    {"seq_lens", SAFETENSORS_I32, "R", 4, false},
    {"query_start", SAFETENSORS_I32, "1+R", 4, false},
    {"gather_lens", SAFETENSORS_I32, "R", 4, false},
    {"left", SAFETENSORS_I32, "T", 4, true},
    {"right", SAFETENSORS_I32, "T", 4, true},
    {0},
};
enum {
    COMBINED_TOPK,
    COMBINED_SEQ_LENS,
    COMBINED_QUERY_START,
    COMBINED_GATHER_LENS,
    COMBINED_LEFT,
    COMBINED_RIGHT
};

static const capture_attr combined_attrs[] = {
    {"window", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {"ratio", CAPTURE_INT, NULL, NULL, 0, 2, NULL},
    {"topk", CAPTURE_INT, NULL, NULL, 0, INT32_MAX, NULL},
    {"M", CAPTURE_INT, NULL, NULL, 0, INT32_MAX, NULL},
    {"N", CAPTURE_INT, NULL, NULL, 0, INT32_MAX, NULL},
    {"image_tokens", CAPTURE_INT, "0", NULL, 0, INT32_MAX, NULL},
    {0},
};
enum { AT_WINDOW, AT_RATIO, AT_TOPK, AT_M, AT_N, AT_IMAGE_TOKENS };

/* left and right come with image_tokens > 0, both of them, and only then. */
static mmla_status image_check(const capture *c, mmla_error *err) {
    const bool wanted = c->attrs[AT_IMAGE_TOKENS].integer > 0;
    for (int i = COMBINED_LEFT; i <= COMBINED_RIGHT; i++) {
        if ((c->inputs[i] != NULL) != wanted) {
            return mmla_error_set(err, MMLA_E_VALUE, c->op->inputs[i].name,
                                  wanted ? "tensor is missing; image_tokens > 0 needs it"
                                         : "is given, but image_tokens is 0, so nothing reads it");
        }
    }
    return MMLA_OK;
}

static mmla_status
combined_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    MMLA_RETURN_IF_FAILED(image_check(c, err));
    state *s = call->state;
    s->args = (mmla_list_args){
        .topk = c->data[COMBINED_TOPK],
        .query_start = c->data[COMBINED_QUERY_START],
        .seq_lens = c->data[COMBINED_SEQ_LENS],
        .gather_lens = c->data[COMBINED_GATHER_LENS],
        .left = c->data[COMBINED_LEFT],
        .right = c->data[COMBINED_RIGHT],
    };
    const int64_t topk = c->attrs[AT_TOPK].integer, window = c->attrs[AT_WINDOW].integer;
    const int64_t image_tokens = c->attrs[AT_IMAGE_TOKENS].integer;
    const int64_t width = mmla_round_up_i64(topk + window + image_tokens, COMBINED_WIDTH_MULTIPLE);
    const mmla_list_desc desc = {
        .kind = MMLA_LIST_COMBINED,
        .max_tokens = capture_dim(c, 'T'),
        .max_requests = capture_dim(c, 'R'),
        .window = (int32_t)window,
        .width = (int32_t)mmla_min_i64(width, INT32_MAX),
        .topk_width = capture_dim32(c, 'W'),
        .ratio = (int32_t)c->attrs[AT_RATIO].integer,
        .topk = (int32_t)topk,
        .request_rows = c->attrs[AT_M].integer,
        .window_offset = c->attrs[AT_N].integer,
        .image_tokens = (int32_t)image_tokens,
    };
    MMLA_RETURN_IF_FAILED(plan(call, &desc, err));
    return list_outputs(call, &desc, err);
}

const capture_op capture_op_combined_list = {
    "combined_list", combined_inputs, combined_attrs, "lists",      false,
    combined_create, list_run,        NULL,           list_destroy,
};

/* compressed_slots */
static const capture_input slots_inputs[] = {
    {"positions", SAFETENSORS_I64, "T", 8, false},
    {"slots", SAFETENSORS_I64, "T", 8, false},
    {"request", SAFETENSORS_I32, "T", 4, false},
    {"block_table", SAFETENSORS_I32, "R B", 4, false},
    {0},
};
enum { SLOTS_POSITIONS, SLOTS_SLOTS, SLOTS_REQUEST, SLOTS_BLOCK_TABLE };

static const capture_attr slots_attrs[] = {
    {"ratio", CAPTURE_INT, NULL, NULL, 1, 2, NULL},
    {"page_tokens", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {0},
};

static mmla_status slots_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    s->args = (mmla_list_args){
        .positions = c->data[SLOTS_POSITIONS],
        .slots = c->data[SLOTS_SLOTS],
        .request = c->data[SLOTS_REQUEST],
        .block_table = c->data[SLOTS_BLOCK_TABLE],
    };
    const int64_t page_tokens = c->attrs[1].integer;
    const mmla_list_desc desc = {
        .kind = MMLA_LIST_COMPRESSED_SLOTS,
        .max_tokens = capture_dim(c, 'T'),
        .max_requests = capture_dim(c, 'R'),
        .page_tokens = (int32_t)page_tokens,
        .n_pages = capture_pages_max(page_tokens),
        .table_width = capture_dim32(c, 'B'),
        .ratio = (int32_t)c->attrs[0].integer,
    };
    MMLA_RETURN_IF_FAILED(plan(call, &desc, err));
    const int64_t shape[] = {desc.max_tokens};
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "slots", SAFETENSORS_I64, 1, shape, err));
    s->args.out_slots = call->memory[0];
    device_stage_list(&call->stage, &desc, &s->args);
    return MMLA_OK;
}

const capture_op capture_op_compressed_slots = {
    "compressed_slots", slots_inputs, slots_attrs, "lists",      false,
    slots_create,       list_run,     NULL,        list_destroy,
};
