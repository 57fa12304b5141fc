/* binding_functions.h - the functions that the Python package calls, in the calling convention of
 * tvm-ffi: 0 is success, otherwise an exception was raised. self is the binding_state. What each
 * takes is said by the enum beside its definition; the Python files have the same order. */
#ifndef MEGAMLA_PYTHON_BINDING_FUNCTIONS_H
#define MEGAMLA_PYTHON_BINDING_FUNCTIONS_H

#include <stdint.h>

#include <tvm/ffi/c_api.h>

/* Name in Python, function, one a line. */
#define BINDING_FUNCTIONS(X)                  \
    X(attend_paged, binding_attend_paged)     \
    X(attend_rows, binding_attend_rows)       \
    X(attend_prefill, binding_attend_prefill) \
    X(merge, binding_merge)                   \
    X(supports, binding_supports)             \
    X(kv_insert, binding_kv_insert)           \
    X(kv_gather, binding_kv_gather)           \
    X(list_build, binding_list_build)         \
    X(weights, binding_weights)               \
    X(project, binding_project)               \
    X(project_widen, binding_project_widen)   \
    X(rope_table, binding_rope_table)         \
    X(kv_sizes, binding_kv_sizes)             \
    X(prefill_chunk, binding_prefill_chunk)   \
    X(implementation, binding_implementation) \
    X(set_threads, binding_set_threads)       \
    X(plan_counts, binding_plan_counts)       \
    X(bind_fast, binding_bind_fast)           \
    X(version, binding_version)

#define BINDING_DECLARE(name, function) \
    int function(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result);
BINDING_FUNCTIONS(BINDING_DECLARE)
#undef BINDING_DECLARE

#endif
