/* project_wgmma_map_test.c - the maps of project's Hopper kernels: every number lands in one place, operands
 * meet column by column, and a row's scales become what they are meant to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ops/project/project_wgmma_map.h"

enum {
    GROUP = MMLA_PROJECT_WG_THREADS,
    ROWS = MMLA_PROJECT_WG_ROWS,
    PAIRS = MMLA_PROJECT_WG_PAIRS,
    UNITS = MMLA_PROJECT_STEP_UNITS,
    LINE_UNITS = MMLA_PROJECT_WG_LINE_UNITS,
    SCALES = MMLA_PROJECT_WG_SCALES,
    TOKENS = 128,
    DEPTH = 16, /* columns of an instruction */
    BANKS = 32
};

/* Column of a step, of 4 instructions one after the other, that the code `i` of a unit goes to by the first
 * comment of the header. */
static int32_t column_of(int32_t unit, int32_t i) {
    const int32_t pair = i / 2;
    return pair / 2 * DEPTH + pair % 2 * 8 + 2 * unit + i % 2;
}

static void wgmma_columns_of_codes_are_a_permutation(void **state) {
    (void)state;
    uint64_t seen = 0;
    for (int32_t unit = 0; unit < UNITS; unit++) {
        for (int32_t i = 0; i < MMLA_PROJECT_UNIT; i++) {
            seen |= (uint64_t)1 << column_of(unit, i);
        }
    }
    assert_true(seen == ~(uint64_t)0);
}

/* What the instruction takes from the tile for row `token` and column c: 16-byte chunk c / 8 of the row,
 * moved by the row. */
static void wgmma_tile_has_codes_at_their_columns(void **state) {
    (void)state;
    static uint8_t taken[TOKENS * MMLA_PROJECT_WG_ROW_BYTES / 4];
    for (int32_t token = 0; token < TOKENS; token++) {
        for (int32_t unit = 0; unit < UNITS; unit++) {
            for (int32_t pair = 0; pair < PAIRS; pair++) {
                const int32_t at = mmla_project_wg_pair_off(token, unit, pair);
                const int32_t c = column_of(unit, 2 * pair);
                assert_int_equal(at, token * 128 + ((c / 8) ^ (token % 8)) * 16 + c % 8 * 2);
                assert_int_equal(taken[at / 4]++, 0);
                /* The split kernels apply the swizzle of a pair to the address of the first. */
                assert_int_equal(at, mmla_project_wg_pair_off(token, unit, 0) ^ pair * 16);
            }
        }
    }
}

/* What a thread has in a[0 .. 3] of instruction k, as gpu/wgmma.cuh has it, against where its codes go. */
static void wgmma_registers_hold_the_columns_of_their_unit(void **state) {
    (void)state;
    for (int32_t thread = 0; thread < GROUP; thread++) {
        const int32_t g = thread % 32 / 4, u = thread % 4;
        assert_int_equal(mmla_project_wg_row(thread), thread / 32 * 16 + g);
        for (int32_t pair = 0; pair < PAIRS; pair++) {
            for (int32_t half = 0; half < 2; half++) {
                const int32_t r = mmla_project_wg_register(pair, half);
                const int32_t column = column_of(mmla_project_wg_unit(thread), 2 * pair);
                assert_in_range(r, 0, 3);
                assert_int_equal(column / DEPTH, pair / 2);
                assert_int_equal(column % DEPTH, 2 * u + r / 2 * 8);
                assert_int_equal(half, r % 2); /* rows g and g + 8 */
            }
        }
    }
}

static void wgmma_threads_own_each_unit_of_each_row_once(void **state) {
    (void)state;
    uint8_t seen[ROWS][UNITS] = {{0}};
    for (int32_t thread = 0; thread < GROUP; thread++) {
        for (int32_t half = 0; half < 2; half++) {
            seen[mmla_project_wg_row(thread) + 8 * half][mmla_project_wg_unit(thread)]++;
        }
    }
    for (int32_t i = 0; i < ROWS * UNITS; i++) {
        assert_int_equal(seen[i / UNITS][i % UNITS], 1);
    }
}

