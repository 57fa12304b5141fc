/* What kv_gather promises, for every implementation this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/gather_fixture.h"
#include "support/implementation_walk.h"

static uint64_t seed;

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0], TABLE = 4, PAGE = 5, ROWS = 24, OFFSET = 2 };

typedef void (*change_fn)(gather_fixture *f);
typedef void (*check_fn)(gather_fixture *f, const char *implementation);

/* check with every format and every implementation. shape changes the description before memory is
 * allocated, content the inputs before check; both may be NULL. */
static void for_all(change_fn shape, change_fn content, check_fn check) {
    for (int i = 0; i < N_FORMATS; i++) {
        gather_fixture f = gather_fixture_create(formats[i]);
        if (shape != NULL) {
            shape(&f);
        }
        gather_fixture_fill(&f, 1, seed);
        if (content != NULL) {
            content(&f);
        }
        const char *name;
        for (size_t n = 0; (name = test_implementation_anywhere(f.ctx, "kv_gather", n)) != NULL;
             n++) {
            check(&f, name);
        }
        gather_fixture_destroy(&f);
    }
}

/* The slot that position pos of request r means. */
static int64_t slot_of(gather_fixture *f, int64_t r, int64_t pos) {
    const int32_t page = gather_fixture_table(f, r)[pos / PAGE];
    return (int64_t)page * PAGE + pos % PAGE;
}

static void set_lens(gather_fixture *f, int64_t r, int32_t seq, int32_t gather) {
    gather_fixture_seq_lens(f)[r] = seq;
    gather_fixture_gather_lens(f)[r] = gather;
}

/* Request r holds its positions first .. first + n - 1 from the call's offset on, and nothing else. */
static void assert_rows(gather_fixture *f, int64_t r, int64_t first, int64_t n) {
    const int64_t offset = gather_fixture_offset(f);
    gather_fixture_assert_untouched(f, r, 0, offset);
    for (int64_t i = 0; i < n; i++) {
        gather_fixture_assert_row(f, r, offset + i, slot_of(f, r, first + i));
    }
    gather_fixture_assert_untouched(f, r, offset + n, gather_fixture_rows(f));
}

static void various_lens(gather_fixture *f) {
    set_lens(f, 0, 20, 20); /* the whole table */
    set_lens(f, 1, 13, 6);  /* from the middle of a page */
    set_lens(f, 2, 11, 1);
}

static void check_last_rows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_rows(f, 0, 0, 20);
    assert_rows(f, 1, 7, 6);
    assert_rows(f, 2, 10, 1);
}

static void gather_takes_the_last_rows_and_touches_no_other(void **state) {
    (void)state;
    for_all(NULL, various_lens, check_last_rows);
}

static void check_whole_sequences(gather_fixture *f, const char *implementation) {
    f->args.gather_lens = NULL;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_rows(f, 0, 0, 20);
    assert_rows(f, 1, 0, 13);
    assert_rows(f, 2, 0, 11);
}

static void gather_without_lens_takes_whole_sequences(void **state) {
    (void)state;
    for_all(NULL, various_lens, check_whole_sequences);
}

static void golden_record(gather_fixture *f) {
    set_lens(f, 0, 1, 1);
    gather_fixture_table(f, 0)[0] = 3;
    uint8_t *data = gather_fixture_data(f, 3 * PAGE), *scale = gather_fixture_scale(f, 3 * PAGE);
    static const uint8_t e4m3[4] = {0x38, 0xB8, 0x01, 0x7E}; /* 1 -1 2^-9 448 */
    static const uint8_t rope[4] = {0xF7, 0xC2, 0x81, 0xFF}; /* little-endian */
    memset(data, 0, (size_t)f->view.data_bytes);
    switch (f->view.format) {
    case MMLA_KV_V41_FP4:
        memset(scale, 0x40, (size_t)f->view.scale_bytes); /* 2.0 */
        data[0] = 0xA2;                                   /* 1 low, -1 high */
        data[1] = 0x71;                                   /* 0.5 low, 6 high */
        data[255] = 0x80;                                 /* 0 low, -0 high */
        break;
    case MMLA_KV_V4:
        memcpy(data + 448, rope, sizeof rope);
        /* fall through */
    default:
        memset(scale, 128, (size_t)f->view.scale_bytes); /* 2 */
        memcpy(data, e4m3, sizeof e4m3);
    }
}

