/* check_project.c - every implementation of project against the reference, as check_project_case.h says.
 *
 * The last case has more tokens than 16 bits count: PERIOD tokens again and again, whose results must
 * be the same bits every time.
 */
#include <string.h>

#include "app/check/check_near.h"
#include "app/check/check_project_case.h"

enum { MANY_TOKENS = 70000 };

/* A call of MANY_TOKENS gives the bits of z, the result for PERIOD. */
static void check_many(const check_session *s,
                       const check_project_case *c,
                       const char *name,
                       const check_buffer *z,
                       check_verdict *verdict) {
    const device_options staging = check_session_staging(s, false, CHECK_PROJECT_DRAWN);
    check_project_repeat many = check_project_repeat_create(c, MANY_TOKENS);
    check_buffer whole;
    if (check_project_run(&many.c, s->many, &staging, name, false, 0x5A, &whole, verdict) &&
        whole.data != NULL) {
        const int64_t token_bytes = z->bytes / CHECK_PROJECT_PERIOD;
        int64_t t = 0;
        while (t < MANY_TOKENS &&
               memcmp(whole.data + t * token_bytes,
                      z->data + t % CHECK_PROJECT_PERIOD * token_bytes, (size_t)token_bytes) == 0) {
            t++;
        }
        if (t < MANY_TOKENS) {
            check_verdict_fail(verdict, "z of token %lld of %d is another than alone", (long long)t,
                               MANY_TOKENS);
        }
    }
    check_buffer_destroy(&whole);
    check_project_repeat_destroy(&many);
}

static void run_case(check_session *s, int64_t idx) {
    enum { POISON_A = 0x5A, POISON_B = 0xC3 };
    check_project_case c = check_project_case_create(s, idx);
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    check_buffer z[CHECK_IMPLEMENTATIONS_MAX] = {0}, again;
    check_verdict verdicts[CHECK_IMPLEMENTATIONS_MAX] = {0}, reference = {0};
    bool ran[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "project", names);
    const device_options staging = check_session_staging(s, false, idx);
    const device_options other = check_session_staging(s, true, idx);
    for (int i = 0; i < n; i++) {
        ran[i] = check_project_run(&c, s->many, &staging, names[i], false, POISON_A, &z[i],
                                   &verdicts[i]);
        if (ran[i] && strcmp(names[i], "reference") != 0 &&
            check_project_run(&c, s->other, &other, names[i], false, POISON_B, &again,
                              &verdicts[i])) {
            const int64_t at = check_bytes_compare(z[i].data, again.data, z[i].bytes);
            if (at >= 0) {
                check_verdict_fail(&verdicts[i], "byte %lld of z is another %s", (long long)at,
                                   check_session_other(s));
            }
            check_buffer_destroy(&again);
        }
    }
    check_buffer want;
    check_project_run(&c, s->host, NULL, "reference", false, POISON_A, &want, &reference);
    for (int i = 0; i < n; i++) {
        if (ran[i]) {
            if (idx == CHECK_PROJECT_DRAWN && strcmp(names[i], "reference") != 0 &&
                z[i].data != NULL) {
                check_many(s, &c, names[i], &z[i], &verdicts[i]);
            }
            check_session_corrupt(s, z[i].data, z[i].bytes | 1);
            check_project_compare(&c, &z[i], &want, &verdicts[i]);
            check_session_record(s, "project", names[i], false, idx, c.shape, &verdicts[i]);
        } else {
            check_session_refuse(s, "project", names[i]);
        }
        check_buffer_destroy(&z[i]);
    }
    check_buffer_destroy(&want);
    check_project_case_destroy(&c);
}

const check_suite check_suite_project = {
    "project", "project", CHECK_PROJECT_QUICK, CHECK_PROJECT_DRAWN + 1, run_case, false};
