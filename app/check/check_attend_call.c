/* check_attend_call.c - plan, poison, run, look at what must not have changed. */
#include "app/check/check_attend_call.h"

#include <stdlib.h>
#include <string.h>

mmla_status check_attend_plan_create(mmla_context *ctx,
                                     const mmla_attend_desc *desc,
                                     bool chain,
                                     check_attend_plan *p,
                                     mmla_error *err) {
    *p = (check_attend_plan){0};
    mmla_status status;
    if (chain) {
        status = mmla_chain_plan_create(ctx, desc, &p->chain, err);
        p->workspace_bytes = status == MMLA_OK ? mmla_chain_workspace_bytes(p->chain) : 0;
    } else {
        status = mmla_attend_plan_create(ctx, desc, &p->fused, err);
        p->workspace_bytes = status == MMLA_OK ? mmla_attend_workspace_bytes(p->fused) : 0;
    }
    return status;
}

mmla_status check_attend_plan_run(const check_attend_plan *p,
                                  const mmla_attend_args *args,
                                  void *workspace,
                                  void *stream) {
    return p->chain != NULL ? mmla_chain_run(p->chain, args, workspace, stream)
                            : mmla_attend_run(p->fused, args, workspace, stream);
}

void check_attend_plan_destroy(check_attend_plan *p) {
    mmla_attend_plan_destroy(p->fused);
    mmla_chain_plan_destroy(p->chain);
    *p = (check_attend_plan){0};
}

device_options check_attend_staging(const check_attend_case *c, device_options staging) {
    staging.sparse[0] = check_cache_sparse(&c->window);
    staging.sparse[1] = check_cache_sparse(&c->compressed);
    return staging;
}

/* The arguments of the tokens that are to be run. */
static mmla_attend_args slice(const check_attend_case *c, const check_attend_call *call) {
    mmla_attend_args a = c->args;
    const mmla_attend_desc *d = &c->desc;
    a.n_tokens = call->n_tokens;
    a.q += call->first * d->q_token_stride;
    a.positions += call->first;
    a.list += call->first * d->list_stride;
    a.lens = a.lens != NULL ? a.lens + call->first : NULL;
    if (a.compressed_list != NULL) {
        a.compressed_list += call->first * d->compressed_stride;
    }
    a.compressed_lens = a.compressed_lens != NULL ? a.compressed_lens + call->first : NULL;
    return a;
}

static int32_t faults_in(const check_attend_case *c, const check_attend_call *call) {
    int32_t n = 0;
    for (int64_t t = call->first; t < call->first + call->n_tokens; t++) {
        n += c->tokens[t] == CHECK_TOKEN_FAULT;
    }
    return n;
}

bool check_attend_call_run(const check_attend_call *call,
                           const check_attend_case *c,
                           check_attend_result *result,
                           check_verdict *verdict) {
    enum { FAULTS_BEFORE = 7 }; /* the count is added to */
    *result = (check_attend_result){0};
    mmla_attend_desc desc = c->desc;
    desc.implementation = call->implementation;
    mmla_error err = {0};
    check_attend_plan p;
    const mmla_status planned = check_attend_plan_create(call->ctx, &desc, call->chain, &p, &err);
    if (planned != MMLA_OK) {
        if (planned != MMLA_E_NO_IMPLEMENTATION) {
            check_verdict_fail(verdict, "the plan was refused: %s", err.message);
        }
        return planned != MMLA_E_NO_IMPLEMENTATION;
    }
    check_attend_buffers b = check_attend_buffers_create(&desc, call->n_tokens, call->poison);
    check_buffer workspace = check_buffer_create((int64_t)p.workspace_bytes, 64, call->poison);
    int32_t n_faults = FAULTS_BEFORE;
    mmla_attend_args args = slice(c, call);
    args.out = b.out.data;
    args.out_scale = b.out_scale.data;
    if (!call->bare) {
        args.lse = (float *)b.lse.data;
        args.max_logits = (float *)b.max_logits.data;
        args.n_faults = &n_faults;
        args.error = &err;
    }
    const device_options staging = check_attend_staging(c, call->staging);
    device_call staged = {.ctx = call->ctx,
                          .options = &staging,
                          .workspace = workspace.data,
                          .workspace_bytes = p.workspace_bytes};
    const mmla_status status = call->chain ? device_call_chain(&staged, p.chain, &desc, &args)
                                           : device_call_attend(&staged, p.fused, &desc, &args);
    check_verdict_damage(verdict, &staged);
    const int32_t faults = faults_in(c, call);
    const mmla_status wanted = check_status_wanted(call->ctx, faults > 0);
    if (status != wanted) {
        check_verdict_fail(verdict, "run returned %s, not %s: %s", mmla_status_name(status),
                           mmla_status_name(wanted), err.message);
    }
    if (!call->bare && n_faults - FAULTS_BEFORE != faults) {
        check_verdict_fail(verdict, "%d faults were counted, not %d", n_faults - FAULTS_BEFORE,
                           faults);
    }
    if (!check_buffer_is_intact(&workspace)) {
        check_verdict_fail(verdict, "bytes before or behind the workspace were written");
    }
    check_attend_buffers_check(&b, &desc, call->n_tokens, call->poison, verdict);
    *result = check_attend_result_create(&b, &desc, call->n_tokens);
    result->status = status;
    if (call->corrupt && call->n_tokens > 0) {
        float *middle = result->out + call->n_tokens * desc.n_heads * MMLA_LATENT_DIM / 2;
        *middle = *middle * 4.0f + 16.0f;
    }
    check_buffer_destroy(&workspace);
    check_attend_buffers_destroy(&b);
    check_attend_plan_destroy(&p);
    return true;
}
