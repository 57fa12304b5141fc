/* project_map_test.c - the maps of project's kernels: every number lands in one place, operands meet
 * column by column, and bits that are moved are the value that was meant. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ops/project/project_map.h"

enum { LANES = 32, ROWS = 16, COLUMNS = 16, UNIT = MMLA_PROJECT_UNIT };

static uint32_t word_at(const uint8_t *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* The two halves of a register, one after the other. */
static uint16_t half_of(uint32_t word, int i) {
    return (uint16_t)(word >> 16 * i);
}

static void code_times_plain_scale_is_exact_in_bf16(void **state) {
    (void)state;
    for (int byte = MMLA_PROJECT_PLAIN_LOW; byte <= MMLA_PROJECT_PLAIN_HIGH; byte++) {
        const uint32_t factor =
            mmla_project_factor_pair(mmla_project_factor_exponent((uint32_t)byte));
        for (uint32_t code = 0; code < 256; code++) {
            if ((code & 0x7F) == MMLA_E4M3_NAN) {
                continue;
            }
            const uint32_t even = mmla_project_place_even(code << 16 | (code ^ 0x80u));
            const uint32_t odd = mmla_project_place_odd(code << 24 | (code ^ 0x80u) << 8);
            const double want = ldexp((double)mmla_e4m3_to_f32((uint8_t)code),
                                      byte - MMLA_UE8M0_BIAS - MMLA_PROJECT_SHIFT);
            const uint32_t both[2] = {even, odd};
            for (int i = 0; i < 2; i++) {
                const float scale = mmla_bf16_to_f32(half_of(factor, i));
                assert_true(isfinite(scale));
                const float low = mmla_bf16_to_f32(half_of(both[i], 0)) * scale;
                const float high = mmla_bf16_to_f32(half_of(both[i], 1)) * scale;
                assert_true((double)high == want && (double)low == -want);
                assert_true(mmla_bf16_round(high) == high);
            }
        }
    }
}

static void only_plain_scales_have_a_factor(void **state) {
    (void)state;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const bool plain = byte >= 85 && byte <= 146;
        assert_int_equal(mmla_project_scale_is_plain(byte), plain);
        assert_int_equal(mmla_project_factor_exponent(byte), plain ? byte + 108 : 0);
    }
}

static void codes_of_a_word_go_to_their_columns(void **state) {
    (void)state;
    const uint32_t word = 0x84838281; /* bytes 81, 82, 83, 84 */
    assert_int_equal(mmla_project_place_even(word), 0x80308010);
    assert_int_equal(mmla_project_place_odd(word), 0x80408020);
}

static void probe_finds_nan_codes_and_nothing_else(void **state) {
    (void)state;
    static const uint32_t others[] = {0, 0x7E7E7E7E, 0xFEFEFEFE, 0x80808080, 0x00FE7E80};
    for (uint32_t code = 0; code < 256; code++) {
        for (int place = 0; place < 32; place += 8) {
            for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
                const uint32_t word = (others[i] & ~(0xFFu << place)) | code << place;
                const bool is_nan = (code & 0x7F) == MMLA_E4M3_NAN;
                uint32_t found = mmla_project_probe(0, word);
                assert_int_equal((found & MMLA_PROJECT_PROBE) != 0, is_nan);
                found = mmla_project_probe(found, others[i]); /* what was found stays found */
                assert_int_equal((found & MMLA_PROJECT_PROBE) != 0, is_nan);
            }
        }
    }
}

static void scale_add_takes_any_two_bytes(void **state) {
    (void)state;
    static const float sums[] = {0.0f, 1.0f, -3.0f, 0x1.8p17f, 0x1p-18f};
    for (uint32_t x = 0; x < 255; x++) {
        for (uint32_t w = 0; w < 255; w++) {
            for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
                const double exact = ldexp((double)sums[i], (int)(x + w) - 2 * MMLA_UE8M0_BIAS);
                const float got = mmla_project_scale_add(0.0f, sums[i], x, w);
                assert_true(got == (float)exact);
            }
        }
        assert_true(isnan(mmla_project_scale_add(1.0f, 0.0f, x, 255)));
        assert_true(isnan(mmla_project_scale_add(1.0f, 0.0f, 255, x)));
    }
}

static void dot_word_adds_four_products(void **state) {
    (void)state;
    /* 1, 2, -3, 448 and 2^-9, 1, 0.5, -1 */
    const uint32_t x = 0x7EC44038, w = 0xB8303801;
    const float want = 10.0f + 0x1p-9f + 2.0f - 1.5f - 448.0f;
    assert_true(mmla_project_dot_word(10.0f, x, w) == want);
    assert_true(isnan(mmla_project_dot_word(0.0f, 0x7F, 0)));
    assert_true(isnan(mmla_project_dot_word(0.0f, 0, 0xFF000000)));
}

