/* attend_mma_tile_test.c - the maps of attend_mma_tile.h, on a CPU that does what ldmatrix and mma do.
 *
 * The two products are walked as attend_mma_math.cuh walks them, warp by warp and lane by lane, on
 * small integers: a wrong map gives a wrong product, and every load is held to banks and its region.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "gpu/attend_mma_tile.h"
#include "support/rng.h"

enum {
    LANES = 32,
    HEADS_MAX = 8 * ATTEND_MMA_TILES_MAX,
    BANK_GROUPS = 8,      /* of 16 bytes */
    H200_BYTES = 232448,  /* of shared memory a CTA can have, compute capability 9.0 */
    SMALL_BYTES = 101376, /* the same, 8.6, 8.9 and 12.0 */
    VALUES = 15           /* -7 .. 7 */
};

/* The kernels there are: keys of a block, groups of 8 heads. */
static const struct {
    int32_t keys;
    int32_t n_tiles;
} kernels[] = {
#define KERNEL(keys, tiles, blocks) {keys, tiles},
#include "gpu/attend_mma_kernels.inc"
#undef KERNEL
};

enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

static uint64_t seed;

/* ---- the instructions, as mma.cuh says ---- */

typedef struct region {
    int32_t first;
    int32_t end;
} region;

static _Alignas(128) uint8_t smem[H200_BYTES];

static int16_t load16(int32_t at) {
    int16_t x;
    memcpy(&x, smem + at, sizeof x);
    return x;
}

static void store16(int32_t at, int16_t x) {
    memcpy(smem + at, &x, sizeof x);
}

/* Eight accesses of 16 bytes at the same time: aligned, in their region, each in other banks. */
static void assert_one_phase(const int32_t at[8], region from) {
    int32_t groups = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(at[i] % ATTEND_MMA_CHUNK_BYTES, 0);
        assert_true(at[i] >= from.first && at[i] + ATTEND_MMA_CHUNK_BYTES <= from.end);
        groups |= 1 << at[i] / ATTEND_MMA_CHUNK_BYTES % BANK_GROUPS;
    }
    assert_int_equal(groups, (1 << BANK_GROUPS) - 1);
}

/* n matrices, from the addresses of 8 n lanes; r[lane][matrix][2]. */
static void
ldmatrix(int16_t r[LANES][4][2], const int32_t at[LANES], int n, bool transposed, region from) {
    for (int i = 0; i < n; i++) {
        const int32_t *rows = at + 8 * i;
        assert_one_phase(rows, from);
        for (int lane = 0; lane < LANES; lane++) {
            for (int j = 0; j < 2; j++) {
                const int32_t down = lane / 4, right = 2 * (lane % 4) + j;
                r[lane][i][j] =
                    transposed ? load16(rows[right] + 2 * down) : load16(rows[down] + 2 * right);
            }
        }
    }
}

/* c += a b; b is registers first_b and first_b + 1. */
static void
mma(int32_t c[LANES][4], const int16_t a[LANES][4][2], const int16_t b[LANES][4][2], int first_b) {
    int32_t left[16][16], right[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, u = lane % 4;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 2; j++) {
                left[g + 8 * (i % 2)][2 * u + j + 8 * (i / 2)] = a[lane][i][j];
            }
        }
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 2; j++) {
                right[2 * u + j + 8 * i][g] = b[lane][first_b + i][j];
            }
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            for (int k = 0; k < 16; k++) {
                c[lane][i] += left[row][k] * right[k][column];
            }
        }
    }
}

/* ---- the products ---- */

static int16_t k[ATTEND_MMA_KEYS_MAX][ATTEND_MMA_DIM], q[HEADS_MAX][ATTEND_MMA_DIM];
static int16_t prob[ATTEND_MMA_KEYS_MAX][HEADS_MAX];

static void fill(int16_t *x, int64_t n, test_rng *rng) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = (int16_t)(test_rng_below(rng, VALUES) - VALUES / 2);
    }
}

static void put_tile(int32_t tile, const int16_t *rows, int32_t n) {
    for (int32_t r = 0; r < n; r++) {
        for (int32_t x = 0; x < ATTEND_MMA_DIM; x++) {
            store16(tile + attend_mma_chunk_off(r, x / ATTEND_MMA_CHUNK_DIMS) +
                        2 * (x % ATTEND_MMA_CHUNK_DIMS),
                    rows[r * ATTEND_MMA_DIM + x]);
        }
    }
}

