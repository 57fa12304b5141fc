/* chain_test.c - results of the whole chain that can be worked out by hand, and its laws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kv/layout.h"
#include "num/bf16.h"
#include "support/chain_fixture.h"

enum { D = MMLA_LATENT_DIM };

static uint64_t seed;

static void set_rows(attend_fixture *f, float value) {
    for (size_t i = 0; i < f->kv.bytes / 2; i++) {
        ((uint16_t *)f->kv.data)[i] = mmla_bf16_from_f32(value);
    }
}

static void set_sinks(attend_fixture *f, float value) {
    for (int32_t h = 0; h < f->desc.n_heads; h++) {
        ((float *)f->sink.data)[h] = value;
    }
    f->args.sink = f->sink.data;
}

/* One token at position 0, q = 0, no sink; a list of n_keys times row 0, whose values are equal. */
static attend_fixture plain(int32_t n_keys, float value) {
    attend_fixture f = attend_fixture_rows(1);
    f.desc.list_width = 8;
    attend_fixture_fill(&f, seed);
    memset(f.q.data, 0, f.q.bytes);
    memset(f.positions.data, 0, f.positions.bytes);
    set_rows(&f, value);
    for (int32_t k = 0; k < 8; k++) {
        ((int32_t *)f.list.data)[k] = k < n_keys ? 0 : -1;
    }
    f.args.sink = NULL;
    return f;
}

/* Runs; every code, scale byte, lse and max_logits as given. */
static void expect(attend_fixture *f, uint8_t code, uint8_t byte, float lse, float max) {
    assert_int_equal(chain_fixture_run(f), MMLA_OK);
    for (int32_t h = 0; h < f->desc.n_heads; h++) {
        for (int32_t x = 0; x < D; x++) {
            assert_int_equal(attend_fixture_code(f, 0, h, x), code);
            assert_int_equal(attend_fixture_scale_byte(f, 0, h, x / 32), byte);
        }
        assert_true(((const float *)f->lse.data)[h] == lse);
        assert_true(((const float *)f->max_logits.data)[h] == max);
    }
}

static void chain_one_key_is_shared_with_the_sink(void **state) {
    (void)state;
    attend_fixture f = plain(1, 1.0f);
    expect(&f, 0x78, 119, 0.0f, 0.0f); /* no sink: 256 * 2^-8 */
    set_sinks(&f, 0.0f);
    expect(&f, 0x78, 118, 0.0f, 0.0f); /* half */
    set_sinks(&f, -INFINITY);
    expect(&f, 0x78, 119, 0.0f, 0.0f);
    set_sinks(&f, INFINITY);
    expect(&f, 0x00, 105, 0.0f, 0.0f); /* all: lse leaves the sink out */
    attend_fixture_destroy(&f);
}

static void chain_repeated_keys_count_as_often_as_they_appear(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 8; n++) {
        attend_fixture f = plain(n, 1.0f);
        expect(&f, 0x78, 119, logf((float)n), 0.0f);
        attend_fixture_destroy(&f);
    }
}

static void chain_no_valid_key_gives_zero_whatever_the_sink(void **state) {
    (void)state;
    static const float sinks[] = {0.0f, INFINITY, -INFINITY, 3.0f};
    for (int i = 0; i < 4; i++) {
        attend_fixture f = plain(0, NAN);
        set_sinks(&f, sinks[i]);
        expect(&f, 0x00, 105, INFINITY, -INFINITY);
        attend_fixture_destroy(&f);
    }
    attend_fixture f = plain(8, NAN); /* keys, but a length of none; then of less than none */
    *(int32_t *)f.lens.data = 0;
    expect(&f, 0x00, 105, INFINITY, -INFINITY);
    *(int32_t *)f.lens.data = INT32_MIN;
    expect(&f, 0x00, 105, INFINITY, -INFINITY);
    attend_fixture_destroy(&f);
}

