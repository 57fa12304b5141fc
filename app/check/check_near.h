/* check_near.h - comparing results, and how much of a tolerance was used.
 *
 * A value is near when |got - want| <= max(abs, rel * |want|) + add. Infinities must be the same
 * ones and NaNs in the same places. Over all values together, the cosine distance 1 - 2 sum(got
 * want) / (sum(got^2) + sum(want^2)) must stay below its own bound: it notices a small error that
 * is everywhere, which no single value shows.
 */
#ifndef APP_CHECK_NEAR_H
#define APP_CHECK_NEAR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct check_tolerance {
    double abs;
    double rel;
    double cosine; /* 0: not looked at */
    double add;    /* for a known rounding beside the usual ones; 0 as a rule */
} check_tolerance;

/* State of a comparison of any number of stretches of one result. Begins as
 * {.tolerance = ..., .worst_at = -1}. */
typedef struct check_near {
    check_tolerance tolerance;
    double worst;     /* largest |got - want| / what is allowed; infinite when specials differ */
    int64_t worst_at; /* its index, -1 before any */
    float got, want;  /* the values there */
    double dot, got2, want2;
} check_near;

check_near check_near_begin(check_tolerance tolerance);

/* Compares n values; `first` is the index of the first of them, for reports. */
void check_near_add(
    check_near *near, const float *got, const float *want, int64_t n, int64_t first);

/* The cosine distance of everything added. */
double check_near_cosine(const check_near *near);

/* The largest share of any tolerance used, 1 being all of it; the result passes at <= 1. */
double check_near_used(const check_near *near);

/* First index at which two byte strings differ, -1 when they are equal. */
int64_t check_bytes_compare(const void *a, const void *b, int64_t n);

#endif