/* One warp's scores of 16 keys over one part of the dims. */
static void scores(int32_t s[ATTEND_MMA_TILES_MAX][LANES][4],
                   int32_t warp,
                   attend_mma_smem at,
                   int32_t keys,
                   int32_t n_tiles) {
    const int32_t row_warps = keys / 16;
    const int32_t part_chunks = ATTEND_MMA_ROW_CHUNKS / ATTEND_MMA_WARPS * row_warps;
    const int32_t first = warp / row_warps * part_chunks;
    const region k_tile = {at.k, at.k + keys * ATTEND_MMA_ROW_BYTES};
    const region q_tile = {at.q, at.q + 8 * n_tiles * ATTEND_MMA_ROW_BYTES};
    for (int32_t c = first; c < first + part_chunks; c += 4) {
        int16_t a[2][LANES][4][2], b[LANES][4][2];
        int32_t from[LANES];
        for (int half = 0; half < 2; half++) {
            for (int32_t lane = 0; lane < LANES; lane++) {
                const int32_t key = warp % row_warps * 16 + attend_mma_a_row(lane);
                from[lane] =
                    at.k + attend_mma_chunk_off(key, c + 2 * half + attend_mma_a_chunk(lane));
            }
            ldmatrix(a[half], from, 4, false, k_tile);
        }
        for (int32_t t = 0; t < n_tiles; t++) {
            for (int32_t lane = 0; lane < LANES; lane++) {
                from[lane] = at.q + attend_mma_chunk_off(8 * t + lane % 8, c + lane / 8);
            }
            ldmatrix(b, from, 4, false, q_tile);
            mma(s[t], a[0], b, 0);
            mma(s[t], a[1], b, 2);
        }
    }
}

static void scores_are_k_times_q(void **state) {
    (void)state;
    test_rng rng = {seed};
    static int32_t s[ATTEND_MMA_WARPS][ATTEND_MMA_TILES_MAX][LANES][4];
    for (int i = 0; i < N_KERNELS; i++) {
        const int32_t keys = kernels[i].keys, n_tiles = kernels[i].n_tiles;
        const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
        const int32_t row_warps = keys / 16;
        fill(k[0], (int64_t)keys * ATTEND_MMA_DIM, &rng);
        fill(q[0], (int64_t)8 * n_tiles * ATTEND_MMA_DIM, &rng);
        memset(smem, 0x5A, sizeof smem);
        put_tile(at.k, k[0], keys);
        put_tile(at.q, q[0], 8 * n_tiles);
        memset(s, 0, sizeof s);
        for (int32_t warp = 0; warp < ATTEND_MMA_WARPS; warp++) {
            scores(s[warp], warp, at, keys, n_tiles);
        }
        /* The other parts go through shared memory, a float4 a lane. */
        for (int32_t warp = row_warps; warp < ATTEND_MMA_WARPS; warp++) {
            for (int32_t t = 0; t < n_tiles; t++) {
                for (int32_t lane = 0; lane < LANES; lane++) {
                    const int32_t to =
                        at.part + (((warp - row_warps) * n_tiles + t) * LANES + lane) * 16;
                    assert_true(to >= at.part && to + 16 <= at.prob);
                    memcpy(smem + to, s[warp][t][lane], 16);
                }
            }
        }
        for (int32_t key = 0; key < keys; key++) {
            for (int32_t head = 0; head < 8 * n_tiles; head++) {
                const int32_t warp = key / 16, t = head / 8;
                const int32_t lane = key % 8 * 4 + head % 8 / 2, j = key % 16 / 8 * 2 + head % 2;
                int32_t got = s[warp][t][lane][j], want = 0;
                for (int32_t part = 1; part < ATTEND_MMA_WARPS / row_warps; part++) {
                    int32_t more[4];
                    const int32_t slot = ((part - 1) * row_warps + warp) * n_tiles + t;
                    memcpy(more, smem + at.part + (slot * LANES + lane) * 16, sizeof more);
                    got += more[j];
                }
                for (int32_t x = 0; x < ATTEND_MMA_DIM; x++) {
                    want += k[key][x] * q[head][x];
                }
                assert_int_equal(got, want);
            }
        }
    }
}

