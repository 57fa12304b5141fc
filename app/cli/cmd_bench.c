/* cmd_bench.c - megamla bench: the operations against their bounds, on this machine, in one run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/bench/bench_gpu.h"
#include "app/bench/bench_plot.h"
#include "app/bench/bench_report.h"
#include "app/cli/cmd.h"
#include "app/term/term.h"

enum {
    OPT_OP,
    OPT_HEADS,
    OPT_TOKENS,
    OPT_CONTEXTS,
    OPT_FORMATS,
    OPT_LENGTHS,
    OPT_PADDED,
    OPT_WARM,
    OPT_PAGE_TOKENS,
    OPT_LAYERS,
    OPT_INVARIANT,
    OPT_IMPL,
    OPT_DEVICE,
    OPT_THREADS,
    OPT_SAMPLES,
    OPT_QUICK,
    OPT_SEED,
    OPT_JSON,
    OPT_PLOT,
    OPT_COMMIT,
    SAMPLES_DEFAULT = 30,
    GPU_SAMPLES_DEFAULT = 100,
    PAGE_TOKENS_MAX = 1024,
    LAYERS_MAX = 128,
    CONTEXT_MAX = 1 << 20
};

static const cmd_option options[] = {
    {"op", 0, "OP",
     "only attend_paged, attend_rows, project, kv_insert or kv_gather;\n"
     "on a GPU also prefill_paged, prefill_workspace (both routes of\n"
     "mmla_prefill_run, lists and gathered rows included), list_window,\n"
     "list_compressed, list_combined, list_slots, step (an insert and\n"
     "two lists that overlap), step_apart (the same one by one) or\n"
     "host_cost"},
    {"heads", 0, "N,...", "numbers of heads, multiples of 8 (default 64,32,16,8,128)"},
    {"tokens", 'n', "N,...",
     "query tokens of a call, or rows of kv (default 1,4,16,64;\n"
     "on a GPU 1,16,64,256,1024, and what suits each operation)"},
    {"contexts", 0, "N,...",
     "of prefill: tokens of the request, those of the call among\n"
     "them (default 4096,32768,131072,524288)"},
    {"formats", 0, "F",
     "record formats: 528+288, 528+528, 584+584, bf16, on a GPU\n"
     "528 and 584 alone; or 584, 528, 288 of kv_insert and kv_gather"},
    {"lengths", 0, "LENGTHS",
     "of attention's lists: full (default), mixed (each drawn), short\n"
     "(an eighth), or so many keys of every token, 1 .. 640"},
    {"padded", 0, "PERCENT", "of attend_paged's tokens have no key, the last of a call (0)"},
    {"warm", 0, NULL,
     "the same inputs in every call of attend_paged, so that caches\n"
     "may hold its keys"},
    {"page-tokens", 0, "N", "records a page of attend_paged's caches, 1 .. 1024 (64)"},
    {"layers", 0, "N", "whose pages take turns in those caches, 1 .. 128; one is read (1)"},
    {"batch-invariant", 0, NULL, "attention on a GPU whose bits do not depend on the batch"},
    {"impl", 0, "NAME", "this implementation; megamla info lists them"},
    {"device", 'd', "DEVICE", "cpu (default), cuda or cuda:N"},
    {"threads", 't', "N", "threads of one call, or of the references (default: all)"},
    {"samples", 0, "N", "most samples of a row, 5 .. 1000 (default 30; on a GPU 100)"},
    {"quick", 'q', NULL, "fewer rows and samples: seconds instead of minutes"},
    {"seed", 0, "N", "draw other inputs (default 1)"},
    {"json", 0, "FILE", "also write a result file; - writes it instead of the table"},
    {"plot", 0, "FILE", "also draw time against tokens, an SVG file (needs gnuplot)"},
    {"commit", 0, "TEXT", "what was measured, for the result file"},
    {0},
};

static const cmd_spec spec = {
    .verb = "bench",
    .synopsis = "[OPTION]...",
    .about =
        "Times the operations and prints medians with the 10th and 90th percentiles. Caches are\n"
        "larger than the processor's and walked through; the output of the timed calls is "
        "compared\n"
        "with the reference before a row is printed. chain is the same result by separate steps,\n"
        "BLAS the share of the rate that OpenBLAS reaches in fp32 on the same products (- when "
        "its\n"
        "own times spread too far). On a GPU calls are timed inside a graph, floor is the least\n"
        "time that the ceilings of the same run allow, and the ratio beside it says how many\n"
        "times as long a call takes; cuBLAS is the same product in bf16.",
    .options = options,
    .epilogue = "exit status: 0 every row was measured; 1 an output was wrong or a shape was\n"
                "refused; 2 bad usage\n\n"
                "examples\n"
                "  megamla bench --quick\n"
                "  megamla bench --op attend_paged --heads 64 --tokens 1,16 --threads 1\n"
                "  megamla bench --device cuda --op attend_paged --plot times.svg\n"
                "  megamla bench --op attend_paged --lengths mixed --padded 25 --layers 43\n"
                "  megamla bench --json result.json --commit $(git rev-parse --short HEAD)",
};

static void show_progress(void *user, const char *what, int64_t done, int64_t total) {
    term_progress_set(user, done, total, what);
}

/* A multiple of `unit`, unit .. high. */
static bool
parse_multiple(const char *option, const char *text, int64_t high, int64_t unit, int64_t *out) {
    if (unit == 1) {
        return cmd_parse_count(&spec, option, text, 1, high, out);
    }
    char *end = NULL;
    *out = strtoll(text, &end, 10); /* what does not fit becomes larger than high */
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && *out >= unit && *out <= high &&
        *out % unit == 0) {
        return true;
    }
    cmd_message(&spec, "--%s is '%s', must be a multiple of %lld, %lld .. %lld", option, text,
                (long long)unit, (long long)unit, (long long)high);
    return false;
}

