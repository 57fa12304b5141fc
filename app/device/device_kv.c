/* device_kv.c - the arrays of kv_insert and kv_gather. */
#include "app/device/device_call.h"
#include "app/device/device_extent.h"

void device_stage_kv_insert(device_stage *s, const mmla_kv_insert_desc *d, mmla_kv_insert_args *a) {
    const int64_t n = a->n_rows, dims = mmla_kv_dims(d->cache.format);
    if (a->n_slots == 0) {
        return;
    }
    device_stage_add(s, "rows", &a->rows, device_extent(n, d->row_stride, dims, 2), 16, DEVICE_IN);
    device_stage_add(s, "positions", &a->positions, n * 8, 8, DEVICE_IN);
    device_stage_add(s, "slots", &a->slots, a->n_slots * 8, 8, DEVICE_IN);
    device_stage_add(s, "cos_sin", &a->cos_sin, d->rope_positions * MMLA_ROPE_DIM * 4, 4,
                     DEVICE_IN);
    if (d->norm != 0) {
        device_stage_add(s, "norm_weight", &a->norm_weight, dims * 4, 4, DEVICE_IN);
    }
    device_stage_add(s, "the cache", &a->cache, device_cache_extent(&d->cache), 16, DEVICE_OUT);
    device_stage_add(s, "n_faults", &a->n_faults, 4, 4, DEVICE_OUT);
}

void device_stage_kv_gather(device_stage *s, const mmla_kv_gather_desc *d, mmla_kv_gather_args *a) {
    const int64_t n = a->n_requests;
    if (n == 0) {
        return;
    }
    device_stage_add(s, "block_table", &a->block_table,
                     device_extent(n, d->table_stride, d->table_width, 4), 4, DEVICE_IN);
    device_stage_add(s, "seq_lens", &a->seq_lens, n * 4, 4, DEVICE_IN);
    device_stage_add(s, "gather_lens", &a->gather_lens, n * 4, 4, DEVICE_IN);
    if (d->window > 0 && a->gather_lens == NULL) { /* else nobody looks at it */
        device_stage_add(s, "query_start", &a->query_start, (n + 1) * 4, 4, DEVICE_IN);
    }
    device_stage_add(s, "the cache", &a->cache, device_cache_extent(&d->cache), 16, DEVICE_IN);
    const int64_t rows = a->rows > 0 ? a->rows : d->rows;
    device_stage_add(s, "out", &a->out, device_extent(n * rows, d->row_stride, MMLA_LATENT_DIM, 2),
                     16, DEVICE_OUT);
    device_stage_add(s, "n_faults", &a->n_faults, 4, 4, DEVICE_OUT);
}

typedef struct kv_insert_job {
    const mmla_kv_insert_plan *plan;
    mmla_kv_insert_args args;
} kv_insert_job;

static mmla_status kv_insert_run(void *job, void *workspace, void *stream) {
    const kv_insert_job *j = job;
    return mmla_kv_insert_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_kv_insert(device_call *call,
                                  const mmla_kv_insert_plan *plan,
                                  const mmla_kv_insert_desc *desc,
                                  const mmla_kv_insert_args *args) {
    kv_insert_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_kv_insert(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, kv_insert_run, &job, args->error);
}

typedef struct kv_gather_job {
    const mmla_kv_gather_plan *plan;
    mmla_kv_gather_args args;
} kv_gather_job;

static mmla_status kv_gather_run(void *job, void *workspace, void *stream) {
    const kv_gather_job *j = job;
    return mmla_kv_gather_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_kv_gather(device_call *call,
                                  const mmla_kv_gather_plan *plan,
                                  const mmla_kv_gather_desc *desc,
                                  const mmla_kv_gather_args *args) {
    kv_gather_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_kv_gather(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, kv_gather_run, &job, args->error);
}