static void check_golden(gather_fixture *f, const char *implementation) {
    static const uint16_t fp8[4] = {0x4000, 0xC000, 0x3B80, 0x4460}; /* 2 -2 2^-8 896 */
    static const uint16_t fp4[4] = {0x4000, 0xC000, 0x3F80, 0x4140}; /* 2 -2 1 12 */
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    const uint16_t *row = gather_fixture_out(f, 0, OFFSET);
    const bool is_fp4 = f->view.format == MMLA_KV_V41_FP4;
    assert_memory_equal(row, is_fp4 ? fp4 : fp8, sizeof fp8);
    assert_int_equal(row[4], 0);
    if (f->view.format == MMLA_KV_V4) {
        assert_int_equal(row[448], 0xC2F7);
        assert_int_equal(row[449], 0xFF81); /* a NaN, copied as it stands */
    }
    if (is_fp4) {
        assert_int_equal(row[510], 0x0000);
        assert_int_equal(row[511], 0x8000);
    }
}

static void gather_golden_record_gives_golden_row(void **state) {
    (void)state;
    for_all(NULL, golden_record, check_golden);
}

static void illegal_pages(gather_fixture *f) {
    static const int32_t pages[3][TABLE] = {
        {-1, 8, INT32_MIN, INT32_MAX}, {7, -1, 0, -2147483647}, {0, 1, 2, 3}};
    for (int64_t r = 0; r < 3; r++) {
        memcpy(gather_fixture_table(f, r), pages[r], sizeof pages[r]);
    }
    set_lens(f, 0, 20, 20);
    set_lens(f, 1, 22, 22); /* two past the table: the next request's page 0 is none of its own */
    set_lens(f, 2, 26, 10); /* positions 16 .. 25, of which the table reaches 19 */
}

static void check_zero_rows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    for (int64_t i = 0; i < 20; i++) {
        gather_fixture_assert_row(f, 0, OFFSET + i, -1);
    }
    for (int64_t i = 0; i < 22; i++) {
        const int64_t slot = i < 5 ? 35 + i : i >= 10 && i < 15 ? i - 10 : -1;
        gather_fixture_assert_row(f, 1, OFFSET + i, slot);
    }
    for (int64_t i = 0; i < 10; i++) {
        gather_fixture_assert_row(f, 2, OFFSET + i, i < 4 ? 16 + i : -1);
    }
}

static void gather_pages_outside_the_cache_give_zero_rows(void **state) {
    (void)state;
    for_all(NULL, illegal_pages, check_zero_rows);
}

static void far_positions(gather_fixture *f) {
    set_lens(f, 0, INT32_MAX, 3);
    set_lens(f, 1, INT32_MAX, 22);
    set_lens(f, 2, 0, 0);
}

static void check_far_positions(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_fixture_assert_row(f, 0, OFFSET, -1);
    gather_fixture_assert_row(f, 1, ROWS - 1, -1);
    gather_fixture_assert_untouched(f, 0, OFFSET + 3, ROWS);
    gather_fixture_assert_untouched(f, 2, 0, ROWS);
}

static void gather_positions_past_the_table_give_zero_rows(void **state) {
    (void)state;
    for_all(NULL, far_positions, check_far_positions);
}

static void odd_lens(gather_fixture *f) {
    set_lens(f, 0, -5, 4);        /* no records */
    set_lens(f, 1, 6, 1000);      /* at most all of them */
    set_lens(f, 2, 6, INT32_MIN); /* none */
}

static void check_clamped(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    assert_rows(f, 0, 0, 0);
    assert_rows(f, 1, 0, 6);
    assert_rows(f, 2, 0, 0);
}

static void gather_lens_are_clamped_to_the_sequence(void **state) {
    (void)state;
    for_all(NULL, odd_lens, check_clamped);
}

