/* kv_gather_pick.c - the list of implementations, from kv_gather_variants.inc. */
#include "base/cpu.h"
#include "ops/kv_gather/kv_gather.h"

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    static const mmla_kv_gather_impl impl_##name = {                \
        {"kv_gather", #name, device, features, NULL, by_name_only, prepare}, run};
#include "ops/kv_gather/kv_gather_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, run, prepare) &impl_##name.base,
#include "ops/kv_gather/kv_gather_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_kv_gather_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
