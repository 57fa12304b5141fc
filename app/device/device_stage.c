/* device_stage.c - one block of device memory for all arrays of a call.
 *
 * A copy takes some microseconds, however small, so small arrays travel together: the block begins
 * with them, and the host holds an image of that part, zones included. Large arrays follow and are
 * copied straight from and to the caller's memory.
 */
#include "app/device/device_stage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/device/device_memory.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"

enum { PAGE = 4096, SMALL_BYTES = 1 << 20, ZONE_BYTES_MAX = DEVICE_ZONE_BYTES + 2 * PAGE };

void device_stage_init(device_stage *s, const mmla_context *ctx, const device_options *options) {
    *s = (device_stage){.gpu = ctx->device.kind == MMLA_DEVICE_CUDA ? &ctx->gpu : NULL};
    if (options != NULL) {
        s->options = *options;
    }
    s->is_copied = s->gpu != NULL || s->options.copies;
}

static void *pointer_get(const void *pointer) {
    void *value;
    memcpy(&value, pointer, sizeof value);
    return value;
}

static const device_sparse *sparse_of(const device_stage *s, const void *host) {
    for (int i = 0; i < DEVICE_SPARSE_MAX; i++) {
        if (s->options.sparse[i].host != NULL && s->options.sparse[i].host == host) {
            return &s->options.sparse[i];
        }
    }
    return NULL;
}

void device_stage_add(device_stage *s,
                      const char *name,
                      void *pointer,
                      int64_t bytes,
                      int64_t alignment,
                      device_access access) {
    void *host = pointer_get(pointer);
    if (!s->is_copied || host == NULL) {
        return;
    }
    assert(s->block == NULL && s->n_fields < DEVICE_FIELDS_MAX && bytes >= 0);
    s->fields[s->n_fields++] = (device_field){.name = name,
                                              .pointer = pointer,
                                              .host = host,
                                              .bytes = bytes,
                                              .alignment = alignment,
                                              .access = access,
                                              .sparse = sparse_of(s, host)};
}

static bool is_small(const device_field *f) {
    return f->bytes <= SMALL_BYTES && f->sparse == NULL;
}

/* Places the fields of one size class behind `at`; returns where they end. */
static int64_t place_fields(device_stage *s, bool small, int64_t at) {
    const int64_t alignment = s->options.alignment;
    for (int i = 0; i < s->n_fields; i++) {
        device_field *f = &s->fields[i];
        if (is_small(f) != small) {
            continue;
        }
        f->begin = at;
        f->off = alignment > 0
                     ? mmla_round_up_i64(at + DEVICE_ZONE_BYTES, alignment)
                     : mmla_round_up_i64(at + DEVICE_ZONE_BYTES, PAGE) + f->alignment % PAGE;
        f->end = f->off + f->bytes + DEVICE_ZONE_BYTES;
        at = f->end;
    }
    return at;
}

static mmla_status make_room(device_stage *s, mmla_error *err) {
    if (s->gpu != NULL) {
        MMLA_RETURN_IF_FAILED(mmla_gpu_stream_create(s->gpu, &s->stream, err));
    }
    s->image_bytes = place_fields(s, true, 0);
    const int64_t bytes = place_fields(s, false, s->image_bytes);
    s->sent = malloc((size_t)mmla_max_i64(s->image_bytes, 1));
    s->back = malloc((size_t)mmla_max_i64(s->image_bytes, ZONE_BYTES_MAX)); /* also of one zone */
    if (s->sent == NULL || s->back == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory: %lld bytes were refused",
                              (long long)s->image_bytes);
    }
    MMLA_RETURN_IF_FAILED(device_memory_alloc(s->gpu, bytes + PAGE, &s->memory, err));
    const uintptr_t base = (uintptr_t)s->memory;
    s->block = s->memory + ((base + PAGE - 1) / PAGE * PAGE - base);
    for (int i = 0; i < s->n_fields; i++) {
        void *device = s->block + s->fields[i].off;
        memcpy(s->fields[i].pointer, &device, sizeof device);
    }
    return MMLA_OK;
}

