/* cmd_check.c - megamla check: a doctor for a new install, and the test that runs everything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_session.h"
#include "app/check/check_report.h"
#include "app/cli/cmd.h"
#include "app/term/term.h"

enum {
    OPT_OP,
    OPT_IMPL,
    OPT_QUICK,
    OPT_SEED,
    OPT_CASE,
    OPT_THREADS,
    OPT_DEVICE,
    OPT_JSON,
    SEED_DEFAULT = 1,
    SUITES_MAX = 16
};

static const cmd_option options[] = {
    {"op", 0, "OP",
     "only this one: kv_insert, kv_gather, lists, weights, attend,\n"
     "attend_large, merge, chain, project; of a GPU also graph, streams,\n"
     "project_wide"},
    {"impl", 0, "NAME", "only this implementation; megamla info lists them"},
    {"quick", 'q', NULL, "fewer and smaller cases: seconds instead of minutes"},
    {"seed", 0, "N", "draw other cases (default 1)"},
    {"case", 0, "N", "only case N of the operation, to replay a failure"},
    {"threads", 't', "N",
     "threads of one call, at least 2; of a GPU, cases at a\ntime (default: all)"},
    {"device", 'd', "DEVICE", "cpu (default), cuda or cuda:N"},
    {"json", 0, "FILE", "also write the result as JSON; - writes it instead of the table"},
    {0},
};

static const cmd_spec spec = {
    .verb = "check",
    .synopsis = "[OPTION]...",
    .about =
        "Runs every implementation that this machine can use against the reference, over inputs\n"
        "chosen to hurt: invalid, repeated and missing entries, odd page sizes and strides, NaN\n"
        "everywhere but in the rows that count. Shows how much of each tolerance was used. The\n"
        "implementations of a GPU are held against the reference on the CPU, and run from graphs\n"
        "and on two streams as well.",
    .options = options,
    .epilogue = "exit status: 0 all passed; 1 something failed; 2 bad usage\n\n"
                "examples\n"
                "  megamla check --quick\n"
                "  megamla check --device cuda\n"
                "  megamla check --op attend --impl avx2 --seed 7 --case 12",
};

static void show_progress(void *user, const char *op, int64_t done, int64_t total) {
    term_progress_set(user, done, total, op);
}

/* What the table needs while it grows. */
typedef struct table {
    term_progress *progress;
    bool has_head;
} table;

/* Prints what a suite added at once, so that a log shows how far a long run has come. */
static void show_rows(void *user, const check_session *s, int first_row) {
    table *t = user;
    term_progress_deinit(t->progress);
    if (!t->has_head) {
        check_report_head_print(stdout);
        t->has_head = true;
    }
    for (int i = first_row; i < s->n_rows; i++) {
        check_report_row_print(&s->rows[i], stdout);
    }
    fflush(stdout);
}

/* How long it took, and on what. */
static void show_place(const check_session *s, double seconds) {
    const int32_t n = check_session_is_gpu(s) ? s->n_workers : mmla_context_get_threads(s->many);
    printf("%s on ", term_seconds(seconds).text);
    if (check_session_is_gpu(s)) {
        printf("cuda:%d, ", (int)s->options.device.index);
    }
    printf("%d thread%s\n", (int)n, n == 1 ? "" : "s");
}

/* Says what is wrong with --op, --impl or --case before anything runs. */
static bool selection_check(const check_options *o) {
    static const char *const portable[] = {"portable", NULL}, *const cuda[] = {"cuda", NULL};
    const bool is_gpu = o->device.kind == MMLA_DEVICE_CUDA;
    const char *const *unlisted = is_gpu ? cuda : portable;
    const char *names[SUITES_MAX + 1] = {0}, *ops[SUITES_MAX + 1] = {0};
    int64_t n_cases = 0;
    bool selected = false;
    for (int i = 0, n_ops = 0; check_suites[i] != NULL; i++) {
        const check_suite *suite = check_suites[i];
        names[i] = suite->name;
        const bool is_named = o->op != NULL && strcmp(o->op, suite->name) == 0;
        if (is_named && suite->gpu_only && !is_gpu) {
            cmd_message(&spec, "--op is '%s', which needs a GPU: --device cuda", o->op);
            return false;
        }
        if (is_named || (o->op == NULL && (is_gpu || !suite->gpu_only))) {
            const int64_t n = o->quick ? suite->n_quick : suite->n_full;
            n_cases = n > n_cases ? n : n_cases;
            selected = true;
            if (suite->op != NULL) {
                ops[n_ops++] = suite->op;
            }
        }
    }
    if (!selected) {
        return cmd_parse_name(&spec, "op", o->op, names);
    }
    if (o->only_case >= n_cases) {
        cmd_message(&spec, "--case is %lld, must be 0 .. %lld%s%s%s", (long long)o->only_case,
                    (long long)n_cases - 1, o->op != NULL ? " for " : "",
                    o->op != NULL ? o->op : "", o->quick ? " with --quick" : "");
        return false;
    }
    if (o->implementation == NULL) {
        return true;
    }
    return ops[0] != NULL
               ? cmd_parse_implementation(&spec, "impl", o->implementation, o->device, ops)
               : cmd_parse_name(&spec, "impl", o->implementation, unlisted);
}

