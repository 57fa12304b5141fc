/* check_project_wide.c - implementations of project that have a use for a wide weight, with one, against the
 * reference.
 *
 * Cases are those of check_project.c, whose tokens are repeated until the call has so many that it takes the wide
 * weight: which of the launches, and whether any, is left to the implementation. Equal tokens of a call must have equal
 * bits, wherever they stand; the first ones are held against the reference.
 */
#include <stdio.h>
#include <string.h>

#include "app/check/check_project_case.h"
#include "app/check/check_rng.h"

enum { ROW_TILE = 128, TILE_TOKENS = 128, DOUBLINGS = 8, TOKENS_MAX = 4096, VECTORS_MAX = 8192 };

/* 128 to 16384 tokens over the tiles of rows that there are, within limits: launches of few tiles and of many. */
static int64_t tokens_of(const check_session *s, const check_project_case *c, int64_t idx) {
    check_rng rng = check_rng_at(s->options.seed, 0x77696465, (uint64_t)idx);
    const int64_t tiles = c->desc.n_groups * ((c->desc.rank + ROW_TILE - 1) / ROW_TILE);
    const int64_t most = VECTORS_MAX / c->desc.n_groups;
    const int64_t n =
        (TILE_TOKENS << check_rng_below(&rng, DOUBLINGS)) / tiles + check_rng_below(&rng, 131);
    const int64_t limit = most < TOKENS_MAX ? most : TOKENS_MAX;
    return n < limit ? n : limit;
}

/* Every token against its first occurrence. */
static void check_equal_tokens(const check_buffer *z,
                               int64_t n_tokens,
                               int64_t period,
                               check_verdict *verdict) {
    const int64_t token_bytes = n_tokens > 0 ? z->bytes / n_tokens : 0;
    for (int64_t t = period; t < n_tokens; t++) {
        if (memcmp(z->data + t * token_bytes, z->data + t % period * token_bytes,
                   (size_t)token_bytes) != 0) {
            check_verdict_fail(verdict, "z of token %lld is another than that of token %lld",
                               (long long)t, (long long)(t % period));
            return;
        }
    }
}

/* Leaves z of the case's own tokens. */
static void run_one(check_session *s,
                    const check_project_case *c,
                    const check_project_repeat *many,
                    const char *name,
                    int64_t idx,
                    check_buffer *z,
                    check_verdict *verdict) {
    enum { POISON_A = 0x5A, POISON_B = 0xC3 };
    const device_options staging = check_session_staging(s, false, idx);
    const device_options other = check_session_staging(s, true, idx);
    check_buffer again;
    check_project_run(&many->c, s->many, &staging, name, true, POISON_A, z, verdict);
    check_project_run(&many->c, s->other, &other, name, true, POISON_B, &again, verdict);
    if (z->data != NULL && again.data != NULL) {
        if (memcmp(z->data, again.data, (size_t)z->bytes) != 0) {
            check_verdict_fail(verdict, "z is another %s", check_session_other(s));
        }
        check_equal_tokens(z, many->c.args.n_tokens, c->args.n_tokens, verdict);
        z->bytes = c->args.n_tokens * c->desc.n_groups * c->desc.rank * 2;
    }
    check_buffer_destroy(&again);
}

static bool has_use(const check_session *s, const char *name) {
    const mmla_project_desc desc = {.n_groups = 1, .implementation = name};
    mmla_project_plan *plan;
    const bool has = mmla_project_plan_create(s->many, &desc, &plan, NULL) == MMLA_OK &&
                     mmla_project_wide_bytes(plan) > 0;
    mmla_project_plan_destroy(plan);
    return has;
}

/* The implementations with a use for a wide weight; the others have no line in the report. */
static int implementations(const check_session *s, const char *names[CHECK_IMPLEMENTATIONS_MAX]) {
    const int n = check_session_implementations(s, "project", names);
    int n_used = 0;
    for (int i = 0; i < n; i++) {
        if (has_use(s, names[i])) {
            names[n_used++] = names[i];
        }
    }
    return n_used;
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    const int n = implementations(s, names);
    if (n == 0) {
        return;
    }
    check_project_case c = check_project_case_create(s, idx);
    check_project_repeat many = check_project_repeat_create(&c, tokens_of(s, &c, idx));
    char shape[CHECK_TEXT_BYTES];
    snprintf(shape, sizeof shape, "repeated to %lld tokens: %.280s",
             (long long)many.c.args.n_tokens, c.shape);
    check_buffer z[CHECK_IMPLEMENTATIONS_MAX] = {0}, want;
    check_verdict verdicts[CHECK_IMPLEMENTATIONS_MAX] = {0}, reference = {0};
    for (int i = 0; i < n; i++) {
        run_one(s, &c, &many, names[i], idx, &z[i], &verdicts[i]);
    }
    check_project_run(&c, s->host, NULL, "reference", false, 0x5A, &want, &reference);
    for (int i = 0; i < n; i++) {
        check_session_corrupt(s, z[i].data, z[i].bytes | 1);
        check_project_compare(&c, &z[i], &want, &verdicts[i]);
        check_session_record(s, "project_wide", names[i], false, idx, shape, &verdicts[i]);
        check_buffer_destroy(&z[i]);
    }
    check_buffer_destroy(&want);
    check_project_repeat_destroy(&many);
    check_project_case_destroy(&c);
}

const check_suite check_suite_project_wide = {"project_wide",      "project", CHECK_PROJECT_QUICK,
                                              CHECK_PROJECT_DRAWN, run_case,  true};
