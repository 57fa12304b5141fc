/* attend.h - contract between the plan of attend and its implementations.
 *
 * include/megamla/attend.h has the formula and the shapes. A problem is the description with
 * defaults filled in and everything checked (kv/attend_problem.h); an implementation trusts it and
 * the args.
 */
#ifndef MMLA_OPS_ATTEND_H
#define MMLA_OPS_ATTEND_H

#include "base/impl.h"
#include "kv/attend_output.h"

typedef struct mmla_attend_impl {
    mmla_impl base; /* prefers() takes a mmla_attend_problem */
    size_t (*workspace_bytes)(const mmla_attend_problem *p);
    mmla_status (*run)(const mmla_attend_problem *p,
                       const mmla_attend_args *args,
                       void *workspace,
                       void *stream);
} mmla_attend_impl;

#define VARIANT(name, device, features, prefers, by_name_only, function, prepare)                  \
    size_t mmla_attend_##function##_workspace_bytes(const mmla_attend_problem *p);                 \
    mmla_status mmla_attend_##function(const mmla_attend_problem *p, const mmla_attend_args *args, \
                                       void *workspace, void *stream);
#include "ops/attend/attend_variants.inc"
#undef VARIANT

/* The list, in order of preference. */
const mmla_impl *const *mmla_attend_list(size_t *n);

/* mmla_attend_merge after its checks, n_tokens > 0. */
void mmla_attend_merge_parts(const mmla_attend_merge_args *args, int32_t n_threads);

#if defined(MMLA_HAVE_CUDA)
/* The same on a CUDA device, and the loading of its kernel. */
mmla_status mmla_attend_merge_gpu(const mmla_gpu *gpu,
                                  const mmla_attend_merge_args *args,
                                  void *stream,
                                  mmla_error *err);
mmla_status mmla_attend_merge_prepare(const mmla_gpu *gpu, mmla_error *err);
#endif

#endif