/* The probabilities a warp of part 0 holds as fragments, to their places. */
static void put_probabilities(attend_mma_smem at, int32_t keys, int32_t n_tiles) {
    const int32_t pitch = attend_mma_prob_pitch(n_tiles);
    for (int32_t warp = 0; warp < keys / 16; warp++) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            for (int32_t t = 0; t < n_tiles; t++) {
                const int32_t row = warp * 16 + lane / 4, head = 8 * t + 2 * (lane % 4);
                const int32_t to =
                    at.prob + row * pitch + t * ATTEND_MMA_CHUNK_BYTES + 4 * (lane % 4);
                assert_true(to >= at.prob && to + 8 * pitch + 4 <= at.state);
                for (int j = 0; j < 2; j++) {
                    store16(to + 2 * j, prob[row][head + j]);
                    store16(to + 8 * pitch + 2 * j, prob[row + 8][head + j]);
                }
            }
        }
    }
}

/* One warp's 64 dims of O^T over all keys. */
static void accumulate(int32_t o[ATTEND_MMA_WARP_BLOCKS][ATTEND_MMA_TILES_MAX][LANES][4],
                       int32_t warp,
                       attend_mma_smem at,
                       int32_t keys,
                       int32_t n_tiles) {
    const int32_t pitch = attend_mma_prob_pitch(n_tiles);
    const region k_tile = {at.k, at.k + keys * ATTEND_MMA_ROW_BYTES};
    const region probs = {at.prob, at.prob + keys * pitch};
    for (int32_t key = 0; key < keys; key += 16) {
        int16_t a[ATTEND_MMA_WARP_BLOCKS][LANES][4][2], p[LANES][4][2];
        int32_t from[LANES];
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
            for (int32_t lane = 0; lane < LANES; lane++) {
                const int32_t chunk = warp * (ATTEND_MMA_WARP_DIMS / ATTEND_MMA_CHUNK_DIMS) +
                                      attend_mma_at_chunk(lane) + 2 * b;
                from[lane] = at.k + attend_mma_chunk_off(key + attend_mma_at_row(lane), chunk);
            }
            ldmatrix(a[b], from, 4, true, k_tile);
        }
        for (int32_t t = 0; t < n_tiles; t += 2) {
            const int32_t n = t + 1 < n_tiles ? 2 : 1;
            for (int32_t lane = 0; lane < LANES; lane++) {
                const int32_t right = n == 2 ? attend_mma_a_chunk(lane) : 0;
                from[lane] = at.prob + (key + attend_mma_a_row(lane)) * pitch +
                             (t + right) * ATTEND_MMA_CHUNK_BYTES;
            }
            ldmatrix(p, from, 2 * n, true, probs);
            for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
                for (int32_t i = 0; i < n; i++) {
                    mma(o[b][t + i], a[b], p, 2 * i);
                }
            }
        }
    }
}

static void output_is_k_transposed_times_probabilities(void **state) {
    (void)state;
    test_rng rng = {seed + 1};
    static int32_t o[ATTEND_MMA_WARP_BLOCKS][ATTEND_MMA_TILES_MAX][LANES][4];
    for (int i = 0; i < N_KERNELS; i++) {
        const int32_t keys = kernels[i].keys, n_tiles = kernels[i].n_tiles;
        const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
        fill(k[0], (int64_t)keys * ATTEND_MMA_DIM, &rng);
        fill(prob[0], (int64_t)ATTEND_MMA_KEYS_MAX * HEADS_MAX, &rng);
        memset(smem, 0x5A, sizeof smem);
        put_tile(at.k, k[0], keys);
        put_probabilities(at, keys, n_tiles);
        for (int32_t warp = 0; warp < ATTEND_MMA_WARPS; warp++) {
            memset(o, 0, sizeof o);
            accumulate(o, warp, at, keys, n_tiles);
            for (int32_t x = 0; x < ATTEND_MMA_WARP_DIMS; x++) {
                for (int32_t head = 0; head < 8 * n_tiles; head++) {
                    const int32_t lane = x % 8 * 4 + head % 8 / 2, j = x % 16 / 8 * 2 + head % 2;
                    int32_t want = 0;
                    for (int32_t key = 0; key < keys; key++) {
                        want += k[key][warp * ATTEND_MMA_WARP_DIMS + x] * prob[key][head];
                    }
                    assert_int_equal(o[x / 16][head / 8][lane][j], want);
                }
            }
        }
    }
}

/* ---- the tile ---- */

