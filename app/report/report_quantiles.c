#include "app/report/report_quantiles.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

report_quantiles report_quantiles_of(double *samples, int64_t n) {
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    return (report_quantiles){
        .p10 = samples[n / 10], .median = samples[n / 2], .p90 = samples[n - 1 - n / 10]};
}
