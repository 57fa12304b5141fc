/* safetensors_save.c - the writer. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "model/file_save.h"
#include "model/safetensors.h"

enum {
    LENGTH_BYTES = 8,
    DATA_ALIGNMENT = 64 /* of the first tensor, so that a mapped file can be used in place */
};

static mmla_status out_of_memory(mmla_error *err) {
    return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for the header");
}

/* Sets object[key] and takes value. A failure, of making value too, leaves *ok false. */
static void set(json_t *object, const char *key, json_t *value, bool *ok) {
    *ok = json_object_set_new(object, key, value) == 0 && *ok;
}

static json_t *tensor_json(const safetensors_tensor *t, int64_t begin, bool *ok) {
    json_t *shape = json_array(), *offsets = json_array(), *tensor = json_object();
    for (int32_t i = 0; i < t->rank; i++) {
        *ok = json_array_append_new(shape, json_integer(t->shape[i])) == 0 && *ok;
    }
    *ok = json_array_append_new(offsets, json_integer(begin)) == 0 && *ok;
    *ok = json_array_append_new(offsets, json_integer(begin + t->n_bytes)) == 0 && *ok;
    set(tensor, "dtype", json_string(safetensors_dtype_name(t->dtype)), ok);
    set(tensor, "shape", shape, ok);
    set(tensor, "data_offsets", offsets, ok);
    return tensor;
}

/* The header as text; NULL when anything of it could not be made. */
static char *header_text(const safetensors_tensor *tensors,
                         int32_t n_tensors,
                         const safetensors_meta *meta,
                         int32_t n_meta) {
    json_t *header = json_object(), *metadata = json_object();
    bool ok = true;
    for (int32_t i = 0; i < n_meta; i++) {
        set(metadata, meta[i].key, json_string(meta[i].value), &ok);
    }
    set(header, "__metadata__", metadata, &ok);
    int64_t at = 0;
    for (int32_t i = 0; i < n_tensors; i++) {
        set(header, tensors[i].name, tensor_json(&tensors[i], at, &ok), &ok);
        at += tensors[i].n_bytes;
    }
    char *text = ok ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

/* The file's first bytes: length and JSON, padded with spaces so that data start aligned. */
static char *header_create(const safetensors_tensor *tensors,
                           int32_t n_tensors,
                           const safetensors_meta *meta,
                           int32_t n_meta,
                           size_t *n_bytes) {
    char *text = header_text(tensors, n_tensors, meta, n_meta);
    if (text == NULL) {
        return NULL;
    }
    const size_t n_text = strlen(text);
    *n_bytes = (LENGTH_BYTES + n_text + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    char *bytes = malloc(*n_bytes);
    if (bytes != NULL) {
        memset(bytes, ' ', *n_bytes);
        for (int i = 0; i < LENGTH_BYTES; i++) {
            bytes[i] = (char)((*n_bytes - LENGTH_BYTES) >> (8 * i) & 0xff);
        }
        memcpy(bytes + LENGTH_BYTES, text, n_text);
    }
    free(text);
    return bytes;
}

mmla_status safetensors_save(const char *path,
                             const safetensors_tensor *tensors,
                             int32_t n_tensors,
                             const safetensors_meta *meta,
                             int32_t n_meta,
                             mmla_error *err) {
    size_t n_header = 0;
    char *header = header_create(tensors, n_tensors, meta, n_meta, &n_header);
    file_part *parts = calloc((size_t)n_tensors + 1, sizeof *parts);
    mmla_status status;
    if (header == NULL || parts == NULL) {
        status = out_of_memory(err);
    } else {
        parts[0] = (file_part){header, n_header};
        for (int32_t i = 0; i < n_tensors; i++) {
            parts[i + 1] = (file_part){tensors[i].data, (size_t)tensors[i].n_bytes};
        }
        status = file_save(path, parts, n_tensors + 1, err);
    }
    free(parts);
    free(header);
    return status;
}
