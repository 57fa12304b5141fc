/* device_merge.c - the arrays of merge: two partial results, and results as the fused call has them.
 */
#include "app/device/device_call.h"

enum { D = MMLA_LATENT_DIM };

void device_stage_merge(device_stage *s, mmla_attend_merge_args *a) {
    const int64_t n = a->n_tokens, h = a->n_heads;
    if (n == 0) {
        return;
    }
    const mmla_attend_desc d = {.n_heads = a->n_heads,
                                .out_form = a->out_form,
                                .out_scale_word_stride = a->out_scale_word_stride,
                                .out_scale_group_stride = a->out_scale_group_stride};
    device_stage_add(s, "out_a", &a->out_a, n * h * D * 2, 16, DEVICE_IN);
    device_stage_add(s, "lse_a", &a->lse_a, n * h * 4, 4, DEVICE_IN);
    device_stage_add(s, "out_b", &a->out_b, n * h * D * 2, 16, DEVICE_IN);
    device_stage_add(s, "lse_b", &a->lse_b, n * h * 4, 4, DEVICE_IN);
    device_stage_add(s, "sink", &a->sink, h * 4, 4, DEVICE_IN);
    device_stage_results(s, &d, n, &a->out, &a->out_scale, &a->lse);
}

typedef struct merge_job {
    mmla_context *ctx;
    mmla_attend_merge_args args;
    mmla_error *err;
} merge_job;

static mmla_status merge_run(void *job, void *workspace, void *stream) {
    const merge_job *j = job;
    (void)workspace; /* it has none */
    return mmla_attend_merge(j->ctx, &j->args, stream, j->err);
}

mmla_status
device_call_merge(device_call *call, const mmla_attend_merge_args *args, mmla_error *err) {
    merge_job job = {call->ctx, *args, err};
    device_run run;
    device_run_begin(call, &run);
    device_stage_merge(&run.stage, &job.args);
    return device_run_finish(call, &run, merge_run, &job, err);
}
