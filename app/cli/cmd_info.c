/* cmd_info.c - megamla info: what this build can do on this machine, and why not the rest. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <megamla/version.h>

#include "app/cli/cmd.h"
#include "app/report/report_cpu.h"
#include "app/report/report_json.h"
#include "base/gpu_memory.h"

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

/* What is asked of a machine: the CPU's context, and that of the first CUDA device or NULL. */
typedef struct machine {
    mmla_context *cpu;
    mmla_context *cuda;
} machine;

/* One CUDA device: usable, or why not. */
typedef struct cuda_device {
    char name[16];                      /* "cuda:0" */
    char why[MMLA_ERROR_MESSAGE_BYTES]; /* "" when usable */
    mmla_gpu gpu;
    mmla_gpu_facts facts;
} cuda_device;

/* Where there is no device at all, the first says why. */
static int32_t cuda_rows(void) {
    return mmla_gpu_count() > 0 ? mmla_gpu_count() : 1;
}

static cuda_device cuda_ask(int32_t index) {
    cuda_device d = {.gpu.index = index};
    mmla_error err;
    snprintf(d.name, sizeof d.name, "cuda:%d", (int)index);
    snprintf(d.why, sizeof d.why, "%s", cmd_device_missing(MMLA_CUDA(index), &err));
    if (d.why[0] == '\0' && (mmla_gpu_open(index, &d.gpu, &err) != MMLA_OK ||
                             mmla_gpu_facts_get(&d.gpu, &d.facts, &err) != MMLA_OK)) {
        snprintf(d.why, sizeof d.why, "%s", err.message);
    }
    return d;
}

/* An implementation as the device that it is for sees it. */
static bool implementation_ask(const machine *m, int32_t i, mmla_implementation *out) {
    return mmla_implementation_get(m->cpu, i, out, NULL) == MMLA_OK &&
           (out->device != MMLA_DEVICE_CUDA || m->cuda == NULL ||
            mmla_implementation_get(m->cuda, i, out, NULL) == MMLA_OK);
}

static void cuda_print(const cuda_device *d) {
    if (d->why[0] != '\0') {
        printf("  %-10s not available: %s\n", d->name, d->why);
        return;
    }
    printf("  %-10s %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver CUDA %d.%d, "
           "runtime %d.%d\n",
           d->name, d->facts.name, (int)(d->gpu.capability / 10), (int)(d->gpu.capability % 10),
           (int)d->gpu.n_sms, (double)d->facts.memory_bytes / (1024.0 * 1024.0 * 1024.0),
           (int)(d->facts.driver_cuda / 1000), (int)(d->facts.driver_cuda % 1000 / 10),
           (int)(d->facts.runtime_cuda / 1000), (int)(d->facts.runtime_cuda % 1000 / 10));
}

static void text_print(const machine *m) {
    char model[REPORT_CPU_BYTES];
    report_cpu_name(model);
    const int n_threads = (int)mmla_context_get_threads(m->cpu);
    printf("megamla %s\n\ndevices\n  %-10s %d thread%s%s%s\n", mmla_version_string(), "cpu",
           n_threads, n_threads == 1 ? "" : "s", model[0] != '\0' ? ", " : "", model);
    for (int32_t i = 0; i < cuda_rows(); i++) {
        const cuda_device d = cuda_ask(i);
        cuda_print(&d);
    }
    printf("\nimplementations, in the order of preference\n");
    const char *last = "";
    for (int32_t i = 0; i < mmla_implementation_count(m->cpu); i++) {
        mmla_implementation impl;
        if (!implementation_ask(m, i, &impl)) {
            continue;
        }
        printf("  %-14s %-16s %s%s%s\n", strcmp(last, impl.op) != 0 ? impl.op : "", impl.name,
               impl.available ? "available" : "not available: ", impl.reason,
               impl.by_name_only ? " (by name only)" : "");
        last = impl.op;
    }
}

static json_t *version_json(int32_t cuda) {
    char text[16];
    snprintf(text, sizeof text, "%d.%d", (int)(cuda / 1000), (int)(cuda % 1000 / 10));
    return json_string(text);
}

static json_t *cuda_json(const cuda_device *d) {
    if (d->why[0] != '\0') {
        return json_pack("{s:s, s:b, s:s}", "device", d->name, "available", 0, "reason", d->why);
    }
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", (int)(d->gpu.capability / 10),
             (int)(d->gpu.capability % 10));
    return json_pack("{s:s, s:b, s:s, s:o, s:s, s:i, s:I, s:o, s:o}", "device", d->name,
                     "available", 1, "reason", "", "model", report_text(d->facts.name),
                     "capability", capability, "multiprocessors", (int)d->gpu.n_sms, "memory_bytes",
                     (json_int_t)d->facts.memory_bytes, "driver_cuda",
                     version_json(d->facts.driver_cuda), "runtime_cuda",
                     version_json(d->facts.runtime_cuda));
}

static json_t *info_json(const machine *m) {
    char model[REPORT_CPU_BYTES];
    report_cpu_name(model);
    json_t *devices =
        json_pack("[{s:s, s:b, s:i, s:o}]", "device", "cpu", "available", 1, "threads",
                  (int)mmla_context_get_threads(m->cpu), "model", report_text(model));
    for (int32_t i = 0; i < cuda_rows(); i++) {
        const cuda_device d = cuda_ask(i);
        report_append(&devices, cuda_json(&d));
    }
    json_t *list = json_array();
    for (int32_t i = 0; i < mmla_implementation_count(m->cpu); i++) {
        mmla_implementation impl;
        if (implementation_ask(m, i, &impl)) {
            report_append(&list, json_pack("{s:s, s:s, s:s, s:b, s:s, s:b}", "op", impl.op, "name",
                                           impl.name, "device",
                                           impl.device == MMLA_DEVICE_CPU ? "cpu" : "cuda",
                                           "available", (int)impl.available, "reason", impl.reason,
                                           "by_name_only", impl.by_name_only != 0));
        }
    }
    return json_pack("{s:s, s:o, s:o}", "version", mmla_version_string(), "devices", devices,
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
    const mmla_context_options cuda = {.device = MMLA_CUDA(0)};
    machine m = {.cpu = cmd_context_create(&spec, MMLA_CPU, 0)};
    if (m.cpu == NULL) {
        return CMD_FAILED;
    }
    mmla_context_create(&cuda, &m.cuda, NULL); /* NULL when there is none */
    int status = CMD_OK;
    if (json) {
        status = cmd_json_print(&spec, info_json(&m));
    } else {
        text_print(&m);
    }
    mmla_context_destroy(m.cuda);
    mmla_context_destroy(m.cpu);
    return status;
}
