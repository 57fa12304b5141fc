/* capture_op_project.c - project: the grouped output projection, scales as plain bytes. */
#include <megamla/project.h>

#include "app/capture/capture_op.h"
#include "base/check.h"

static const capture_input inputs[] = {
    {"x", SAFETENSORS_F8_E4M3, "T G 4096", 16, false},
    {"x_scale", SAFETENSORS_U8, "T G 128", 1, false},
    {"weight", SAFETENSORS_F8_E4M3, "G 1024 4096", 16, false},
    {"weight_scale", SAFETENSORS_U8, "G 1024 128", 1, false},
    {0},
};
enum { IN_X, IN_X_SCALE, IN_WEIGHT, IN_WEIGHT_SCALE };

static const capture_attr attrs[] = {{0}};

enum { RANK = 1024 }; /* z of one group, as the input table has it */

typedef struct state {
    mmla_project_plan *plan;
    mmla_project_args args;
} state;

static mmla_status project_create(capture_call *call, const char *implementation, mmla_error *err) {
    const capture *c = call->capture;
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    const mmla_project_desc desc = {
        .n_groups = capture_dim32(c, 'G'),
        .max_tokens = capture_dim(c, 'T'),
        .rank = RANK,
        .x_scale_layout = MMLA_SCALE_BYTES,
        .implementation = implementation,
    };
    MMLA_RETURN_IF_FAILED(mmla_project_plan_create(call->ctx, &desc, &s->plan, err));
    call->implementation = mmla_project_plan_implementation(s->plan);
    MMLA_RETURN_IF_FAILED(
        capture_workspace_create(call, mmla_project_workspace_bytes(s->plan), err));
    const int64_t shape[] = {desc.max_tokens, desc.n_groups, RANK};
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "z", SAFETENSORS_BF16, 3, shape, err));
    s->args = (mmla_project_args){
        .n_tokens = desc.max_tokens,
        .x = c->data[IN_X],
        .x_scale = c->data[IN_X_SCALE],
        .weight = c->data[IN_WEIGHT],
        .weight_scale = c->data[IN_WEIGHT_SCALE],
        .z = call->memory[0],
    };
    device_stage_project(&call->stage, &desc, &s->args);
    return MMLA_OK;
}

static mmla_status project_run(capture_call *call, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_project_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static void project_destroy(capture_call *call) {
    mmla_project_plan_destroy(((state *)call->state)->plan);
}

const capture_op capture_op_project = {
    "project", inputs, attrs, "project", true, project_create, project_run, NULL, project_destroy,
};
