/* attend_wgmma_tile_test.c - the index maps of the Hopper kernel for 64 heads, over all their
 * arguments. */
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
            /* As the matrix instruction has it, of the chunk that is at c % 8 in this column. */
            assert_int_equal(at % 128 / 16, (attend_wgmma_chunk_at(c) % 8) ^ (r % 8));
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

/* Formats whose records lanes convert. */
static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* Each code of a warp's keys has one lane and one load; of V4 those of its fp8 part. */
static void tile_lanes_share_the_keys_of_a_warp(void **state) {
    (void)state;
    for (int32_t f = 0; f < N_FORMATS; f++) {
        const mmla_kv_format format = formats[f];
        bool taken[ATTEND_WGMMA_LOAD_KEYS][CHUNKS] = {{false}};
        int32_t n = 0;
        for (int32_t u = 0; u < ATTEND_WGMMA_LOAD_KEYS / attend_wgmma_load_keys(format); u++) {
            for (int32_t lane = 0; lane < 32; lane++) {
                const int32_t key =
                    u * attend_wgmma_load_keys(format) + attend_wgmma_load_row(format, lane);
                const int32_t chunk = attend_wgmma_load_chunk(format, lane);
                const int32_t chunks = attend_wgmma_load_dims(format) / ATTEND_WGMMA_CHUNK_DIMS;
                for (int32_t i = 0; i < chunks && attend_wgmma_load_has_codes(format, lane); i++) {
                    assert_in_range(key, 0, ATTEND_WGMMA_LOAD_KEYS - 1);
                    assert_in_range(chunk + i, 0, CHUNKS - 1);
                    assert_false(taken[key][chunk + i]);
                    taken[key][chunk + i] = true;
                    n++;
                }
            }
        }
        const int32_t dims = format == MMLA_KV_V4 ? MMLA_KV_V4_FP8_DIMS : MMLA_LATENT_DIM;
        assert_int_equal(n, ATTEND_WGMMA_LOAD_KEYS * dims / ATTEND_WGMMA_CHUNK_DIMS);
    }
}

/* Eight lanes store a chunk each at once: no two to the same bank. A lane finds the places of later
 * keys and chunks from that of its first by exclusive or, as the kernel does. */
static void tile_neighbours_store_to_other_banks(void **state) {
    (void)state;
    for (int32_t f = 0; f < N_FORMATS; f++) {
        const mmla_kv_format format = formats[f];
        const int32_t chunks = attend_wgmma_load_dims(format) / ATTEND_WGMMA_CHUNK_DIMS;
        for (int32_t u = 0; u < ATTEND_WGMMA_LOAD_KEYS / attend_wgmma_load_keys(format); u++) {
            for (int32_t i = 0; i < chunks; i++) {
                bool taken[BANK_BYTES / 16] = {false};
                for (int32_t lane = 0; lane < 32; lane++) {
                    const int32_t row = attend_wgmma_load_row(format, lane);
                    const int32_t rows = u * attend_wgmma_load_keys(format);
                    const int32_t chunk = attend_wgmma_load_chunk(format, lane);
                    const int32_t at = attend_wgmma_key_off(row + rows, chunk + i);
                    const int32_t first = attend_wgmma_key_off(row, chunk);
                    assert_int_equal(at, ((first ^ rows * 16) + rows * 128) ^ i * 16);
                    if (lane % 8 == 0) {
                        memset(taken, 0, sizeof taken);
                    }
                    assert_false(taken[at % BANK_BYTES / 16]);
                    taken[at % BANK_BYTES / 16] = true;
                }
            }
        }
    }
}

/* The chunks of a product are the token's, each once; q and keys have them in the same places. */
static void tile_chunks_of_products_are_the_dims(void **state) {
    (void)state;
    for (int32_t k = 0; k < CHUNKS; k++) {
        const int32_t c = attend_wgmma_chunk_at(k);
        assert_int_equal(attend_wgmma_chunk_at(c), k);
        assert_int_equal(c / 8, k / 8);
        assert_int_equal(attend_wgmma_key_off(0, c),
                         k / 8 * ATTEND_WGMMA_COLUMN_BYTES + k % 8 * 16);
        assert_int_equal(attend_wgmma_q_off(0, c),
                         k / 8 * ATTEND_WGMMA_Q_COLUMN_BYTES + k % 8 * 16);
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
    uint32_t h[4][2], kept[4], far[4], near[4];
    for (uint32_t u = 0; u < 4; u++) { /* element e of thread u is 10 u + e */
        const attend_wgmma_turner turner = attend_wgmma_turner_get((int32_t)u);
        h[u][0] = 10 * u | (10 * u + 1) << 16;
        h[u][1] = (10 * u + 2) | (10 * u + 3) << 16;
        kept[u] = attend_wgmma_turn_kept(&turner, h[u][0], h[u][1]);
        far[u ^ 2] = attend_wgmma_turn_far(&turner, h[u][0], h[u][1]);
    }
    for (int32_t u = 0; u < 4; u++) {
        const attend_wgmma_turner turner = attend_wgmma_turner_get(u);
        near[u ^ 1] = attend_wgmma_turn_near(&turner, kept[u], far[u]);
    }
    for (int32_t u = 0; u < 4; u++) {
        const attend_wgmma_turner turner = attend_wgmma_turner_get(u);
        const attend_wgmma_turn end = attend_wgmma_turn_end(&turner, kept[u], far[u], near[u]);
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
        cmocka_unit_test(tile_lanes_share_the_keys_of_a_warp),
        cmocka_unit_test(tile_neighbours_store_to_other_banks),
        cmocka_unit_test(tile_chunks_of_products_are_the_dims),
        cmocka_unit_test(tile_threads_share_the_sums),
        cmocka_unit_test(tile_sums_left_fill_the_stages),
        cmocka_unit_test(tile_sums_are_left_in_other_banks),
        cmocka_unit_test(tile_shared_memory_is_aligned_for_its_use),
        cmocka_unit_test(turn_chunks_have_a_thread_each),
        cmocka_unit_test(turn_gives_each_thread_its_element_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
