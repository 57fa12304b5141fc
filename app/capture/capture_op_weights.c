/* capture_op_weights.c - permute_wq_b and permute_wo_a: bytes in, the same bytes elsewhere. */
#include <megamla/weights.h>

#include "app/capture/capture_op.h"
#include "base/check.h"
#include "base/error.h"

enum { IN_WEIGHT, IN_SCALE };

static const capture_input wq_b_inputs[] = {
    {"weight", SAFETENSORS_U8, "N K", 1, false},
    {"scale", SAFETENSORS_U8, "N S", 1, false},
    {0},
};

static const capture_attr wq_b_attrs[] = {
    {"heads", CAPTURE_INT, NULL, NULL, 8, MMLA_HEADS_MAX, NULL},
    {0},
};

static const capture_input wo_a_inputs[] = {
    {"weight", SAFETENSORS_U8, "N 4096", 1, false},
    {"scale", SAFETENSORS_U8, "N 128", 1, false},
    {0},
};

static const capture_attr wo_a_attrs[] = {{0}};

typedef struct state {
    mmla_weights_plan *plan;
    mmla_weights_args args;
} state;

static mmla_status plan(capture_call *call, const mmla_weights_desc *desc, mmla_error *err) {
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    MMLA_RETURN_IF_FAILED(mmla_weights_plan_create(call->ctx, desc, &s->plan, err));
    MMLA_RETURN_IF_FAILED(
        capture_workspace_create(call, mmla_weights_workspace_bytes(s->plan), err));
    for (int i = IN_WEIGHT; i <= IN_SCALE; i++) {
        const safetensors_tensor *t = c->inputs[i];
        MMLA_RETURN_IF_FAILED(
            capture_output_add(call, t->name, SAFETENSORS_U8, t->rank, t->shape, err));
    }
    s->args = (mmla_weights_args){
        .in = c->data[IN_WEIGHT],
        .out = call->memory[IN_WEIGHT],
        .scale_in = c->data[IN_SCALE],
        .scale_out = call->memory[IN_SCALE],
    };
    device_stage_weights(&call->stage, desc, &s->args);
    return MMLA_OK;
}

static mmla_status wq_b_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    const capture *c = call->capture;
    const int64_t heads = c->attrs[0].integer;
    if (capture_dim(c, 'N') != heads * MMLA_LATENT_DIM) {
        return mmla_error_set(
            err, MMLA_E_SHAPE, "weight", "has %lld rows, heads = %lld makes it %lld",
            (long long)capture_dim(c, 'N'), (long long)heads, (long long)(heads * MMLA_LATENT_DIM));
    }
    return plan(call,
                &(mmla_weights_desc){
                    .kind = MMLA_WEIGHTS_PERMUTE_WQ_B,
                    .n_heads = (int32_t)heads,
                    .rows = capture_dim(c, 'N'),
                    .cols = capture_dim(c, 'K'),
                    .scale_cols = capture_dim(c, 'S'),
                },
                err);
}

static mmla_status wo_a_create(capture_call *call, const char *implementation, mmla_error *err) {
    (void)implementation;
    return plan(call,
                &(mmla_weights_desc){
                    .kind = MMLA_WEIGHTS_PERMUTE_WO_A,
                    .rows = capture_dim(call->capture, 'N'),
                },
                err);
}

static mmla_status weights_run(capture_call *call, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_weights_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static void weights_destroy(capture_call *call) {
    mmla_weights_plan_destroy(((state *)call->state)->plan);
}

const capture_op capture_op_permute_wq_b = {
    "permute_wq_b", wq_b_inputs, wq_b_attrs, "weights",       false,
    wq_b_create,    weights_run, NULL,       weights_destroy,
};

const capture_op capture_op_permute_wo_a = {
    "permute_wo_a", wo_a_inputs, wo_a_attrs, "weights",       false,
    wo_a_create,    weights_run, NULL,       weights_destroy,
};
