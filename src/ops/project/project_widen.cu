/* project_widen.cu - weight from e4m3 with scales to fp16 in the layout of project_wide.cu.
 *
 * PROBLEM    project_wide.h.
 *
 * MOVEMENT   codes (memory) --4 x 2 B, convert--> a chunk of 16 bytes (registers) --16 B--> wide
 *            A warp has a row; it looks at all of the row's scales first. Once for each weight, at load: simple
 *            instead of fast.
 *
 * BUDGET     grid: eight rows a block, of groups times their rows, the filling ones included
 *
 * LIMITS     Code for 9.0a.
 */
#include "ops/project/project_wide_cuda.h"
#include "ops/project/project_wide_rows.cuh"

enum { WARPS = MMLA_PROJECT_WIDE_WIDEN_THREADS / MMLA_PROJECT_WARP };

/* A chunk of a step: pair `pair` of each of its four units. */
PROJECT_DEVICE uint4 chunk_get(const project_row *r,
                               const mmla_project_wide_row *row,
                               int32_t step,
                               int32_t pair) {
    uint32_t words[MMLA_PROJECT_STEP_UNITS];
    const uint32_t bytes = project_scales_load(r, step / 2) >> 16 * (step % 2) & 0xFFFFu;
    const uint32_t exponents = mmla_project_wide_exponents(bytes, row->base);
#pragma unroll
    for (int32_t unit = 0; unit < MMLA_PROJECT_STEP_UNITS; unit++) {
        const uint8_t *at =
            r->codes + step * MMLA_PROJECT_STEP + unit * MMLA_PROJECT_UNIT + 2 * pair;
        uint32_t first, none;
        gpu_f16x4_from_e4m3x4(gpu_load2(at), &first, &none);
        words[unit] =
            gpu_mul_f16x2(first, mmla_project_wg_scale_pair(exponents >> 8 * (unit / 2) & 0xFFu));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

MMLA_KERNEL(project_widen_sm90a, mmla_project_widen_params) {
    if (!GPU_HAS_WGMMA) {
        return;
    }
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int64_t idx = (int64_t)blockIdx.x * WARPS + threadIdx.x / MMLA_PROJECT_WARP;
    const int64_t rows = mmla_project_wide_rows(p.p.rank);
    mmla_project_tile tile = {0};
    tile.g = (int32_t)(idx / rows);
    tile.row = (int32_t)(idx % rows);
    tile.n_rows = tile.row < p.p.rank ? 1 : 0;
    if (tile.g >= p.p.n_groups) {
        return;
    }
    const project_row r = project_row_get(&p.p, &tile, 0, 1);
    project_wide_range range = project_wide_range_none();
    if (lane < MMLA_PROJECT_SEGMENTS) {
        uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4];
        project_wg_scales_load(bytes, &r, lane);
        project_wide_range_add(&range, bytes, MMLA_PROJECT_WG_SCALES / 4);
    }
    const mmla_project_wide_row row =
        project_wide_row_get(&r, range, MMLA_PROJECT_WARP, 0, MMLA_PROJECT_SCALES);
    if (lane == 0) {
        p.factors[idx] = row.factor;
        p.marks[idx] = row.is_odd && r.exists ? PROJECT_ODD : 0;
    }
#pragma unroll 4
    for (int32_t i = lane; i < MMLA_PROJECT_STEPS * MMLA_PROJECT_WIDE_CHUNKS;
         i += MMLA_PROJECT_WARP) {
        const int32_t step = i / MMLA_PROJECT_WIDE_CHUNKS, pair = i % MMLA_PROJECT_WIDE_CHUNKS;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (r.exists) {
            chunk = chunk_get(&r, &row, step, pair);
        }
        uint8_t *to = p.codes + mmla_project_wide_off(p.p.rank, tile.g, tile.row, step);
        *(uint4 *)(to + ((pair ^ tile.row) & 7) * 16) = chunk;
    }
}
