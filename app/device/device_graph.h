/* device_graph.h - a staged call recorded once and launched any number of times.
 *
 * The CPU has no graphs: there a recording is nothing and a launch is a plain call, so that what is
 * written with graphs can be tried without a GPU.
 */
#ifndef APP_DEVICE_DEVICE_GRAPH_H
#define APP_DEVICE_DEVICE_GRAPH_H

#include "app/device/device_stage.h"
#include "base/gpu_memory.h"

/* Enqueues a call on a stream. */
typedef mmla_status (*device_run_fn)(void *job, void *workspace, void *stream);

typedef struct device_graph {
    const device_stage *stage;
    device_run_fn fn;
    void *job, *workspace;
    mmla_gpu_graph *recorded; /* NULL on the CPU */
} device_graph;

/* Records fn(job) on the stage's stream; `stage` is uploaded, and `workspace` is what its upload made
 * of it. Destroy is needed in any case, when nothing of the graph runs any more. */
mmla_status device_graph_record(device_graph *graph,
                                const device_stage *stage,
                                device_run_fn fn,
                                void *job,
                                void *workspace,
                                mmla_error *err);
mmla_status device_graph_launch(const device_graph *graph, mmla_error *err);
void device_graph_destroy(device_graph *graph);

#endif
