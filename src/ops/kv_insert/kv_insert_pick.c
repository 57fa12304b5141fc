/* kv_insert_pick.c - the list of implementations, from kv_insert_variants.inc. */
#include "base/cpu.h"
#include "ops/kv_insert/kv_insert.h"

#define VARIANT(name, device, features, by_name_only, workspace_bytes, run, prepare) \
    static const mmla_kv_insert_impl impl_##name = {                                 \
        {"kv_insert", #name, device, features, NULL, by_name_only, prepare},         \
        workspace_bytes,                                                             \
        run};
#include "ops/kv_insert/kv_insert_variants.inc"
#undef VARIANT

static const mmla_impl *const list[] = {
#define VARIANT(name, device, features, by_name_only, workspace_bytes, run, prepare) \
    &impl_##name.base,
#include "ops/kv_insert/kv_insert_variants.inc"
#undef VARIANT
};

const mmla_impl *const *mmla_kv_insert_list(size_t *n) {
    *n = sizeof list / sizeof list[0];
    return list;
}
