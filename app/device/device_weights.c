/* device_weights.c - the arrays of the weight layouts. */
#include "app/device/device_call.h"
#include "app/device/device_extent.h"

enum { BLOCK_ROWS = 32 /* weight rows under one block scale */ };

/* The description with the sizes that a kind fixes. */
static mmla_weights_desc with_defaults(const mmla_weights_desc *desc) {
    mmla_weights_desc d = *desc;
    const int64_t width = (int64_t)d.n_heads * MMLA_LATENT_DIM;
    switch (d.kind) {
    case MMLA_WEIGHTS_PERMUTE_WQ_B:
        d.rows = width;
        break;
    case MMLA_WEIGHTS_PERMUTE_WO_A:
        d.cols = MMLA_GROUP_DIM;
        d.scale_cols = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM;
        break;
    case MMLA_WEIGHTS_EXPAND_SCALES:
        break;
    case MMLA_WEIGHTS_Q_TO_FUSED:
    case MMLA_WEIGHTS_Q_TO_STANDARD:
        d.cols = width;
        break;
    }
    return d;
}

void device_stage_weights(device_stage *s, const mmla_weights_desc *desc, mmla_weights_args *a) {
    const mmla_weights_desc d = with_defaults(desc);
    const bool moves_q = d.kind == MMLA_WEIGHTS_Q_TO_FUSED || d.kind == MMLA_WEIGHTS_Q_TO_STANDARD;
    const bool expands = d.kind == MMLA_WEIGHTS_EXPAND_SCALES;
    if (d.rows == 0) {
        return;
    }
    if (!expands) {
        const int64_t element = moves_q ? 2 : 1, bytes = d.rows * d.cols * element;
        device_stage_add(s, "in", &a->in, bytes, element, DEVICE_IN);
        device_stage_add(s, "out", &a->out, bytes, element, DEVICE_OUT);
    }
    if (!moves_q) {
        const int64_t rows_in =
            expands ? mmla_round_up_i64(d.rows, BLOCK_ROWS) / BLOCK_ROWS : d.rows;
        device_stage_add(s, "scale_in", &a->scale_in, rows_in * d.scale_cols, 1, DEVICE_IN);
        device_stage_add(s, "scale_out", &a->scale_out, d.rows * d.scale_cols, 1, DEVICE_OUT);
    }
}

typedef struct weights_job {
    const mmla_weights_plan *plan;
    mmla_weights_args args;
} weights_job;

static mmla_status weights_run(void *job, void *workspace, void *stream) {
    const weights_job *j = job;
    return mmla_weights_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_weights(device_call *call,
                                const mmla_weights_plan *plan,
                                const mmla_weights_desc *desc,
                                const mmla_weights_args *args) {
    weights_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_weights(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, weights_run, &job, args->error);
}
