/* attend.h - the fused call: raw q and quantised caches in, the output projection's operand out.
 *
 * One call rotates q, attends to the rows its lists name, with a sink in the denominator, rotates
 * the result back, casts it to FP8 and lays it out for the grouped output projection. Describe the
 * shapes once, plan, then run any number of calls of up to max_tokens tokens:
 *
 *     mmla_attend_plan_create(ctx, &desc, &plan, &err);     checks everything, explains
 *     workspace = aligned_alloc(64, mmla_attend_workspace_bytes(plan));
 *     mmla_attend_run(plan, &args, workspace, stream);      trusts, launches, returns
 *
 * A plan depends on shapes, strides, formats and options, never on lengths or contents. It may be
 * used by any number of threads at once, each with its own workspace.
 */
#ifndef MEGAMLA_ATTEND_H
#define MEGAMLA_ATTEND_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>
#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_attend_kind {
    MMLA_ATTEND_PAGED = 0, /* from a window cache and, optionally, a compressed cache */
    MMLA_ATTEND_ROWS = 1   /* from bf16 rows, already rotated (a gathered workspace) */
} mmla_attend_kind;

/* Order of the H * 512 numbers of one token's q. */
typedef enum mmla_q_layout {
    MMLA_Q_STANDARD = 0, /* head h, dim x at h * 512 + x */
    MMLA_Q_FUSED = 1 /* at (x / 16) * (H * 16) + h * 16 + x mod 16: what the permuted wq_b emits */
} mmla_q_layout;

/* What the output tensor holds. All forms are after the inverse rotation. G = H / 8. */
typedef enum mmla_out_form {
    /* out e4m3 [T, G, 4096], inside a group chunk c of head h at (c * 8 + h) * 32; out_scale int32
     * words, logically [T, G, 32], byte k of word w = ue8m0 of chunk index 4 w + k = c * 8 + h */
    MMLA_OUT_FP8_PERMUTED = 0,
    MMLA_OUT_FP8 = 1,     /* out e4m3 [T, H, 512]; out_scale uint8 ue8m0 [T, H, 16] */
    MMLA_OUT_FP8_128 = 2, /* out e4m3 [T, H, 512]; out_scale float [T, H, 4], amax / 448 as it is */
    MMLA_OUT_BF16 = 3     /* out bf16 [T, H, 512]; no out_scale */
} mmla_out_form;

/* Shapes, strides, formats and options. Zero is the default of every field it is legal for. */
typedef struct mmla_attend_desc {
    mmla_attend_kind kind;
    int32_t n_heads;    /* H: a multiple of 8, 8 .. 128 */
    int64_t max_tokens; /* the most tokens of one call, 0 .. 2^31 - 1 */
    float scale;        /* of the logits, > 0, <= 1e30; 512^-0.5 in the model; no log2(e) in it */
    mmla_q_layout q_layout;
    int64_t q_token_stride; /* elements, multiple of 8, at least H * 512; 0: H * 512 */
    int32_t q_norm;         /* not 0: V4's weightless RMSNorm of each head's q, as a logit factor */
    float q_norm_eps;       /* > 0 with q_norm; else ignored */
    int64_t rope_positions; /* P: rows of cos_sin, 1 .. 2^31 - 1 */
    mmla_out_form out_form;
    /* Only MMLA_OUT_FP8_PERMUTED, in int32 words; token stride is 1.  Padding words are not
     * written. */
    int64_t out_scale_word_stride; /* at least max_tokens; 0: the call's n_tokens rounded up to 4 */
    int64_t out_scale_group_stride; /* at least 32 word strides; 0: exactly that */
    /* The first list: slots of the window cache (PAGED), or row numbers of kv (ROWS). */
    int32_t list_width;  /* K: at least 1 */
    int64_t list_stride; /* elements between tokens, at least K; 0: K */
    /* PAGED only. Legal pairs: any one format twice (V4, V41_FP8 or V41_FP4), V41_FP8 + V41_FP4,
     * and any of the three alone. */
    mmla_cache_desc window;
    mmla_cache_desc compressed; /* format NONE: no compressed cache */
    int32_t compressed_width;   /* E: at least 1 with a compressed cache */
    int64_t compressed_stride;  /* at least E; 0: E */
    /* ROWS only. */
    int64_t max_rows;      /* the most rows of kv in one call, 0 .. 2^31 - 1 */
    int64_t kv_row_stride; /* elements, multiple of 8, at least 512; 0: 512 */
    /* Options. */
    const char *implementation; /* NULL: the best one; else a name of mmla_implementation_get */
    int32_t batch_invariant;    /* not 0: a token's bits do not depend on the batch around it.
                                   Always so on the CPU, at no cost; on a GPU how its keys are
                                   divided is then fixed by heads, formats and list widths. */
} mmla_attend_desc;

