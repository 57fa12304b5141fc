/* cmd_run.c - megamla run: replay one captured operation. */
#include <stdio.h>
#include <string.h>

#include "app/cli/cmd.h"
#include "app/cli/run_report.h"
#include "base/check.h"
#include "base/gpu_memory.h"

enum { OPT_OUTPUT, OPT_COMPARE, OPT_IMPL, OPT_DEVICE, OPT_THREADS, OPT_REPEAT, OPT_JSON };

static const cmd_option options[] = {
    [OPT_OUTPUT] = {"output", 'o', "FILE", "write the outputs there, as safetensors"},
    [OPT_COMPARE] = {"compare", 'c', "IMPL",
                     "run a second implementation and hold the results against\n"
                     "each other; reference is the definition. A difference\n"
                     "beyond the tolerance gives exit status 1. An operation\n"
                     "with one implementation has nothing to compare. On a GPU\n"
                     "one of the CPU as well"},
    [OPT_IMPL] = {"impl", 'i', "IMPL", "run this implementation (megamla info lists them)"},
    [OPT_DEVICE] = {"device", 'd', "DEVICE", "cpu (the default), cuda or cuda:N"},
    [OPT_THREADS] = {"threads", 't', "N", "CPU threads; every core by default"},
    [OPT_REPEAT] = {"repeat", 'r', "N", "time N runs; by default as many as half a second allows"},
    [OPT_JSON] = {"json", 0, NULL, "print the summary as JSON, to standard output"},
    {0},
};

static const cmd_spec spec = {
    .verb = "run",
    .synopsis = "FILE [OPTION]...",
    .about = "Replays the operation captured in FILE, says what ran where and how long it took,\n"
             "and can compare the result with another implementation. docs/captures.md describes\n"
             "the files. Attention captures are timed against the unfused chain as well.",
    .options = options,
    .epilogue = "examples\n"
                "  megamla run examples/mixed_batch.safetensors --compare reference\n"
                "  megamla run call.safetensors --impl portable -o out.safetensors\n"
                "  megamla run call.safetensors --device cuda --compare reference\n\n"
                "exit status: 0 success; 1 the comparison or the operation failed; 2 bad usage or "
                "input",
};

typedef struct settings {
    const char *path, *output, *compare, *implementation;
    mmla_device device;
    int64_t n_threads, n_repeats;
    bool json;
} settings;

/* CMD_OK and a path, or the exit status; `path` stays NULL after --help. */
static int settings_parse(int argc, char **argv, settings *s) {
    cmd_parser parser = cmd_parser_init(&spec, argc, argv);
    for (int option; (option = cmd_parser_next(&parser)) != CMD_OPTION_END;) {
        bool ok = true;
        switch (option) {
        case OPT_OUTPUT:
            s->output = parser.value;
            break;
        case OPT_COMPARE:
            s->compare = parser.value;
            break;
        case OPT_IMPL:
            s->implementation = parser.value;
            break;
        case OPT_DEVICE:
            ok = cmd_parse_device(&spec, parser.value, &s->device);
            break;
        case OPT_THREADS:
            ok = cmd_parse_count(&spec, "threads", parser.value, 1, 4096, &s->n_threads);
            break;
        case OPT_REPEAT:
            ok = cmd_parse_count(&spec, "repeat", parser.value, 1, RUN_SAMPLES_MAX, &s->n_repeats);
            break;
        case OPT_JSON:
            s->json = true;
            break;
        case CMD_OPTION_HELP:
            return CMD_OK;
        default:
            return CMD_USAGE;
        }
        if (!ok) {
            return CMD_USAGE;
        }
    }
    if (!cmd_parser_has_operands(&parser, 1, 1)) {
        return CMD_USAGE;
    }
    s->path = parser.operands[0];
    return CMD_OK;
}

/* Everything a replay owns. */
typedef struct replay {
    settings settings;
    capture *capture;
    mmla_context *ctx;
    mmla_context *host;      /* of the CPU, for a comparison with a run on a GPU */
    mmla_context *other_ctx; /* whichever of them the comparison runs in */
    const char *compare;     /* what it runs; NULL: nothing is compared */
    capture_call *call, *chain, *other;
    char device[16];
    mmla_gpu_facts gpu;
    char chain_missing[MMLA_ERROR_MESSAGE_BYTES]; /* why an attend capture has no chain */
    run_report report;
} replay;

