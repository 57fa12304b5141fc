/* project_wide_tokens.cuh - a table of tokens' scales: a warp makes those of some tokens at a time, several lanes a token.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_TOKENS_CUH
#define MMLA_OPS_PROJECT_WIDE_TOKENS_CUH

#include "ops/project/project_wide.cuh"
#include "ops/project/project_wide_rows.cuh"

enum {
    WORDS = MMLA_PROJECT_SCALES / 4,
    WORDS_MOST = 8, /* of a lane */
    SEGMENT_WORDS = MMLA_PROJECT_WG_SCALES / 4
};

/* A lane's share of a token's scale bytes. Several lanes have a token: as many as a warp has for 32 / lanes tokens. */
typedef struct token_share {
    project_row row;
    uint32_t words[WORDS_MOST];
} token_share;

DEVICE int32_t share_token(const int32_t lanes) {
    return (int32_t)threadIdx.x % MMLA_PROJECT_WARP / lanes;
}

/* Asks for that of token first + share_token(). The call's last token stands in for one that does not exist, so that
 * there is something to read. */
DEVICE void share_ask(const mmla_project_wide_params *p,
                      token_share *s,
                      const mmla_project_tile *tile,
                      int32_t first,
                      const int32_t lanes,
                      const int32_t n) {
    const int32_t words = WORDS / lanes;
    const int64_t token = tile->token + first + share_token(lanes), last = p->p.n_tokens - 1;
    mmla_project_tile own = *tile; /* that begins with the token, and may have had none */
    own.token = token < last ? token : last;
    own.n_tokens = 1;
    s->row = project_row_get(&p->p, &own, n, n);
    const int64_t stride = s->row.word_stride;
    const uint8_t *at = s->row.scales + threadIdx.x % lanes * words * stride;
    if (s->row.in_words) {
#pragma unroll
        for (int32_t k = 0; k < words; k++, at += stride) {
            s->words[k] = gpu_load4(at);
        }
    } else { /* rare: small instead of fast */
#pragma unroll 1
        for (int32_t k = 0; k < words; k++, at += stride) {
#pragma unroll
            for (int32_t i = 0; i < words - 1; i++) {
                s->words[i] = s->words[i + 1];
            }
            s->words[words - 1] = project_bytes_load(at);
        }
    }
}

/* Exponents of a segment's words to the table, by halves of steps, as the multiplying warps read them. */
DEVICE void exponents_write(uint8_t *to, const uint32_t *words, const mmla_project_wide_row *row) {
    uint32_t e[SEGMENT_WORDS], halves[SEGMENT_WORDS];
#pragma unroll
    for (int32_t i = 0; i < SEGMENT_WORDS; i++) {
        e[i] = row->is_plain ? mmla_project_wide_exponents_plain(words[i], row->base)
                             : mmla_project_wide_exponents(words[i], row->base);
    }
    mmla_project_wg_exponents_by_half(e, halves);
#pragma unroll
    for (int32_t i = 0; i < SEGMENT_WORDS; i++) {
        ((uint32_t *)to)[i] = halves[i];
    }
}

/* The lane's share of the token's exponents, its factor, and whether it is odd, which it returns. By all lanes of a
 * warp. */
DEVICE bool share_write(const wide_smem *smem,
                        const token_share *s,
                        const mmla_project_tile *tile,
                        int32_t first,
                        int32_t table,
                        const int32_t lanes,
                        const int32_t n) {
    const int32_t token = first + share_token(lanes), segments = WORDS / lanes / SEGMENT_WORDS;
    project_wide_range range = project_wide_range_none();
    project_wide_range_add(&range, s->words, WORDS / lanes);
    const mmla_project_wide_row row =
        project_wide_row_get(&s->row, range, lanes, 0, MMLA_PROJECT_SCALES);
    const bool is_odd = row.is_odd && token < tile->n_tokens;
    uint8_t *to = smem->exponents + (table * TOKENS + token) * TABLE_PITCH +
                  (int32_t)threadIdx.x % lanes * segments * MMLA_PROJECT_WG_SCALES;
#pragma unroll
    for (int32_t i = 0; i < segments; i++) {
        exponents_write(to + i * MMLA_PROJECT_WG_SCALES, s->words + i * SEGMENT_WORDS, &row);
    }
    if (threadIdx.x % lanes == 0) {
        smem->factors[table * (n + TOKENS) + n + token] = row.factor;
        smem->state[table * (n + TOKENS) + n + token] = is_odd ? PROJECT_ODD : 0;
    }
    return is_odd;
}

#endif