/* Pointers of one call. All device memory of the context's device. */
typedef struct mmla_attend_args {
    int64_t n_tokens;         /* T: 0 .. max_tokens; 0 touches nothing */
    const uint16_t *q;        /* [T, H * 512] bf16, 16-byte aligned */
    const int32_t *positions; /* [T], row of cos_sin */
    const float *cos_sin;     /* [P, 64]: 32 cosines, then 32 sines */
    const float *sink;   /* [H], may be NULL: no sink. -inf: none for that head; +inf: output 0 */
    const int32_t *list; /* [T, K]; an entry outside the cache or rows is no key */
    const int32_t *lens; /* [T], may be NULL: K. Clamped to 0 .. K */
    /* PAGED */
    const void *window_cache;       /* n_pages * page_stride_bytes, 16-byte aligned; NULL for 0 */
    const void *compressed_cache;   /* likewise */
    const int32_t *compressed_list; /* [T, E] */
    const int32_t *compressed_lens; /* [T], may be NULL: E */
    /* ROWS */
    const uint16_t *kv; /* [n_rows, 512] bf16, 16-byte aligned */
    int64_t n_rows;     /* 0 .. max_rows */
    /* Results */
    void *out;         /* see mmla_out_form; contiguous, 32-byte aligned */
    void *out_scale;   /* see mmla_out_form; 4-byte aligned; NULL only for MMLA_OUT_BF16 */
    float *lse;        /* [T, H], may be NULL: natural log, of the scaled logits, sink left out */
    float *max_logits; /* [T, H], may be NULL: natural-unit maximum of the scaled logits */
    /* Faults: tokens whose position lies outside cos_sin. */
    int32_t *n_faults; /* may be NULL: their number is added to it (device memory) */
    mmla_error *error; /* may be NULL: host memory, filled when run returns a failure */
} mmla_attend_args;

typedef struct mmla_attend_plan mmla_attend_plan;

/* mmla_attend_plan_create - check a description, choose an implementation.
 *
 * memory   *plan is the library's until mmla_attend_plan_destroy; the context must outlive it
 * threads  any
 * errors   every field of desc is checked; err names it, the value found and the values accepted.
 *          MMLA_E_NO_IMPLEMENTATION when `implementation` names none that can serve the
 *          description.  On failure *plan is NULL.
 * since    0.1
 */
MMLA_API mmla_status mmla_attend_plan_create(mmla_context *ctx,
                                             const mmla_attend_desc *desc,
                                             mmla_attend_plan **plan,
                                             mmla_error *err);
MMLA_API void mmla_attend_plan_destroy(mmla_attend_plan *plan); /* NULL is allowed */

/* mmla_attend_workspace_bytes - bytes run needs beside its arguments; 64-byte aligned, contents
 * arbitrary before and after. On the CPU at most 1 MiB for each thread of the context, whatever the
 * description. On CUDA it grows with max_tokens up to 48 MiB and a few bytes, and not with the caches
 * or the list widths. */
MMLA_API size_t mmla_attend_workspace_bytes(const mmla_attend_plan *plan);

/* mmla_attend_plan_implementation - the name that was chosen; constant memory. */
MMLA_API const char *mmla_attend_plan_implementation(const mmla_attend_plan *plan);

