/* project_exact.h - the exact sums of a call of project, and whether a result is within tolerance of them.
 *
 * Tolerance. Let z be the exact sum, S the sum of the terms' magnitudes. Every term is exact; an
 * implementation adds them in fp32 along chains of at most 4096 / 8 steps and joins 8 lanes in 3
 * more, so with u = 2^-24 and n = 515 its sum is within E = n u / (1 - n u) * S of z. Sums that
 * are subnormal in fp32 add at most 2^-150 for each of 4096 products, times 2^16 when both rows
 * were shifted down by 2^8 (project_body.inc). Rounding to bf16 adds 2^-8 of the result, or 2^-134.
 *
 * Sums with a wide weight are one chain of 256 instructions, or a few, for which n = 515 is no bound: one after the other
 * they could be off by some 2,800 u S. What they have been seen to be off by is within 515, and they are held to it.
 *
 * Where the positive terms alone exceed the range of fp32 a partial sum may become +inf, likewise
 * the negative ones -inf, and NaN where both do. An infinity of the sign that the exact sum does
 * not have needs more: every other lane must still have been finite, so |z| is below 16 times the
 * largest float, undoing the shift included.
 */
#ifndef TESTS_SUPPORT_PROJECT_EXACT_H
#define TESTS_SUPPORT_PROJECT_EXACT_H

#include "support/project_fixture.h"

/* Exact sum and sum of magnitudes of every result, and 1 or 2^16 when rows may have been shifted. */
typedef struct project_exact {
    double *z, *magnitude, *shift;
} project_exact;

project_exact project_exact_create(const project_fixture *f);
void project_exact_destroy(project_exact *e);

/* Fraction of the tolerance that z has used; fails the test where that is more than all. */
double project_exact_check(const project_fixture *f, const project_exact *e, const char *name);

#endif
