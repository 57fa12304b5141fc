/* What kv_insert promises, for every implementation this machine has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "support/insert_fixture.h"
#include "support/implementation_walk.h"

static uint64_t seed;

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4,
                                         MMLA_KV_INDEX_FP8, MMLA_KV_INDEX_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

typedef void (*change_fn)(insert_fixture *f);
typedef void (*check_fn)(insert_fixture *f, const char *implementation);

/* check with every format and every implementation. shape changes the description before memory is
 * allocated, content the inputs before check; both may be NULL. */
static void for_all(change_fn shape, change_fn content, check_fn check) {
    for (int i = 0; i < N_FORMATS; i++) {
        insert_fixture f = insert_fixture_create(formats[i]);
        if (shape != NULL) {
            shape(&f);
        }
        insert_fixture_fill(&f, 1, seed);
        if (content != NULL) {
            content(&f);
        }
        const char *name;
        for (size_t n = 0; (name = test_implementation_anywhere(f.ctx, "kv_insert", n)) != NULL;
             n++) {
            check(&f, name);
        }
        insert_fixture_destroy(&f);
    }
}

/* cos 1, sin 0 at every position: the rotation changes nothing but the sign of a zero. */
static void rotate_by_nothing(insert_fixture *f) {
    for (int64_t i = 0; i < f->desc.rope_positions * MMLA_ROPE_DIM; i++) {
        insert_fixture_cos_sin(f)[i] = i % MMLA_ROPE_DIM < MMLA_ROPE_DIM / 2 ? 1.0f : 0.0f;
    }
}

static void set_row(insert_fixture *f, int64_t t, float value) {
    for (int i = 0; i < mmla_kv_dims(f->view.format); i++) {
        insert_fixture_row(f, t)[i] = mmla_bf16_from_f32(value);
    }
}

/* Sixteen values up to 5.90625, then zeros. */
static void golden_content(insert_fixture *f) {
    rotate_by_nothing(f);
    set_row(f, 3, 0.0f);
    for (int i = 0; i < 16; i++) {
        insert_fixture_row(f, 3)[i] =
            mmla_bf16_from_f32((i % 2 == 0 ? 0.37f : -0.37f) * (float)(i + 1));
    }
}

static void check_golden(insert_fixture *f, const char *implementation) {
    static const uint8_t e4m3[16] = {0x5C, 0xE4, 0x69, 0xEC, 0x6F, 0xF1, 0x72, 0xF4,
                                     0x75, 0xF7, 0x78, 0xF9, 0x7A, 0xFA, 0x7B, 0xFC};
    static const uint8_t e2m1[8] = {0x91, 0xB2, 0xC4, 0xD5, 0xE5, 0xE6, 0xF6, 0xF7};
    static const uint8_t scales[][4] = {
        [MMLA_KV_V4] = {121, 105, 105, 105},  [MMLA_KV_V41_FP8] = {121, 105, 105, 105},
        [MMLA_KV_V41_FP4] = {0x38, 1, 1, 1},  [MMLA_KV_INDEX_FP8] = {0, 0, 0x80, 0x3C}, /* 2^-6 */
        [MMLA_KV_INDEX_FP4] = {127, 1, 1, 1},
    };
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    const int64_t slot = insert_fixture_slots(f)[3];
    const uint8_t *data = insert_fixture_data(f, slot);
    const bool is_fp4 = f->view.format == MMLA_KV_V41_FP4 || f->view.format == MMLA_KV_INDEX_FP4;
    assert_memory_equal(data, is_fp4 ? e2m1 : e4m3, is_fp4 ? sizeof e2m1 : sizeof e4m3);
    for (int i = is_fp4 ? 8 : 16; i < f->view.data_bytes; i++) {
        assert_int_equal(data[i], 0);
    }
    assert_memory_equal(insert_fixture_scale(f, slot), scales[f->view.format], 4);
}

