/* bench_dot.h - one number of the output projection, in double, and how far a result may be from it. */
#ifndef APP_BENCH_BENCH_DOT_H
#define APP_BENCH_BENCH_DOT_H

#include <stdint.h>

/* Dot product of a token's row of a group with one row of the weight: 4096 e4m3 codes each, and a
 * ue8m0 scale for every 32. *bound grows with the lengths of both (app/check/check_project.c derives
 * it). */
double bench_dot(const uint8_t *x,
                 const uint8_t *x_scale,
                 const uint8_t *weight,
                 const uint8_t *weight_scale,
                 double *bound);

#endif
