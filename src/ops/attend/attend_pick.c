/* attend_pick.c - the list of implementations, from attend_variants.inc. */
#include "base/cpu.h"
#include "base/gpu.h"
#include "ops/attend/attend.h"
#if defined(MMLA_HAVE_CUDA)
#include "gpu/attend_wgmma.h"
#endif

#if defined(__x86_64__)
/* With 16 lanes, 8 heads would leave half of every vector empty; two 8-lane vectors a cycle do not.
 */
static bool wide_vectors_pay(const void *problem) {
    const mmla_attend_problem *p = problem;
    return p->desc.n_heads >= 16;
}
#endif

#define VARIANT(name, device, features, prefers, by_name_only, function, prepare) \
    static const mmla_attend_impl impl_##name = {                                 \
        {"attend", #name, device, features, prefers, by_name_only, prepare},      \
        mmla_attend_##function##_workspace_bytes,                                 \
        mmla_attend_##function};
#include "ops/attend/attend_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, prefers, by_name_only, function, prepare) &impl_##name.base,
#include "ops/attend/attend_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_attend_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
