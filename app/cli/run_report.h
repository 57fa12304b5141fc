/* run_report.h - what `megamla run` tells: a summary for people, or JSON. */
#ifndef APP_CLI_RUN_REPORT_H
#define APP_CLI_RUN_REPORT_H

#include "app/capture/capture_attend.h"
#include "app/capture/capture_compare.h"
#include "app/cli/run_measure.h"

typedef struct run_report {
    const char *path;
    const capture *capture;
    const capture_call *call;
    const char *device; /* "cpu", "cuda:0" */
    const char *gpu;    /* its name; NULL on the CPU */
    int32_t n_threads;
    const char *chain_missing; /* why an attend capture has no times of the chain; else "" */
    run_measurement times;
    capture_usage usage;     /* of attend captures */
    const char *compared_to; /* an implementation's name; NULL: nothing was compared */
    bool is_itself;          /* with the very implementation that ran */
    const char *only;        /* a comparison was asked for, but this is the only implementation */
    double compared_seconds; /* one run of it */
    int32_t n_differences;
    capture_difference differences[CAPTURE_OUTPUTS_MAX];
    const char *output; /* where the outputs went; NULL: nowhere */
} run_report;

bool run_report_is_passed(const run_report *report);

void run_report_print(const run_report *report);

/* The same facts as a document of the caller's; NULL when memory is short. */
struct json_t *run_report_json(const run_report *report);

/* Records of the two lists, in bytes: as they are, as 584-byte records, as bf16 rows. */
typedef struct run_sizes {
    double as_is, as_v4, as_bf16;
} run_sizes;

run_sizes run_sizes_read(const capture_usage *usage);   /* every key counted */
run_sizes run_sizes_stored(const capture_usage *usage); /* every record once */

#endif
