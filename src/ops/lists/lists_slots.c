/* lists_slots.c - where a token's compressed record goes, and where its ring row goes. */
#include "ops/lists/lists.h"

/* A record belongs to the last token of its group. The test is on the remainder and not on pos + 1,
 * which overflows at the largest position. */
int64_t mmla_lists_compressed_slot(const mmla_lists_problem *p,
                                   const mmla_list_args *args,
                                   const mmla_lists_token *token) {
    const int64_t ratio = p->desc.ratio;
    if (token->pos % ratio != ratio - 1) {
        return -1;
    }
    const int32_t *pages = args->block_table + token->request * p->desc.table_stride;
    return mmla_kv_table_slot(&p->table, pages, token->pos / ratio);
}

/* Ring 0 is the null page that requests without a ring point at; nothing is ever stored there. */
int64_t mmla_lists_ring_slot(const mmla_lists_problem *p,
                             const mmla_list_args *args,
                             const mmla_lists_token *token) {
    const int64_t ring = args->ring_blocks[token->request];
    if (ring <= 0 || ring >= p->table.n_pages) {
        return -1;
    }
    return ring * p->table.page_tokens + token->pos % p->table.page_tokens;
}
