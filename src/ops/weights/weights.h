/* weights.h - contract between the plan of the weight layouts and their implementations.
 *
 * include/megamla/weights.h has the maps and the shapes, weights_map.h the maps as functions. The
 * problem below is the description with defaults filled in and everything checked; an implementation
 * trusts it and the args.
 */
#ifndef MMLA_OPS_WEIGHTS_H
#define MMLA_OPS_WEIGHTS_H

#include <megamla/weights.h>

#include "base/gpu.h"
#include "base/impl.h"

enum {
    MMLA_WEIGHTS_KINDS = MMLA_WEIGHTS_Q_TO_STANDARD + 1,
    MMLA_WEIGHTS_GROUP_SCALES = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM, /* of a wo_a row */
    MMLA_WEIGHTS_BLOCK_ROWS = 32                                     /* under one block scale */
};

typedef struct mmla_weights_problem {
    mmla_weights_desc desc; /* rows, cols and scale_cols resolved; cols of Q_*: H * 512 */
    int32_t n_threads;      /* of the CPU */
    mmla_gpu gpu;           /* of a context on a CUDA device */
} mmla_weights_problem;

typedef struct mmla_weights_impl {
    mmla_impl base; /* prefers() and prepare() take a mmla_weights_problem */
    mmla_status (*run)(const mmla_weights_problem *p, const mmla_weights_args *args, void *stream);
} mmla_weights_impl;

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    mmla_status run(const mmla_weights_problem *, const mmla_weights_args *, void *);
#include "ops/weights/weights_variants.inc"
#undef VARIANT

/* Loads the kernels of a problem's kind; with CUDA only. */
mmla_status mmla_weights_cuda_prepare(void *problem, mmla_error *err);

/* The list, in order of preference. */
const mmla_impl *const *mmla_weights_list(size_t *n);

#endif