static void wgmma_sums_are_the_whole_tile(void **state) {
    (void)state;
    static uint8_t seen[ROWS][TOKENS];
    for (int32_t thread = 0; thread < GROUP; thread++) {
        for (int32_t i = 0; i < TOKENS / 2; i++) {
            seen[mmla_project_wg_sum_row(thread, i)][mmla_project_wg_sum_token(thread, i)]++;
        }
    }
    for (int32_t i = 0; i < ROWS * TOKENS; i++) {
        assert_int_equal(seen[i / TOKENS][i % TOKENS], 1);
    }
}

static void wgmma_stores_of_a_warp_meet_no_bank_twice(void **state) {
    (void)state;
    for (int32_t pair = 0; pair < PAIRS; pair++) { /* eight tokens, four threads each */
        uint32_t banks = 0;
        for (int32_t lane = 0; lane < 32; lane++) {
            banks |= 1u << mmla_project_wg_pair_off(lane / 4, lane % 4, pair) / 4 % BANKS;
        }
        assert_true(banks == ~0u);
    }
    for (int32_t i = 0; i < TOKENS / 2; i++) { /* sums that a warp leaves */
        uint32_t banks = 0;
        for (int32_t lane = 0; lane < 32; lane++) {
            banks |= 1u << (mmla_project_wg_sum_token(lane, i) * MMLA_PROJECT_WG_SUM_PITCH +
                            mmla_project_wg_sum_row(lane, i)) %
                               BANKS;
        }
        assert_true(banks == ~0u);
    }
}

static void wgmma_results_have_places_of_their_own(void **state) {
    (void)state;
    static uint8_t taken[TOKENS * ROWS / 8];
    for (int32_t token = 0; token < TOKENS; token++) {
        for (int32_t chunk = 0; chunk < ROWS / 8; chunk++) {
            const int32_t at = mmla_project_wg_result_off(token, chunk);
            assert_int_equal(at % 16, 0);
            assert_int_equal(taken[at / 16]++, 0);
            assert_int_equal(at, mmla_project_wg_result_off(token % 16, chunk) + token / 16 * 2048);
        }
    }
    for (int32_t chunk = 0; chunk < ROWS / 8; chunk++) { /* eight tokens' chunk at once */
        uint32_t places = 0;
        for (int32_t token = 0; token < 8; token++) {
            places |= 1u << mmla_project_wg_result_off(token, chunk) / 16 % 8;
        }
        assert_int_equal(places, 0xFF);
    }
}

static void wgmma_tiles_are_those_of_the_other_kernels(void **state) {
    (void)state;
    static const int32_t shapes[][4] = {{72, 37, 64, 16}, {1024, 1, 128, 64}, {8, 300, 128, 128}};
    for (int i = 0; i < 3; i++) {
        const int32_t rank = shapes[i][0], tokens = shapes[i][1], m = shapes[i][2],
                      n = shapes[i][3];
        const int64_t tiles = mmla_project_tiles(rank, m) * mmla_project_tiles(tokens, n) * 3;
        for (int64_t idx = 0; idx < tiles; idx++) {
            const mmla_project_tile a = mmla_project_tile_get(idx, tokens, rank, n, m);
            const mmla_project_tile b = mmla_project_wg_tile_get((uint32_t)idx, tokens, rank, n, m);
            assert_true(a.token == b.token && a.n_tokens == b.n_tokens && a.g == b.g &&
                        a.row == b.row && a.n_rows == b.n_rows);
        }
    }
    const mmla_project_tile last = mmla_project_wg_tile_get(INT32_MAX, INT32_MAX, 8, 16, 64);
    assert_int_equal(last.g, 15);
    assert_int_equal(last.token, INT32_MAX - 15);
    assert_int_equal(last.n_tokens, 15);
}

static void wgmma_parts_of_a_tile_are_its_rows(void **state) {
    (void)state;
    for (int32_t rank = 8; rank <= 1032; rank += 8) {
        uint8_t seen[1032] = {0};
        for (uint32_t idx = 0; idx < mmla_project_tiles(rank, 256); idx++) {
            const mmla_project_tile tile = mmla_project_wg_tile_get(idx, 1, rank, 64, 256);
            for (int32_t part = 0; part < 2; part++) {
                const mmla_project_tile own = mmla_project_wg_tile_part(tile, part, 128);
                assert_in_range(own.n_rows, 0, 128);
                assert_int_equal(own.row, tile.row + 128 * part);
                for (int32_t row = own.row; row < own.row + own.n_rows; row++) {
                    seen[row]++;
                }
            }
        }
        for (int32_t row = 0; row < rank; row++) {
            assert_int_equal(seen[row], 1);
        }
    }
}

