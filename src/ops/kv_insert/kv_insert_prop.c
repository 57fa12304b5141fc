/* Every implementation of kv_insert gives the bytes of the reference, whatever the rows, the
 * options and the number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/insert_fixture.h"
#include "support/implementation_walk.h"

static uint64_t seed;

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4,
                                         MMLA_KV_INDEX_FP8, MMLA_KV_INDEX_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* What a run left behind. */
typedef struct outcome {
    uint8_t *cache;
    mmla_status status;
    int32_t n_faults;
    mmla_error error;
} outcome;

static outcome outcome_of(insert_fixture *f, const char *implementation) {
    outcome o = {.cache = malloc(f->cache.bytes + 1)};
    assert_non_null(o.cache);
    o.status = insert_fixture_run(f, implementation);
    o.n_faults = f->n_faults;
    o.error = f->error;
    memcpy(o.cache, f->cache.data, f->cache.bytes);
    return o;
}

/* Runs all implementations, the reference last, so that it cannot help the others. */
static void assert_all_alike(insert_fixture *f) {
    outcome all[8];
    const char *names[8];
    size_t n = 0;
    while ((names[n] = test_implementation_anywhere(f->ctx, "kv_insert", n)) != NULL) {
        all[n] = outcome_of(f, names[n]);
        n++;
    }
    assert_string_equal(names[n - 1], "reference");
    const outcome *want = &all[n - 1];
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(all[i].status, want->status);
        assert_int_equal(all[i].n_faults, want->n_faults);
        if (!test_implementation_is_cuda(names[i])) { /* which has no message */
            assert_memory_equal(&all[i].error, &want->error, sizeof want->error);
        }
        for (size_t at = 0; at < f->cache.bytes; at++) {
            if (all[i].cache[at] != want->cache[at]) {
                fail_msg("%s, %s: byte %zu of the cache is %02X, reference %02X", names[i],
                         mmla_kv_format_name(f->view.format), at, all[i].cache[at],
                         want->cache[at]);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        free(all[i].cache);
    }
}

/* Slots and positions that hurt, here and there. */
static void add_nasty_indices(insert_fixture *f, test_rng *rng) {
    static const int64_t slots[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 32, 0, -2147483648};
    static const int64_t positions[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 32, 64, 63};
    enum { N = sizeof slots / sizeof slots[0] };
    for (int64_t t = 0; t < f->args.n_slots; t++) {
        if (test_rng_below(rng, 6) == 0) {
            insert_fixture_slots(f)[t] = slots[test_rng_below(rng, N)];
        }
        if (test_rng_below(rng, 6) == 0) {
            insert_fixture_positions(f)[t] = positions[test_rng_below(rng, N)];
        }
    }
}

static void insert_all_implementations_agree_over_the_matrix(void **state) {
    (void)state;
    static const int32_t page_tokens[] = {1, 2, 61, 64};
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        for (int i = 0; i < 4; i++) {
            for (unsigned options = 0; options < 16; options++) {
                insert_fixture f = insert_fixture_create(formats[format]);
                f.desc.cache.page_tokens = page_tokens[i];
                f.desc.cache.n_pages = 1 + 70 / page_tokens[i];
                f.desc.max_tokens = f.args.n_rows = 50;
                f.args.n_slots = 50 - test_rng_below(&rng, 3);
                f.desc.norm = options & 1;
                f.desc.ratio = options & 2 ? 2 : 1;
                f.desc.scale_floor = options & 4 ? MMLA_SCALE_FLOOR_SCALE : MMLA_SCALE_FLOOR_AMAX;
                f.desc.row_stride = mmla_kv_dims(formats[format]) + 8 * test_rng_below(&rng, 3);
                insert_fixture_fill(&f, options & 8 ? 3 : 1, test_rng_next(&rng));
                add_nasty_indices(&f, &rng);
                assert_all_alike(&f);
                insert_fixture_destroy(&f);
            }
        }
    }
}

/* All 65,536 bf16 values, each with like and with unlike neighbours, NaN and infinity in most rows
 * or in none. */
static void insert_all_implementations_agree_on_every_bf16_value(void **state) {
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        const int dims = mmla_kv_dims(formats[format]);
        const int64_t n = 65536 / dims;
        for (uint32_t stride = 1; stride < 65536; stride += 26562) { /* 1, 26563, 53125: odd */
            for (int norm = 0; norm < 2; norm++) {
                insert_fixture f = insert_fixture_create(formats[format]);
                f.desc.max_tokens = f.args.n_rows = f.args.n_slots = n;
                f.desc.cache.n_pages = n;
                f.desc.norm = norm;
                insert_fixture_fill(&f, 1, seed);
                uint16_t *rows = f.rows.data;
                for (uint32_t i = 0; i < 65536; i++) {
                    rows[i] = (uint16_t)(i * stride);
                }
                assert_all_alike(&f);
                insert_fixture_destroy(&f);
            }
        }
    }
}