/* mmla_attend_run - the fused call.
 *
 * For every token t and head h, where the keys j are the valid entries of the token's lists:
 *
 *     q'       = rotate(q[t][h], positions[t]), rounded to bf16
 *     s[j]     = scale * dot(q', row(j))               times rsqrt(mean(q^2) + eps) with q_norm
 *     m        = max over j of s[j]                    max_logits[t][h] = m
 *     z        = sum of exp(s[j] - m)                  lse[t][h] = m + log(z)
 *     o        = sum of exp(s[j] - m) * row(j) / (z + exp(sink[h] - m))
 *     out      = cast(rotate_back(o, positions[t]))
 *
 * An entry is valid when its place is below the token's length and its value is inside the cache
 * (0 <= slot < n_pages * page_tokens) or the rows (0 <= row < n_rows). Any other entry is never
 * loaded and contributes exactly nothing. Repeated entries count as often as they appear. Holes may
 * stand anywhere.
 *
 * units    cast: scale byte from the chunk's maximum, at least 1e-4 / 448, a power of two rounded
 *          up (MMLA_OUT_FP8_128: not rounded); codes round to nearest even and saturate
 * memory   the arguments, plus workspace; nothing is allocated; outputs must not overlap inputs
 *          (not checked)
 * stream   the CPU runs before it returns and takes NULL; on CUDA a cudaStream_t, enqueued, legal
 *          while it is captured
 * threads  any number at once on one plan, each with its own workspace and outputs
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT, MMLA_E_SHAPE: a pointer or count of args, nothing written
 *          MMLA_E_LAUNCH: the device refused the work
 *          MMLA_E_INDEX, CPU only (a GPU counts n_faults): some position lies outside cos_sin; all
 *          results of those tokens are NaN (codes 0x7F under the scale of a zero chunk), all others
 *          are complete
 * edges    no valid key: output 0 (codes 0, scale byte 105), lse +inf, max_logits -inf, whatever
 *          the sink. A NaN in a used row reaches this token's results (codes 0x7F, lse and
 *          max_logits NaN) and no other's; an infinity leaves this token's results without
 *          meaning, most of them NaN, and touches no other's.
 * source   docs/numerics.md; definition: src/ops/attend/attend_ref.c
 * since    0.1
 */
MMLA_API mmla_status mmla_attend_run(const mmla_attend_plan *plan,
                                     const mmla_attend_args *args,
                                     void *workspace,
                                     void *stream);

/* Two partial results of the same queries over disjoint keys: MMLA_OUT_BF16, no sink. */
typedef struct mmla_attend_merge_args {
    int64_t n_tokens; /* T */
    int32_t n_heads;  /* H: a multiple of 8, 8 .. 128 */
    mmla_out_form out_form;
    int64_t out_scale_word_stride; /* as in mmla_attend_desc */
    int64_t out_scale_group_stride;
    const uint16_t *out_a; /* [T, H, 512] bf16 */
    const float *lse_a;    /* [T, H] natural log; +inf: that part had no key */
    const uint16_t *out_b; /* [T, H, 512] bf16 */
    const float *lse_b;    /* [T, H] */
    const float *sink;     /* [H], may be NULL */
    void *out;             /* see mmla_out_form */
    void *out_scale;       /* see mmla_out_form */
    float *lse;            /* [T, H], may be NULL: of the union of the keys */
} mmla_attend_merge_args;

/* mmla_attend_merge - join two partial results into what one call over all keys would give.
 *
 *     lse  = log(exp(lse_a) + exp(lse_b))
 *     o    = (exp(lse_a - lse) * out_a + exp(lse_b - lse) * out_b) / (1 + exp(sink - lse))
 *
 * memory   no workspace; out may not overlap the inputs; out_a and out_b 16-byte aligned, out 32,
 *          out_scale 4
 * stream   the CPU runs before it returns and takes NULL; a CUDA device is given one kernel. That
 *          may be captured when any mmla_attend_plan was created on the device before, which loads
 *          the kernel.
 * threads  any; runs on the context's threads
 * errors   MMLA_E_NULL, MMLA_E_SHAPE, MMLA_E_STRIDE, MMLA_E_SIZE, MMLA_E_VALUE, MMLA_E_ALIGNMENT:
 *          nothing written; MMLA_E_LAUNCH: the stream took no kernel
 * edges    both parts empty: output 0, lse +inf. T = 0 touches nothing.
 * since    0.1
 */
MMLA_API mmla_status mmla_attend_merge(mmla_context *ctx,
                                       const mmla_attend_merge_args *args,
                                       void *stream,
                                       mmla_error *err);

#ifdef __cplusplus
}
#endif

#endif
