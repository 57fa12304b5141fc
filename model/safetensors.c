/* safetensors.c - the reader: map, parse the header, check every number in it. */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

enum { LENGTH_BYTES = 8, COPY_ALIGNMENT = 64 };

static const char METADATA[] = "__metadata__";

typedef struct entry {
    safetensors_tensor tensor;
    void *copy; /* aligned, or NULL */
} entry;

struct safetensors_file {
    const uint8_t *bytes;
    int64_t n_bytes;
    void *map; /* what to unmap, or NULL */
    json_t *header;
    int32_t n_tensors;
    int32_t n_meta;
    safetensors_meta *meta;
    entry *entries;
};

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {
#define DTYPE(name, bytes) {#name, bytes},
    SAFETENSORS_DTYPE_MAP(DTYPE)
#undef DTYPE
};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *safetensors_dtype_name(safetensors_dtype dtype) {
    return dtypes[dtype].name;
}

int64_t safetensors_dtype_bytes(safetensors_dtype dtype) {
    return dtypes[dtype].bytes;
}

/* Failures of one tensor all read the same: whose, what, what is right. */
#define TENSOR_FAIL(err, name, ...) mmla_error_set(err, MMLA_E_VALUE, name, __VA_ARGS__)

static mmla_status dtype_parse(const json_t *json, safetensors_tensor *t, mmla_error *err) {
    const char *text = json_string_value(json);
    if (text == NULL) {
        return TENSOR_FAIL(err, t->name, "has no dtype; it must be a string such as \"BF16\"");
    }
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            t->dtype = (safetensors_dtype)i;
            return MMLA_OK;
        }
    }
    return TENSOR_FAIL(err, t->name,
                       "has dtype \"%.24s\", which is unknown; captures hold BF16, F32, I32, I64, "
                       "F8_E4M3 and U8",
                       text);
}

/* The shape, and in t->n_bytes what it takes. */
static mmla_status shape_parse(const json_t *json, safetensors_tensor *t, mmla_error *err) {
    if (!json_is_array(json) || json_array_size(json) > SAFETENSORS_RANK_MAX) {
        return TENSOR_FAIL(err, t->name, "has no shape; it must be an array of at most %d sizes",
                           SAFETENSORS_RANK_MAX);
    }
    t->rank = (int32_t)json_array_size(json);
    t->n_bytes = dtypes[t->dtype].bytes;
    for (int32_t i = 0; i < t->rank; i++) {
        const json_t *size = json_array_get(json, (size_t)i);
        t->shape[i] = json_integer_value(size);
        if (!json_is_integer(size) || t->shape[i] < 0) {
            return TENSOR_FAIL(err, t->name,
                               "has a shape with a size that is no whole number >= 0");
        }
        if (!mmla_mul_i64(t->n_bytes, t->shape[i], &t->n_bytes)) {
            return TENSOR_FAIL(err, t->name,
                               "has a shape whose bytes do not fit in 64 bits; no file holds it");
        }
    }
    return MMLA_OK;
}

/* `next` is where the tensor before this one ended. Demanding that each begins there rules out
 * overlaps, gaps and disorder at once; the format's own writers all obey. */
static mmla_status offsets_parse(const safetensors_file *file,
                                 const json_t *json,
                                 int64_t data_at,
                                 int64_t *next,
                                 safetensors_tensor *t,
                                 mmla_error *err) {
    const json_t *first = json_array_get(json, 0), *last = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return TENSOR_FAIL(err, t->name, "has no data_offsets; they must be [begin, end]");
    }
    const int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin != *next) {
        return TENSOR_FAIL(err, t->name,
                           "begins at data byte %lld, must begin at %lld, where the tensor before "
                           "it in the header ends (no gap, no overlap, in order)",
                           (long long)begin, (long long)*next);
    }
    if (end < begin || end > file->n_bytes - data_at) {
        return TENSOR_FAIL(err, t->name,
                           "ends at data byte %lld, must end within %lld .. %lld; is the file "
                           "truncated?",
                           (long long)end, (long long)begin, (long long)(file->n_bytes - data_at));
    }
    if (end - begin != t->n_bytes) {
        return TENSOR_FAIL(err, t->name,
                           "has %lld bytes by data_offsets, but its dtype and shape take %lld",
                           (long long)(end - begin), (long long)t->n_bytes);
    }
    t->data = file->bytes + data_at + begin;
    *next = end;
    return MMLA_OK;
}

