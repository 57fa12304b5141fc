/* project_wgmma_map.h - where a number of project's Hopper kernels stands, and what a row's scales become:
 * everything about them that can be said without a GPU, for host and device.
 *
 * K, 4096 columns, is 8 segments of 512, a segment 8 steps of 64, a step 4 units of 16 codes and 4 matrix
 * instructions of 16 columns. A warpgroup has 64 rows of weight. Every kernel but those with a wide weight (project_wide.h)
 * sums a segment by its 32 instructions in the same order, and adds segments in fp32 from the first to the last, so
 * that a result's bits depend neither on the kernel nor on what else is in its tile.
 *
 * COLUMNS    Of a step, the thread that needs columns 2 u, 2 u + 1, 2 u + 8 and 2 u + 9 of every
 *            instruction (u is 0 .. 3, gpu/wgmma.cuh) has the 16 codes of unit u, so that one load of 16
 *            bytes is its share of a row of weight:
 *
 *                codes 2 p, 2 p + 1 of unit u  ->  instruction p / 2, columns 8 (p % 2) + 2 u and the next
 *
 *            A sum does not notice the order of its columns as long as both operands have it; tokens are
 *            put into their tile in the same one.
 *
 * SCALES     Operands are fp16, which the hardware makes of e4m3 by half an instruction a code, and into
 *            which it multiplies a power of two by another half. fp16 has less range than a row may
 *            need; so the 16 scale bytes of a row's segment are taken relative to their largest, b:
 *
 *                operand   code * 2^(7 - (b - byte))     exact for b - byte = 0 .. 21
 *                factor    2^(b - 127 - 7)               of the segment's sum, fp32
 *
 *            A row with a segment of a larger range (where its codes are not all zero), or with a b whose
 *            factor could leave the range of fp32, is odd: its results are computed one by one.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_MAP_H
#define MMLA_OPS_PROJECT_WGMMA_MAP_H

#include "ops/project/project_map.h"

enum {
    MMLA_PROJECT_WG_THREADS = 128, /* of a warpgroup */
    MMLA_PROJECT_WG_ROWS = 64,     /* of weight, of a warpgroup */
    MMLA_PROJECT_WG_PAIRS = MMLA_PROJECT_UNIT / 2,
    MMLA_PROJECT_WG_ROW_BYTES = 2 * MMLA_PROJECT_STEP, /* of a token in a tile: a step as fp16 */
    MMLA_PROJECT_WG_SCALES = MMLA_PROJECT_SEGMENT / MMLA_PROJECT_GROUP /* of a row, a segment */
};

static_assert(MMLA_PROJECT_WG_SCALES == 16 && MMLA_PROJECT_WG_ROW_BYTES == 128,
              "a segment's scale bytes are 16, a token's step fills a row of the swizzle");

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* mmla_project_tile_get by 32-bit divisions; a call has no more tiles than that. */
MMLA_INLINE mmla_project_tile mmla_project_wg_tile_get(
    uint32_t idx, int64_t n_tokens, int32_t rank, int32_t tokens, int32_t rows) {
    const uint32_t row_tiles = ((uint32_t)rank + (uint32_t)rows - 1u) / (uint32_t)rows;
    const uint32_t token_tiles =
        ((uint32_t)n_tokens + (uint32_t)tokens - 1u) / (uint32_t)tokens; /* up to 2^31 - 1 tokens */
    const uint32_t row_tile = idx % row_tiles, rest = idx / row_tiles;
    const uint32_t token_tile = rest % token_tiles;
    mmla_project_tile tile;
    tile.row = (int32_t)row_tile * rows;
    tile.token = (int64_t)token_tile * tokens;
    tile.g = (int32_t)(rest / token_tiles);
    tile.n_rows = rank - tile.row < rows ? rank - tile.row : rows;
    tile.n_tokens = n_tokens - tile.token < tokens ? (int32_t)(n_tokens - tile.token) : tokens;
    return tile;
}

/* The rows of a tile that part `part` of several has, of `rows` each; none where the tile has fewer. */
MMLA_INLINE mmla_project_tile mmla_project_wg_tile_part(mmla_project_tile tile,
                                                        int32_t part,
                                                        int32_t rows) {
    const int32_t left = tile.n_rows - part * rows;
    tile.row += part * rows;
    tile.n_rows = left < 0 ? 0 : left < rows ? left : rows;
    return tile;
}

