/* device_attend.c - the arrays of the fused call, which the unfused chain takes as well. */
#include "app/device/device_call.h"
#include "app/device/device_extent.h"

enum { D = MMLA_LATENT_DIM, WIDE_CHUNK_DIM = 128 /* under one scale of MMLA_OUT_FP8_128 */ };

static int64_t out_scale_bytes(const mmla_attend_desc *d, int64_t n_tokens) {
    switch (d->out_form) {
    case MMLA_OUT_FP8_PERMUTED:
        return device_packed_extent(n_tokens, d->n_heads / MMLA_HEADS_PER_GROUP,
                                    d->out_scale_word_stride, d->out_scale_group_stride);
    case MMLA_OUT_FP8:
        return n_tokens * d->n_heads * (D / MMLA_OUT_CHUNK_DIM);
    case MMLA_OUT_FP8_128:
        return n_tokens * d->n_heads * (D / WIDE_CHUNK_DIM) * (int64_t)sizeof(float);
    case MMLA_OUT_BF16:
        break;
    }
    return 0;
}

void device_stage_results(
    device_stage *s, const mmla_attend_desc *d, int64_t n, void *out, void *out_scale, void *lse) {
    const int64_t code_bytes = d->out_form == MMLA_OUT_BF16 ? 2 : 1;
    device_stage_add(s, "out", out, n * d->n_heads * D * code_bytes, 32, DEVICE_OUT);
    if (d->out_form != MMLA_OUT_BF16) {
        device_stage_add(s, "out_scale", out_scale, out_scale_bytes(d, n), 4, DEVICE_OUT);
    }
    device_stage_add(s, "lse", lse, n * d->n_heads * 4, 4, DEVICE_OUT);
}

void device_stage_attend(device_stage *s, const mmla_attend_desc *d, mmla_attend_args *a) {
    const int64_t n = a->n_tokens, h = d->n_heads;
    if (n == 0) {
        return;
    }
    device_stage_add(s, "q", &a->q, device_extent(n, d->q_token_stride, h * D, 2), 16, DEVICE_IN);
    device_stage_add(s, "positions", &a->positions, n * 4, 4, DEVICE_IN);
    device_stage_add(s, "cos_sin", &a->cos_sin, d->rope_positions * MMLA_ROPE_DIM * 4, 4,
                     DEVICE_IN);
    device_stage_add(s, "sink", &a->sink, h * 4, 4, DEVICE_IN);
    device_stage_add(s, "list", &a->list, device_extent(n, d->list_stride, d->list_width, 4), 4,
                     DEVICE_IN);
    device_stage_add(s, "lens", &a->lens, n * 4, 4, DEVICE_IN);
    if (d->kind == MMLA_ATTEND_ROWS) {
        device_stage_add(s, "kv", &a->kv, device_extent(a->n_rows, d->kv_row_stride, D, 2), 16,
                         DEVICE_IN);
    } else {
        device_stage_add(s, "window_cache", &a->window_cache, device_cache_extent(&d->window), 16,
                         DEVICE_IN);
    }
    if (d->kind == MMLA_ATTEND_PAGED && d->compressed.format != MMLA_KV_NONE) {
        device_stage_add(s, "compressed_cache", &a->compressed_cache,
                         device_cache_extent(&d->compressed), 16, DEVICE_IN);
        device_stage_add(s, "compressed_list", &a->compressed_list,
                         device_extent(n, d->compressed_stride, d->compressed_width, 4), 4,
                         DEVICE_IN);
        device_stage_add(s, "compressed_lens", &a->compressed_lens, n * 4, 4, DEVICE_IN);
    }
    device_stage_results(s, d, n, &a->out, &a->out_scale, &a->lse);
    device_stage_add(s, "max_logits", &a->max_logits, n * h * 4, 4, DEVICE_OUT);
    device_stage_add(s, "n_faults", &a->n_faults, 4, 4, DEVICE_OUT);
}

typedef struct attend_job {
    const mmla_attend_plan *plan;
    mmla_attend_args args;
} attend_job;

static mmla_status attend_run(void *job, void *workspace, void *stream) {
    const attend_job *j = job;
    return mmla_attend_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_attend(device_call *call,
                               const mmla_attend_plan *plan,
                               const mmla_attend_desc *desc,
                               const mmla_attend_args *args) {
    attend_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_attend(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, attend_run, &job, args->error);
}

typedef struct chain_job {
    const mmla_chain_plan *plan;
    mmla_attend_args args;
} chain_job;

static mmla_status chain_run(void *job, void *workspace, void *stream) {
    const chain_job *j = job;
    return mmla_chain_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_chain(device_call *call,
                              const mmla_chain_plan *plan,
                              const mmla_attend_desc *desc,
                              const mmla_attend_args *args) {
    chain_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_attend(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, chain_run, &job, args->error);
}
