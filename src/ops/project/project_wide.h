/* project_wide.h - weight as fp16, as project_wide.cu reads it: where a number of it stands, and the scales of a
 * whole row, for host and device.
 *
 * LAYOUT     of a group, its rows in tiles of 256, the last of which is filled up with zeros:
 *
 *                codes      [group][tile][step of 64 columns][row of the tile][128 bytes]    fp16
 *                factors    [group][row of all its tiles]                                    fp32
 *                marks      the same                                                         int32: PROJECT_ODD
 *
 *            128 bytes of a row are a step in the order and with the swizzle of a tile of tokens
 *            (project_wgmma_map.h), so that 8, 16 or 32 KB are a tile of 64, 128 or 256 rows as they lie.
 *
 * SCALES     As in project_wgmma_map.h, but the base is the largest of all 128 scale bytes of a row: sums are then one
 *            chain from the first column to the last, and are multiplied by both factors once.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_H
#define MMLA_OPS_PROJECT_WIDE_H

#include "ops/project/project_wgmma_map.h"

enum {
    MMLA_PROJECT_WIDE_ROWS = 256, /* of a tile of the layout */
    MMLA_PROJECT_WIDE_STEP_BYTES = MMLA_PROJECT_WIDE_ROWS * MMLA_PROJECT_WG_ROW_BYTES,
    MMLA_PROJECT_WIDE_TILE_BYTES = MMLA_PROJECT_STEPS * MMLA_PROJECT_WIDE_STEP_BYTES,
    MMLA_PROJECT_WIDE_CHUNKS = MMLA_PROJECT_WG_ROW_BYTES / 16 /* of a step of a row */
};

/* Rows of a group with those that fill its last tile. */
MMLA_INLINE int64_t mmla_project_wide_rows(int32_t rank) {
    return mmla_project_tiles(rank, MMLA_PROJECT_WIDE_ROWS) * MMLA_PROJECT_WIDE_ROWS;
}

/* Byte offset of a step of a row, a multiple of 128. */
MMLA_INLINE int64_t mmla_project_wide_off(int32_t rank, int32_t g, int32_t row, int32_t step) {
    const int64_t tile =
        g * mmla_project_tiles(rank, MMLA_PROJECT_WIDE_ROWS) + row / MMLA_PROJECT_WIDE_ROWS;
    return tile * MMLA_PROJECT_WIDE_TILE_BYTES + step * MMLA_PROJECT_WIDE_STEP_BYTES +
           row % MMLA_PROJECT_WIDE_ROWS * MMLA_PROJECT_WG_ROW_BYTES;
}

/* Index of a row among factors and marks. */
MMLA_INLINE int64_t mmla_project_wide_idx(int32_t rank, int32_t g, int32_t row) {
    return g * mmla_project_wide_rows(rank) + row;
}

/* Bytes of all codes, then of factors, and of everything. */
MMLA_INLINE int64_t mmla_project_wide_codes_bytes(int32_t rank, int32_t n_groups) {
    return n_groups * mmla_project_wide_rows(rank) * 2 * MMLA_PROJECT_DIM;
}
MMLA_INLINE int64_t mmla_project_wide_factors_bytes(int32_t rank, int32_t n_groups) {
    return n_groups * mmla_project_wide_rows(rank) * (int64_t)sizeof(float);
}
MMLA_INLINE int64_t mmla_project_wide_bytes_of(int32_t rank, int32_t n_groups) {
    return mmla_project_wide_codes_bytes(rank, n_groups) +
           2 * mmla_project_wide_factors_bytes(rank, n_groups);
}

/* A row's scales: what they are relative to, the factor of its sums, NaN where a scale is, and whether the row is
 * odd. */
typedef struct mmla_project_wide_row {
    uint32_t base;
    float factor;
    bool is_odd;
    bool is_plain; /* no byte is a NaN, more than the base, or too far below it */
} mmla_project_wide_row;

/* Of the smallest and the largest byte of groups that count: those of no NaN that have a code but +-0. None: high is
 * 0. */
MMLA_INLINE mmla_project_wide_row mmla_project_wide_row_of(uint32_t low,
                                                           uint32_t high,
                                                           bool has_nan,
                                                           bool has_none) {
    mmla_project_wide_row r;
    r.is_plain = false;
    r.base = has_none ? MMLA_UE8M0_BIAS : high;
    r.is_odd =
        !has_none && (!mmla_project_wg_base_is_plain(high) || high - low > MMLA_PROJECT_WG_SPREAD);
    r.factor = r.is_odd ? 1.0f : mmla_project_wg_factor(r.base);
    if (has_nan) {
        r.factor = mmla_f32_of_bits(0x7FC00000u);
    }
    return r;
}

/* The biased exponents of the fp16 scales of four groups of a plain row: no byte borrows from another. */
MMLA_INLINE uint32_t mmla_project_wide_exponents_plain(uint32_t bytes, uint32_t base) {
    return bytes - (base - MMLA_PROJECT_WG_LARGEST) * 0x01010101u;
}

/* Of any row. A group that does not count, or of an odd row, may lie too far off, and gets an exponent that makes no
 * NaN. */
MMLA_INLINE uint32_t mmla_project_wide_exponents(uint32_t bytes, uint32_t base) {
    const uint32_t bases = base * 0x00010001u;
    uint32_t below = 0; /* the base, at most as far as fp16 goes */
    for (int i = 0; i < 2; i++) {
        const uint32_t two = mmla_project_u16x2_min(bytes >> 8 * i & 0x00FF00FFu, bases);
        below |= mmla_project_u16x2_min(bases - two, MMLA_PROJECT_WG_SPREAD * 0x00010001u) << 8 * i;
    }
    return MMLA_PROJECT_WG_LARGEST * 0x01010101u - below;
}

#endif
