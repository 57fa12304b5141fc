/* status.c - names and texts of the status table, and mmla_error_set. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

const char *mmla_status_name(mmla_status status) {
    switch (status) {
#define STATUS_NAME(name, value, text) \
    case MMLA_##name:                  \
        return "MMLA_" #name;
        MMLA_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "MMLA_E_UNKNOWN";
}

const char *mmla_status_text(mmla_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text) \
    case MMLA_##name:                  \
        return text;
        MMLA_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

mmla_status
mmla_error_set(mmla_error *err, mmla_status status, const char *argument, const char *format, ...) {
    if (err == NULL) {
        return status;
    }
    memset(err, 0, sizeof *err);
    err->status = status;
    snprintf(err->argument, sizeof err->argument, "%s", argument);
    int n = 0;
    if (argument[0] != '\0') {
        n = snprintf(err->message, sizeof err->message, "%s: ", argument);
    }
    if (n >= 0 && (size_t)n < sizeof err->message) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message + n, sizeof err->message - (size_t)n, format, args);
        va_end(args);
    }
    return status;
}

uint32_t mmla_version(void) {
    return MMLA_VERSION_HEX;
}

const char *mmla_version_string(void) {
    return MMLA_VERSION_STRING;
}
