/* check_attend_staged.h - a case of the fused call in device memory, for runs of any kind and number.
 */
#ifndef APP_CHECK_CHECK_ATTEND_STAGED_H
#define APP_CHECK_CHECK_ATTEND_STAGED_H

#include "app/check/check_attend_call.h"

typedef struct check_attend_staged {
    check_attend_case *c; /* the caller's; its arrays may change between uploads */
    mmla_attend_desc desc;
    check_attend_plan plan;
    device_stage stage;
    mmla_attend_args args;
    check_attend_buffers results;
    check_buffer workspace_memory;
    void *workspace;
    int32_t n_faults;
    uint8_t poison; /* what the last upload put into the results */
    mmla_error err;
} check_attend_staged;

/* False when the implementation refuses the description; destroy is needed in any case. The struct
 * must not be moved. */
bool check_attend_staged_create(check_attend_staged *staged,
                                mmla_context *ctx,
                                check_attend_case *c,
                                const char *implementation,
                                device_options staging,
                                check_verdict *verdict);
void check_attend_staged_destroy(check_attend_staged *staged);

/* The case's arrays as they are now, and poisoned results. The workspace keeps what the last run
 * left in it, but for the first time. */
mmla_status check_attend_staged_upload(check_attend_staged *staged, uint8_t poison);

/* Enqueues the call; of a device_run_fn's form, with the staged case as the job. */
mmla_status check_attend_staged_run(void *staged, void *workspace, void *stream);

/* What a run after an upload left, or an empty result after a failure, whose status is `status`.
 * Everything that a look at one result can find wrong fails the verdict; `what` names the run. */
check_attend_result check_attend_staged_result(check_attend_staged *staged,
                                               mmla_status status,
                                               const char *what,
                                               check_verdict *verdict);

#endif
