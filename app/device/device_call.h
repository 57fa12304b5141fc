/* device_call.h - one call of an operation on arrays in host memory, wherever its context runs.
 *
 *     device_call call = {.ctx = ctx, .workspace_bytes = mmla_attend_workspace_bytes(plan)};
 *     mmla_status status = device_call_attend(&call, plan, &desc, &args);
 *     if (call.damage[0] != '\0') ...
 *
 * takes the arguments as the operation does on the CPU. On a GPU it stages them (device_stage.h),
 * runs, waits, and brings the results back; what only contents can tell is then no status but a
 * count in n_faults. The device_stage_ functions are for those who run a call more than once.
 *
 * With options.graph the call is recorded while its inputs are made of one byte (all lengths -1 or
 * huge, all numbers NaN), launched so, and launched again with the inputs in place and the workspace
 * as the first launch left it. The results must be those of a plain call. Without a GPU the two
 * launches are plain calls.
 */
#ifndef APP_DEVICE_DEVICE_CALL_H
#define APP_DEVICE_DEVICE_CALL_H

#include <stddef.h>

#include <megamla/megamla.h>

#include "app/device/device_graph.h"
#include "app/device/device_stage.h"

typedef struct device_call {
    mmla_context *ctx;
    const device_options *options; /* NULL: all zero */
    /* The workspace in host memory, 64-byte aligned: on a GPU, what its copy holds before the call.
     * NULL: there is one of that many bytes of 0xFF. */
    void *workspace;
    size_t workspace_bytes;
    /* Filled: what the call harmed that was not its own, as far as staging can tell; else "". On
     * the CPU always "". */
    char damage[DEVICE_TEXT_BYTES];
} device_call;

/* Each returns the run's status, or why the arrays could not be brought there or back (MMLA_E_MEMORY,
 * MMLA_E_DEVICE); args->error has the sentence. `desc` is what the plan was made from. */
mmla_status device_call_attend(device_call *call,
                               const mmla_attend_plan *plan,
                               const mmla_attend_desc *desc,
                               const mmla_attend_args *args);
mmla_status device_call_chain(device_call *call,
                              const mmla_chain_plan *plan,
                              const mmla_attend_desc *desc,
                              const mmla_attend_args *args);
mmla_status
device_call_merge(device_call *call, const mmla_attend_merge_args *args, mmla_error *err);
mmla_status device_call_kv_insert(device_call *call,
                                  const mmla_kv_insert_plan *plan,
                                  const mmla_kv_insert_desc *desc,
                                  const mmla_kv_insert_args *args);
mmla_status device_call_kv_gather(device_call *call,
                                  const mmla_kv_gather_plan *plan,
                                  const mmla_kv_gather_desc *desc,
                                  const mmla_kv_gather_args *args);
mmla_status device_call_list(device_call *call,
                             const mmla_list_plan *plan,
                             const mmla_list_desc *desc,
                             const mmla_list_args *args);
mmla_status device_call_weights(device_call *call,
                                const mmla_weights_plan *plan,
                                const mmla_weights_desc *desc,
                                const mmla_weights_args *args);

/* With `wide`, memory of mmla_project_wide_bytes that holds anything, the call first makes a wide weight
 * there and is given it; NULL: it has none. */
mmla_status device_call_project(device_call *call,
                                const mmla_project_plan *plan,
                                const mmla_project_desc *desc,
                                const mmla_project_args *args,
                                void *wide);

/* Add the arrays of a call to a stage; `args` is a copy, whose pointers the upload changes. A call
 * without work adds none: nothing of it may be touched. `error` stays where it is. */
void device_stage_attend(device_stage *s, const mmla_attend_desc *desc, mmla_attend_args *args);
void device_stage_merge(device_stage *s, mmla_attend_merge_args *args);
void device_stage_kv_insert(device_stage *s,
                            const mmla_kv_insert_desc *desc,
                            mmla_kv_insert_args *args);
void device_stage_kv_gather(device_stage *s,
                            const mmla_kv_gather_desc *desc,
                            mmla_kv_gather_args *args);
void device_stage_list(device_stage *s, const mmla_list_desc *desc, mmla_list_args *args);
void device_stage_weights(device_stage *s, const mmla_weights_desc *desc, mmla_weights_args *args);
void device_stage_project(device_stage *s, const mmla_project_desc *desc, mmla_project_args *args);

/* Results of the fused call and of merge alike; the pointers are given by their addresses. */
void device_stage_results(device_stage *s,
                          const mmla_attend_desc *desc,
                          int64_t n_tokens,
                          void *out,
                          void *out_scale,
                          void *lse);

/* The workspace: *workspace is host memory of that many bytes, or NULL. */
void device_stage_workspace(device_stage *s, void **workspace, size_t bytes);

/* What every device_call_ is made of: begin, add the arrays to the stage, finish. */
typedef struct device_run {
    device_stage stage;
    void *workspace;
    void *scratch; /* the workspace of a caller who has none */
} device_run;

void device_run_begin(const device_call *call, device_run *run);
mmla_status
device_run_finish(device_call *call, device_run *run, device_run_fn fn, void *job, mmla_error *err);

#endif