static void chunks_of_a_tile_have_every_place_once(void **state) {
    (void)state;
    static int seen[ATTEND_MMA_KEYS_MAX * ATTEND_MMA_ROW_CHUNKS];
    for (int32_t r = 0; r < ATTEND_MMA_KEYS_MAX; r++) {
        for (int32_t c = 0; c < ATTEND_MMA_ROW_CHUNKS; c++) {
            const int32_t at = attend_mma_chunk_off(r, c);
            assert_int_equal(at % ATTEND_MMA_CHUNK_BYTES, 0);
            assert_int_equal(at / ATTEND_MMA_ROW_BYTES, r); /* a row of fewer keys stays its own */
            seen[at / ATTEND_MMA_CHUNK_BYTES]++;
        }
    }
    for (int32_t i = 0; i < ATTEND_MMA_KEYS_MAX * ATTEND_MMA_ROW_CHUNKS; i++) {
        assert_int_equal(seen[i], 1);
    }
}

static void eight_rows_and_eight_chunks_fall_into_other_banks(void **state) {
    (void)state;
    const region tile = {0, ATTEND_MMA_KEYS_MAX * ATTEND_MMA_ROW_BYTES};
    int32_t at[8];
    for (int32_t r = 0; r + 8 <= ATTEND_MMA_KEYS_MAX; r++) {
        for (int32_t c = 0; c < ATTEND_MMA_ROW_CHUNKS; c++) {
            for (int32_t i = 0; i < 8; i++) {
                at[i] = attend_mma_chunk_off(r + i, c);
            }
            assert_one_phase(at, tile);
        }
    }
    for (int32_t r = 0; r < ATTEND_MMA_KEYS_MAX; r++) {
        for (int32_t c = 0; c < ATTEND_MMA_ROW_CHUNKS; c += 8) {
            for (int32_t i = 0; i < 8; i++) {
                at[i] = attend_mma_chunk_off(r, c + i);
            }
            assert_one_phase(at, tile);
        }
    }
}

/* attend_mma_load.cuh steps by eight rows and by half a row without asking for the place again. */
static void eight_rows_down_and_half_a_row_right_are_plain_steps(void **state) {
    (void)state;
    for (int32_t r = 0; r < ATTEND_MMA_KEYS_MAX; r++) {
        for (int32_t c = 0; c < ATTEND_MMA_ROW_CHUNKS; c++) {
            assert_int_equal(attend_mma_chunk_off(r, c), attend_mma_chunk_off(r % 8, c % 32) +
                                                             r / 8 * 8 * ATTEND_MMA_ROW_BYTES +
                                                             c / 32 * 32 * ATTEND_MMA_CHUNK_BYTES);
        }
    }
}

/* ---- shared memory ---- */

static void regions_follow_each_other_and_are_aligned(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const int32_t keys = kernels[i].keys, n_tiles = kernels[i].n_tiles;
        const int32_t heads = 8 * n_tiles, row_warps = keys / 16;
        const int32_t parts = ATTEND_MMA_WARPS / row_warps;
        const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
        const attend_mma_state s = attend_mma_state_get(keys, n_tiles);
        assert_int_equal(row_warps * parts, ATTEND_MMA_WARPS);
        assert_true(row_warps <= ATTEND_MMA_ROW_WARPS_MAX);
        assert_int_equal(at.q, 0);
        assert_true(at.part >= heads * ATTEND_MMA_ROW_BYTES);
        assert_true(at.prob >= at.part + (parts - 1) * row_warps * n_tiles * LANES * 16);
        assert_true(at.state >= at.prob + keys * attend_mma_prob_pitch(n_tiles));
        assert_true(at.k >= at.state + s.total * 4);
        assert_true(at.stage >= at.k + keys * ATTEND_MMA_ROW_BYTES);
        const int32_t regions[] = {at.q, at.part, at.prob, at.state, at.k, at.stage};
        for (size_t j = 0; j < sizeof regions / sizeof regions[0]; j++) {
            assert_int_equal(regions[j] % ATTEND_MMA_CHUNK_BYTES, 0);
        }
        /* Swizzled tiles start where the banks do: a phase's eight places are then one line. */
        assert_int_equal(at.k % 128 + at.stage % 128, 0);
    }
}

