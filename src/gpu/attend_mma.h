/* attend_mma.h - attention on every GPU since compute capability 8.0, from bf16 matrix instructions:
 * what the fused call (ops/attend) and the attention step of the chain (ops/chain) both stand on.
 */
#ifndef MMLA_GPU_ATTEND_MMA_H
#define MMLA_GPU_ATTEND_MMA_H

#include "gpu/attend_mma_tile.h"
#include "gpu/kernel.h"
#include "kv/attend_output.h"

/* One list with the pool its entries name. width 0: there is no such list. */
typedef struct attend_mma_list {
    const uint8_t *pool;
    const int32_t *entries; /* [T, width], list_stride apart */
    const int32_t *lens;    /* [T] or NULL */
    int64_t stride;
    int32_t width;
    mmla_kv_view view; /* of bf16 rows: format NONE, pages of one record */
} attend_mma_list;

/* Everything a kernel needs. Tokens first_token .. first_token + n_tokens - 1 are this launch's. */
typedef struct attend_mma_params {
    int64_t first_token;
    int64_t n_tokens;
    int32_t n_heads;
    int32_t n_head_tiles; /* CTAs that share a token's heads */
    int32_t tile_heads;   /* heads of each, but for the last (attend_wgmma alone) */
    int32_t n_splits;     /* CTAs that share a token's keys */
    int32_t rotate;       /* 0: q is rotated already, and the result stays as it is */
    const uint16_t *q;
    int64_t q_token_stride;
    mmla_q_layout q_layout;
    const uint16_t *norm_q; /* with q_norm: the q before rotation */
    int64_t norm_q_token_stride;
    mmla_q_layout norm_q_layout;
    float q_norm_eps;
    float scale_log2e; /* scale of the logits times log2(e) */
    const int32_t *positions;
    const float *cos_sin;
    int64_t rope_positions;
    const float *sink;
    attend_mma_list lists[2];
    uint8_t *out;
    uint8_t *out_scale;
    mmla_out_form out_form;
    mmla_out_scale_strides scale_strides;
    float *lse;
    float *max_logits;
    int32_t *n_faults;
    /* With n_splits > 1: what the CTAs of a token and its group of heads leave for each other, or for
     * the last of them. */
    int32_t in_cluster; /* the CTAs of a group run at the same time, and all of them merge */
    float *part_o;   /* [groups, splits, 8 * tiles * 512], in the order of the threads' registers */
    float *part_ml;  /* [groups, splits, 2, 8 * tiles]: maximum and sum */
    int32_t *part_n; /* [groups, splits]: whether there was a key */
    int32_t *arrived; /* [groups], zero at the start; not in a cluster */
} attend_mma_params;

/* Kernels by keys of a block and groups of 8 heads of a CTA; attend_mma_kernels.inc lists them. */
#define KERNEL(keys, tiles, blocks) \
    MMLA_KERNEL(attend_bf16_sm80_k##keys##_h8x##tiles, attend_mma_params);
#include "gpu/attend_mma_kernels.inc"
#undef KERNEL

/* What the lists of a token may hold together, and into how many parts its keys are divided in the
 * batch-invariant mode: a few blocks each. */
int64_t mmla_attend_mma_width(const mmla_attend_problem *p);
int32_t mmla_attend_mma_invariant_splits(const mmla_attend_problem *p);

/* Parameters of a call: q as it is given and everything but the results; and those of the fused call.
 * How the work is divided is left to whoever launches. */
attend_mma_params mmla_attend_mma_params_get(const mmla_attend_problem *p,
                                             const mmla_attend_args *args);
attend_mma_params mmla_attend_mma_fused_params_get(const mmla_attend_problem *p,
                                                   const mmla_attend_args *args);

/* What the fused call and the chain's step ask for. The problem's gpu, desc and views are read. */
size_t mmla_attend_mma_workspace_bytes_get(const mmla_attend_problem *p);
/* Both are what a plan prepares with, problem a mmla_attend_problem; the second for parts that are not
 * merged in clusters. */
mmla_status mmla_attend_mma_load(void *problem, mmla_error *err);
mmla_status mmla_attend_mma_counter_load(void *problem, mmla_error *err);

/* The fused call. Parts are merged in clusters where the device has them and `in_clusters` is set. */
mmla_status mmla_attend_mma_fused(const mmla_attend_problem *p,
                                  const mmla_attend_args *args,
                                  bool in_clusters,
                                  void *workspace,
                                  void *stream);

/* The chain's second step: q bf16 [T, H, 512], already rotated, to o bf16 [T, H, 512], not yet
 * rotated back; lse and max_logits as the fused call. The workspace is as large as that of the
 * fused call. */
mmla_status mmla_attend_mma_step(const mmla_attend_problem *p,
                                 const mmla_attend_args *args,
                                 const uint16_t *q,
                                 uint16_t *o,
                                 void *workspace,
                                 void *stream);

#endif
