/* capture.h - one operation in a safetensors file: its inputs, its attributes, and running it.
 *
 * docs/captures.md lists the operations. Each is a capture_op: a table of inputs, a table of
 * attributes, and four functions. Loading a capture holds the file against the two tables, so the
 * functions find every tensor present, of the right dtype and shape, and every attribute parsed;
 * what the library itself checks (ranges, alignment, indices) is left to its plans.
 */
#ifndef APP_CAPTURE_CAPTURE_H
#define APP_CAPTURE_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <megamla/chain.h>
#include <megamla/context.h>

#include "app/device/device_call.h"
#include "model/safetensors.h"

enum { CAPTURE_INPUTS_MAX = 12, CAPTURE_ATTRS_MAX = 12, CAPTURE_OUTPUTS_MAX = 4 };

/* A shape is words: a number; a letter, which takes its value from the first input that has it;
 * or both, "1+R" being R + 1. */
typedef struct capture_input {
    const char *name; /* NULL ends a table */
    safetensors_dtype dtype;
    const char *shape;
    int32_t alignment; /* what the operation wants of the address */
    bool optional;
} capture_input;

typedef enum capture_attr_kind {
    CAPTURE_INT,    /* a whole number, low .. high */
    CAPTURE_REAL,   /* a finite number */
    CAPTURE_CHOICE, /* one of choices; its value is its place */
    CAPTURE_TEXT    /* anything */
} capture_attr_kind;

typedef struct capture_attr {
    const char *name; /* NULL ends a table */
    capture_attr_kind kind;
    const char *fallback; /* NULL: required; "": may be absent; else its value when absent */
    const char *input;    /* the optional input it belongs to: required with it, refused without */
    int64_t low, high;
    const char *const *choices; /* NULL ends them */
} capture_attr;

typedef struct capture_value {
    bool present; /* given, or a fallback */
    int64_t integer;
    double real;
    const char *text;
} capture_value;

typedef struct capture_call capture_call;

typedef struct capture_op {
    const char *name;
    const capture_input *inputs;
    const capture_attr *attrs;
    const char *library_op; /* the name of mmla_implementation_get */
    bool takes_name;        /* its plans choose among implementations by name; else it has one */
    /* Plans the operation, allocates its outputs, stages its arrays. */
    mmla_status (*create)(capture_call *call, const char *implementation, mmla_error *err);
    mmla_status (*run)(capture_call *call, mmla_error *err); /* on the stage's stream */
    void (*finish)(capture_call *call); /* after the last run: outputs as the file holds them */
    void (*destroy)(capture_call *call);
} capture_op;

typedef struct capture {
    safetensors_file *file;
    const capture_op *op;
    /* In the order of op->inputs; NULL and 0 where an optional one is absent. */
    const void *data[CAPTURE_INPUTS_MAX];
    const safetensors_tensor *inputs[CAPTURE_INPUTS_MAX];
    capture_value attrs[CAPTURE_ATTRS_MAX]; /* in the order of op->attrs */
    int64_t letters[128];                   /* value of each letter, -1: not seen */
} capture;

/* capture_load - open, check everything. errors as safetensors_load. */
mmla_status capture_load(const char *path, capture **out, mmla_error *err);

/* capture_parse - the same from memory, which must outlive the capture. */
mmla_status capture_parse(const void *bytes, size_t n_bytes, capture **out, mmla_error *err);

void capture_destroy(capture *c); /* NULL is allowed */

/* The value of a shape's letter as a library count, saturating; 0 when it was not seen. */
int64_t capture_dim(const capture *c, char letter);
int32_t capture_dim32(const capture *c, char letter);

/* One replay: a plan, its workspace, the outputs. */
struct capture_call {
    const capture *capture;
    mmla_context *ctx; /* the caller's, must outlive the call */
    const capture_op *op;
    const char *implementation;         /* that runs */
    void *state;                        /* the operation's own, freed after op->destroy */
    device_stage stage;                 /* what run gets: on a GPU, copies of the arrays */
    void *workspace, *workspace_memory; /* likewise, and the host's */
    int32_t n_faults;                   /* counted over all runs */
    int32_t n_outputs;
    safetensors_tensor outputs[CAPTURE_OUTPUTS_MAX];
    void *memory[CAPTURE_OUTPUTS_MAX]; /* of the outputs in host memory, complete after finish */
};

/* capture_call_create - plan the captured operation with the implementation of that name (NULL: the
 * capture's own wish, else the best). errors are the plan's; also MMLA_E_VALUE when attributes ask
 * for outputs out of all proportion to the file. */
mmla_status capture_call_create(const capture *c,
                                mmla_context *ctx,
                                const char *implementation,
                                capture_call **out,
                                mmla_error *err);

/* capture_chain_create - the unfused chain on an attend capture. MMLA_E_SIZE without a token, and
 * when its workspace is out of all proportion to the file. */
mmla_status
capture_chain_create(const capture *c, mmla_context *ctx, capture_call **out, mmla_error *err);
mmla_status capture_chain_step_run(capture_call *call, mmla_chain_step step, mmla_error *err);

/* capture_call_run - once; on a GPU the run is enqueued, and finish waits for it.
 *
 * capture_call_finish - then the outputs are complete. errors: what went wrong on the device, which
 * also tells here, and not in run, what only contents can tell (MMLA_E_INDEX). */
mmla_status capture_call_run(capture_call *call, mmla_error *err);
mmla_status capture_call_finish(capture_call *call, mmla_error *err);
void capture_call_destroy(capture_call *call); /* NULL is allowed */

/* The name of the operation's implementation when the library has no other for the context's device;
 * else NULL. */
const char *capture_only_implementation(const capture *c, const mmla_context *ctx);

bool capture_is_attend(const capture *c);

#endif
