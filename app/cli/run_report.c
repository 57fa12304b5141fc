/* run_report.c - the summary for people. */
#include "app/cli/cmd.h"
#include "app/cli/run_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/capture/capture_shape.h"
#include "app/term/term.h"

enum { NOTE_BYTES = 192 };
static const int64_t BF16_ROW_BYTES = MMLA_LATENT_DIM * (int64_t)sizeof(uint16_t);

static run_sizes sizes_of(const capture_usage *u, int64_t n_window, int64_t n_compressed) {
    const int64_t n = n_window + n_compressed;
    return (run_sizes){
        .as_is =
            (double)(n_window * u->window_record_bytes + n_compressed * u->compressed_record_bytes),
        .as_v4 = (double)(n * mmla_kv_record_bytes(MMLA_KV_V4)),
        .as_bf16 = (double)(n * BF16_ROW_BYTES),
    };
}

run_sizes run_sizes_read(const capture_usage *u) {
    return sizes_of(u, u->window.n, u->compressed.n);
}

run_sizes run_sizes_stored(const capture_usage *u) {
    return sizes_of(u, u->window.distinct, u->compressed.distinct);
}

bool run_report_is_passed(const run_report *report) {
    for (int32_t i = 0; i < report->n_differences; i++) {
        if (!report->differences[i].is_passed) {
            return false;
        }
    }
    return true;
}

/* Every line is a label and a text; labels line up. */
#define LINE "  %-14s "

static void where_print(const run_report *r) {
    const char *implementation = r->call->implementation;
    printf(LINE "%s, ", "ran on", r->device);
    if (r->gpu != NULL) {
        printf("%s", r->gpu);
    } else {
        printf("%" PRId32 " thread%s", r->n_threads, r->n_threads == 1 ? "" : "s");
    }
    printf("%s%s\n", implementation[0] != '\0' ? ", implementation " : "", implementation);
}

static void tensors_print(const run_report *r) {
    char shape[CAPTURE_SHAPE_BYTES];
    for (int i = 0; r->capture->op->inputs[i].name != NULL; i++) {
        const safetensors_tensor *t = r->capture->inputs[i];
        if (t != NULL) {
            capture_shape_format(t->rank, t->shape, shape);
            printf(LINE "%s %s %s\n", i == 0 ? "inputs" : "", t->name,
                   safetensors_dtype_name(t->dtype), shape);
        }
    }
    for (int32_t i = 0; i < r->call->n_outputs; i++) {
        const safetensors_tensor *t = &r->call->outputs[i];
        capture_shape_format(t->rank, t->shape, shape);
        printf(LINE "%s %s %s\n", i == 0 ? "outputs" : "", t->name,
               safetensors_dtype_name(t->dtype), shape);
    }
}

static void sizes_print(const char *label, run_sizes s, const char *note) {
    printf(LINE "%s %s\n", label, term_bytes(s.as_is).text, note);
    if (s.as_is <= 0) {
        return;
    }
    /* What the input already is would be said twice. */
    const bool is_v4 = s.as_v4 == s.as_is, is_bf16 = s.as_bf16 == s.as_is;
    printf(LINE, "");
    if (!is_v4) {
        printf("as 584-byte records %s (x%.2f)%s", term_bytes(s.as_v4).text, s.as_v4 / s.as_is,
               is_bf16 ? "" : ", ");
    }
    if (!is_bf16) {
        printf("as bf16 rows %s (x%.2f)", term_bytes(s.as_bf16).text, s.as_bf16 / s.as_is);
    }
    printf("\n");
}

static void attend_print(const run_report *r) {
    const capture_usage *u = &r->usage;
    printf(LINE "%s, %" PRId32 " heads, q %s, out %s\n", "tokens", term_count(u->n_tokens).text,
           capture_dim32(r->capture, 'H'), capture_attend_layout_name(r->capture),
           capture_attend_form_name(r->capture));
    printf(LINE "%s attended, %s .. %s a token", "keys",
           term_count(u->window.n + u->compressed.n).text, term_count(u->least).text,
           term_count(u->most).text);
    if (u->n_empty > 0) {
        printf("; %s token%s without any", term_count(u->n_empty).text, u->n_empty == 1 ? "" : "s");
    }
    char note[NOTE_BYTES] = "";
    if (u->compressed_record_bytes > 0) {
        snprintf(note, sizeof note, "(window %s x %" PRId64 " B, compressed %s x %" PRId64 " B)",
                 term_count(u->window.n).text, u->window_record_bytes,
                 term_count(u->compressed.n).text, u->compressed_record_bytes);
    } else {
        snprintf(note, sizeof note, "(%s x %" PRId64 " B)", term_count(u->window.n).text,
                 u->window_record_bytes);
    }
    printf("\n");
    sizes_print("KV read", run_sizes_read(u), note);
    snprintf(note, sizeof note, "(%s different records)",
             term_count(u->window.distinct + u->compressed.distinct).text);
    sizes_print("KV held", run_sizes_stored(u), note);
}

