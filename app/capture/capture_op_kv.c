/* capture_op_kv.c - kv_insert and kv_gather. */
#include <string.h>

#include <megamla/kv.h>

#include "app/capture/capture_op.h"
#include "base/check.h"
#include "base/error.h"

static const char *const scale_floors[] = {"amax", "scale", NULL}; /* mmla_scale_floor */

/* kv_insert. U is T', the slots there are. */
static const capture_input insert_inputs[] = {
    {"rows", SAFETENSORS_BF16, "T 512", 16, false},
    {"positions", SAFETENSORS_I64, "T", 8, false},
    {"slots", SAFETENSORS_I64, "U", 8, false},
    {"cos_sin", SAFETENSORS_F32, "P 64", 4, false},
    {"cache", SAFETENSORS_U8, "w x", 16, false},
    {"norm_weight", SAFETENSORS_F32, "512", 4, true},
    {0},
};
enum { IN_ROWS, IN_POSITIONS, IN_SLOTS, IN_COS_SIN, IN_INSERT_CACHE, IN_NORM_WEIGHT };

static const capture_attr insert_attrs[] = {
    {"ratio", CAPTURE_INT, "1", NULL, 1, 2, NULL},
    {"scale_floor", CAPTURE_CHOICE, "amax", NULL, 0, 0, scale_floors},
    {"norm_eps", CAPTURE_REAL, NULL, "norm_weight", 0, 0, NULL},
    CAPTURE_CACHE_ATTRS("cache", NULL),
    {0},
};
enum { AT_RATIO, AT_SCALE_FLOOR, AT_NORM_EPS, AT_INSERT_CACHE };

typedef struct insert_state {
    mmla_kv_insert_plan *plan;
    mmla_kv_insert_args args;
} insert_state;

static mmla_status insert_create(capture_call *call, const char *implementation, mmla_error *err) {
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(insert_state), err));
    insert_state *s = call->state;
    MMLA_RETURN_IF_FAILED(capture_cache_check(c, IN_INSERT_CACHE, err));
    if (capture_dim(c, 'U') > capture_dim(c, 'T')) {
        return mmla_error_set(err, MMLA_E_SHAPE, "slots", "has %lld entries for %lld rows",
                              (long long)capture_dim(c, 'U'), (long long)capture_dim(c, 'T'));
    }
    const mmla_kv_insert_desc desc = {
        .cache = capture_cache(c, IN_INSERT_CACHE, AT_INSERT_CACHE),
        .max_tokens = capture_dim(c, 'T'),
        .ratio = (int32_t)c->attrs[AT_RATIO].integer,
        .scale_floor = (mmla_scale_floor)c->attrs[AT_SCALE_FLOOR].integer,
        .norm = c->inputs[IN_NORM_WEIGHT] != NULL,
        .norm_eps = (float)c->attrs[AT_NORM_EPS].real,
        .rope_positions = capture_dim(c, 'P'),
        .implementation = implementation,
    };
    MMLA_RETURN_IF_FAILED(mmla_kv_insert_plan_create(call->ctx, &desc, &s->plan, err));
    call->implementation = mmla_kv_insert_plan_implementation(s->plan);
    MMLA_RETURN_IF_FAILED(
        capture_workspace_create(call, mmla_kv_insert_workspace_bytes(s->plan), err));

    /* The output is the whole cache with the rows in it; inserting twice changes nothing more. */
    const safetensors_tensor *cache = c->inputs[IN_INSERT_CACHE];
    MMLA_RETURN_IF_FAILED(
        capture_output_add(call, "cache", SAFETENSORS_U8, cache->rank, cache->shape, err));
    memcpy(call->memory[0], cache->data, (size_t)cache->n_bytes);
    s->args = (mmla_kv_insert_args){
        .n_rows = capture_dim(c, 'T'),
        .n_slots = capture_dim(c, 'U'),
        .rows = c->data[IN_ROWS],
        .positions = c->data[IN_POSITIONS],
        .slots = c->data[IN_SLOTS],
        .cos_sin = c->data[IN_COS_SIN],
        .norm_weight = c->data[IN_NORM_WEIGHT],
        .cache = call->memory[0],
        .n_faults = &call->n_faults,
    };
    device_stage_kv_insert(&call->stage, &desc, &s->args);
    return MMLA_OK;
}

