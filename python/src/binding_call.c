/* binding_call.c - errors, plain arguments, and the common way a call is run. */
#include "python/src/binding_call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

enum { MESSAGE_BYTES = 512 };

static void raise_once(call *c, const char *kind, const char *message) {
    if (!c->failed) {
        TVMFFIErrorSetRaisedFromCStr(kind, message);
    }
    c->failed = true;
}

bool call_init(call *c,
               void *state,
               const TVMFFIAny *args,
               int32_t n_args,
               int32_t n_expected,
               const field_name *fields) {
    /* Not an initialiser: it would clear the strides, too, which few calls have a use for. */
    c->state = state;
    c->args = args;
    c->fields = fields;
    c->failed = false;
    c->overlaps = false;
    c->has_device = false;
    c->device_argument = "";
    c->device = MMLA_CPU;
    if (n_args != n_expected) {
        char message[MESSAGE_BYTES];
        snprintf(
            message, sizeof message,
            "the package's Python files and its library are of different versions (%d arguments "
            "instead of %d): install it again",
            n_args, n_expected);
        raise_once(c, "RuntimeError", message);
    }
    return !c->failed;
}

int call_fail(call *c, const char *argument, const char *format, ...) {
    char message[MESSAGE_BYTES];
    const int n = snprintf(message, sizeof message, "%s: ", argument);
    va_list rest;
    va_start(rest, format);
    vsnprintf(message + n, sizeof message - (size_t)n, format, rest);
    va_end(rest);
    raise_once(c, "ValueError", message);
    return -1;
}

/* The Python argument of a field, NULL when both have one name. */
static const char *argument_of(const call *c, const char *field) {
    for (const field_name *f = c->fields; f != NULL && f->field != NULL; f++) {
        const size_t n = strlen(f->field);
        const bool family = n > 0 && f->field[n - 1] == '.';
        if (family ? strncmp(f->field, field, n) == 0 : strcmp(f->field, field) == 0) {
            return f->argument;
        }
    }
    return NULL;
}

int call_fail_status(call *c, mmla_status status, const mmla_error *err) {
    const bool told = err != NULL && err->status == status;
    const char *field = told ? err->argument : "";
    const char *sentence = told ? err->message : mmla_status_text(status);
    const char *argument = argument_of(c, field);
    const char *kind = "ValueError";
    if (status == MMLA_E_DEVICE || status == MMLA_E_LAUNCH) {
        kind = "RuntimeError";
    } else if (status == MMLA_E_MEMORY) {
        kind = "MemoryError";
    }
    char message[MESSAGE_BYTES];
    const size_t n = strlen(field);
    if (argument != NULL && strcmp(argument, field) != 0 && strncmp(sentence, field, n) == 0 &&
        sentence[n] == ':') {
        snprintf(message, sizeof message, "%s: %s%s", argument, field, sentence + n + 1);
    } else {
        snprintf(message, sizeof message, "%s", sentence);
    }
    raise_once(c, kind, message);
    return -1;
}

bool call_is_none(const call *c, int i) {
    return c->args[i].type_index == kTVMFFINone;
}

int64_t call_integer(call *c, int i, const char *name, int64_t low, int64_t high) {
    const TVMFFIAny *value = &c->args[i];
    if (c->failed) {
        return low;
    }
    if (value->type_index != kTVMFFIInt && value->type_index != kTVMFFIBool) {
        call_fail(c, name, "is not an integer");
        return low;
    }
    if (value->v_int64 < low || value->v_int64 > high) {
        call_fail(c, name, "is %" PRId64 ", must be %" PRId64 " .. %" PRId64, value->v_int64, low,
                  high);
        return low;
    }
    return value->v_int64;
}

double call_real(call *c, int i, const char *name, double if_none) {
    const TVMFFIAny *value = &c->args[i];
    switch (value->type_index) {
    case kTVMFFINone:
        return if_none;
    case kTVMFFIFloat:
        return value->v_float64;
    case kTVMFFIInt:
    case kTVMFFIBool:
        return (double)value->v_int64;
    default:
        if (!c->failed) {
            call_fail(c, name, "is not a number");
        }
        return if_none;
    }
}

const char *call_text(call *c, int i, const char *name, char memory[CALL_TEXT_BYTES]) {
    const TVMFFIAny *value = &c->args[i];
    TVMFFIByteArray text = {NULL, 0};
    if (c->failed || value->type_index == kTVMFFINone) {
        return NULL;
    }
    if (value->type_index == kTVMFFISmallStr) {
        text = (TVMFFIByteArray){value->v_bytes, value->small_str_len};
    } else if (value->type_index == kTVMFFIStr) {
        memcpy(&text, (const char *)value->v_ptr + sizeof(TVMFFIObject), sizeof text);
    } else if (value->type_index == kTVMFFIRawStr) {
        text = (TVMFFIByteArray){value->v_c_str, strlen(value->v_c_str)};
    } else {
        call_fail(c, name, "is not a string");
        return NULL;
    }
    if (text.size >= CALL_TEXT_BYTES || memchr(text.data, 0, text.size) != NULL) {
        call_fail(c, name, "is too long, or has a zero byte in it");
        return NULL;
    }
    memcpy(memory, text.data, text.size);
    memory[text.size] = 0;
    return memory;
}

