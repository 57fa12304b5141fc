/* The arithmetic by which kv_gather's warps find their rows: every row is found by one warp. With a GPU,
 * a room that is too large to be covered, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/gpu_memory.h"
#include "ops/kv_gather/kv_gather_cuda.h"
#include "support/gather_fixture.h"
#include "support/rng.h"

static uint64_t seed;

/* A plan's room on a GPU. */
static mmla_kv_gather_problem problem_of(int64_t room, int32_t n_sms) {
    return (mmla_kv_gather_problem){.desc = {.rows = room + 7, .offset = 7},
                                    .gpu = {.n_sms = n_sms}};
}

static void gather_covers_a_small_room_and_deals_a_large_one(void **state) {
    (void)state;
    static const int64_t rooms[] = {0, 1, 3, 8, 100, 128, 2048, 16384, 131072, INT32_MAX - 7};
    static const int64_t requests[] = {1, 2, 8, 100, 3000, 65535, 65536, INT32_MAX};
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 8; j++) {
            for (int32_t n_sms = 1; n_sms < 200; n_sms += 131) {
                const mmla_kv_gather_problem p = problem_of(rooms[i], n_sms);
                const kv_gather_grid grid = kv_gather_grid_of(&p, requests[j]);
                const int64_t n_resident = (int64_t)n_sms * KV_GATHER_BLOCKS;
                assert_true(grid.x >= 1 && grid.tile_rows >= 1);
                assert_true(grid.tile_rows <= KV_GATHER_TILE_ROWS && grid.tile_rows != 3);
                if (grid.is_dealt) {
                    assert_true(grid.x == n_resident && grid.y == 1);
                    assert_int_equal(grid.tile_rows, KV_GATHER_TILE_ROWS);
                    continue;
                }
                const int64_t covered = (int64_t)grid.x * KV_GATHER_WARPS * grid.tile_rows;
                assert_true(covered >= rooms[i] && grid.y == requests[j]);
                assert_true(covered - KV_GATHER_WARPS * grid.tile_rows < rooms[i] || grid.x == 1);
                assert_true(grid.y <= KV_GATHER_GRID_Y);
                assert_true((int64_t)grid.x * grid.y <= KV_GATHER_WAVES * n_resident);
            }
        }
    }
}

static void gather_gives_a_warp_as_few_rows_as_keep_all_busy(void **state) {
    (void)state;
    static const struct {
        int64_t room, n_requests;
        uint32_t x;
        int32_t tile_rows;
    } cases[] = {{128, 8, 16, 1},  {528, 8, 66, 1},  {536, 8, 34, 2},    {1056, 8, 66, 2},
                 {1064, 8, 34, 4}, {2048, 8, 64, 4}, {16384, 8, 512, 4}, {1, 1, 1, 1}};
    for (int i = 0; i < 8; i++) {
        const mmla_kv_gather_problem p = problem_of(cases[i].room, 132);
        const kv_gather_grid grid = kv_gather_grid_of(&p, cases[i].n_requests);
        assert_false(grid.is_dealt);
        assert_int_equal(grid.x, cases[i].x);
        assert_int_equal(grid.tile_rows, cases[i].tile_rows);
    }
    const mmla_kv_gather_problem p = problem_of(16896, 132);
    assert_false(kv_gather_grid_of(&p, 8).is_dealt);
    assert_true(kv_gather_grid_of(&p, 9).is_dealt);
    const mmla_kv_gather_problem vast = problem_of(1, 4096); /* a grid has its limits, too */
    assert_false(kv_gather_grid_of(&vast, KV_GATHER_GRID_Y).is_dealt);
    assert_true(kv_gather_grid_of(&vast, KV_GATHER_GRID_Y + 1).is_dealt);
}

