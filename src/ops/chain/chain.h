/* chain.h - contract between the plan of chain and its implementations.
 *
 * include/megamla/chain.h has the steps; the description and the arguments are those of attend.
 */
#ifndef MMLA_OPS_CHAIN_H
#define MMLA_OPS_CHAIN_H

#include <megamla/chain.h>

#include "base/impl.h"
#include "ops/chain/chain_layout.h"

typedef struct mmla_chain_impl {
    mmla_impl base; /* prefers() and prepare() take a mmla_attend_problem */
    /* What it makes of a workspace; false when that exceeds 2^63 - 1 bytes. */
    bool (*layout)(const mmla_attend_problem *p, mmla_chain_layout *layout);
    mmla_status (*run_step)(const mmla_attend_problem *p,
                            const mmla_chain_layout *layout,
                            mmla_chain_step step,
                            const mmla_attend_args *args,
                            void *workspace,
                            void *stream);
} mmla_chain_impl;

#define VARIANT(name, device, features, by_name_only, layout, run_step, prepare)                  \
    mmla_status run_step(const mmla_attend_problem *, const mmla_chain_layout *, mmla_chain_step, \
                         const mmla_attend_args *, void *, void *);
#include "ops/chain/chain_variants.inc"
#undef VARIANT
#if defined(MMLA_HAVE_CUDA)
bool mmla_chain_mma_layout(const mmla_attend_problem *p, mmla_chain_layout *layout);
mmla_status mmla_chain_mma_prepare(void *problem, mmla_error *err);
#endif

/* The list, in order of preference. */
const mmla_impl *const *mmla_chain_list(size_t *n);

/* The four steps in plain C. q and o are the two tensors of the workspace. */
void mmla_chain_rope_q(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *q);
void mmla_chain_attend(const mmla_attend_problem *p,
                       const mmla_chain_layout *layout,
                       const mmla_attend_args *args,
                       void *workspace);
void mmla_chain_unrope(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *o);
void mmla_chain_quantise(const mmla_attend_problem *p,
                         const mmla_attend_args *args,
                         const uint16_t *o);

#endif
