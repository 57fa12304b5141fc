/* binding_fast.c - calls whose tensors are read in place.
 *
 * tvm-ffi makes an owning tensor of every argument, some 300 ns each, and attend_paged has a dozen.
 * A framework with DLPack's exchange API (PyTorch from 2.10 on) can show a tensor without giving it
 * away, which takes a tenth of that. So for its tensors Python passes one number, the address of the
 * tuple of all arguments, and this file reads them from there:
 *
 *     fast = bind_fast("attend_paged", exchange API, tensor type, None, CPython's functions ...)
 *     fast(id((q, positions, ...)))          the arguments and the order of attend_paged itself
 *
 * It gives what the function gives, or -1 when some argument is not what it should be: then nothing
 * was done, and the ordinary function is there to take it after all, or to say what is wrong.
 *
 * CPython is not linked: the few functions of its stable ABI that this takes come as addresses. The
 * tuple, and with it every tensor, lives until the call is over, because the caller's frame has it.
 * tvm-ffi is told to keep Python's lock for these functions; it is given up here while the library
 * runs.
 */
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

#include "python/src/binding_call.h"
#include "python/src/binding_functions.h"

enum { NOT_TAKEN = -1 };

/* One letter an argument, in the order of the function's enum: t tensor, i integer, f number. Any may
 * be None; what has a - is always. */
typedef struct fast_function {
    const char *name;
    TVMFFISafeCallType function;
    const char *signature;
} fast_function;

static const fast_function fast_functions[] = {
    {"attend_paged", binding_attend_paged, "tttttttttttfifii-titiitiitt"},
    {"attend_rows", binding_attend_rows, "tttttttttttfifii-tit"},
    {"kv_insert", binding_kv_insert, "tttttiitfiit-ti"},
};

/* Of CPython's stable ABI. */
typedef struct python_abi {
    void *none;
    void *(*tuple_get_item)(void *tuple, intptr_t i);
    int (*object_is_instance)(void *object, void *type);
    long long (*long_as_long_long)(void *object);
    double (*float_as_double)(void *object);
    void *(*err_occurred)(void);
    void (*err_clear)(void);
    void *(*eval_save_thread)(void);
    void (*eval_restore_thread)(void *thread);
} python_abi;

typedef struct fast_call {
    binding_state *state;
    const fast_function *target;
    const DLPackExchangeAPI *api;
    void *tensor_type;
    python_abi python;
} fast_call;

/* The head of every object, as CPython's stable ABI has it wherever Python has its one lock. */
typedef struct python_object {
    intptr_t references;
    void *type;
} python_object;

static void fast_release(void *self) {
    fast_call *f = self;
    state_release(f->state);
    free(f);
}

/* Reads one argument of the tuple; false when it is not what the letter says. */
static bool
read_item(const fast_call *f, void *item, char letter, TVMFFIAny *value, DLTensor *tensor) {
    const python_abi *python = &f->python;
    bool good = true;
    *value = (TVMFFIAny){.type_index = kTVMFFINone};
    if (item == python->none) {
        return true;
    }
    switch (letter) {
    case 't':
        good = (((const python_object *)item)->type == f->tensor_type ||
                python->object_is_instance(item, f->tensor_type) == 1) &&
               f->api->dltensor_from_py_object_no_sync(item, tensor) == 0;
        *value = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = tensor};
        break;
    case 'i':
        *value = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = python->long_as_long_long(item)};
        good = value->v_int64 != -1 || python->err_occurred() == NULL;
        break;
    case 'f':
        *value =
            (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = python->float_as_double(item)};
        good = value->v_float64 != -1.0 || python->err_occurred() == NULL;
        break;
    default:
        return false;
    }
    if (!good) {
        python->err_clear();
    }
    return good;
}

/* What tvm-ffi does before a call with tensors of a GPU, and undoes after it: the framework's current
 * stream and its allocator are where the call looks for them. */
typedef struct surroundings {
    bool changed;
    int32_t device;
    void *stream;
    DLPackManagedTensorAllocator allocator;
} surroundings;

static bool enter(const fast_call *f, const DLTensor *first, surroundings *s) {
    *s = (surroundings){.changed = false};
    if (first->device.device_type == kDLCPU) {
        return true;
    }
    void *stream = NULL;
    if (f->api->current_work_stream(first->device.device_type, first->device.device_id, &stream) !=
        0) {
        f->python.err_clear();
        return false;
    }
    s->device = first->device.device_id;
    if (TVMFFIEnvSetStream(first->device.device_type, s->device, stream, &s->stream) != 0) {
        return false;
    }
    s->changed = true;
    TVMFFIEnvSetDLPackManagedTensorAllocator(f->api->managed_tensor_allocator, 0, &s->allocator);
    return true;
}

