#include "app/bench/bench_dot.h"

#include <math.h>

#include <megamla/layout.h>

#include "app/check/check_num.h"

double bench_dot(const uint8_t *x,
                 const uint8_t *x_scale,
                 const uint8_t *weight,
                 const uint8_t *weight_scale,
                 double *bound) {
    double sum = 0.0, xx = 0.0, ww = 0.0;
    for (int64_t k = 0; k < MMLA_GROUP_DIM; k++) {
        const int64_t chunk = k / MMLA_OUT_CHUNK_DIM;
        const double a =
            (double)check_e4m3_to_f32(x[k]) * (double)check_ue8m0_to_f32(x_scale[chunk]);
        const double b =
            (double)check_e4m3_to_f32(weight[k]) * (double)check_ue8m0_to_f32(weight_scale[chunk]);
        sum += a * b;
        xx += a * a;
        ww += b * b;
    }
    *bound = 0x1p-8 * fabs(sum) + MMLA_GROUP_DIM * 0x1p-24 * sqrt(xx * ww);
    return sum;
}