/* Two steps of a row's codes are copied at once, a line of L2: lanes that copy less of more rows take
 * shared memory and its tags more often. */
enum {
    MMLA_PROJECT_WG_LINE_STEPS = 2,
    MMLA_PROJECT_WG_LINE = MMLA_PROJECT_WG_LINE_STEPS * MMLA_PROJECT_STEP,
    MMLA_PROJECT_WG_LINE_UNITS = MMLA_PROJECT_WG_LINE / MMLA_PROJECT_UNIT
};

/* A lane copies one unit of a line: eight lanes have a line, a warp those of four rows. */
enum { MMLA_PROJECT_WG_COPY_ROWS = 32 / MMLA_PROJECT_WG_LINE_UNITS };
MMLA_INLINE int32_t mmla_project_wg_copy_row(int32_t lane) {
    return lane / MMLA_PROJECT_WG_LINE_UNITS;
}
MMLA_INLINE int32_t mmla_project_wg_copy_unit(int32_t lane) {
    return lane % MMLA_PROJECT_WG_LINE_UNITS;
}

/* Byte offset of a unit of a token's line, [tokens][128]: a line lies in all 32 banks, and so does a unit of
 * eight tokens, which is one matrix of ldmatrix. Four tokens on, units 0 .. 3 and 4 .. 7 change places. */
enum { MMLA_PROJECT_WG_COPY_TURN = MMLA_PROJECT_STEP };
MMLA_INLINE int32_t mmla_project_wg_code_off(int32_t row, int32_t unit) {
    return row * MMLA_PROJECT_WG_LINE + ((unit ^ row) & 7) * MMLA_PROJECT_UNIT;
}

/* Byte offset of a unit of a line of one of so many rows of weight, [2][rows][64]: the second steps of all
 * after the first ones, and 64 bytes apart, so that a line lies in all 32 banks, as a step of two rows does. No
 * bit of an address changes from row to row or step to step: a thread needs one for what it copies and one for
 * what it loads. */
#define MMLA_PROJECT_WG_WEIGHT_STEP(rows) ((rows)*MMLA_PROJECT_STEP + MMLA_PROJECT_STEP)
MMLA_INLINE int32_t mmla_project_wg_weight_off(int32_t row, int32_t unit, int32_t rows) {
    return unit / MMLA_PROJECT_STEP_UNITS * MMLA_PROJECT_WG_WEIGHT_STEP(rows) +
           row * MMLA_PROJECT_STEP + unit % MMLA_PROJECT_STEP_UNITS * MMLA_PROJECT_UNIT;
}

/* Of a matrix of eight rows of a unit: the row of which ldmatrix gives a lane a word, and which word. Word w of
 * the four units of a step are pairs 2 w and 2 w + 1 of each. */
enum { MMLA_PROJECT_WG_MATRIX_ROWS = 8 };
MMLA_INLINE int32_t mmla_project_wg_matrix_row(int32_t lane) {
    return lane / 4;
}
MMLA_INLINE int32_t mmla_project_wg_matrix_word(int32_t lane) {
    return lane % 4;
}

/* Byte offset in a tile of tokens, [tokens][64] fp16 swizzled by 128 bytes, of a pair of a unit. Eight
 * tokens' units of four threads each lie in all 32 banks. */
MMLA_INLINE int32_t mmla_project_wg_pair_off(int32_t token, int32_t unit, int32_t pair) {
    return token * MMLA_PROJECT_WG_ROW_BYTES + ((pair ^ token) & 7) * 16 + unit * 4;
}

/* In the block kernels a stage is a line of tokens, two such tiles, whose groups of eight tokens take turns,
 * so that what a warp converts of both is one piece. Bytes from a group of a tile to its next. */
enum { MMLA_PROJECT_WG_EIGHTS_APART = MMLA_PROJECT_WG_LINE_STEPS * 8 * MMLA_PROJECT_WG_ROW_BYTES };

/* Row of a warpgroup's 64, the first of a thread's two; the other is 8 more. And which unit of each. */
MMLA_INLINE int32_t mmla_project_wg_row(int32_t thread) {
    return thread / 32 * 16 + thread % 32 / 4;
}
MMLA_INLINE int32_t mmla_project_wg_unit(int32_t thread) {
    return thread % 4;
}

