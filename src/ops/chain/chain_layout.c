#include "ops/chain/chain_layout.h"

#include "base/check.h"
#include "base/checked.h"

/* *end = begin + a * b rounded up to where the next part may begin. */
static bool add_part(int64_t begin, int64_t a, int64_t b, int64_t *end) {
    int64_t bytes;
    if (!mmla_mul_i64(a, b, &bytes) || bytes > INT64_MAX - MMLA_WORKSPACE_ALIGNMENT) {
        return false;
    }
    return mmla_add_i64(begin, mmla_round_up_i64(bytes, MMLA_WORKSPACE_ALIGNMENT), end);
}

bool mmla_chain_layout_init(const mmla_attend_problem *p,
                            int64_t scratch_bytes,
                            int64_t n,
                            mmla_chain_layout *layout) {
    const mmla_attend_desc *d = &p->desc;
    const int64_t token_bytes = d->n_heads * (MMLA_LATENT_DIM * (int64_t)sizeof(uint16_t));
    return add_part(0, d->max_tokens, token_bytes, &layout->o_off) &&
           add_part(layout->o_off, d->max_tokens, token_bytes, &layout->scratch_off) &&
           add_part(layout->scratch_off, scratch_bytes, n, &layout->total_bytes);
}

bool mmla_chain_layout_threads(const mmla_attend_problem *p, mmla_chain_layout *layout) {
    const mmla_attend_desc *d = &p->desc;
    const bool two_lists = d->kind == MMLA_ATTEND_PAGED && d->compressed.format != MMLA_KV_NONE;
    const int64_t row_bytes = MMLA_LATENT_DIM * (int64_t)sizeof(uint16_t);
    const int64_t max_keys = (int64_t)d->list_width + (two_lists ? d->compressed_width : 0);
    mmla_chain_layout l = {.max_keys = max_keys};
    const bool fits =
        add_part(0, max_keys, sizeof(mmla_key), &l.rows_off) &&
        add_part(l.rows_off, max_keys, row_bytes, &l.scores_off) &&
        add_part(l.scores_off, max_keys, MMLA_HEADS_PER_GROUP * sizeof(float), &l.thread_bytes) &&
        mmla_chain_layout_init(p, l.thread_bytes, p->n_threads, &l);
    *layout = l;
    return fits;
}

uint16_t *mmla_chain_q(const mmla_chain_layout *layout, void *workspace) {
    (void)layout;
    return workspace;
}

uint16_t *mmla_chain_o(const mmla_chain_layout *layout, void *workspace) {
    return (uint16_t *)(void *)((uint8_t *)workspace + layout->o_off);
}

void *mmla_chain_scratch(const mmla_chain_layout *layout, void *workspace) {
    return (uint8_t *)workspace + layout->scratch_off;
}

static uint8_t *scratch_of(const mmla_chain_layout *layout, void *workspace, int32_t thread) {
    return (uint8_t *)mmla_chain_scratch(layout, workspace) + thread * layout->thread_bytes;
}

mmla_key *mmla_chain_keys(const mmla_chain_layout *layout, void *workspace, int32_t thread) {
    return (mmla_key *)(void *)scratch_of(layout, workspace, thread);
}

uint16_t *mmla_chain_rows(const mmla_chain_layout *layout, void *workspace, int32_t thread) {
    return (uint16_t *)(void *)(scratch_of(layout, workspace, thread) + layout->rows_off);
}

float *mmla_chain_scores(const mmla_chain_layout *layout, void *workspace, int32_t thread) {
    return (float *)(void *)(scratch_of(layout, workspace, thread) + layout->scores_off);
}
