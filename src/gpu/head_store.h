/* head_store.h - where the numbers and the scale bytes of head_store.cuh stand, for host and device. */
#ifndef MMLA_GPU_HEAD_STORE_H
#define MMLA_GPU_HEAD_STORE_H

#include <assert.h>

#include "kv/attend_output.h"

enum {
    GPU_HEAD_THREADS = 256,                                /* of a block: 8 heads, a warp each */
    GPU_HEAD_SCALES = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM, /* bytes of a group */
    GPU_HEAD_SCALE_WORDS = GPU_HEAD_SCALES / 4
};

static_assert(GPU_HEAD_THREADS == 32 * MMLA_HEADS_PER_GROUP && MMLA_LATENT_DIM == 32 * 16,
              "a warp has a head, a thread 16 numbers");

/* An output, as kernels are told of it. */
typedef struct gpu_head_out {
    void *out;
    void *out_scale;
    mmla_out_form form;
    int32_t n_heads;
    mmla_out_scale_strides strides; /* of FP8_PERMUTED */
} gpu_head_out;

/* Dim of number i, 0 .. 15, of thread `lane` of a warp. */
MMLA_INLINE int32_t gpu_head_dim(int32_t lane, int32_t i) {
    return 8 * lane + i % 8 + MMLA_LATENT_DIM / 2 * (i / 8);
}

/* Where a block keeps the scale byte of a chunk of a head, so that word w is word w of the group in
 * out_scale: for FP8_PERMUTED byte k of it is chunk c * 8 + h = 4 w + k, for FP8 heads follow each
 * other. */
MMLA_INLINE int32_t gpu_head_scale_place(mmla_out_form form, int32_t head, int32_t chunk) {
    const int32_t in_group = head % MMLA_HEADS_PER_GROUP;
    return form == MMLA_OUT_FP8_PERMUTED
               ? chunk * MMLA_HEADS_PER_GROUP + in_group
               : in_group * (MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM) + chunk;
}

/* Byte offset in out_scale of word w of a group's 32. */
MMLA_INLINE int64_t gpu_head_scale_word_off(const gpu_head_out *to,
                                            int64_t token,
                                            int32_t group,
                                            int32_t word) {
    if (to->form == MMLA_OUT_FP8_PERMUTED) {
        return 4 * (group * to->strides.group + word * to->strides.word + token);
    }
    return (token * (to->n_heads / MMLA_HEADS_PER_GROUP) + group) * GPU_HEAD_SCALES + 4 * word;
}

#endif
