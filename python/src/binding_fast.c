/* binding_fast.c - functions of Python whose tensors are read in place.
 *
 * tvm-ffi makes an owning tensor of every argument, some 300 ns each, and attend_paged has a dozen.
 * A framework with DLPack's exchange API (PyTorch from 2.10 on) can show a tensor without giving it
 * away, which takes a tenth of that. So for its tensors there is a second way to the functions of the
 * binding, without tvm-ffi: a function of Python itself, made here.
 *
 *     f = bind_fast("attend_paged", exchange API, tensor type, CPython's functions ...)
 *     PyCFunction_NewEx(method of f, f, NULL)                  the function
 *
 *     attend_paged      has the arguments and the order of binding_attend_paged. It gives None, or
 *                       something else when an argument is not what it should be: then nothing was
 *                       done, and the ordinary function is there to take it after all, or to say
 *                       what is wrong
 *     attend_paged_out  has those of the operator in torch_ops.py, and is what PyTorch's dispatcher
 *                       calls: a function of Python between would cost as much as reading four
 *                       tensors. What it does not take, it hands to one
 *
 * CPython is not linked: the few functions of its stable ABI that this takes come as addresses. The
 * arguments live until the call is over, because the caller has them. Python's lock is given up while
 * the library runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

#include "python/src/binding_call.h"
#include "python/src/binding_functions.h"
#include "python/src/binding_places.h"

enum { CHOICES_MAX = 2 };

/* One letter an argument: t tensor, i integer, s stream, f number, c the name of a choice. Any may be
 * None; what has a - is always. `kinds` are those of the function, in the order of its enum; `given`
 * those that a caller gives, in his order, when that is another, and `places` where they are in the
 * enum. Of the latter the last may be left out. An integer that is not given is 0. Anything else is
 * None, a stream too although it is read as an integer: 0 names CUDA's default stream, None is the
 * framework's current one. */
typedef struct fast_function {
    const char *name;
    TVMFFISafeCallType function;
    const char *kinds;
    const char *given;
    const uint8_t *places;
} fast_function;

static const uint8_t places_of_paged_out[] = {AT_Q,
                                              AT_POSITIONS,
                                              AT_COS_SIN,
                                              AT_WINDOW_CACHE,
                                              AT_WINDOW_LIST,
                                              AT_WINDOW_LENS,
                                              AT_COMPRESSED_CACHE,
                                              AT_COMPRESSED_LIST,
                                              AT_COMPRESSED_LENS,
                                              AT_OUT,
                                              AT_OUT_SCALE,
                                              AT_LSE,
                                              AT_MAX_LOGITS,
                                              AT_SCALE,
                                              AT_SINK,
                                              AT_Q_LAYOUT,
                                              AT_Q_NORM_EPS,
                                              AT_OUT_FORM,
                                              AT_BATCH_INVARIANT};
static const uint8_t places_of_rows_out[] = {
    AT_Q,        AT_POSITIONS,  AT_COS_SIN,  AT_KV,
    AT_LIST,     AT_LENS,       AT_OUT,      AT_OUT_SCALE,
    AT_LSE,      AT_MAX_LOGITS, AT_SCALE,    AT_SINK,
    AT_Q_LAYOUT, AT_Q_NORM_EPS, AT_OUT_FORM, AT_BATCH_INVARIANT};

static const char kinds_of_paged[] = "tttttttttfifii-tstiitiitttt";
static const char kinds_of_rows[] = "tttttttttfifii-tsttt";

static const fast_function fast_functions[] = {
    {"attend_paged", binding_attend_paged, kinds_of_paged, NULL, NULL},
    {"attend_rows", binding_attend_rows, kinds_of_rows, NULL, NULL},
    {"attend_paged_out", binding_attend_paged, kinds_of_paged, "tttttttttttttftcfci",
     places_of_paged_out},
    {"attend_rows_out", binding_attend_rows, kinds_of_rows, "ttttttttttftcfci", places_of_rows_out},
    {"kv_insert", binding_kv_insert, "tttttiitfiiti-ts", NULL, NULL},
};

