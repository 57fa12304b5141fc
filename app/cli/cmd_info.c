/* cmd_info.c - megamla info: what this build can do on this machine, and why not the rest. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <megamla/version.h>

#include "app/cli/cmd.h"
#include "app/report/report_cpu.h"
#include "app/report/report_json.h"
#include "base/check.h"

enum { OPT_JSON };

static const cmd_option options[] = {
    [OPT_JSON] = {"json", 0, NULL, "print JSON, to standard output"},
    {0},
};

static const cmd_spec spec = {
    .verb = "info",
    .synopsis = "[OPTION]...",
    .about = "Shows the version, the devices, and for every operation its implementations in the\n"
             "order of preference: which of them this machine can use, and why not the others.\n"
             "Those that are marked 'by name only' run when --impl or --compare names them.",
    .options = options,
    .epilogue = "exit status: 0 success; 1 the output could not be written; 2 bad usage",
};

static void text_print(const mmla_context *ctx) {
    char model[REPORT_CPU_BYTES];
    mmla_error err;
    report_cpu_name(model);
    const char *missing = cmd_device_missing(MMLA_CUDA(0), &err);
    printf("megamla %s\n\ndevices\n  %-10s %d thread%s%s%s\n", mmla_version_string(), "cpu",
           (int)mmla_context_get_threads(ctx), mmla_context_get_threads(ctx) == 1 ? "" : "s",
           model[0] != '\0' ? ", " : "", model);
    printf("  %-10s %s%s\n\nimplementations, in the order of preference\n", "cuda:0",
           missing[0] == '\0' ? "available" : "not available: ", missing);
    const char *last = "";
    for (int32_t i = 0; i < mmla_implementation_count(ctx); i++) {
        mmla_implementation impl;
        mmla_error ignored;
        if (mmla_implementation_get(ctx, i, &impl, &ignored) != MMLA_OK) {
            continue;
        }
        printf("  %-14s %-14s %s%s%s\n", strcmp(last, impl.op) != 0 ? impl.op : "", impl.name,
               impl.available ? "available" : "not available: ", impl.reason,
               impl.by_name_only ? " (by name only)" : "");
        last = impl.op;
    }
}

static json_t *info_json(const mmla_context *ctx) {
    char model[REPORT_CPU_BYTES];
    mmla_error err;
    report_cpu_name(model);
    const char *missing = cmd_device_missing(MMLA_CUDA(0), &err);
    json_t *list = json_array();
    for (int32_t i = 0; i < mmla_implementation_count(ctx); i++) {
        mmla_implementation impl;
        mmla_error ignored;
        if (mmla_implementation_get(ctx, i, &impl, &ignored) == MMLA_OK) {
            report_append(&list, json_pack("{s:s, s:s, s:s, s:b, s:s, s:b}", "op", impl.op, "name",
                                           impl.name, "device",
                                           impl.device == MMLA_DEVICE_CPU ? "cpu" : "cuda",
                                           "available", (int)impl.available, "reason", impl.reason,
                                           "by_name_only", impl.by_name_only != 0));
        }
    }
    return json_pack("{s:s, s:[{s:s, s:b, s:i, s:o}, {s:s, s:b, s:s}], s:o}", "version",
                     mmla_version_string(), "devices", "device", "cpu", "available", 1, "threads",
                     (int)mmla_context_get_threads(ctx), "model", report_text(model), "device",
                     "cuda:0", "available", missing[0] == '\0', "reason", missing,
                     "implementations", list);
}

int cmd_info(int argc, char **argv) {
    bool json = false;
    cmd_parser parser = cmd_parser_init(&spec, argc, argv);
    for (int option; (option = cmd_parser_next(&parser)) != CMD_OPTION_END;) {
        if (option == CMD_OPTION_HELP) {
            return CMD_OK;
        }
        if (option != OPT_JSON) {
            return CMD_USAGE;
        }
        json = true;
    }
    if (!cmd_parser_has_operands(&parser, 0, 0)) {
        return CMD_USAGE;
    }
    mmla_context *ctx = cmd_context_create(&spec, MMLA_CPU, 0);
    if (ctx == NULL) {
        return CMD_FAILED;
    }
    int status = CMD_OK;
    if (json) {
        status = cmd_json_print(&spec, info_json(ctx));
    } else {
        text_print(ctx);
    }
    mmla_context_destroy(ctx);
    return status;
}