/* Which register of instruction pair / 2 takes a pair; `half` is 1 for the thread's second row. */
MMLA_INLINE int32_t mmla_project_wg_register(int32_t pair, int32_t half) {
    return pair % 2 * 2 + half;
}

/* Row and token of sum i of a thread. */
MMLA_INLINE int32_t mmla_project_wg_sum_row(int32_t thread, int32_t i) {
    return mmla_project_wg_row(thread) + i / 2 % 2 * 8;
}
MMLA_INLINE int32_t mmla_project_wg_sum_token(int32_t thread, int32_t i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* Byte offset of chunk c (8 rows of weight, bf16) of a token in the results of a warpgroup: stores of
 * eight tokens' chunks meet eight places of 16 bytes. */
MMLA_INLINE int32_t mmla_project_wg_result_off(int32_t token, int32_t chunk) {
    return token * (2 * MMLA_PROJECT_WG_ROWS) + ((chunk ^ token) & 7) * 16;
}

/* Sums of a segment, [token][row] fp32: four numbers more between tokens, so that the threads of two
 * tokens apart meet 8 banks on. */
enum { MMLA_PROJECT_WG_SUM_PITCH = MMLA_PROJECT_WG_ROWS + 4 };

/* ---- Scales ---------------------------------------------------------------------------------- */

enum {
    MMLA_PROJECT_WG_TOP = 7, /* log2 of the largest operand's scale: 448 * 2^7 < 65504 */
    MMLA_PROJECT_WG_SPREAD =
        21, /* 2^(7 - 21) is the smallest normal fp16, so an exponent makes it */
    MMLA_PROJECT_WG_LARGEST = MMLA_PROJECT_WG_TOP + 15, /* biased exponent of 2^7 in fp16 */
    MMLA_PROJECT_WG_BASE_LOW = 95,
    MMLA_PROJECT_WG_BASE_HIGH = 175
};

static_assert(2 * (MMLA_PROJECT_WG_TOP - MMLA_PROJECT_WG_SPREAD - 9) +
                      2 * (MMLA_PROJECT_WG_BASE_LOW - MMLA_UE8M0_BIAS - MMLA_PROJECT_WG_TOP) >=
                  -126,
              "the smallest product times both factors is a normal fp32");
static_assert(2 * (MMLA_PROJECT_WG_TOP + 9) + 12 +
                      2 * (MMLA_PROJECT_WG_BASE_HIGH - MMLA_UE8M0_BIAS - MMLA_PROJECT_WG_TOP) <=
                  127,
              "the largest sum of 4096 products times both factors is finite");

/* A row's segment: for each group the biased exponent of its fp16 scale, a byte each; the factor of its
 * sums, NaN where a scale is; whether the row is odd for it. */
typedef struct mmla_project_wg_segment {
    uint32_t exponents[MMLA_PROJECT_WG_SCALES / 4];
    float factor;
    bool is_odd;
} mmla_project_wg_segment;

/* A row's exponents in the order of what is read at once: those of every step's first group, a byte a step, then
 * those of every step's second. A unit's is in half unit / 2. */
MMLA_INLINE void
mmla_project_wg_exponents_by_half(const uint32_t exponents[MMLA_PROJECT_WG_SCALES / 4],
                                  uint32_t halves[MMLA_PROJECT_WG_SCALES / 4]) {
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES / 4; i++) { /* steps 4 (i % 2) and three more */
        const uint32_t a = exponents[i % 2 * 2] >> 8 * (i / 2) & 0x00FF00FFu;
        const uint32_t b = exponents[i % 2 * 2 + 1] >> 8 * (i / 2) & 0x00FF00FFu;
        halves[i] = ((a | a >> 8) & 0xFFFFu) | (b | b >> 8) << 16;
    }
}

/* Two fp16 of a scale side by side. */
MMLA_INLINE uint32_t mmla_project_wg_scale_pair(uint32_t exponent) {
    return exponent * 0x04000400u;
}

/* The fp16 of two scales, whose exponents are bytes, side by side. */
MMLA_INLINE uint32_t mmla_project_wg_scales_pair(uint32_t exponents) {
    return ((exponents | exponents << 8) & 0x00FF00FFu) << 10;
}