static void leave(const DLTensor *first, const surroundings *s) {
    if (s->changed) {
        TVMFFIEnvSetStream(first->device.device_type, s->device, s->stream, NULL);
        TVMFFIEnvSetDLPackManagedTensorAllocator(s->allocator, 0, NULL);
    }
}

static int fast_run(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    const fast_call *f = self;
    const char *signature = f->target->signature;
    TVMFFIAny values[CALL_ARGUMENTS_MAX];
    DLTensor tensors[CALL_ARGUMENTS_MAX];
    int32_t n = 0;
    call c;
    if (!call_init(&c, f->state, argv, argc, 1, NULL)) {
        return -1;
    }
    void *tuple = (void *)(intptr_t)call_integer(&c, 0, "arguments", INT64_MIN, INT64_MAX);
    for (; signature[n] != 0; n++) {
        void *item = f->python.tuple_get_item(tuple, n);
        if (item == NULL || !read_item(f, item, signature[n], &values[n], &tensors[n])) {
            f->python.err_clear();
            result_integer(result, NOT_TAKEN);
            return 0;
        }
    }
    surroundings around;
    if (n == 0 || values[0].type_index != kTVMFFIDLTensorPtr || !enter(f, &tensors[0], &around)) {
        result_integer(result, NOT_TAKEN);
        return 0;
    }
    void *thread = f->python.eval_save_thread();
    const int status = f->target->function(f->state, values, n, result);
    f->python.eval_restore_thread(thread);
    leave(&tensors[0], &around);
    return status;
}

enum {
    FAST_NAME,
    FAST_API,
    FAST_TENSOR_TYPE,
    FAST_NONE,
    FAST_TUPLE_GET_ITEM,
    FAST_OBJECT_IS_INSTANCE,
    FAST_LONG_AS_LONG_LONG,
    FAST_FLOAT_AS_DOUBLE,
    FAST_ERR_OCCURRED,
    FAST_ERR_CLEAR,
    FAST_EVAL_SAVE_THREAD,
    FAST_EVAL_RESTORE_THREAD,
    FAST_END
};

/* Copies an address into a pointer of any type, functions included. */
static void read_address(call *c, int i, void *pointer) {
    const intptr_t address = (intptr_t)call_integer(c, i, "address", INT64_MIN, INT64_MAX);
    memcpy(pointer, &address, sizeof address);
}

int binding_bind_fast(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, FAST_END, NULL)) {
        return -1;
    }
    char memory[CALL_TEXT_BYTES];
    const char *name = call_text(&c, FAST_NAME, "name", memory);
    fast_call *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return call_fail_status(&c, MMLA_E_MEMORY, NULL);
    }
    read_address(&c, FAST_API, &f->api);
    read_address(&c, FAST_TENSOR_TYPE, &f->tensor_type);
    read_address(&c, FAST_NONE, &f->python.none);
    read_address(&c, FAST_TUPLE_GET_ITEM, &f->python.tuple_get_item);
    read_address(&c, FAST_OBJECT_IS_INSTANCE, &f->python.object_is_instance);
    read_address(&c, FAST_LONG_AS_LONG_LONG, &f->python.long_as_long_long);
    read_address(&c, FAST_FLOAT_AS_DOUBLE, &f->python.float_as_double);
    read_address(&c, FAST_ERR_OCCURRED, &f->python.err_occurred);
    read_address(&c, FAST_ERR_CLEAR, &f->python.err_clear);
    read_address(&c, FAST_EVAL_SAVE_THREAD, &f->python.eval_save_thread);
    read_address(&c, FAST_EVAL_RESTORE_THREAD, &f->python.eval_restore_thread);
    for (size_t i = 0; name != NULL && i < sizeof fast_functions / sizeof fast_functions[0]; i++) {
        if (strcmp(fast_functions[i].name, name) == 0) {
            f->target = &fast_functions[i];
        }
    }
    const bool usable =
        !c.failed && f->target != NULL && f->api->header.version.major == DLPACK_MAJOR_VERSION &&
        f->api->dltensor_from_py_object_no_sync != NULL && f->api->current_work_stream != NULL;
    if (!usable) { /* stays None: there is no fast way, which is no error */
        free(f);
        return c.failed ? -1 : 0;
    }
    f->state = c.state;
    state_retain(f->state);
    return give_function(f, fast_run, fast_release, result);
}
