/* gpu_graph.h - one call from a graph that was recorded while its arrays held something else. */
#ifndef MMLA_TESTS_GPU_GRAPH_H
#define MMLA_TESTS_GPU_GRAPH_H

#include <megamla/status.h>

#include "support/gpu_mirror.h"

/* Enqueues the call on a stream. */
typedef mmla_status (*test_enqueue_fn)(const void *call, void *stream);

/* Records the call and launches it over the arrays as they are, before the first push all poison;
 * then pushes, and launches it again. Returns the call's status; then nothing was launched if that
 * is no success. */
mmla_status test_graph_run(test_mirror *m, test_enqueue_fn enqueue, const void *call);

#endif
