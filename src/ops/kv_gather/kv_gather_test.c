/* What kv_gather promises, for every implementation this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/gather_walk.h"
#include "support/implementation_walk.h"

static uint64_t seed;

/* Every format and every implementation. */
static void for_all(gather_change_fn shape, gather_change_fn content, gather_check_fn check) {
    gather_walk(seed, shape, content, check);
}

static void gather_takes_the_last_rows_and_touches_no_other(void **state) {
    (void)state;
    for_all(NULL, gather_walk_various_lens, gather_walk_check_last_rows);
}

static void gather_without_lens_takes_whole_sequences(void **state) {
    (void)state;
    for_all(NULL, gather_walk_various_lens, gather_walk_check_whole_sequences);
}

static void golden_record(gather_fixture *f) {
    gather_walk_set_lens(f, 0, 1, 1);
    gather_fixture_table(f, 0)[0] = 3;
    uint8_t *data = gather_fixture_data(f, 3 * GATHER_PAGE),
            *scale = gather_fixture_scale(f, 3 * GATHER_PAGE);
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
    const uint16_t *row = gather_fixture_out(f, 0, GATHER_OFFSET);
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
    static const int32_t pages[3][GATHER_TABLE] = {
        {-1, 8, INT32_MIN, INT32_MAX}, {7, -1, 0, -2147483647}, {0, 1, 2, 3}};
    for (int64_t r = 0; r < 3; r++) {
        memcpy(gather_fixture_table(f, r), pages[r], sizeof pages[r]);
    }
    gather_walk_set_lens(f, 0, 20, 20);
    gather_walk_set_lens(f, 1, 22,
                         22); /* two past the table: the next request's page 0 is none of its own */
    gather_walk_set_lens(f, 2, 26, 10); /* positions 16 .. 25, of which the table reaches 19 */
}

static void check_zero_rows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    for (int64_t i = 0; i < 20; i++) {
        gather_fixture_assert_row(f, 0, GATHER_OFFSET + i, -1);
    }
    for (int64_t i = 0; i < 22; i++) {
        const int64_t slot = i < 5 ? 35 + i : i >= 10 && i < 15 ? i - 10 : -1;
        gather_fixture_assert_row(f, 1, GATHER_OFFSET + i, slot);
    }
    for (int64_t i = 0; i < 10; i++) {
        gather_fixture_assert_row(f, 2, GATHER_OFFSET + i, i < 4 ? 16 + i : -1);
    }
}

static void gather_pages_outside_the_cache_give_zero_rows(void **state) {
    (void)state;
    for_all(NULL, illegal_pages, check_zero_rows);
}

static void far_positions(gather_fixture *f) {
    gather_walk_set_lens(f, 0, INT32_MAX, 3);
    gather_walk_set_lens(f, 1, INT32_MAX, 22);
    gather_walk_set_lens(f, 2, 0, 0);
}

static void check_far_positions(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_fixture_assert_row(f, 0, GATHER_OFFSET, -1);
    gather_fixture_assert_row(f, 1, GATHER_ROWS - 1, -1);
    gather_fixture_assert_untouched(f, 0, GATHER_OFFSET + 3, GATHER_ROWS);
    gather_fixture_assert_untouched(f, 2, 0, GATHER_ROWS);
}

static void gather_positions_past_the_table_give_zero_rows(void **state) {
    (void)state;
    for_all(NULL, far_positions, check_far_positions);
}

static void odd_lens(gather_fixture *f) {
    gather_walk_set_lens(f, 0, -5, 4);        /* no records */
    gather_walk_set_lens(f, 1, 6, 1000);      /* at most all of them */
    gather_walk_set_lens(f, 2, 6, INT32_MIN); /* none */
}

static void check_clamped(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    gather_walk_assert_rows(f, 0, 0, 0);
    gather_walk_assert_rows(f, 1, 0, 6);
    gather_walk_assert_rows(f, 2, 0, 0);
}

static void gather_lens_are_clamped_to_the_sequence(void **state) {
    (void)state;
    for_all(NULL, odd_lens, check_clamped);
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
            gather_fixture_assert_row(f, r, 20 + i, gather_walk_slot(f, r, first[r] + i));
        }
    }
}

static void gather_beyond_the_room_is_cut_and_reported(void **state) {
    (void)state;
    for_all(gather_walk_offset_20, gather_walk_lens_beyond_the_room, check_room);
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
    for_all(gather_walk_offset_20, gather_walk_lens_beyond_the_room, check_room_of_whole_sequences);
}

static void no_room(gather_fixture *f) {
    f->desc.offset = GATHER_ROWS;
}

static void check_no_room(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 3);
    for (int64_t r = 0; r < 3; r++) {
        gather_fixture_assert_untouched(f, r, 0, GATHER_ROWS);
    }
}

static void gather_with_offset_at_the_end_writes_nothing(void **state) {
    (void)state;
    for_all(no_room, gather_walk_lens_beyond_the_room, check_no_room);
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
    for_all(gather_walk_offset_20, gather_walk_lens_beyond_the_room, check_fault_counting);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void wide_strides(gather_fixture *f) {
    f->desc.cache.page_stride_bytes = 1000000;
    f->desc.row_stride = MMLA_LATENT_DIM + 24;
    f->desc.table_stride = GATHER_TABLE + 3;
}

static void nan_around_the_table(gather_fixture *f) {
    gather_walk_various_lens(f);
    for (int64_t r = 0; r < 3; r++) {
        for (int i = GATHER_TABLE; i < GATHER_TABLE + 3; i++) {
            gather_fixture_table(f, r)[i] = INT32_MAX;
        }
    }
}

static void check_gaps(gather_fixture *f, const char *implementation) {
    gather_walk_check_last_rows(f, implementation);
    for (int64_t i = 0; i < 20; i++) {
        const uint8_t *gap = (const uint8_t *)(gather_fixture_out(f, 0, GATHER_OFFSET + i) + 512);
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
        gather_walk_set_lens(f, r, 20, 20);
        for (int32_t i = 0; i < GATHER_TABLE; i++) {
            gather_fixture_table(f, r)[i] = (int32_t)((3 * r + i) % 8);
        }
    }
}

static void check_all_finite(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    for (int64_t r = 0; r < 3; r++) {
        for (int64_t row = GATHER_OFFSET; row < GATHER_OFFSET + 20; row++) {
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
    gather_walk_various_lens(f);
    f->args.cache = NULL;
}

static void check_only_zeros(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    for (int64_t i = 0; i < 20; i++) {
        gather_fixture_assert_row(f, 0, GATHER_OFFSET + i, -1);
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
        cmocka_unit_test(gather_respects_every_stride),
        cmocka_unit_test(gather_never_reads_page_padding),
        cmocka_unit_test(gather_from_an_empty_cache_gives_zero_rows),
        cmocka_unit_test(gather_zero_requests_need_no_pointer),
    };
    return cmocka_run_group_tests_name("kv_gather", tests, NULL, NULL);
}
