/* bench_report.c - medians beside their floor and the best other way to the same result. */
#include "app/bench/bench_report.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "app/term/term.h"
#include "app/report/report_cpu.h"
#include "app/report/report_gpu.h"
#include "app/report/report_json.h"

/* A number with a fixed number of decimals, or "-" when it does not apply. */
static term_text number(double x, int decimals, const char *unit) {
    term_text t;
    snprintf(t.text, sizeof t.text, x > 0.0 && isfinite(x) ? "%.*f%s" : "-", decimals, x, unit);
    return t;
}

/* Microseconds with three or four digits. */
static term_text us(double x) {
    return number(x, x < 99.95 ? 1 : 0, "");
}

/* The same for a GPU's, of which many are below ten. */
static term_text gpu_us(double x) {
    return number(x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0, "");
}

static term_text count(int64_t n) {
    term_text t;
    snprintf(t.text, sizeof t.text, n > 0 ? "%lld" : "-", (long long)n);
    return t;
}

/* Times of one row of a GPU beside its floor, the chain and cuBLAS. */
static void gpu_times_print(const bench_row *row, FILE *to) {
    const double fused = row->fused.median_us;
    fprintf(to, " %8s %8s %8s %8s %6s %8s %6s %8s %8s %6s  %s\n", gpu_us(fused).text,
            gpu_us(row->fused.p10_us).text, gpu_us(row->fused.p90_us).text,
            gpu_us(row->floor_us).text, number(fused / row->floor_us, 2, "x").text,
            gpu_us(row->chain_us).text, number(row->chain_us / fused, 2, "x").text,
            gpu_us(row->cublas_us).text, number(row->flop * 1e-6 / fused, 1, "").text,
            number(row->bytes * 1e-6 / fused, 2, "").text, row->implementation);
}

void bench_report_row_print(const bench_session *s, const bench_row *row, FILE *to) {
    const double fused = row->fused.median_us;
    /* Of prefill the context says more than the formats. */
    char context[24];
    snprintf(context, sizeof context, "%lld", (long long)row->context);
    fprintf(to, s->on_gpu ? "%-17s %-8s %5s %6s" : "%-13s %-8s %5s %6s", row->op,
            row->context > 0       ? context
            : row->formats != NULL ? row->formats
                                   : "-",
            count(row->heads).text, count(row->tokens).text);
    if (!row->verified) {
        fprintf(to, "  %s\n", row->problem);
        return;
    }
    if (s->on_gpu) {
        gpu_times_print(row, to);
        return;
    }
    fprintf(to, " %9s %9s %9s %9s %6s %8s %6s %7s  %s\n", us(fused).text,
            us(row->fused.p10_us).text, us(row->fused.p90_us).text, us(row->chain_us).text,
            number(row->chain_us / fused, 2, "x").text,
            number(row->flop * 1e-3 / fused, 1, "").text,
            number(100.0 * row->sgemm_us / fused, 0, "%").text,
            number(row->bytes * 1e-3 / fused, 2, "").text, row->implementation);
}

static const char *lengths_name(const bench_options *o, char number[16]) {
    static const char *const names[] = {"full", "mixed", "short"};
    snprintf(number, 16, "%d", (int)o->n_keys);
    return o->lengths == BENCH_LENGTHS_KEYS ? number : names[o->lengths];
}

/* What of attention's inputs is not as it is by default. */
static void scenario_print(const bench_options *o, FILE *to) {
    const char *before = "\nattention:";
    char number[16];
    if (o->lengths != BENCH_LENGTHS_FULL) {
        fprintf(to, "%s lengths %s", before, lengths_name(o, number));
        before = ",";
    }
    if (o->padded_percent > 0) {
        fprintf(to, "%s %d%% of the tokens without keys", before, (int)o->padded_percent);
        before = ",";
    }
    if (o->warm) {
        fprintf(to, "%s warm", before);
        before = ",";
    }
    if (o->page_tokens > 0) {
        fprintf(to, "%s pages of %d", before, (int)o->page_tokens);
        before = ",";
    }
    if (o->n_layers > 1) {
        fprintf(to, "%s pages of %d layers in turn", before, (int)o->n_layers);
    }
}