/* Codes as they are copied and as ldmatrix hands them out: lane l gives the row l % 8 of unit l / 8, and gets
 * word matrix_word of row matrix_row of all four. */
static void wgmma_matrices_of_codes_are_a_tokens_chunks(void **state) {
    (void)state;
    uint8_t taken[ROWS * LINE_UNITS] = {0};
    for (int32_t row = 0; row < ROWS; row++) {
        for (int32_t unit = 0; unit < LINE_UNITS; unit++) {
            const int32_t at = mmla_project_wg_code_off(row, unit);
            assert_int_equal(at % 16, 0);
            assert_int_equal(taken[at / 16]++, 0);
            assert_int_equal(at, mmla_project_wg_code_off(row % 8, unit) + row / 8 * 1024);
            /* The second step is found by one bit. */
            assert_int_equal(mmla_project_wg_code_off(row, unit ^ UNITS), at ^ MMLA_PROJECT_STEP);
        }
    }
    for (int32_t unit = 0; unit < LINE_UNITS; unit++) { /* one matrix: eight rows, 16 bytes each */
        uint32_t places = 0;
        for (int32_t row = 0; row < 8; row++) {
            places |= 1u << mmla_project_wg_code_off(row, unit) / 16 % 8;
        }
        assert_int_equal(places, 0xFF);
    }
    for (int32_t lane = 0; lane < 32; lane++) {
        const int32_t word = mmla_project_wg_matrix_word(lane);
        const int32_t row = mmla_project_wg_matrix_row(lane);
        assert_true(word == lane % 4 && row == lane / 4); /* by the instruction's definition */
        for (int32_t unit = 0; unit < UNITS; unit++) {
            const int32_t first = mmla_project_wg_pair_off(row, 0, 2 * word) + 4 * unit;
            assert_int_equal(mmla_project_wg_pair_off(row, unit, 2 * word), first);
            assert_int_equal(mmla_project_wg_pair_off(row, unit, 2 * word + 1), first ^ 16);
        }
    }
    for (int32_t first = 0; first < 32; first += 8) { /* a store of 16 bytes goes by eight lanes */
        uint32_t places = 0;
        for (int32_t lane = first; lane < first + 8; lane++) {
            const int32_t at = mmla_project_wg_pair_off(mmla_project_wg_matrix_row(lane), 0,
                                                        2 * mmla_project_wg_matrix_word(lane));
            places |= 1u << at / 16 % 8;
        }
        assert_int_equal(places, 0xFF);
    }
}