/* Bytes from .. to of the block, which belong to a zone of f. */
static void zone_fill(uint8_t *out, const device_field *f, int64_t from, int64_t to) {
    for (int64_t at = from; at < to; at++) {
        out[at - from] = f->access == DEVICE_IN ? 0xFF : (uint8_t)(0xA5u ^ ((uint64_t)at * 37u));
    }
}

static mmla_status
zone_put(device_stage *s, const device_field *f, int64_t from, int64_t to, mmla_error *err) {
    zone_fill(s->back, f, from, to);
    return device_memory_put(s->gpu, s->block + from, s->back, to - from, err);
}

/* What an upload does with the contents of the arrays. */
typedef struct contents {
    bool is_blank;
    uint8_t blank;
    bool keeps_scratch;
} contents;

static mmla_status
large_put(device_stage *s, const device_field *f, const contents *c, mmla_error *err) {
    uint8_t *data = s->block + f->off;
    MMLA_RETURN_IF_FAILED(zone_put(s, f, f->begin, f->off, err));
    MMLA_RETURN_IF_FAILED(zone_put(s, f, f->off + f->bytes, f->end, err));
    if (c->keeps_scratch && f->access == DEVICE_SCRATCH) {
        return MMLA_OK;
    }
    if (c->is_blank && f->access == DEVICE_IN) {
        return device_memory_fill(s->gpu, data, c->blank, f->bytes, err);
    }
    if (f->sparse == NULL) {
        return device_memory_put(s->gpu, data, f->host, f->bytes, err);
    }
    MMLA_RETURN_IF_FAILED(device_memory_fill(s->gpu, data, 0xFF, f->bytes, err));
    for (int64_t i = 0; i < f->sparse->n_parts; i++) {
        const device_part p = f->sparse->parts[i];
        MMLA_RETURN_IF_FAILED(device_memory_put(s->gpu, data + p.off, (uint8_t *)f->host + p.off,
                                                mmla_min_i64(p.bytes, f->bytes - p.off), err));
    }
    return MMLA_OK;
}

/* The array of a small field in the image. */
static mmla_status
small_fill(device_stage *s, const device_field *f, const contents *c, mmla_error *err) {
    zone_fill(s->sent + f->begin, f, f->begin, f->off);
    zone_fill(s->sent + f->off + f->bytes, f, f->off + f->bytes, f->end);
    if (c->keeps_scratch && f->access == DEVICE_SCRATCH) { /* it travels with the others */
        return device_memory_get(s->gpu, s->sent + f->off, s->block + f->off, f->bytes, err);
    }
    if (c->is_blank && f->access == DEVICE_IN) {
        memset(s->sent + f->off, c->blank, (size_t)f->bytes);
    } else {
        memcpy(s->sent + f->off, f->host, (size_t)f->bytes);
    }
    return MMLA_OK;
}

static mmla_status upload(device_stage *s, const contents *c, mmla_error *err) {
    if (!s->is_copied) {
        return MMLA_OK;
    }
    if (s->block == NULL) {
        MMLA_RETURN_IF_FAILED(make_room(s, err));
    }
    for (int i = 0; i < s->n_fields; i++) {
        const device_field *f = &s->fields[i];
        MMLA_RETURN_IF_FAILED(is_small(f) ? small_fill(s, f, c, err) : large_put(s, f, c, err));
    }
    MMLA_RETURN_IF_FAILED(device_memory_put(s->gpu, s->block, s->sent, s->image_bytes, err));
    MMLA_RETURN_IF_FAILED(device_memory_settle(s->gpu, err));
    s->is_uploaded = true;
    return MMLA_OK;
}

mmla_status device_stage_upload(device_stage *s, mmla_error *err) {
    s->damage[0] = '\0';
    return upload(s, &(contents){0}, err);
}

mmla_status device_stage_upload_blank(device_stage *s, uint8_t byte, mmla_error *err) {
    s->damage[0] = '\0';
    return upload(s, &(contents){.is_blank = true, .blank = byte}, err);
}

mmla_status device_stage_upload_again(device_stage *s, mmla_error *err) {
    return upload(s, &(contents){.keeps_scratch = true}, err);
}

static void damage_report(device_stage *s, bool is_damaged, const char *where, const char *name) {
    if (is_damaged && s->damage[0] == '\0') {
        snprintf(s->damage, sizeof s->damage, "%s %s", where, name);
    }
}

