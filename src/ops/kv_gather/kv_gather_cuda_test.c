/* The arithmetic by which kv_gather's warps find their rows: every row is found by one warp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ops/kv_gather/kv_gather_cuda.h"
#include "support/rng.h"

static uint64_t seed;

static void gather_blocks_are_at_least_one_and_no_more_than_tiles(void **state) {
    (void)state;
    mmla_kv_gather_problem p = {.desc = {.rows = 100, .offset = 99}, .gpu = {.n_sms = 132}};
    assert_int_equal(kv_gather_n_blocks(&p, 1), 1);
    assert_int_equal(kv_gather_n_blocks(&p, 7), 7);
    assert_int_equal(kv_gather_n_blocks(&p, 1000), 132 * KV_GATHER_BLOCKS);
    p.desc.offset = 100;
    assert_int_equal(kv_gather_n_blocks(&p, 1000), 1); /* no room: faults are still counted */
    p.desc = (mmla_kv_gather_desc){.rows = INT32_MAX};
    assert_int_equal(kv_gather_n_blocks(&p, INT32_MAX), 132 * KV_GATHER_BLOCKS);
}

static void gather_finds_the_request_of_every_tile(void **state) {
    (void)state;
    static int64_t begin[KV_GATHER_CHUNK_REQUESTS];
    test_rng rng = {seed};
    for (int round = 0; round < 20; round++) {
        int64_t n_tiles = 0, n[KV_GATHER_CHUNK_REQUESTS];
        const int64_t most = round == 0 ? 1 : INT64_C(1) << round;
        for (int i = 0; i < KV_GATHER_CHUNK_REQUESTS; i++) { /* every other one has none */
            begin[i] = n_tiles;
            n[i] = test_rng_below(&rng, 2) == 0 ? 0 : test_rng_below(&rng, most + 1);
            n_tiles += n[i];
        }
        for (int i = 0; i < KV_GATHER_CHUNK_REQUESTS; i++) {
            if (n[i] > 0) {
                assert_int_equal(kv_gather_find(begin, begin[i]), i);
                assert_int_equal(kv_gather_find(begin, begin[i] + n[i] / 2), i);
                assert_int_equal(kv_gather_find(begin, begin[i] + n[i] - 1), i);
            }
        }
    }
}

/* The loop of the kernel, for all warps of a device: how often is each row of each request visited? */
static void gather_warps_visit_every_row_once(void **state) {
    (void)state;
    enum { REQUESTS = 2 * KV_GATHER_CHUNK_REQUESTS + 300, ROWS = 70 };
    static uint8_t visits[REQUESTS][ROWS];
    static int64_t n_rows[REQUESTS], begin[KV_GATHER_CHUNK_REQUESTS];
    test_rng rng = {seed};
    for (int r = 0; r < REQUESTS; r++) {
        n_rows[r] = test_rng_below(&rng, 3) == 0 ? test_rng_below(&rng, ROWS + 1) : 0;
    }
    const uint32_t n_blocks = 13;
    for (uint32_t block = 0; block < n_blocks; block++) {
        for (int32_t warp = 0; warp < KV_GATHER_WARPS; warp++) {
            int64_t tile = kv_gather_first_tile(block, n_blocks, warp), before = 0;
            for (int from = 0; from < REQUESTS; from += KV_GATHER_CHUNK_REQUESTS) {
                int64_t n_tiles = 0;
                for (int i = 0; i < KV_GATHER_CHUNK_REQUESTS; i++) {
                    begin[i] = n_tiles;
                    n_tiles += from + i < REQUESTS ? kv_gather_n_tiles(n_rows[from + i]) : 0;
                }
                for (; tile < before + n_tiles; tile += n_blocks * KV_GATHER_WARPS) {
                    const int32_t i = kv_gather_find(begin, tile - before);
                    const int64_t first = (tile - before - begin[i]) * KV_GATHER_TILE_ROWS;
                    for (int k = 0; k < KV_GATHER_TILE_ROWS; k++) {
                        if (first + k < n_rows[from + i]) {
                            visits[from + i][first + k]++;
                        }
                    }
                }
                before += n_tiles;
            }
        }
    }
    for (int r = 0; r < REQUESTS; r++) {
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(visits[r][i], i < n_rows[r] ? 1 : 0);
        }
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_blocks_are_at_least_one_and_no_more_than_tiles),
        cmocka_unit_test(gather_finds_the_request_of_every_tile),
        cmocka_unit_test(gather_warps_visit_every_row_once),
    };
    return cmocka_run_group_tests_name("kv_gather_cuda", tests, NULL, NULL);
}
