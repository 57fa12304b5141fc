/* chain_quantise.c - the fourth step: the bf16 result to the form the caller asked for. */
#include "base/parallel.h"
#include "kv/attend_output.h"
#include "num/bf16.h"
#include "ops/chain/chain.h"

enum { D = MMLA_LATENT_DIM };

struct job {
    const mmla_attend_problem *p;
    const mmla_attend_args *args;
    const uint16_t *o;
};

static void quantise_token(void *arg, int64_t token, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    for (int32_t h = 0; h < job->p->desc.n_heads; h++) {
        const uint16_t *head = job->o + (token * job->p->desc.n_heads + h) * D;
        float o[D];
        for (int x = 0; x < D; x++) {
            o[x] = mmla_bf16_to_f32(head[x]);
        }
        /* Normalised already, so the quantisers multiply by 1. */
        mmla_attend_store_head(job->p, job->args, token, h, o, 1.0f);
    }
}

void mmla_chain_quantise(const mmla_attend_problem *p,
                         const mmla_attend_args *args,
                         const uint16_t *o) {
    struct job job = {p, args, o};
    mmla_parallel_for(p->n_threads, args->n_tokens, quantise_token, &job);
}
