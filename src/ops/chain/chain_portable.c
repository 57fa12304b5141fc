/* chain_portable.c - the workspace, and the four steps by number. */
#include "base/checked.h"
#include "ops/chain/chain.h"

enum { PART_ALIGNMENT = 64 };

/* *out = a * b rounded up to a part's alignment. */
static bool part_bytes(int64_t a, int64_t b, int64_t *out) {
    int64_t bytes;
    if (!mmla_mul_i64(a, b, &bytes) || bytes > INT64_MAX - PART_ALIGNMENT) {
        return false;
    }
    *out = mmla_round_up_i64(bytes, PART_ALIGNMENT);
    return true;
}

bool mmla_chain_layout_init(const mmla_attend_problem *p, mmla_chain_layout *layout) {
    const mmla_attend_desc *d = &p->desc;
    const bool two_lists = d->kind == MMLA_ATTEND_PAGED && d->compressed.format != MMLA_KV_NONE;
    const int64_t row_bytes = MMLA_LATENT_DIM * (int64_t)sizeof(uint16_t);
    mmla_chain_layout l = {.max_keys =
                               (int64_t)d->list_width + (two_lists ? d->compressed_width : 0)};
    int64_t scores_bytes, scratch_bytes;
    const bool fits = part_bytes(l.max_keys, sizeof(mmla_key), &l.keys_bytes) &&
                      part_bytes(l.max_keys, row_bytes, &l.rows_bytes) &&
                      part_bytes(l.max_keys, MMLA_HEADS_PER_GROUP * sizeof(float), &scores_bytes) &&
                      mmla_add_i64(l.keys_bytes, l.rows_bytes, &l.thread_bytes) &&
                      mmla_add_i64(l.thread_bytes, scores_bytes, &l.thread_bytes) &&
                      mmla_mul_i64(l.thread_bytes, p->n_threads, &scratch_bytes) &&
                      part_bytes(d->max_tokens, d->n_heads * row_bytes, &l.tensor_bytes) &&
                      mmla_add_i64(l.tensor_bytes, l.tensor_bytes, &l.total_bytes) &&
                      mmla_add_i64(l.total_bytes, scratch_bytes, &l.total_bytes);
    *layout = l;
    return fits;
}

mmla_status mmla_chain_portable(const mmla_attend_problem *p,
                                const mmla_chain_layout *layout,
                                mmla_chain_step step,
                                const mmla_attend_args *args,
                                void *workspace,
                                void *stream) {
    (void)stream;
    uint8_t *base = workspace;
    uint16_t *q = workspace;
    uint16_t *o = (uint16_t *)(void *)(base + layout->tensor_bytes);
    switch (step) {
    case MMLA_CHAIN_ROPE_Q:
        mmla_chain_rope_q(p, args, q);
        return mmla_attend_report_positions(p, args); /* once; the later steps only carry NaN */
    case MMLA_CHAIN_ATTEND:
        mmla_chain_attend(p, layout, args, q, o, base + 2 * layout->tensor_bytes);
        return MMLA_OK;
    case MMLA_CHAIN_UNROPE:
        mmla_chain_unrope(p, args, o);
        return MMLA_OK;
    case MMLA_CHAIN_QUANTISE:
        mmla_chain_quantise(p, args, o);
        return MMLA_OK;
    }
    return MMLA_E_VALUE;
}