/* Groups whose maximum lies at a boundary of the scale, with values at and around every tie. */
static void insert_all_implementations_agree_around_scale_boundaries_and_ties(void **state) {
    (void)state;
    static const float maxima[] = {448.0f, 6.0f, 5.0f, 464.0f, 1.0f, 2688.0f};
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        const int dims = mmla_kv_dims(formats[format]);
        insert_fixture f = insert_fixture_create(formats[format]);
        f.desc.max_tokens = f.args.n_rows = f.args.n_slots = 600;
        f.desc.cache.n_pages = 100;
        insert_fixture_fill(&f, 1, seed);
        for (int64_t t = 0; t < f.args.n_rows; t++) {
            uint16_t *row = insert_fixture_row(&f, t);
            for (int g = 0; g < dims; g += 16) {
                const float unit =
                    ldexpf(maxima[test_rng_below(&rng, 6)], (int)test_rng_below(&rng, 60) - 30);
                for (int i = 0; i < 16;
                     i++) { /* quarters and eighths of the maximum, one step off */
                    const float x = unit * (float)test_rng_below(&rng, 65) / 64.0f;
                    row[g + i] = (uint16_t)(mmla_bf16_from_f32(x) + test_rng_below(&rng, 3));
                    row[g + i] ^= (uint16_t)(test_rng_below(&rng, 2) << 15);
                }
            }
        }
        assert_all_alike(&f);
        f.desc.scale_floor = MMLA_SCALE_FLOOR_SCALE;
        assert_all_alike(&f);
        insert_fixture_destroy(&f);
    }
}

static void insert_norm_agrees_on_rows_of_all_sizes(void **state) {
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        insert_fixture f = insert_fixture_create(formats[format]);
        f.desc.max_tokens = f.args.n_rows = f.args.n_slots = 260;
        f.desc.cache.n_pages = 40;
        f.desc.norm = 1;
        insert_fixture_fill(&f, 1, seed);
        for (int64_t t = 0; t < f.args.n_rows;
             t++) { /* 2^-130 .. 2^127: squares vanish, overflow */
            for (int i = 0; i < mmla_kv_dims(formats[format]); i++) {
                uint16_t *code = insert_fixture_row(&f, t) + i;
                *code = (uint16_t)((*code & 0x807F) | (t < 255 ? t << 7 : 0));
            }
        }
        assert_all_alike(&f);
        f.desc.norm_eps = 1e-6f;
        assert_all_alike(&f);
        insert_fixture_destroy(&f);
    }
}

/* Many rows for few slots: what remains must be the last row of each, as the reference stores them
 * one after another. */
static void insert_later_row_wins_a_slot_for_any_number_of_threads(void **state) {
    (void)state;
    static const int32_t n_threads[] = {1, 2, 3, 8};
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        for (int i = 0; i < 4; i++) {
            insert_fixture f = insert_fixture_create(formats[format]);
            f.desc.max_tokens = f.args.n_rows = f.args.n_slots = 700;
            insert_fixture_fill(&f, n_threads[i], test_rng_next(&rng));
            for (int64_t t = 0; t < f.args.n_slots; t++) {
                insert_fixture_slots(&f)[t] = test_rng_below(&rng, 21);
            }
            assert_all_alike(&f);
            insert_fixture_destroy(&f);
        }
    }
}

/* So many rows that a GPU finds the last of each slot in another way: for few slots and for many, with
 * refused rows among them. */
static void insert_later_row_wins_a_slot_among_thousands(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        for (int many = 0; many < 2; many++) {
            insert_fixture f = insert_fixture_create(formats[format]);
            f.desc.cache.n_pages = many ? 600 : 3;
            f.desc.max_tokens = f.args.n_rows = f.args.n_slots = 3000 + 17 * many;
            insert_fixture_fill(&f, 3, test_rng_next(&rng));
            for (int64_t t = 0; t < f.args.n_slots; t++) {
                insert_fixture_slots(&f)[t] = test_rng_below(&rng, f.view.n_slots + 2);
            }
            add_nasty_indices(&f, &rng);
            assert_all_alike(&f);
            insert_fixture_destroy(&f);
        }
    }
}

static void insert_one_call_or_many_give_the_same_cache(void **state) {
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        insert_fixture f = insert_fixture_create(formats[format]);
        f.desc.max_tokens = f.args.n_rows = f.args.n_slots = 21;
        insert_fixture_fill(&f, 2, seed);
        mmla_kv_insert_plan *plan;
        assert_int_equal(mmla_kv_insert_plan_create(f.ctx, &f.desc, &plan, NULL), MMLA_OK);
        assert_int_equal(mmla_kv_insert_run(plan, &f.args, NULL, NULL), MMLA_OK);
        uint8_t *whole = malloc(f.cache.bytes);
        assert_non_null(whole);
        memcpy(whole, f.cache.data, f.cache.bytes);
        test_buffer_poison(&f.cache);
        for (int64_t t = 0; t < 21; t++) {
            mmla_kv_insert_args one = f.args;
            one.n_rows = one.n_slots = 1;
            one.rows = insert_fixture_row(&f, t);
            one.positions += t;
            one.slots += t;
            assert_int_equal(mmla_kv_insert_run(plan, &one, NULL, NULL), MMLA_OK);
        }
        assert_memory_equal(whole, f.cache.data, f.cache.bytes);
        mmla_kv_insert_plan_destroy(plan);
        free(whole);
        insert_fixture_destroy(&f);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_all_implementations_agree_over_the_matrix),
        cmocka_unit_test(insert_all_implementations_agree_on_every_bf16_value),
        cmocka_unit_test(insert_all_implementations_agree_around_scale_boundaries_and_ties),
        cmocka_unit_test(insert_norm_agrees_on_rows_of_all_sizes),
        cmocka_unit_test(insert_later_row_wins_a_slot_for_any_number_of_threads),
        cmocka_unit_test(insert_later_row_wins_a_slot_among_thousands),
        cmocka_unit_test(insert_one_call_or_many_give_the_same_cache),
    };
    return cmocka_run_group_tests_name("kv_insert_prop", tests, NULL, NULL);
}