void *call_stream(call *c, int i) {
    if (!call_is_none(c, i)) {
        return (void *)(intptr_t)call_integer(c, i, "stream", INT64_MIN, INT64_MAX);
    }
    return c->device.kind == MMLA_DEVICE_CPU ? NULL : TVMFFIEnvGetStream(kDLCUDA, c->device.index);
}

mmla_context *call_context(call *c) {
    mmla_context *ctx = NULL;
    mmla_error err;
    if (!c->failed) {
        const mmla_status status = state_context(c->state, c->device, &ctx, &err);
        if (status != MMLA_OK) {
            call_fail_status(c, status, &err);
        }
    }
    return ctx;
}

const char *call_implementation(call *c, int i, char memory[CALL_TEXT_BYTES]) {
    const char *text = call_text(c, i, "implementation", memory);
    mmla_context *ctx = text == NULL ? NULL : call_context(c);
    if (ctx == NULL) {
        return NULL;
    }
    const int32_t n = mmla_implementation_count(ctx);
    for (int32_t k = 0; k < n; k++) {
        mmla_implementation known;
        if (mmla_implementation_get(ctx, k, &known, NULL) == MMLA_OK &&
            strcmp(known.name, text) == 0) {
            return known.name;
        }
    }
    return memory;
}

int64_t call_max_tokens(int64_t n, int64_t limit) {
    int64_t most = 1;
    while (most < n) {
        most *= 2;
    }
    const int64_t top = limit < INT32_MAX ? limit : INT32_MAX;
    return n > top ? n : most > top ? top : most; /* above 2^31 - 1 the plan says what is wrong */
}

/* The framework's allocator runs on the framework's current stream, so its memory may go back as
 * soon as the work is enqueued there; with a stream that Python named, that is not known. Gives NULL,
 * and no error, when there is no such memory to be had. */
static TVMFFIObjectHandle device_workspace(call *c, size_t bytes, bool stream_named) {
    if (stream_named || TVMFFIEnvGetDLPackManagedTensorAllocator() == NULL) {
        return NULL;
    }
    int64_t shape[1] = {(int64_t)bytes};
    DLTensor wanted = {
        .device = {kDLCUDA, c->device.index}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
    TVMFFIObjectHandle tensor = NULL;
    if (TVMFFIEnvTensorAlloc(&wanted, &tensor) != 0) {
        c->failed = true; /* it has raised */
        return NULL;
    }
    return tensor;
}

static void *memory_of(TVMFFIObjectHandle tensor) {
    const DLTensor *t = (const DLTensor *)((const char *)tensor + sizeof(TVMFFIObject));
    return (char *)t->data + t->byte_offset;
}

/* The caller's workspace, for a plan that has a use for one. */
static void *given_workspace(call *c, const array *given, size_t bytes) {
    if ((uint64_t)given->shape[0] < bytes) {
        call_fail(c, "workspace", "has %" PRId64 " bytes, must have %zu", given->shape[0], bytes);
    }
    return given->data;
}

int call_run(call *c,
             const plan_kind *kind,
             const void *desc,
             run_function run,
             void *args,
             const mmla_error *err,
             int place_workspace,
             int place_stream,
             TVMFFIAny *result) {
    void *stream = call_stream(c, place_stream);
    array given = {0};
    if (place_workspace >= 0) {
        given = call_optional(c, place_workspace, "workspace", ELEMENT_BYTE, 1, 1);
        call_contiguous(c, &given, "workspace", 0);
    }
    if (c->failed) {
        return -1;
    }
    loan lent;
    mmla_error taken;
    mmla_status status = loan_take(c->state, kind, c->device, desc, !given.given, &lent, &taken);
    if (status != MMLA_OK) {
        return call_fail_status(c, status, &taken);
    }
    const size_t bytes = lent.entry->workspace_bytes;
    TVMFFIObjectHandle tensor = NULL;
    void *memory = NULL;
    bool missing = false;
    if (given.given && bytes > 0) {
        memory = given_workspace(c, &given, bytes);
    } else if (lent.host != NULL) {
        memory = lent.host->memory;
    } else if (bytes > 0 && c->overlaps) {
        call_fail(c, "workspace", "is None, must be given with overlap: %zu bytes", bytes);
    } else if (bytes > 0) {
        tensor = device_workspace(c, bytes, !call_is_none(c, place_stream));
        missing = tensor == NULL;
        memory = missing ? NULL : memory_of(tensor);
    }
    if (missing && !c->failed) {
        result_integer(result, (int64_t)bytes);
    } else if (!c->failed) {
        status = run(lent.entry->plan, args, memory, stream);
        if (status != MMLA_OK) {
            call_fail_status(c, status, err);
        }
    }
    if (tensor != NULL) {
        TVMFFIObjectDecRef(tensor);
    }
    loan_return(c->state, &lent);
    return c->failed ? -1 : 0;
}

void result_integer(TVMFFIAny *result, int64_t value) {
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value};
}

int result_text(TVMFFIAny *result, const char *text) {
    const TVMFFIByteArray bytes = {text, strlen(text)};
    return TVMFFIStringFromByteArray(&bytes, result);
}

int give_function(void *self,
                  TVMFFISafeCallType function,
                  void (*deleter)(void *self),
                  TVMFFIAny *result) {
    TVMFFIObjectHandle handle = NULL;
    if (TVMFFIFunctionCreate(self, function, deleter, &handle) != 0) {
        deleter(self);
        return -1; /* it has raised */
    }
    *result = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_ptr = handle};
    return 0;
}
