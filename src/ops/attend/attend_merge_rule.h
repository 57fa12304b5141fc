/* attend_merge_rule.h - the weights of two partial results in fp32, for the kernel that joins them.
 *
 * attend_merge.c has the same in double, which a GPU is slow at. What keeps fp32 near it: exponents
 * are differences, which keep their digits where the lse themselves are large, and only exp of what
 * is not positive is taken, so that nothing overflows on the way to a small result.
 */
#ifndef MMLA_OPS_ATTEND_MERGE_RULE_H
#define MMLA_OPS_ATTEND_MERGE_RULE_H

#include <math.h>
#include <stdbool.h>

#include "base/inline.h"

typedef struct mmla_merge_weights {
    float a, b;  /* shares of the two parts in the union; 0: that part is not looked at */
    float scale; /* of their sum: what the sink leaves */
    float lse;
} mmla_merge_weights;

/* 1 / (1 + exp(d)) */
MMLA_INLINE float mmla_merge_share(float d) {
    const float e = expf(-fabsf(d));
    return d > 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

/* +inf stands for a part without keys; sink is -inf when there is none. A NaN goes everywhere. */
MMLA_INLINE mmla_merge_weights mmla_merge_weights_get(float lse_a, float lse_b, float sink) {
    const bool empty_a = lse_a == INFINITY, empty_b = lse_b == INFINITY;
    mmla_merge_weights w;
    if (empty_a || empty_b) {
        w.lse = empty_a ? lse_b : lse_a;
        w.a = empty_a ? 0.0f : 1.0f;
        w.b = empty_b ? 0.0f : 1.0f;
        w.scale = empty_a && empty_b ? 0.0f : mmla_merge_share(sink - w.lse);
        return w;
    }
    const bool a_is_high = lse_a > lse_b;
    const float high = a_is_high ? lse_a : lse_b, low = a_is_high ? lse_b : lse_a;
    const float rest = log1pf(expf(low - high)); /* lse = high + rest, 0 <= rest <= ln 2 */
    w.lse = high + rest;
    w.a = mmla_merge_share(lse_b - lse_a);
    w.b = mmla_merge_share(lse_a - lse_b);
    w.scale = mmla_merge_share(sink - high - rest);
    return w;
}

#endif
