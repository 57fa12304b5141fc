#include "base/check.h"

#include <math.h>

#include "base/checked.h"
#include "base/error.h"

static mmla_status check_within(mmla_error *err,
                                mmla_status status,
                                const char *name,
                                int64_t value,
                                int64_t low,
                                int64_t high) {
    if (value >= low && value <= high) {
        return MMLA_OK;
    }
    return mmla_error_set(err, status, name, "is %lld, must be %lld .. %lld", (long long)value,
                          (long long)low, (long long)high);
}

mmla_status
mmla_check_range(mmla_error *err, const char *name, int64_t value, int64_t low, int64_t high) {
    return check_within(err, MMLA_E_SHAPE, name, value, low, high);
}

mmla_status
mmla_check_value(mmla_error *err, const char *name, int64_t value, int64_t low, int64_t high) {
    return check_within(err, MMLA_E_VALUE, name, value, low, high);
}

mmla_status mmla_check_enum(mmla_error *err, const char *name, int value, int n) {
    if (value >= 0 && value < n) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_VALUE, name, "is %d, must be 0 .. %d", value, n - 1);
}

mmla_status mmla_check_positive(mmla_error *err, const char *name, float value) {
    if (isfinite(value) && value > 0.0f) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_VALUE, name, "is %g, must be finite and above 0",
                          (double)value);
}

mmla_status mmla_check_stride(mmla_error *err,
                              const char *name,
                              int64_t value,
                              int64_t least,
                              int64_t multiple,
                              int64_t *out) {
    *out = value == 0 ? least : value;
    if (*out < least) {
        return mmla_error_set(err, MMLA_E_STRIDE, name, "is %lld, must be at least %lld (or 0)",
                              (long long)value, (long long)least);
    }
    if (*out % multiple != 0) {
        return mmla_error_set(err, MMLA_E_ALIGNMENT, name, "is %lld, must be a multiple of %lld",
                              (long long)value, (long long)multiple);
    }
    return MMLA_OK;
}

mmla_status mmla_check_extent(
    mmla_error *err, const char *name, int64_t rows, int64_t stride, int64_t element_bytes) {
    int64_t elements, bytes;
    if (mmla_mul_i64(rows, stride, &elements) && mmla_mul_i64(elements, element_bytes, &bytes)) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_SIZE, name, "is %lld, %lld such rows exceed 2^63 bytes",
                          (long long)stride, (long long)rows);
}

mmla_status
mmla_check_optional(mmla_error *err, const char *name, const void *p, size_t alignment) {
    if ((uintptr_t)p % alignment == 0) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_ALIGNMENT, name, "is at %p, must be a multiple of %zu", p,
                          alignment);
}

mmla_status mmla_check_pointer(mmla_error *err, const char *name, const void *p, size_t alignment) {
    if (p == NULL) {
        return mmla_error_set(err, MMLA_E_NULL, name, "is NULL");
    }
    return mmla_check_optional(err, name, p, alignment);
}
