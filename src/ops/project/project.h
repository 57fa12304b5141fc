/* project.h - contract between the plan of project and its implementations.
 *
 * include/megamla/project.h has the formula and the shapes. The problem below is the description
 * with defaults filled in and everything checked; an implementation trusts it and the args.
 */
#ifndef MMLA_OPS_PROJECT_H
#define MMLA_OPS_PROJECT_H

#include <megamla/project.h>

#include "base/checked.h"
#include "base/gpu.h"
#include "base/impl.h"

enum {
    MMLA_PROJECT_DIM = MMLA_GROUP_DIM,       /* K: length of every sum */
    MMLA_PROJECT_GROUP = MMLA_OUT_CHUNK_DIM, /* elements under one scale byte */
    MMLA_PROJECT_SCALES = MMLA_PROJECT_DIM / MMLA_PROJECT_GROUP,
    MMLA_PROJECT_SCALE_WORDS = MMLA_PROJECT_SCALES / 4,
    MMLA_PROJECT_RANK_MULTIPLE = 8,
    MMLA_PROJECT_CLUSTERS_MAX = 24
};

typedef struct mmla_project_problem {
    mmla_project_desc desc; /* rank resolved; strides as given, 0 included */
    int32_t n_threads;      /* of the CPU */
    mmla_gpu gpu;           /* of a context on a CUDA device */
    /* On Hopper, of every launch that has clusters: how many of them run at the same time. */
    int32_t clusters[MMLA_PROJECT_CLUSTERS_MAX];
} mmla_project_problem;

typedef struct mmla_project_impl {
    mmla_impl base;      /* prefers() takes a mmla_project_problem */
    size_t thread_bytes; /* workspace of one thread, a multiple of 64 */
    mmla_status (*run)(const mmla_project_problem *p,
                       const mmla_project_args *args,
                       void *workspace,
                       void *stream);
    /* For a weight made wide, where there is such a thing: its bytes, and making it. */
    size_t (*wide_bytes)(const mmla_project_problem *p);
    mmla_status (*widen)(const mmla_project_problem *p,
                         const mmla_project_widen_args *args,
                         void *stream);
} mmla_project_impl;

#define VARIANT(name, device, features, by_name_only, thread_bytes, run, prepare, wide_bytes, \
                widen)                                                                        \
    mmla_status run(const mmla_project_problem *, const mmla_project_args *, void *, void *);
#include "ops/project/project_variants.inc"
#undef VARIANT
#if defined(MMLA_HAVE_CUDA)
mmla_status mmla_project_mma_prepare(void *problem, mmla_error *err);
mmla_status mmla_project_wgmma_prepare(void *problem, mmla_error *err);
size_t mmla_project_wgmma_wide_bytes(const mmla_project_problem *p);
mmla_status mmla_project_wgmma_widen(const mmla_project_problem *p,
                                     const mmla_project_widen_args *args,
                                     void *stream);
#endif

/* The list, in order of preference. */
const mmla_impl *const *mmla_project_list(size_t *n);

/* Where the scale bytes of x lie: byte i of (t, g) at
 * t * token + g * group + (i / 4) * word + i % 4, all in bytes. */
typedef struct mmla_project_scale_strides {
    int64_t token;
    int64_t group;
    int64_t word;
} mmla_project_scale_strides;

static inline mmla_project_scale_strides
mmla_project_scale_strides_get(const mmla_project_problem *p, const mmla_project_args *args) {
    const mmla_project_desc *d = &p->desc;
    if (d->x_scale_layout == MMLA_SCALE_BYTES) {
        return (mmla_project_scale_strides){(int64_t)d->n_groups * MMLA_PROJECT_SCALES,
                                            MMLA_PROJECT_SCALES, 4};
    }
    const int64_t word =
        d->x_scale_word_stride != 0 ? d->x_scale_word_stride : mmla_round_up_i64(args->n_tokens, 4);
    const int64_t group =
        d->x_scale_group_stride != 0 ? d->x_scale_group_stride : MMLA_PROJECT_SCALE_WORDS * word;
    return (mmla_project_scale_strides){4, 4 * group, 4 * word};
}

/* Scale byte i (of dims 32 i .. 32 i + 31) of token t in group g. */
static inline uint8_t mmla_project_x_scale(
    const mmla_project_args *args, mmla_project_scale_strides s, int64_t t, int64_t g, int i) {
    const uint8_t *bytes = (const uint8_t *)args->x_scale;
    return bytes[t * s.token + g * s.group + (i / 4) * s.word + i % 4];
}

#endif
