/* capture_op_attend.c - attend_paged and attend_rows, and the unfused chain on either. */
#include <stdlib.h>

#include <megamla/attend.h>
#include <megamla/chain.h>

#include "app/capture/capture_attend.h"
#include "app/capture/capture_op.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

static const char *const q_layouts[] = {"standard", "fused", NULL}; /* mmla_q_layout */
static const char *const out_forms[] = {"fp8_permuted", "fp8", "fp8_128", "bf16",
                                        NULL}; /* mmla_out_form */

/* Both tables begin alike: the places in capture_attend.h and AT_* serve both. */
static const capture_input paged_inputs[] = {
    {"q", SAFETENSORS_BF16, "T H 512", 16, false},
    {"positions", SAFETENSORS_I32, "T", 4, false},
    {"cos_sin", SAFETENSORS_F32, "P 64", 4, false},
    {"sink", SAFETENSORS_F32, "H", 4, true},
    {"window_cache", SAFETENSORS_U8, "w x", 16, false},
    {"window_list", SAFETENSORS_I32, "T K", 4, false},
    {"window_lens", SAFETENSORS_I32, "T", 4, true},
    {"compressed_cache", SAFETENSORS_U8, "c d", 16, true},
    {"compressed_list", SAFETENSORS_I32, "T E", 4, true},
    {"compressed_lens", SAFETENSORS_I32, "T", 4, true},
    {0},
};

static const capture_input rows_inputs[] = {
    {"q", SAFETENSORS_BF16, "T H 512", 16, false}, /* as above */
    {"positions", SAFETENSORS_I32, "T", 4, false},
    {"cos_sin", SAFETENSORS_F32, "P 64", 4, false},
    {"sink", SAFETENSORS_F32, "H", 4, true},
    {"kv", SAFETENSORS_BF16, "S 512", 16, false}, /* from here its own */
    {"list", SAFETENSORS_I32, "T K", 4, false},
    {"lens", SAFETENSORS_I32, "T", 4, true},
    {0},
};

static const capture_attr paged_attrs[] = {
    {"scale", CAPTURE_REAL, NULL, NULL, 0, 0, NULL},
    {"q_layout", CAPTURE_CHOICE, NULL, NULL, 0, 0, q_layouts},
    {"q_norm_eps", CAPTURE_REAL, "", NULL, 0, 0, NULL},
    {"out_form", CAPTURE_CHOICE, "fp8_permuted", NULL, 0, 0, out_forms},
    {"impl", CAPTURE_TEXT, "", NULL, 0, 0, NULL},
    CAPTURE_CACHE_ATTRS("window_cache", NULL),
    CAPTURE_CACHE_ATTRS("compressed_cache", "compressed_cache"),
    {0},
};

static const capture_attr rows_attrs[] = {
    {"scale", CAPTURE_REAL, NULL, NULL, 0, 0, NULL},
    {"q_layout", CAPTURE_CHOICE, NULL, NULL, 0, 0, q_layouts},
    {"q_norm_eps", CAPTURE_REAL, "", NULL, 0, 0, NULL},
    {"out_form", CAPTURE_CHOICE, "fp8_permuted", NULL, 0, 0, out_forms},
    {"impl", CAPTURE_TEXT, "", NULL, 0, 0, NULL},
    {0},
};

enum { AT_SCALE, AT_Q_LAYOUT, AT_Q_NORM_EPS, AT_OUT_FORM, AT_IMPL, AT_WINDOW, AT_COMPRESSED = 7 };

/* Scale words of one group: four of its chunk scales each. */
enum { GROUP_WORDS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4 };

typedef struct state {
    mmla_attend_plan *plan; /* one of the two */
    mmla_chain_plan *chain;
    mmla_attend_args args;
    int32_t *words; /* packed scales of MMLA_OUT_FP8_PERMUTED, else NULL */
    int64_t word_stride;
} state;

mmla_out_form capture_attend_form(const capture *c) {
    return (mmla_out_form)c->attrs[AT_OUT_FORM].integer;
}

const char *capture_attend_layout_name(const capture *c) {
    return q_layouts[c->attrs[AT_Q_LAYOUT].integer];
}

const char *capture_attend_form_name(const capture *c) {
    return out_forms[c->attrs[AT_OUT_FORM].integer];
}

/* A compressed cache needs a list; a list needs a cache. */
static mmla_status together_check(const capture *c, mmla_error *err) {
    const bool has_cache = c->inputs[CAPTURE_IN_COMPRESSED_CACHE] != NULL;
    const bool has_list = c->inputs[CAPTURE_IN_COMPRESSED_LIST] != NULL;
    if (has_cache && !has_list) {
        return mmla_error_set(err, MMLA_E_VALUE, "compressed_list",
                              "tensor is missing beside compressed_cache");
    }
    if (!has_cache && (has_list || c->inputs[CAPTURE_IN_COMPRESSED_LENS] != NULL)) {
        return mmla_error_set(err, MMLA_E_VALUE, "compressed_cache",
                              "tensor is missing beside its list or lens");
    }
    return MMLA_OK;
}