static void offset_20(gather_fixture *f) {
    f->desc.offset = 20;
}

static void lens_beyond_the_room(gather_fixture *f) {
    set_lens(f, 0, 20, 4); /* fits exactly */
    set_lens(f, 1, 20, 5);
    set_lens(f, 2, 20, 20);
}

static void check_room(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 2);
    const bool has_message = !test_implementation_is_cuda(implementation);
    assert_string_equal(f->error.argument, has_message ? "gather_lens" : "");
    assert_string_equal(f->error.message,
                        has_message ? "gather_lens: of request 1 is more than the 4 rows past "
                                      "offset; requests cut short: 2"
                                    : "");
    static const int64_t first[3] = {16, 15, 0};
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_assert_untouched(f, r, 0, 20);
        for (int64_t i = 0; i < 4; i++) {
            gather_fixture_assert_row(f, r, 20 + i, slot_of(f, r, first[r] + i));
        }
    }
}

static void gather_beyond_the_room_is_cut_and_reported(void **state) {
    (void)state;
    for_all(offset_20, lens_beyond_the_room, check_room);
}

static void check_room_of_whole_sequences(gather_fixture *f, const char *implementation) {
    f->args.gather_lens = NULL;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 3);
    assert_string_equal(f->error.argument,
                        test_implementation_is_cuda(implementation) ? "" : "seq_lens");
}

static void gather_without_lens_blames_the_sequence(void **state) {
    (void)state;
    for_all(offset_20, lens_beyond_the_room, check_room_of_whole_sequences);
}

static void no_room(gather_fixture *f) {
    f->desc.offset = ROWS;
}

static void check_no_room(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 3);
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_assert_untouched(f, r, 0, ROWS);
    }
}

static void gather_with_offset_at_the_end_writes_nothing(void **state) {
    (void)state;
    for_all(no_room, lens_beyond_the_room, check_no_room);
}

static void check_fault_counting(gather_fixture *f, const char *implementation) {
    if (test_implementation_is_cuda(implementation)) { /* adds in every test of the fixture */
        f->args.n_faults = NULL;
        assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
        f->args.n_faults = &f->n_faults;
        return;
    }
    mmla_kv_gather_plan *plan;
    mmla_kv_gather_desc desc = f->desc;
    mmla_kv_gather_args args = f->args;
    desc.implementation = implementation;
    assert_int_equal(mmla_kv_gather_plan_create(f->ctx, &desc, &plan, NULL), MMLA_OK);
    args.error = NULL;
    f->n_faults = 40;
    assert_int_equal(mmla_kv_gather_run(plan, &args, NULL, NULL), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 42);
    args.n_faults = NULL;
    assert_int_equal(mmla_kv_gather_run(plan, &args, NULL, NULL), MMLA_E_INDEX);
    mmla_kv_gather_plan_destroy(plan);
}

static void gather_faults_are_added_and_may_go_uncounted(void **state) {
    (void)state;
    for_all(offset_20, lens_beyond_the_room, check_fault_counting);
}

/* --- ratio ------------------------------------------------------------------------------------ */

static void ratio_2(gather_fixture *f) {
    f->desc.ratio = 2;
}

static void lens_in_tokens(gather_fixture *f) {
    set_lens(f, 0, 41, 1000); /* 20 records, and a token that has none yet */
    set_lens(f, 1, 26, 6);
    set_lens(f, 2, 1, 1);
}

static void check_records_of_two(gather_fixture *f, const char *implementation) {
    const int32_t *lens = f->args.gather_lens;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_rows(f, 0, 0, 20);
    assert_rows(f, 1, 7, 6);
    assert_rows(f, 2, 0, 0);
    f->args.gather_lens = NULL;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    assert_rows(f, 0, 0, 20);
    assert_rows(f, 1, 0, 13);
    assert_rows(f, 2, 0, 0);
    f->args.gather_lens = lens;
}

static void gather_a_record_of_ratio_2_stands_for_two_tokens(void **state) {
    (void)state;
    for_all(ratio_2, lens_in_tokens, check_records_of_two);
}

