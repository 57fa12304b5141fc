#include "app/check/check_attend_staged.h"

#include <string.h>

#include "base/check.h"

enum { FAULTS_BEFORE = 7, POISON_FIRST = 0x5A };

bool check_attend_staged_create(check_attend_staged *staged,
                                mmla_context *ctx,
                                check_attend_case *c,
                                const char *implementation,
                                device_options staging,
                                check_verdict *verdict) {
    *staged = (check_attend_staged){.c = c, .desc = c->desc, .args = c->args};
    const device_options options = check_attend_staging(c, staging);
    device_stage_init(&staged->stage, ctx, &options);
    staged->desc.implementation = implementation;
    const mmla_status planned =
        check_attend_plan_create(ctx, &staged->desc, false, &staged->plan, &staged->err);
    if (planned != MMLA_OK) {
        if (planned != MMLA_E_NO_IMPLEMENTATION) {
            check_verdict_fail(verdict, "the plan was refused: %s", staged->err.message);
        }
        return false;
    }
    const int64_t workspace_bytes = (int64_t)staged->plan.workspace_bytes;
    mmla_attend_args *args = &staged->args;
    staged->results = check_attend_buffers_create(&staged->desc, args->n_tokens, POISON_FIRST);
    staged->workspace_memory = check_buffer_create(workspace_bytes, 64, POISON_FIRST);
    staged->workspace = staged->workspace_memory.data;
    args->out = staged->results.out.data;
    args->out_scale = staged->results.out_scale.data;
    args->lse = (float *)staged->results.lse.data;
    args->max_logits = (float *)staged->results.max_logits.data;
    args->n_faults = &staged->n_faults;
    args->error = &staged->err;
    device_stage_attend(&staged->stage, &staged->desc, args);
    device_stage_workspace(&staged->stage, &staged->workspace, staged->plan.workspace_bytes);
    return true;
}

void check_attend_staged_destroy(check_attend_staged *staged) {
    device_stage_deinit(&staged->stage);
    check_attend_plan_destroy(&staged->plan);
    check_attend_buffers_destroy(&staged->results);
    check_buffer_destroy(&staged->workspace_memory);
}

static void poison(check_buffer *b, uint8_t byte) {
    if (b->data != NULL) {
        memset(b->data, byte, (size_t)b->bytes);
    }
}

mmla_status check_attend_staged_upload(check_attend_staged *staged, uint8_t byte) {
    check_attend_buffers *b = &staged->results;
    check_buffer *const results[] = {&b->out, &b->out_scale, &b->lse, &b->max_logits};
    for (int i = 0; i < 4; i++) {
        poison(results[i], byte);
    }
    staged->poison = byte;
    staged->n_faults = FAULTS_BEFORE;
    return staged->stage.is_uploaded ? device_stage_upload_again(&staged->stage, &staged->err)
                                     : device_stage_upload(&staged->stage, &staged->err);
}

mmla_status check_attend_staged_run(void *job, void *workspace, void *stream) {
    const check_attend_staged *staged = job;
    return check_attend_plan_run(&staged->plan, &staged->args, workspace, stream);
}

check_attend_result check_attend_staged_result(check_attend_staged *staged,
                                               mmla_status status,
                                               const char *what,
                                               check_verdict *verdict) {
    const int64_t n = staged->args.n_tokens;
    int32_t faults = 0;
    for (int64_t t = 0; t < n; t++) {
        faults += staged->c->tokens[t] == CHECK_TOKEN_FAULT;
    }
    const bool refused = staged->stage.gpu == NULL && faults > 0 && status == MMLA_E_INDEX;
    status = refused ? MMLA_OK : status;
    status = status == MMLA_OK ? device_stage_download(&staged->stage, &staged->err) : status;
    if (status != MMLA_OK) {
        check_verdict_fail(verdict, "%s: %s: %s", what, mmla_status_name(status),
                           staged->err.message);
        return (check_attend_result){0};
    }
    if (staged->n_faults - FAULTS_BEFORE != faults) {
        check_verdict_fail(verdict, "%s: %d faults were counted, not %d", what,
                           staged->n_faults - FAULTS_BEFORE, faults);
    }
    if (staged->stage.damage[0] != '\0') {
        check_verdict_fail(verdict, "%s: %s were written", what, staged->stage.damage);
    }
    check_attend_buffers_check(&staged->results, &staged->desc, n, staged->poison, verdict);
    return check_attend_result_create(&staged->results, &staged->desc, n);
}
