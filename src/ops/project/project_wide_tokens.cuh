/* project_wide_tokens.cuh - a table of tokens' scales: a warp makes those of 16 tokens at a time, two lanes a token.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_TOKENS_CUH
#define MMLA_OPS_PROJECT_WIDE_TOKENS_CUH

#include "ops/project/project_wide.cuh"
#include "ops/project/project_wide_rows.cuh"

enum {
    WARP_TOKENS = 16,
    LANES = MMLA_PROJECT_WARP / WARP_TOKENS,
    LANE_SEGMENTS = MMLA_PROJECT_SEGMENTS / LANES,
    WORDS = MMLA_PROJECT_WG_SCALES / 4
};

/* Exponents of a token's segment, by halves of steps as the multiplying warps read them. */
DEVICE void exponents_write(
    uint8_t *to, const project_row *r, int32_t segment, uint32_t base, const bool is_plain) {
    uint32_t e[WORDS], halves[WORDS];
    project_wg_scales_load(e, r, segment);
#pragma unroll
    for (int32_t i = 0; i < WORDS; i++) {
        e[i] = is_plain ? mmla_project_wide_exponents_plain(e[i], base)
                        : mmla_project_wide_exponents(e[i], base);
    }
    mmla_project_wg_exponents_by_half(e, halves);
#pragma unroll
    for (int32_t i = 0; i < WORDS; i++) {
        ((uint32_t *)to)[i] = halves[i];
    }
}

/* Exponents of tokens `first` and 15 more of a tile, their factors, and which are odd; whether the lane's is. By all lanes
 * of a warp. */
DEVICE bool tokens_write(const mmla_project_wide_params *p,
                         const wide_smem *smem,
                         const mmla_project_tile *tile,
                         int32_t first,
                         int32_t table,
                         const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t token = first + lane / LANES, segment = lane % LANES * LANE_SEGMENTS;
    const project_row r = project_row_get(&p->p, tile, n + token, n);
    uint8_t *to =
        smem->exponents + (table * TOKENS + token) * TABLE_PITCH + segment * MMLA_PROJECT_WG_SCALES;
    project_wide_range range = project_wide_range_none();
#pragma unroll
    for (int32_t i = 0; i < LANE_SEGMENTS; i++) {
        uint32_t bytes[WORDS];
        project_wg_scales_load(bytes, &r, segment + i);
        project_wide_range_add(&range, bytes);
    }
    const mmla_project_wide_row row = project_wide_row_get(&r, range, LANES);
    if (row.is_plain) { /* what is loaded again is in L1 */
#pragma unroll 2
        for (int32_t i = 0; i < LANE_SEGMENTS; i++) {
            exponents_write(to + i * MMLA_PROJECT_WG_SCALES, &r, segment + i, row.base, true);
        }
    } else {
#pragma unroll 1
        for (int32_t i = 0; i < LANE_SEGMENTS; i++) {
            exponents_write(to + i * MMLA_PROJECT_WG_SCALES, &r, segment + i, row.base, false);
        }
    }
    const bool is_odd = row.is_odd && r.exists;
    if (lane % LANES == 0) {
        smem->factors[table * (n + TOKENS) + n + token] = row.factor;
        smem->state[table * (n + TOKENS) + n + token] = is_odd ? PROJECT_ODD : 0;
    }
    return is_odd;
}

#endif
