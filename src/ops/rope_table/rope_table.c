/* rope_table.c - frequencies of the rotation, and rows of the cosine and sine table.
 *
 * Where each number is rounded matters more than how it is computed: the frequencies are formed in
 * double and rounded to fp32 once, the angle is an fp32 product, and cosine and sine of that fp32
 * angle are taken in double and rounded once. An angle near 2^20 has an ulp of 1/16, so a table
 * from exact angles would be another table.
 */
#include <math.h>

#include <megamla/rope.h>

#include "base/check.h"
#include "base/error.h"

enum { PAIRS = MMLA_ROPE_DIM / 2 };

/* The model's settings. */
#define THETA_WINDOW 10000.0
#define THETA_COMPRESSED 160000.0
static const mmla_rope_desc for_window = {.theta = THETA_WINDOW};
static const mmla_rope_desc for_compressed = {.theta = THETA_COMPRESSED,
                                              .yarn_factor = 16.0,
                                              .yarn_beta_fast = 32.0,
                                              .yarn_beta_slow = 1.0,
                                              .yarn_original_tokens = 65536.0};

#define TWO_PI 6.283185307179586476925
#define RAMP_LEAST 1e-3 /* width of a ramp whose two ends fall together */

mmla_status mmla_rope_desc_for_ratio(int32_t ratio, mmla_rope_desc *desc, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "desc", desc, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "ratio", ratio, 0, 2));
    *desc = ratio == 0 ? for_window : for_compressed;
    return MMLA_OK;
}

/* value is finite and above low, or equal to it where `closed`. */
static mmla_status
check_real(mmla_error *err, const char *name, double value, double low, int closed) {
    if (isfinite(value) && (value > low || (closed && value == low))) {
        return MMLA_OK;
    }
    return mmla_error_set(err, MMLA_E_VALUE, name, "is %g, must be finite and %s %g", value,
                          closed ? "at least" : "above", low);
}

static mmla_status check_desc(const mmla_rope_desc *desc, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "desc", desc, 1));
    MMLA_RETURN_IF_FAILED(check_real(err, "theta", desc->theta, 1.0, 0));
    if (desc->yarn_factor == 0.0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(check_real(err, "yarn_factor", desc->yarn_factor, 1.0, 1));
    MMLA_RETURN_IF_FAILED(check_real(err, "yarn_beta_fast", desc->yarn_beta_fast, 0.0, 0));
    MMLA_RETURN_IF_FAILED(check_real(err, "yarn_beta_slow", desc->yarn_beta_slow, 0.0, 0));
    return check_real(err, "yarn_original_tokens", desc->yarn_original_tokens, 0.0, 0);
}

/* The pair (a real number) that makes `turns` full turns over the original context. */
static double pair_of_turns(const mmla_rope_desc *desc, double turns) {
    return MMLA_ROPE_DIM * log(desc->yarn_original_tokens / (turns * TWO_PI)) /
           (2.0 * log(desc->theta));
}

static void fill_frequencies(const mmla_rope_desc *desc, float *frequencies) {
    double low = 0.0, width = 1.0;
    if (desc->yarn_factor != 0.0) {
        low = fmax(floor(pair_of_turns(desc, desc->yarn_beta_fast)), 0.0);
        const double high =
            fmin(ceil(pair_of_turns(desc, desc->yarn_beta_slow)), MMLA_ROPE_DIM - 1);
        width = fmax(high - low, RAMP_LEAST);
    }
    for (int i = 0; i < PAIRS; i++) {
        double f = pow(desc->theta, -2.0 * i / MMLA_ROPE_DIM);
        if (desc->yarn_factor != 0.0) {
            /* Fast pairs keep their frequency, slow ones are stretched by the factor. */
            const double ramp = fmin(fmax((i - low) / width, 0.0), 1.0);
            f = f / desc->yarn_factor * ramp + f * (1.0 - ramp);
        }
        frequencies[i] = (float)f;
    }
}

mmla_status mmla_rope_frequencies(const mmla_rope_desc *desc, float *frequencies, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(check_desc(desc, err));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "frequencies", frequencies, sizeof(float)));
    fill_frequencies(desc, frequencies);
    return MMLA_OK;
}

mmla_status mmla_rope_table_fill(
    const mmla_rope_desc *desc, int64_t first, int64_t n, float *table, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(check_desc(desc, err));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "first", first, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_value(err, "n", n, 0, INT32_MAX));
    if (n == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "table", table, sizeof(float)));
    float frequencies[PAIRS];
    fill_frequencies(desc, frequencies);
    for (int64_t row = 0; row < n; row++) {
        const float position = (float)(first + row);
        float *cosines = table + row * MMLA_ROPE_DIM;
        float *sines = cosines + PAIRS;
        for (int i = 0; i < PAIRS; i++) {
            const float angle = position * frequencies[i];
            cosines[i] = (float)cos((double)angle);
            sines[i] = (float)sin((double)angle);
        }
    }
    return MMLA_OK;
}
