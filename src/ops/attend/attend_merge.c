/* attend_merge.c - joins two partial results, one unit a token. */
#include <math.h>

#include "base/parallel.h"
#include "num/bf16.h"
#include "ops/attend/attend.h"

struct job {
    const mmla_attend_merge_args *args;
    mmla_attend_problem out; /* what mmla_attend_store_head reads of a description */
    mmla_attend_args out_args;
};

/* Share of a part in the union with `other`; 0 for a part without keys (+inf). From the difference
 * of the two, which keeps its digits where the lse themselves are large. */
static double weight(float part, float other) {
    if (part == INFINITY || other == INFINITY) {
        return part == INFINITY ? 0.0 : 1.0;
    }
    return 1.0 / (1.0 + exp((double)other - (double)part));
}

/* log(exp(a) + exp(b)), where +inf stands for no key. */
static double join(float a, float b) {
    if (a == INFINITY || b == INFINITY) {
        return a == INFINITY ? (double)b : (double)a;
    }
    const double high = fmax((double)a, (double)b), low = fmin((double)a, (double)b);
    return isnan(a) || isnan(b) ? (double)NAN : high + log1p(exp(low - high));
}

static void merge_token(void *arg, int64_t token, int32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const mmla_attend_merge_args *args = job->args;
    for (int32_t h = 0; h < args->n_heads; h++) {
        const int64_t row = token * args->n_heads + h;
        const double lse = join(args->lse_a[row], args->lse_b[row]);
        const bool empty = lse == (double)INFINITY;
        const double sink = args->sink != NULL ? (double)args->sink[h] : (double)-INFINITY;
        const float scale = empty ? 0.0f : (float)(1.0 / (1.0 + exp(sink - lse)));
        const float a = empty ? 0.0f : (float)weight(args->lse_a[row], args->lse_b[row]);
        const float b = empty ? 0.0f : (float)weight(args->lse_b[row], args->lse_a[row]);
        float o[MMLA_LATENT_DIM];
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
            const int64_t i = row * MMLA_LATENT_DIM + x;
            /* A part without keys must not contribute, whatever its tensor holds. */
            o[x] = (a != 0.0f ? a * mmla_bf16_to_f32(args->out_a[i]) : 0.0f) +
                   (b != 0.0f ? b * mmla_bf16_to_f32(args->out_b[i]) : 0.0f);
        }
        mmla_attend_store_head(&job->out, &job->out_args, token, h, o, scale);
        if (args->lse != NULL) {
            args->lse[row] = (float)lse;
        }
    }
}

void mmla_attend_merge_parts(const mmla_attend_merge_args *args, int32_t n_threads) {
    struct job job = {
        .args = args,
        .out.desc = {.n_heads = args->n_heads,
                     .out_form = args->out_form,
                     .out_scale_word_stride = args->out_scale_word_stride,
                     .out_scale_group_stride = args->out_scale_group_stride},
        .out_args = {.n_tokens = args->n_tokens, .out = args->out, .out_scale = args->out_scale},
    };
    mmla_parallel_for(n_threads, args->n_tokens, merge_token, &job);
}