static void times_print(const run_report *r) {
    const run_times *f = &r->times.fused, *c = &r->times.chain;
    printf(LINE "%s, ", c->n > 0 ? "fused call" : "time", term_seconds(f->median).text);
    if (f->n == 1) {
        printf("one run");
    } else {
        printf("median of %d", f->n);
    }
    if (f->n >= RUN_PERCENTILES_MIN) {
        printf(" (p10 %s, p90 %s)", term_seconds(f->p10).text, term_seconds(f->p90).text);
    }
    printf("\n");
    if (c->n > 0) {
        const run_times *s = r->times.chain_steps;
        printf(LINE "%s, %.2f times the fused call\n", "unfused chain",
               term_seconds(c->median).text, c->median / f->median);
        printf(LINE "rotate q %s, attend %s, rotate back %s, cast %s\n", "",
               term_seconds(s[MMLA_CHAIN_ROPE_Q].median).text,
               term_seconds(s[MMLA_CHAIN_ATTEND].median).text,
               term_seconds(s[MMLA_CHAIN_UNROPE].median).text,
               term_seconds(s[MMLA_CHAIN_QUANTISE].median).text);
    } else if (r->chain_missing[0] != '\0') {
        printf(LINE "not timed: %s\n", "unfused chain", r->chain_missing);
    }
    if (f->n >= RUN_PERCENTILES_MIN && f->p90 > 2.0 * f->p10) {
        printf(LINE "p90 is over twice p10, the machine is busy%s\n", "note",
               r->gpu != NULL ? "" : ": fewer threads (-t) or OMP_WAIT_POLICY=passive help");
    }
}

static void difference_print(const capture_difference *d) {
    printf("    %-12s ", d->name);
    if (!d->is_near) {
        printf("%s of %s elements differ", term_count(d->n_different).text, term_count(d->n).text);
        if (d->first >= 0) {
            printf(", the first at %s", term_count(d->first).text);
        }
        printf("\n");
        return;
    }
    printf("max abs error %.2e, %.1f %% of the tolerance", d->max_abs,
           100.0 * check_near_used(&d->near));
    if (d->near.tolerance.cosine > 0.0) {
        printf(", cosine distance %.1e", check_near_cosine(&d->near));
    }
    printf("; %s of %s elements differ\n", term_count(d->n_different).text, term_count(d->n).text);
    if (!d->is_passed && d->near.worst > 1.0) {
        printf("    %-12s worst at element %s: %.9g, the comparison has %.9g\n", "",
               term_count(d->near.worst_at).text, (double)d->near.got, (double)d->near.want);
    }
}

static void comparison_print(const run_report *r) {
    const bool is_reference = strcmp(r->compared_to, "reference") == 0;
    const char *verdict = run_report_is_passed(r) ? "PASS" : "FAIL";
    if (r->is_itself) {
        printf(LINE "%s, but this is %s against itself (%s a run)\n", "comparison", verdict,
               r->compared_to, term_seconds(r->compared_seconds).text);
    } else {
        printf(LINE "%s, against %s%s (%s a run)\n", "comparison", verdict, r->compared_to,
               is_reference && capture_is_attend(r->capture) ? " in fp64" : "",
               term_seconds(r->compared_seconds).text);
    }
    for (int32_t i = 0; i < r->n_differences; i++) {
        difference_print(&r->differences[i]);
    }
}

void run_report_print(const run_report *r) {
    cmd_print_clean(stdout, r->path);
    printf(": %s\n", r->capture->op->name);
    where_print(r);
    if (capture_is_attend(r->capture)) {
        attend_print(r);
    } else {
        tensors_print(r);
    }
    times_print(r);
    if (r->compared_to != NULL) {
        comparison_print(r);
    }
    if (r->only != NULL) {
        printf(LINE "none: %s has only one implementation, %s\n", "comparison",
               r->capture->op->name, r->only);
    }
    if (r->output != NULL) {
        printf(LINE "%s\n", "written to", r->output);
    }
}