/* "64,16" into a list of whole numbers low .. high, multiples of `unit`. */
static bool
parse_list(const char *option, char *text, int64_t high, int64_t unit, bench_list *out) {
    *out = (bench_list){0};
    for (char *rest = text, *item; (item = strsep(&rest, ",")) != NULL;) {
        int64_t n;
        if (out->n == BENCH_LIST_MAX) {
            cmd_message(&spec, "--%s has more than %d values", option, BENCH_LIST_MAX);
            return false;
        }
        if (!parse_multiple(option, item, high, unit, &n)) {
            return false;
        }
        out->values[out->n++] = n;
    }
    if (out->n == 0) {
        cmd_message(&spec, "--%s is empty", option);
    }
    return out->n > 0;
}

/* Holds the names against each other before anything is measured. */
static bool selection_check(const bench_options *o) {
    enum { OPS_MAX = 16, FORMATS_MAX = 16 };
    const char *names[OPS_MAX + 1] = {0}, *ops[OPS_MAX + 1] = {0};
    const char *formats[FORMATS_MAX + 1] = {0};
    int n_ops = 0, n_formats = 0;
    const bench_op *table = bench_ops(o->device.kind);
    for (int i = 0; table[i].name != NULL; i++) {
        const bench_op *op = &table[i];
        names[i] = op->name;
        if (o->op != NULL && strcmp(o->op, op->name) != 0) {
            continue;
        }
        ops[n_ops++] = op->library_op;
        for (int k = 0; k < BENCH_FORMATS_MAX && op->formats[k] != NULL; k++) {
            int j = 0;
            while (j < n_formats && strcmp(formats[j], op->formats[k]) != 0) {
                j++;
            }
            n_formats += j == n_formats;
            formats[j] = op->formats[k];
        }
    }
    if (n_ops == 0) {
        return cmd_parse_name(&spec, "op", o->op, names);
    }
    if (o->formats != NULL && n_formats == 0) {
        cmd_message(&spec, "--formats is '%s', but %s has no records", o->formats, o->op);
        return false;
    }
    return (o->formats == NULL || cmd_parse_name(&spec, "formats", o->formats, formats)) &&
           (o->implementation == NULL ||
            cmd_parse_implementation(&spec, "impl", o->implementation, o->device, ops));
}

