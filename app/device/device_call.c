/* device_call.c - what the calls of all operations have in common. */
#include "app/device/device_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

void device_stage_workspace(device_stage *s, void **workspace, size_t bytes) {
    device_stage_add(s, "the workspace", workspace, (int64_t)bytes, MMLA_WORKSPACE_ALIGNMENT,
                     DEVICE_SCRATCH);
}

void device_run_begin(const device_call *call, device_run *run) {
    *run = (device_run){.workspace = call->workspace};
    device_stage_init(&run->stage, call->ctx, call->options);
    if (call->workspace == NULL && call->workspace_bytes > 0) {
        const size_t bytes =
            (size_t)mmla_round_up_i64((int64_t)call->workspace_bytes, MMLA_WORKSPACE_ALIGNMENT);
        run->workspace = run->scratch = aligned_alloc(MMLA_WORKSPACE_ALIGNMENT, bytes);
        if (run->scratch != NULL) {
            memset(run->scratch, 0xFF, bytes);
        }
    }
    device_stage_workspace(&run->stage, &run->workspace, call->workspace_bytes);
}

/* The two launches described in device_call.h. */
static mmla_status
launch_twice(device_run *run, device_run_fn fn, void *job, device_graph *graph, mmla_error *err) {
    device_stage *s = &run->stage;
    MMLA_RETURN_IF_FAILED(device_stage_upload_blank(s, s->options.blank, err));
    MMLA_RETURN_IF_FAILED(device_graph_record(graph, s, fn, job, run->workspace, err));
    const mmla_status blank = device_graph_launch(graph, err);
    if (s->gpu != NULL) { /* the CPU may refuse such contents */
        MMLA_RETURN_IF_FAILED(blank);
    }
    MMLA_RETURN_IF_FAILED(device_stage_look(s, err));
    MMLA_RETURN_IF_FAILED(device_stage_upload_again(s, err));
    return device_graph_launch(graph, err);
}

static mmla_status launch_once(device_run *run, device_run_fn fn, void *job, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(device_stage_upload(&run->stage, err));
    return fn(job, run->workspace, run->stage.stream);
}

mmla_status device_run_finish(
    device_call *call, device_run *run, device_run_fn fn, void *job, mmla_error *err) {
    device_stage *s = &run->stage;
    device_graph graph = {0};
    mmla_status status;
    const int n_workspaces = call->workspace_bytes > 0; /* without arrays there is no work */
    call->damage[0] = '\0';
    if (run->workspace == NULL && call->workspace_bytes > 0) {
        status = mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory: %zu bytes were refused",
                                call->workspace_bytes);
    } else if (s->options.graph && s->n_fields > n_workspaces) {
        status = launch_twice(run, fn, job, &graph, err);
    } else {
        status = launch_once(run, fn, job, err);
    }
    if (s->is_uploaded) { /* a run that failed must not have harmed anything either */
        const mmla_status copied = device_stage_download(s, status == MMLA_OK ? err : NULL);
        status = status == MMLA_OK ? copied : status;
        memcpy(call->damage, s->damage, sizeof call->damage);
    }
    device_graph_destroy(&graph); /* which is not running any more */
    device_stage_deinit(s);
    free(run->scratch);
    return status;
}
