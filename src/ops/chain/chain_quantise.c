/* chain_quantise.c - the fourth step: the bf16 result to the form the caller asked for. */
#include <string.h>

#include "base/parallel.h"
#include "num/bf16.h"
#include "num/quant.h"
#include "ops/chain/chain.h"

enum {
    D = MMLA_LATENT_DIM,
    CHUNK = MMLA_OUT_CHUNK_DIM,
    CHUNKS = D / CHUNK,
    WIDE = 128 /* dims under one scale of MMLA_OUT_FP8_128 */
};

struct job {
    const mmla_attend_problem *p;
    const mmla_attend_args *args;
    const uint16_t *o;
    mmla_out_scale_strides strides;
};

/* The values are normalised already, so the quantisers multiply by 1. */
static void quantise_head(const struct job *job, int64_t token, int32_t h) {
    const int64_t n_heads = job->p->desc.n_heads, head = token * n_heads + h;
    const mmla_attend_args *args = job->args;
    uint8_t *codes = args->out, *bytes = args->out_scale;
    float o[D];
    for (int x = 0; x < D; x++) {
        o[x] = mmla_bf16_to_f32(job->o[head * D + x]);
    }
    switch (job->p->desc.out_form) {
    case MMLA_OUT_FP8_PERMUTED:
        for (int c = 0; c < CHUNKS; c++) {
            bytes[mmla_out_scale_offset(job->strides, token, h, c)] = mmla_quant_out_ue8m0(
                o + c * CHUNK, 1.0f,
                codes + token * n_heads * D + mmla_out_permuted_index(h, c * CHUNK));
        }
        return;
    case MMLA_OUT_FP8:
        for (int c = 0; c < CHUNKS; c++) {
            bytes[head * CHUNKS + c] =
                mmla_quant_out_ue8m0(o + c * CHUNK, 1.0f, codes + head * D + c * CHUNK);
        }
        return;
    case MMLA_OUT_FP8_128:
        for (int c = 0; c < D / WIDE; c++) {
            ((float *)args->out_scale)[head * (D / WIDE) + c] =
                mmla_quant_out_f32(o + c * WIDE, 1.0f, codes + head * D + c * WIDE);
        }
        return;
    case MMLA_OUT_BF16:
        memcpy((uint16_t *)args->out + head * D, job->o + head * D, D * sizeof(uint16_t));
        return;
    }
}

static void quantise_token(void *arg, int64_t token, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    for (int32_t h = 0; h < job->p->desc.n_heads; h++) {
        quantise_head(job, token, h);
    }
}

void mmla_chain_quantise(const mmla_attend_problem *p,
                         const mmla_attend_args *args,
                         const uint16_t *o) {
    struct job job = {p, args, o,
                      mmla_out_scale_strides_get(p->desc.out_scale_word_stride,
                                                 p->desc.out_scale_group_stride, args->n_tokens)};
    mmla_parallel_for(p->n_threads, args->n_tokens, quantise_token, &job);
}
