/* Calls away from the best case, with the host in the GPU's place: tokens without keys, keys that stay
 * in the cache, pages of other sizes and those of several layers in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/bench/bench_fixture.h"
#include "app/bench/bench_gpu.h"
#include "app/bench/bench_gpu_shape.h"
#include "app/bench/bench_sample.h"

static const bench_formats mixed_formats = {"528+288", MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};

/* A session of one row: attend_paged with 8 heads. */
static bench_session *session(const char *formats, int64_t tokens) {
    return bench_fixture_create("attend_paged", formats, 8, tokens);
}

static void assert_verified(const bench_session *s) {
    bench_fixture_assert_verified(s, 1);
    assert_true(s->rows[0].chain_us > 0.0);
}

static void padded_tokens_are_verified_and_no_work(void **state) {
    (void)state;
    const int32_t percents[] = {40, 100};
    for (int i = 0; i < 2; i++) {
        bench_session *s = session("528+288", 10); /* of which 8 are compared with the reference */
        s->options.padded_percent = percents[i];
        bench_gpu_attend_run(s);
        assert_verified(s);
        const double n_live = i == 0 ? 6.0 : 0.0;
        assert_true(s->rows[0].bytes == n_live * 215040.0);
        assert_true(s->rows[0].flop == n_live * 640.0 * 8.0 * 2048.0);
        assert_true(s->rows[0].keys == n_live * 640.0 / 10.0);
        bench_fixture_destroy(s);
    }
}

/* A token that is not sampled: its results alone say that it has no key. */
static void a_padded_token_with_a_number_is_wrong(void **state) {
    (void)state;
    bench_session *s = session("528+288", 20);
    s->options.padded_percent = 40;
    bench_gpu_pool p = bench_gpu_pool_create(s, &mixed_formats);
    bench_gpu_shape x = bench_gpu_shape_create(s, &p, 8, 20);
    check_verdict verdict = {0};
    assert_int_equal(mmla_attend_plan_create(s->ctx, &x.c.desc, &x.plan, NULL), MMLA_OK);
    check_buffer workspace =
        check_buffer_create((int64_t)mmla_attend_workspace_bytes(x.plan), 64, 0);
    bench_gpu_shape_reset(&x);
    const mmla_attend_args args = bench_gpu_shape_args(&x, 0);
    assert_int_equal(mmla_attend_run(x.plan, &args, workspace.data, NULL), MMLA_OK);
    const check_attend_case call = bench_gpu_shape_case(&x, 0);
    for (int pass = 0; pass < 2; pass++) {
        bench_sample sample = bench_sample_create(&call, &p.window.tile.desc,
                                                  &p.compressed.tile.desc, s->host, &verdict);
        check_attend_buffers got = bench_gpu_shape_results(&x);
        if (pass == 1) {
            ((float *)got.lse.data)[15 * 8] = 1.0f;
        }
        bench_sample_compare(&sample, &call, &got, mmla_attend_plan_implementation(x.plan), false,
                             &verdict);
        assert_int_equal(verdict.failed, pass == 1);
        check_attend_buffers_destroy(&got);
        bench_sample_destroy(&sample);
    }
    assert_non_null(strstr(verdict.why, "lse of token 15"));
    check_buffer_destroy(&workspace);
    bench_gpu_shape_destroy(&x);
    bench_gpu_pool_destroy(&p);
    bench_fixture_destroy(s);
}

static void warm_calls_are_all_the_same(void **state) {
    (void)state;
    bench_session *s = session("528+288", 9);
    bench_gpu_pool p = bench_gpu_pool_create(s, &mixed_formats);
    for (int warm = 0; warm < 2; warm++) {
        s->options.warm = warm == 1;
        bench_gpu_shape x = bench_gpu_shape_create(s, &p, 8, 9);
        const mmla_attend_args a = bench_gpu_shape_args(&x, 0), b = bench_gpu_shape_args(&x, 1);
        assert_int_equal(a.list == b.list && a.compressed_list == b.compressed_list, warm);
        bench_gpu_shape_destroy(&x);
    }
    bench_gpu_pool_destroy(&p);
    bench_gpu_attend_run(s);
    assert_verified(s);
    /* Only what the cache cannot hold comes from memory. */
    assert_true(s->rows[0].bytes == 9.0 * 215040.0);
    assert_true(s->rows[0].floor_us == (9.0 * 215040.0 - (1 << 20)) * 1e-3 / s->read_gbps);
    bench_fixture_destroy(s);
}

static void pages_of_any_size_and_distance_are_verified(void **state) {
    (void)state;
    const char *const formats[] = {"528+288", "584+584", "528"};
    const int32_t pages[][2] = {{32, 1}, {128, 1}, {61, 1}, {64, 3}, {1, 2}, {1024, 2}};
    for (int i = 0; i < 6; i++) {
        bench_session *s = session(formats[i % 3], 3);
        s->options.page_tokens = pages[i][0];
        s->options.n_layers = pages[i][1];
        s->pool_bytes = 16 << 20; /* several tiles */
        bench_gpu_pool p = bench_gpu_pool_create(s, &mixed_formats);
        const mmla_cache_desc *d = &p.window.desc;
        const int64_t page_bytes = mmla_kv_page_bytes(d->format, pages[i][0]);
        assert_int_equal(d->page_tokens, pages[i][0]);
        assert_int_equal(d->page_stride_bytes, pages[i][1] * page_bytes);
        assert_int_equal(p.window.n_slots, d->n_pages * d->page_tokens);
        assert_true(d->n_pages >= 2 * p.window.tile.desc.n_pages);
        if (pages[i][1] > 1) { /* the next layer's page, in the last of the tiles */
            const uint8_t *next = (const uint8_t *)p.window.memory +
                                  (d->n_pages - 1) * d->page_stride_bytes + page_bytes;
            for (int64_t k = 0; k < page_bytes; k++) {
                assert_int_equal(next[k], 0xFF);
            }
        }
        bench_gpu_pool_destroy(&p);
        bench_gpu_attend_run(s);
        assert_verified(s);
        bench_fixture_destroy(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padded_tokens_are_verified_and_no_work),
        cmocka_unit_test(a_padded_token_with_a_number_is_wrong),
        cmocka_unit_test(warm_calls_are_all_the_same),
        cmocka_unit_test(pages_of_any_size_and_distance_are_verified),
    };
    return cmocka_run_group_tests_name("bench_scenario", tests, NULL, NULL);
}
