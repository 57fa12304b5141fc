/* attend_mma_params_cuda.c - what a call tells the kernels of attention, whichever is launched. */
#include "gpu/attend_mma.h"

int64_t mmla_attend_mma_width(const mmla_attend_problem *p) {
    const mmla_attend_desc *d = &p->desc;
    const bool two = d->kind == MMLA_ATTEND_PAGED && p->compressed.format != MMLA_KV_NONE;
    return (int64_t)d->list_width + (two ? d->compressed_width : 0);
}

int32_t mmla_attend_mma_invariant_splits(const mmla_attend_problem *p) {
    return mmla_attend_mma_width(p) >= 512 ? 4 : mmla_attend_mma_width(p) >= 256 ? 2 : 1;
}

static void
lists_init(const mmla_attend_problem *p, const mmla_attend_args *args, attend_mma_list lists[2]) {
    const mmla_attend_desc *d = &p->desc;
    lists[0] = (attend_mma_list){.entries = args->list,
                                 .lens = args->lens,
                                 .stride = d->list_stride,
                                 .width = d->list_width};
    lists[1] = (attend_mma_list){0};
    if (d->kind == MMLA_ATTEND_ROWS) {
        lists[0].pool = (const uint8_t *)args->kv;
        lists[0].view = mmla_attend_rows_view(p, args);
        return;
    }
    lists[0].pool = args->window_cache;
    lists[0].view = p->window;
    if (p->compressed.format != MMLA_KV_NONE) {
        lists[1] = (attend_mma_list){.pool = args->compressed_cache,
                                     .entries = args->compressed_list,
                                     .lens = args->compressed_lens,
                                     .stride = d->compressed_stride,
                                     .width = d->compressed_width,
                                     .view = p->compressed};
    }
}

attend_mma_params mmla_attend_mma_params_get(const mmla_attend_problem *p,
                                             const mmla_attend_args *args) {
    const mmla_attend_desc *d = &p->desc;
    attend_mma_params params = {
        .n_heads = d->n_heads,
        .rotate = 1,
        .q = args->q,
        .q_token_stride = d->q_token_stride,
        .q_layout = d->q_layout,
        .norm_q = d->q_norm ? args->q : NULL,
        .norm_q_token_stride = d->q_token_stride,
        .norm_q_layout = d->q_layout,
        .q_norm_eps = d->q_norm_eps,
        .scale_log2e = (float)((double)d->scale * 1.44269504088896340736),
        .positions = args->positions,
        .cos_sin = args->cos_sin,
        .rope_positions = d->rope_positions,
        .sink = args->sink,
        .lse = args->lse,
        .max_logits = args->max_logits,
    };
    lists_init(p, args, params.lists);
    return params;
}

attend_mma_params mmla_attend_mma_fused_params_get(const mmla_attend_problem *p,
                                                   const mmla_attend_args *args) {
    attend_mma_params params = mmla_attend_mma_params_get(p, args);
    params.out = args->out;
    params.out_scale = args->out_scale;
    params.out_form = p->desc.out_form;
    params.scale_strides = mmla_out_scale_strides_get(
        p->desc.out_scale_word_stride, p->desc.out_scale_group_stride, args->n_tokens);
    params.n_faults = args->n_faults;
    return params;
}
