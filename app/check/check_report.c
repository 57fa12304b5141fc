/* check_report.c - how much of each tolerance was used, and how to replay what failed. */
#include "app/check/check_report.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "app/term/term.h"
#include "app/report/report_json.h"

/* "31 %", or what stands for it when results must be identical. */
static term_text used_text(const check_row *row, double used) {
    term_text t;
    if (row->by_bytes) {
        snprintf(t.text, sizeof t.text, "%s", row->n_failed > 0 ? "differs" : "identical");
    } else if (isfinite(used) && used < 1e4) {
        /* Rounded up, so that 100.0 % is never said of something within the tolerance. */
        snprintf(t.text, sizeof t.text, "%.1f %%", ceil(1000.0 * used) / 10.0);
    } else {
        snprintf(t.text, sizeof t.text, "beyond");
    }
    return t;
}

/* A cosine distance; the suites of attention bound it by 1e-3. */
static term_text cosine_text(const check_row *row) {
    term_text t;
    snprintf(t.text, sizeof t.text, row->cosine > 0.0 ? "%.1e" : "-", row->cosine);
    return t;
}

static bool has_lse(const check_row *row) {
    return strncmp(row->op, "project", strlen("project")) != 0 && !row->by_bytes;
}

static void print_failure(const check_session *s, const check_row *row, FILE *to) {
    const check_options *o = &s->options;
    fprintf(to, "\n%s, %s: %lld of %lld case%s failed, first case %lld\n  %s\n  %s\n", row->op,
            row->implementation, (long long)row->n_failed, (long long)row->n_cases,
            row->n_cases == 1 ? "" : "s", (long long)row->failed_case, row->failed_shape,
            row->failed_why);
    fprintf(to, "  replay: megamla check --op %s --impl %s --seed %llu --case %lld%s", row->op,
            row->implementation, (unsigned long long)o->seed, (long long)row->failed_case,
            o->quick ? " --quick" : "");
    if (check_session_is_gpu(s)) {
        fprintf(to, " --device cuda:%d", (int)o->device.index);
    }
    if (o->n_threads > 0) {
        fprintf(to, " --threads %d", o->n_threads);
    }
    fprintf(to, "\n");
}

void check_report_head_print(FILE *to) {
    fprintf(to, "%-14s %-15s %7s %8s  %10s %10s %10s  %s\n", "operation", "implementation", "cases",
            "refused", "tolerance", "cosine", "lse", "result");
}

void check_report_row_print(const check_row *row, FILE *to) {
    fprintf(to, "%-14s %-15s %7s %8s  %10s %10s %10s  %s\n", row->op, row->implementation,
            term_count(row->n_cases).text, term_count(row->n_refused).text,
            row->n_cases > 0 ? used_text(row, row->out_used).text : "-", cosine_text(row).text,
            row->n_cases > 0 && has_lse(row) ? used_text(row, row->lse_used).text : "-",
            row->n_failed > 0  ? "FAIL"
            : row->n_cases > 0 ? "PASS"
                               : "refused");
}

void check_report_end_print(const check_session *s, FILE *to) {
    int64_t n_cases = 0;
    for (int i = 0; i < s->n_rows; i++) {
        n_cases += s->rows[i].n_cases;
        if (s->rows[i].n_failed > 0) {
            print_failure(s, &s->rows[i], to);
        }
    }
    const int64_t failed = check_session_failures(s);
    if (s->is_lost) {
        fprintf(to,
                "\nThe device faulted and took no more work: cases that ran beside the faulty one "
                "failed with it\nand those after it did not run. --threads 1 runs one at a "
                "time.\n");
    }
    fprintf(to, "\n%s case%s, %s failed; seed %llu\n", term_count(n_cases).text,
            n_cases == 1 ? "" : "s", term_count(failed).text, (unsigned long long)s->options.seed);
}

/* What is beyond every tolerance is null. */
static json_t *row_to_json(const check_row *row) {
    json_t *o =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "op", row->op, "impl", row->implementation,
                  "cases", (json_int_t)row->n_cases, "refused", (json_int_t)row->n_refused,
                  "failed", (json_int_t)row->n_failed, "by_bytes", row->by_bytes);
    report_set(&o, "tolerance_used", report_real(row->out_used));
    report_set(&o, "cosine_distance", report_real(row->cosine));
    report_set(&o, "lse_tolerance_used", report_real(row->lse_used));
    if (row->n_failed > 0) {
        report_set(&o, "first_failure",
                   json_pack("{s:I, s:s, s:s}", "case", (json_int_t)row->failed_case, "shape",
                             row->failed_shape, "why", row->failed_why));
    }
    return o;
}

mmla_status check_report_save(const check_session *s, const char *path, mmla_error *err) {
    json_t *rows = json_array();
    for (int i = 0; i < s->n_rows; i++) {
        report_append(&rows, row_to_json(&s->rows[i]));
    }
    char device[16] = "cpu";
    if (check_session_is_gpu(s)) {
        snprintf(device, sizeof device, "cuda:%d", (int)s->options.device.index);
    }
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:b, s:i, s:o}", "version", mmla_version_string(), "device",
                  device, "seed", (json_int_t)s->options.seed, "quick", s->options.quick, "threads",
                  mmla_context_get_threads(s->many), "rows", rows);
    return report_save(root, path, JSON_INDENT(2), err);
}
