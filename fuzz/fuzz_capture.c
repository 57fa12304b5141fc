/* fuzz_capture.c - a capture file of any bytes: it is refused, or it runs.
 *
 * Whatever the reader accepts is planned, and run when that is little work, so that what the tables
 * of a capture promise to the operations is tested as well. The input must outlive the capture and
 * is not written to. */
#include <stdint.h>
#include <stdlib.h>

#include "app/capture/capture.h"
#include "app/capture/capture_attend.h"

/* A heads x keys x 1 KiB product of this size takes some milliseconds. */
enum { RUN_WORK_MAX = 1 << 16 };

/* How much running it would be; only attention multiplies its inputs. */
static int64_t work_of(const capture *c) {
    if (!capture_is_attend(c)) {
        return 0;
    }
    const mmla_attend_desc d = capture_attend_desc(c);
    return d.max_tokens * d.n_heads * ((int64_t)d.list_width + d.compressed_width);
}

static void try_run(const capture *c) {
    mmla_context *ctx = NULL;
    capture_call *call = NULL;
    mmla_error err;
    capture_usage usage;
    const mmla_context_options options = {.n_threads = 1};
    if (mmla_context_create(&options, &ctx, &err) != MMLA_OK) {
        abort();
    }
    if (capture_call_create(c, ctx, NULL, &call, &err) == MMLA_OK && work_of(c) <= RUN_WORK_MAX) {
        if (capture_call_run(call, &err) == MMLA_OK) {
            capture_call_finish(call, &err);
        }
        if (capture_is_attend(c)) {
            capture_usage_count(c, &usage, &err);
        }
    }
    capture_call_destroy(call);
    mmla_context_destroy(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    capture *c = NULL;
    mmla_error err = {0};
    const mmla_status status = capture_parse(data, size, &c, &err);
    if ((status == MMLA_OK) != (c != NULL) || (status != MMLA_OK && err.message[0] == '\0')) {
        abort(); /* a failure without a message, or a capture with one */
    }
    if (c != NULL) {
        try_run(c);
        capture_destroy(c);
    }
    return 0;
}