/* 2^(base - 127 - 7), for a base in range. */
MMLA_INLINE float mmla_project_wg_factor(uint32_t base) {
    return mmla_f32_of_bits((base - MMLA_PROJECT_WG_TOP) << 23);
}

MMLA_INLINE bool mmla_project_wg_base_is_plain(uint32_t base) {
    return base >= MMLA_PROJECT_WG_BASE_LOW && base <= MMLA_PROJECT_WG_BASE_HIGH;
}

/* Of two pairs of 16 bits the smaller and the larger of each. */
MMLA_INLINE uint32_t mmla_project_u16x2_min(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __vminu2(a, b);
#else
    return ((a >> 16 < b >> 16 ? a : b) & 0xFFFF0000u) |
           (((a & 0xFFFFu) < (b & 0xFFFFu) ? a : b) & 0xFFFFu);
#endif
}
MMLA_INLINE uint32_t mmla_project_u16x2_max(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __vmaxu2(a, b);
#else
    return ((a >> 16 > b >> 16 ? a : b) & 0xFFFF0000u) |
           (((a & 0xFFFFu) > (b & 0xFFFFu) ? a : b) & 0xFFFFu);
#endif
}

/* The usual case: no NaN, and no group too small or too large whatever its codes. False when it is not
 * that, and nothing is said. */
MMLA_INLINE bool mmla_project_wg_segment_quick(const uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4],
                                               mmla_project_wg_segment *s) {
    uint32_t lows = 0x00FF00FFu, highs = 0; /* of every other byte, and of the others */
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES / 4; i++) {
        const uint32_t a = bytes[i] & 0x00FF00FFu, b = bytes[i] >> 8 & 0x00FF00FFu;
        lows = mmla_project_u16x2_min(lows, mmla_project_u16x2_min(a, b));
        highs = mmla_project_u16x2_max(highs, mmla_project_u16x2_max(a, b));
    }
    const uint32_t low = lows >> 16 < (lows & 0xFFFFu) ? lows >> 16 : lows & 0xFFFFu;
    const uint32_t high = highs >> 16 > (highs & 0xFFFFu) ? highs >> 16 : highs & 0xFFFFu;
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES / 4; i++) { /* no byte borrows from another */
        s->exponents[i] = bytes[i] - (high - MMLA_PROJECT_WG_LARGEST) * 0x01010101u;
    }
    s->factor = mmla_project_wg_factor(high);
    s->is_odd = false;
    return high - low <= MMLA_PROJECT_WG_SPREAD && mmla_project_wg_base_is_plain(high);
}

/* Any case; bit i of zeros says that all codes of group i are +-0, whose scale does not matter unless it is
 * a NaN. What an odd row is given are numbers of no meaning that make no NaN. */
MMLA_INLINE mmla_project_wg_segment
mmla_project_wg_segment_get(const uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4], uint32_t zeros) {
    mmla_project_wg_segment s;
    uint32_t base = 0;
    bool has_nan = false;
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES; i++) {
        const uint32_t byte = bytes[i / 4] >> 8 * (i % 4) & 0xFFu;
        has_nan |= byte == MMLA_UE8M0_NAN;
        base = byte != MMLA_UE8M0_NAN && (zeros >> i & 1u) == 0 && byte > base ? byte : base;
    }
    if (base == 0 && (zeros | (uint32_t)has_nan) != 0) {
        base = MMLA_UE8M0_BIAS; /* of nothing */
    }
    s.is_odd = !mmla_project_wg_base_is_plain(base);
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES / 4; i++) {
        s.exponents[i] = 0;
    }
    for (int i = 0; i < MMLA_PROJECT_WG_SCALES; i++) {
        const uint32_t byte = bytes[i / 4] >> 8 * (i % 4) & 0xFFu;
        const bool counts = byte != MMLA_UE8M0_NAN && (zeros >> i & 1u) == 0;
        const bool fits = byte <= base && base - byte <= MMLA_PROJECT_WG_SPREAD;
        s.is_odd |= counts && !fits;
        const uint32_t exponent = fits ? MMLA_PROJECT_WG_LARGEST - (base - byte) : 1u;
        s.exponents[i / 4] |= exponent << 8 * (i % 4);
    }
    s.factor = s.is_odd ? 1.0f : mmla_project_wg_factor(base);
    if (has_nan) {
        s.factor = mmla_f32_of_bits(0x7FC00000u);
    }
    return s;
}

#endif