static void state_of_a_block_has_room_for_each_of_its_parts(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const int32_t keys = kernels[i].keys, heads = 8 * kernels[i].n_tiles;
        const attend_mma_state s = attend_mma_state_get(keys, kernels[i].n_tiles);
        assert_int_equal(s.task % 2, 0); /* int64 */
        assert_true((s.alpha - s.task) * 4 >= (int32_t)sizeof(attend_mma_task));
        assert_true(s.logit - s.alpha >= heads);
        assert_true(s.factor - s.logit >= heads);
        assert_true(s.running - s.factor >= heads);
        assert_true(s.maximum - s.running >= 2 * heads);
        assert_true(s.sum - s.maximum >= keys / 16 * heads);
        assert_true(s.valid - s.sum >= ATTEND_MMA_SPLITS_MAX * heads);
        assert_true(s.valid - s.sum >= ATTEND_MMA_WARPS * heads); /* amax of the results */
        assert_true(s.total - s.valid >= 2 * keys);
        assert_true(s.total - s.valid >= ATTEND_MMA_SPLITS_MAX); /* which parts have keys */
        /* Two floats at a time. */
        assert_int_equal(s.alpha % 2 + s.factor % 2 + s.sum % 2, 0);
    }
}

static void records_of_every_format_fit_their_pitch(void **state) {
    (void)state;
    static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const mmla_kv_geometry *g = mmla_kv_geometry_get(formats[i]);
        const int32_t pitch = attend_mma_pitch(formats[i]);
        assert_true(pitch >= g->data_bytes + g->scale_bytes);
        assert_int_equal(pitch % 32, ATTEND_MMA_CHUNK_BYTES); /* odd: neighbours in other banks */
    }
    assert_int_equal(attend_mma_pitch(MMLA_KV_NONE), ATTEND_MMA_ROW_BYTES);
    for (int32_t n_tiles = 1; n_tiles <= ATTEND_MMA_TILES_MAX; n_tiles++) {
        const int32_t pitch = attend_mma_prob_pitch(n_tiles);
        assert_true(pitch >= 8 * n_tiles * 2);
        assert_int_equal(pitch % 32, ATTEND_MMA_CHUNK_BYTES);
    }
}

static void shared_memory_of_a_multiprocessor_is_enough(void **state) {
    (void)state;
    static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4,
                                             MMLA_KV_NONE};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const int32_t pitch = attend_mma_pitch(formats[i]);
        assert_true(attend_mma_smem_bytes(64, ATTEND_MMA_TILES_MAX, pitch) <= H200_BYTES);
        /* A second tile of rows is twice as wide as records: where little memory is, 16 heads. */
        const int32_t small_tiles = formats[i] == MMLA_KV_NONE ? 2 : 3;
        assert_true(attend_mma_smem_bytes(32, small_tiles, pitch) <= SMALL_BYTES);
    }
}

/* Half of the warps park their results in the q tile, half from the K tile on. */
static void slots_of_the_results_fit_where_the_tiles_were(void **state) {
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        const int32_t keys = kernels[i].keys, n_tiles = kernels[i].n_tiles;
        const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
        const int32_t bytes = n_tiles * ATTEND_MMA_SLOT_BYTES;
        int32_t end = at.q;
        for (int32_t warp = 0; warp < ATTEND_MMA_WARPS; warp++) {
            const int32_t first = attend_mma_slots_off(warp, keys, n_tiles);
            const bool low = first < at.k;
            assert_int_equal(first % ATTEND_MMA_CHUNK_BYTES, 0);
            assert_true(first >= end);
            end = first + bytes;
            assert_true(low ? end <= at.part : first >= at.k && end <= at.stage);
        }
        assert_true(8 * attend_mma_out_pitch(1) <= ATTEND_MMA_SLOT_BYTES);
        assert_true(8 * attend_mma_out_pitch(2) <= ATTEND_MMA_SLOT_BYTES);
        assert_int_equal(attend_mma_out_pitch(1) % ATTEND_MMA_CHUNK_BYTES, 0);
        assert_int_equal(attend_mma_out_pitch(2) % ATTEND_MMA_CHUNK_BYTES, 0);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_a_tile_have_every_place_once),
        cmocka_unit_test(eight_rows_and_eight_chunks_fall_into_other_banks),
        cmocka_unit_test(eight_rows_down_and_half_a_row_right_are_plain_steps),
        cmocka_unit_test(scores_are_k_times_q),
        cmocka_unit_test(output_is_k_transposed_times_probabilities),
        cmocka_unit_test(regions_follow_each_other_and_are_aligned),
        cmocka_unit_test(state_of_a_block_has_room_for_each_of_its_parts),
        cmocka_unit_test(records_of_every_format_fit_their_pitch),
        cmocka_unit_test(shared_memory_of_a_multiprocessor_is_enough),
        cmocka_unit_test(slots_of_the_results_fit_where_the_tiles_were),
    };
    return cmocka_run_group_tests_name("attend_mma_tile", tests, NULL, NULL);
}
