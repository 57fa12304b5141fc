/* check_attend.c - the suites of the fused call and of the chain that must agree with it. */
#include <string.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_attend_case.h"
#include "app/check/check_attend_compare.h"

enum { POISON_A = 0x5A, POISON_B = 0xC3 };

/* Runs one implementation in every way that must give the same bits. The result of the first run is
 * left in *result; false when the implementation does not take the description. */
static bool exercise(check_session *s,
                     const check_attend_case *c,
                     const char *implementation,
                     bool chain,
                     int64_t idx,
                     check_attend_result *result,
                     check_verdict *verdict) {
    const int64_t n = c->args.n_tokens;
    const check_attend_call whole = {.ctx = s->many,
                                     .implementation = implementation,
                                     .chain = chain,
                                     .n_tokens = n,
                                     .poison = POISON_A,
                                     .corrupt = s->options.corrupt,
                                     .staging = check_session_staging(s, false, idx)};
    if (!check_attend_call_run(&whole, c, result, verdict)) {
        return false;
    }
    const bool is_reference = strcmp(implementation, "reference") == 0;
    if (is_reference && idx % 4 != 0) {
        return true; /* it is slow, and its loops are the plainest there are */
    }
    check_attend_result other;
    /* Other poison: a byte that nobody wrote differs now, and scratch that was not set shows. */
    check_attend_call again = whole;
    again.poison = POISON_B;
    if (check_attend_call_run(&again, c, &other, verdict)) {
        check_attend_same(result, 0, &other, result->token_bytes, "in a second run", verdict);
    }
    check_attend_result_destroy(&other);
    if (is_reference) {
        return true;
    }
    check_attend_call elsewhere = again;
    elsewhere.ctx = s->other;
    elsewhere.staging = check_session_staging(s, true, idx);
    if (check_attend_call_run(&elsewhere, c, &other, verdict)) {
        check_attend_same(result, 0, &other, result->token_bytes, check_session_other(s), verdict);
    }
    check_attend_result_destroy(&other);
    if (!c->desc.batch_invariant && mmla_context_get_device(s->many).kind != MMLA_DEVICE_CPU) {
        return true; /* how a token's keys are divided may then depend on the batch */
    }
    const int64_t alone = idx % n;
    check_attend_call part = again;
    part.first = alone;
    part.n_tokens = 1;
    part.bare = true;
    if (check_attend_call_run(&part, c, &other, verdict)) {
        check_attend_same(result, alone, &other, check_attend_cast_bytes(&c->desc),
                          "when it runs alone", verdict);
    }
    check_attend_result_destroy(&other);
    return true;
}

/* All implementations first, the reference last, so that nothing finds its results lying about. */
static void run_case(check_session *s, int64_t idx, const char *op, bool chain) {
    check_attend_case c = check_attend_case_create(s, idx);
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    check_attend_result results[CHECK_IMPLEMENTATIONS_MAX], want;
    check_verdict verdicts[CHECK_IMPLEMENTATIONS_MAX] = {0};
    bool ran[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, op, names);
    for (int i = 0; i < n; i++) {
        ran[i] = exercise(s, &c, names[i], chain, idx, &results[i], &verdicts[i]);
    }
    check_verdict reference = {0};
    const bool ran_last = n > 0 && strcmp(names[n - 1], "reference") == 0 && !s->options.corrupt;
    if (ran_last) { /* its own row has it already */
        want = results[n - 1];
        reference = verdicts[n - 1];
    } else {
        const check_attend_call call = {.ctx = s->host,
                                        .implementation = "reference",
                                        .n_tokens = c.args.n_tokens,
                                        .poison = POISON_A};
        if (!check_attend_call_run(&call, &c, &want, &reference)) {
            check_verdict_fail(&reference, "the reference refused the description");
        }
    }
    /* The chain rounds to bf16 before it rotates back and again before it casts. */
    const double add = chain ? 0x1p-8 * check_attend_largest(&c, &want) : 0.0;
    check_attend_result plain = {0};
    const bool ran_plain = idx % 3 == 0 && check_attend_plain_run(s->host, &c, &plain, &reference);
    for (int i = 0; i < n; i++) {
        if (!ran[i]) {
            check_session_refuse(s, op, names[i]);
            continue;
        }
        if (reference.failed && !(ran_last && i == n - 1)) {
            check_verdict_fail(&verdicts[i], "reference: %s", reference.why);
        } else if (results[i].bytes != NULL) { /* else the plan failed, which is recorded */
            c.out_tolerance.add =
                add + check_attend_probability_error(names[i], check_attend_largest_key(&c));
            check_attend_compare(&c, 0, &results[i], &want, &verdicts[i]);
            if (ran_plain) {
                check_attend_compare_plain(&c, &results[i], &plain, &verdicts[i]);
            }
        }
        check_session_record(s, op, names[i], false, idx, c.shape, &verdicts[i]);
        if (results[i].bytes != want.bytes) {
            check_attend_result_destroy(&results[i]);
        }
    }
    check_attend_result_destroy(&plain);
    check_attend_result_destroy(&want);
    check_attend_case_destroy(&c);
}

static void run_attend(check_session *s, int64_t idx) {
    run_case(s, idx, "attend", false);
}

static void run_chain(check_session *s, int64_t idx) {
    run_case(s, idx, "chain", true);
}

const check_suite check_suite_attend = {"attend", "attend", 70, 500, run_attend, false};
const check_suite check_suite_chain = {"chain", "chain", 28, 150, run_chain, false};