/* What only one device or one operation can do. */
static bool extras_check(const bench_options *o, const char *plot) {
    mmla_error err;
    const char *const paged = o->padded_percent > 0 ? "padded"
                              : o->warm             ? "warm"
                              : o->page_tokens > 0  ? "page-tokens"
                              : o->n_layers > 0     ? "layers"
                                                    : NULL;
    if (paged != NULL && (o->op == NULL || strcmp(o->op, "attend_paged") != 0)) {
        cmd_message(&spec, "--%s is for one operation: --op attend_paged", paged);
        return false;
    }
    if (o->contexts.n > 0 && (o->op == NULL || strncmp(o->op, "prefill_", 8) != 0)) {
        cmd_message(&spec, "--contexts is for prefill: --op prefill_paged or prefill_workspace");
        return false;
    }
    if (o->lengths != BENCH_LENGTHS_FULL && o->op != NULL && !bench_plot_has(o->op)) {
        cmd_message(&spec, "--lengths is for attention, and --op is %s", o->op);
        return false;
    }
    if (o->device.kind == MMLA_DEVICE_CPU && o->batch_invariant) {
        cmd_message(&spec, "--batch-invariant is for a GPU; the CPU always is");
        return false;
    }
    if (plot == NULL) {
        return true;
    }
    if (strcmp(plot, "-") == 0 || plot[0] == '\0') {
        cmd_message(&spec, "--plot is '%s', must be a file", plot);
        return false;
    }
    if (o->op != NULL && !bench_plot_has(o->op)) {
        cmd_message(&spec, "--plot draws attention, and --op is %s", o->op);
        return false;
    }
    if (bench_plot_ask(&err) != MMLA_OK) {
        cmd_message(&spec, "--plot %s", err.message);
        return false;
    }
    return true;
}

static bool parse_lengths(const char *text, bench_options *o) {
    static const char *const names[] = {"full", "mixed", "short"};
    if (text[0] >= '0' && text[0] <= '9') {
        int64_t n;
        const bool ok = cmd_parse_count(&spec, "lengths", text, 1, BENCH_KEYS, &n);
        o->lengths = BENCH_LENGTHS_KEYS;
        o->n_keys = ok ? (int32_t)n : 0;
        return ok;
    }
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(names[i], text) == 0) {
            o->lengths = (bench_lengths)i;
            return true;
        }
    }
    cmd_message(&spec, "--lengths is '%s', must be full, mixed, short or a whole number 1 .. %d",
                text, BENCH_KEYS);
    return false;
}

/* A whole number low .. high that fits. */
static bool
parse_small(const char *option, const char *text, int32_t low, int32_t high, int32_t *out) {
    int64_t n = 0;
    const bool ok = cmd_parse_count(&spec, option, text, low, high, &n);
    *out = (int32_t)n;
    return ok;
}

/* What the table needs while it grows. */
typedef struct table {
    term_progress *progress;
    bool has_head;
} table;

/* Prints a row at once, so that a log shows how far a long run has come. */
static void show_row(void *user, const bench_session *s) {
    table *t = user;
    term_progress_deinit(t->progress);
    if (!t->has_head) {
        bench_report_head_print(s, stdout);
        t->has_head = true;
    }
    bench_report_row_print(s, &s->rows[s->n_rows - 1], stdout);
    fflush(stdout);
}

typedef struct settings {
    bench_options bench;
    const char *json, *plot, *commit;
    bool help;
} settings;

/* One option into the settings; false when its value is wrong. */
static bool take(int option, char *value, settings *x) {
    bench_options *o = &x->bench;
    int64_t n = 0;
    bool ok = true;
    switch (option) {
    case OPT_OP:
        o->op = value;
        return true;
    case OPT_HEADS:
        return parse_list("heads", value, MMLA_HEADS_MAX, MMLA_HEADS_PER_GROUP, &o->heads);
    case OPT_TOKENS:
        return parse_list("tokens", value, 1 << 20, 1, &o->tokens);
    case OPT_CONTEXTS:
        return parse_list("contexts", value, CONTEXT_MAX, 1, &o->contexts);
    case OPT_FORMATS:
        o->formats = value;
        return true;
    case OPT_LENGTHS:
        return parse_lengths(value, o);
    case OPT_PADDED:
        return parse_small("padded", value, 0, 100, &o->padded_percent);
    case OPT_WARM:
        o->warm = true;
        return true;
    case OPT_PAGE_TOKENS:
        return parse_small("page-tokens", value, 1, PAGE_TOKENS_MAX, &o->page_tokens);
    case OPT_LAYERS:
        return parse_small("layers", value, 1, LAYERS_MAX, &o->n_layers);
    case OPT_INVARIANT:
        o->batch_invariant = true;
        return true;
    case OPT_IMPL:
        o->implementation = value;
        return true;
    case OPT_DEVICE:
        return cmd_parse_device(&spec, value, &o->device);
    case OPT_THREADS:
        return parse_small("threads", value, 1, 4096, &o->n_threads);
    case OPT_SAMPLES:
        return cmd_parse_count(&spec, "samples", value, 5, 1000, &o->n_samples);
    case OPT_QUICK:
        o->quick = true;
        return true;
    case OPT_SEED:
        ok = cmd_parse_count(&spec, "seed", value, 0, INT64_MAX, &n);
        o->seed = (uint64_t)n;
        return ok;
    case OPT_JSON:
        x->json = value;
        return cmd_parse_file(&spec, "json", value);
    case OPT_PLOT:
        x->plot = value;
        return cmd_parse_file(&spec, "plot", value);
    default:
        x->commit = value;
        return true;
    }
}

