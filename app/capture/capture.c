/* capture.c - a file held against the tables of its operation. */
#include "app/capture/capture.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/capture/capture_attr.h"
#include "app/capture/capture_op.h"
#include "app/capture/capture_shape.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

static const char FORMAT_VERSION[] = "1";

static const capture_op *const ops[] = {
#define OP(name) &capture_op_##name,
    CAPTURE_OP_MAP(OP)
#undef OP
};

#define OP(name) #name " "
static const char op_names[] = CAPTURE_OP_MAP(OP);
#undef OP

enum { N_OPS = sizeof ops / sizeof ops[0] };

/* Which format, which operation. */
static mmla_status op_parse(capture *c, mmla_error *err) {
    const char *version = safetensors_meta_find(c->file, "megamla");
    const char *name = safetensors_meta_find(c->file, "op");
    if (version == NULL) {
        return mmla_error_set(err, MMLA_E_VALUE, "megamla",
                              "attribute is missing from __metadata__; a capture has megamla = "
                              "\"%s\" and op (docs/captures.md)",
                              FORMAT_VERSION);
    }
    if (strcmp(version, FORMAT_VERSION) != 0) {
        return mmla_error_set(err, MMLA_E_VALUE, "megamla",
                              "is \"%.32s\", a version this program does not know; it reads \"%s\"",
                              version, FORMAT_VERSION);
    }
    if (name == NULL) {
        return mmla_error_set(err, MMLA_E_VALUE, "op",
                              "attribute is missing from __metadata__; it names the operation");
    }
    for (int i = 0; i < N_OPS; i++) {
        if (strcmp(name, ops[i]->name) == 0) {
            c->op = ops[i];
            return MMLA_OK;
        }
    }
    return mmla_error_set(err, MMLA_E_VALUE, "op", "is \"%.32s\", must be one of %s", name,
                          op_names);
}

static mmla_status input_parse(capture *c, int i, mmla_error *err) {
    const capture_input *input = &c->op->inputs[i];
    char want[CAPTURE_SHAPE_BYTES], found[CAPTURE_SHAPE_BYTES];
    const safetensors_tensor *t = safetensors_find(c->file, input->name);
    if (t == NULL) {
        if (input->optional) {
            return MMLA_OK;
        }
        capture_shape_expected(input->shape, c->letters, want);
        return mmla_error_set(err, MMLA_E_VALUE, input->name,
                              "tensor is missing; %s needs it, %s %s", c->op->name,
                              safetensors_dtype_name(input->dtype), want);
    }
    if (t->dtype != input->dtype) {
        return mmla_error_set(err, MMLA_E_VALUE, input->name, "has dtype %s, must be %s",
                              safetensors_dtype_name(t->dtype),
                              safetensors_dtype_name(input->dtype));
    }
    capture_shape_expected(input->shape, c->letters, want);
    if (!capture_shape_match(input->shape, t->rank, t->shape, c->letters)) {
        capture_shape_format(t->rank, t->shape, found);
        return mmla_error_set(err, MMLA_E_VALUE, input->name, "has shape %s, must be %s", found,
                              want);
    }
    c->inputs[i] = t;
    c->data[i] = safetensors_align(c->file, t, (size_t)input->alignment);
    return c->data[i] != NULL || t->n_bytes == 0
               ? MMLA_OK
               : mmla_error_set(err, MMLA_E_MEMORY, input->name, "no memory for an aligned copy");
}

/* A tensor nobody reads is most likely a misspelled optional one. */
static mmla_status strangers_check(const capture *c, mmla_error *err) {
    for (int32_t k = 0; k < safetensors_count(c->file); k++) {
        const char *name = safetensors_get(c->file, k)->name;
        int i = 0;
        while (c->op->inputs[i].name != NULL && strcmp(c->op->inputs[i].name, name) != 0) {
            i++;
        }
        if (c->op->inputs[i].name == NULL) {
            char names[128] = "";
            size_t at = 0;
            for (i = 0; c->op->inputs[i].name != NULL && at < sizeof names; i++) {
                at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? ", " : "",
                                       c->op->inputs[i].name);
            }
            return mmla_error_set(err, MMLA_E_VALUE, name, "unknown tensor; %s takes %s",
                                  c->op->name, names);
        }
    }
    return MMLA_OK;
}

static mmla_status parse(capture *c, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(op_parse(c, err));
    MMLA_RETURN_IF_FAILED(strangers_check(c, err));
    for (int i = 0; c->op->inputs[i].name != NULL; i++) {
        MMLA_RETURN_IF_FAILED(input_parse(c, i, err));
    }
    return capture_attrs_parse(c, err);
}

/* Takes the file in any case. */
static mmla_status create(safetensors_file *file, capture **out, mmla_error *err) {
    capture *c = calloc(1, sizeof *c);
    if (c == NULL) {
        safetensors_destroy(file);
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory");
    }
    c->file = file;
    for (int i = 0; i < 128; i++) {
        c->letters[i] = -1;
    }
    const mmla_status status = parse(c, err);
    if (status != MMLA_OK) {
        capture_destroy(c);
        return status;
    }
    *out = c;
    return MMLA_OK;
}

mmla_status capture_load(const char *path, capture **out, mmla_error *err) {
    *out = NULL;
    safetensors_file *file;
    MMLA_RETURN_IF_FAILED(safetensors_load(path, &file, err));
    return create(file, out, err);
}

mmla_status capture_parse(const void *bytes, size_t n_bytes, capture **out, mmla_error *err) {
    *out = NULL;
    safetensors_file *file;
    MMLA_RETURN_IF_FAILED(safetensors_parse(bytes, n_bytes, &file, err));
    return create(file, out, err);
}

void capture_destroy(capture *c) {
    if (c != NULL) {
        safetensors_destroy(c->file);
        free(c);
    }
}

int64_t capture_dim(const capture *c, char letter) {
    return mmla_max_i64(c->letters[(unsigned char)letter], 0);
}

int32_t capture_dim32(const capture *c, char letter) {
    return (int32_t)mmla_min_i64(capture_dim(c, letter), INT32_MAX);
}

bool capture_is_attend(const capture *c) {
    return c->op == &capture_op_attend_paged || c->op == &capture_op_attend_rows;
}
