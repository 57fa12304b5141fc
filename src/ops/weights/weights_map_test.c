/* weights_map_test.c - the maps are permutations whose pieces stay together, and the threads of a GPU
 * move every unit of every row once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/weights/weights_map.h"

static void rows_of_wq_b_move_to_a_permutation(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        const int64_t rows = (int64_t)heads * MMLA_LATENT_DIM;
        uint8_t *seen = calloc((size_t)rows, 1);
        for (int64_t row = 0; row < rows; row++) {
            const mmla_weights_move move =
                mmla_weights_row_move(MMLA_WEIGHTS_PERMUTE_WQ_B, heads, row);
            assert_int_equal(move.from, row);
            assert_in_range(move.to, 0, rows - 1);
            assert_int_equal(seen[move.to]++, 0);
        }
        free(seen);
    }
}

static void expanded_rows_come_from_their_block(void **state) {
    (void)state;
    const int64_t rows[] = {0, 31, 32, 63, 64, INT32_MAX - 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const mmla_weights_move move =
            mmla_weights_row_move(MMLA_WEIGHTS_EXPAND_SCALES, 0, rows[i]);
        assert_int_equal(move.from, rows[i] / 32);
        assert_int_equal(move.to, rows[i]);
    }
}

/* Units of 16 bytes move as one: 16 elements of wo_a, 8 of q. */
static void elements_move_to_a_permutation_in_pieces_of_16_bytes(void **state) {
    (void)state;
    static const struct {
        mmla_weights_kind kind;
        int32_t piece;
    } kinds[] = {{MMLA_WEIGHTS_PERMUTE_WO_A, 16},
                 {MMLA_WEIGHTS_Q_TO_FUSED, 8},
                 {MMLA_WEIGHTS_Q_TO_STANDARD, 8}};
    for (int i = 0; i < 3; i++) {
        for (int32_t heads = 8; heads <= 128; heads += 8) {
            const int32_t n = (i == 0 ? 8 : heads) * MMLA_LATENT_DIM;
            uint8_t *from = calloc((size_t)n, 1), *to = calloc((size_t)n, 1);
            mmla_weights_move first = {0, 0};
            for (int32_t e = 0; e < n; e++) {
                const mmla_weights_move move = mmla_weights_element_move(kinds[i].kind, heads, e);
                assert_true(move.from >= 0 && move.from < n && move.to >= 0 && move.to < n);
                assert_int_equal(from[move.from]++, 0);
                assert_int_equal(to[move.to]++, 0);
                const int32_t in_piece = e % kinds[i].piece;
                first = in_piece == 0 ? move : first;
                assert_int_equal(move.from, first.from + in_piece);
                assert_int_equal(move.to, first.to + in_piece);
                if (in_piece == 0) { /* aligned on both sides */
                    assert_int_equal(move.from % kinds[i].piece, 0);
                    assert_int_equal(move.to % kinds[i].piece, 0);
                }
            }
            free(from);
            free(to);
        }
    }
}

static void q_moves_back_where_it_came_from(void **state) {
    (void)state;
    for (int32_t e = 0; e < 24 * MMLA_LATENT_DIM; e++) {
        const mmla_weights_move there = mmla_weights_element_move(MMLA_WEIGHTS_Q_TO_FUSED, 24, e);
        const mmla_weights_move back = mmla_weights_element_move(MMLA_WEIGHTS_Q_TO_STANDARD, 24, e);
        assert_int_equal(there.from, back.to);
        assert_int_equal(there.to, back.from);
    }
}

static void threads_move_every_unit_of_every_row_once(void **state) {
    (void)state;
    static const int64_t units[] = {1,   2,   3,   4,    5,    8,    13,   14,   448,
                                    511, 512, 513, 1023, 1024, 1025, 4096, 5000, 10000};
    static const int64_t row_counts[] = {1, 2, 3, 63, 64, 65, 255, 256, 257, 300};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        for (size_t j = 0; j < sizeof row_counts / sizeof row_counts[0]; j++) {
            const int64_t rows = row_counts[j], n = units[i];
            const mmla_weights_tiling t = mmla_weights_tiling_get(rows, n);
            uint8_t *seen = calloc((size_t)(rows * n), 1);
            int64_t moved = 0;
            for (int64_t item = 0; item < t.n_items; item++) {
                for (int32_t thread = 0; thread < MMLA_WEIGHTS_THREADS; thread++) {
                    const mmla_weights_spot spot = mmla_weights_tiling_spot(&t, item, thread);
                    assert_true(spot.row >= 0 && spot.unit >= 0);
                    for (int32_t k = 0; k < MMLA_WEIGHTS_UNITS && spot.row < rows; k++) {
                        const int64_t u = spot.unit + ((int64_t)k << t.row_threads_log2);
                        if (u < n) {
                            assert_int_equal(seen[spot.row * n + u]++, 0);
                            moved++;
                        }
                    }
                }
            }
            assert_int_equal(moved, rows * n);
            free(seen);
        }
    }
}

static void the_largest_tilings_do_not_overflow(void **state) {
    (void)state;
    const mmla_weights_tiling t = mmla_weights_tiling_get(INT32_MAX, INT32_MAX);
    assert_true(t.n_items == (int64_t)INT32_MAX * t.n_parts);
    const mmla_weights_spot last = mmla_weights_tiling_spot(&t, t.n_items - 1, 255);
    assert_int_equal(last.row, INT32_MAX - 1);
    assert_true(last.unit > (int64_t)INT32_MAX - 1024);
    const mmla_weights_spot first = mmla_weights_tiling_spot(&t, 0, 0);
    assert_true(first.row == 0 && first.unit == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_wq_b_move_to_a_permutation),
        cmocka_unit_test(expanded_rows_come_from_their_block),
        cmocka_unit_test(elements_move_to_a_permutation_in_pieces_of_16_bytes),
        cmocka_unit_test(q_moves_back_where_it_came_from),
        cmocka_unit_test(threads_move_every_unit_of_every_row_once),
        cmocka_unit_test(the_largest_tilings_do_not_overflow),
    };
    return cmocka_run_group_tests_name("weights_map", tests, NULL, NULL);
}
