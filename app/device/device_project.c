/* device_project.c - the arrays of the grouped output projection. */
#include "app/device/device_call.h"
#include "app/device/device_extent.h"
#include "base/check.h"

enum { K = MMLA_GROUP_DIM, CHUNKS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM, RANK_DEFAULT = 1024 };

void device_stage_project(device_stage *s, const mmla_project_desc *d, mmla_project_args *a) {
    const int64_t n = a->n_tokens, g = d->n_groups, rank = d->rank != 0 ? d->rank : RANK_DEFAULT;
    const bool packed = d->x_scale_layout == MMLA_SCALE_PACKED;
    if (n == 0) {
        return;
    }
    device_stage_add(s, "x", &a->x, n * g * K, 16, DEVICE_IN);
    device_stage_add(
        s, "x_scale", &a->x_scale,
        packed ? device_packed_extent(n, g, d->x_scale_word_stride, d->x_scale_group_stride)
               : n * g * CHUNKS,
        packed ? 4 : 1, DEVICE_IN);
    device_stage_add(s, "weight", &a->weight, g * rank * K, 16, DEVICE_IN);
    device_stage_add(s, "weight_scale", &a->weight_scale, g * rank * CHUNKS, 1, DEVICE_IN);
    device_stage_add(s, "z", &a->z, n * g * rank * 2, 2, DEVICE_OUT);
}

typedef struct project_job {
    const mmla_project_plan *plan;
    mmla_project_args args;
    void *wide; /* or NULL */
} project_job;

/* A wide weight is made by the call itself, so that a graph has both. */
static mmla_status project_run(void *job, void *workspace, void *stream) {
    const project_job *j = job;
    mmla_project_args args = j->args;
    args.weight_wide = j->wide;
    if (j->wide != NULL) {
        const mmla_project_widen_args widen = {.weight = args.weight,
                                               .weight_scale = args.weight_scale,
                                               .wide = j->wide,
                                               .error = args.error};
        MMLA_RETURN_IF_FAILED(mmla_project_widen(j->plan, &widen, stream));
    }
    return mmla_project_run(j->plan, &args, workspace, stream);
}

mmla_status device_call_project(device_call *call,
                                const mmla_project_plan *plan,
                                const mmla_project_desc *desc,
                                const mmla_project_args *args,
                                void *wide) {
    /* Without a token no array is on the device, and the weight cannot be read there. */
    project_job job = {plan, *args, args->n_tokens > 0 ? wide : NULL};
    device_run run;
    device_run_begin(call, &run);
    device_stage_project(&run.stage, desc, &job.args);
    device_stage_add(&run.stage, "wide", &job.wide, (int64_t)mmla_project_wide_bytes(plan), 128,
                     DEVICE_SCRATCH);
    return device_run_finish(call, &run, project_run, &job, args->error);
}
