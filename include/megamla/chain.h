/* chain.h - the fused call's result by separate steps.
 *
 * Four steps, each reading and writing memory, as an engine without a fused call runs them. It is
 * the baseline the fused call is measured against, a second opinion on its results, and of use to a
 * caller who needs something in between. Takes the description and the arguments of attend.h.
 */
#ifndef MEGAMLA_CHAIN_H
#define MEGAMLA_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/attend.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_chain_step {
    MMLA_CHAIN_ROPE_Q = 0,  /* q -> rotated q, bf16 [T, H, 512], standard order */
    MMLA_CHAIN_ATTEND = 1,  /* -> attention result, bf16 [T, H, 512]; also lse and max_logits */
    MMLA_CHAIN_UNROPE = 2,  /* rotated back in place, bf16 */
    MMLA_CHAIN_QUANTISE = 3 /* -> out and out_scale (a copy for MMLA_OUT_BF16) */
} mmla_chain_step;

enum { MMLA_CHAIN_STEPS = 4 };

typedef struct mmla_chain_plan mmla_chain_plan;

/* mmla_chain_plan_create - the same checks and errors as mmla_attend_plan_create. desc's
 * implementation, when given, is one of chain's own, not of attend's. */
MMLA_API mmla_status mmla_chain_plan_create(mmla_context *ctx,
                                            const mmla_attend_desc *desc,
                                            mmla_chain_plan **plan,
                                            mmla_error *err);
MMLA_API void mmla_chain_plan_destroy(mmla_chain_plan *plan);

/* mmla_chain_workspace_bytes - the intermediates, which grow with max_tokens and the list widths:
 * two bf16 tensors [max_tokens, H, 512] and, per thread, one token's dequantised rows and scores; on a
 * CUDA device, in place of the latter, what mmla_attend_workspace_bytes is of the same description.
 */
MMLA_API size_t mmla_chain_workspace_bytes(const mmla_chain_plan *plan);

/* mmla_chain_run - all four steps. mmla_chain_step_run - one of them, on what the step before left
 * in the same workspace; in order, each once (UNROPE works in place). Both give the same bits.
 *
 * Results and edges as mmla_attend_run, except that the attention result is rounded to bf16 before
 * it is rotated back and again before it is cast (docs/numerics.md).
 *
 * memory   every step takes all arguments; workspace 64-byte aligned
 * stream   as mmla_attend_run: a CUDA device is given one kernel a step
 * threads  any number at once on one plan, each with its own workspace and outputs
 * errors   as mmla_attend_run; of the single steps only ROPE_Q reports MMLA_E_INDEX and counts
 *          n_faults, the others carry the NaN on
 *          MMLA_E_VALUE  step is not one of the four
 * source   definition: src/ops/chain
 * since    0.1
 */
MMLA_API mmla_status mmla_chain_run(const mmla_chain_plan *plan,
                                    const mmla_attend_args *args,
                                    void *workspace,
                                    void *stream);
MMLA_API mmla_status mmla_chain_step_run(const mmla_chain_plan *plan,
                                         mmla_chain_step step,
                                         const mmla_attend_args *args,
                                         void *workspace,
                                         void *stream);

/* mmla_chain_intermediate - where step's result lies in a workspace (of the device, when that is one):
 * bf16 [T, H, 512] for ROPE_Q, ATTEND and UNROPE; NULL for QUANTISE, whose result is args->out. */
MMLA_API uint16_t *
mmla_chain_intermediate(const mmla_chain_plan *plan, mmla_chain_step step, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
