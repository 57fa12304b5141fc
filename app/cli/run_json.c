/* run_json.c - the summary for programs: the same facts, one JSON object. */
#include <math.h>

#include <jansson.h>

#include "app/cli/run_report.h"
#include "app/report/report_json.h"

static json_t *times_json(const run_times *t) {
    const bool spread = t->n >= RUN_PERCENTILES_MIN;
    return json_pack("{s:o, s:o, s:o, s:i}", "median_us", report_real(1e6 * t->median), "p10_us",
                     report_real(spread ? 1e6 * t->p10 : INFINITY), "p90_us",
                     report_real(spread ? 1e6 * t->p90 : INFINITY), "runs", t->n);
}

static json_t *chain_json(const run_measurement *m) {
    static const char *const names[MMLA_CHAIN_STEPS] = {"rope_q", "attend", "unrope", "quantise"};
    json_t *chain = times_json(&m->chain);
    json_t *steps = json_object();
    for (int i = 0; i < MMLA_CHAIN_STEPS; i++) {
        report_set(&steps, names[i], report_real(1e6 * m->chain_steps[i].median));
    }
    report_set(&chain, "steps_us", steps);
    report_set(&chain, "times_fused", report_real(m->chain.median / m->fused.median));
    return chain;
}

static json_t *sizes_json(run_sizes s) {
    return json_pack("{s:I, s:I, s:I}", "as_is", (json_int_t)s.as_is, "as_584", (json_int_t)s.as_v4,
                     "as_bf16", (json_int_t)s.as_bf16);
}

static json_t *attend_json(const run_report *r) {
    const capture_usage *u = &r->usage;
    return json_pack(
        "{s:I, s:I, s:i, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:o, s:o}", "tokens",
        (json_int_t)u->n_tokens, "tokens_without_keys", (json_int_t)u->n_empty, "heads",
        (int)capture_dim32(r->capture, 'H'), "q_layout", capture_attend_layout_name(r->capture),
        "out_form", capture_attend_form_name(r->capture), "keys", "window", (json_int_t)u->window.n,
        "compressed", (json_int_t)u->compressed.n, "least", (json_int_t)u->least, "most",
        (json_int_t)u->most, "kv_read_bytes", sizes_json(run_sizes_read(u)), "kv_held_bytes",
        sizes_json(run_sizes_stored(u)));
}

static json_t *difference_json(const capture_difference *d) {
    json_t *json = json_pack("{s:s, s:b, s:I, s:I}", "name", d->name, "passed", d->is_passed,
                             "elements", (json_int_t)d->n, "different", (json_int_t)d->n_different);
    if (d->is_near) {
        report_set(&json, "max_abs", report_real(d->max_abs));
        report_set(&json, "tolerance_used", report_real(check_near_used(&d->near)));
        report_set(&json, "cosine_distance", report_real(check_near_cosine(&d->near)));
    }
    return json;
}

static json_t *comparison_json(const run_report *r) {
    json_t *outputs = json_array();
    for (int32_t i = 0; i < r->n_differences; i++) {
        report_append(&outputs, difference_json(&r->differences[i]));
    }
    return json_pack("{s:s, s:b, s:b, s:o, s:o}", "with", r->compared_to, "itself", r->is_itself,
                     "passed", run_report_is_passed(r), "elapsed_us",
                     report_real(1e6 * r->compared_seconds), "outputs", outputs);
}

json_t *run_report_json(const run_report *r) {
    json_t *json =
        json_pack("{s:o, s:s, s:s, s:s, s:i, s:o}", "file", report_text(r->path), "op",
                  r->capture->op->name, "implementation", r->call->implementation, "device",
                  r->device, "threads", (int)r->n_threads, "elapsed", times_json(&r->times.fused));
    if (r->gpu != NULL) {
        report_set(&json, "gpu", report_text(r->gpu));
    }
    if (r->times.chain.n > 0) {
        report_set(&json, "chain", chain_json(&r->times));
    } else if (r->chain_missing[0] != '\0') {
        report_set(&json, "chain_not_timed", json_string(r->chain_missing));
    }
    if (capture_is_attend(r->capture)) {
        report_set(&json, "attend", attend_json(r));
    }
    if (r->compared_to != NULL) {
        report_set(&json, "comparison", comparison_json(r));
    }
    if (r->only != NULL) { /* asked for, but there is nothing to compare with */
        json_object_set_new(json, "comparison", json_null());
    }
    if (r->output != NULL) {
        report_set(&json, "output", report_text(r->output));
    }
    return json;
}
