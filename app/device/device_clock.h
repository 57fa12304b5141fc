/* device_clock.h - how long what was enqueued between two marks took.
 *
 * On the CPU a mark is the time of day. On a GPU it is an event in the stream, so that what is
 * measured is the device's work and not the host's; the host should be ahead when the first mark is
 * reached, or its own time to enqueue is measured as well.
 */
#ifndef APP_DEVICE_DEVICE_CLOCK_H
#define APP_DEVICE_DEVICE_CLOCK_H

#include <megamla/context.h>

#include "base/gpu_memory.h"

enum { DEVICE_MARKS = 5 };

typedef struct device_clock {
    const mmla_gpu *gpu; /* NULL: the CPU */
    void *stream;
    mmla_gpu_event *events[DEVICE_MARKS];
    double seconds[DEVICE_MARKS];
} device_clock;

/* Destroy is needed in any case. */
mmla_status
device_clock_create(device_clock *clock, const mmla_context *ctx, void *stream, mmla_error *err);
void device_clock_destroy(device_clock *clock);

mmla_status device_clock_mark(device_clock *clock, int mark, mmla_error *err);

/* Waits for mark `to`. Fails with what went wrong in the work before it. */
mmla_status
device_clock_between(device_clock *clock, int from, int to, double *seconds, mmla_error *err);

#endif
