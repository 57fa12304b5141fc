#include "app/cli/run_measure.h"

#include <stdlib.h>

#include "app/device/device_clock.h"
#include "app/term/term.h"
#include "app/report/report_quantiles.h"
#include "base/check.h"

/* Without a number of repeats: enough samples for a median, but no wait. */
_Static_assert((int)DEVICE_MARKS > (int)MMLA_CHAIN_STEPS, "a mark before and behind every step");
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

/* The clocks of the two calls. */
typedef struct clocks {
    device_clock fused, chain;
} clocks;

static mmla_status warm_up(capture_call *call, mmla_error *err) {
    return call->stage.gpu != NULL ? capture_call_run(call, err) : MMLA_OK;
}

static mmla_status chain_sample(capture_call *chain, device_clock *c, samples *s, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(warm_up(chain, err));
    MMLA_RETURN_IF_FAILED(device_clock_mark(c, 0, err));
    for (int step = 0; step < MMLA_CHAIN_STEPS; step++) {
        MMLA_RETURN_IF_FAILED(capture_chain_step_run(chain, (mmla_chain_step)step, err));
        MMLA_RETURN_IF_FAILED(device_clock_mark(c, step + 1, err));
    }
    for (int step = 0; step < MMLA_CHAIN_STEPS; step++) {
        MMLA_RETURN_IF_FAILED(device_clock_between(c, step, step + 1, &s->steps[step][s->n], err));
    }
    return device_clock_between(c, 0, MMLA_CHAIN_STEPS, &s->chain[s->n], err);
}

static mmla_status
call_sample(capture_call *call, device_clock *c, double *seconds, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(device_clock_mark(c, 0, err));
    MMLA_RETURN_IF_FAILED(capture_call_run(call, err));
    MMLA_RETURN_IF_FAILED(device_clock_mark(c, 1, err));
    return device_clock_between(c, 0, 1, seconds, err);
}

static mmla_status
sample(capture_call *call, capture_call *chain, clocks *c, samples *s, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(warm_up(call, err));
    MMLA_RETURN_IF_FAILED(call_sample(call, &c->fused, &s->fused[s->n], err));
    return chain != NULL ? chain_sample(chain, &c->chain, s, err) : MMLA_OK;
}

static bool is_enough(int n, int n_repeats, double waited) {
    if (n_repeats > 0) {
        return n >= n_repeats;
    }
    return n >= REPEATS_MOST || (n >= REPEATS_LEAST && waited > WAIT_SECONDS) ||
           (n >= 1 && waited > WAIT_LONGEST_SECONDS);
}

static mmla_status collect(capture_call *call,
                           capture_call *chain,
                           int n_repeats,
                           clocks *c,
                           samples *s,
                           mmla_error *err) {
    MMLA_RETURN_IF_FAILED(device_clock_create(&c->fused, call->ctx, call->stage.stream, err));
    if (chain != NULL) {
        MMLA_RETURN_IF_FAILED(device_clock_create(&c->chain, chain->ctx, chain->stage.stream, err));
    }
    const double start = term_now();
    MMLA_RETURN_IF_FAILED(
        sample(call, chain, c, s, err)); /* overwritten by the first that counts */
    do {
        MMLA_RETURN_IF_FAILED(sample(call, chain, c, s, err));
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
    clocks c = {0};
    const mmla_status status = collect(call, chain, n_repeats, &c, s, err);
    device_clock_destroy(&c.fused);
    device_clock_destroy(&c.chain);
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

mmla_status run_measure_once(capture_call *call, double *seconds, mmla_error *err) {
    device_clock c;
    mmla_status status = device_clock_create(&c, call->ctx, call->stage.stream, err);
    status = status == MMLA_OK ? call_sample(call, &c, seconds, err) : status;
    device_clock_destroy(&c);
    return status;
}
