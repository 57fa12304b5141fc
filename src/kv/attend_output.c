#include "kv/attend_output.h"

#include "base/checked.h"
#include "num/bf16.h"
#include "num/quant.h"

enum {
    CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM,
    WIDE_CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_WIDE_DIM
};

mmla_out_scale_strides
mmla_out_scale_strides_get(int64_t word_stride, int64_t group_stride, int64_t n_tokens) {
    const int64_t word = word_stride != 0 ? word_stride : mmla_round_up_i64(n_tokens, 4);
    const int64_t words = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4;
    return (mmla_out_scale_strides){word, group_stride != 0 ? group_stride : words * word};
}

static void store_permuted(const mmla_attend_problem *p,
                           const mmla_attend_args *args,
                           int64_t token,
                           int32_t head,
                           const float *o,
                           float scale) {
    const mmla_out_scale_strides strides = mmla_out_scale_strides_get(
        p->desc.out_scale_word_stride, p->desc.out_scale_group_stride, args->n_tokens);
    uint8_t *out = (uint8_t *)args->out + token * p->desc.n_heads * MMLA_LATENT_DIM;
    uint8_t *out_scale = args->out_scale;
    for (int32_t c = 0; c < CHUNKS; c++) {
        const int32_t x = c * MMLA_OUT_CHUNK_DIM;
        out_scale[mmla_out_scale_offset(strides, token, head, c)] =
            mmla_quant_out_ue8m0(o + x, scale, out + mmla_out_permuted_index(head, x));
    }
}

void mmla_attend_store_head(const mmla_attend_problem *p,
                            const mmla_attend_args *args,
                            int64_t token,
                            int32_t head,
                            const float *o,
                            float scale) {
    const int64_t row = token * p->desc.n_heads + head;
    switch (p->desc.out_form) {
    case MMLA_OUT_FP8_PERMUTED:
        store_permuted(p, args, token, head, o, scale);
        return;
    case MMLA_OUT_FP8:
        for (int32_t c = 0; c < CHUNKS; c++) {
            ((uint8_t *)args->out_scale)[row * CHUNKS + c] = mmla_quant_out_ue8m0(
                o + c * MMLA_OUT_CHUNK_DIM, scale,
                (uint8_t *)args->out + row * MMLA_LATENT_DIM + c * MMLA_OUT_CHUNK_DIM);
        }
        return;
    case MMLA_OUT_FP8_128:
        for (int32_t c = 0; c < WIDE_CHUNKS; c++) {
            ((float *)args->out_scale)[row * WIDE_CHUNKS + c] = mmla_quant_out_f32(
                o + c * MMLA_OUT_WIDE_DIM, scale,
                (uint8_t *)args->out + row * MMLA_LATENT_DIM + c * MMLA_OUT_WIDE_DIM);
        }
        return;
    case MMLA_OUT_BF16:
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
            ((uint16_t *)args->out)[row * MMLA_LATENT_DIM + x] = mmla_bf16_from_f32(o[x] * scale);
        }
        return;
    }
}

void mmla_attend_store_nan_logits(const mmla_attend_problem *p,
                                  const mmla_attend_args *args,
                                  int64_t token,
                                  int32_t first,
                                  int32_t n) {
    const int64_t row = token * p->desc.n_heads;
    for (int32_t h = first; h < first + n; h++) {
        if (args->lse != NULL) {
            args->lse[row + h] = NAN;
        }
        if (args->max_logits != NULL) {
            args->max_logits[row + h] = NAN;
        }
    }
}

void mmla_attend_store_nan(const mmla_attend_problem *p,
                           const mmla_attend_args *args,
                           int64_t token,
                           int32_t first,
                           int32_t n) {
    float o[MMLA_LATENT_DIM];
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        o[x] = NAN;
    }
    for (int32_t h = first; h < first + n; h++) {
        mmla_attend_store_head(p, args, token, h, o, 1.0f);
    }
    mmla_attend_store_nan_logits(p, args, token, first, n);
}
