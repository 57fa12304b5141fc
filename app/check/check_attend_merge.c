/* check_attend_merge.c - keys split in two, attended to apart, joined: the same as all at once.
 *
 * The case of the fused call is taken as it is. A paged one with a compressed cache splits into its
 * two caches; any other into the two halves of its list.
 */
#include <math.h>
#include <stdlib.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_attend_compare.h"

enum { POISON = 0x5A };

/* A copy of the case with half of the keys, bf16 out and no sink. Shares the case's memory, but for
 * `lens`, which is the caller's to free. */
static check_attend_case half_of(const check_attend_case *c, bool second, int32_t **lens) {
    check_attend_case half = *c;
    half.desc.out_form = MMLA_OUT_BF16;
    half.desc.out_scale_word_stride = half.desc.out_scale_group_stride = 0;
    half.args.sink = NULL;
    *lens = NULL;
    if (c->desc.compressed.format != MMLA_KV_NONE) {
        half.desc.compressed = (mmla_cache_desc){0};
        half.desc.compressed_width = 0;
        half.desc.compressed_stride = 0;
        half.args.compressed_cache = NULL;
        half.args.compressed_list = half.args.compressed_lens = NULL;
        if (second) { /* the compressed cache alone, as if it were the window's */
            half.desc.window = c->desc.compressed;
            half.desc.list_width = c->desc.compressed_width;
            half.desc.list_stride = c->desc.compressed_stride;
            half.args.window_cache = c->args.compressed_cache;
            half.args.list = c->args.compressed_list;
            half.args.lens = c->args.compressed_lens;
        }
        return half;
    }
    const int32_t width = c->desc.list_width, first = (width + 1) / 2;
    half.desc.list_width = second && width > 1 ? width - first : first;
    half.args.list += second && width > 1 ? first : 0;
    *lens = check_alloc(c->args.n_tokens * 4);
    for (int64_t t = 0; t < c->args.n_tokens; t++) {
        const int32_t length =
            c->args.lens != NULL && c->args.lens[t] < width ? c->args.lens[t] : width;
        (*lens)[t] = !second ? length : width > 1 && length > first ? length - first : 0;
    }
    half.args.lens = *lens;
    return half;
}

/* The tokens a half may call NaN are the whole's; which half holds the row is not known. */
static bool run_half(check_session *s,
                     const check_attend_case *c,
                     bool second,
                     check_attend_result *result,
                     check_verdict *verdict) {
    int32_t *lens;
    const check_attend_case half = half_of(c, second, &lens);
    const check_attend_call call = {.ctx = s->host,
                                    .implementation = "reference", /* merge is what is tried */
                                    .n_tokens = c->args.n_tokens,
                                    .poison = POISON};
    const bool ran = check_attend_call_run(&call, &half, result, verdict);
    free(lens);
    return ran && result->bytes != NULL;
}

static uint16_t *
bf16_rows(const check_attend_case *c, const check_attend_result *r, check_buffer *b) {
    const int64_t token = check_attend_cast_bytes(
        &(mmla_attend_desc){.n_heads = c->desc.n_heads, .out_form = MMLA_OUT_BF16});
    *b = check_buffer_create(r->n_tokens * token, 16, 0xFF);
    for (int64_t t = 0; t < r->n_tokens; t++) {
        for (int64_t i = 0; i < token; i++) {
            b->data[t * token + i] = r->bytes[t * r->token_bytes + i];
        }
    }
    return (uint16_t *)b->data;
}

/* Joins the halves. max_logits is no result of merge: it is taken from the reference, so that the
 * comparison looks at everything else. */
static check_attend_result merge(check_session *s,
                                 const check_attend_case *c,
                                 int64_t idx,
                                 const check_attend_result halves[2],
                                 const check_attend_result *want,
                                 check_verdict *verdict) {
    const int64_t n = c->args.n_tokens;
    check_buffer rows[2];
    check_attend_buffers b = check_attend_buffers_create(&c->desc, n, POISON);
    mmla_error err = {0};
    const mmla_attend_merge_args args = {.n_tokens = n,
                                         .n_heads = c->desc.n_heads,
                                         .out_form = c->desc.out_form,
                                         .out_scale_word_stride = c->desc.out_scale_word_stride,
                                         .out_scale_group_stride = c->desc.out_scale_group_stride,
                                         .out_a = bf16_rows(c, &halves[0], &rows[0]),
                                         .lse_a = halves[0].lse,
                                         .out_b = bf16_rows(c, &halves[1], &rows[1]),
                                         .lse_b = halves[1].lse,
                                         .sink = c->args.sink,
                                         .out = b.out.data,
                                         .out_scale = b.out_scale.data,
                                         .lse = (float *)b.lse.data};
    const bool other = idx % 2 == 1;
    const device_options staging = check_session_staging(s, other, idx);
    device_call call = {.ctx = other ? s->other : s->many, .options = &staging};
    const mmla_status status = device_call_merge(&call, &args, &err);
    check_verdict_damage(verdict, &call);
    if (status != MMLA_OK) {
        check_verdict_fail(verdict, "merge returned %s: %s", mmla_status_name(status), err.message);
    }
    check_attend_buffers_check(&b, &c->desc, n, POISON, verdict);
    check_session_corrupt(s, b.lse.data, b.lse.bytes);
    for (int64_t i = 0; i < n * c->desc.n_heads; i++) {
        ((float *)b.max_logits.data)[i] = want->max_logits[i];
    }
    check_attend_result result = check_attend_result_create(&b, &c->desc, n);
    check_attend_buffers_destroy(&b);
    check_buffer_destroy(&rows[0]);
    check_buffer_destroy(&rows[1]);
    return result;
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX]; /* one, which plans need not be told */
    if (check_session_implementations(s, NULL, names) == 0) {
        return;
    }
    check_attend_case c = check_attend_case_create(s, idx);
    check_attend_result halves[2] = {0}, want = {0};
    check_verdict verdict = {0};
    const check_attend_call whole = {.ctx = s->host,
                                     .implementation = "reference",
                                     .n_tokens = c.args.n_tokens,
                                     .poison = POISON};
    const bool ran = run_half(s, &c, false, &halves[0], &verdict) &&
                     run_half(s, &c, true, &halves[1], &verdict) &&
                     check_attend_call_run(&whole, &c, &want, &verdict);
    if (ran && want.bytes != NULL) {
        check_attend_result merged = merge(s, &c, idx, halves, &want, &verdict);
        /* Each part was rounded to bf16 once, and the weights of the two sum to 1. */
        c.out_tolerance.add = 0x1p-9 * fmax(check_attend_largest(&c, &halves[0]),
                                            check_attend_largest(&c, &halves[1]));
        check_attend_compare(&c, 0, &merged, &want, &verdict);
        check_attend_result_destroy(&merged);
    } else {
        check_verdict_fail(&verdict, "a part was refused");
    }
    check_session_record(s, "merge", names[0], false, idx, c.shape, &verdict);
    check_attend_result_destroy(&halves[0]);
    check_attend_result_destroy(&halves[1]);
    check_attend_result_destroy(&want);
    check_attend_case_destroy(&c);
}

const check_suite check_suite_merge = {"merge", NULL, 25, 150, run_case, false};