/* A warp copies lines of its rows, four a time, and each thread loads what is its of a step. */
static void wgmma_lines_of_codes_are_what_is_loaded(void **state) {
    (void)state;
    int32_t
        from[ROWS * LINE_UNITS + 2 * UNITS]; /* by place of 16 bytes: row and unit, or nobody's */
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        from[i] = -1;
    }
    for (int32_t first = 0; first < ROWS; first += MMLA_PROJECT_WG_COPY_ROWS) {
        for (int32_t lane = 0; lane < 32; lane++) {
            const int32_t row = first + mmla_project_wg_copy_row(lane);
            const int32_t unit = mmla_project_wg_copy_unit(lane);
            const int32_t at = mmla_project_wg_weight_off(row, unit, ROWS);
            assert_true(at % 16 == 0 && at < 2 * MMLA_PROJECT_WG_WEIGHT_STEP(ROWS));
            assert_int_equal(from[at / 16], -1);
            from[at / 16] = row * LINE_UNITS + unit;
            /* As the kernel has it: one address, and multiples of four rows. */
            assert_int_equal(
                at, mmla_project_wg_weight_off(mmla_project_wg_copy_row(lane), unit, ROWS) +
                        first * MMLA_PROJECT_STEP);
            const int32_t turn = first / MMLA_PROJECT_WG_COPY_ROWS % 2 * MMLA_PROJECT_WG_COPY_TURN;
            assert_int_equal(
                mmla_project_wg_code_off(row, unit),
                (mmla_project_wg_code_off(mmla_project_wg_copy_row(lane), unit) ^ turn) +
                    first * MMLA_PROJECT_WG_LINE);
        }
    }
    for (int32_t thread = 0; thread < MMLA_PROJECT_WG_THREADS; thread++) {
        for (int32_t step = 0; step < MMLA_PROJECT_WG_LINE_STEPS; step++) {
            for (int32_t half = 0; half < 2; half++) {
                const int32_t row = mmla_project_wg_row(thread),
                              unit = mmla_project_wg_unit(thread);
                const int32_t at = mmla_project_wg_weight_off(row, unit, ROWS) +
                                   step * MMLA_PROJECT_WG_WEIGHT_STEP(ROWS) +
                                   half * 8 * MMLA_PROJECT_STEP;
                assert_int_equal(from[at / 16],
                                 (row + 8 * half) * LINE_UNITS + step * UNITS + unit);
            }
        }
    }
    for (int32_t row = 0; row < ROWS; row++) { /* a line, by eight lanes */
        uint32_t weight = 0, token = 0;
        for (int32_t unit = 0; unit < LINE_UNITS; unit++) {
            weight |= 1u << mmla_project_wg_weight_off(row, unit, ROWS) / 16 % 8;
            token |= 1u << mmla_project_wg_code_off(row, unit) / 16 % 8;
        }
        assert_true(weight == 0xFF && token == 0xFF);
    }
    for (int32_t first = 0; first < MMLA_PROJECT_WG_THREADS; first += 8) { /* and a load */
        uint32_t places = 0;
        for (int32_t thread = first; thread < first + 8; thread++) {
            places |= 1u << mmla_project_wg_weight_off(mmla_project_wg_row(thread),
                                                       mmla_project_wg_unit(thread), ROWS) /
                                16 % 8;
        }
        assert_int_equal(places, 0xFF);
    }
}

/* In a stage of a line, groups of eight tokens of its two tiles take turns: what is in a tile by itself is there. */
static void wgmma_tiles_of_a_line_take_turns(void **state) {
    (void)state;
    static uint8_t taken[2 * TOKENS * MMLA_PROJECT_WG_ROW_BYTES / 16];
    memset(taken, 0, sizeof taken);
    for (int32_t step = 0; step < MMLA_PROJECT_WG_LINE_STEPS; step++) {
        for (int32_t token = 0; token < TOKENS; token++) {
            for (int32_t pair = 0; pair < PAIRS; pair++) {
                const int32_t at = token / 8 * MMLA_PROJECT_WG_EIGHTS_APART +
                                   step * 8 * MMLA_PROJECT_WG_ROW_BYTES +
                                   mmla_project_wg_pair_off(token % 8, 0, pair);
                assert_int_equal(taken[at / 16]++, 0);
                assert_in_range(at, token / 8 * 2048, token / 8 * 2048 + 2047);
            }
        }
    }
}

/* ---- Scales ---- */

static void wgmma_pairs_of_16_bits_are_compared_each(void **state) {
    (void)state;
    static const uint32_t halves[] = {0, 1, 0x7FFF, 0x8000, 0xFFFF};
    for (int i = 0; i < 625; i++) {
        const uint32_t a = halves[i % 5], b = halves[i / 5 % 5];
        const uint32_t c = halves[i / 25 % 5], d = halves[i / 125];
        const uint32_t low = (a < c ? a : c) << 16 | (b < d ? b : d);
        const uint32_t high = (a > c ? a : c) << 16 | (b > d ? b : d);
        assert_int_equal(mmla_project_u16x2_min(a << 16 | b, c << 16 | d), low);
        assert_int_equal(mmla_project_u16x2_max(a << 16 | b, c << 16 | d), high);
    }
}