/* The message for a failed step, and the exit status: what the file or the command line asked for
 * cannot be, or what should have worked did not. */
static int fail(const replay *r, mmla_status status, const mmla_error *err, int code) {
    const char *hint = status == MMLA_E_NO_IMPLEMENTATION ? "; megamla info lists them" : "";
    cmd_message(&spec, "%s: %s%s", r->settings.path,
                err->message[0] != '\0' ? err->message : mmla_status_text(status), hint);
    return status == MMLA_E_MEMORY ? CMD_FAILED : code;
}

static bool has_implementation(const mmla_context *ctx, const char *op, const char *name) {
    mmla_implementation impl;
    for (int32_t i = 0; mmla_implementation_get(ctx, i, &impl, NULL) == MMLA_OK; i++) {
        if (strcmp(impl.op, op) == 0 && strcmp(impl.name, name) == 0) {
            return impl.available != 0;
        }
    }
    return false;
}

/* What a run on a GPU is compared with: another implementation of the GPU or one of the CPU. Of what
 * the CPU has one implementation, that is the definition. */
static bool compare_choose_gpu(replay *r, const char *const *ops) {
    const char *name = r->settings.compare;
    r->other_ctx = r->ctx;
    r->compare = name;
    if (has_implementation(r->ctx, ops[0], name)) {
        return true;
    }
    r->host = cmd_context_create(&spec, MMLA_CPU, r->settings.n_threads);
    r->other_ctx = r->host;
    if (r->host == NULL) {
        return false;
    }
    const char *only = capture_only_implementation(r->capture, r->host);
    if (only != NULL && strcmp(name, "reference") == 0) {
        r->compare = only;
        return true;
    }
    return cmd_parse_implementation(&spec, "compare", name, MMLA_CPU, ops);
}

/* Holds --impl and --compare against what the operation has. One that has a single implementation,
 * which is its definition too, has nothing to compare it with. */
static bool names_check(replay *r) {
    const settings *s = &r->settings;
    const char *const ops[] = {r->capture->op->library_op, NULL};
    if (s->implementation != NULL &&
        !cmd_parse_implementation(&spec, "impl", s->implementation, s->device, ops)) {
        return false;
    }
    if (s->compare == NULL) {
        return true;
    }
    if (s->device.kind == MMLA_DEVICE_CUDA) {
        return compare_choose_gpu(r, ops);
    }
    const char *only = capture_only_implementation(r->capture, r->ctx);
    if (only != NULL && (strcmp(s->compare, "reference") == 0 || strcmp(s->compare, only) == 0)) {
        r->report.only = only;
        return true;
    }
    r->other_ctx = r->ctx;
    r->compare = s->compare;
    return cmd_parse_implementation(&spec, "compare", s->compare, s->device, ops);
}

/* Opens everything, so that whatever is wrong with the input is said before work starts. */
static int prepare(replay *r) {
    const settings *s = &r->settings;
    mmla_error err = {0};
    mmla_status status = capture_load(s->path, &r->capture, &err);
    if (status != MMLA_OK) {
        return fail(r, status, &err, CMD_USAGE);
    }
    r->ctx = cmd_context_create(&spec, s->device, s->n_threads);
    if (r->ctx == NULL) {
        return CMD_FAILED;
    }
    if (!names_check(r)) {
        return CMD_USAGE;
    }
    status = capture_call_create(r->capture, r->ctx, s->implementation, &r->call, &err);
    if (status == MMLA_OK && r->compare != NULL) {
        status = capture_call_create(r->capture, r->other_ctx, r->compare, &r->other, &err);
    }
    if (status == MMLA_OK && capture_is_attend(r->capture)) {
        status = capture_chain_create(r->capture, r->ctx, &r->chain, &err);
        /* The chain keeps whole tensors in between. A call too large for that is still a call, and
         * so is one on a device that has no chain. */
        if (status == MMLA_E_MEMORY || status == MMLA_E_SIZE ||
            status == MMLA_E_NO_IMPLEMENTATION) {
            snprintf(r->chain_missing, sizeof r->chain_missing, "%.127s", err.message);
            status = MMLA_OK;
        }
    }
    return status == MMLA_OK ? CMD_OK : fail(r, status, &err, CMD_USAGE);
}

