#include "app/cli/run_measure.h"

#include <stdlib.h>

#include "app/term/term.h"
#include "app/report/report_quantiles.h"
#include "base/check.h"

/* Without a number of repeats: enough samples for a median, but no wait. */
enum { REPEATS_MOST = 51, REPEATS_LEAST = 3 };
static const double WAIT_SECONDS = 0.6, WAIT_LONGEST_SECONDS = 2.0;

typedef struct samples {
    int n;
    double fused[RUN_SAMPLES_MAX];
    double chain[RUN_SAMPLES_MAX];
    double steps[MMLA_CHAIN_STEPS][RUN_SAMPLES_MAX];
} samples;

static run_times times_of(double *seconds, int n) {
    const report_quantiles q = report_quantiles_of(seconds, n);
    return (run_times){n, q.median, q.p10, q.p90};
}

static mmla_status chain_sample(capture_call *chain, samples *s, mmla_error *err) {
    double last = term_now();
    s->chain[s->n] = 0.0;
    for (int step = 0; step < MMLA_CHAIN_STEPS; step++) {
        MMLA_RETURN_IF_FAILED(capture_chain_step_run(chain, (mmla_chain_step)step, err));
        const double now = term_now();
        s->steps[step][s->n] = now - last;
        s->chain[s->n] += now - last;
        last = now;
    }
    return MMLA_OK;
}

static mmla_status sample(capture_call *call, capture_call *chain, samples *s, mmla_error *err) {
    const double start = term_now();
    MMLA_RETURN_IF_FAILED(capture_call_run(call, err));
    s->fused[s->n] = term_now() - start;
    return chain != NULL ? chain_sample(chain, s, err) : MMLA_OK;
}

static bool is_enough(int n, int n_repeats, double waited) {
    if (n_repeats > 0) {
        return n >= n_repeats;
    }
    return n >= REPEATS_MOST || (n >= REPEATS_LEAST && waited > WAIT_SECONDS) ||
           (n >= 1 && waited > WAIT_LONGEST_SECONDS);
}

static mmla_status
collect(capture_call *call, capture_call *chain, int n_repeats, samples *s, mmla_error *err) {
    const double start = term_now();
    MMLA_RETURN_IF_FAILED(sample(call, chain, s, err)); /* overwritten by the first that counts */
    do {
        MMLA_RETURN_IF_FAILED(sample(call, chain, s, err));
        s->n++;
    } while (!is_enough(s->n, n_repeats, term_now() - start));
    return MMLA_OK;
}

mmla_status run_measure(
    capture_call *call, capture_call *chain, int n_repeats, run_measurement *out, mmla_error *err) {
    *out = (run_measurement){0};
    samples *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return MMLA_E_MEMORY;
    }
    const mmla_status status = collect(call, chain, n_repeats, s, err);
    if (status == MMLA_OK) {
        out->fused = times_of(s->fused, s->n);
        if (chain != NULL) {
            out->chain = times_of(s->chain, s->n);
            for (int step = 0; step < MMLA_CHAIN_STEPS; step++) {
                out->chain_steps[step] = times_of(s->steps[step], s->n);
            }
        }
    }
    free(s);
    return status;
}
