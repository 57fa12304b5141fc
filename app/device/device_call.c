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

mmla_status device_run_begin(const device_call *call, device_run *run, mmla_error *err) {
    *run = (device_run){.workspace = call->workspace};
    device_stage_init(&run->stage, call->ctx, call->options);
    if (call->workspace == NULL && call->workspace_bytes > 0) {
        const size_t bytes =
            (size_t)mmla_round_up_i64((int64_t)call->workspace_bytes, MMLA_WORKSPACE_ALIGNMENT);
        run->workspace = run->scratch = aligned_alloc(MMLA_WORKSPACE_ALIGNMENT, bytes);
        if (run->scratch == NULL) {
            return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory: %zu bytes were refused",
                                  bytes);
        }
        memset(run->scratch, 0xFF, bytes);
    }
    device_stage_workspace(&run->stage, &run->workspace, call->workspace_bytes);
    return MMLA_OK;
}

mmla_status
device_run_end(device_call *call, device_run *run, mmla_status status, mmla_error *err) {
    call->damage[0] = '\0';
    if (run->stage.is_uploaded) { /* a run that failed must not have harmed anything either */
        const mmla_status copied =
            device_stage_download(&run->stage, status == MMLA_OK ? err : NULL);
        status = status == MMLA_OK ? copied : status;
        memcpy(call->damage, run->stage.damage, sizeof call->damage);
    }
    device_stage_deinit(&run->stage);
    free(run->scratch);
    return status;
}
