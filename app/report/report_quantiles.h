/* report_quantiles.h - the three numbers that every timing is reported by. */
#ifndef APP_REPORT_REPORT_QUANTILES_H
#define APP_REPORT_REPORT_QUANTILES_H

#include <stdint.h>

typedef struct report_quantiles {
    double p10, median, p90;
} report_quantiles;

/* Of n samples, n > 0, which are sorted in place. */
report_quantiles report_quantiles_of(double *samples, int64_t n);

#endif
