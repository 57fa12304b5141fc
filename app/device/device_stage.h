/* device_stage.h - the arrays of one call, copied to the memory of the call's device and back.
 *
 * A caller holds arrays in host memory and an args struct that points to them. The stage takes a
 * copy of the struct and the extent of every array, makes room on the device, and makes the
 * pointers of the copy lead there:
 *
 *     device_stage s;
 *     mmla_attend_args a = args;                           host pointers
 *     device_stage_init(&s, ctx, NULL);
 *     device_stage_attend(&s, &desc, &a);                  device_call.h: one a kind of call
 *     device_stage_upload(&s, err);                        now a has device pointers
 *     mmla_attend_run(plan, &a, workspace, s.stream);
 *     device_stage_download(&s, err);                      waits; s.damage says what was harmed
 *     device_stage_deinit(&s);
 *
 * Every array lies between two red zones and is aligned to what the contract promises of it and to
 * no more. Zones around what is only read are 0xFF, NaN in every format and -1 as an index; around
 * results they vary, so that a shifted copy shows. Results are copied in as well, so the bytes that
 * a call leaves alone come back as they were.
 *
 *      |<- zone ->|<------- q ------->|<- zone ->|<- zone ->|<-- out -->|<- zone ->|
 *
 * Upload may be called again, for the same call with other contents: addresses stay, as a captured
 * graph needs it. In a context on the CPU nothing is copied: the struct keeps its pointers, and
 * every step succeeds at once, so that callers have one path. A stage must not be moved.
 */
#ifndef APP_DEVICE_DEVICE_STAGE_H
#define APP_DEVICE_DEVICE_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/context.h>

#include "base/gpu.h"

enum {
    DEVICE_ZONE_BYTES = 4096, /* at least, before and behind every array */
    DEVICE_FIELDS_MAX = 24,
    DEVICE_SPARSE_MAX = 2,
    DEVICE_TEXT_BYTES = 96
};

typedef enum device_access {
    DEVICE_IN = 0,     /* copied in; small ones are held against their copies afterwards */
    DEVICE_OUT = 1,    /* copied in, and out afterwards */
    DEVICE_SCRATCH = 2 /* copied in */
} device_access;

/* A stretch of an array. */
typedef struct device_part {
    int64_t off, bytes;
} device_part;

/* An array of 0xFF but for some parts, such as a cache of gigabytes of which a few pages are used:
 * only the parts are copied. */
typedef struct device_sparse {
    const void *host; /* the array; NULL: this entry is not used */
    const device_part *parts;
    int64_t n_parts;
} device_sparse;

typedef struct device_options {
    int64_t alignment; /* of every array, a power of two up to 4096; 0: an odd multiple of what the
                          contract promises */
    bool copies;       /* copies are made on the CPU, too, to test staging itself */
    bool graph;        /* device_call.h: run from a graph that was recorded with other contents */
    uint8_t blank;     /* with graph: the byte those contents are made of */
    device_sparse sparse[DEVICE_SPARSE_MAX];
} device_options;

typedef struct device_field {
    const char *name;
    void *pointer; /* where the pointer to the array lies, of any type */
    void *host;
    int64_t bytes, alignment;
    device_access access;
    const device_sparse *sparse; /* of the stage's options, or NULL */
    /* In the block: the array begins at off; begin .. off and off + bytes .. end are its zones. */
    int64_t begin, off, end;
} device_field;

typedef struct device_stage {
    const mmla_gpu *gpu; /* NULL: the CPU */
    void *stream;        /* to enqueue the call on; NULL on the CPU */
    bool is_copied;      /* false: the arrays stay where they are */
    bool is_uploaded;
    char damage[DEVICE_TEXT_BYTES]; /* the first harm a download found, "bytes behind q"; else "" */
    device_options options;
    int n_fields;
    device_field fields[DEVICE_FIELDS_MAX];
    uint8_t *memory, *block; /* one allocation, and its first multiple of 4096 */
    /* The block's first part, with all small arrays, as it was sent and as it came back. */
    uint8_t *sent, *back;
    int64_t image_bytes;
} device_stage;

/* ctx decides the device and must outlive the stage; options NULL: all zero. */
void device_stage_init(device_stage *s, const mmla_context *ctx, const device_options *options);

/* Adds an array. `pointer` is the address of the pointer to it, which may be NULL: then there is
 * none. */
void device_stage_add(device_stage *s,
                      const char *name,
                      void *pointer,
                      int64_t bytes,
                      int64_t alignment,
                      device_access access);

/* The first time also makes room and changes the pointers. When it returns, the copies are there.
 * errors  MMLA_E_MEMORY, MMLA_E_DEVICE */
mmla_status device_stage_upload(device_stage *s, mmla_error *err);

/* An upload in which every input is made of one byte, and one that leaves scratch as the last run
 * left it and `damage` as it is: what a graph finds when it is recorded, and when it is launched
 * again. */
mmla_status device_stage_upload_blank(device_stage *s, uint8_t byte, mmla_error *err);
mmla_status device_stage_upload_again(device_stage *s, mmla_error *err);

/* Waits for the stream, copies the results back, looks for damage.
 * errors  MMLA_E_DEVICE: also what went wrong in the work that was enqueued */
mmla_status device_stage_download(device_stage *s, mmla_error *err);

/* The same but for the results, which stay on the device. */
mmla_status device_stage_look(device_stage *s, mmla_error *err);

void device_stage_deinit(device_stage *s);

/* True when the device takes no more work, after an address fault for instance. Whatever is asked
 * of it in this process will fail. */
bool device_is_lost(const mmla_context *ctx);

#endif
