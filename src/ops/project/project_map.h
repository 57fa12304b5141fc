/* project_map.h - where a number of project's kernels stands, and what its bits become: everything
 * about them that can be said without a GPU, for host and device.
 *
 * K, 4096 columns, is 8 segments of 512. A segment is 32 matrix instructions of 16 columns one after
 * the other; then segments are added in fp32, first to last. Every kernel keeps to that order but
 * those with a wide weight (project_wide.h), so that a result's bits depend neither on the kernel nor on what else is in
 * its tile.
 *
 * Sixteen codes of a row are the 16 columns of one instruction, in an order that both operands share
 * and that a sum does not notice: four codes of a 32-bit word are taken apart two by two,
 *
 *     word u of 4             code   4u     4u + 1   4u + 2   4u + 3
 *     column of instruction          2u     2u + 8   2u + 1   2u + 9
 *
 * because ldmatrix hands such a word to the very thread that needs those four columns.
 */
#ifndef MMLA_OPS_PROJECT_MAP_H
#define MMLA_OPS_PROJECT_MAP_H

#include <assert.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "ops/project/project.h"

enum {
    MMLA_PROJECT_SEGMENTS = 8,
    MMLA_PROJECT_SEGMENT = MMLA_PROJECT_DIM / MMLA_PROJECT_SEGMENTS,
    MMLA_PROJECT_STEP = 64, /* columns of a row that are copied together */
    MMLA_PROJECT_STEPS = MMLA_PROJECT_DIM / MMLA_PROJECT_STEP,
    MMLA_PROJECT_SEGMENT_STEPS = MMLA_PROJECT_SEGMENT / MMLA_PROJECT_STEP,
    MMLA_PROJECT_UNIT = 16, /* bytes of a copy: the codes of one instruction */
    MMLA_PROJECT_STEP_UNITS = MMLA_PROJECT_STEP / MMLA_PROJECT_UNIT
};

static_assert(MMLA_PROJECT_SEGMENT_STEPS == 8 && MMLA_PROJECT_STEP == 2 * MMLA_PROJECT_GROUP,
              "a step has two scales, a segment eight steps");

/* ---- Numbers -------------------------------------------------------------------------------- *
 *
 * A code times its scale is made a bf16 by two exact steps: the code's exponent and mantissa are put
 * where a bf16 has them, which is the value times 2^-120, subnormals included; then it is multiplied
 * by 2^(120 + byte - 127 - SHIFT). SHIFT centres the scale bytes for which nothing leaves the range:
 *
 *     byte 146: the factor is 2^127                  byte 85: the smallest product of two operands,
 *               the largest bf16 power of two                 (2^-9 * 2^(85 - 127 - 12))^2 = 2^-126
 *
 * so that all sums are of normal fp32 numbers, and results are multiplied by 2^(2 * SHIFT). Rows with
 * other scale bytes are left to mmla_project_scale_add, which takes any.
 */
enum { MMLA_PROJECT_SHIFT = 12, MMLA_PROJECT_PLAIN_LOW = 85, MMLA_PROJECT_PLAIN_HIGH = 146 };

#define MMLA_PROJECT_UNSHIFT 0x1p24f /* 2^(2 * MMLA_PROJECT_SHIFT) */

static_assert(MMLA_PROJECT_PLAIN_HIGH + 120 - MMLA_UE8M0_BIAS - MMLA_PROJECT_SHIFT == 127,
              "the largest factor is a bf16");
static_assert(2 * (-9 + MMLA_PROJECT_PLAIN_LOW - MMLA_UE8M0_BIAS - MMLA_PROJECT_SHIFT) == -126,
              "the smallest product is a normal fp32");

MMLA_INLINE bool mmla_project_scale_is_plain(uint32_t byte) {
    return byte >= MMLA_PROJECT_PLAIN_LOW && byte <= MMLA_PROJECT_PLAIN_HIGH;
}

/* The biased exponent of the factor of a plain scale byte, 0 for any other: a factor of zero, which
 * keeps a row that is left to mmla_project_scale_add out of trouble. */
MMLA_INLINE uint32_t mmla_project_factor_exponent(uint32_t byte) {
    return mmla_project_scale_is_plain(byte) ? byte + 120u - MMLA_PROJECT_SHIFT : 0u;
}

/* Two bf16 of that factor side by side. */
MMLA_INLINE uint32_t mmla_project_factor_pair(uint32_t exponent) {
    return exponent * 0x00800080u;
}

/* Codes 0 and 2 of a word as bf16 of 2^-120 of their values; then codes 1 and 3. NaN codes give
 * +-480 * 2^-120 and are found by the probe. */
MMLA_INLINE uint32_t mmla_project_place_even(uint32_t codes) {
    return (codes << 8 & 0x80008000u) | (codes << 4 & 0x07F007F0u);
}
MMLA_INLINE uint32_t mmla_project_place_odd(uint32_t codes) {
    return (codes & 0x80008000u) | (codes >> 4 & 0x07F007F0u);
}

/* Adds a word to what the words before it left; a NaN code sets a bit of MMLA_PROJECT_PROBE, for good. */
#define MMLA_PROJECT_PROBE 0x80808080u