/* The value of fp16 bits. */
static double f16_value(uint32_t bits) {
    const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    const double sign = bits >> 15 ? -1.0 : 1.0;
    assert_true(exponent != 31);
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

static uint8_t byte_of(const uint32_t *words, int i) {
    return (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

/* A thread reads its half of every step's two groups. */
static void wgmma_exponents_by_half_are_those_of_the_steps(void **state) {
    (void)state;
    uint32_t exponents[SCALES / 4] = {0}, halves[SCALES / 4];
    for (uint32_t i = 0; i < SCALES; i++) {
        exponents[i / 4] |= (i + 1) << 8 * (i % 4);
    }
    mmla_project_wg_exponents_by_half(exponents, halves);
    for (int32_t step = 0; step < SCALES / 2; step++) {
        for (int32_t half = 0; half < 2; half++) {
            assert_int_equal(byte_of(halves, half * (SCALES / 2) + step), 2 * step + half + 1);
        }
    }
}

static void set_byte(uint32_t *words, int i, uint32_t byte) {
    words[i / 4] = (words[i / 4] & ~(0xFFu << 8 * (i % 4))) | byte << 8 * (i % 4);
}

static void wgmma_two_scales_are_those_of_their_bytes(void **state) {
    (void)state;
    for (uint32_t low = 1; low <= MMLA_PROJECT_WG_LARGEST; low++) {
        for (uint32_t high = 1; high <= MMLA_PROJECT_WG_LARGEST; high++) {
            const uint32_t pair = mmla_project_wg_scales_pair(low | high << 8);
            assert_int_equal(pair & 0xFFFF, mmla_project_wg_scale_pair(low) & 0xFFFF);
            assert_int_equal(pair >> 16, mmla_project_wg_scale_pair(high) >> 16);
        }
    }
}

/* Each code times each scale of a segment is the same number by way of fp16, and fp16 has it. */
static void check_operands(const uint32_t bytes[4], const mmla_project_wg_segment *s) {
    for (int i = 0; i < SCALES; i++) {
        const uint32_t pair = mmla_project_wg_scale_pair(byte_of(s->exponents, i));
        assert_int_equal(pair >> 16, pair & 0xFFFF);
        const double scale = f16_value(pair & 0xFFFF);
        for (uint32_t code = 0; code < 256; code++) {
            if ((code & 0x7F) == MMLA_E4M3_NAN) {
                continue;
            }
            const double operand = (double)mmla_e4m3_to_f32((uint8_t)code) * scale;
            const double want =
                ldexp((double)mmla_e4m3_to_f32((uint8_t)code), byte_of(bytes, i) - MMLA_UE8M0_BIAS);
            assert_true(operand * (double)s->factor == want);
            assert_true(fabs(operand) <= 65504.0);
            assert_true(floor(ldexp(operand, 24)) == ldexp(operand, 24)); /* a multiple of 2^-24 */
        }
    }
}

static void wgmma_operands_are_exact_for_every_base_and_distance(void **state) {
    (void)state;
    for (int base = MMLA_PROJECT_WG_BASE_LOW; base <= MMLA_PROJECT_WG_BASE_HIGH; base++) {
        for (int spread = 0; spread <= MMLA_PROJECT_WG_SPREAD; spread++) {
            uint32_t bytes[4] = {0};
            for (int i = 0; i < SCALES; i++) {
                set_byte(bytes, i, (uint32_t)(base - (i * 5 + spread) % (spread + 1)));
            }
            set_byte(bytes, spread % SCALES, (uint32_t)base);
            mmla_project_wg_segment quick;
            assert_true(mmla_project_wg_segment_quick(bytes, &quick));
            check_operands(bytes, &quick);
            const mmla_project_wg_segment any = mmla_project_wg_segment_get(bytes, 0);
            assert_memory_equal(any.exponents, quick.exponents, sizeof any.exponents);
            assert_true(any.factor == quick.factor && !any.is_odd && !quick.is_odd);
        }
    }
}

/* Of every value in every place: what the quick way declines is a NaN, too wide, or out of range. */
static void wgmma_quick_way_takes_what_is_plain_and_nothing_else(void **state) {
    (void)state;
    for (int place = 0; place < SCALES; place++) {
        for (uint32_t others = 60; others < 256; others++) {
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t bytes[4];
                for (int i = 0; i < 4; i++) {
                    bytes[i] = others * 0x01010101u;
                }
                set_byte(bytes, place, byte);
                const uint32_t high = byte > others ? byte : others;
                const uint32_t low = byte < others ? byte : others;
                const bool plain =
                    high - low <= MMLA_PROJECT_WG_SPREAD && high >= 95 && high <= 175;
                mmla_project_wg_segment s;
                assert_int_equal(mmla_project_wg_segment_quick(bytes, &s), plain);
                const mmla_project_wg_segment any = mmla_project_wg_segment_get(bytes, 0);
                const bool has_nan = high == MMLA_UE8M0_NAN;
                assert_int_equal(isnan(any.factor) != 0, has_nan);
                if (!has_nan) {
                    assert_int_equal(any.is_odd, !plain);
                }
            }
        }
    }
}

/* Exponents are those of numbers in any case, or a row of no meaning would make NaNs of others'. */
static void wgmma_exponents_are_never_those_of_infinity(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int turn = 0; turn < 200000; turn++) {
        uint32_t bytes[4], zeros = 0;
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = seed ^ seed >> 13;
            zeros = turn % 2 ? seed >> 16 : 0;
        }
        const mmla_project_wg_segment s = mmla_project_wg_segment_get(bytes, zeros);
        for (int i = 0; i < SCALES; i++) {
            assert_in_range(byte_of(s.exponents, i), 1, MMLA_PROJECT_WG_LARGEST);
        }
    }
}