static void insert_golden_row_gives_golden_bytes(void **state) {
    (void)state;
    for_all(NULL, golden_content, check_golden);
}

static uint16_t rope_code(const insert_fixture *f, int64_t slot, int i) {
    uint16_t code;
    memcpy(&code, insert_fixture_data(f, slot) + MMLA_KV_V4_FP8_DIMS + 2 * i, sizeof code);
    return code;
}

static void check_rope_part(insert_fixture *f, const char *implementation) {
    if (f->view.format != MMLA_KV_V4) {
        return;
    }
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    for (int64_t t = 0; t < f->args.n_rows; t++) {
        const int64_t slot = insert_fixture_slots(f)[t];
        for (int i = 0; i < MMLA_ROPE_DIM; i++) {
            assert_true(mmla_bf16_to_f32(rope_code(f, slot, i)) ==
                        mmla_bf16_to_f32(insert_fixture_row(f, t)[MMLA_KV_V4_FP8_DIMS + i]));
        }
        assert_int_equal(insert_fixture_scale(f, slot)[MMLA_KV_V4_SCALES], 0);
    }
}

static void insert_v4_keeps_rope_as_bf16_and_writes_its_pad_byte(void **state) {
    (void)state;
    for_all(NULL, rotate_by_nothing, check_rope_part);
}

/* Position p turns the pair (1, 0) to (p, -p / 2): exact in bf16 for small p. */
static void position_as_angle(insert_fixture *f) {
    for (int64_t i = 0; i < f->desc.rope_positions * MMLA_ROPE_DIM; i++) {
        const float p = (float)(i / MMLA_ROPE_DIM);
        insert_fixture_cos_sin(f)[i] = i % MMLA_ROPE_DIM < MMLA_ROPE_DIM / 2 ? p : -p / 2;
    }
    for (int64_t t = 0; t < f->args.n_rows; t++) {
        for (int i = 0; i < mmla_kv_dims(f->view.format); i++) {
            insert_fixture_row(f, t)[i] = i % 2 == 0 ? 0x3F80 : 0;
        }
        insert_fixture_positions(f)[t] = 7 * t + t % 2;
    }
}

static void check_angles(insert_fixture *f, const char *implementation) {
    if (f->view.format != MMLA_KV_V4) {
        return;
    }
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    for (int64_t t = 0; t < f->args.n_rows; t++) {
        const int64_t position = insert_fixture_positions(f)[t], slot = insert_fixture_slots(f)[t];
        const float p = (float)(f->desc.ratio == 2 ? position / 2 * 2 : position);
        assert_true(mmla_bf16_to_f32(rope_code(f, slot, 0)) == p);
        assert_true(mmla_bf16_to_f32(rope_code(f, slot, 63)) == -p / 2);
    }
}

static void ratio_1(insert_fixture *f) {
    f->desc.ratio = 1;
}

static void ratio_2(insert_fixture *f) {
    f->desc.ratio = 2;
}

static void insert_rotates_at_the_first_position_of_the_group(void **state) {
    (void)state;
    for_all(NULL, position_as_angle, check_angles);
    for_all(ratio_1, position_as_angle, check_angles);
    for_all(ratio_2, position_as_angle, check_angles);
}

static void negative_slots(insert_fixture *f) {
    static const int64_t negative[8] = {-1, -2, -64, INT32_MIN, INT64_MIN, -1, INT64_MIN + 1, -7};
    memcpy(insert_fixture_slots(f), negative, sizeof negative);
    insert_fixture_positions(f)[2] = -5; /* nobody looks at the position of a row not written */
    insert_fixture_positions(f)[3] = INT64_MAX;
}

static void check_nothing_written(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(f->n_faults, 0);
    insert_fixture_assert_only(f, NULL, 0);
}

static void insert_negative_slot_writes_nothing(void **state) {
    (void)state;
    for_all(NULL, negative_slots, check_nothing_written);
}

static void padded_pages(insert_fixture *f) {
    f->desc.cache.page_stride_bytes = 8192;
}

