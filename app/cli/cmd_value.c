/* cmd_value.c - the values of options: numbers, sizes, names, files, devices. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/cli/cmd.h"
#include "base/checked.h"

enum { LIST_BYTES = 512 };

static bool is_one_of(const char *text, const char *const *names) {
    while (*names != NULL && strcmp(text, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

bool cmd_parse_count(const cmd_spec *spec,
                     const char *option,
                     const char *text,
                     int64_t low,
                     int64_t high,
                     int64_t *out) {
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        cmd_message(spec, "--%s is '%s', must be a whole number %lld .. %lld", option, text,
                    (long long)low, (long long)high);
        return false;
    }
    *out = value;
    return true;
}

bool cmd_parse_tokens(
    const cmd_spec *spec, const char *option, const char *text, int64_t high, int64_t *out) {
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const char unit = *end != '\0' && end[1] == '\0' ? *end : '\0';
    const int64_t factor = unit == 'k' || unit == 'K'   ? 1024
                           : unit == 'm' || unit == 'M' ? 1024 * 1024
                                                        : 1;
    if (text[0] >= '0' && text[0] <= '9' && errno == 0 && (*end == '\0' || factor > 1) &&
        mmla_mul_i64(value, factor, out) && *out >= 1 && *out <= high) {
        return true;
    }
    cmd_message(
        spec,
        "--%s is '%s', must be a whole number 1 .. %lld, or one with k (1024) or m (1048576) "
        "behind it",
        option, text, (long long)high);
    return false;
}

bool cmd_parse_name(const cmd_spec *spec,
                    const char *option,
                    const char *text,
                    const char *const *names) {
    char list[LIST_BYTES];
    size_t at = 0;
    list[0] = '\0';
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return true;
        }
        if (at < sizeof list) {
            const char *before = i == 0 ? "" : names[i + 1] != NULL ? ", " : " or ";
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", before, names[i]);
        }
    }
    const char *near = cmd_nearest(text, names);
    cmd_message(spec, "--%s is '%s', must be %s%s%s%s", option, text, list,
                near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                near != NULL ? "'?" : "");
    return false;
}

bool cmd_parse_file(const cmd_spec *spec, const char *option, const char *text) {
    if (text[0] == '-' && text[1] != '\0') {
        cmd_message(
            spec,
            "--%s is '%s', must be a file, or - for standard output; a file of that name is "
            "./%s",
            option, text, text);
        return false;
    }
    if (text[0] == '\0') {
        cmd_message(spec, "--%s is '', must be a file, or - for standard output", option);
    }
    return text[0] != '\0';
}

bool cmd_parse_implementation(const cmd_spec *spec,
                              const char *option,
                              const char *text,
                              mmla_device device,
                              const char *const *ops) {
    enum { NAMES_MAX = 32 };
    const char *names[NAMES_MAX + 1], *why = NULL;
    int n = 0;
    bool usable = false;
    mmla_context *ctx = cmd_context_create(spec, device, 1);
    for (int32_t i = 0; ctx != NULL && i < mmla_implementation_count(ctx); i++) {
        mmla_implementation impl;
        if (mmla_implementation_get(ctx, i, &impl, NULL) != MMLA_OK || !is_one_of(impl.op, ops)) {
            continue;
        }
        names[n] = NULL;
        if (impl.device == device.kind && !is_one_of(impl.name, names) && n < NAMES_MAX) {
            names[n++] = impl.name;
        }
        if (strcmp(impl.name, text) == 0) {
            usable = usable || impl.available;
            why = impl.reason;
        }
    }
    mmla_context_destroy(ctx);
    if (ctx == NULL || usable) {
        return usable;
    }
    if (why != NULL) {
        cmd_message(spec, "--%s is '%s', which is not available here: %s", option, text, why);
        return false;
    }
    names[n] = NULL;
    return cmd_parse_name(spec, option, text, names);
}

bool cmd_parse_bytes(const cmd_spec *spec, const char *option, const char *text, int64_t *out) {
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {
        {"B", 1},
        {"KiB", INT64_C(1) << 10},
        {"MiB", INT64_C(1) << 20},
        {"GiB", INT64_C(1) << 30},
        {"TiB", INT64_C(1) << 40},
        {"kB", 1000},
        {"MB", 1000 * 1000},
        {"GB", INT64_C(1000000000)},
        {"TB", INT64_C(1000000000000)},
    };
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && errno == 0) {
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            if (strcmp(end, units[i].name) == 0 && mmla_mul_i64(value, units[i].bytes, out)) {
                return true;
            }
        }
    }
    cmd_message(
        spec,
        "--%s is '%s', must be a whole number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, "
        "TB, such as 80GiB or 64GB",
        option, text);
    return false;
}

/* A device of the right form; whether the machine has it is another question. */
static bool device_parse(const char *text, mmla_device *out) {
    if (strcmp(text, "cpu") == 0) {
        *out = MMLA_CPU;
        return true;
    }
    if (strcmp(text, "cuda") == 0) {
        *out = MMLA_CUDA(0);
        return true;
    }
    if (strncmp(text, "cuda:", 5) == 0) {
        char *end = NULL;
        errno = 0;
        const long index = strtol(text + 5, &end, 10);
        if (text[5] >= '0' && text[5] <= '9' && *end == '\0' && errno == 0 && index <= INT16_MAX) {
            *out = MMLA_CUDA((int32_t)index);
            return true;
        }
    }
    return false;
}

const char *cmd_device_missing(mmla_device device, mmla_error *err) {
    mmla_context *ctx = NULL;
    *err = (mmla_error){0};
    const mmla_context_options options = {.device = device};
    if (mmla_context_create(&options, &ctx, err) == MMLA_OK) {
        mmla_context_destroy(ctx);
        return "";
    }
    /* "device: is CUDA device 0, but <why>": the caller has named the device already. */
    const char *why = strstr(err->message, ", but ");
    return why != NULL ? why + strlen(", but ") : err->message;
}

bool cmd_parse_device(const cmd_spec *spec, const char *text, mmla_device *out) {
    if (!device_parse(text, out)) {
        cmd_message(spec, "--device is '%s', must be cpu, cuda or cuda:N", text);
        return false;
    }
    mmla_error err;
    const char *why = cmd_device_missing(*out, &err);
    if (why[0] != '\0') {
        cmd_message(spec, "--device is '%s', which is not available: %s", text, why);
    }
    return why[0] == '\0';
}
