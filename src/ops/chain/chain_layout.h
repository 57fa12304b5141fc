/* chain_layout.h - where the intermediates of chain lie in a workspace.
 *
 *     q        bf16 [max_tokens, H, 512]       rotated q, standard order
 *     o        bf16 [max_tokens, H, 512]       the result, first as attended, then rotated back
 *     scratch  an implementation's own; on the CPU for each thread:
 *                  keys    mmla_key [K + E]        where the rows of one token lie
 *                  rows    bf16 [K + E, 512]       the same rows, dequantised
 *                  scores  float [8, K + E]        of one group of heads
 *
 * Every part begins at a multiple of 64 bytes.
 */
#ifndef MMLA_OPS_CHAIN_LAYOUT_H
#define MMLA_OPS_CHAIN_LAYOUT_H

#include "kv/attend_problem.h"

/* Offsets in bytes; q lies at 0, and so do the keys of a thread's scratch. */
typedef struct mmla_chain_layout {
    int64_t max_keys; /* K + E */
    int64_t o_off;
    int64_t scratch_off;
    int64_t rows_off; /* in a thread's scratch, here and below: of the CPU */
    int64_t scores_off;
    int64_t thread_bytes;
    int64_t total_bytes;
} mmla_chain_layout;

/* q, o and `n` times scratch_bytes; what describes the scratch stays as it is in *layout. False when
 * total_bytes exceeds 2^63 - 1. */
bool mmla_chain_layout_init(const mmla_attend_problem *p,
                            int64_t scratch_bytes,
                            int64_t n,
                            mmla_chain_layout *layout);

/* That of the CPU. */
bool mmla_chain_layout_threads(const mmla_attend_problem *p, mmla_chain_layout *layout);

/* The parts of a workspace. */
uint16_t *mmla_chain_q(const mmla_chain_layout *layout, void *workspace);
uint16_t *mmla_chain_o(const mmla_chain_layout *layout, void *workspace);
void *mmla_chain_scratch(const mmla_chain_layout *layout, void *workspace);
mmla_key *mmla_chain_keys(const mmla_chain_layout *layout, void *workspace, int32_t thread);
uint16_t *mmla_chain_rows(const mmla_chain_layout *layout, void *workspace, int32_t thread);
float *mmla_chain_scores(const mmla_chain_layout *layout, void *workspace, int32_t thread);

#endif
