/* lists_combined.c - one prefill token's rows of the gathered workspace.
 *
 * Rows q * M .. of the workspace belong to request q of the chunk:
 *
 *     0 .. N-1                          compressed records, by position
 *     N .. N + min(gather_len, M-N)-1   window rows of positions seq_len - gather_len ..
 *
 * A token lists its picked records first, then its window. Positions that were not gathered are
 * left out: their rows hold another step's numbers.
 */
#include "base/checked.h"
#include "ops/lists/lists.h"

/* First and last position a token wants: its window, and its image as far as that reaches out. */
typedef struct window {
    int64_t start;
    int64_t end;
} window;

static window
window_of(const mmla_lists_problem *p, const mmla_list_args *args, const mmla_lists_token *token) {
    const int64_t before = p->desc.window - 1, image = p->desc.image_tokens;
    int64_t left = 0, right = 0;
    if (image > 0) {
        left = mmla_clamp_i64(args->left[token->idx], 0, image - 1);
        right = mmla_clamp_i64(args->right[token->idx], 0, image);
    }
    const int64_t reach = before + mmla_max_i64(left - before, 0);
    return (window){token->pos - reach, token->pos + right};
}

/* Picked records of the token that lie in the workspace, to row; their number. */
static int64_t records_of(const mmla_lists_problem *p,
                          const mmla_list_args *args,
                          const mmla_lists_token *token,
                          int32_t *row) {
    if (p->desc.ratio == 0) {
        return 0;
    }
    const int64_t visible = (token->pos + 1) / p->desc.ratio;
    const int64_t n_picked = mmla_min_i64(visible, p->desc.topk);
    const int64_t base = token->request * p->desc.request_rows;
    int64_t n = 0;
    for (int64_t k = 0; k < n_picked; k++) {
        const int64_t record = args->topk[token->idx * p->desc.topk_stride + k];
        if (record >= 0 && record < p->desc.window_offset) {
            row[n++] = (int32_t)(base + record);
        }
    }
    return n;
}

int64_t mmla_lists_combined_row(const mmla_lists_problem *p,
                                const mmla_list_args *args,
                                const mmla_lists_token *token,
                                int32_t *row) {
    const int64_t n = records_of(p, args, token, row);
    /* Gathered are positions first .. first + held - 1, at most up to the sequence's end. */
    const int64_t gathered = mmla_clamp_i64(args->gather_lens[token->request], 0, token->seq_len);
    const int64_t first = token->seq_len - gathered;
    const int64_t held = mmla_min_i64(gathered, p->desc.request_rows - p->desc.window_offset);
    const window wanted = window_of(p, args, token);
    const int64_t start = mmla_max_i64(wanted.start, first);
    /* left and right come from the caller: together they may ask for more than the row holds. */
    const int64_t room = p->desc.width - n;
    const int64_t stop = mmla_min_i64(mmla_min_i64(wanted.end, first + held - 1), start + room - 1);
    const int64_t shift = token->request * p->desc.request_rows + p->desc.window_offset - first;
    for (int64_t pos = start; pos <= stop; pos++) {
        row[n + pos - start] = (int32_t)(shift + pos);
    }
    return n + mmla_max_i64(stop - start + 1, 0);
}