static void chain_largest_of_a_chunk_picks_the_scale(void **state) {
    (void)state;
    for (int k = -20; k <= 20; k++) {
        const float tie = ldexpf(448.0f, k);
        attend_fixture f = plain(1, tie);
        expect(&f, 0x7E, (uint8_t)(127 + k), 0.0f, 0.0f);
        set_rows(&f, tie * (450.0f / 448.0f)); /* the next bf16: 225 under the next scale */
        expect(&f, 0x76, (uint8_t)(128 + k), 0.0f, 0.0f);
        attend_fixture_destroy(&f);
    }
}

static void chain_reads_fused_q_where_it_lies(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_rows(1);
    f.desc.n_heads = 64;
    f.desc.q_layout = MMLA_Q_FUSED;
    attend_fixture_fill(&f, seed);
    memset(f.q.data, 0, f.q.bytes);
    memset(f.positions.data, 0, f.positions.bytes);
    ((uint16_t *)f.q.data)[28722] = 0x3F80; /* head 3, dim 450 */
    uint16_t *after[CHAIN_FIXTURE_STEPS];
    assert_int_equal(chain_fixture_run_steps(&f, after), MMLA_OK);
    for (int i = 0; i < 64 * D; i++) {
        assert_int_equal(after[MMLA_CHAIN_ROPE_Q][i] & 0x7FFF, i == 3 * D + 450 ? 0x3F80 : 0);
    }
    chain_fixture_free_steps(after);
    attend_fixture_destroy(&f);
}

static void chain_writes_codes_and_scales_where_wo_a_reads_them(void **state) {
    (void)state;
    attend_fixture f = attend_fixture_rows(2);
    f.n_tokens = 5;
    f.desc.n_heads = 64;
    attend_fixture_fill(&f, seed);
    memset(f.q.data, 0, f.q.bytes);
    memset(f.kv.data, 0, f.kv.bytes);
    for (int32_t r = 0; r < 16; r++) {
        ((uint16_t *)f.kv.data)[r * D + 70] = 0x3F80;
    }
    set_sinks(&f, INFINITY);
    ((float *)f.sink.data)[11] = -INFINITY; /* all heads but one give zero */
    assert_int_equal(chain_fixture_run(&f), MMLA_OK);
    const uint8_t *codes = f.out.data, *scale = f.out_scale.data;
    for (size_t i = 0; i < f.out.bytes; i++) {
        const bool here = i % (8 * 4096) == 4096 + 614; /* head 11, dim 70, in group 1 */
        assert_int_equal(codes[i] & 0x7F, here ? 0x78 : 0);
    }
    assert_int_equal(f.out_scale.bytes, 4 * 8 * 256);
    for (size_t i = 0; i < f.out_scale.bytes; i++) { /* words: group 256, word 8, token 1 */
        const size_t word = i / 4, token = word % 8;
        const bool here = i % 4 == 3 && word / 256 == 1 && word % 256 / 8 == 4;
        const uint8_t want = token >= 5 ? TEST_POISON : here ? 119 : 105;
        assert_int_equal(scale[i], want);
    }
    attend_fixture_destroy(&f);
}

/* Random paged call of five tokens. */
static attend_fixture random_call(int32_t n_threads, mmla_out_form form) {
    attend_fixture f = attend_fixture_paged(n_threads);
    f.n_tokens = 5;
    f.desc.n_heads = 16;
    f.desc.out_form = form;
    attend_fixture_fill(&f, seed);
    return f;
}

static bool is_nan_token(const attend_fixture *f, int64_t t) {
    bool all = true;
    for (int32_t h = 0; h < f->desc.n_heads; h++) {
        const int64_t row = t * f->desc.n_heads + h;
        all = all && isnan(((const float *)f->lse.data)[row]);
        all = all && isnan(((const float *)f->max_logits.data)[row]);
        for (int32_t x = 0; x < D; x++) {
            all = all && isnan(attend_fixture_out(f, t, h, x));
        }
    }
    return all;
}