static const char *const zone_names[] = {"bytes before", "bytes behind"};

/* Looks at the block's bytes from .. to, a zone of a large array. */
static mmla_status zone_get(device_stage *s,
                            const device_field *f,
                            int64_t from,
                            int64_t to,
                            bool behind,
                            mmla_error *err) {
    uint8_t want[ZONE_BYTES_MAX];
    zone_fill(want, f, from, to);
    MMLA_RETURN_IF_FAILED(device_memory_get(s->gpu, s->back, s->block + from, to - from, err));
    damage_report(s, memcmp(want, s->back, (size_t)(to - from)) != 0, zone_names[behind], f->name);
    return MMLA_OK;
}

/* Looks around a large array, and with `out` copies a result to the caller. */
static mmla_status large_get(device_stage *s, const device_field *f, bool out, mmla_error *err) {
    const uint8_t *data = s->block + f->off;
    MMLA_RETURN_IF_FAILED(zone_get(s, f, f->begin, f->off, false, err));
    MMLA_RETURN_IF_FAILED(zone_get(s, f, f->off + f->bytes, f->end, true, err));
    if (f->access != DEVICE_OUT || !out) {
        return MMLA_OK;
    }
    if (f->sparse == NULL) {
        return device_memory_get(s->gpu, f->host, data, f->bytes, err);
    }
    for (int64_t i = 0; i < f->sparse->n_parts; i++) {
        const device_part p = f->sparse->parts[i];
        MMLA_RETURN_IF_FAILED(device_memory_get(s->gpu, (uint8_t *)f->host + p.off, data + p.off,
                                                mmla_min_i64(p.bytes, f->bytes - p.off), err));
    }
    return MMLA_OK;
}

static bool differs(const device_stage *s, int64_t from, int64_t to) {
    return to > from && memcmp(s->sent + from, s->back + from, (size_t)(to - from)) != 0;
}

/* The same of a small one, from the image that came back. */
static void small_get(device_stage *s, const device_field *f, bool out) {
    const int64_t behind = f->off + f->bytes;
    damage_report(s, differs(s, f->begin, f->off), zone_names[0], f->name);
    damage_report(s, differs(s, behind, f->end), zone_names[1], f->name);
    if (f->access == DEVICE_IN) {
        damage_report(s, differs(s, f->off, behind), "bytes of the input", f->name);
    } else if (f->access == DEVICE_OUT && out) {
        memcpy(f->host, s->back + f->off, (size_t)f->bytes);
    }
}

static mmla_status download(device_stage *s, bool out, mmla_error *err) {
    if (!s->is_copied) {
        return MMLA_OK;
    }
    if (s->gpu != NULL) {
        MMLA_RETURN_IF_FAILED(mmla_gpu_stream_wait(s->gpu, s->stream, err));
    }
    MMLA_RETURN_IF_FAILED(device_memory_get(s->gpu, s->back, s->block, s->image_bytes, err));
    for (int i = 0; i < s->n_fields; i++) {
        if (is_small(&s->fields[i])) {
            small_get(s, &s->fields[i], out);
        }
    }
    for (int i = 0; i < s->n_fields; i++) { /* which take `back` for their zones */
        if (!is_small(&s->fields[i])) {
            MMLA_RETURN_IF_FAILED(large_get(s, &s->fields[i], out, err));
        }
    }
    return MMLA_OK;
}

mmla_status device_stage_download(device_stage *s, mmla_error *err) {
    return download(s, true, err);
}

mmla_status device_stage_look(device_stage *s, mmla_error *err) {
    return download(s, false, err);
}

void device_stage_deinit(device_stage *s) {
    device_memory_free(s->gpu, s->memory);
    if (s->gpu != NULL) {
        mmla_gpu_stream_destroy(s->gpu, s->stream);
    }
    free(s->sent);
    free(s->back);
    *s = (device_stage){0};
}

bool device_is_lost(const mmla_context *ctx) {
    return ctx->device.kind == MMLA_DEVICE_CUDA &&
           mmla_gpu_stream_wait(&ctx->gpu, NULL, NULL) != MMLA_OK;
}
