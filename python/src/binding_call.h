/* binding_call.h - one call from Python: reading its arguments, raising its errors, running it.
 *
 * A function of the binding reads its arguments in order by place and name. The first thing that is
 * wrong raises Python's exception and every later reader does nothing, so that a function reads all
 * it needs, asks call_failed once, and then trusts what it has.
 *
 *     ValueError    an argument; the message begins with its name in Python
 *     RuntimeError  the device
 *     MemoryError   no memory
 */
#ifndef MEGAMLA_PYTHON_BINDING_CALL_H
#define MEGAMLA_PYTHON_BINDING_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <tvm/ffi/c_api.h>

#include "python/src/binding_state.h"

enum { CALL_DIMS_MAX = 4, CALL_ARGUMENTS_MAX = 36, CALL_TEXT_BYTES = 64 };

/* What a tensor may hold. Where a framework has no such dtype, integers of the same size are taken
 * for its bits. */
typedef enum element {
    ELEMENT_BF16,
    ELEMENT_F32,
    ELEMENT_I32,
    ELEMENT_I64,
    ELEMENT_FLAG, /* one byte, bool or an integer */
    ELEMENT_E4M3,
    ELEMENT_UE8M0,
    ELEMENT_BYTE /* anything of one byte */
} element;

/* A tensor argument, as its framework shows it. Of None, and of what was not read because something
 * is wrong: not given, no dimensions, shapes of 1 and strides of 0. */
typedef struct array {
    void *data;
    const int64_t *shape;
    const int64_t *strides; /* in elements */
    int32_t ndim;
    bool given;
} array;

/* The Python argument that a field of a desc, or of args, comes from. A field that ends with '.'
 * stands for all that begin with it. */
typedef struct field_name {
    const char *field;
    const char *argument;
} field_name;

typedef struct call {
    binding_state *state;
    const TVMFFIAny *args;
    const field_name *fields; /* ends with a NULL field; may be NULL */
    bool failed;
    bool overlaps; /* what was enqueued before may still run: no memory that it may read is free */
    bool has_device;
    const char *device_argument; /* who said which device it is */
    mmla_device device;
    int64_t closely[CALL_ARGUMENTS_MAX][CALL_DIMS_MAX]; /* strides of tensors that came without */
} call;

/* call_init - false, with the error raised, when Python and this library do not agree on the number
 * of arguments, which means that files of two versions were mixed. */
bool call_init(call *c,
               void *state,
               const TVMFFIAny *args,
               int32_t n_args,
               int32_t n_expected,
               const field_name *fields);

/* Raises ValueError "argument: sentence" unless something was raised before; returns -1. */
__attribute__((format(printf, 3, 4))) int
call_fail(call *c, const char *argument, const char *format, ...);

/* Raises what a function of the library reported; returns -1. */
int call_fail_status(call *c, mmla_status status, const mmla_error *err);

/* call_array - the tensor at place i; of None nothing is given. All tensors are on one device. */
array call_array(call *c, int i, const char *name, element kind, int min_ndim, int max_ndim);
array call_optional(call *c, int i, const char *name, element kind, int min_ndim, int max_ndim);

/* Numbers and short texts. A text of None is NULL and wants no memory. */
int64_t call_integer(call *c, int i, const char *name, int64_t low, int64_t high);
double call_real(call *c, int i, const char *name, double if_none);
bool call_is_none(const call *c, int i);
const char *call_text(call *c, int i, const char *name, char memory[CALL_TEXT_BYTES]);

/* Dimension `axis` must be `want`, which is `what`. */
void call_dim(call *c, const array *a, const char *name, int axis, int64_t want, const char *what);

/* Dimensions from `axis` on lie closely, the last one fastest. */
void call_contiguous(call *c, const array *a, const char *name, int axis);

/* The stride of dimension 0 as a desc has it: 0, which stands for the default, when there is at
 * most one row, whose stride means nothing. */
int64_t call_row_stride(call *c, const array *a, const char *name);

/* A cache of any of the three forms: bytes [pages, page tokens, record bytes], the same with a 1
 * before the last, or [pages, page bytes] with format and page tokens told. i_format and
 * i_page_tokens are the places of those, 0 when not told. */
mmla_cache_desc call_cache(
    call *c, const array *a, const char *name, int i_format, int i_page_tokens, bool index_keys);

/* The device of the call's tensors, of the CPU when there was none, and its stream: that of place i,
 * or the caller's current one when that is None. */
void *call_stream(call *c, int i);
mmla_context *call_context(call *c);

/* call_implementation - the name at place i as constant memory; NULL for None. A name the library
 * does not know is kept in memory, and the plan's creation will say so. */
const char *call_implementation(call *c, int i, char memory[CALL_TEXT_BYTES]);

/* The most tokens of the plan for a call of n: the next power of two, so that few plans serve all
 * batch sizes, but not above limit. */
int64_t call_max_tokens(int64_t n, int64_t limit);

/* call_run - plan, workspace, run. place_workspace and place_stream are places of arguments, the
 * former negative when there is none; the library's run is called through `run`.
 *
 * On a GPU the workspace is the caller's, or comes from the allocator of the caller's framework, but
 * not for a call that overlaps, which raises. If there is neither, nothing is run and *result is the
 * number of bytes that it takes; *result is None otherwise. */
typedef mmla_status (*run_function)(const void *plan, void *args, void *memory, void *stream);
int call_run(call *c,
             const plan_kind *kind,
             const void *desc,
             run_function run,
             void *args,
             const mmla_error *err,
             int place_workspace,
             int place_stream,
             TVMFFIAny *result);

/* Results. */
void result_integer(TVMFFIAny *result, int64_t value);
int result_text(TVMFFIAny *result, const char *text);

/* give_function - a function over self, which the deleter gets when the function goes, or at once
 * when there is no memory for it. */
int give_function(void *self,
                  TVMFFISafeCallType function,
                  void (*deleter)(void *self),
                  TVMFFIAny *result);

/* PLAN_KIND(attend) - plan_attend, the plan_kind of an operation, and run_attend. */
#define PLAN_KIND(op)                                                                        \
    static mmla_status create_##op(mmla_context *ctx, const void *desc, void **plan,         \
                                   mmla_error *err) {                                        \
        mmla_##op##_plan *made = NULL;                                                       \
        const mmla_status status = mmla_##op##_plan_create(ctx, desc, &made, err);           \
        *plan = made;                                                                        \
        return status;                                                                       \
    }                                                                                        \
    static void destroy_##op(void *plan) {                                                   \
        mmla_##op##_plan_destroy(plan);                                                      \
    }                                                                                        \
    static size_t workspace_bytes_##op(const void *plan) {                                   \
        return mmla_##op##_workspace_bytes(plan);                                            \
    }                                                                                        \
    static mmla_status run_##op(const void *plan, void *args, void *memory, void *stream) {  \
        return mmla_##op##_run(plan, args, memory, stream);                                  \
    }                                                                                        \
    static const plan_kind plan_##op = {sizeof(mmla_##op##_desc), create_##op, destroy_##op, \
                                        workspace_bytes_##op}

#endif