static void rows_read_at_once_meet_no_bank_twice(void **state) {
    (void)state;
    for (int32_t first = 0; first < 64; first += 8) {
        for (int32_t unit = 0; unit < 8; unit++) {
            uint32_t codes = 0, values = 0;
            for (int32_t row = first; row < first + 8; row++) {
                codes |= 1u << mmla_project_code_off(row, unit % 4) / UNIT % 8;
                values |= 1u << mmla_project_value_off(row, unit) / UNIT % 8;
            }
            assert_int_equal(codes, 0xFF);
            assert_int_equal(values, 0xFF);
        }
    }
}

static void every_unit_has_a_place_of_its_own(void **state) {
    (void)state;
    uint8_t codes[64 * 4] = {0}, values[64 * 8] = {0};
    for (int32_t row = 0; row < 64; row++) {
        for (int32_t unit = 0; unit < 8; unit++) {
            const int32_t at = mmla_project_value_off(row, unit);
            assert_true(at % UNIT == 0 && at / UNIT < 64 * 8);
            assert_int_equal(values[at / UNIT]++, 0);
            if (unit < 4) {
                const int32_t code_at = mmla_project_code_off(row, unit);
                assert_true(code_at % UNIT == 0 && code_at / UNIT < 64 * 4);
                assert_int_equal(codes[code_at / UNIT]++, 0);
            }
        }
    }
}

/* ldmatrix.x4 as its specification has it: thread t gets in result i the 32-bit word t % 4 of the row
 * that thread 8 i + t / 4 named. */
static uint32_t loaded(const uint8_t *smem, const int32_t *named, int32_t lane, int i) {
    return word_at(smem + named[8 * i + lane / 4] + 4 * (lane % 4));
}

/* The code at column k of a row of the tests: no other of its unit, nor of the unit in another row, is
 * the same. Two of them are NaN, which only moving bits does not mind. */
static uint8_t mark(int32_t row, int32_t k) {
    return (uint8_t)(k % UNIT + UNIT * row);
}

/* Where code j of a unit goes, as the first comment of project_map.h has it. */
static int column_of(int j) {
    const int u = j / 4;
    return (j % 2) * 8 + 2 * u + (j % 4) / 2;
}

/* Row and columns of a[0 .. 3] and b[0 .. 1] of m16n8k16, as gpu/mma.cuh has them. */
static int a_row(int lane, int i) {
    return lane / 4 + 8 * (i % 2);
}
static int k_of(int lane, int i, int half) { /* i: 0 lower, 1 upper eight columns */
    return 2 * (lane % 4) + 8 * i + half;
}

static void put_codes(uint8_t *smem, int32_t rows) {
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t k = 0; k < MMLA_PROJECT_STEP; k++) {
            smem[mmla_project_code_off(row, k / UNIT) + k % UNIT] = mark(row, k);
        }
    }
}

/* What unit_convert of project_block.cu leaves: even codes in unit 2 q, odd codes in 2 q + 1. */
static void put_values(uint8_t *smem, int32_t rows) {
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t q = 0; q < MMLA_PROJECT_STEP_UNITS; q++) {
            for (int32_t word = 0; word < 4; word++) {
                uint8_t codes[4];
                for (int i = 0; i < 4; i++) {
                    codes[i] = mark(row, UNIT * q + 4 * word + i);
                }
                const uint32_t even = mmla_project_place_even(word_at(codes));
                const uint32_t odd = mmla_project_place_odd(word_at(codes));
                memcpy(smem + mmla_project_value_off(row, 2 * q) + 4 * word, &even, 4);
                memcpy(smem + mmla_project_value_off(row, 2 * q + 1) + 4 * word, &odd, 4);
            }
        }
    }
}

static uint16_t placed(uint8_t code) {
    return (uint16_t)mmla_project_place_even(code);
}

/* A register that thread `lane` has for `row`, columns k_of(lane, i, .) of unit q. */
static void check_register(uint32_t got, int32_t row, int q, int lane, int i) {
    for (int half = 0; half < 2; half++) {
        for (int j = 0; j < UNIT; j++) {
            if (column_of(j) == k_of(lane, i, half)) {
                assert_int_equal(half_of(got, half), placed(mark(row, UNIT * q + j)));
            }
        }
    }
}

static void columns_of_codes_are_a_permutation(void **state) {
    (void)state;
    uint32_t seen = 0;
    for (int j = 0; j < UNIT; j++) {
        seen |= 1u << column_of(j);
    }
    assert_int_equal(seen, 0xFFFF);
}

