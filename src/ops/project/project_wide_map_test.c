/* project_wide_map_test.c - the layout of a wide weight, and what a row's scales become in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ops/project/project_wide.h"

enum { STEPS = MMLA_PROJECT_STEPS, LINE = MMLA_PROJECT_WG_ROW_BYTES };

/* Every line of 128 bytes of the codes belongs to one step of one row, the filling rows included. */
static void wide_layout_has_a_place_for_every_step(void **state) {
    (void)state;
    static const struct {
        int32_t rank, n_groups;
    } shapes[] = {{8, 1}, {8, 16}, {256, 2}, {264, 3}, {1024, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int32_t rank = shapes[i].rank, n_groups = shapes[i].n_groups;
        const int64_t rows = mmla_project_wide_rows(rank);
        const int64_t bytes = mmla_project_wide_codes_bytes(rank, n_groups);
        assert_true(rows >= rank && rows < rank + 256 && rows % 256 == 0);
        assert_int_equal(bytes, n_groups * rows * 8192);
        uint8_t *seen = calloc((size_t)(bytes / LINE), 1);
        for (int32_t g = 0; g < n_groups; g++) {
            for (int32_t row = 0; row < rows; row++) {
                assert_int_equal(mmla_project_wide_idx(rank, g, row), g * rows + row);
                for (int32_t step = 0; step < STEPS; step++) {
                    const int64_t off = mmla_project_wide_off(rank, g, row, step);
                    assert_true(off >= 0 && off + LINE <= bytes && off % LINE == 0);
                    assert_int_equal(seen[off / LINE], 0);
                    seen[off / LINE] = 1;
                }
            }
        }
        free(seen);
    }
    /* The largest there is, whose offsets pass 32 bits. */
    assert_int_equal(mmla_project_wide_off(65536, 15, 65535, 63) + LINE,
                     mmla_project_wide_codes_bytes(65536, 16));
    assert_int_equal(mmla_project_wide_bytes_of(65536, 16), INT64_C(16) * 65536 * 8200);
}

/* 64, 128 and 256 rows of a step lie one behind the other, where a tile begins. */
static void wide_layout_has_tiles_in_one_piece(void **state) {
    (void)state;
    for (int32_t rows = 64; rows <= 256; rows *= 2) {
        for (int32_t first = 0; first + rows <= 1024; first += rows) {
            const int64_t begin = mmla_project_wide_off(1024, 1, first, 5);
            for (int32_t row = 0; row < rows; row++) {
                assert_int_equal(mmla_project_wide_off(1024, 1, first + row, 5),
                                 begin + row * LINE);
            }
        }
    }
}

/* An exponent is that of 2^(7 - (base - byte)) in fp16. */
static void wide_exponents_are_those_of_the_scales(void **state) {
    (void)state;
    for (uint32_t base = 95; base <= 175; base++) {
        for (uint32_t below = 0; below <= 21; below++) {
            const uint32_t byte = base - below, bytes = byte | base << 8 | byte << 16 | base << 24;
            const uint32_t want = 22 - below;
            const uint32_t all = want | 22u << 8 | want << 16 | 22u << 24;
            assert_int_equal(mmla_project_wide_exponents(bytes, base), all);
            assert_int_equal(mmla_project_wide_exponents_plain(bytes, base), all);
        }
    }
}

/* Whatever the byte, it makes a normal fp16 no larger than the largest. */
static void wide_exponents_of_any_byte_make_no_nan(void **state) {
    (void)state;
    for (uint32_t base = 0; base < 255; base++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            const uint32_t e = mmla_project_wide_exponents(byte * 0x01010101u, base);
            assert_int_equal(e, (e & 0xFFu) * 0x01010101u);
            assert_in_range(e & 0xFFu, 1, MMLA_PROJECT_WG_LARGEST);
        }
    }
}

static void wide_row_is_odd_where_fp16_or_fp32_end(void **state) {
    (void)state;
    static const struct {
        uint32_t low, high;
        bool is_odd;
    } cases[] = {{95, 95, false},   {94, 94, true},   {175, 175, false}, {176, 176, true},
                 {100, 121, false}, {100, 122, true}, {154, 175, false}, {0, 95, true},
                 {95, 116, false},  {94, 115, false}, {0, 254, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mmla_project_wide_row r =
            mmla_project_wide_row_of(cases[i].low, cases[i].high, false, false);
        assert_int_equal(r.is_odd, cases[i].is_odd);
        assert_int_equal(r.base, cases[i].high);
        if (!r.is_odd) {
            assert_true(r.factor == ldexpf(1.0f, (int)cases[i].high - 127 - 7));
        }
    }
    /* A NaN goes to the factor, and nothing that counts makes a row like any other. */
    const mmla_project_wide_row nan = mmla_project_wide_row_of(110, 120, true, false);
    assert_true(isnan(nan.factor) && !nan.is_odd && nan.base == 120);
    const mmla_project_wide_row none = mmla_project_wide_row_of(0xFF, 0, false, true);
    assert_true(!none.is_odd && none.base == 127 && none.factor == 0x1p-7f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_layout_has_a_place_for_every_step),
        cmocka_unit_test(wide_layout_has_tiles_in_one_piece),
        cmocka_unit_test(wide_exponents_are_those_of_the_scales),
        cmocka_unit_test(wide_exponents_of_any_byte_make_no_nan),
        cmocka_unit_test(wide_row_is_odd_where_fp16_or_fp32_end),
    };
    return cmocka_run_group_tests_name("project_wide_map", tests, NULL, NULL);
}
