/* lists_compressed.c - the picked records of a token: positions of the compressed cache to slots.
 *
 * A reader takes the length as a prefix while an indexer's output may have holes, so holes close up
 * here: the count of valid entries is then also the length that covers them.
 */
#include "ops/lists/lists.h"

int64_t mmla_lists_compressed_row(const mmla_lists_problem *p,
                                  const mmla_list_args *args,
                                  const mmla_lists_token *token,
                                  int32_t *row) {
    const int32_t *picked = args->topk + token->idx * p->desc.topk_stride;
    const int32_t *pages = args->block_table + token->request * p->desc.table_stride;
    int64_t n = 0;
    for (int32_t k = 0; k < p->desc.topk_width; k++) {
        const int64_t slot = mmla_kv_table_slot(&p->table, pages, picked[k]);
        if (slot >= 0) {
            row[n++] = (int32_t)slot;
        }
    }
    return n;
}
