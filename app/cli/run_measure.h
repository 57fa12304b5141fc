/* run_measure.h - how long a captured call and its unfused chain take.
 *
 * On the CPU by its clock; on a GPU by events in the stream, behind another run of the same call, so
 * that the device is busy while the host enqueues.
 */
#ifndef APP_CLI_RUN_MEASURE_H
#define APP_CLI_RUN_MEASURE_H

#include "app/capture/capture.h"

enum { RUN_SAMPLES_MAX = 1000 };

/* Seconds. Fewer samples than RUN_PERCENTILES_MIN have no percentiles to speak of. */
typedef struct run_times {
    int n; /* samples */
    double median, p10, p90;
} run_times;

enum { RUN_PERCENTILES_MIN = 5 };

typedef struct run_measurement {
    run_times fused;
    run_times chain;                         /* n = 0 without a chain */
    run_times chain_steps[MMLA_CHAIN_STEPS]; /* rope q, attend, rotate back, quantise */
} run_measurement;

/* run_measure - run `call`, and in turn `chain` (may be NULL), and time both.
 *
 * One untimed run of each comes first, on a GPU before every timed one. n_repeats 0: as often as a short wait allows, 51 times at
 * most, so that a person gets an answer at once and a slow reference is not run in vain.
 * errors   what the operation returns */
mmla_status run_measure(
    capture_call *call, capture_call *chain, int n_repeats, run_measurement *out, mmla_error *err);

/* run_measure_once - one run, the first, and its seconds. */
mmla_status run_measure_once(capture_call *call, double *seconds, mmla_error *err);

#endif
