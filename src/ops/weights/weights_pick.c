/* weights_pick.c - the list of implementations, from weights_variants.inc. */
#include "base/cpu.h"
#include "ops/weights/weights.h"

#define VARIANT(name, device, features, by_name_only, run, prepare) \
    static const mmla_weights_impl impl_##name = {                  \
        {"weights", #name, device, features, NULL, by_name_only, prepare}, run};
#include "ops/weights/weights_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, run, prepare) &impl_##name.base,
#include "ops/weights/weights_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_weights_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
