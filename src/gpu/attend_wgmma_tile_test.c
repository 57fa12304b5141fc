/* attend_wgmma_tile_test.c - the index maps of the Hopper kernel, over all their arguments. */
#include "gpu/attend_wgmma_tile.h"
#include "gpu/attend_wgmma_turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BANK_BYTES = 128, CHUNKS = MMLA_LATENT_DIM / ATTEND_WGMMA_CHUNK_DIMS };

/* A tile of so many rows, whose chunks lie where `off` says: each has a place of its own, the one
 * that the matrix instruction expects: column, row, chunk in the row moved by the row. */
static void
check_tile(int32_t (*off)(int32_t, int32_t), int32_t rows, int32_t column_bytes, int32_t bytes) {
    static bool taken[ATTEND_WGMMA_Q_BYTES / 16];
    memset(taken, 0, sizeof taken);
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < CHUNKS; c++) {
            const int32_t at = off(r, c);
            assert_int_equal(at % 16, 0);
            assert_in_range(at, 0, bytes - 16);
            assert_false(taken[at / 16]);
            taken[at / 16] = true;
            assert_int_equal(at / column_bytes, c / 8);
            assert_int_equal(at % column_bytes / 128, r);
            assert_int_equal(at % 128 / 16, (c % 8) ^ (r % 8));
        }
    }
}

static void tile_every_chunk_has_a_place_of_its_own(void **state) {
    (void)state;
    check_tile(attend_wgmma_q_off, ATTEND_WGMMA_HEADS, ATTEND_WGMMA_Q_COLUMN_BYTES,
               ATTEND_WGMMA_Q_BYTES);
    check_tile(attend_wgmma_key_off, ATTEND_WGMMA_KEYS, ATTEND_WGMMA_COLUMN_BYTES,
               ATTEND_WGMMA_TILE_BYTES);
}

static void tile_pairs_of_q_lie_in_their_chunks(void **state) {
    (void)state;
    for (int32_t h = 0; h < ATTEND_WGMMA_HEADS; h++) {
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x += 2) {
            assert_int_equal(attend_wgmma_q_pair_off(h, x),
                             attend_wgmma_q_off(h, x / 8) + x % 8 * 2);
        }
    }
}

/* Matrices of 8 heads by 8 keys, 128 bytes without a gap, which no other touches. */
static void tile_probabilities_are_whole_matrices(void **state) {
    (void)state;
    static bool taken[ATTEND_WGMMA_PROB_BYTES / 16];
    memset(taken, 0, sizeof taken);
    for (int32_t h = 0; h < ATTEND_WGMMA_HEADS; h++) {
        for (int32_t c = 0; c < ATTEND_WGMMA_KEYS / 8; c++) {
            const int32_t at = attend_wgmma_prob_off(h, c);
            assert_in_range(at, 0, ATTEND_WGMMA_PROB_BYTES - 16);
            assert_int_equal(at % 128, h % 8 * 16);
            assert_int_equal(at / 128, c * (ATTEND_WGMMA_HEADS / 8) + h / 8);
            assert_false(taken[at / 16]);
            taken[at / 16] = true;
        }
    }
}

static void tile_loading_threads_share_a_block(void **state) {
    (void)state;
    bool taken[ATTEND_WGMMA_KEYS][ATTEND_WGMMA_PIECES] = {{false}};
    for (int32_t thread = 0; thread < ATTEND_WGMMA_LOAD_THREADS; thread++) {
        const int32_t row = attend_wgmma_load_row(thread / 32, thread % 32);
        const int32_t piece = attend_wgmma_load_piece(thread % 32);
        assert_in_range(row, 0, ATTEND_WGMMA_KEYS - 1);
        assert_in_range(piece, 0, ATTEND_WGMMA_PIECES - 1);
        assert_false(taken[row][piece]);
        taken[row][piece] = true;
    }
}

/* Eight neighbours store the same chunk of their rows at once: no two to the same bank. */
static void tile_neighbours_store_to_other_banks(void **state) {
    (void)state;
    for (int32_t first = 0; first < ATTEND_WGMMA_LOAD_THREADS; first += 8) {
        for (int32_t c = 0; c < CHUNKS; c++) {
            bool taken[BANK_BYTES / 16] = {false};
            for (int32_t thread = first; thread < first + 8; thread++) {
                const int32_t row = attend_wgmma_load_row(thread / 32, thread % 32);
                const int32_t bank = attend_wgmma_key_off(row, c) % BANK_BYTES / 16;
                assert_false(taken[bank]);
                taken[bank] = true;
            }
        }
    }
}

static void tile_threads_share_the_sums(void **state) {
    (void)state;
    static bool taken[ATTEND_WGMMA_HEADS][ATTEND_WGMMA_GROUP_DIMS];
    memset(taken, 0, sizeof taken);
    enum { SUMS = ATTEND_WGMMA_HEADS * ATTEND_WGMMA_GROUP_DIMS / ATTEND_WGMMA_GROUP };
    for (int32_t thread = 0; thread < ATTEND_WGMMA_GROUP; thread++) {
        for (int32_t i = 0; i < SUMS; i++) {
            const int32_t row = attend_wgmma_sum_row(thread, i);
            const int32_t column = attend_wgmma_sum_column(thread, i);
            assert_in_range(row, 0, ATTEND_WGMMA_HEADS - 1);
            assert_in_range(column, 0, ATTEND_WGMMA_GROUP_DIMS - 1);
            assert_false(taken[row][column]);
            taken[row][column] = true;
        }
    }
}

