/* status.h - how every function of megamla reports failure.
 *
 * Every function that can fail returns an mmla_status; MMLA_OK is 0 and nothing else is success.
 * Cold functions (create, plan) also take an mmla_error, owned by the caller, may be NULL; run
 * functions take one through their args. It holds the argument's name and a sentence with the value
 * found and the values accepted.
 */
#ifndef MEGAMLA_STATUS_H
#define MEGAMLA_STATUS_H

#include <stdint.h> /* int64_t */

#include <megamla/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one table: name, value, text. Values are spaced so that a new one fits among its kin, and
 * never change. */
#define MMLA_STATUS_MAP(X)                                                          \
    X(OK, 0, "success")                                                             \
    X(E_NULL, 10, "a required pointer is NULL")                                     \
    X(E_VALUE, 11, "an option has a value outside its range")                       \
    X(E_ALIGNMENT, 12, "a pointer or a stride is not aligned")                      \
    X(E_SHAPE, 20, "a dimension is wrong or unsupported")                           \
    X(E_STRIDE, 21, "a stride is too small or unsupported")                         \
    X(E_FORMAT, 22, "a format, or a pair of formats, is unsupported")               \
    X(E_SIZE, 23, "a size does not fit in 64 bits")                                 \
    X(E_INDEX, 30, "a slot or a position lies outside its bound")                   \
    X(E_NO_IMPLEMENTATION, 40, "no implementation for this device and description") \
    X(E_DEVICE, 50, "the device is missing or unsupported")                         \
    X(E_LAUNCH, 51, "the device refused the work")                                  \
    X(E_MEMORY, 60, "out of memory")

typedef enum mmla_status {
#define MMLA_STATUS_ENUM(name, value, text) MMLA_##name = value,
    MMLA_STATUS_MAP(MMLA_STATUS_ENUM)
#undef MMLA_STATUS_ENUM
} mmla_status;

enum { MMLA_ERROR_ARGUMENT_BYTES = 48, MMLA_ERROR_MESSAGE_BYTES = 240 };

/* What went wrong. Filled only on failure; both strings are always terminated. */
typedef struct mmla_error {
    mmla_status status;
    char argument[MMLA_ERROR_ARGUMENT_BYTES]; /* "n_heads", or "" when no argument is to blame */
    char message[MMLA_ERROR_MESSAGE_BYTES];   /* "n_heads: is 12, must be a multiple of 8 ..." */
    int64_t detail;                           /* the device's own code, else 0 */
} mmla_error;

/* mmla_status_name - "MMLA_E_SHAPE"; "MMLA_E_UNKNOWN" for a value outside the table. */
MMLA_API const char *mmla_status_name(mmla_status status);

/* mmla_status_text - the table's sentence for a status. */
MMLA_API const char *mmla_status_text(mmla_status status);

#ifdef __cplusplus
}
#endif

#endif
