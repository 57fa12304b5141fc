/* check_attend_large.c - the fused call at sizes where 16 and 32 bits end, and at size zero.
 *
 *   nothing      no token, every pointer NULL: success
 *   far pages    both caches so sparse that their last pages begin beyond 2^31 bytes: few pages far
 *                apart, or thousands with a stride of about a million elements
 *   many tokens  65,536 and 70,000 of them, more than a grid's second dimension or a uint16 holds
 *   gaps         tokens with several blocks of keys, few keys and none, in a mix: whoever takes one
 *                after the other must not lose count
 *
 * Many tokens and gaps need no large reference: the inputs repeat every PERIOD tokens, so every token must
 * have the bytes of its counterpart in the first period, and those are run again as a small batch,
 * which the suite of attend compares with the reference.
 */
#include <stdio.h>
#include <string.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_attend_compare.h"

enum { POISON = 0x5A, PERIOD = 331 };
enum {
    NOTHING,
    FAR_NEW,
    FAR_OLD,
    FAR_MANY,
    TOKENS_65536,
    TOKENS_70000,
    GAPS,
    CASES,
    QUICK_CASES = 2
};

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
        device_call call = {.ctx = s->many};
        status = device_call_attend(&call, plan, &d, &(mmla_attend_args){0});
    }
    if (status != MMLA_OK || s->options.corrupt) {
        check_verdict_fail(&verdict, "no token: %s", mmla_status_name(status));
    }
    mmla_attend_plan_destroy(plan);
    check_session_record(s, op, name, false, idx, "no token, no pointer", &verdict);
}

/* [n_tokens, token_bytes] that repeats the PERIOD tokens of an input, which it replaces. */
static const void *repeat(check_buffer *input, int64_t n_tokens) {
    const int64_t token_bytes = input->bytes / PERIOD;
    check_buffer longer = check_buffer_create(n_tokens * token_bytes, 16, 0xFF);
    for (int64_t t = 0; t < n_tokens; t++) {
        memcpy(longer.data + t * token_bytes, input->data + t % PERIOD * token_bytes,
               (size_t)token_bytes);
    }
    check_buffer_destroy(input);
    *input = longer;
    return longer.data;
}

static mmla_status run_plan(const check_session *s,
                            const mmla_attend_desc *d,
                            mmla_attend_args args,
                            check_attend_buffers *b,
                            check_verdict *verdict,
                            mmla_error *err) {
    mmla_attend_plan *plan;
    mmla_status status = mmla_attend_plan_create(s->many, d, &plan, err);
    if (status == MMLA_OK) {
        const device_options staging = check_session_staging(s, false, 0);
        device_call call = {.ctx = s->many,
                            .options = &staging,
                            .workspace_bytes = mmla_attend_workspace_bytes(plan)};
        args.out = b->out.data;
        args.out_scale = b->out_scale.data;
        args.lse = (float *)b->lse.data;
        args.max_logits = (float *)b->max_logits.data;
        args.error = err;
        status = device_call_attend(&call, plan, d, &args);
        check_verdict_damage(verdict, &call);
    }
    mmla_attend_plan_destroy(plan);
    return status;
}

/* Every period of a whole result holds the bytes of the small one. */
static void compare_periods(const check_buffer *whole,
                            const check_buffer *small,
                            int64_t n_tokens,
                            const char *what,
                            check_verdict *verdict) {
    const int64_t token_bytes = whole->bytes / n_tokens;
    for (int64_t t = 0; t < n_tokens; t++) {
        if (memcmp(whole->data + t * token_bytes, small->data + t % PERIOD * token_bytes,
                   (size_t)token_bytes) != 0) {
            check_verdict_fail(verdict, "%s of token %lld of %lld differs from token %lld alone",
                               what, (long long)t, (long long)n_tokens, (long long)(t % PERIOD));
            return;
        }
    }
}

/* Runs of tokens with 0, 1 or `width` keys, of one to nine each. */
static const void *gaps(check_attend_case *c, int32_t width, check_rng *rng) {
    check_buffer_destroy(&c->lens);
    c->lens = check_buffer_create(PERIOD * (int64_t)sizeof(int32_t), 4, 0xFF);
    int32_t *lens = (int32_t *)c->lens.data;
    for (int64_t t = 0; t < PERIOD;) {
        const int32_t kind = (int32_t)check_rng_below(rng, 3);
        for (int64_t n = 1 + check_rng_below(rng, 9); n > 0 && t < PERIOD; n--) {
            lens[t++] = kind == 2 ? width : kind;
        }
    }
    return lens;
}

