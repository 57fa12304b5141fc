#include "support/project_exact.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"

enum { K = MMLA_PROJECT_DIM };

static double value_of(uint8_t code, uint8_t scale) {
    return ldexp((double)mmla_e4m3_to_f32(code), scale - MMLA_UE8M0_BIAS);
}

project_exact project_exact_create(const project_fixture *f) {
    const int64_t n_groups = f->desc.n_groups;
    const size_t n = f->z.bytes / 2;
    project_exact e = {calloc(n, 8), calloc(n, 8), calloc(n, 8)};
    double *x = malloc(K * sizeof *x);
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < n_groups; g++) {
            double shift = 1.0;
            for (int k = 0; k < K; k++) {
                const uint8_t scale = *project_x_scale_at(f, t, g, k / 32);
                x[k] = value_of(project_x_at(f, t, g)[k], scale);
                shift = scale > 246 ? 0x1p16 : shift;
            }
            for (int64_t r = 0; r < f->rank; r++) {
                const int64_t at = (t * n_groups + g) * f->rank + r;
                const uint8_t *scales = project_weight_scale_at(f, g, r),
                              *codes = project_weight_at(f, g, r);
                e.shift[at] = shift;
                for (int k = 0; k < K; k++) {
                    const double term = x[k] * value_of(codes[k], scales[k / 32]);
                    e.z[at] += term;
                    e.magnitude[at] += fabs(term);
                    e.shift[at] = scales[k / 32] > 246 ? 0x1p16 : e.shift[at];
                }
            }
        }
    }
    free(x);
    return e;
}

void project_exact_destroy(project_exact *e) {
    free(e->z);
    free(e->magnitude);
    free(e->shift);
}

/* Whether a result that is not finite may stand where the exact sum is z. */
static bool overflow_is_right(double got, double z, double magnitude, double shift) {
    const bool positive = (magnitude + z) / 2.0 >= 0x1.FFp127;
    const bool negative = (magnitude - z) / 2.0 >= 0x1.FFp127;
    if (isnan(got)) {
        return positive && negative;
    }
    const bool sign_of_z = (got > 0.0) == (z > 0.0);
    return (got > 0.0 ? positive : negative) && (sign_of_z || fabs(z) < 0x1p132 * shift);
}

double project_exact_check(const project_fixture *f, const project_exact *e, const char *name) {
    const double u = 515 * 0x1p-24, relative = u / (1 - u);
    double worst = 0.0;
    for (size_t i = 0; i < f->z.bytes / 2; i++) {
        const double got = mmla_bf16_to_f32(((const uint16_t *)f->z.data)[i]);
        const double sum_error = relative * e->magnitude[i] + K * 0x1p-150 * e->shift[i];
        const double allowed = sum_error + fmax(0x1p-8 * (fabs(e->z[i]) + sum_error), 0x1p-134);
        if (!isfinite(got) &&
            overflow_is_right(got, e->z[i], e->magnitude[i] + 2.0 * sum_error, e->shift[i])) {
            continue;
        }
        const double used = fabs(got - e->z[i]) / allowed;
        if (!(used <= 1.0)) {
            fail_msg("%s z[%zu]: got %.9g, want %.9g, allowed difference %.3g", name, i, got,
                     e->z[i], allowed);
        }
        worst = fmax(worst, used);
    }
    return worst;
}