static void one_negative_slot(insert_fixture *f) {
    insert_fixture_slots(f)[7] = -1;
}

static void check_seven_written(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    insert_fixture_assert_only(f, insert_fixture_slots(f), 7);
}

static void insert_only_the_addressed_records_change(void **state) {
    (void)state;
    for_all(padded_pages, one_negative_slot, check_seven_written);
}

static void slots_past_capacity(insert_fixture *f) {
    static const int64_t bad[4] = {21, INT64_MAX, INT64_C(1) << 32, INT64_C(4294967297)};
    for (int64_t t = 0; t < 4; t++) {
        insert_fixture_slots(f)[2 * t + 1] = bad[t];
    }
}

/* The rows at odd places are refused, the others written. */
static void check_odd_rows_refused(insert_fixture *f, const char *implementation) {
    const int64_t *slots = insert_fixture_slots(f);
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->error.status,
                     test_implementation_is_cuda(implementation) ? MMLA_OK : MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 4);
    insert_fixture_assert_only(f, (const int64_t[]){slots[0], slots[2], slots[4], slots[6]}, 4);
}

static void assert_message(const insert_fixture *f,
                           const char *implementation,
                           const char *argument,
                           const char *message) {
    const bool has_message = !test_implementation_is_cuda(implementation);
    assert_string_equal(f->error.argument, has_message ? argument : "");
    assert_string_equal(f->error.message, has_message ? message : "");
}

static void check_slot_message(insert_fixture *f, const char *implementation) {
    check_odd_rows_refused(f, implementation);
    assert_message(f, implementation, "slots",
                   "slots: of row 1 is 21, must be below the capacity 21; rows refused: 4");
}

static void insert_slot_past_capacity_is_refused_and_the_rest_is_written(void **state) {
    (void)state;
    for_all(NULL, slots_past_capacity, check_slot_message);
}

static void positions_outside(insert_fixture *f) {
    static const int64_t bad[4] = {-1, 64, INT64_MIN, INT64_MAX};
    for (int64_t t = 0; t < 4; t++) {
        insert_fixture_positions(f)[2 * t + 1] = bad[t];
    }
}

static void check_position_message(insert_fixture *f, const char *implementation) {
    check_odd_rows_refused(f, implementation);
    assert_message(f, implementation, "positions",
                   "positions: of row 1 is -1, must have one of the 64 lines of cos_sin; rows "
                   "refused: 4");
}

static void insert_position_outside_the_table_is_refused_and_the_rest_is_written(void **state) {
    (void)state;
    for_all(NULL, positions_outside, check_position_message);
    for_all(ratio_2, positions_outside, check_position_message);
}

static void ratio_2_of_63_positions(insert_fixture *f) {
    f->desc.ratio = 2;
    f->desc.rope_positions = 63;
    f->args.n_slots = 2;
}

static void last_group_and_beyond(insert_fixture *f) {
    insert_fixture_positions(f)[0] = 63; /* rotated at 62, the last line */
    insert_fixture_positions(f)[1] = 64;
}

static void check_first_of_two_written(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 1);
    insert_fixture_assert_only(f, insert_fixture_slots(f), 1);
}

static void insert_last_group_of_an_odd_table_is_legal(void **state) {
    (void)state;
    for_all(ratio_2_of_63_positions, last_group_and_beyond, check_first_of_two_written);
}

static void check_fault_counting(insert_fixture *f, const char *implementation) {
    if (test_implementation_is_cuda(implementation)) { /* adds in every test of the fixture */
        f->args.n_faults = NULL;
        assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
        f->args.n_faults = &f->n_faults;
        return;
    }
    mmla_kv_insert_plan *plan;
    mmla_kv_insert_desc desc = f->desc;
    mmla_kv_insert_args args = f->args;
    desc.implementation = implementation;
    assert_int_equal(mmla_kv_insert_plan_create(f->ctx, &desc, &plan, NULL), MMLA_OK);
    args.error = NULL;
    f->n_faults = 40;
    assert_int_equal(mmla_kv_insert_run(plan, &args, NULL, NULL), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 44);
    args.n_faults = NULL;
    assert_int_equal(mmla_kv_insert_run(plan, &args, NULL, NULL), MMLA_E_INDEX);
    mmla_kv_insert_plan_destroy(plan);
}