/* Results of every token but one are those of `want`, in bits where there is a code a dim. */
static void check_others(const attend_fixture *f, const attend_fixture *want, int64_t but) {
    for (int64_t t = 0; t < f->n_tokens; t++) {
        for (int32_t h = 0; h < f->desc.n_heads && t != but; h++) {
            const int64_t row = t * f->desc.n_heads + h;
            assert_true(((const float *)f->lse.data)[row] == ((const float *)want->lse.data)[row]);
            assert_true(((const float *)f->max_logits.data)[row] ==
                        ((const float *)want->max_logits.data)[row]);
            for (int32_t x = 0; x < D; x++) {
                assert_true(attend_fixture_out(f, t, h, x) == attend_fixture_out(want, t, h, x));
            }
        }
    }
}

static void chain_position_outside_the_table_is_nan_and_a_fault(void **state) {
    (void)state;
    static const int32_t illegal[] = {-1, 64, INT32_MIN, INT32_MAX};
    for (int form = 0; form < 4; form++) {
        attend_fixture good = random_call(2, (mmla_out_form)form);
        assert_int_equal(chain_fixture_run(&good), MMLA_OK);
        attend_fixture f = random_call(2, (mmla_out_form)form);
        int32_t n_faults = 40;
        f.args.n_faults = &n_faults;
        ((int32_t *)f.positions.data)[3] = illegal[form];
        ((int32_t *)f.lens.data)[3] = form % 2 ? 0 : 4; /* with no key just the same */
        ((int32_t *)f.compressed_lens.data)[3] = form % 2 ? 0 : 4;
        assert_int_equal(chain_fixture_run(&f), MMLA_E_INDEX);
        assert_string_equal(f.error.argument, "positions");
        assert_int_equal(n_faults, 41);
        assert_true(is_nan_token(&f, 3));
        if (form < 2) {
            assert_int_equal(attend_fixture_code(&f, 3, 9, 17), 0x7F);
            assert_int_equal(attend_fixture_scale_byte(&f, 3, 9, 2), 105);
        }
        check_others(&f, &good, 3);
        uint16_t *after[CHAIN_FIXTURE_STEPS]; /* step by step it is one fault, too */
        assert_int_equal(chain_fixture_run_steps(&f, after), MMLA_E_INDEX);
        assert_int_equal(n_faults, 42);
        assert_true(is_nan_token(&f, 3));
        chain_fixture_free_steps(after);
        attend_fixture_destroy(&f);
        attend_fixture_destroy(&good);
    }
}

static void chain_nan_in_a_used_row_stays_with_its_token(void **state) {
    (void)state;
    attend_fixture good = random_call(1, MMLA_OUT_FP8);
    attend_fixture f = random_call(1, MMLA_OUT_FP8);
    attend_fixture *const both[] = {&good, &f};
    for (int i = 0; i < 2; i++) { /* slot 7 is token 2's alone */
        for (int32_t k = 0; k < 5 * 4; k++) {
            int32_t *entry = (int32_t *)both[i]->list.data + k;
            *entry = *entry == 7 ? 8 : *entry;
        }
        ((int32_t *)both[i]->list.data)[2 * 4 + 1] = 7;
    }
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&f.desc.window, "window", &view, NULL), MMLA_OK);
    memset((uint8_t *)f.window.data + mmla_kv_data_offset(&view, 7), 0x7F, D);
    assert_int_equal(chain_fixture_run(&good), MMLA_OK);
    assert_int_equal(chain_fixture_run(&f), MMLA_OK);
    assert_true(is_nan_token(&f, 2));
    check_others(&f, &good, 2);
    attend_fixture_destroy(&good);
    attend_fixture_destroy(&f);
}