/* Of CPython's stable ABI. */
typedef struct python_abi {
    void *none;
    void *value_error;
    void *runtime_error;
    void *memory_error;
    void *(*tuple_new)(intptr_t n);
    int (*tuple_set_item)(void *tuple, intptr_t i, void *item);
    int (*object_is_instance)(void *object, void *type);
    long long (*long_as_long_long)(void *object);
    double (*float_as_double)(void *object);
    void *(*dict_get_item_with_error)(void *dict, void *key);
    void *(*object_call_object)(void *callable, void *tuple);
    void *(*err_occurred)(void);
    void (*err_clear)(void);
    void (*err_set_string)(void *type, const char *message);
    void *(*eval_save_thread)(void);
    void (*eval_restore_thread)(void *thread);
    void (*inc_ref)(void *object);
    void (*dec_ref)(void *object);
} python_abi;

/* The head of every object, as CPython's stable ABI has it wherever Python has its one lock. */
typedef struct python_object {
    intptr_t references;
    void *type;
} python_object;

/* CPython's PyMethodDef. */
typedef struct python_method {
    const char *name;
    void *(*function)(void *self, void *const *items, intptr_t n);
    int flags;
    const char *doc;
} python_method;

enum { METHOD_FASTCALL = 0x0080 };

/* What a function is made of. It is Python's `self` of the function, for which it has the head of a
 * plain object; its own reference is never given up, so that Python never frees it. */
typedef struct fast_call {
    python_object head;
    python_method method;
    binding_state *state;
    const fast_function *target;
    const DLPackExchangeAPI *api;
    void *tensor_type;
    void *otherwise; /* a callable of Python for what is not taken; None: there is none */
    void *choices[CHOICES_MAX]; /* dicts from names to numbers, in the order of the letters c */
    python_abi python;
} fast_call;

static bool read_tensor(const fast_call *f, void *item, TVMFFIAny *value, DLTensor *tensor) {
    *value = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = tensor};
    return (((const python_object *)item)->type == f->tensor_type ||
            f->python.object_is_instance(item, f->tensor_type) == 1) &&
           f->api->dltensor_from_py_object_no_sync(item, tensor) == 0;
}

/* NULL is no integer. */
static bool read_integer(const fast_call *f, void *item, TVMFFIAny *value) {
    const long long n = item == NULL ? -1 : f->python.long_as_long_long(item);
    *value = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = n};
    return item != NULL && (n != -1 || f->python.err_occurred() == NULL);
}

static bool read_number(const fast_call *f, void *item, TVMFFIAny *value) {
    const double x = f->python.float_as_double(item);
    *value = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = x};
    return x != -1.0 || f->python.err_occurred() == NULL;
}

