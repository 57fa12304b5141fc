/* check_streams.c - two calls of the fused operation at once, on streams of their own.
 *
 * Two cases with nothing in common run alone first, and then again and again side by side. Whatever
 * two calls share by mistake (scratch, counters, a kernel's settings) shows in their bits.
 */
#include "app/check/check_attend_compare.h"
#include "app/check/check_attend_staged.h"

enum { POISON_A = 0x5A, POISON_B = 0xC3, ROUNDS = 8, PARTNER = 1000 };

static mmla_status run_one(check_attend_staged *staged) {
    return check_attend_staged_run(staged, staged->workspace, staged->stage.stream);
}

/* Bits of `staged`, which has just run side by side, against what it gave alone. */
static void compare(check_attend_staged *staged,
                    mmla_status status,
                    const check_attend_result *alone,
                    bool corrupt,
                    check_verdict *verdict) {
    check_attend_result got =
        check_attend_staged_result(staged, status, "beside another call", verdict);
    if (got.bytes != NULL && alone->bytes != NULL) {
        got.bytes[got.n_tokens * got.token_bytes / 2] ^= corrupt ? 1 : 0;
        check_attend_same(alone, 0, &got, got.token_bytes, "beside another call", verdict);
    }
    check_attend_result_destroy(&got);
}

static void run_pair(check_attend_staged staged[2], bool corrupt, check_verdict *verdict) {
    check_attend_result alone[2];
    for (int i = 0; i < 2; i++) {
        mmla_status status = check_attend_staged_upload(&staged[i], POISON_A);
        status = status == MMLA_OK ? run_one(&staged[i]) : status;
        alone[i] = check_attend_staged_result(&staged[i], status, "alone", verdict);
    }
    mmla_status statuses[2];
    for (int i = 0; i < 2; i++) {
        statuses[i] = check_attend_staged_upload(&staged[i], POISON_B);
    }
    const bool is_uploaded = statuses[0] == MMLA_OK && statuses[1] == MMLA_OK;
    for (int round = 0; round < ROUNDS && is_uploaded; round++) {
        for (int i = 0; i < 2; i++) {
            /* Faults are counted again in every round; once is what the comparison expects. */
            staged[i].args.n_faults = round == 0 ? staged[i].args.n_faults : NULL;
            statuses[i] = run_one(&staged[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        compare(&staged[i], statuses[i], &alone[i], corrupt, verdict);
        check_attend_result_destroy(&alone[i]);
    }
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "attend", names);
    check_attend_case cases[2] = {check_attend_case_create(s, idx),
                                  check_attend_case_create(s, idx + PARTNER)};
    for (int i = 0; i < n; i++) {
        check_verdict verdict = {0};
        check_attend_staged staged[2];
        int n_created = 0;
        for (int k = 0; k < 2; k++) {
            n_created += check_attend_staged_create(&staged[k], s->many, &cases[k], names[i],
                                                    check_session_staging(s, false, idx), &verdict);
        }
        if (n_created == 2) {
            run_pair(staged, s->options.corrupt, &verdict);
        }
        if (n_created == 2 || verdict.failed) {
            check_session_record(s, "streams", names[i], true, idx, cases[0].shape, &verdict);
        } else {
            check_session_refuse(s, "streams", names[i]);
        }
        check_attend_staged_destroy(&staged[0]);
        check_attend_staged_destroy(&staged[1]);
    }
    check_attend_case_destroy(&cases[0]);
    check_attend_case_destroy(&cases[1]);
}

const check_suite check_suite_streams = {.name = "streams",
                                         .op = "attend",
                                         .n_quick = 10,
                                         .n_full = 50,
                                         .run = run_case,
                                         .gpu_only = true};
