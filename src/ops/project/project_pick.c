/* project_pick.c - the list of implementations, from project_variants.inc. */
#include "base/cpu.h"
#include "ops/project/project.h"
#include "ops/project/project_tile.h"

#define VARIANT(name, device, features, by_name_only, thread_bytes, run, prepare, wide_bytes, \
                widen)                                                                        \
    static const mmla_project_impl impl_##name = {                                            \
        {"project", #name, device, features, NULL, by_name_only, prepare},                    \
        thread_bytes,                                                                         \
        run,                                                                                  \
        wide_bytes,                                                                           \
        widen};
#include "ops/project/project_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, thread_bytes, run, prepare, wide_bytes, \
                widen)                                                                        \
    &impl_##name.base,
#include "ops/project/project_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_project_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
