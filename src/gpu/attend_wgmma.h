/* attend_wgmma.h - attention on Hopper (compute capability 9.0), from its own matrix instructions: what
 * the fused call (ops/attend) runs there.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_H
#define MMLA_GPU_ATTEND_WGMMA_H

#include "gpu/attend_mma.h"
#include "gpu/attend_wgmma_tile.h"

MMLA_KERNEL(attend_wgmma_bf16_sm90a, attend_mma_params);

/* Whether a call of so many tokens is faster with it than with attend_mma. */
bool mmla_attend_wgmma_pays(const mmla_attend_problem *p, int64_t n_tokens);

/* What a plan prepares with; problem is a mmla_attend_problem. */
mmla_status mmla_attend_wgmma_load(void *problem, mmla_error *err);
/* The same for a plan that asks mmla_attend_wgmma_pays at every call, and takes attend_mma else. */
mmla_status mmla_attend_hopper_load(void *problem, mmla_error *err);

/* The fused call. No workspace. */
mmla_status
mmla_attend_wgmma_fused(const mmla_attend_problem *p, const mmla_attend_args *args, void *stream);

#endif
