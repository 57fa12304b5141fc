#include "app/capture/capture_attr.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"

enum { NAMES_BYTES = 160 };

/* Digits with an optional minus, all of the text: strtoll alone also takes blanks and a plus. */
static bool int_parse(const char *text, int64_t *out) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end = NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && errno == 0;
}

/* A decimal number as Python and C print it; no blanks, hexadecimal, infinity or NaN. A number too
 * small to hold becomes 0, which the plan then refuses or not. */
static bool real_parse(const char *text, double *out) {
    char *end = NULL;
    *out = strtod(text, &end);
    return text[0] != '\0' && strspn(text, "0123456789+-.eE") == strlen(text) && text[0] != '+' &&
           *end == '\0' && isfinite(*out);
}

/* "a, b or c" */
static void choices_format(const char *const *choices, char *out, size_t n) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; choices[i] != NULL && at < n; i++) {
        const char *before = i == 0 ? "" : choices[i + 1] != NULL ? ", " : " or ";
        at += (size_t)snprintf(out + at, n - at, "%s%s", before, choices[i]);
    }
}

static mmla_status
value_parse(const capture_attr *attr, const char *text, capture_value *value, mmla_error *err) {
    *value = (capture_value){.present = true, .text = text};
    char names[NAMES_BYTES];
    switch (attr->kind) {
    case CAPTURE_INT:
        if (int_parse(text, &value->integer) && value->integer >= attr->low &&
            value->integer <= attr->high) {
            return MMLA_OK;
        }
        return mmla_error_set(err, MMLA_E_VALUE, attr->name,
                              "is \"%.32s\", must be a whole number %lld .. %lld", text,
                              (long long)attr->low, (long long)attr->high);
    case CAPTURE_REAL:
        if (real_parse(text, &value->real)) {
            return MMLA_OK;
        }
        return mmla_error_set(err, MMLA_E_VALUE, attr->name,
                              "is \"%.32s\", must be a number such as 0.044194174", text);
    case CAPTURE_CHOICE:
        for (int i = 0; attr->choices[i] != NULL; i++) {
            if (strcmp(text, attr->choices[i]) == 0) {
                value->integer = i;
                return MMLA_OK;
            }
        }
        choices_format(attr->choices, names, sizeof names);
        return mmla_error_set(err, MMLA_E_VALUE, attr->name, "is \"%.32s\", must be %s", text,
                              names);
    case CAPTURE_TEXT:
        return MMLA_OK;
    }
    return MMLA_OK;
}

static bool input_is_present(const capture *c, const char *name) {
    for (int i = 0; c->op->inputs[i].name != NULL; i++) {
        if (strcmp(c->op->inputs[i].name, name) == 0) {
            return c->inputs[i] != NULL;
        }
    }
    return false;
}

static mmla_status
attr_parse(const capture *c, const capture_attr *attr, capture_value *value, mmla_error *err) {
    const char *text = safetensors_meta_find(c->file, attr->name);
    if (attr->input != NULL && !input_is_present(c, attr->input)) {
        return text == NULL ? MMLA_OK
                            : mmla_error_set(err, MMLA_E_VALUE, attr->name,
                                             "is given, but tensor %s, which it describes, is not",
                                             attr->input);
    }
    if (text == NULL && attr->fallback == NULL) {
        return mmla_error_set(err, MMLA_E_VALUE, attr->name,
                              "attribute is missing; %s needs it, as a string in __metadata__",
                              c->op->name);
    }
    if (text == NULL && attr->fallback[0] == '\0') {
        return MMLA_OK;
    }
    return value_parse(attr, text != NULL ? text : attr->fallback, value, err);
}

/* The operation's attributes in one line, for the message about an unknown one. */
static void names_format(const capture_attr *attrs, char *out, size_t n) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; attrs[i].name != NULL && at < n; i++) {
        at += (size_t)snprintf(out + at, n - at, "%s%s", i > 0 ? ", " : "", attrs[i].name);
    }
}

static bool is_known(const capture_op *op, const char *key) {
    if (strcmp(key, "megamla") == 0 || strcmp(key, "op") == 0) {
        return true;
    }
    for (int i = 0; op->attrs[i].name != NULL; i++) {
        if (strcmp(key, op->attrs[i].name) == 0) {
            return true;
        }
    }
    return false;
}

mmla_status capture_attrs_parse(capture *c, mmla_error *err) {
    const capture_op *op = c->op;
    for (int32_t i = 0; i < safetensors_meta_count(c->file); i++) {
        const char *key = safetensors_meta_get(c->file, i).key;
        if (!is_known(op, key)) {
            char names[NAMES_BYTES];
            names_format(op->attrs, names, sizeof names);
            return mmla_error_set(err, MMLA_E_VALUE, key, "unknown attribute; %s takes %s",
                                  op->name, names[0] != '\0' ? names : "none");
        }
    }
    for (int i = 0; op->attrs[i].name != NULL; i++) {
        MMLA_RETURN_IF_FAILED(attr_parse(c, &op->attrs[i], &c->attrs[i], err));
    }
    return MMLA_OK;
}