static mmla_status insert_run(capture_call *call, mmla_error *err) {
    insert_state *s = call->state;
    s->args.error = err;
    return mmla_kv_insert_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static void insert_destroy(capture_call *call) {
    mmla_kv_insert_plan_destroy(((insert_state *)call->state)->plan);
}

const capture_op capture_op_kv_insert = {
    "kv_insert",   insert_inputs, insert_attrs, "kv_insert",    true,
    insert_create, insert_run,    NULL,         insert_destroy,
};

/* kv_gather */
static const capture_input gather_inputs[] = {
    {"cache", SAFETENSORS_U8, "w x", 16, false},
    {"block_table", SAFETENSORS_I32, "R B", 4, false},
    {"seq_lens", SAFETENSORS_I32, "R", 4, false},
    {"gather_lens", SAFETENSORS_I32, "R", 4, true},
    {0},
};
enum { IN_GATHER_CACHE, IN_BLOCK_TABLE, IN_SEQ_LENS, IN_GATHER_LENS };

static const capture_attr gather_attrs[] = {
    {"rows", CAPTURE_INT, NULL, NULL, 1, INT32_MAX, NULL},
    {"offset", CAPTURE_INT, "0", NULL, 0, INT32_MAX, NULL},
    CAPTURE_CACHE_ATTRS("cache", NULL),
    {0},
};
enum { AT_ROWS, AT_OFFSET, AT_GATHER_CACHE };

typedef struct gather_state {
    mmla_kv_gather_plan *plan;
    mmla_kv_gather_args args;
} gather_state;

static mmla_status gather_create(capture_call *call, const char *implementation, mmla_error *err) {
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(gather_state), err));
    gather_state *s = call->state;
    MMLA_RETURN_IF_FAILED(capture_cache_check(c, IN_GATHER_CACHE, err));
    const mmla_kv_gather_desc desc = {
        .cache = capture_cache(c, IN_GATHER_CACHE, AT_GATHER_CACHE),
        .max_requests = capture_dim(c, 'R'),
        .table_width = capture_dim32(c, 'B'),
        .rows = c->attrs[AT_ROWS].integer,
        .offset = c->attrs[AT_OFFSET].integer,
        .implementation = implementation,
    };
    MMLA_RETURN_IF_FAILED(mmla_kv_gather_plan_create(call->ctx, &desc, &s->plan, err));
    call->implementation = mmla_kv_gather_plan_implementation(s->plan);
    MMLA_RETURN_IF_FAILED(
        capture_workspace_create(call, mmla_kv_gather_workspace_bytes(s->plan), err));
    const int64_t shape[] = {desc.max_requests, desc.rows, MMLA_LATENT_DIM};
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "rows", SAFETENSORS_BF16, 3, shape, err));
    s->args = (mmla_kv_gather_args){
        .n_requests = desc.max_requests,
        .block_table = c->data[IN_BLOCK_TABLE],
        .seq_lens = c->data[IN_SEQ_LENS],
        .gather_lens = c->data[IN_GATHER_LENS],
        .cache = c->data[IN_GATHER_CACHE],
        .out = call->memory[0],
        .n_faults = &call->n_faults,
    };
    device_stage_kv_gather(&call->stage, &desc, &s->args);
    return MMLA_OK;
}

static mmla_status gather_run(capture_call *call, mmla_error *err) {
    gather_state *s = call->state;
    s->args.error = err;
    return mmla_kv_gather_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static void gather_destroy(capture_call *call) {
    mmla_kv_gather_plan_destroy(((gather_state *)call->state)->plan);
}

const capture_op capture_op_kv_gather = {
    "kv_gather",   gather_inputs, gather_attrs, "kv_gather",    true,
    gather_create, gather_run,    NULL,         gather_destroy,
};
