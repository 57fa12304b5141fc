/* check_near.c - values within a tolerance, bytes without one. */
#include "app/check/check_near.h"

#include <math.h>
#include <string.h>

check_near check_near_begin(check_tolerance tolerance) {
    return (check_near){.tolerance = tolerance, .worst_at = -1};
}

/* Share of the tolerance one value uses. */
static double share(const check_tolerance *t, float got, float want) {
    if (isnan(got) || isnan(want)) {
        return isnan(got) && isnan(want) ? 0.0 : INFINITY;
    }
    if (isinf(got) || isinf(want)) {
        return got == want ? 0.0 : INFINITY;
    }
    const double error = fabs((double)got - (double)want);
    const double allowed = fmax(t->abs, t->rel * fabs((double)want)) + t->add;
    return error == 0.0 ? 0.0 : error / allowed; /* a tolerance of 0 gives infinity */
}

void check_near_add(
    check_near *near, const float *got, const float *want, int64_t n, int64_t first) {
    for (int64_t i = 0; i < n; i++) {
        const double used = share(&near->tolerance, got[i], want[i]);
        if (used > near->worst || near->worst_at < 0) {
            near->worst = used;
            near->worst_at = first + i;
            near->got = got[i];
            near->want = want[i];
        }
        if (isfinite(got[i]) && isfinite(want[i])) {
            near->dot += (double)got[i] * (double)want[i];
            near->got2 += (double)got[i] * (double)got[i];
            near->want2 += (double)want[i] * (double)want[i];
        }
    }
}

double check_near_cosine(const check_near *near) {
    const double norms = near->got2 + near->want2;
    return norms > 0.0 ? 1.0 - 2.0 * near->dot / norms : 0.0;
}

double check_near_used(const check_near *near) {
    const double bound = near->tolerance.cosine;
    return bound > 0.0 ? fmax(near->worst, check_near_cosine(near) / bound) : near->worst;
}

int64_t check_bytes_compare(const void *a, const void *b, int64_t n) {
    if (n <= 0 || memcmp(a, b, (size_t)n) == 0) {
        return -1;
    }
    const uint8_t *x = a, *y = b;
    int64_t i = 0;
    while (x[i] == y[i]) {
        i++;
    }
    return i;
}