static mmla_status tensor_parse(const safetensors_file *file,
                                const json_t *json,
                                int64_t data_at,
                                int64_t *next,
                                safetensors_tensor *t,
                                mmla_error *err) {
    if (!json_is_object(json)) {
        return TENSOR_FAIL(err, t->name, "is no object with dtype, shape and data_offsets");
    }
    MMLA_RETURN_IF_FAILED(dtype_parse(json_object_get(json, "dtype"), t, err));
    MMLA_RETURN_IF_FAILED(shape_parse(json_object_get(json, "shape"), t, err));
    return offsets_parse(file, json_object_get(json, "data_offsets"), data_at, next, t, err);
}

static mmla_status meta_parse(safetensors_file *file, json_t *json, mmla_error *err) {
    if (!json_is_object(json)) {
        return mmla_error_set(err, MMLA_E_VALUE, METADATA, "must be an object of strings");
    }
    file->meta = calloc(json_object_size(json) + 1, sizeof *file->meta);
    if (file->meta == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for the header");
    }
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value) {
        if (!json_is_string(value)) {
            return mmla_error_set(err, MMLA_E_VALUE, METADATA,
                                  "\"%.48s\" must be a string, as all metadata is; quote it", key);
        }
        file->meta[file->n_meta++] = (safetensors_meta){key, json_string_value(value)};
    }
    return MMLA_OK;
}

static mmla_status entries_parse(safetensors_file *file, int64_t data_at, mmla_error *err) {
    file->entries = calloc(json_object_size(file->header) + 1, sizeof *file->entries);
    if (file->entries == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for the header");
    }
    int64_t next = 0;
    const char *key;
    json_t *value;
    json_object_foreach(file->header, key, value) {
        if (strcmp(key, METADATA) == 0) {
            MMLA_RETURN_IF_FAILED(meta_parse(file, value, err));
            continue;
        }
        safetensors_tensor *t = &file->entries[file->n_tensors].tensor;
        t->name = key;
        MMLA_RETURN_IF_FAILED(tensor_parse(file, value, data_at, &next, t, err));
        file->n_tensors++;
    }
    if (next != file->n_bytes - data_at) {
        return mmla_error_set(err, MMLA_E_VALUE, "data",
                              "has %lld bytes, but the tensors of the header take %lld; is the "
                              "file truncated, or were two files joined?",
                              (long long)(file->n_bytes - data_at), (long long)next);
    }
    return MMLA_OK;
}

/* The length of the JSON, checked against the file and the cap. */
static mmla_status length_parse(const safetensors_file *file, int64_t *n, mmla_error *err) {
    if (file->bytes == NULL || file->n_bytes < LENGTH_BYTES) {
        return mmla_error_set(err, MMLA_E_VALUE, "header",
                              "the file has %lld bytes, a safetensors file starts with %d that "
                              "hold the header's length; write the file again",
                              (long long)file->n_bytes, LENGTH_BYTES);
    }
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | file->bytes[i];
    }
    if (length > SAFETENSORS_HEADER_MAX) {
        return mmla_error_set(err, MMLA_E_VALUE, "header",
                              "its length (bytes 0 .. 7) says %llu bytes, accepted are at most %d; "
                              "this is no safetensors file, or not a capture",
                              (unsigned long long)length, SAFETENSORS_HEADER_MAX);
    }
    if ((int64_t)length > file->n_bytes - LENGTH_BYTES) {
        return mmla_error_set(err, MMLA_E_VALUE, "header",
                              "its length (bytes 0 .. 7) says %llu bytes, but only %lld follow; is "
                              "the file truncated?",
                              (unsigned long long)length,
                              (long long)(file->n_bytes - LENGTH_BYTES));
    }
    *n = (int64_t)length;
    return MMLA_OK;
}

static mmla_status header_parse(safetensors_file *file, mmla_error *err) {
    int64_t n = 0;
    MMLA_RETURN_IF_FAILED(length_parse(file, &n, err));
    json_error_t json_error;
    file->header = json_loadb((const char *)file->bytes + LENGTH_BYTES, (size_t)n,
                              JSON_REJECT_DUPLICATES, &json_error);
    if (file->header == NULL) {
        const bool utf8 = json_error_code(&json_error) == json_error_invalid_utf8;
        return mmla_error_set(err, MMLA_E_VALUE, "header",
                              "byte %lld of the file: %s%.120s; write the file again",
                              (long long)(LENGTH_BYTES + json_error.position),
                              utf8 ? "not UTF-8, " : "", json_error.text);
    }
    if (!json_is_object(file->header)) {
        return mmla_error_set(err, MMLA_E_VALUE, "header", "must be a JSON object");
    }
    return entries_parse(file, LENGTH_BYTES + n, err);
}