static void chain_never_loads_what_no_valid_entry_names(void **state) {
    (void)state;
    attend_fixture good = random_call(1, MMLA_OUT_BF16);
    attend_fixture f = random_call(1, MMLA_OUT_BF16);
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&f.desc.window, "window", &view, NULL), MMLA_OK);
    for (int32_t slot = 0; slot < view.n_slots; slot++) {
        bool used = false;
        for (int32_t k = 0; k < 5 * 4; k++) { /* only the first two of every list are keys */
            used = used || (k % 4 < 2 && ((const int32_t *)f.list.data)[k] == slot);
        }
        if (!used) {
            memset((uint8_t *)f.window.data + mmla_kv_data_offset(&view, slot), 0x7F, D);
            memset((uint8_t *)f.window.data + mmla_kv_scale_offset(&view, slot), 0xFF, 16);
        }
    }
    for (int t = 0; t < 5; t++) {
        ((int32_t *)good.list.data)[t * 4 + 2] = -1;
        ((int32_t *)good.list.data)[t * 4 + 3] = 16 * 3;
        ((int32_t *)f.lens.data)[t] = 2; /* the rest of the list names poisoned slots */
    }
    assert_int_equal(chain_fixture_run(&good), MMLA_OK);
    assert_int_equal(chain_fixture_run(&f), MMLA_OK);
    check_others(&f, &good, -1);
    attend_fixture_destroy(&good);
    attend_fixture_destroy(&f);
}

static void chain_threads_and_batch_change_no_bit(void **state) {
    (void)state;
    attend_fixture whole = random_call(1, MMLA_OUT_FP8);
    assert_int_equal(chain_fixture_run(&whole), MMLA_OK);
    for (int32_t threads = 2; threads <= 7; threads += 5) { /* fewer and more than tokens */
        attend_fixture f = random_call(threads, MMLA_OUT_FP8);
        assert_int_equal(chain_fixture_run(&f), MMLA_OK);
        check_others(&f, &whole, -1);
        f.n_tokens = f.args.n_tokens = 1; /* one token of the five by itself */
        for (int64_t t = 0; t < 5; t++) {
            f.args.q = (const uint16_t *)f.q.data + t * 16 * D;
            f.args.positions = (const int32_t *)f.positions.data + t;
            f.args.list = (const int32_t *)f.list.data + t * f.desc.list_width;
            f.args.compressed_list =
                (const int32_t *)f.compressed_list.data + t * f.desc.compressed_width;
            assert_int_equal(chain_fixture_run(&f), MMLA_OK);
            assert_memory_equal(f.out.data, (const uint8_t *)whole.out.data + t * 16 * D, 16 * D);
            assert_memory_equal(f.lse.data, (const float *)whole.lse.data + t * 16, 16 * 4);
        }
        attend_fixture_destroy(&f);
    }
    attend_fixture_destroy(&whole);
}

static void chain_no_token_touches_nothing(void **state) {
    (void)state;
    attend_fixture f = random_call(2, MMLA_OUT_FP8_PERMUTED);
    f.args.n_tokens = 0;
    assert_int_equal(chain_fixture_run(&f), MMLA_OK);
    assert_true(test_buffer_is_untouched(&f.out, 0, f.out.bytes));
    assert_true(test_buffer_is_untouched(&f.out_scale, 0, f.out_scale.bytes));
    assert_true(test_buffer_is_untouched(&f.lse, 0, f.lse.bytes));
    attend_fixture_destroy(&f);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_one_key_is_shared_with_the_sink),
        cmocka_unit_test(chain_repeated_keys_count_as_often_as_they_appear),
        cmocka_unit_test(chain_no_valid_key_gives_zero_whatever_the_sink),
        cmocka_unit_test(chain_largest_of_a_chunk_picks_the_scale),
        cmocka_unit_test(chain_reads_fused_q_where_it_lies),
        cmocka_unit_test(chain_writes_codes_and_scales_where_wo_a_reads_them),
        cmocka_unit_test(chain_position_outside_the_table_is_nan_and_a_fault),
        cmocka_unit_test(chain_nan_in_a_used_row_stays_with_its_token),
        cmocka_unit_test(chain_never_loads_what_no_valid_entry_names),
        cmocka_unit_test(chain_threads_and_batch_change_no_bit),
        cmocka_unit_test(chain_no_token_touches_nothing),
    };
    return cmocka_run_group_tests_name("chain", tests, NULL, NULL);
}
