#include "app/device/device_graph.h"

#include "base/check.h"

mmla_status device_graph_record(device_graph *graph,
                                const device_stage *stage,
                                device_run_fn fn,
                                void *job,
                                void *workspace,
                                mmla_error *err) {
    *graph = (device_graph){.stage = stage, .fn = fn, .job = job, .workspace = workspace};
    if (stage->gpu == NULL) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_gpu_capture_begin(stage->gpu, stage->stream, err));
    const mmla_status enqueued = fn(job, workspace, stage->stream);
    /* The capture ends in any case; the first failure is the one to tell. */
    const mmla_status ended = mmla_gpu_capture_end(stage->gpu, stage->stream, &graph->recorded,
                                                   enqueued == MMLA_OK ? err : NULL);
    return enqueued != MMLA_OK ? enqueued : ended;
}

mmla_status device_graph_launch(const device_graph *graph, mmla_error *err) {
    const device_stage *s = graph->stage;
    return graph->recorded != NULL ? mmla_gpu_graph_launch(s->gpu, graph->recorded, s->stream, err)
                                   : graph->fn(graph->job, graph->workspace, s->stream);
}

void device_graph_destroy(device_graph *graph) {
    if (graph->recorded != NULL) {
        mmla_gpu_graph_destroy(graph->stage->gpu, graph->recorded);
    }
    *graph = (device_graph){0};
}
