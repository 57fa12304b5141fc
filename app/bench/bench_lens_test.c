/* Lengths that the options ask for, and lists of tokens that have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/bench/bench_lens.h"
#include "app/bench/bench_pool.h"
#include "app/check/check_rng.h"

enum { TOKENS = 10000 };

static const bench_widths widths = {BENCH_WINDOW, BENCH_COMPRESSED};

typedef struct lens {
    int32_t window[TOKENS], compressed[TOKENS];
} lens;

static lens *draw(bench_options o, bench_widths w, int64_t n) {
    lens *x = malloc(sizeof *x);
    check_rng rng = check_rng_at(1, 0, 0);
    assert_non_null(x);
    bench_lens_draw(&o, w, n, &rng, x->window, x->compressed);
    return x;
}

static void full_lists_have_every_entry(void **state) {
    (void)state;
    lens *x = draw((bench_options){0}, widths, 3);
    for (int t = 0; t < 3; t++) {
        assert_int_equal(x->window[t], BENCH_WINDOW);
        assert_int_equal(x->compressed[t], BENCH_COMPRESSED);
    }
    assert_int_equal(bench_lens_sum(x->window, 3), 3 * BENCH_WINDOW);
    free(x);
}

/* Uniform means: both ends occur, and each half about as often as the other. */
static void mixed_lists_have_every_length(void **state) {
    (void)state;
    const bench_widths cases[] = {{BENCH_WINDOW, BENCH_COMPRESSED}, {BENCH_KEYS, 0}, {1, 1}};
    for (int i = 0; i < 3; i++) {
        const bench_widths w = cases[i];
        lens *x = draw((bench_options){.lengths = BENCH_LENGTHS_MIXED}, w, TOKENS);
        bench_widths low = w, high = {0, 0};
        for (int t = 0; t < TOKENS; t++) {
            low.window = x->window[t] < low.window ? x->window[t] : low.window;
            high.window = x->window[t] > high.window ? x->window[t] : high.window;
            low.compressed = x->compressed[t] < low.compressed ? x->compressed[t] : low.compressed;
            high.compressed =
                x->compressed[t] > high.compressed ? x->compressed[t] : high.compressed;
        }
        assert_int_equal(low.window, 1);
        assert_int_equal(high.window, w.window);
        assert_int_equal(low.compressed, 0);
        assert_int_equal(high.compressed, w.compressed);
        const double mean = (double)bench_lens_sum(x->window, TOKENS) / TOKENS;
        assert_true(mean > 0.48 * (w.window + 1) && mean < 0.52 * (w.window + 1));
        free(x);
    }
}

static void short_lists_have_an_eighth(void **state) {
    (void)state;
    lens *x = draw((bench_options){.lengths = BENCH_LENGTHS_SHORT}, widths, 1);
    assert_int_equal(x->window[0], 16);
    assert_int_equal(x->compressed[0], 64);
    free(x);
    x = draw((bench_options){.lengths = BENCH_LENGTHS_SHORT}, (bench_widths){1, 0}, 1);
    assert_int_equal(x->window[0], 1);
    assert_int_equal(x->compressed[0], 0);
    free(x);
}

static void so_many_keys_fill_the_window_first(void **state) {
    (void)state;
    const int32_t cases[][3] = {{1, 1, 0}, {128, 128, 0}, {129, 128, 1}, {640, 128, 512}};
    for (int i = 0; i < 4; i++) {
        const bench_options o = {.lengths = BENCH_LENGTHS_KEYS, .n_keys = cases[i][0]};
        lens *x = draw(o, widths, 2);
        assert_int_equal(x->window[1], cases[i][1]);
        assert_int_equal(x->compressed[1], cases[i][2]);
        free(x);
    }
}

static void padded_tokens_are_the_last_and_have_no_key(void **state) {
    (void)state;
    const int64_t cases[][3] = {{16, 25, 4}, {1, 99, 0}, {1, 100, 1}, {1024, 50, 512}, {3, 34, 1}};
    for (int i = 0; i < 5; i++) {
        const int64_t n = cases[i][0], n_padded = cases[i][2];
        const bench_options o = {.padded_percent = (int32_t)cases[i][1]};
        lens *x = draw(o, widths, n);
        assert_int_equal(bench_padded_count(&o, n), n_padded);
        for (int64_t t = 0; t < n; t++) {
            assert_int_equal(x->window[t], t < n - n_padded ? BENCH_WINDOW : 0);
            assert_int_equal(x->compressed[t], t < n - n_padded ? BENCH_COMPRESSED : 0);
        }
        free(x);
    }
}

/* What calls read, not what their lists name, must walk through the cache, or short calls would
 * find their keys in the L2 cache. */
static void keys_of_short_lists_name_every_slot_before_any_again(void **state) {
    (void)state;
    enum { SLOTS = 64 * 37, WIDTH = 64, N = 4 };
    const int32_t len[N] = {3, 0, 64, 7};
    const bench_cache cache = {.n_slots = SLOTS};
    const int64_t n_sets = SLOTS / (3 + 0 + 64 + 7);
    check_buffer lists = bench_lists_create(&cache, n_sets, N, WIDTH, 1, len);
    uint8_t seen[SLOTS] = {0};
    for (int64_t i = 0; i < n_sets * N; i++) {
        for (int64_t k = 0; k < WIDTH; k++) {
            const int32_t slot = ((const int32_t *)lists.data)[i * WIDTH + k];
            assert_in_range(slot, 0, SLOTS - 1);
            assert_true(k >= len[i % N] || seen[slot]++ == 0);
        }
    }
    check_buffer_destroy(&lists);
}

static void lists_of_all_sets_fit_into_memory(void **state) {
    (void)state;
    assert_int_equal(bench_lists_limit(4096, 1), 4096);
    assert_int_equal(bench_lists_limit(7, 1024), 7);
    assert_true(bench_lists_limit(4096, 1024) < 500);
    assert_int_equal(bench_lists_limit(4096, 1 << 20), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_lists_have_every_entry),
        cmocka_unit_test(mixed_lists_have_every_length),
        cmocka_unit_test(short_lists_have_an_eighth),
        cmocka_unit_test(so_many_keys_fill_the_window_first),
        cmocka_unit_test(padded_tokens_are_the_last_and_have_no_key),
        cmocka_unit_test(keys_of_short_lists_name_every_slot_before_any_again),
        cmocka_unit_test(lists_of_all_sets_fit_into_memory),
    };
    return cmocka_run_group_tests_name("bench_lens", tests, NULL, NULL);
}
