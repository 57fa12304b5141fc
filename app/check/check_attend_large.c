/* check_attend_large.c - the fused call at sizes where 16 and 32 bits end, and at size zero.
 *
 *   nothing      no token, every pointer NULL: success
 *   many tokens  65,541 of them, more than a grid's second dimension or a uint16 holds
 *   far pages    both caches so sparse that their last pages begin beyond 2^31 bytes
 *
 * Many tokens need no large reference: the inputs repeat every PERIOD tokens, so every token must
 * have the bytes of its counterpart in the first period, and those are run again as a small batch,
 * which the suite of attend compares with the reference.
 */
#include <stdio.h>
#include <string.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_attend_compare.h"

enum { POISON = 0x5A, MANY_TOKENS = 65541, PERIOD = 331 };

static const char op[] = "attend_large"; /* a line of its own in the report */

static void run_nothing(check_session *s, const char *name, int64_t idx) {
    check_verdict verdict = {0};
    mmla_attend_desc d = {.n_heads = 8,
                          .max_tokens = 4,
                          .scale = 1.0f,
                          .rope_positions = 1,
                          .list_width = 1,
                          .window = {.format = MMLA_KV_V41_FP8, .page_tokens = 1},
                          .implementation = name};
    mmla_attend_plan *plan;
    mmla_error err = {0};
    mmla_status status = mmla_attend_plan_create(s->many, &d, &plan, &err);
    if (status == MMLA_OK) {
        status = mmla_attend_run(plan, &(mmla_attend_args){0}, NULL, NULL);
    }
    if (status != MMLA_OK || s->options.corrupt) {
        check_verdict_fail(&verdict, "no token: %s", mmla_status_name(status));
    }
    mmla_attend_plan_destroy(plan);
    check_session_record(s, op, name, false, idx, "no token, no pointer", &verdict);
}

/* Repeats the first PERIOD entries of [T, width] elements through all of it. */
static void repeat(check_buffer *b, int64_t token_bytes) {
    for (int64_t t = PERIOD; t < MANY_TOKENS; t++) {
        memcpy(b->data + t * token_bytes, b->data + t % PERIOD * token_bytes, (size_t)token_bytes);
    }
}

static mmla_status run_plan(mmla_context *ctx,
                            const mmla_attend_desc *d,
                            mmla_attend_args args,
                            int64_t n_tokens,
                            check_attend_buffers *b,
                            mmla_error *err) {
    mmla_attend_plan *plan;
    mmla_status status = mmla_attend_plan_create(ctx, d, &plan, err);
    if (status == MMLA_OK) {
        check_buffer workspace =
            check_buffer_create((int64_t)mmla_attend_workspace_bytes(plan), 64, POISON);
        args.n_tokens = n_tokens;
        args.out = b->out.data;
        args.out_scale = b->out_scale.data;
        args.lse = (float *)b->lse.data;
        args.max_logits = (float *)b->max_logits.data;
        args.error = err;
        status = mmla_attend_run(plan, &args, workspace.data, NULL);
        check_buffer_destroy(&workspace);
    }
    mmla_attend_plan_destroy(plan);
    return status;
}

/* Every period of a whole result holds the bytes of the small one. */
static void compare_periods(const check_buffer *whole,
                            const check_buffer *small,
                            const char *what,
                            check_verdict *verdict) {
    const int64_t token_bytes = whole->bytes / MANY_TOKENS;
    for (int64_t t = 0; t < MANY_TOKENS; t++) {
        if (memcmp(whole->data + t * token_bytes, small->data + t % PERIOD * token_bytes,
                   (size_t)token_bytes) != 0) {
            check_verdict_fail(verdict, "%s of token %lld of %d differs from token %lld alone",
                               what, (long long)t, MANY_TOKENS, (long long)(t % PERIOD));
            return;
        }
    }
}

