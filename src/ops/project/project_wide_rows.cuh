/* project_wide_rows.cuh - scales of a whole row, of weight or of a token, on the GPU. */
#ifndef MMLA_OPS_PROJECT_WIDE_ROWS_CUH
#define MMLA_OPS_PROJECT_WIDE_ROWS_CUH

#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wide.h"

/* Any case, group by group, of n groups from `first` on. Rare, so it is small instead of fast. */
PROJECT_DEVICE mmla_project_wide_row project_wide_row_any(const project_row *r,
                                                          int32_t first,
                                                          int32_t n) {
    uint32_t low = 0xFFu, high = 0;
    bool has_nan = false, has_none = true;
#pragma unroll 1
    for (int32_t group = first; group < first + n; group++) {
        const uint4 *at = (const uint4 *)(r->codes + group * MMLA_PROJECT_GROUP);
        const uint4 a = __ldg(at), b = __ldg(at + 1);
        const uint32_t any = a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
        const uint32_t byte = project_scales_load(r, group / 4) >> 8 * (group % 4) & 0xFFu;
        if (byte == MMLA_UE8M0_NAN) {
            has_nan = true;
        } else if ((any & 0x7F7F7F7Fu) != 0) {
            low = byte < low ? byte : low;
            high = byte > high ? byte : high;
            has_none = false;
        }
    }
    return mmla_project_wide_row_of(low, high, has_nan, has_none);
}

/* The smallest and the largest of scale bytes, in the upper halves of two times 16 bits; what is below them means
 * nothing. */
typedef struct project_wide_range {
    uint32_t lows, highs;
} project_wide_range;

PROJECT_DEVICE project_wide_range project_wide_range_none(void) {
    return (project_wide_range){0xFFFFFFFFu, 0};
}

/* Of so many words: their odd bytes stand in upper halves, their even ones once they are shifted. */
PROJECT_DEVICE void
project_wide_range_add(project_wide_range *range, const uint32_t *bytes, const int32_t n) {
#pragma unroll
    for (int32_t i = 0; i < n; i++) {
        const uint32_t odd = bytes[i], even = bytes[i] << 8;
        range->lows = mmla_project_u16x2_min(range->lows, mmla_project_u16x2_min(odd, even));
        range->highs = mmla_project_u16x2_max(range->highs, mmla_project_u16x2_max(odd, even));
    }
}

/* What a row's scales are, or those of a part of it, of the ranges of so many lanes side by side, a power of two, that
 * have a part of their bytes each: in the usual case, which is_plain says, there is no NaN and no group too small or too
 * large, whatever its codes. */
PROJECT_DEVICE mmla_project_wide_row project_wide_row_quick(project_wide_range range,
                                                            const int32_t lanes) {
#pragma unroll
    for (int32_t apart = 1; apart < lanes; apart *= 2) {
        range.lows = mmla_project_u16x2_min(range.lows,
                                            __shfl_xor_sync(PROJECT_ALL_LANES, range.lows, apart));
        range.highs = mmla_project_u16x2_max(
            range.highs, __shfl_xor_sync(PROJECT_ALL_LANES, range.highs, apart));
    }
    const uint32_t low = mmla_project_u16x2_min(range.lows, range.lows >> 16) >> 8 & 0xFFu;
    const uint32_t high = mmla_project_u16x2_max(range.highs, range.highs >> 16) >> 8 & 0xFFu;
    mmla_project_wide_row row = mmla_project_wide_row_of(low, high, false, false);
    row.is_plain = !row.is_odd;
    return row;
}

/* The same in any case, of n groups of a row from `first` on. */
PROJECT_DEVICE mmla_project_wide_row project_wide_row_get(
    const project_row *r, project_wide_range range, const int32_t lanes, int32_t first, int32_t n) {
    mmla_project_wide_row row = project_wide_row_quick(range, lanes);
    if (!row.is_plain) {
        row = project_wide_row_any(r, first, n);
    }
    return row;
}

#endif