static void
run_many_tokens(check_session *s, const char *name, int64_t idx, int64_t n_tokens, int32_t width) {
    check_rng rng = check_rng_at(s->options.seed, 0x6D616E79, 0);
    const check_attend_wish wish = {.kind = MMLA_ATTEND_PAGED,
                                    .n_heads = 8,
                                    .n_tokens = PERIOD,
                                    .width = width,
                                    .window = MMLA_KV_V41_FP8,
                                    .page_tokens = 64,
                                    .out_form = MMLA_OUT_FP8,
                                    .plain = true};
    check_attend_case c = check_attend_case_wish(s, &wish, &rng);
    if (idx == GAPS) {
        c.args.lens = gaps(&c, width, &rng);
    }
    check_verdict verdict = {0};
    mmla_attend_desc d = c.desc;
    d.implementation = name;
    d.max_tokens = n_tokens;
    d.batch_invariant = 1; /* else a GPU may divide a token's keys by the size of the batch */
    check_attend_buffers small = check_attend_buffers_create(&d, PERIOD, POISON);
    check_attend_buffers whole = check_attend_buffers_create(&d, n_tokens, POISON);
    mmla_error err = {0};
    mmla_status status = run_plan(s, &d, c.args, &small, &verdict, &err);
    if (status == MMLA_OK) {
        c.args.n_tokens = n_tokens;
        c.args.q = repeat(&c.q, n_tokens);
        c.args.positions = repeat(&c.positions, n_tokens);
        c.args.list = repeat(&c.list, n_tokens);
        if (idx == GAPS) {
            c.args.lens = repeat(&c.lens, n_tokens);
        }
        status = run_plan(s, &d, c.args, &whole, &verdict, &err);
    }
    if (status != MMLA_OK) {
        check_verdict_fail(&verdict, "%s: %s", mmla_status_name(status), err.message);
    }
    check_session_corrupt(s, whole.out.data, whole.out.bytes);
    check_attend_buffers_check(&whole, &d, n_tokens, POISON, &verdict);
    compare_periods(&whole.out, &small.out, n_tokens, "out", &verdict);
    compare_periods(&whole.out_scale, &small.out_scale, n_tokens, "out_scale", &verdict);
    compare_periods(&whole.lse, &small.lse, n_tokens, "lse", &verdict);
    compare_periods(&whole.max_logits, &small.max_logits, n_tokens, "max_logits", &verdict);
    snprintf(c.shape, sizeof c.shape, "%lld tokens, heads=8, width=%d%s", (long long)n_tokens,
             width, idx == GAPS ? ", gaps" : "");
    check_session_record(s, op, name, false, idx, c.shape, &verdict);
    check_attend_buffers_destroy(&small);
    check_attend_buffers_destroy(&whole);
    check_attend_case_destroy(&c);
}

static check_attend_case draw_far_pages(check_session *s, int64_t idx) {
    const bool many = idx == FAR_MANY, old = idx == FAR_OLD;
    check_rng rng = check_rng_at(s->options.seed, 0x666172, (uint64_t)idx);
    const check_attend_wish wish = {.kind = MMLA_ATTEND_PAGED,
                                    .n_heads = 16,
                                    .n_tokens = 3,
                                    .width = 128,
                                    .compressed_width = 512,
                                    .window = old ? MMLA_KV_V4 : MMLA_KV_V41_FP8,
                                    .compressed = old ? MMLA_KV_V4 : MMLA_KV_V41_FP4,
                                    .page_tokens = 64,
                                    .compressed_page_tokens = 61,
                                    .stride = many ? CHECK_STRIDE_MILLION : CHECK_STRIDE_FAR,
                                    .n_pages = many ? 2200 : 40,
                                    .sink = true};
    return check_attend_case_wish(s, &wish, &rng);
}

static void run_far_pages(
    check_session *s, const char *const *names, int n_names, check_attend_case *c, int64_t idx) {
    check_attend_result got, want;
    check_verdict reference = {0};
    const check_attend_call call = {.ctx = s->host,
                                    .implementation = "reference",
                                    .n_tokens = c->args.n_tokens,
                                    .poison = POISON};
    const bool has_want = check_attend_call_run(&call, c, &want, &reference) && want.bytes != NULL;
    for (int i = 0; i < n_names; i++) {
        check_verdict verdict = has_want ? (check_verdict){0} : reference;
        check_attend_call mine = call;
        mine.ctx = strcmp(names[i], "reference") == 0 ? s->host : s->many;
        mine.implementation = names[i];
        mine.corrupt = s->options.corrupt;
        mine.staging = check_session_staging(s, false, idx);
        if (!check_attend_call_run(&mine, c, &got, &verdict)) {
            check_session_refuse(s, op, names[i]);
            continue;
        }
        if (has_want && got.bytes != NULL) {
            c->out_tolerance.add =
                check_attend_probability_error(names[i], check_attend_largest_key(c));
            check_attend_compare(c, 0, &got, &want, &verdict);
        }
        check_session_record(s, op, names[i], false, idx, c->shape, &verdict);
        check_attend_result_destroy(&got);
    }
    check_attend_result_destroy(&want);
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "attend", names);
    if (s->options.copies && idx != NOTHING) {
        return; /* copies in host memory would take gigabytes of it */
    }
    if (idx == FAR_NEW || idx == FAR_OLD || idx == FAR_MANY) {
        check_attend_case c = draw_far_pages(s, idx);
        run_far_pages(s, names, n, &c, idx);
        check_attend_case_destroy(&c);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (idx == NOTHING) {
            run_nothing(s, names[i], idx);
        } else if (idx == TOKENS_65536) {
            run_many_tokens(s, names[i], idx, 65536, 2);
        } else if (idx == GAPS) {
            run_many_tokens(s, names[i], idx, 4000, 150);
        } else if (strcmp(names[i], "reference") != 0) { /* once is enough for the slowest */
            run_many_tokens(s, names[i], idx, 70000, 2);
        }
    }
}

const check_suite check_suite_attend_large = {.name = "attend_large",
                                              .op = "attend",
                                              .n_quick = QUICK_CASES,
                                              .n_full = CASES,
                                              .run = run_case};
