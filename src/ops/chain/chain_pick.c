/* chain_pick.c - the list of implementations, from chain_variants.inc. */
#include "base/cpu.h"
#include "ops/chain/chain.h"

#define VARIANT(name, device, features, by_name_only, layout, run_step, prepare) \
    static const mmla_chain_impl impl_##name = {                                 \
        {"chain", #name, device, features, NULL, by_name_only, prepare}, layout, run_step};
#include "ops/chain/chain_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, layout, run_step, prepare) &impl_##name.base,
#include "ops/chain/chain_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_chain_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