/* Takes `map` (may be NULL) in any case. */
static mmla_status
parse(const void *bytes, size_t n_bytes, void *map, safetensors_file **out, mmla_error *err) {
    *out = NULL;
    safetensors_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        if (map != NULL) {
            munmap(map, n_bytes);
        }
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory");
    }
    *file = (safetensors_file){.bytes = bytes, .n_bytes = (int64_t)n_bytes, .map = map};
    const mmla_status status = header_parse(file, err);
    if (status != MMLA_OK) {
        safetensors_destroy(file);
        return status;
    }
    *out = file;
    return MMLA_OK;
}

mmla_status
safetensors_parse(const void *bytes, size_t n_bytes, safetensors_file **file, mmla_error *err) {
    return parse(bytes, n_bytes, NULL, file, err);
}

mmla_status safetensors_load(const char *path, safetensors_file **file, mmla_error *err) {
    *file = NULL;
    /* Without O_NONBLOCK, opening a pipe nobody writes to would wait for ever. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return mmla_error_set(err, MMLA_E_VALUE, "", "cannot be opened: %s", strerror(errno));
    }
    struct stat st;
    void *map = NULL;
    mmla_status status = MMLA_OK;
    if (fstat(fd, &st) != 0) {
        status = mmla_error_set(err, MMLA_E_VALUE, "", "cannot be inspected: %s", strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        status = mmla_error_set(err, MMLA_E_VALUE, "", "is a directory; name a file inside it");
    } else if (!S_ISREG(st.st_mode)) {
        status = mmla_error_set(err, MMLA_E_VALUE, "",
                                "is no regular file, so it cannot be mapped; copy it to one");
    } else if (st.st_size > 0) {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            status = mmla_error_set(err, MMLA_E_VALUE, "", "cannot be mapped: %s", strerror(errno));
        }
    }
    close(fd);
    return status != MMLA_OK ? status : parse(map, (size_t)st.st_size, map, file, err);
}

void safetensors_destroy(safetensors_file *file) {
    if (file == NULL) {
        return;
    }
    for (int32_t i = 0; i < file->n_tensors; i++) {
        free(file->entries[i].copy);
    }
    free(file->entries);
    free(file->meta);
    json_decref(file->header);
    if (file->map != NULL) {
        munmap(file->map, (size_t)file->n_bytes);
    }
    free(file);
}

int64_t safetensors_bytes(const safetensors_file *file) {
    return file->n_bytes;
}

int32_t safetensors_count(const safetensors_file *file) {
    return file->n_tensors;
}

const safetensors_tensor *safetensors_get(const safetensors_file *file, int32_t idx) {
    return &file->entries[idx].tensor;
}

const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name) {
    for (int32_t i = 0; i < file->n_tensors; i++) {
        if (strcmp(file->entries[i].tensor.name, name) == 0) {
            return &file->entries[i].tensor;
        }
    }
    return NULL;
}

int32_t safetensors_meta_count(const safetensors_file *file) {
    return file->n_meta;
}

safetensors_meta safetensors_meta_get(const safetensors_file *file, int32_t idx) {
    return file->meta[idx];
}

const char *safetensors_meta_find(const safetensors_file *file, const char *key) {
    for (int32_t i = 0; i < file->n_meta; i++) {
        if (strcmp(file->meta[i].key, key) == 0) {
            return file->meta[i].value;
        }
    }
    return NULL;
}

const void *
safetensors_align(safetensors_file *file, const safetensors_tensor *tensor, size_t alignment) {
    if ((uintptr_t)tensor->data % alignment == 0) {
        return tensor->data;
    }
    for (int32_t i = 0; i < file->n_tensors; i++) {
        entry *e = &file->entries[i];
        if (&e->tensor == tensor) {
            const int64_t rounded = mmla_round_up_i64(tensor->n_bytes, COPY_ALIGNMENT);
            e->copy =
                aligned_alloc(COPY_ALIGNMENT, (size_t)(rounded > 0 ? rounded : COPY_ALIGNMENT));
            if (e->copy == NULL) {
                return NULL;
            }
            memcpy(e->copy, tensor->data, (size_t)tensor->n_bytes);
            e->tensor.data = e->copy;
            return e->copy;
        }
    }
    return NULL;
}
