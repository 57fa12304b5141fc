/* attend_wgmma.h - attention on Hopper (compute capability 9.0), from its own matrix instructions:
 * what the fused call (ops/attend) runs there.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_H
#define MMLA_GPU_ATTEND_WGMMA_H

#include "gpu/attend_mma.h"

/* What a launch of a kernel asks for; the kernel's file says. */
typedef struct attend_wgmma_shape {
    int32_t heads; /* of a CTA, at most */
    int32_t n_threads;
    int32_t smem_bytes;
} attend_wgmma_shape;

#if defined(__cplusplus)
#define ATTEND_WGMMA_SHAPE extern "C" const attend_wgmma_shape
#else
#define ATTEND_WGMMA_SHAPE extern const attend_wgmma_shape
#endif
ATTEND_WGMMA_SHAPE attend_wgmma_shape_64;
ATTEND_WGMMA_SHAPE attend_wgmma_shape_few8;
ATTEND_WGMMA_SHAPE attend_wgmma_shape_few16;

MMLA_KERNEL(attend_wgmma_bf16_sm90a, attend_mma_params);
MMLA_KERNEL(attend_wgmma_few8_bf16_sm90a, attend_mma_params);
MMLA_KERNEL(attend_wgmma_few16_bf16_sm90a, attend_mma_params);

/* Whether a call can be done with it; where it can, it is faster than attend_mma. */
bool mmla_attend_wgmma_supports(const mmla_attend_problem *p);

/* What a plan prepares with; problem is a mmla_attend_problem. */
mmla_status mmla_attend_wgmma_load(void *problem, mmla_error *err);
/* The same for a plan that takes attend_mma where mmla_attend_wgmma_supports says no. */
mmla_status mmla_attend_hopper_load(void *problem, mmla_error *err);

/* The fused call. No workspace. */
mmla_status
mmla_attend_wgmma_fused(const mmla_attend_problem *p, const mmla_attend_args *args, void *stream);

#endif
