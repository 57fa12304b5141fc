/* project.h - wo_a, the grouped output projection that consumes the fused call's result.
 *
 * z[t][g] = x[t][g] . weight[g]^T with e4m3 codes and ue8m0 scales per 32 on both sides. The fused
 * call's out and out_scale (MMLA_OUT_FP8_PERMUTED) are x and x_scale as they are, when the weight's
 * columns were permuted (weights.h).
 */
#ifndef MEGAMLA_PROJECT_H
#define MEGAMLA_PROJECT_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>
#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How x_scale lies in memory; logically byte k of word w of (t, g) is the scale of dims
 * 32 * (4 w + k) .. + 31. */
typedef enum mmla_scale_layout {
    MMLA_SCALE_PACKED = 0, /* int32 words, token stride 1: what the fused call writes */
    MMLA_SCALE_BYTES = 1   /* uint8 [T, G, 128], contiguous */
} mmla_scale_layout;

typedef struct mmla_project_desc {
    int32_t n_groups;   /* G: 1 .. 16 */
    int64_t max_tokens; /* 0 .. 2^31 - 1 */
    int32_t rank;       /* rows of weight a group: a multiple of 8, 8 .. 65536; 0: 1024 */
    mmla_scale_layout x_scale_layout;
    int64_t x_scale_word_stride;  /* PACKED: as out_scale_word_stride of attend.h */
    int64_t x_scale_group_stride; /* PACKED: as out_scale_group_stride */
    const char *implementation;   /* NULL: the best one */
} mmla_project_desc;

typedef struct mmla_project_args {
    int64_t n_tokens;            /* T */
    const uint8_t *x;            /* e4m3 [T, G, 4096], 16-byte aligned */
    const void *x_scale;         /* see mmla_scale_layout */
    const uint8_t *weight;       /* e4m3 [G, rank, 4096], 16-byte aligned */
    const uint8_t *weight_scale; /* ue8m0 [G, rank, 128] */
    const void *weight_wide; /* the same weight by mmla_project_widen, 128-byte aligned, or NULL */
    uint16_t *z;             /* bf16 [T, G, rank] */
    mmla_error *error;       /* may be NULL */
} mmla_project_args;

typedef struct mmla_project_widen_args {
    const uint8_t *weight;       /* as in mmla_project_args */
    const uint8_t *weight_scale; /* the same */
    void *wide;                  /* mmla_project_wide_bytes, 128-byte aligned */
    mmla_error *error;           /* may be NULL */
} mmla_project_widen_args;

typedef struct mmla_project_plan mmla_project_plan;

MMLA_API mmla_status mmla_project_plan_create(mmla_context *ctx,
                                              const mmla_project_desc *desc,
                                              mmla_project_plan **plan,
                                              mmla_error *err);
MMLA_API void mmla_project_plan_destroy(mmla_project_plan *plan);

/* mmla_project_workspace_bytes - at most 1 MiB for each thread of the context on the CPU; 0 on a CUDA
 * device. */
MMLA_API size_t mmla_project_workspace_bytes(const mmla_project_plan *plan);
MMLA_API const char *mmla_project_plan_implementation(const mmla_project_plan *plan);

/* mmla_project_wide_bytes - of a weight made wide; 0 where the plan's implementation has no use for
 * one: on the CPU, and on GPUs other than Hopper. There it is 8,200 bytes a row, of which a group
 * has a multiple of 256. */
MMLA_API size_t mmla_project_wide_bytes(const mmla_project_plan *plan);

/* mmla_project_widen - a weight for calls of more than a few tokens, once, when it is loaded.
 *
 * Codes times their scales become fp16, relative to the largest scale of their row, in an order
 * that the kernels for those read as it is, so that no call has to convert them again. Any
 * plan of the same device, n_groups and rank may be given the result. Its bytes belong to this
 * version of the library.
 *
 * memory   wide must not overlap what it is made of; all is device memory
 * stream   one kernel, which may be captured, and which finishes later
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT; MMLA_E_NO_IMPLEMENTATION: mmla_project_wide_bytes is 0.
 *          Nothing is written. MMLA_E_LAUNCH: the stream took no kernel
 * edges    a NaN stays one in the results of its row
 * source   src/ops/project/project_wide.h
 * since    0.1
 */
MMLA_API mmla_status mmla_project_widen(const mmla_project_plan *plan,
                                        const mmla_project_widen_args *args,
                                        void *stream);

/* mmla_project_run
 *
 *     z[t][g][n] = bf16( sum over k of x[t][g][k] * 2^(sx - 127) * weight[g][n][k] * 2^(sw - 127) )
 *
 * with sx, sw the scale bytes of k's group of 32; sums in fp32. A scale byte of 255 or a code 0x7F
 * or 0xFF is NaN and reaches the z it belongs to, and no other. A sum beyond the range of fp32 is
 * infinite, or NaN where parts of it overflowed with both signs. The bits of a token's z depend
 * neither on the other tokens of the call nor on the number of threads; from device to device they
 * differ within the stated tolerance.
 *
 * With weight_wide, which is ignored where mmla_project_wide_bytes is 0, a call of more than a
 * few tokens takes it in place of weight and is faster; it still reads weight where a row's scales
 * lie too far apart for fp16. Such calls sum in another order, so a token's bits then depend on the number of tokens
 * of the call, though not on what those are. They are held to the same tolerance.
 *
 * memory   no alignment of z beyond 2; workspace 64-byte aligned
 * stream   the CPU runs before it returns and takes NULL; a CUDA device is given one kernel, which may
 *          be captured, and which finishes later
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT, MMLA_E_SHAPE: nothing written;
 *          MMLA_E_LAUNCH: the stream took no kernel
 * edges    T = 0 touches nothing
 * source   definition: src/ops/project/project_ref.c
 * since    0.1
 */
MMLA_API mmla_status mmla_project_run(const mmla_project_plan *plan,
                                      const mmla_project_args *args,
                                      void *workspace,
                                      void *stream);

#ifdef __cplusplus
}
#endif

#endif
