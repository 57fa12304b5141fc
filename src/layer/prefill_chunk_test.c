#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/prefill.h>

static mmla_prefill_chunk next(const mmla_prefill_chunk_desc *desc,
                               const int32_t *query,
                               const int32_t *seq,
                               int64_t n,
                               int64_t i) {
    mmla_prefill_chunk chunk;
    mmla_error err;
    if (mmla_prefill_chunk_next(desc, query, seq, n, i, &chunk, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    return chunk;
}

static void chunk_counts_records_and_gathered_rows(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc desc = {
        .window = 128, .ratio = 2, .max_model_tokens = 4096, .max_batch_tokens = 1024};
    const int32_t query[] = {6, 2}, seq[] = {6, 131};
    const mmla_prefill_chunk c = next(&desc, query, seq, 2, 0);
    assert_int_equal(c.first, 0);
    assert_int_equal(c.last, 2);
    assert_int_equal(c.n, 65);             /* 131 / 2, rounded down */
    assert_int_equal(c.m, 65 + (2 + 127)); /* a long prefix gives window - 1 rows */
}

static void ratio_zero_has_no_records(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc desc = {
        .window = 128, .ratio = 0, .max_model_tokens = 1 << 20, .max_batch_tokens = 100};
    const int32_t query[] = {100, 100, 100, 100, 100}, seq[] = {100, 100, 100, 100, 100};
    /* 4 * (0 + 128 + 100) = 912 rows: nine requests of 100 would fit, five do */
    const mmla_prefill_chunk c = next(&desc, query, seq, 5, 0);
    assert_int_equal(c.n, 0);
    assert_int_equal(c.m, 100);
    assert_int_equal(c.last, 5);
}

static void chunk_closes_before_the_request_that_would_not_fit(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc desc = {
        .window = 1, .ratio = 1, .max_model_tokens = 10, .max_batch_tokens = 9};
    /* 4 * (10 + 1 + 9) = 80 rows. A request of 10 new tokens takes 10 + 10 rows: four fit. */
    const int32_t query[] = {10, 10, 10, 10, 10, 1}, seq[] = {10, 10, 10, 10, 10, 1};
    mmla_prefill_chunk c = next(&desc, query, seq, 6, 0);
    assert_int_equal(c.last, 4);
    assert_int_equal(c.m, 20);
    c = next(&desc, query, seq, 6, c.last);
    assert_int_equal(c.first, 4);
    assert_int_equal(c.last, 6);
    assert_int_equal(c.n, 10);
    assert_int_equal(c.m, 20);
}

/* What ends a chunk must not count in its N and M. */
static void the_request_that_closes_a_chunk_leaves_its_size_alone(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc desc = {
        .window = 1, .ratio = 1, .max_model_tokens = 4, .max_batch_tokens = 1};
    const int32_t query[] = {1, 1, 100}, seq[] = {1, 1, 100};
    const mmla_prefill_chunk c = next(&desc, query, seq, 3, 0);
    assert_int_equal(c.last, 2);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.m, 2);
}

static void a_chunk_holds_one_request_however_long(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc desc = {
        .window = 1, .ratio = 1, .max_model_tokens = 0, .max_batch_tokens = 0};
    const int32_t query[] = {INT32_MAX, 1}, seq[] = {INT32_MAX, 1};
    const mmla_prefill_chunk c = next(&desc, query, seq, 2, 0);
    assert_int_equal(c.last, 1);
    assert_int_equal(c.m, 2 * (int64_t)INT32_MAX);
}

static void bad_arguments_are_named(void **state) {
    (void)state;
    const mmla_prefill_chunk_desc good = {
        .window = 128, .ratio = 2, .max_model_tokens = 100, .max_batch_tokens = 100};
    mmla_prefill_chunk_desc bad[4] = {good, good, good, good};
    bad[0].window = 0;
    bad[1].ratio = 3;
    bad[2].max_model_tokens = -1;
    bad[3].max_batch_tokens = (int64_t)INT32_MAX + 1;
    static const char *const names[] = {"window", "ratio", "max_model_tokens", "max_batch_tokens"};
    const int32_t query[] = {1, 5, -1, 1}, seq[] = {1, 4, 4, -1};
    mmla_prefill_chunk c;
    mmla_error err;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mmla_prefill_chunk_next(&bad[i], query, seq, 1, 0, &c, &err),
                         MMLA_E_VALUE);
        assert_string_equal(err.argument, names[i]);
    }
    assert_int_equal(mmla_prefill_chunk_next(&good, query, seq, 4, 4, &c, &err), MMLA_E_INDEX);
    assert_string_equal(err.argument, "first");
    assert_int_equal(mmla_prefill_chunk_next(&good, query, seq, 4, -1, &c, &err), MMLA_E_INDEX);
    assert_int_equal(mmla_prefill_chunk_next(&good, query, seq, 0, 0, &c, &err), MMLA_E_INDEX);
    static const char *const lengths[] = {"query_lens", "query_lens", "seq_lens"};
    for (int i = 1; i < 4; i++) {
        assert_int_equal(mmla_prefill_chunk_next(&good, query, seq, 4, i, &c, &err), MMLA_E_INDEX);
        assert_string_equal(err.argument, lengths[i - 1]);
    }
    assert_int_equal(mmla_prefill_chunk_next(&good, NULL, seq, 4, 0, &c, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "query_lens");
    assert_int_equal(mmla_prefill_chunk_next(&good, query, NULL, 4, 0, &c, &err), MMLA_E_NULL);
    assert_int_equal(mmla_prefill_chunk_next(&good, query, seq, 4, 0, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_prefill_chunk_next(NULL, query, seq, 4, 0, &c, NULL), MMLA_E_NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_counts_records_and_gathered_rows),
        cmocka_unit_test(ratio_zero_has_no_records),
        cmocka_unit_test(chunk_closes_before_the_request_that_would_not_fit),
        cmocka_unit_test(the_request_that_closes_a_chunk_leaves_its_size_alone),
        cmocka_unit_test(a_chunk_holds_one_request_however_long),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests_name("prefill_chunk", tests, NULL, NULL);
}