static void insert_faults_are_added_and_may_go_uncounted(void **state) {
    (void)state;
    for_all(NULL, slots_past_capacity, check_fault_counting);
}

static void three_slots(insert_fixture *f) {
    f->args.n_slots = 3;
}

static void no_position_past_the_third(insert_fixture *f) {
    for (int64_t t = 3; t < 8; t++) {
        insert_fixture_positions(f)[t] = -1;
    }
}

static void check_three_written(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    insert_fixture_assert_only(f, insert_fixture_slots(f), 3);
}

static void insert_rows_past_n_slots_are_padding(void **state) {
    (void)state;
    for_all(three_slots, no_position_past_the_third, check_three_written);
}

static void no_pages(insert_fixture *f) {
    f->desc.cache.n_pages = 0;
}

static void slot_zero_of_no_cache(insert_fixture *f) {
    insert_fixture_slots(f)[2] = 0;
    f->args.cache = NULL;
}

static void check_one_fault(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_E_INDEX);
    assert_int_equal(f->n_faults, 1);
}

static void insert_empty_cache_refuses_every_slot(void **state) {
    (void)state;
    for_all(no_pages, slot_zero_of_no_cache, check_one_fault);
}

static void no_arguments(insert_fixture *f) {
    f->args = (mmla_kv_insert_args){.n_rows = 8};
}

static void insert_zero_rows_need_no_pointer(void **state) {
    (void)state;
    for_all(NULL, no_arguments, check_nothing_written);
}

static void with_norm(insert_fixture *f) {
    f->desc.norm = 2; /* whatever is not 0 */
}

static void zero_row(insert_fixture *f) {
    set_row(f, 0, 0.0f);
}

static void check_zero_codes(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    const uint8_t *data = insert_fixture_data(f, insert_fixture_slots(f)[0]);
    for (int i = 0; i < f->view.data_bytes; i++) {
        assert_int_equal(data[i] & 0x77, 0); /* zeros of either sign, one or two a byte */
    }
}

static void insert_norm_of_a_zero_row_is_zero(void **state) {
    (void)state;
    for_all(with_norm, zero_row, check_zero_codes);
}

static void check_nan_is_confined(insert_fixture *f, const char *implementation) {
    uint8_t before[MMLA_KV_V4_DATA_BYTES];
    const int64_t clean = insert_fixture_slots(f)[1], nan = insert_fixture_slots(f)[0];
    const uint16_t row0 = insert_fixture_row(f, 0)[0], row2 = insert_fixture_row(f, 2)[0];
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    memcpy(before, insert_fixture_data(f, clean), (size_t)f->view.data_bytes);
    insert_fixture_row(f, 0)[0] = 0xFFC1; /* NaN */
    insert_fixture_row(f, 2)[0] = 0x7F80; /* infinity */
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    assert_memory_equal(insert_fixture_data(f, clean), before, (size_t)f->view.data_bytes);
    switch (f->view.format) {
    case MMLA_KV_V41_FP4:
        assert_int_equal(insert_fixture_scale(f, nan)[0], MMLA_E4M3_NAN);
        break;
    case MMLA_KV_INDEX_FP4:
        assert_int_equal(insert_fixture_scale(f, nan)[0], 0xFF);
        break;
    default:
        assert_int_equal(insert_fixture_data(f, nan)[0], MMLA_E4M3_NAN);
    }
    insert_fixture_row(f, 0)[0] = row0;
    insert_fixture_row(f, 2)[0] = row2;
}

