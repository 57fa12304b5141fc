/* lists_window.c - the keys of the sliding window: of one token, and of a whole draft block.
 *
 * Both are runs of consecutive positions, so the block table is read once a page and not once a
 * key. A position that the table does not lead anywhere is left out and the rest closes up.
 */
#include "base/checked.h"
#include "ops/lists/lists.h"

/* Slots of positions first .. last, in order, to row; their number. */
static int64_t run_of_slots(const mmla_lists_problem *p,
                            const mmla_list_args *args,
                            int64_t request,
                            int64_t first,
                            int64_t last,
                            int32_t *row) {
    const int64_t page_tokens = p->table.page_tokens;
    const int32_t *pages = args->block_table + request * p->desc.table_stride;
    int64_t n = 0;
    for (int64_t pos = first; pos <= last;) {
        const int64_t place = pos / page_tokens;
        if (place >= p->table.width) {
            break; /* and so is every later position */
        }
        const int64_t page_first = place * page_tokens;
        const int64_t stop = mmla_min_i64(page_first + page_tokens - 1, last);
        const int64_t slot = mmla_kv_table_page_slot(&p->table, pages, place);
        if (slot >= 0) {
            for (int64_t k = pos; k <= stop; k++) {
                row[n++] = (int32_t)(slot + (k - page_first));
            }
        }
        pos = stop + 1;
    }
    return n;
}

int64_t mmla_lists_window_row(const mmla_lists_problem *p,
                              const mmla_list_args *args,
                              const mmla_lists_token *token,
                              int32_t *row) {
    const int64_t start = mmla_max_i64(token->pos - (p->desc.window - 1), 0);
    return run_of_slots(p, args, token->request, start, token->pos, row);
}

int64_t mmla_lists_draft_row(const mmla_lists_problem *p,
                             const mmla_list_args *args,
                             const mmla_lists_token *token,
                             int32_t *row) {
    const int64_t prefix = token->seq_len - token->query_len;
    const int64_t start = mmla_max_i64(prefix - p->desc.window, 0);
    const int64_t end = mmla_min_i64(token->seq_len, start + p->desc.width);
    return run_of_slots(p, args, token->request, start, end - 1, row);
}
