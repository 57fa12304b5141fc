#include "app/device/device_clock.h"

#include "app/term/term.h"
#include "base/check.h"
#include "base/context.h"

mmla_status
device_clock_create(device_clock *clock, const mmla_context *ctx, void *stream, mmla_error *err) {
    *clock = (device_clock){.gpu = ctx->device.kind == MMLA_DEVICE_CUDA ? &ctx->gpu : NULL,
                            .stream = stream};
    for (int i = 0; clock->gpu != NULL && i < DEVICE_MARKS; i++) {
        MMLA_RETURN_IF_FAILED(mmla_gpu_event_create(clock->gpu, &clock->events[i], err));
    }
    return MMLA_OK;
}

void device_clock_destroy(device_clock *clock) {
    for (int i = 0; clock->gpu != NULL && i < DEVICE_MARKS; i++) {
        mmla_gpu_event_destroy(clock->gpu, clock->events[i]);
    }
    *clock = (device_clock){0};
}

mmla_status device_clock_mark(device_clock *clock, int mark, mmla_error *err) {
    if (clock->gpu != NULL) {
        return mmla_gpu_event_record(clock->gpu, clock->events[mark], clock->stream, err);
    }
    clock->seconds[mark] = term_now();
    return MMLA_OK;
}

mmla_status
device_clock_between(device_clock *clock, int from, int to, double *seconds, mmla_error *err) {
    *seconds = clock->seconds[to] - clock->seconds[from];
    if (clock->gpu == NULL) {
        return MMLA_OK;
    }
    double us = 0.0;
    const mmla_status status =
        mmla_gpu_event_elapsed_us(clock->gpu, clock->events[from], clock->events[to], &us, err);
    *seconds = us * 1e-6;
    return status;
}
