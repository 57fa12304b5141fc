/* bench_fixture.h - for tests: a benchmark of a GPU with the host in its place, small and quick. */
#ifndef APP_BENCH_BENCH_FIXTURE_H
#define APP_BENCH_BENCH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/bench/bench_gpu.h"

/* A session with one count of heads and tokens; 0: the default ones. */
static inline bench_session *
bench_fixture_create(const char *op, const char *formats, int64_t heads, int64_t tokens) {
    const bench_options o = {.seed = 5,
                             .quick = true,
                             .op = op,
                             .formats = formats,
                             .heads = {.values = {heads}, .n = heads > 0},
                             .tokens = {.values = {tokens}, .n = tokens > 0},
                             .n_samples = 5};
    bench_session *s = malloc(sizeof *s);
    assert_non_null(s);
    assert_int_equal(bench_gpu_session_init(s, &o, NULL), MMLA_OK);
    return s;
}

static inline void bench_fixture_destroy(bench_session *s) {
    bench_gpu_session_deinit(s);
    free(s);
}

/* The session has so many rows, all with a time and right results. */
static inline void bench_fixture_assert_verified(const bench_session *s, int n_rows) {
    assert_int_equal(s->n_rows, n_rows);
    for (int i = 0; i < n_rows; i++) {
        const bench_row *row = &s->rows[i];
        if (!row->verified) {
            print_error("%s: %s\n", row->op, row->problem);
        }
        assert_true(row->verified && row->fused.median_us > 0.0);
        assert_true(row->fused.p10_us <= row->fused.median_us);
        assert_true(row->fused.median_us <= row->fused.p90_us);
    }
}

#endif