static void gpu_head_print(const bench_session *s, FILE *to) {
    fprintf(to,
            "ceilings: read %.2f TB/s, copy %.2f TB/s (reads and writes), empty graph node %s us",
            s->read_gbps * 1e-3, s->copy_gbps * 1e-3, number(s->node_us, 2, "").text);
    if (s->has_gemm_tflops) {
        fprintf(to, ", cuBLAS %.0f TFLOP/s in bf16", s->gemm_tflops);
    } else if (s->gemm_tflops > 0.0) {
        fprintf(to, "\nlibcublas was not found: floors assume %.0f TFLOP/s", s->gemm_tflops);
    } else {
        fprintf(to, "\nlibcublas was not found: floors are those of memory alone");
    }
    scenario_print(&s->options, to);
    fprintf(to, "\n\n%-17s %-8s %5s %6s %8s %8s %8s %8s %6s %8s %6s %8s %8s %6s  %s\n", "operation",
            "formats", "heads", "tokens", "us", "p10", "p90", "floor", "ratio", "chain us", "ratio",
            "cuBLAS", "TFLOP/s", "TB/s", "implementation");
}

void bench_report_head_print(const bench_session *s, FILE *to) {
    if (s->on_gpu) {
        gpu_head_print(s, to);
        return;
    }
    fprintf(to, "ceilings: read %.1f GB/s, copy %.1f GB/s (reads and writes)", s->read_gbps,
            s->copy_gbps);
    if (s->blas.library == NULL) {
        fprintf(to, "\nlibopenblas.so.0 was not found: its column is empty");
    } else {
        fprintf(to, "; OpenBLAS %.1f GFLOP/s on the products of 64 heads", s->sgemm_gflops);
    }
    scenario_print(&s->options, to);
    fprintf(to, "\n\n%-13s %-8s %5s %6s %9s %9s %9s %9s %6s %8s %6s %7s  %s\n", "operation",
            "formats", "heads", "tokens", "us", "p10", "p90", "chain us", "ratio", "GFLOP/s",
            "BLAS", "GB/s", "implementation");
}

void bench_report_end_print(const bench_session *s, FILE *to) {
    int n_wide = 0;
    for (int i = 0; i < s->n_rows; i++) {
        n_wide += bench_is_wide(&s->rows[i].fused);
    }
    if (4 * n_wide > s->n_rows) {
        fprintf(to,
                "\n%d of %d row%s by more than a factor of 2 from p10 to p90: something else "
                "is running\nhere, and medians are not to be compared\n",
                n_wide, s->n_rows, s->n_rows == 1 ? " spreads" : "s spread");
    }
}

int bench_report_problems(const bench_session *s) {
    int n = 0;
    for (int i = 0; i < s->n_rows; i++) {
        n += !s->rows[i].verified;
    }
    return n;
}

/* In a row, a number that does not apply is 0; in the file, null. */
static json_t *real_or_null(double x) {
    return x > 0.0 ? report_real(x) : json_null();
}

static json_t *count_or_null(int64_t n) {
    return n > 0 ? json_integer((json_int_t)n) : json_null();
}