/* CMD_OK, or the exit status. */
static int read_options(int argc, char **argv, settings *x) {
    cmd_parser p = cmd_parser_init(&spec, argc, argv);
    for (int option; (option = cmd_parser_next(&p)) != CMD_OPTION_END;) {
        if (option == CMD_OPTION_HELP) {
            x->help = true;
            return CMD_OK;
        }
        /* getopt's value points into argv, which is ours to write to. */
        if (option < 0 || !take(option, (char *)p.value, x)) {
            return CMD_USAGE;
        }
    }
    if (x->bench.n_samples == 0) {
        x->bench.n_samples =
            x->bench.device.kind == MMLA_DEVICE_CPU ? SAMPLES_DEFAULT : GPU_SAMPLES_DEFAULT;
    }
    return cmd_parser_has_operands(&p, 0, 0) && selection_check(&x->bench) &&
                   extras_check(&x->bench, x->plot)
               ? CMD_OK
               : CMD_USAGE;
}

/* The command line as it was typed, for the result file; NULL when memory is out. */
static char *join(int argc, char **argv) {
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (to != NULL) {
        fputs("megamla", to);
        for (int i = 0; i < argc; i++) {
            fprintf(to, " %s", argv[i]);
        }
        fclose(to);
    }
    return text;
}

static void run_all(bench_session *s) {
    if (s->on_gpu) {
        bench_gpu_attend_run(s);
        bench_gpu_prefill_run(s);
        bench_gpu_project_run(s);
        bench_gpu_kv_run(s);
        bench_gpu_list_run(s);
        bench_gpu_step_run(s);
        return;
    }
    bench_attend_run(s);
    bench_project_run(s);
    bench_kv_run(s);
}

static void session_deinit(bench_session *s) {
    if (s->on_gpu) {
        bench_gpu_session_deinit(s);
    } else {
        bench_session_deinit(s);
    }
}

int cmd_bench(int argc, char **argv) {
    term_progress progress = term_progress_init("bench");
    settings x = {.bench = {.seed = 1, .progress = show_progress, .progress_user = &progress}};
    table t = {.progress = &progress};
    char *command = join(argc, argv);
    bench_session s = {0};
    mmla_error err = {0};
    int status = read_options(argc, argv, &x);
    if (status != CMD_OK || x.help) {
        goto done;
    }
    const bool is_table = x.json == NULL || strcmp(x.json, "-") != 0;
    x.bench.finished = is_table ? show_row : NULL;
    x.bench.finished_user = &t;
    const bool is_cpu = x.bench.device.kind == MMLA_DEVICE_CPU;
    if ((is_cpu ? bench_session_init(&s, &x.bench, &err)
                : bench_gpu_session_init(&s, &x.bench, &err)) != MMLA_OK) {
        cmd_message(&spec, "%s", err.message);
        status = CMD_FAILED;
        goto done;
    }
    run_all(&s);
    term_progress_deinit(&progress);
    if (s.n_rows == 0) {
        cmd_message(&spec, "no row has these heads and formats");
        status = CMD_USAGE;
        goto done;
    }
    if (is_table) {
        bench_report_end_print(&s, stdout);
    }
    status = bench_report_problems(&s) > 0 ? CMD_FAILED : CMD_OK;
    if (x.json != NULL &&
        bench_report_save(&s, x.json, command != NULL ? command : "", x.commit, &err) != MMLA_OK) {
        cmd_message(&spec, "%s: %s", x.json, err.message);
        status = CMD_FAILED;
    }
    if (x.plot != NULL && bench_plot_save(&s, x.plot, &err) != MMLA_OK) {
        cmd_message(&spec, "%s: %s", x.plot, err.message);
        status = CMD_FAILED;
    }
done:
    session_deinit(&s);
    free(command);
    return status;
}
