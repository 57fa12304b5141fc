/* lists_pick.c - the list of implementations, from lists_variants.inc. */
#include "base/cpu.h"
#include "ops/lists/lists.h"

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    static const mmla_lists_impl impl_##name = {                    \
        {"lists", #name, device, features, NULL, by_name_only, prepare}, run};
#include "ops/lists/lists_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, run, prepare) &impl_##name.base,
#include "ops/lists/lists_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_lists_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