static mmla_status outputs_save(const replay *r, mmla_error *err) {
    char elapsed[32];
    snprintf(elapsed, sizeof elapsed, "%.3f", 1e6 * r->report.times.fused.median);
    const safetensors_meta meta[] = {
        {"megamla", "1"},
        {"op", r->capture->op->name},
        {"implementation", r->call->implementation},
        {"device", r->device},
        {"elapsed_us", elapsed},
    };
    return safetensors_save(r->settings.output, r->call->outputs, r->call->n_outputs, meta,
                            sizeof meta / sizeof meta[0], err);
}

static mmla_status compare(replay *r, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(run_measure_once(r->other, &r->report.compared_seconds, err));
    MMLA_RETURN_IF_FAILED(capture_call_finish(r->other, err));
    r->report.compared_to = r->other->implementation;
    r->report.is_itself =
        r->other_ctx == r->ctx && strcmp(r->other->implementation, r->call->implementation) == 0;
    r->report.n_differences = capture_compare(r->call, r->other, r->report.differences);
    return MMLA_OK;
}

static int execute(replay *r) {
    mmla_error err = {0};
    run_report *report = &r->report;
    *report = (run_report){.path = r->settings.path,
                           .capture = r->capture,
                           .call = r->call,
                           .device = r->device,
                           .chain_missing = r->chain_missing,
                           .n_threads = mmla_context_get_threads(r->ctx),
                           .only = report->only};
    if (r->call->stage.gpu != NULL &&
        mmla_gpu_facts_get(r->call->stage.gpu, &r->gpu, NULL) == MMLA_OK) {
        report->gpu = r->gpu.name;
    }
    const int n_repeats = (int)r->settings.n_repeats;
    mmla_status status = run_measure(r->call, r->chain, n_repeats, &report->times, &err);
    status = status == MMLA_OK ? capture_call_finish(r->call, &err) : status;
    if (status != MMLA_OK) {
        return fail(r, status, &err, CMD_FAILED);
    }
    if (r->settings.output != NULL) {
        status = outputs_save(r, &err);
        if (status != MMLA_OK) {
            cmd_message(&spec, "%s: %s", r->settings.output, err.message);
            return CMD_FAILED;
        }
        report->output = r->settings.output;
    }
    if (r->other != NULL) {
        status = compare(r, &err);
    }
    if (status == MMLA_OK && capture_is_attend(r->capture)) {
        status = capture_usage_count(r->capture, &report->usage, &err);
    }
    if (status != MMLA_OK) {
        return fail(r, status, &err, CMD_FAILED);
    }
    if (r->settings.json) {
        const int printed = cmd_json_print(&spec, run_report_json(report));
        if (printed != CMD_OK) {
            return printed;
        }
    } else {
        run_report_print(report);
    }
    return run_report_is_passed(report) ? CMD_OK : CMD_FAILED;
}

int cmd_run(int argc, char **argv) {
    replay r = {.settings = {.device = MMLA_CPU}};
    int code = settings_parse(argc, argv, &r.settings);
    if (code != CMD_OK || r.settings.path == NULL) {
        return code;
    }
    if (r.settings.device.kind == MMLA_DEVICE_CUDA) {
        snprintf(r.device, sizeof r.device, "cuda:%d", (int)r.settings.device.index);
    } else {
        snprintf(r.device, sizeof r.device, "cpu");
    }
    code = prepare(&r);
    if (code == CMD_OK) {
        code = execute(&r);
    }
    capture_call_destroy(r.other);
    capture_call_destroy(r.chain);
    capture_call_destroy(r.call);
    mmla_context_destroy(r.ctx);
    mmla_context_destroy(r.host);
    capture_destroy(r.capture);
    return code;
}