static void odd_lens_in_tokens(gather_fixture *f) {
    set_lens(f, 0, -3, 1);        /* no records, and none before the first */
    set_lens(f, 1, INT32_MAX, 2); /* the last two lie past the table */
    set_lens(f, 2, 45, 22);       /* two of 22 do */
}

static void check_far_records_of_two(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_rows(f, 0, 0, 0);
    gather_fixture_assert_row(f, 1, OFFSET, -1);
    gather_fixture_assert_row(f, 1, OFFSET + 1, -1);
    gather_fixture_assert_untouched(f, 1, OFFSET + 2, ROWS);
    for (int64_t i = 0; i < 22; i++) {
        gather_fixture_assert_row(f, 2, OFFSET + i, i < 20 ? slot_of(f, 2, i) : -1);
    }
}

static void gather_of_ratio_2_takes_any_length(void **state) {
    (void)state;
    for_all(ratio_2, odd_lens_in_tokens, check_far_records_of_two);
}

static void ratio_1(gather_fixture *f) {
    f->desc.ratio = 1;
}

static void gather_of_ratio_1_is_that_of_no_ratio(void **state) {
    (void)state;
    for_all(ratio_1, various_lens, check_last_rows);
}

/* --- window ----------------------------------------------------------------------------------- */

/* A request of seq tokens, the last `query` of which are asked, holds n positions from first on. */
typedef struct seen {
    int32_t seq, query;
    int64_t first, n;
} seen;

static void check_seen(gather_fixture *f, const char *implementation, const seen want[3]) {
    f->args.gather_lens = NULL;
    gather_fixture_query_start(f)[0] = 4; /* any start: lengths are differences */
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_seq_lens(f)[r] = want[r].seq;
        gather_fixture_query_start(f)[r + 1] = gather_fixture_query_start(f)[r] + want[r].query;
    }
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    for (int64_t r = 0; r < 3; r++) {
        assert_rows(f, r, want[r].first, want[r].n);
    }
}

static void check_windows(gather_fixture *f, const char *implementation) {
    static const struct {
        int32_t window;
        seen want[3];
    } cases[] = {
        {4, {{20, 3, 14, 6}, {11, 1, 7, 4}, {13, 13, 0, 13}}}, /* the first query sees 3 back */
        {4, {{5, 2, 0, 5}, {4, 1, 0, 4}, {2, 1, 0, 2}}},       /* a prefix of 3, and shorter ones */
        {4, {{9, 0, 6, 3}, {9, -2, 6, 3}, {9, 30, 0, 9}}},     /* a query is 0 .. seq tokens */
        {4, {{-5, 3, 0, 0}, {0, 3, 0, 0}, {0, 0, 0, 0}}},
        {1, {{20, 3, 17, 3}, {20, 0, 20, 0}, {6, 6, 0, 6}}}, /* each sees itself */
        {19, {{20, 1, 1, 19}, {19, 1, 0, 19}, {20, 2, 0, 20}}},
        {INT32_MAX, {{20, 1, 0, 20}, {20, 0, 0, 20}, {20, 20, 0, 20}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->desc.window = cases[i].window;
        check_seen(f, implementation, cases[i].want);
    }
    f->desc.ratio = 1; /* which a window may say */
    check_seen(f, implementation, cases[6].want);
    f->desc.ratio = 0;
}

static void gather_with_a_window_takes_what_the_queries_see(void **state) {
    (void)state;
    for_all(NULL, NULL, check_windows);
}

static void starts_of_any_value(gather_fixture *f) {
    static const int32_t starts[4] = {INT32_MIN, INT32_MAX, INT32_MIN, 0};
    memcpy(gather_fixture_query_start(f), starts, sizeof starts);
    various_lens(f);
    f->desc.window = 4;
    f->args.gather_lens = NULL;
}

static void check_wild_queries(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_rows(f, 0, 0, 20); /* 2^32 - 1 queries, which is all */
    assert_rows(f, 1, 10, 3); /* and as many fewer than none */
    assert_rows(f, 2, 0, 11);
}

static void gather_with_a_window_survives_any_query_start(void **state) {
    (void)state;
    for_all(NULL, starts_of_any_value, check_wild_queries);
}

static void check_what_is_not_looked_at(gather_fixture *f, const char *implementation) {
    const mmla_kv_gather_args args = f->args;
    f->args.query_start = NULL;
    f->desc.window = 4;
    check_last_rows(f, implementation);
    f->desc.window = 0;
    check_whole_sequences(f, implementation);
    f->args = args;
}

static void gather_needs_query_start_for_a_window_alone(void **state) {
    (void)state;
    for_all(NULL, various_lens, check_what_is_not_looked_at);
}

static void window_beyond_the_room(gather_fixture *f) {
    static const int32_t starts[4] = {0, 1, 4, 4};
    memcpy(gather_fixture_query_start(f), starts, sizeof starts);
    set_lens(f, 0, 20, 0);
    set_lens(f, 1, 20, 0);
    set_lens(f, 2, 20, 0);
    f->desc.window = 4;
    f->args.gather_lens = NULL;
}

static void check_room_of_windows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 1);
    assert_string_equal(f->error.argument,
                        test_implementation_is_cuda(implementation) ? "" : "seq_lens");
    assert_rows(f, 0, 16, 4); /* fits exactly */
    assert_rows(f, 1, 14, 4); /* of six */
    assert_rows(f, 2, 17, 3);
}