/* Reads n arguments; false when one is not what its letter says. */
static bool read_items(
    const fast_call *f, void *const *items, intptr_t n, TVMFFIAny *values, DLTensor *tensors) {
    const fast_function *to = f->target;
    const char *letters = to->given != NULL ? to->given : to->kinds;
    const intptr_t most = (intptr_t)strlen(letters);
    int32_t n_choices = 0;
    if (to->given == NULL ? n != most : n > most) {
        return false;
    }
    if (to->given != NULL) { /* the 0 of a choice is its first */
        for (int32_t i = 0; to->kinds[i] != 0; i++) {
            values[i] = (TVMFFIAny){.type_index = to->kinds[i] == 'i' ? kTVMFFIInt : kTVMFFINone};
        }
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t place = to->places != NULL ? to->places[i] : i;
        void *item = items[i];
        bool good = true;
        switch (item == f->python.none ? 0 : letters[i]) {
        case 0:
            values[place] = (TVMFFIAny){.type_index = kTVMFFINone};
            break;
        case 't':
            good = read_tensor(f, item, &values[place], &tensors[place]);
            break;
        case 'i':
        case 's':
            good = read_integer(f, item, &values[place]);
            break;
        case 'f':
            good = read_number(f, item, &values[place]);
            break;
        case 'c':
            item = f->python.dict_get_item_with_error(f->choices[n_choices], item);
            good = read_integer(f, item, &values[place]);
            break;
        default:
            good = false;
        }
        if (!good) {
            f->python.err_clear();
            return false;
        }
        n_choices += letters[i] == 'c';
    }
    return true;
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

/* Python's exception for the one that the binding raised. Gives NULL, as a function of Python then does. */
static void *raise_in_python(const fast_call *f) {
    enum { MESSAGE_BYTES = 1024 };
    char message[MESSAGE_BYTES] = "an unknown error";
    void *type = f->python.runtime_error;
    TVMFFIObjectHandle error = NULL;
    TVMFFIErrorMoveFromRaised(&error);
    if (error != NULL) {
        const TVMFFIErrorCell *cell =
            (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
        const TVMFFIByteArray kind = cell->kind, text = cell->message;
        if (kind.size == strlen("ValueError") && memcmp(kind.data, "ValueError", kind.size) == 0) {
            type = f->python.value_error;
        } else if (kind.size == strlen("MemoryError") &&
                   memcmp(kind.data, "MemoryError", kind.size) == 0) {
            type = f->python.memory_error;
        }
        snprintf(message, sizeof message, "%.*s",
                 (int)(text.size < MESSAGE_BYTES ? text.size : MESSAGE_BYTES), text.data);
        TVMFFIObjectDecRef(error);
    }
    f->python.err_set_string(type, message);
    return NULL;
}

static void *not_taken(fast_call *f, void *const *items, intptr_t n) {
    if (f->otherwise == f->python.none) {
        f->python.inc_ref(f);
        return f;
    }
    void *tuple = f->python.tuple_new(n), *result = NULL;
    if (tuple != NULL) {
        for (intptr_t i = 0; i < n; i++) {
            f->python.inc_ref(items[i]); /* for the tuple */
            f->python.tuple_set_item(tuple, i, items[i]);
        }
        result = f->python.object_call_object(f->otherwise, tuple);
        f->python.dec_ref(tuple);
    }
    return result;
}

/* A function of Python: gives a new reference, or NULL with an exception set. */
static void *fast_run(void *self, void *const *items, intptr_t n) {
    fast_call *f = self;
    TVMFFIAny values[CALL_ARGUMENTS_MAX];
    DLTensor tensors[CALL_ARGUMENTS_MAX];
    surroundings around;
    if (!read_items(f, items, n, values, tensors) || values[0].type_index != kTVMFFIDLTensorPtr ||
        !enter(f, &tensors[0], &around)) {
        return not_taken(f, items, n);
    }
    void *thread = f->python.eval_save_thread();
    TVMFFIAny result = {.type_index = kTVMFFINone};
    const int status =
        f->target->function(f->state, values, (int32_t)strlen(f->target->kinds), &result);
    f->python.eval_restore_thread(thread);
    leave(&tensors[0], &around);
    if (status != 0) {
        return raise_in_python(f);
    }
    if (result.type_index != kTVMFFINone) { /* a workspace is wanted, and nothing was done */
        return not_taken(f, items, n);
    }
    f->python.inc_ref(f->python.none);
    return f->python.none;
}

/* Addresses, in the order in which Python gives them. */
enum {
    FAST_NAME,
    FAST_API,
    FAST_TENSOR_TYPE,
    FAST_PLAIN_TYPE, /* of an object that has nothing but its head */
    FAST_OTHERWISE,
    FAST_CHOICES,
    FAST_PYTHON = FAST_CHOICES + CHOICES_MAX, /* an array: the fields of python_abi */
    FAST_PYTHON_BYTES,
    FAST_END
};

/* Copies an address into a pointer of any type, functions included. */
static void read_address(call *c, int i, void *pointer) {
    const intptr_t address = (intptr_t)call_integer(c, i, "address", INT64_MIN, INT64_MAX);
    memcpy(pointer, &address, sizeof address);
}

/* Gives the address of a fast_call, or None where there is no fast way, which is no error. */
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
    read_address(&c, FAST_PLAIN_TYPE, &f->head.type);
    read_address(&c, FAST_OTHERWISE, &f->otherwise);
    for (int i = 0; i < CHOICES_MAX; i++) {
        read_address(&c, FAST_CHOICES + i, &f->choices[i]);
    }
    const void *python = NULL;
    read_address(&c, FAST_PYTHON, &python);
    call_integer(&c, FAST_PYTHON_BYTES, "python", sizeof f->python, sizeof f->python);
    if (!c.failed) {
        memcpy(&f->python, python, sizeof f->python);
    }
    for (size_t i = 0; name != NULL && i < sizeof fast_functions / sizeof fast_functions[0]; i++) {
        if (strcmp(fast_functions[i].name, name) == 0) {
            f->target = &fast_functions[i];
        }
    }
    const bool usable =
        !c.failed && f->target != NULL && f->api->header.version.major == DLPACK_MAJOR_VERSION &&
        f->api->dltensor_from_py_object_no_sync != NULL && f->api->current_work_stream != NULL;
    if (!usable) {
        free(f);
        return c.failed ? -1 : 0;
    }
    f->head.references = 1;
    f->method = (python_method){f->target->name, fast_run, METHOD_FASTCALL, NULL};
    f->state = c.state;
    state_retain(f->state);
    result_integer(result, (int64_t)(intptr_t)f);
    return 0;
}
