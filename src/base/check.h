/* check.h - the checks every plan and run makes, with messages of one form: name, value, what is
 * accepted. Each returns MMLA_OK or fills err. */
#ifndef MMLA_BASE_CHECK_H
#define MMLA_BASE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/status.h>

/* Statement form: leaves the calling function with the failure. */
#define MMLA_RETURN_IF_FAILED(expression)         \
    do {                                          \
        const mmla_status status_ = (expression); \
        if (status_ != MMLA_OK) {                 \
            return status_;                       \
        }                                         \
    } while (0)

enum { MMLA_WORKSPACE_ALIGNMENT = 64 }; /* of the pointer every run takes, and of its parts */

/* low <= value <= high, else MMLA_E_SHAPE: sizes and counts. */
mmla_status
mmla_check_range(mmla_error *err, const char *name, int64_t value, int64_t low, int64_t high);

/* The same, else MMLA_E_VALUE: settings that are no size. */
mmla_status
mmla_check_value(mmla_error *err, const char *name, int64_t value, int64_t low, int64_t high);

/* value is one of 0 .. n-1 of an enum, else MMLA_E_VALUE. */
mmla_status mmla_check_enum(mmla_error *err, const char *name, int value, int n);

/* value is finite and > 0, else MMLA_E_VALUE. */
mmla_status mmla_check_positive(mmla_error *err, const char *name, float value);

/* A stride: 0 is `least`; else at least `least` and a multiple of `multiple`. Fills *out. */
mmla_status mmla_check_stride(mmla_error *err,
                              const char *name,
                              int64_t value,
                              int64_t least,
                              int64_t multiple,
                              int64_t *out);

/* rows * stride elements of element_bytes have a 64-bit size, else MMLA_E_SIZE about the stride.
 * None is negative. */
mmla_status mmla_check_extent(
    mmla_error *err, const char *name, int64_t rows, int64_t stride, int64_t element_bytes);

/* p is not NULL and a multiple of alignment. */
mmla_status mmla_check_pointer(mmla_error *err, const char *name, const void *p, size_t alignment);

/* The same, but NULL is allowed. */
mmla_status mmla_check_optional(mmla_error *err, const char *name, const void *p, size_t alignment);

#endif
