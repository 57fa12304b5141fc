/* implementations.c - one numbering over the lists of all operations. */
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"
#include "base/impl.h"
#include "ops/attend/attend.h"
#include "ops/chain/chain.h"
#include "ops/kv_gather/kv_gather.h"
#include "ops/kv_insert/kv_insert.h"
#include "ops/lists/lists.h"
#include "ops/project/project.h"
#include "ops/weights/weights.h"

typedef const mmla_impl *const *(*list_fn)(size_t *n);

static const list_fn lists[] = {
    mmla_attend_list, mmla_chain_list,   mmla_kv_gather_list, mmla_kv_insert_list,
    mmla_lists_list,  mmla_project_list, mmla_weights_list,
};

enum { N_LISTS = sizeof lists / sizeof lists[0] };

int32_t mmla_implementation_count(const mmla_context *ctx) {
    (void)ctx; /* what is held does not depend on the device, only what is available */
    size_t count = 0;
    for (int i = 0; i < N_LISTS; i++) {
        size_t n;
        lists[i](&n);
        count += n;
    }
    return (int32_t)count;
}

mmla_status mmla_implementation_get(const mmla_context *ctx,
                                    int32_t idx,
                                    mmla_implementation *out,
                                    mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "ctx", ctx, 1));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "out", out, 1));
    size_t left = idx < 0 ? SIZE_MAX : (size_t)idx; /* SIZE_MAX is in no list */
    for (int i = 0; i < N_LISTS; i++) {
        size_t n;
        const mmla_impl *const *list = lists[i](&n);
        if (left < n) {
            const char *reason = mmla_impl_unavailable(ctx, list[left]);
            *out = (mmla_implementation){
                .op = list[left]->op,
                .name = list[left]->name,
                .device = list[left]->device,
                .available = reason[0] == '\0',
                .reason = reason,
                .by_name_only = list[left]->by_name_only,
            };
            return MMLA_OK;
        }
        left -= n;
    }
    return mmla_error_set(err, MMLA_E_VALUE, "idx", "is %d, must be 0 .. %d", (int)idx,
                          (int)mmla_implementation_count(ctx) - 1);
}