/* Reads the options into o and *json. CMD_OK, or the exit status; *help when help was shown. */
static int read_options(int argc, char **argv, check_options *o, const char **json, bool *help) {
    cmd_parser p = cmd_parser_init(&spec, argc, argv);
    int64_t n = 0;
    for (int option; (option = cmd_parser_next(&p)) != CMD_OPTION_END;) {
        bool ok = true;
        switch (option) {
        case OPT_OP:
            o->op = p.value;
            break;
        case OPT_IMPL:
            o->implementation = p.value;
            break;
        case OPT_QUICK:
            o->quick = true;
            break;
        case OPT_SEED:
            ok = cmd_parse_count(&spec, "seed", p.value, 0, INT64_MAX, &n);
            o->seed = (uint64_t)n;
            break;
        case OPT_CASE:
            ok = cmd_parse_count(&spec, "case", p.value, 0, INT32_MAX, &o->only_case);
            break;
        case OPT_THREADS:
            ok = cmd_parse_count(&spec, "threads", p.value, 1, 4096, &n);
            o->n_threads = (int32_t)n;
            break;
        case OPT_DEVICE:
            ok = cmd_parse_device(&spec, p.value, &o->device);
            break;
        case OPT_JSON:
            ok = cmd_parse_file(&spec, "json", p.value);
            *json = p.value;
            break;
        case CMD_OPTION_HELP:
            *help = true;
            return CMD_OK;
        default:
            return CMD_USAGE;
        }
        if (!ok) {
            return CMD_USAGE;
        }
    }
    return cmd_parser_has_operands(&p, 0, 0) && selection_check(o) ? CMD_OK : CMD_USAGE;
}

int cmd_check(int argc, char **argv) {
    term_progress progress = term_progress_init("check");
    check_options o = {.seed = SEED_DEFAULT,
                       .only_case = -1,
                       .progress = show_progress,
                       .progress_user = &progress};
    const char *json = NULL;
    bool help = false;
    const int usage = read_options(argc, argv, &o, &json, &help);
    if (usage != CMD_OK || help) {
        return usage;
    }
    const bool is_table = json == NULL || strcmp(json, "-") != 0;
    table t = {.progress = &progress};
    o.finished = is_table ? show_rows : NULL;
    o.finished_user = &t;
    check_session s;
    mmla_error err = {0};
    int status = CMD_FAILED;
    if (check_session_init(&s, &o, &err) != MMLA_OK) {
        cmd_message(&spec, "%s", err.message);
        goto done;
    }
    const double start = term_now();
    const int64_t n_run = check_session_run(&s);
    term_progress_deinit(&progress);
    if (n_run == 0 || s.n_rows == 0) { /* the operation with that many cases lacks the name */
        cmd_message(&spec, check_session_is_gpu(&s)
                               ? "no operation has such an implementation and case on a GPU"
                               : "no operation with this implementation has this case");
        status = CMD_USAGE;
        goto done;
    }
    if (is_table) {
        check_report_end_print(&s, stdout);
        show_place(&s, term_now() - start);
    }
    status = check_session_failures(&s) > 0 ? CMD_FAILED : CMD_OK;
    if (json != NULL && check_report_save(&s, json, &err) != MMLA_OK) {
        cmd_message(&spec, "%s: %s", json, err.message);
        status = CMD_FAILED;
    }
done:
    check_session_deinit(&s);
    return status;
}