static void gather_of_a_window_beyond_the_room_is_cut_and_reported(void **state) {
    (void)state;
    for_all(offset_20, window_beyond_the_room, check_room_of_windows);
}

/* --- the rows of a call ----------------------------------------------------------------------- */

static void own_rows_fewer(gather_fixture *f) {
    f->args.rows = 21; /* request 0 just fits */
    f->args.offset = 1;
}

static void own_rows_more(gather_fixture *f) {
    f->desc.rows = 1; /* room for none of them */
    f->desc.offset = 1;
    f->args.rows = 60;
    f->args.offset = 31;
}

static void gather_takes_the_rows_and_the_offset_of_the_call(void **state) {
    (void)state;
    for_all(own_rows_fewer, various_lens, check_last_rows);
    for_all(own_rows_more, various_lens, check_last_rows);
    for_all(own_rows_more, various_lens, check_whole_sequences);
}

static void own_room_of_4(gather_fixture *f) {
    f->args.rows = 7;
    f->args.offset = 3;
}

static void check_own_room(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 2);
    assert_string_equal(f->error.message,
                        test_implementation_is_cuda(implementation)
                            ? ""
                            : "gather_lens: of request 1 is more than the 4 rows past "
                              "offset; requests cut short: 2");
    assert_rows(f, 0, 16, 4);
    assert_rows(f, 1, 15, 4);
    assert_rows(f, 2, 0, 4);
}

static void gather_beyond_the_room_of_the_call_is_cut_and_reported(void **state) {
    (void)state;
    for_all(own_room_of_4, lens_beyond_the_room, check_own_room);
}

static void an_offset_alone(gather_fixture *f) {
    various_lens(f);
    f->args.offset = -77;
}