static void split_fragments_hold_the_columns_of_their_unit(void **state) {
    (void)state;
    uint8_t smem[ROWS * MMLA_PROJECT_STEP];
    put_codes(smem, ROWS);
    for (int half = 0; half < 2; half++) {
        int32_t weight[LANES], tokens[LANES];
        for (int32_t lane = 0; lane < LANES; lane++) {
            weight[lane] = mmla_project_code_off(mmla_project_weight_row(lane),
                                                 2 * half + mmla_project_weight_half(lane));
            tokens[lane] = mmla_project_code_off(mmla_project_token_row(lane),
                                                 2 * half + mmla_project_token_half(lane));
        }
        for (int32_t lane = 0; lane < LANES; lane++) {
            for (int k = 0; k < 2; k++) { /* instruction of the half step, of unit 2 half + k */
                for (int i = 0; i < 2; i++) {
                    const uint32_t w = loaded(smem, weight, lane, 2 * k + i); /* a[i], a[i + 2] */
                    check_register(mmla_project_place_even(w), a_row(lane, i), 2 * half + k, lane,
                                   0);
                    check_register(mmla_project_place_odd(w), a_row(lane, i), 2 * half + k, lane,
                                   1);
                    const uint32_t t = loaded(smem, tokens, lane, 2 * i + k); /* of 8 tokens i */
                    check_register(mmla_project_place_even(t), 8 * i + lane / 4, 2 * half + k, lane,
                                   0);
                    check_register(mmla_project_place_odd(t), 8 * i + lane / 4, 2 * half + k, lane,
                                   1);
                }
            }
        }
    }
}

static void block_fragments_hold_the_same_columns(void **state) {
    (void)state;
    uint8_t smem[ROWS * 2 * MMLA_PROJECT_STEP];
    put_values(smem, ROWS);
    for (int q = 0; q < MMLA_PROJECT_STEP_UNITS; q++) {
        int32_t weight[LANES], tokens[LANES];
        for (int32_t lane = 0; lane < LANES; lane++) {
            weight[lane] = mmla_project_value_off(mmla_project_weight_row(lane),
                                                  2 * q + mmla_project_weight_half(lane));
            tokens[lane] = mmla_project_value_off(mmla_project_token_row(lane),
                                                  2 * q + mmla_project_token_half(lane));
        }
        for (int32_t lane = 0; lane < LANES; lane++) {
            for (int i = 0; i < 4; i++) {
                check_register(loaded(smem, weight, lane, i), a_row(lane, i), q, lane, i / 2);
                check_register(loaded(smem, tokens, lane, i), 8 * (i / 2) + lane / 4, q, lane,
                               i % 2);
            }
        }
    }
}

static void sums_of_a_warp_are_the_whole_tile(void **state) {
    (void)state;
    uint8_t seen[16][8] = {{0}};
    for (int32_t lane = 0; lane < LANES; lane++) {
        for (int32_t e = 0; e < 4; e++) {
            seen[mmla_project_sum_row(lane, e)][mmla_project_sum_token(lane, e)]++;
        }
    }
    for (int i = 0; i < 16 * 8; i++) {
        assert_int_equal(seen[i / 8][i % 8], 1);
    }
}

static void tiles_cover_every_result_once(void **state) {
    (void)state;
    enum { GROUPS = 3, RANK = 72, TOKENS = 37, M = 32, N = 16 };
    uint8_t *seen = calloc(GROUPS * RANK * TOKENS, 1);
    const int64_t n = mmla_project_tiles(RANK, M) * mmla_project_tiles(TOKENS, N) * GROUPS;
    assert_int_equal(n, 27);
    for (int64_t idx = 0; idx < n; idx++) {
        const mmla_project_tile t = mmla_project_tile_get(idx, TOKENS, RANK, N, M);
        assert_true(t.n_rows > 0 && t.n_rows <= M && t.n_tokens > 0 && t.n_tokens <= N);
        for (int32_t row = 0; row < t.n_rows; row++) {
            for (int32_t token = 0; token < t.n_tokens; token++) {
                seen[(t.g * RANK + t.row + row) * TOKENS + t.token + token]++;
            }
        }
    }
    for (int i = 0; i < GROUPS * RANK * TOKENS; i++) {
        assert_int_equal(seen[i], 1);
    }
    free(seen);
    /* As many tiles as a grid has. */
    const mmla_project_tile last =
        mmla_project_tile_get(((int64_t)1 << 31) - 1, INT32_MAX, 8, 16, 32);
    assert_int_equal(last.g, 15);
    assert_int_equal(last.token, INT32_MAX - 15);
    assert_int_equal(last.n_tokens, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_times_plain_scale_is_exact_in_bf16),
        cmocka_unit_test(only_plain_scales_have_a_factor),
        cmocka_unit_test(codes_of_a_word_go_to_their_columns),
        cmocka_unit_test(probe_finds_nan_codes_and_nothing_else),
        cmocka_unit_test(scale_add_takes_any_two_bytes),
        cmocka_unit_test(dot_word_adds_four_products),
        cmocka_unit_test(rows_read_at_once_meet_no_bank_twice),
        cmocka_unit_test(every_unit_has_a_place_of_its_own),
        cmocka_unit_test(columns_of_codes_are_a_permutation),
        cmocka_unit_test(split_fragments_hold_the_columns_of_their_unit),
        cmocka_unit_test(block_fragments_hold_the_same_columns),
        cmocka_unit_test(sums_of_a_warp_are_the_whole_tile),
        cmocka_unit_test(tiles_cover_every_result_once),
    };
    return cmocka_run_group_tests_name("project_map", tests, NULL, NULL);
}
