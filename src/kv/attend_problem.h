/* attend_problem.h - a checked attention description, and the valid keys of a token.
 *
 * Shared by every implementation of attend and of chain: the rule which entry of which list is a
 * key, and where its bytes lie, is written once, here.
 */
#ifndef MMLA_KV_ATTEND_PROBLEM_H
#define MMLA_KV_ATTEND_PROBLEM_H

#include <stddef.h>

#include <megamla/attend.h>

#include "base/gpu.h"
#include "kv/layout.h"

enum { MMLA_ATTEND_LAUNCHES = 257 };

/* The description with every default filled in and every field checked; the one exception is
 * out_scale_word_stride 0, which follows the call's n_tokens (kv/attend_output.h). */
typedef struct mmla_attend_problem {
    mmla_attend_desc desc;
    mmla_kv_view window;                     /* PAGED */
    mmla_kv_view compressed;                 /* PAGED; n_slots 0 when there is none */
    int32_t n_threads;                       /* of the CPU */
    mmla_gpu gpu;                            /* of a context on a CUDA device */
    uint16_t launches[MMLA_ATTEND_LAUNCHES]; /* the implementation's, by number of tokens */
    int32_t clusters[4]; /* of 1, 2, 4 and 8 blocks: how many run at once, where it matters */
} mmla_attend_problem;

/* One key. format MMLA_KV_NONE means a bf16 row of 512 at data, and no scales. */
typedef struct mmla_key {
    const uint8_t *data;
    const uint8_t *scale;
    mmla_kv_format format;
} mmla_key;

/* The bf16 rows of a ROWS call as a cache of one-record pages without scales. */
mmla_kv_view mmla_attend_rows_view(const mmla_attend_problem *p, const mmla_attend_args *args);

/* Where a walk over a token's lists stands. Starts as {0}. */
typedef struct mmla_key_cursor {
    int32_t list; /* 0: the first list, 1: the compressed list, 2: done */
    int32_t place;
} mmla_key_cursor;

/* The next valid keys of `token`, at most `max`, in list order; fewer only at the end. An entry is
 * checked against its list's length and its pool before an address is formed; others are skipped.
 */
int32_t mmla_keys_next(const mmla_attend_problem *p,
                       const mmla_attend_args *args,
                       int64_t token,
                       mmla_key_cursor *cursor,
                       mmla_key *keys,
                       int32_t max);

/* True when the token's position is a row of cos_sin. */
MMLA_INLINE bool mmla_attend_position_is_legal(const mmla_attend_problem *p,
                                               const mmla_attend_args *args,
                                               int64_t token) {
    return args->positions[token] >= 0 && args->positions[token] < p->desc.rope_positions;
}

/* Reports how many of a call's tokens had an illegal position: adds to args->n_faults, fills
 * args->error with the first such token, and returns MMLA_E_INDEX, or MMLA_OK when none had. */
mmla_status mmla_attend_report_positions(const mmla_attend_problem *p,
                                         const mmla_attend_args *args);

/* Place of dim x of head h in one token's q. */
MMLA_INLINE int64_t mmla_q_index(mmla_q_layout layout, int32_t n_heads, int32_t h, int32_t x) {
    return layout == MMLA_Q_STANDARD
               ? (int64_t)h * MMLA_LATENT_DIM + x
               : (int64_t)(x / 16) * (n_heads * 16) + (int64_t)h * 16 + x % 16;
}

#endif