MMLA_INLINE uint32_t mmla_project_probe(uint32_t found, uint32_t codes) {
    return found | ((codes & 0x7F7F7F7Fu) + 0x01010101u);
}

/* ---- A row outside the plain scales ---------------------------------------------------------- */

/* acc + sum * 2^(x_byte - 127 + w_byte - 127), rounded once unless it is tiny, for any two scale
 * bytes. The exponent, up to 254 of either sign, is applied in two halves that fp32 has. */
MMLA_INLINE float mmla_project_scale_add(float acc, float sum, uint32_t x_byte, uint32_t w_byte) {
    if (x_byte == MMLA_UE8M0_NAN || w_byte == MMLA_UE8M0_NAN) {
        return mmla_f32_of_bits(0x7FC00000u);
    }
    const float first = mmla_ue8m0_to_f32((uint8_t)((x_byte + 1u) / 2u + w_byte / 2u));
    const float second = mmla_ue8m0_to_f32((uint8_t)(x_byte / 2u + (w_byte + 1u) / 2u));
    return fmaf(sum * first, second, acc);
}

/* sum + the four products of codes of two words. */
MMLA_INLINE float mmla_project_dot_word(float sum, uint32_t x, uint32_t w) {
    for (int i = 0; i < 4; i++) {
        sum = fmaf(mmla_e4m3_to_f32((uint8_t)(x >> 8 * i)), mmla_e4m3_to_f32((uint8_t)(w >> 8 * i)),
                   sum);
    }
    return sum;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* `rows` rows of weight of one group by `tokens` tokens; fewer at the ends. */
typedef struct mmla_project_tile {
    int64_t token; /* first */
    int32_t n_tokens;
    int32_t g;
    int32_t row; /* first, within the group */
    int32_t n_rows;
} mmla_project_tile;

MMLA_INLINE int64_t mmla_project_tiles(int64_t n, int64_t of) {
    return (n + of - 1) / of;
}

/* Tile idx of groups * token tiles * row tiles: neighbours share tokens, those a little further
 * apart share rows, so that what runs at one time reads few operands. */
MMLA_INLINE mmla_project_tile
mmla_project_tile_get(int64_t idx, int64_t n_tokens, int32_t rank, int32_t tokens, int32_t rows) {
    const int64_t row_tiles = mmla_project_tiles(rank, rows);
    const int64_t token_tiles = mmla_project_tiles(n_tokens, tokens);
    mmla_project_tile tile;
    tile.row = (int32_t)(idx % row_tiles) * rows;
    tile.token = idx / row_tiles % token_tiles * tokens;
    tile.g = (int32_t)(idx / row_tiles / token_tiles);
    tile.n_rows = rank - tile.row < rows ? rank - tile.row : rows;
    tile.n_tokens = n_tokens - tile.token < tokens ? (int32_t)(n_tokens - tile.token) : tokens;
    return tile;
}

/* ---- Shared memory --------------------------------------------------------------------------- *
 *
 * Eight rows of one unit, what ldmatrix reads at once, must lie in eight different sixteenths of the
 * 128 bytes that the banks have. */

/* Unit (of 4) of a row of 64 codes. */
MMLA_INLINE int32_t mmla_project_code_off(int32_t row, int32_t unit) {
    return row * MMLA_PROJECT_STEP + ((unit ^ (row >> 1 & 3)) * MMLA_PROJECT_UNIT);
}

/* Unit (of 8) of a row of 64 bf16: units 2q and 2q + 1 are columns 0 .. 7 and 8 .. 15 of the
 * instruction of codes 16 q .. 16 q + 15. */
MMLA_INLINE int32_t mmla_project_value_off(int32_t row, int32_t unit) {
    return row * (2 * MMLA_PROJECT_STEP) + ((unit ^ (row & 7)) * MMLA_PROJECT_UNIT);
}

/* Which row and unit (of `half` 0 and 1) a thread names to ldmatrix.x4. Of weight: rows 0 .. 15, so
 * that the four results are rows g and g + 8 of unit half 0, then of 1; in bf16 they are a[0 .. 3]. */
MMLA_INLINE int32_t mmla_project_weight_row(int32_t lane) {
    return lane & 15;
}
MMLA_INLINE int32_t mmla_project_weight_half(int32_t lane) {
    return lane >> 4;
}

/* Of tokens: two times 8, so that the results are halves 0 and 1 of tokens g, then of g + 8. The
 * first 16 threads name the first 8 tokens, as ldmatrix.x2 wants. */
MMLA_INLINE int32_t mmla_project_token_row(int32_t lane) {
    return (lane & 7) + (lane >> 4 << 3);
}
MMLA_INLINE int32_t mmla_project_token_half(int32_t lane) {
    return lane >> 3 & 1;
}

/* Row (of 16) and token (of 8) of sum e of 4 that a thread holds. */
MMLA_INLINE int32_t mmla_project_sum_row(int32_t lane, int32_t e) {
    return (lane >> 2) + (e >> 1) * 8;
}
MMLA_INLINE int32_t mmla_project_sum_token(int32_t lane, int32_t e) {
    return (lane & 3) * 2 + (e & 1);
}

#endif