static void insert_nan_and_infinity_stay_in_their_record(void **state) {
    (void)state;
    for_all(NULL, NULL, check_nan_is_confined);
}

static void check_row_padding(insert_fixture *f, const char *implementation) {
    enum { PADDING = 1000 };
    const int dims = mmla_kv_dims(f->view.format);
    insert_fixture wide = insert_fixture_create(f->view.format);
    wide.desc.row_stride = dims + PADDING;
    insert_fixture_fill(&wide, 1, seed);
    for (int64_t t = 0; t < 8; t++) {
        memcpy(insert_fixture_row(&wide, t), insert_fixture_row(f, t), 2 * (size_t)dims);
        memset(insert_fixture_row(&wide, t) + dims, 0xFF, 2 * PADDING); /* NaN */
    }
    memcpy(wide.positions.data, f->positions.data, f->positions.bytes);
    memcpy(wide.slots.data, f->slots.data, f->slots.bytes);
    memcpy(wide.cos_sin.data, f->cos_sin.data, f->cos_sin.bytes);
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    assert_int_equal(insert_fixture_run(&wide, implementation), MMLA_OK);
    assert_memory_equal(f->cache.data, wide.cache.data, f->cache.bytes);
    insert_fixture_destroy(&wide);
}

static void insert_row_padding_changes_nothing(void **state) {
    (void)state;
    for_all(NULL, NULL, check_row_padding);
}

static void pages_far_apart(insert_fixture *f) {
    f->desc.cache.page_stride_bytes = 1000000;
}

static void check_eight_written(insert_fixture *f, const char *implementation) {
    assert_int_equal(insert_fixture_run(f, implementation), MMLA_OK);
    insert_fixture_assert_only(f, insert_fixture_slots(f), 8);
}

static void insert_pages_a_million_bytes_apart(void **state) {
    (void)state;
    for_all(pages_far_apart, NULL, check_eight_written);
}

static void insert_more_than_65535_rows(void **state) {
    (void)state;
    enum { N = 66000 };
    insert_fixture f = insert_fixture_create(MMLA_KV_INDEX_FP4);
    f.desc.max_tokens = f.args.n_rows = f.args.n_slots = N;
    f.desc.cache.n_pages = 10000;
    insert_fixture_fill(&f, 2, seed);
    assert_int_equal(insert_fixture_run(&f, "portable"), MMLA_OK);
    insert_fixture_assert_only(&f, insert_fixture_slots(&f), N);
    insert_fixture_destroy(&f);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_golden_row_gives_golden_bytes),
        cmocka_unit_test(insert_v4_keeps_rope_as_bf16_and_writes_its_pad_byte),
        cmocka_unit_test(insert_rotates_at_the_first_position_of_the_group),
        cmocka_unit_test(insert_negative_slot_writes_nothing),
        cmocka_unit_test(insert_only_the_addressed_records_change),
        cmocka_unit_test(insert_slot_past_capacity_is_refused_and_the_rest_is_written),
        cmocka_unit_test(insert_position_outside_the_table_is_refused_and_the_rest_is_written),
        cmocka_unit_test(insert_last_group_of_an_odd_table_is_legal),
        cmocka_unit_test(insert_faults_are_added_and_may_go_uncounted),
        cmocka_unit_test(insert_rows_past_n_slots_are_padding),
        cmocka_unit_test(insert_empty_cache_refuses_every_slot),
        cmocka_unit_test(insert_zero_rows_need_no_pointer),
        cmocka_unit_test(insert_norm_of_a_zero_row_is_zero),
        cmocka_unit_test(insert_nan_and_infinity_stay_in_their_record),
        cmocka_unit_test(insert_row_padding_changes_nothing),
        cmocka_unit_test(insert_pages_a_million_bytes_apart),
        cmocka_unit_test(insert_more_than_65535_rows),
    };
    return cmocka_run_group_tests_name("kv_insert", tests, NULL, NULL);
}