static void run_many_tokens(check_session *s, const char *name, int64_t idx) {
    check_rng rng = check_rng_at(s->options.seed, 0x6D616E79, 0);
    const check_attend_wish wish = {.kind = MMLA_ATTEND_PAGED,
                                    .n_heads = 8,
                                    .n_tokens = PERIOD,
                                    .width = 2,
                                    .window = MMLA_KV_V41_FP8,
                                    .page_tokens = 64,
                                    .out_form = MMLA_OUT_FP8,
                                    .plain = true};
    check_attend_case c = check_attend_case_wish(s, &wish, &rng);
    check_verdict verdict = {0};
    mmla_attend_desc d = c.desc;
    d.implementation = name;
    d.max_tokens = MANY_TOKENS;
    check_attend_buffers small = check_attend_buffers_create(&d, PERIOD, POISON);
    check_attend_buffers whole = check_attend_buffers_create(&d, MANY_TOKENS, POISON);
    mmla_error err = {0};
    mmla_status status = run_plan(s->many, &d, c.args, PERIOD, &small, &err);
    /* The case's own inputs are replaced by longer ones that begin like them. */
    check_buffer *const inputs[] = {&c.q, &c.positions, &c.list};
    for (int i = 0; i < 3; i++) {
        const int64_t token_bytes = inputs[i]->bytes / PERIOD;
        check_buffer longer = check_buffer_create(MANY_TOKENS * token_bytes, 16, 0xFF);
        memcpy(longer.data, inputs[i]->data, (size_t)inputs[i]->bytes);
        check_buffer_destroy(inputs[i]);
        *inputs[i] = longer;
        repeat(inputs[i], token_bytes);
    }
    c.args.q = (const uint16_t *)c.q.data;
    c.args.positions = (const int32_t *)c.positions.data;
    c.args.list = (const int32_t *)c.list.data;
    status = status == MMLA_OK ? run_plan(s->many, &d, c.args, MANY_TOKENS, &whole, &err) : status;
    if (status != MMLA_OK) {
        check_verdict_fail(&verdict, "%s: %s", mmla_status_name(status), err.message);
    }
    check_session_corrupt(s, whole.out.data, whole.out.bytes);
    check_attend_buffers_check(&whole, &d, MANY_TOKENS, POISON, &verdict);
    compare_periods(&whole.out, &small.out, "out", &verdict);
    compare_periods(&whole.out_scale, &small.out_scale, "out_scale", &verdict);
    compare_periods(&whole.lse, &small.lse, "lse", &verdict);
    compare_periods(&whole.max_logits, &small.max_logits, "max_logits", &verdict);
    check_session_record(s, op, name, false, idx, "65541 tokens, heads=8, width=2", &verdict);
    check_attend_buffers_destroy(&small);
    check_attend_buffers_destroy(&whole);
    check_attend_case_destroy(&c);
}

static void run_far_pages(check_session *s, const char *name, int64_t idx) {
    static const mmla_kv_format pairs[][2] = {{MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
                                              {MMLA_KV_V4, MMLA_KV_V4}};
    check_rng rng = check_rng_at(s->options.seed, 0x666172, (uint64_t)idx);
    const check_attend_wish wish = {.kind = MMLA_ATTEND_PAGED,
                                    .n_heads = 16,
                                    .n_tokens = 3,
                                    .width = 128,
                                    .compressed_width = 512,
                                    .window = pairs[idx % 2][0],
                                    .compressed = pairs[idx % 2][1],
                                    .page_tokens = 64,
                                    .compressed_page_tokens = 61,
                                    .stride = CHECK_STRIDE_FAR,
                                    .n_pages = 40,
                                    .sink = true};
    check_attend_case c = check_attend_case_wish(s, &wish, &rng);
    check_verdict verdict = {0};
    check_attend_result got, want;
    check_attend_call call = {.ctx = s->many,
                              .implementation = name,
                              .n_tokens = wish.n_tokens,
                              .poison = POISON,
                              .corrupt = s->options.corrupt};
    if (check_attend_call_run(&call, &c, &got, &verdict)) {
        call.implementation = "reference";
        call.corrupt = false;
        if (check_attend_call_run(&call, &c, &want, &verdict) && got.bytes != NULL &&
            want.bytes != NULL) {
            c.out_tolerance.add =
                check_attend_probability_error(name, check_attend_largest_key(&c));
            check_attend_compare(&c, 0, &got, &want, &verdict);
        }
        check_attend_result_destroy(&want);
        check_session_record(s, op, name, false, idx, c.shape, &verdict);
    } else {
        check_session_refuse(s, op, name);
    }
    check_attend_result_destroy(&got);
    check_attend_case_destroy(&c);
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "attend", names);
    for (int i = 0; i < n; i++) {
        if (idx == 0) {
            run_nothing(s, names[i], idx);
        } else if (idx == 1 || idx == 2) {
            run_far_pages(s, names[i], idx);
        } else {
            run_many_tokens(s, names[i], idx);
        }
    }
}

const check_suite check_suite_attend_large = {"attend_large", "attend", 2, 4, run_case};
