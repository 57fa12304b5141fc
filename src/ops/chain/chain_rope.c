/* chain_rope.c - the first and the third step: rotation of q, and of the result back, in bf16. */
#include <string.h>

#include "base/parallel.h"
#include "num/bf16.h"
#include "num/rope.h"
#include "ops/chain/chain.h"

enum { NOPE_DIM = MMLA_LATENT_DIM - MMLA_ROPE_DIM, PAIRS = MMLA_ROPE_DIM / 2 };

struct job {
    const mmla_attend_problem *p;
    const mmla_attend_args *args;
    uint16_t *tensor; /* [T, H, 512] */
};

/* Turns the last 64 of 512 codes by the angles of one row of cos_sin, or back. */
static void rotate(uint16_t *head, const float *cos_sin, int back) {
    for (int i = 0; i < PAIRS; i++) {
        uint16_t *pair = head + NOPE_DIM + 2 * i;
        const float c = cos_sin[i], s = cos_sin[PAIRS + i];
        float even = mmla_bf16_to_f32(pair[0]), odd = mmla_bf16_to_f32(pair[1]);
        if (back) {
            mmla_rope_rotate_back(c, s, &even, &odd);
        } else {
            mmla_rope_rotate(c, s, &even, &odd);
        }
        pair[0] = mmla_bf16_from_f32(even);
        pair[1] = mmla_bf16_from_f32(odd);
    }
}

static void copy_head(const mmla_attend_problem *p, const uint16_t *q, int32_t h, uint16_t *head) {
    if (p->desc.q_layout == MMLA_Q_STANDARD) {
        memcpy(head, q + (int64_t)h * MMLA_LATENT_DIM, MMLA_LATENT_DIM * sizeof *head);
        return;
    }
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        head[x] = q[mmla_q_index(MMLA_Q_FUSED, p->desc.n_heads, h, x)];
    }
}

static void rope_token(void *arg, int64_t token, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const mmla_attend_problem *p = job->p;
    const int32_t n_heads = p->desc.n_heads;
    uint16_t *heads = job->tensor + token * n_heads * MMLA_LATENT_DIM;
    if (!mmla_attend_position_is_legal(p, job->args, token)) {
        for (int32_t i = 0; i < n_heads * MMLA_LATENT_DIM; i++) {
            heads[i] = MMLA_BF16_NAN;
        }
        return;
    }
    const float *cos_sin =
        job->args->cos_sin + (int64_t)job->args->positions[token] * MMLA_ROPE_DIM;
    const uint16_t *q = job->args->q + token * p->desc.q_token_stride;
    for (int32_t h = 0; h < n_heads; h++) {
        copy_head(p, q, h, heads + h * MMLA_LATENT_DIM);
        rotate(heads + h * MMLA_LATENT_DIM, cos_sin, 0);
    }
}

static void unrope_token(void *arg, int64_t token, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const int32_t n_heads = job->p->desc.n_heads;
    if (!mmla_attend_position_is_legal(job->p, job->args, token)) {
        return; /* NaN stays NaN */
    }
    const float *cos_sin =
        job->args->cos_sin + (int64_t)job->args->positions[token] * MMLA_ROPE_DIM;
    for (int32_t h = 0; h < n_heads; h++) {
        rotate(job->tensor + (token * n_heads + h) * MMLA_LATENT_DIM, cos_sin, 1);
    }
}

void mmla_chain_rope_q(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *q) {
    struct job job = {p, args, q};
    mmla_parallel_for(p->n_threads, args->n_tokens, rope_token, &job);
}

void mmla_chain_unrope(const mmla_attend_problem *p, const mmla_attend_args *args, uint16_t *o) {
    struct job job = {p, args, o};
    mmla_parallel_for(p->n_threads, args->n_tokens, unrope_token, &job);
}