static void tile_sums_left_fill_the_stages(void **state) {
    (void)state;
    enum { UNITS = MMLA_LATENT_DIM / 4 };
    static bool taken[ATTEND_WGMMA_HEADS * UNITS];
    memset(taken, 0, sizeof taken);
    for (int32_t head = 0; head < ATTEND_WGMMA_HEADS; head++) {
        for (int32_t unit = 0; unit < UNITS; unit++) {
            const int32_t at = attend_wgmma_part_off(head, unit);
            assert_int_equal(at % 16, 0);
            assert_in_range(at, 0, ATTEND_WGMMA_STAGES * ATTEND_WGMMA_TILE_BYTES - 16);
            assert_false(taken[at / 16]);
            taken[at / 16] = true;
        }
    }
}

/* Two dims each of four heads by 16 threads, 8 bytes: what one pass of a store has. */
static void tile_sums_are_left_in_other_banks(void **state) {
    (void)state;
    for (int32_t first = 0; first < ATTEND_WGMMA_GROUP; first += 16) {
        for (int32_t i = 0; i < 128; i += 2) {
            bool taken[BANK_BYTES / 8] = {false};
            for (int32_t thread = first; thread < first + 16; thread++) {
                const int32_t head = attend_wgmma_sum_row(thread, i);
                const int32_t dim = attend_wgmma_sum_column(thread, i);
                const int32_t at = attend_wgmma_part_off(head, dim / 4) + dim % 4 * 4;
                assert_false(taken[at % BANK_BYTES / 8]);
                taken[at % BANK_BYTES / 8] = true;
            }
        }
    }
}

static void tile_shared_memory_is_aligned_for_its_use(void **state) {
    (void)state;
    assert_int_equal(ATTEND_WGMMA_AT_Q % 1024, 0);
    assert_int_equal(ATTEND_WGMMA_AT_STAGES % 1024, 0);
    assert_int_equal(ATTEND_WGMMA_AT_PROB % 1024, 0);
    assert_int_equal(ATTEND_WGMMA_AT_STATE % 16, 0);
    assert_int_equal(offsetof(attend_wgmma_state, part) % 16, 0);
    assert_int_equal(offsetof(attend_wgmma_state, full) % 8, 0);
    assert_int_equal(offsetof(attend_wgmma_state, valid) % 8, 0);
}

/* Thread u keeps the maxima of one of four chunks, and who has chunk c's is asked the same way. */
static void turn_chunks_have_a_thread_each(void **state) {
    (void)state;
    for (int32_t u = 0; u < 4; u++) {
        assert_in_range(attend_wgmma_chunk_of(u), 0, 3);
        assert_int_equal(attend_wgmma_chunk_of(attend_wgmma_chunk_of(u)), u);
    }
}

static void turn_gives_each_thread_its_element_of_all(void **state) {
    (void)state;
    uint32_t h[4][2], far[4], near[4];
    attend_wgmma_turn t[4];
    for (uint32_t u = 0; u < 4; u++) { /* element e of thread u is 10 u + e */
        h[u][0] = 10 * u | (10 * u + 1) << 16;
        h[u][1] = (10 * u + 2) | (10 * u + 3) << 16;
        far[u] = attend_wgmma_turn_far((int32_t)u, h[u][0], h[u][1]);
    }
    for (int32_t u = 0; u < 4; u++) {
        t[u] = attend_wgmma_turn_begin(u, h[u][0], h[u][1], far[u ^ 2]);
        near[u] = attend_wgmma_turn_near(u, t[u]);
    }
    for (int32_t u = 0; u < 4; u++) {
        const attend_wgmma_turn end = attend_wgmma_turn_end(u, t[u], near[u ^ 1]);
        assert_int_equal(end.a & 0xFFFFu, u);
        assert_int_equal(end.a >> 16, 10 + u);
        assert_int_equal(end.b & 0xFFFFu, 20 + u);
        assert_int_equal(end.b >> 16, 30 + u);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_every_chunk_has_a_place_of_its_own),
        cmocka_unit_test(tile_pairs_of_q_lie_in_their_chunks),
        cmocka_unit_test(tile_probabilities_are_whole_matrices),
        cmocka_unit_test(tile_loading_threads_share_a_block),
        cmocka_unit_test(tile_neighbours_store_to_other_banks),
        cmocka_unit_test(tile_threads_share_the_sums),
        cmocka_unit_test(tile_sums_left_fill_the_stages),
        cmocka_unit_test(tile_sums_are_left_in_other_banks),
        cmocka_unit_test(tile_shared_memory_is_aligned_for_its_use),
        cmocka_unit_test(turn_chunks_have_a_thread_each),
        cmocka_unit_test(turn_gives_each_thread_its_element_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
