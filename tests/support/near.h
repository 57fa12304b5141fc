/* near.h - comparison of floats that says how much of its tolerance was used.
 *
 *     struct near near = near_init("lse", 1e-5, 1e-6);
 *     near_check(&near, i, got, want);            for every element; fails the test at the first
 *     near_report(&near);                         "lse: 4096 values, worst 0.31 of the tolerance"
 *
 * |got - want| <= the larger of absolute and relative * |want|. NaN equals NaN, an infinity equals
 * itself only. docs/numerics.md has every tolerance and its reason.
 */
#ifndef MMLA_TESTS_NEAR_H
#define MMLA_TESTS_NEAR_H

#include <stdint.h>

struct near {
    const char *what;
    double absolute;
    double relative;
    double worst; /* fraction of the tolerance */
    int64_t n;
};

struct near near_init(const char *what, double absolute, double relative);
void near_check(struct near *near, int64_t idx, double got, double want);
void near_report(const struct near *near);

#endif