mmla_attend_desc capture_attend_desc(const capture *c) {
    const capture_value *eps = &c->attrs[AT_Q_NORM_EPS];
    mmla_attend_desc desc = {
        .n_heads = capture_dim32(c, 'H'),
        .max_tokens = capture_dim(c, 'T'),
        .scale = (float)c->attrs[AT_SCALE].real,
        .q_layout = (mmla_q_layout)c->attrs[AT_Q_LAYOUT].integer,
        .q_norm = eps->present,
        .q_norm_eps = (float)eps->real,
        .rope_positions = capture_dim(c, 'P'),
        .out_form = capture_attend_form(c),
        .list_width = capture_dim32(c, 'K'),
        .implementation = c->attrs[AT_IMPL].text,
    };
    if (c->op == &capture_op_attend_paged) {
        desc.kind = MMLA_ATTEND_PAGED;
        desc.window = capture_cache(c, CAPTURE_IN_WINDOW_CACHE, AT_WINDOW);
        desc.compressed = capture_cache(c, CAPTURE_IN_COMPRESSED_CACHE, AT_COMPRESSED);
        desc.compressed_width = capture_dim32(c, 'E');
    } else {
        desc.kind = MMLA_ATTEND_ROWS;
        desc.max_rows = capture_dim(c, 'S');
    }
    return desc;
}

static mmla_attend_args inputs_args(const capture *c) {
    mmla_attend_args args = {
        .n_tokens = capture_dim(c, 'T'),
        .q = c->data[CAPTURE_IN_Q],
        .positions = c->data[CAPTURE_IN_POSITIONS],
        .cos_sin = c->data[CAPTURE_IN_COS_SIN],
        .sink = c->data[CAPTURE_IN_SINK],
        .list = c->data[CAPTURE_IN_LIST],
        .lens = c->data[CAPTURE_IN_LENS],
    };
    if (c->op == &capture_op_attend_paged) {
        args.window_cache = c->data[CAPTURE_IN_WINDOW_CACHE];
        args.compressed_cache = c->data[CAPTURE_IN_COMPRESSED_CACHE];
        args.compressed_list = c->data[CAPTURE_IN_COMPRESSED_LIST];
        args.compressed_lens = c->data[CAPTURE_IN_COMPRESSED_LENS];
    } else {
        args.kv = c->data[CAPTURE_IN_KV];
        args.n_rows = capture_dim(c, 'S');
    }
    return args;
}

/* The outputs of the form, in the order out, [out_scale,] lse, [max_logits]. */
static mmla_status outputs_create(capture_call *call, state *s, mmla_error *err) {
    const capture *c = call->capture;
    const int64_t t = capture_dim(c, 'T'), h = capture_dim(c, 'H');
    const int64_t groups = h / MMLA_HEADS_PER_GROUP;
    const mmla_out_form form = capture_attend_form(c);
    const int64_t permuted[] = {t, groups, MMLA_GROUP_DIM};
    const int64_t heads[] = {t, h, MMLA_LATENT_DIM};
    const safetensors_dtype dtype = form == MMLA_OUT_BF16 ? SAFETENSORS_BF16 : SAFETENSORS_F8_E4M3;
    MMLA_RETURN_IF_FAILED(capture_output_add(
        call, "out", dtype, 3, form == MMLA_OUT_FP8_PERMUTED ? permuted : heads, err));
    s->args.out = call->memory[0];
    if (form != MMLA_OUT_BF16) {
        const int64_t shapes[][3] = {
            [MMLA_OUT_FP8_PERMUTED] = {t, groups, MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM},
            [MMLA_OUT_FP8] = {t, h, MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM},
            [MMLA_OUT_FP8_128] = {t, h, MMLA_LATENT_DIM / CAPTURE_WIDE_CHUNK_DIM},
        };
        MMLA_RETURN_IF_FAILED(capture_output_add(
            call, "out_scale", form == MMLA_OUT_FP8_128 ? SAFETENSORS_F32 : SAFETENSORS_U8, 3,
            shapes[form], err));
        s->args.out_scale = call->memory[1];
    }
    MMLA_RETURN_IF_FAILED(capture_output_add(call, "lse", SAFETENSORS_F32, 2, heads, err));
    s->args.lse = call->memory[call->n_outputs - 1];
    if (c->op == &capture_op_attend_rows) {
        MMLA_RETURN_IF_FAILED(
            capture_output_add(call, "max_logits", SAFETENSORS_F32, 2, heads, err));
        s->args.max_logits = call->memory[call->n_outputs - 1];
    }
    if (form == MMLA_OUT_FP8_PERMUTED) {
        s->word_stride = mmla_round_up_i64(t, 4);
        s->words = capture_memory_create(
            (size_t)(groups * GROUP_WORDS * s->word_stride * (int64_t)sizeof *s->words));
        if (s->words == NULL) {
            return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for the scales");
        }
        s->args.out_scale = s->words;
    }
    return MMLA_OK;
}

