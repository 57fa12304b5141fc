/* capture_compare.h - the outputs of two replays of one capture, held against each other. */
#ifndef APP_CAPTURE_COMPARE_H
#define APP_CAPTURE_COMPARE_H

#include "app/capture/capture.h"
#include "app/check/check_near.h"

typedef struct capture_difference {
    const char *name; /* the output's */
    bool is_near;     /* compared as numbers within a tolerance; else byte by byte */
    bool is_passed;
    check_near near;     /* with is_near */
    double max_abs;      /* with is_near: largest |got - want| of finite values */
    int64_t n;           /* elements */
    int64_t n_different; /* whose bits differ */
    int64_t first;       /* the first of them, -1 when there is none */
} capture_difference;

/* capture_compare - one capture_difference an output; both calls are finished. Returns their
 * number.
 *
 * out, with its scales, is dequantised and compared as numbers, as are lse, max_logits and z
 * (docs/numerics.md has the tolerances); out_scale on its own is only counted; everything else must
 * be the same bytes. */
int32_t capture_compare(const capture_call *got,
                        const capture_call *want,
                        capture_difference out[CAPTURE_OUTPUTS_MAX]);

#endif
