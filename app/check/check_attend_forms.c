/* check_attend_forms.c - the same call with every layout at its plainest.
 *
 * The implementations share what they know of layouts with the reference. So that a mistake in
 * there shows, some cases are run once more by the reference with q in standard order and plain
 * bf16 out, laid out by this file, and every implementation's values are compared with those.
 * Casting to FP8 moves a value by a sixteenth of itself at most, which the tolerance holds.
 */
#include "app/check/check_attend_compare.h"

enum { D = MMLA_LATENT_DIM, POISON = 0x5A };

/* q of a fused case, back in standard order: [T, H * 512] without gaps. */
static check_buffer standard_q(const check_attend_case *c) {
    const int64_t h_count = c->desc.n_heads, width = h_count * D;
    check_buffer q = check_buffer_create(c->args.n_tokens * width * 2, 16, 0xFF);
    for (int64_t t = 0; t < c->args.n_tokens; t++) {
        const uint16_t *from = c->args.q + t * c->desc.q_token_stride;
        uint16_t *to = (uint16_t *)q.data + t * width;
        for (int64_t i = 0; i < width; i++) { /* chunks of 16 dims, heads inside, dims inside */
            const int64_t chunk = i / (16 * h_count), h = i / 16 % h_count;
            to[h * D + chunk * 16 + i % 16] = from[i];
        }
    }
    return q;
}

bool check_attend_plain_run(mmla_context *ctx,
                            const check_attend_case *c,
                            check_attend_result *result,
                            check_verdict *verdict) {
    check_attend_case plain = *c;
    check_buffer q = {0};
    plain.desc.out_form = MMLA_OUT_BF16;
    plain.desc.out_scale_word_stride = plain.desc.out_scale_group_stride = 0;
    if (c->desc.q_layout == MMLA_Q_FUSED) {
        q = standard_q(c);
        plain.desc.q_layout = MMLA_Q_STANDARD;
        plain.desc.q_token_stride = c->desc.n_heads * D;
        plain.args.q = (const uint16_t *)q.data;
    }
    const check_attend_call call = {
        .ctx = ctx, .implementation = "reference", .n_tokens = c->args.n_tokens, .poison = POISON};
    const bool ran = check_attend_call_run(&call, &plain, result, verdict);
    check_buffer_destroy(&q);
    return ran && result->bytes != NULL;
}

void check_attend_compare_plain(const check_attend_case *c,
                                const check_attend_result *got,
                                const check_attend_result *want,
                                check_verdict *verdict) {
    check_near out = check_near_begin(c->out_tolerance), lse = check_near_begin(c->lse_tolerance);
    for (int64_t t = 0; t < got->n_tokens; t++) {
        if (c->tokens[t] != CHECK_TOKEN_WILD) {
            const int64_t h = c->desc.n_heads, at = t * h * D;
            check_near_add(&out, got->out + at, want->out + at, h * D, at);
            check_near_add(&lse, got->lse + t * h, want->lse + t * h, h, t * h);
        }
    }
    if (!(check_near_used(&out) <= 1.0) || !(check_near_used(&lse) <= 1.0)) {
        check_verdict_fail(verdict,
                           "differs from a call with standard q and bf16 out: a layout is wrong; "
                           "first at element %lld of out, cosine distance %.2e",
                           (long long)out.worst_at, check_near_cosine(&out));
    }
}
