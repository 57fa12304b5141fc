/* chain.h - contract between the plan of chain and its implementations.
 *
 * include/megamla/chain.h has the steps; the description and the arguments are those of attend.
 */
#ifndef MMLA_OPS_CHAIN_H
#define MMLA_OPS_CHAIN_H

#include <megamla/chain.h>

#include "base/impl.h"
#include "kv/attend_problem.h"

/* A workspace, as one pointer a part:
 *
 *     q        bf16 [max_tokens, H, 512]       rotated q, standard order
 *     o        bf16 [max_tokens, H, 512]       the result, first as attended, then rotated back
 *     scratch  thread_bytes for each thread:
 *                  keys    mmla_key [K + E]        where the rows of one token lie
 *                  rows    bf16 [K + E, 512]       the same rows, dequantised
 *                  scores  float [8, K + E]        of one group of heads
 */
typedef struct mmla_chain_layout {
    int64_t max_keys;
    int64_t keys_bytes;
    int64_t rows_bytes;
    int64_t thread_bytes;
    int64_t tensor_bytes; /* of q, and of o */
    int64_t total_bytes;
} mmla_chain_layout;

/* False when total_bytes exceeds 2^63 - 1. */
bool mmla_chain_layout_init(const mmla_attend_problem *p, mmla_chain_layout *layout);

typedef struct mmla_chain_impl {
    mmla_impl base; /* supports() takes a mmla_attend_problem */
    mmla_status (*run_step)(const mmla_attend_problem *p,
                            const mmla_chain_layout *layout,
                            mmla_chain_step step,
                            const mmla_attend_args *args,
                            void *workspace,
                            void *stream);
} mmla_chain_impl;

#define VARIANT(name, device, features, by_name_only, run_step)                                   \
    mmla_status run_step(const mmla_attend_problem *, const mmla_chain_layout *, mmla_chain_step, \
                         const mmla_attend_args *, void *, void *);
#include "ops/chain/chain_variants.inc"
#undef VARIANT

/* The list, in order of preference. */
const mmla_impl *const *mmla_chain_list(size_t *n);

/* The four steps in plain C. q and o are the two tensors of the workspace. */
void mmla_chain_rope_q(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *q);
void mmla_chain_attend(const mmla_attend_problem *p,
                       const mmla_chain_layout *layout,
                       const mmla_attend_args *args,
                       const uint16_t *q,
                       uint16_t *o,
                       uint8_t *scratch);
void mmla_chain_unrope(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *o);
void mmla_chain_quantise(const mmla_attend_problem *p,
                         const mmla_attend_args *args,
                         const uint16_t *o);

#endif
