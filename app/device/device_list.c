/* device_list.c - the arrays of the index builders: those that the kind reads and writes. The
 * pointers of the others stay as they are, and a kernel that followed one would fault. */
#include "app/device/device_call.h"
#include "app/device/device_extent.h"

#define OF(kind) (1u << MMLA_LIST_##kind)
enum {
    BY_QUERY = OF(WINDOW) | OF(DRAFT) | OF(COMBINED) | OF(IMAGE_SPANS),
    BY_REQUEST = OF(COMPRESSED) | OF(COMPRESSED_SLOTS) | OF(RING_SLOTS),
    HAS_TABLE = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMPRESSED_SLOTS),
    HAS_LIST = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMBINED),
    HAS_SLOTS = OF(COMPRESSED_SLOTS) | OF(RING_SLOTS)
};

/* One array: which kinds have it, and the rest as of device_stage_add. */
typedef struct array {
    const char *name;
    void *pointer;
    int64_t bytes, element_bytes;
    unsigned kinds;
    device_access access;
} array;

void device_stage_list(device_stage *s, const mmla_list_desc *d, mmla_list_args *a) {
    const int64_t n = a->n_tokens, r = a->n_requests;
    if (n == 0) {
        return;
    }
    const unsigned images = d->image_tokens > 0 ? OF(COMBINED) : 0u;
    const int64_t table = device_extent(r, d->table_stride, d->table_width, 4);
    const int64_t topk = device_extent(n, d->topk_stride, d->topk_width, 4);
    const int64_t list = device_extent(n, d->list_stride, d->width, 4);
    /* A caller on the CPU need not tell how many spans there are. */
    int64_t n_spans = a->n_spans;
    if (d->kind == MMLA_LIST_IMAGE_SPANS && n_spans == 0 && r > 0 && a->span_start != NULL) {
        n_spans = mmla_max_i64(a->span_start[r], 0);
    }
    const array arrays[] = {
        {"query_start", &a->query_start, (r + 1) * 4, 4, BY_QUERY, DEVICE_IN},
        {"seq_lens", &a->seq_lens, r * 4, 4, BY_QUERY, DEVICE_IN},
        {"gather_lens", &a->gather_lens, r * 4, 4, OF(COMBINED), DEVICE_IN},
        {"block_table", &a->block_table, table, 4, HAS_TABLE, DEVICE_IN},
        {"ring_blocks", &a->ring_blocks, r * 4, 4, OF(RING_SLOTS), DEVICE_IN},
        {"request", &a->request, n * 4, 4, BY_REQUEST, DEVICE_IN},
        {"topk", &a->topk, topk, 4, OF(COMPRESSED) | OF(COMBINED), DEVICE_IN},
        {"positions", &a->positions, n * 8, 8, HAS_SLOTS, DEVICE_IN},
        {"slots", &a->slots, n * 8, 8, HAS_SLOTS, DEVICE_IN},
        {"valid", &a->valid, n, 1, HAS_LIST, DEVICE_IN},
        {"left", &a->left, n * 4, 4, images, DEVICE_IN},
        {"right", &a->right, n * 4, 4, images, DEVICE_IN},
        {"span_start", &a->span_start, (r + 1) * 4, 4, OF(IMAGE_SPANS), DEVICE_IN},
        {"spans", &a->spans, n_spans * 8, 4, OF(IMAGE_SPANS), DEVICE_IN},
        {"list", &a->list, list, 4, HAS_LIST, DEVICE_OUT},
        {"lens", &a->lens, n * 4, 4, HAS_LIST, DEVICE_OUT},
        {"out_slots", &a->out_slots, n * 8, 8, HAS_SLOTS, DEVICE_OUT},
        {"out_left", &a->out_left, n * 4, 4, OF(IMAGE_SPANS), DEVICE_OUT},
        {"out_right", &a->out_right, n * 4, 4, OF(IMAGE_SPANS), DEVICE_OUT},
        {"n_faults", &a->n_faults, 4, 4, ~0u, DEVICE_OUT},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        const array *it = &arrays[i];
        if ((it->kinds & (1u << d->kind)) != 0) {
            device_stage_add(s, it->name, it->pointer, it->bytes, it->element_bytes, it->access);
        }
    }
}
#undef OF

typedef struct list_job {
    const mmla_list_plan *plan;
    mmla_list_args args;
} list_job;

static mmla_status list_run(void *job, void *workspace, void *stream) {
    const list_job *j = job;
    return mmla_list_run(j->plan, &j->args, workspace, stream);
}

mmla_status device_call_list(device_call *call,
                             const mmla_list_plan *plan,
                             const mmla_list_desc *desc,
                             const mmla_list_args *args) {
    list_job job = {plan, *args};
    device_run run;
    device_run_begin(call, &run);
    device_stage_list(&run.stage, desc, &job.args);
    return device_run_finish(call, &run, list_run, &job, args->error);
}
