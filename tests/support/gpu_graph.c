#include "support/gpu_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

mmla_status test_graph_run(test_mirror *m, test_enqueue_fn enqueue, const void *call) {
    mmla_gpu_graph *graph = NULL;
    mmla_error err;
    assert_int_equal(mmla_gpu_capture_begin(&m->gpu, m->stream, &err), MMLA_OK);
    const mmla_status status = enqueue(call, m->stream);
    if (mmla_gpu_capture_end(&m->gpu, m->stream, &graph, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    if (status == MMLA_OK) {
        for (int i = 0; i < 2; i++) {
            if (mmla_gpu_graph_launch(&m->gpu, graph, m->stream, &err) != MMLA_OK ||
                mmla_gpu_stream_wait(&m->gpu, m->stream, &err) != MMLA_OK) {
                fail_msg("%s", err.message);
            }
            if (i == 0) {
                test_mirror_push(m);
            }
        }
    }
    mmla_gpu_graph_destroy(&m->gpu, graph);
    return status;
}
