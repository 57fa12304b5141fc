/* weights.h - one-time weight layouts, and q's layout both ways.
 *
 * The fused call reads q in chunk-interleaved order and writes its result in a permuted order, so
 * the rows of wq_b and the columns of wo_a are moved once at load. Scales are ue8m0, one byte per
 * 32 elements of a row; block scales are expanded to rows first, because the row permutation does
 * not keep blocks of 32 rows together.
 */
#ifndef MEGAMLA_WEIGHTS_H
#define MEGAMLA_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>
#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_weights_kind {
    MMLA_WEIGHTS_PERMUTE_WQ_B = 0,  /* rows of wq_b, for MMLA_Q_FUSED */
    MMLA_WEIGHTS_PERMUTE_WO_A = 1,  /* columns of wo_a, for MMLA_OUT_FP8_PERMUTED */
    MMLA_WEIGHTS_EXPAND_SCALES = 2, /* one scale row per 32 weight rows -> one per weight row */
    MMLA_WEIGHTS_Q_TO_FUSED = 3,    /* bf16 q, standard -> fused */
    MMLA_WEIGHTS_Q_TO_STANDARD = 4  /* bf16 q, fused -> standard */
} mmla_weights_kind;

/* Sizes of up to 2^31 - 1; what a kind does not name below is ignored. */
typedef struct mmla_weights_desc {
    mmla_weights_kind kind;
    int32_t n_heads;    /* PERMUTE_WQ_B, Q_*: H of this rank, a multiple of 8, 8 .. 128 */
    int64_t rows;       /* PERMUTE_WQ_B: H * 512 (0: that); PERMUTE_WO_A: any, all groups of it;
                           EXPAND_SCALES: weight rows, any; Q_*: tokens */
    int64_t cols;       /* PERMUTE_WQ_B: K, bytes of a weight row; PERMUTE_WO_A: 4096 (0: that) */
    int64_t scale_cols; /* PERMUTE_WQ_B, EXPAND_SCALES: scale bytes of a row; PERMUTE_WO_A: 128
                           (0: that) */
} mmla_weights_desc;

typedef struct mmla_weights_args {
    const void *in;          /* uint8 [rows, cols], or bf16 [rows, H * 512] */
    void *out;               /* the same shape */
    const uint8_t *scale_in; /* [rows, scale_cols], EXPAND_SCALES [ceil(rows / 32), scale_cols];
                                may be NULL with scale_out for the permutations */
    uint8_t *scale_out;      /* [rows, scale_cols] */
    mmla_error *error;       /* may be NULL */
} mmla_weights_args;

typedef struct mmla_weights_plan mmla_weights_plan;

MMLA_API mmla_status mmla_weights_plan_create(mmla_context *ctx,
                                              const mmla_weights_desc *desc,
                                              mmla_weights_plan **plan,
                                              mmla_error *err);
MMLA_API void mmla_weights_plan_destroy(mmla_weights_plan *plan);
MMLA_API size_t mmla_weights_workspace_bytes(const mmla_weights_plan *plan); /* 0 */

/* mmla_weights_run - move bytes; nothing is computed.
 *
 * PERMUTE_WQ_B
 *     row h * 512 + x goes to (x / 16) * (H * 16) + h * 16 + x mod 16, its scales with it
 * PERMUTE_WO_A
 *     column h * 512 + c * 32 + i goes to (c * 8 + h) * 32 + i   (h < 8, c < 16, i < 32), scale
 *     column h * 16 + c to c * 8 + h
 * EXPAND_SCALES
 *     scale_out[r] = scale_in[r / 32]
 * Q_TO_FUSED
 *     element h * 512 + x of every token goes to the place of PERMUTE_WQ_B
 * Q_TO_STANDARD
 *     back
 *
 * memory   in and out, and their scales, must not overlap; no alignment beyond the element's. On a
 *          CUDA device all four are device memory, and what is aligned to 16 bytes, rows of cols and
 *          scale_cols included, moves faster
 * stream   the CPU runs before it returns and takes NULL. CUDA enqueues one or two kernels on
 *          `stream` (a cudaStream_t) and returns; it may be captured
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT; MMLA_E_VALUE: an output overlaps its input;
 *          MMLA_E_SHAPE: scales were given, but scale_cols is 0.  Nothing is written
 *          MMLA_E_LAUNCH (CUDA): a launch was refused
 * edges    rows 0 of any kind but PERMUTE_WQ_B touches nothing
 * source   docs/format.md, src/ops/weights/README.md
 * since    0.1
 */
MMLA_API mmla_status mmla_weights_run(const mmla_weights_plan *plan,
                                      const mmla_weights_args *args,
                                      void *workspace,
                                      void *stream);

#ifdef __cplusplus
}
#endif

#endif