/* The chain is there to be timed beside the call; that is worth no memory out of proportion. */
static mmla_status chain_size_check(const capture_call *call, size_t bytes, mmla_error *err) {
    if (capture_dim(call->capture, 'T') == 0) {
        return mmla_error_set(err, MMLA_E_SIZE, "", "there is no token");
    }
    return capture_workspace_is_in_proportion(call, bytes)
               ? MMLA_OK
               : mmla_error_set(err, MMLA_E_SIZE, "",
                                "its workspace of %zu bytes is out of proportion to the file",
                                bytes);
}

static mmla_status attend_create(capture_call *call, const char *implementation, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(capture_state_create(call, sizeof(state), err));
    state *s = call->state;
    if (call->capture->op == &capture_op_attend_paged) {
        MMLA_RETURN_IF_FAILED(together_check(call->capture, err));
        MMLA_RETURN_IF_FAILED(capture_cache_check(call->capture, CAPTURE_IN_WINDOW_CACHE, err));
        MMLA_RETURN_IF_FAILED(capture_cache_check(call->capture, CAPTURE_IN_COMPRESSED_CACHE, err));
    }
    mmla_attend_desc desc = capture_attend_desc(call->capture);
    s->args = inputs_args(call->capture);
    if (implementation != NULL) {
        desc.implementation = implementation;
    }
    size_t workspace_bytes;
    if (call->op == &capture_op_chain) {
        desc.implementation = NULL; /* the chain has its own way of doing each step */
        MMLA_RETURN_IF_FAILED(mmla_chain_plan_create(call->ctx, &desc, &s->chain, err));
        workspace_bytes = mmla_chain_workspace_bytes(s->chain);
        MMLA_RETURN_IF_FAILED(chain_size_check(call, workspace_bytes, err));
    } else {
        MMLA_RETURN_IF_FAILED(mmla_attend_plan_create(call->ctx, &desc, &s->plan, err));
        workspace_bytes = mmla_attend_workspace_bytes(s->plan);
        call->implementation = mmla_attend_plan_implementation(s->plan);
    }
    MMLA_RETURN_IF_FAILED(capture_workspace_create(call, workspace_bytes, err));
    MMLA_RETURN_IF_FAILED(outputs_create(call, s, err));
    s->args.n_faults = &call->n_faults;
    device_stage_attend(&call->stage, &desc, &s->args);
    return MMLA_OK;
}

static mmla_status attend_run(capture_call *call, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_attend_run(s->plan, &s->args, call->workspace, call->stage.stream);
}

static mmla_status chain_run(capture_call *call, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_chain_run(s->chain, &s->args, call->workspace, call->stage.stream);
}

mmla_status capture_chain_step_run(capture_call *call, mmla_chain_step step, mmla_error *err) {
    state *s = call->state;
    s->args.error = err;
    return mmla_chain_step_run(s->chain, step, &s->args, call->workspace, call->stage.stream);
}

/* Packed words with token stride 1 -> plain bytes [T, G, 128]. */
static void attend_finish(capture_call *call) {
    const state *s = call->state;
    if (s->words == NULL) {
        return;
    }
    const int64_t n_tokens = call->outputs[1].shape[0], groups = call->outputs[1].shape[1];
    uint8_t *bytes = call->memory[1];
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t g = 0; g < groups; g++) {
            for (int64_t w = 0; w < GROUP_WORDS; w++) {
                const uint32_t word =
                    (uint32_t)s->words[(g * GROUP_WORDS + w) * s->word_stride + t];
                for (int k = 0; k < 4; k++) {
                    *bytes++ = (uint8_t)(word >> (8 * k));
                }
            }
        }
    }
}

static void attend_destroy(capture_call *call) {
    state *s = call->state;
    mmla_attend_plan_destroy(s->plan);
    mmla_chain_plan_destroy(s->chain);
    free(s->words);
}

const capture_op capture_op_attend_paged = {
    "attend_paged", paged_inputs, paged_attrs,   "attend",       true,
    attend_create,  attend_run,   attend_finish, attend_destroy,
};

const capture_op capture_op_attend_rows = {
    "attend_rows", rows_inputs, rows_attrs,    "attend",       true,
    attend_create, attend_run,  attend_finish, attend_destroy,
};

/* Not an operation of a file: what capture_chain_create runs on the other two. */
const capture_op capture_op_chain = {
    "chain", NULL, NULL, "chain", false, attend_create, chain_run, attend_finish, attend_destroy,
};