static void gather_without_rows_of_the_call_takes_the_descriptions_offset(void **state) {
    (void)state;
    for_all(NULL, an_offset_alone, check_last_rows);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void wide_strides(gather_fixture *f) {
    f->desc.cache.page_stride_bytes = 1000000;
    f->desc.row_stride = MMLA_LATENT_DIM + 24;
    f->desc.table_stride = TABLE + 3;
}

static void nan_around_the_table(gather_fixture *f) {
    various_lens(f);
    for (int64_t r = 0; r < 3; r++) {
        for (int i = TABLE; i < TABLE + 3; i++) {
            gather_fixture_table(f, r)[i] = INT32_MAX;
        }
    }
}

static void check_gaps(gather_fixture *f, const char *implementation) {
    check_last_rows(f, implementation);
    for (int64_t i = 0; i < 20; i++) {
        const uint8_t *gap = (const uint8_t *)(gather_fixture_out(f, 0, OFFSET + i) + 512);
        const size_t at = (size_t)(gap - (uint8_t *)f->out.data);
        assert_true(test_buffer_is_untouched(&f->out, at, at + 24 * sizeof(uint16_t)));
    }
}

static void gather_respects_every_stride(void **state) {
    (void)state;
    for_all(wide_strides, nan_around_the_table, check_gaps);
}

static void all_of_everything(gather_fixture *f) {
    for (int64_t r = 0; r < 3; r++) {
        set_lens(f, r, 20, 20);
        for (int32_t i = 0; i < TABLE; i++) {
            gather_fixture_table(f, r)[i] = (int32_t)((3 * r + i) % 8);
        }
    }
}

static void check_all_finite(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    for (int64_t r = 0; r < 3; r++) {
        for (int64_t row = OFFSET; row < OFFSET + 20; row++) {
            for (int i = 0; i < MMLA_LATENT_DIM; i++) {
                assert_true(isfinite(mmla_bf16_to_f32(gather_fixture_out(f, r, row)[i])));
            }
        }
    }
}

static void gather_never_reads_page_padding(void **state) {
    (void)state;
    for_all(NULL, all_of_everything, check_all_finite); /* the fixture's padding means NaN */
}

static void no_pages(gather_fixture *f) {
    f->desc.cache.n_pages = 0;
}

static void no_memory(gather_fixture *f) {
    various_lens(f);
    f->args.cache = NULL;
}

static void check_only_zeros(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    for (int64_t i = 0; i < 20; i++) {
        gather_fixture_assert_row(f, 0, OFFSET + i, -1);
    }
}

static void gather_from_an_empty_cache_gives_zero_rows(void **state) {
    (void)state;
    for_all(no_pages, no_memory, check_only_zeros);
}

static void no_arguments(gather_fixture *f) {
    f->args = (mmla_kv_gather_args){0};
}

static void check_nothing(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_true(test_buffer_is_untouched(&f->out, 0, f->out.bytes));
}

static void gather_zero_requests_need_no_pointer(void **state) {
    (void)state;
    for_all(NULL, no_arguments, check_nothing);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_takes_the_last_rows_and_touches_no_other),
        cmocka_unit_test(gather_without_lens_takes_whole_sequences),
        cmocka_unit_test(gather_golden_record_gives_golden_row),
        cmocka_unit_test(gather_pages_outside_the_cache_give_zero_rows),
        cmocka_unit_test(gather_positions_past_the_table_give_zero_rows),
        cmocka_unit_test(gather_lens_are_clamped_to_the_sequence),
        cmocka_unit_test(gather_beyond_the_room_is_cut_and_reported),
        cmocka_unit_test(gather_without_lens_blames_the_sequence),
        cmocka_unit_test(gather_with_offset_at_the_end_writes_nothing),
        cmocka_unit_test(gather_faults_are_added_and_may_go_uncounted),
        cmocka_unit_test(gather_a_record_of_ratio_2_stands_for_two_tokens),
        cmocka_unit_test(gather_of_ratio_2_takes_any_length),
        cmocka_unit_test(gather_of_ratio_1_is_that_of_no_ratio),
        cmocka_unit_test(gather_with_a_window_takes_what_the_queries_see),
        cmocka_unit_test(gather_with_a_window_survives_any_query_start),
        cmocka_unit_test(gather_needs_query_start_for_a_window_alone),
        cmocka_unit_test(gather_of_a_window_beyond_the_room_is_cut_and_reported),
        cmocka_unit_test(gather_takes_the_rows_and_the_offset_of_the_call),
        cmocka_unit_test(gather_beyond_the_room_of_the_call_is_cut_and_reported),
        cmocka_unit_test(gather_without_rows_of_the_call_takes_the_descriptions_offset),
        cmocka_unit_test(gather_respects_every_stride),
        cmocka_unit_test(gather_never_reads_page_padding),
        cmocka_unit_test(gather_from_an_empty_cache_gives_zero_rows),
        cmocka_unit_test(gather_zero_requests_need_no_pointer),
    };
    return cmocka_run_group_tests_name("kv_gather", tests, NULL, NULL);
}