static json_t *row_to_json(const bench_row *row, bool on_gpu) {
    const double fused = row->fused.median_us;
    const bool timed = row->verified && fused > 0.0;
    /* Without a verified output there is no time. */
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:s?, s:s?, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op",
        row->op, "heads", count_or_null(row->heads), "tokens", count_or_null(row->tokens), "window",
        count_or_null(row->window), "compressed", count_or_null(row->compressed), "formats",
        row->formats, "out_form", row->out_form, "impl", row->implementation, "fused_us",
        real_or_null(timed ? fused : 0.0), "p10_us", real_or_null(timed ? row->fused.p10_us : 0.0),
        "p90_us", real_or_null(timed ? row->fused.p90_us : 0.0), "chain_us",
        real_or_null(row->chain_us), "floor_us", real_or_null(row->floor_us), "tflops",
        real_or_null(timed ? row->flop * 1e-6 / fused : 0.0), "tbps",
        real_or_null(timed ? row->bytes * 1e-6 / fused : 0.0), "sgemm_us",
        real_or_null(row->sgemm_us));
    if (on_gpu) {
        report_set(&o, "cublas_us", real_or_null(row->cublas_us));
    }
    report_set(&o, "keys", real_or_null(row->keys));
    if (row->context > 0) {
        report_set(&o, "context", json_integer(row->context));
    }
    if (!row->verified) {
        report_set(&o, "problem", report_text(row->problem));
    }
    return o;
}

static json_t *text_or_null(const char *text) {
    return text[0] != '\0' ? report_text(text) : json_null();
}

/* What describes a run on a GPU beside what describes one on a CPU. */
static void gpu_to_json(const bench_session *s, json_t **root) {
    const report_gpu gpu = s->device.gpu != NULL ? report_gpu_of(s->device.gpu) : (report_gpu){0};
    json_t *ceilings = json_pack("{s:o, s:f, s:f, s:n, s:o}", "bf16_tflops",
                                 real_or_null(s->has_gemm_tflops ? s->gemm_tflops : 0.0),
                                 "copy_tbps", s->copy_gbps * 1e-3, "read_tbps", s->read_gbps * 1e-3,
                                 "sgemm_tflops", "empty_node_us", real_or_null(s->node_us));
    report_set(root, "device", text_or_null(gpu.name));
    report_set(root, "driver", text_or_null(gpu.driver));
    report_set(root, "cuda", text_or_null(gpu.cuda));
    report_set(root, "ceilings", ceilings);
    report_set(root, "batch_invariant", json_boolean(s->options.batch_invariant));
}

/* How attention's inputs were drawn and where they lay. */
static void scenario_to_json(const bench_options *o, json_t **root) {
    char number[16];
    report_set(root, "lengths", json_string(lengths_name(o, number)));
    report_set(root, "padded_percent", json_integer(o->padded_percent));
    report_set(root, "warm", json_boolean(o->warm));
    report_set(root, "page_tokens", json_integer(bench_page_tokens(o)));
    report_set(root, "layers", json_integer(bench_layers(o)));
}

mmla_status bench_report_save(const bench_session *s,
                              const char *path,
                              const char *command,
                              const char *commit,
                              mmla_error *err) {
    char device[REPORT_CPU_BYTES], date[32];
    struct tm utc;
    const time_t now = time(NULL);
    report_cpu_name(device);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *rows = json_array();
    for (int i = 0; i < s->n_rows; i++) {
        report_append(&rows, row_to_json(&s->rows[i], s->on_gpu));
    }
    json_t *root =
        json_pack("{s:o, s:n, s:n, s:o, s:s, s:o, s:i, s:{s:n, s:f, s:f, s:o}, s:o}", "device",
                  report_text(device[0] != '\0' ? device : "CPU"), "driver", "cuda", "commit",
                  commit != NULL ? report_text(commit) : json_null(), "date", date, "command",
                  report_text(command), "threads", mmla_context_get_threads(s->host), "ceilings",
                  "bf16_tflops", "copy_tbps", s->copy_gbps * 1e-3, "read_tbps", s->read_gbps * 1e-3,
                  "sgemm_tflops", real_or_null(s->sgemm_gflops * 1e-3), "rows", rows);
    if (s->on_gpu) {
        gpu_to_json(s, &root);
    }
    scenario_to_json(&s->options, &root);
    return report_save(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6), err);
}
