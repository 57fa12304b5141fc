/* binding_module.c - the one symbol of the shared object, __tvm_ffi_open.
 *
 *     bind = open()              a new state, and a function that knows it
 *     attend = bind("attend_paged")
 *
 * Every function holds the state; there is none outside of them, and none that is global.
 */
#include <string.h>

#include "python/src/binding_call.h"
#include "python/src/binding_functions.h"

typedef struct named_function {
    const char *name;
    TVMFFISafeCallType function;
} named_function;

static const named_function functions[] = {
#define BINDING_ENTRY(name, function) {#name, function},
    BINDING_FUNCTIONS(BINDING_ENTRY)
#undef BINDING_ENTRY
};

static int binding_bind(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, 1, NULL)) {
        return -1;
    }
    char memory[CALL_TEXT_BYTES];
    const char *name = call_text(&c, 0, "name", memory);
    if (name == NULL) {
        return c.failed ? -1 : call_fail(&c, "name", "is None");
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, name) == 0) {
            state_retain(c.state);
            return give_function(c.state, functions[i].function, state_release, result);
        }
    }
    return call_fail(&c, "name", "is '%s', which is no function of the library", name);
}

TVM_FFI_DLL_EXPORT int
__tvm_ffi_open(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result);

int __tvm_ffi_open(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    (void)self;
    (void)argv;
    (void)argc;
    binding_state *state = state_create();
    if (state == NULL) {
        TVMFFIErrorSetRaisedFromCStr("MemoryError", "out of memory");
        return -1;
    }
    return give_function(state, binding_bind, state_release, result);
}
