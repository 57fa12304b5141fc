#include "app/capture/capture_compare.h"

#include <math.h>
#include <string.h>

#include "app/capture/capture_attend.h"
#include "app/capture/capture_key_size.h"
#include "app/check/check_attend_tolerance.h"
#include "app/check/check_num.h"
#include "base/checked.h"

enum { STRETCH = 4096 }; /* values converted at a time */

/* z is rounded to bf16 after sums in fp32 that may be taken in any order: half an ulp on each side,
 * and near a rounding boundary or a cancellation a share of what was summed. */
static const double Z_REL = 1.01 / 128, Z_ABS_SHARE = 1.0 / 1024;

/* How an output's elements become numbers. */
typedef struct reading {
    const safetensors_tensor *values;
    const safetensors_tensor *scales; /* NULL: none */
    int64_t chunk;                    /* elements under one scale */
} reading;

static float value_at(const reading *r, int64_t i) {
    switch (r->values->dtype) {
    case SAFETENSORS_F32:
        return ((const float *)r->values->data)[i];
    case SAFETENSORS_BF16:
        return check_bf16_to_f32(((const uint16_t *)r->values->data)[i]);
    default:
        break;
    }
    const float value = check_e4m3_to_f32(((const uint8_t *)r->values->data)[i]);
    if (r->scales == NULL) {
        return value;
    }
    /* Scales stand in the order of the values they scale, in every form. */
    return r->scales->dtype == SAFETENSORS_F32
               ? value * ((const float *)r->scales->data)[i / r->chunk]
               : value * check_ue8m0_to_f32(((const uint8_t *)r->scales->data)[i / r->chunk]);
}

static int64_t element_count(const safetensors_tensor *t) {
    return t->n_bytes / safetensors_dtype_bytes(t->dtype);
}

static void
bits_compare(const safetensors_tensor *got, const safetensors_tensor *want, capture_difference *d) {
    const size_t size = (size_t)safetensors_dtype_bytes(got->dtype);
    const char *a = got->data, *b = want->data;
    d->n = element_count(got);
    d->first = -1;
    for (int64_t i = 0; i < d->n; i++) {
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0) {
            d->first = d->n_different == 0 ? i : d->first;
            d->n_different++;
        }
    }
    d->is_passed = d->n_different == 0;
}

static void numbers_compare(const reading *got,
                            const reading *want,
                            check_tolerance tolerance,
                            capture_difference *d) {
    d->is_near = true;
    d->near = check_near_begin(tolerance);
    float a[STRETCH], b[STRETCH];
    for (int64_t first = 0; first < d->n; first += STRETCH) {
        const int64_t n = mmla_min_i64(d->n - first, STRETCH);
        for (int64_t i = 0; i < n; i++) {
            a[i] = value_at(got, first + i);
            b[i] = value_at(want, first + i);
            if (isfinite(a[i]) && isfinite(b[i])) {
                d->max_abs = fmax(d->max_abs, fabs((double)a[i] - (double)b[i]));
            }
        }
        check_near_add(&d->near, a, b, n, first);
    }
    d->is_passed = check_near_used(&d->near) <= 1.0;
}

static double largest(const reading *r) {
    double most = 0.0;
    for (int64_t i = 0; i < element_count(r->values); i++) {
        const double value = fabs((double)value_at(r, i));
        most = isfinite(value) ? fmax(most, value) : most;
    }
    return most;
}

static reading reading_of(const capture_call *call, int32_t i) {
    reading r = {.values = &call->outputs[i], .chunk = MMLA_OUT_CHUNK_DIM};
    if (r.values->dtype == SAFETENSORS_F8_E4M3) {
        r.scales = &call->outputs[i + 1];
        if (r.scales->dtype == SAFETENSORS_F32) {
            r.chunk = CAPTURE_WIDE_CHUNK_DIM;
        }
    }
    return r;
}

/* Each of the two may have rounded its probabilities. */
static check_tolerance out_tolerance(const capture_call *got, const capture_call *want) {
    const char *const names[] = {got->implementation != NULL ? got->implementation : "",
                                 want->implementation != NULL ? want->implementation : ""};
    const double per_key = check_attend_probability_error(names[0], 1.0) +
                           check_attend_probability_error(names[1], 1.0);
    check_tolerance tolerance = check_attend_out_tolerance("", 0.0);
    if (per_key > 0.0) { /* else the keys need not be looked at */
        tolerance.add = per_key * capture_key_largest(got->capture);
    }
    return tolerance;
}

int32_t capture_compare(const capture_call *got,
                        const capture_call *want,
                        capture_difference out[CAPTURE_OUTPUTS_MAX]) {
    for (int32_t i = 0; i < got->n_outputs; i++) {
        capture_difference *d = &out[i];
        *d = (capture_difference){.name = got->outputs[i].name};
        bits_compare(&got->outputs[i], &want->outputs[i], d);
        const reading a = reading_of(got, i), b = reading_of(want, i);
        if (strcmp(d->name, "lse") == 0 || strcmp(d->name, "max_logits") == 0) {
            numbers_compare(&a, &b, check_attend_lse_tolerance(), d);
        } else if (strcmp(d->name, "out") == 0) {
            numbers_compare(&a, &b, out_tolerance(got, want), d);
        } else if (strcmp(d->name, "z") == 0) {
            const check_tolerance z_tolerance = {
                .abs = largest(&b) * Z_ABS_SHARE, .rel = Z_REL, .cosine = 1e-3};
            numbers_compare(&a, &b, z_tolerance, d);
        } else if (strcmp(d->name, "out_scale") == 0) {
            d->is_passed = true; /* its effect is in out */
        }
    }
    return got->n_outputs;
}
