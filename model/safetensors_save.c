/* safetensors_save.c - the writer: a whole file or none. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/check.h"
#include "base/error.h"
#include "model/safetensors.h"

enum {
    LENGTH_BYTES = 8,
    DATA_ALIGNMENT = 64, /* of the first tensor, so that a mapped file can be used in place */
    TEMPORARY_TRIES = 100
};

static mmla_status out_of_memory(mmla_error *err) {
    return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for the header");
}

static json_t *tensor_json(const safetensors_tensor *t, int64_t begin) {
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->rank; i++) {
        json_array_append_new(shape, json_integer(t->shape[i]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(t->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->n_bytes));
}

/* The file's first bytes: length and JSON, padded with spaces so that data start aligned. */
static char *header_create(const safetensors_tensor *tensors,
                           int32_t n_tensors,
                           const safetensors_meta *meta,
                           int32_t n_meta,
                           size_t *n_bytes) {
    json_t *header = json_object(), *metadata = json_object();
    for (int32_t i = 0; i < n_meta; i++) {
        json_object_set_new(metadata, meta[i].key, json_string(meta[i].value));
    }
    json_object_set_new(header, "__metadata__", metadata);
    int64_t at = 0;
    for (int32_t i = 0; i < n_tensors; i++) {
        json_object_set_new(header, tensors[i].name, tensor_json(&tensors[i], at));
        at += tensors[i].n_bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
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

static bool write_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        const ssize_t written = write(fd, p, n);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return false;
        }
        p += written;
        n -= (size_t)written;
    }
    return true;
}

/* Writes everything and closes fd. errno tells why not. */
static bool file_write(int fd,
                       const char *header,
                       size_t n_header,
                       const safetensors_tensor *tensors,
                       int32_t n_tensors) {
    bool ok = write_all(fd, header, n_header);
    for (int32_t i = 0; i < n_tensors && ok; i++) {
        ok = write_all(fd, tensors[i].data, (size_t)tensors[i].n_bytes);
    }
    const int saved = errno;
    if (close(fd) != 0) { /* some file systems report a full disk only here */
        return false;
    }
    errno = saved;
    return ok;
}

/* A new file beside path, whose name goes to *name. Names carry the process id and a counter;
 * O_EXCL decides, and the mode is what a plain open would have given. */
static int temporary_open(const char *path, char **name) {
    const size_t n = strlen(path) + 40;
    *name = malloc(n);
    for (int i = 0; *name != NULL && i < TEMPORARY_TRIES; i++) {
        snprintf(*name, n, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        const int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static mmla_status cannot(mmla_error *err, const char *what) {
    return mmla_error_set(err, MMLA_E_VALUE, "", "cannot be %s: %s", what, strerror(errno));
}

static mmla_status replace(const char *path,
                           const char *header,
                           size_t n_header,
                           const safetensors_tensor *tensors,
                           int32_t n_tensors,
                           mmla_error *err) {
    char *name = NULL;
    const int fd = temporary_open(path, &name);
    mmla_status status = MMLA_OK;
    if (fd < 0) {
        status = cannot(err, "created");
    } else if (!file_write(fd, header, n_header, tensors, n_tensors)) {
        status = cannot(err, "written");
    } else if (rename(name, path) != 0) {
        status = cannot(err, "replaced");
    }
    if (fd >= 0 && status != MMLA_OK) {
        unlink(name);
    }
    free(name);
    return status;
}

mmla_status safetensors_save(const char *path,
                             const safetensors_tensor *tensors,
                             int32_t n_tensors,
                             const safetensors_meta *meta,
                             int32_t n_meta,
                             mmla_error *err) {
    size_t n_header = 0;
    char *header = header_create(tensors, n_tensors, meta, n_meta, &n_header);
    if (header == NULL) {
        return out_of_memory(err);
    }
    struct stat st;
    mmla_status status = MMLA_OK;
    char *real = realpath(path, NULL); /* behind a symbolic link, replace what it points to */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            status = cannot(err, "opened");
        } else if (!file_write(fd, header, n_header, tensors, n_tensors)) {
            status = cannot(err, "written");
        }
    } else {
        status = replace(real != NULL ? real : path, header, n_header, tensors, n_tensors, err);
    }
    free(real);
    free(header);
    return status;
}