/* In two steps or in one, with any page numbers. */
static void gather_places_are_those_of_the_table(void **state) {
    (void)state;
    enum { WIDTH = 5 };
    static const int32_t page_tokens[] = {1, 2, 61, 64, 65536};
    static const int32_t numbers[] = {0, 1, 2, 3, 4, -1, INT32_MIN, INT32_MAX};
    static const uint32_t far[] = {INT32_MAX - 1, INT32_MAX, 1u << 31, UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        mmla_kv_gather_problem p = {
            .desc = {
                .cache = {.format = MMLA_KV_V41_FP8, .page_tokens = page_tokens[i], .n_pages = 4},
                .table_width = WIDTH,
                .table_stride = WIDTH}};
        assert_int_equal(mmla_kv_view_init(&p.desc.cache, "cache", &p.cache, NULL), MMLA_OK);
        for (int n = 0; n < 8; n++) {
            const int32_t table[WIDTH] = {3, numbers[n], 0, numbers[n], 2};
            const mmla_kv_gather_args args = {.block_table = table};
            for (uint32_t k = 0; k < (WIDTH + 1) * 64u + 4; k++) {
                const uint32_t reach = (WIDTH + 1) * (uint32_t)page_tokens[i];
                const uint32_t pos = k >= (WIDTH + 1) * 64u ? far[k % 4] : k * reach / 384;
                const kv_gather_place place = kv_gather_place_of(&p, pos);
                const int64_t slot = mmla_kv_gather_slot(&p, &args, 0, pos);
                const int32_t page = kv_gather_has_entry(&p, place) ? table[place.entry] : -1;
                const int64_t data_off = kv_gather_data_off(&p, place, page);
                if (slot < 0) {
                    assert_int_equal(data_off, -1);
                    continue;
                }
                assert_int_equal(data_off, mmla_kv_data_offset(&p.cache, slot));
                assert_int_equal(data_off + kv_gather_scale_from_data(&p, place),
                                 mmla_kv_scale_offset(&p.cache, slot));
            }
        }
    }
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

/* The loop over dealt tiles, for all warps of a device: how often is each row of each request visited? */
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
                    n_tiles += from + i < REQUESTS
                                   ? kv_gather_n_tiles(n_rows[from + i], KV_GATHER_TILE_ROWS)
                                   : 0;
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

/* More requests than a GPU has blocks for, most of them short, and none with as many rows as there is
 * room for. Their rows are the last gather_lens, those of a window, all of ratio 2, or in a room of the
 * call, of which the description knows nothing. */
enum { DEALT = 10000, DEALT_ROOM = 2 * KV_GATHER_TILE_ROWS + 1 };
typedef enum dealt_form { BY_LENS, BY_WINDOW, BY_RATIO, BY_CALL, DEALT_FORMS } dealt_form;

static gather_fixture dealt_fixture(mmla_kv_format format, dealt_form form, test_rng *rng) {
    gather_fixture f = gather_fixture_create(format);
    f.desc.cache.n_pages = 100;
    f.desc.max_requests = f.args.n_requests = DEALT;
    f.desc.rows = form == BY_CALL ? 1 : DEALT_ROOM;
    f.desc.offset = 0;
    f.desc.window = form == BY_WINDOW ? 3 : 0;
    f.desc.ratio = form == BY_RATIO ? 2 : 1;
    if (form == BY_CALL) {
        f.args.rows = DEALT_ROOM + 2;
        f.args.offset = 2;
    }
    gather_fixture_fill(&f, 2, test_rng_next(rng));
    int32_t *start = gather_fixture_query_start(&f);
    for (int64_t r = 0; r < DEALT; r++) {
        const int64_t n = test_rng_below(rng, 3) != 0 ? 0 : test_rng_below(rng, DEALT_ROOM + 2);
        gather_fixture_seq_lens(&f)[r] = (int32_t)(form == BY_RATIO ? 2 * n + test_rng_below(rng, 2)
                                                                    : n + test_rng_below(rng, 6));
        gather_fixture_gather_lens(&f)[r] = (int32_t)n;
        start[r + 1] = start[r] + (int32_t)n;
    }
    if (form == BY_WINDOW || form == BY_RATIO) {
        f.args.gather_lens = NULL;
    }
    return f;
}

static void gather_dealt_tiles_have_the_rows_of_the_reference(void **state) {
    (void)state;
    static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
    if (mmla_gpu_count() == 0) {
        skip();
    }
    test_rng rng = {seed};
    for (int i = 0; i < 3 * DEALT_FORMS; i++) {
        gather_fixture f = dealt_fixture(formats[i % 3], (dealt_form)(i / 3), &rng);
        const mmla_status status = gather_fixture_run(&f, "cuda");
        const int32_t n_faults = f.n_faults;
        uint8_t *got = malloc(f.out.bytes);
        assert_non_null(got);
        memcpy(got, f.out.data, f.out.bytes);
        assert_int_equal(gather_fixture_run(&f, "reference"), status);
        assert_int_equal(f.n_faults, n_faults);
        assert_true(n_faults > 0);
        assert_memory_equal(got, f.out.data, f.out.bytes);
        free(got);
        gather_fixture_destroy(&f);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_covers_a_small_room_and_deals_a_large_one),
        cmocka_unit_test(gather_gives_a_warp_as_few_rows_as_keep_all_busy),
        cmocka_unit_test(gather_places_are_those_of_the_table),
        cmocka_unit_test(gather_finds_the_request_of_every_tile),
        cmocka_unit_test(gather_warps_visit_every_row_once),
        cmocka_unit_test(gather_dealt_tiles_have_the_rows_of_the_reference),
    };
    return cmocka_run_group_tests_name("kv_gather_cuda", tests, NULL, NULL);
}