static void wgmma_scale_of_zeros_does_not_matter_unless_it_is_nan(void **state) {
    (void)state;
    for (int place = 0; place < SCALES; place++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t bytes[4] = {0x78787878, 0x78787878, 0x78787878, 0x78787878};
            set_byte(bytes, place, byte);
            const mmla_project_wg_segment s = mmla_project_wg_segment_get(bytes, 1u << place);
            assert_false(s.is_odd);
            if (byte == MMLA_UE8M0_NAN) {
                assert_true(isnan(s.factor));
                continue;
            }
            assert_true((double)s.factor == ldexp(1.0, 0x78 - 127 - 7));
            for (int i = 0; i < SCALES; i++) {
                if (i != place) {
                    assert_int_equal(byte_of(s.exponents, i), MMLA_PROJECT_WG_LARGEST);
                }
            }
        }
    }
    const uint32_t far[4] = {0xFEFEFEFE, 0xFEFEFEFE, 0, 0}; /* nothing but zeros under any scale */
    const mmla_project_wg_segment none = mmla_project_wg_segment_get(far, 0xFFFF);
    assert_true(!none.is_odd && isfinite(none.factor));
    const uint32_t low[4] = {0, 0, 0, 0};
    assert_true(mmla_project_wg_segment_get(low, 0).is_odd);
    assert_true(mmla_project_wg_segment_get(low, 0x8000).is_odd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wgmma_columns_of_codes_are_a_permutation),
        cmocka_unit_test(wgmma_tile_has_codes_at_their_columns),
        cmocka_unit_test(wgmma_registers_hold_the_columns_of_their_unit),
        cmocka_unit_test(wgmma_threads_own_each_unit_of_each_row_once),
        cmocka_unit_test(wgmma_sums_are_the_whole_tile),
        cmocka_unit_test(wgmma_stores_of_a_warp_meet_no_bank_twice),
        cmocka_unit_test(wgmma_results_have_places_of_their_own),
        cmocka_unit_test(wgmma_tiles_are_those_of_the_other_kernels),
        cmocka_unit_test(wgmma_parts_of_a_tile_are_its_rows),
        cmocka_unit_test(wgmma_matrices_of_codes_are_a_tokens_chunks),
        cmocka_unit_test(wgmma_lines_of_codes_are_what_is_loaded),
        cmocka_unit_test(wgmma_tiles_of_a_line_take_turns),
        cmocka_unit_test(wgmma_exponents_by_half_are_those_of_the_steps),
        cmocka_unit_test(wgmma_pairs_of_16_bits_are_compared_each),
        cmocka_unit_test(wgmma_two_scales_are_those_of_their_bytes),
        cmocka_unit_test(wgmma_operands_are_exact_for_every_base_and_distance),
        cmocka_unit_test(wgmma_quick_way_takes_what_is_plain_and_nothing_else),
        cmocka_unit_test(wgmma_exponents_are_never_those_of_infinity),
        cmocka_unit_test(wgmma_scale_of_zeros_does_not_matter_unless_it_is_nan),
    };
    return cmocka_run_group_tests_name("project_wgmma_map", tests, NULL, NULL);
}
