/* project_wgmma_block_tokens.cuh - tokens of project_wgmma_block.cu: a warp copies codes of the CTA's share, a
 * warpgroup converts them, for both CTAs of the pair.
 *
 *     x (L2) --cp.async--> codes (smem) --ldmatrix, convert--> stage (smem, fp16)
 *                                                                --bulk copy--> the other's stage
 *
 * Codes are copied by a warp that does nothing else, because what makes conversions visible to matrix
 * instructions may wait for the copies that the same thread has under way.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_TOKENS_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_TOKENS_CUH

#include "ops/project/project_wgmma_block.cuh"

/* Eight tokens are one matrix of codes for every unit of a step. */
enum { EIGHT = MMLA_PROJECT_WG_MATRIX_ROWS, EIGHT_BYTES = EIGHT * MMLA_PROJECT_STEP };

/* What the copying warp does, from the first tile to the last: AHEAD steps ahead of those that convert,
 * across tiles. */
DEVICE void block_copy(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t row = lane / MMLA_PROJECT_STEP_UNITS, unit = lane % MMLA_PROJECT_STEP_UNITS;
    const uint32_t n_tiles = n_tiles_get(p, n);
    const int64_t stride = (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    const uint32_t to = smem->token_codes + (uint32_t)mmla_project_wg_code_off(row, unit);
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles; idx += gpu_n_clusters()) {
        const mmla_project_tile tile = tile_get(p, idx, n);
        const int32_t first = gpu_cluster_rank() * share_of(n) + row;
        const uint8_t *at = p->x + (tile.token + first) * stride +
                            tile.g * (int64_t)MMLA_PROJECT_DIM + unit * MMLA_PROJECT_UNIT;
#pragma unroll 1
        for (int32_t round = 0; round < MMLA_PROJECT_STEPS / AHEAD; round++) {
#pragma unroll
            for (int32_t i = 0; i < AHEAD; i++) {
                gpu_barrier_wait(smem->codes_empty + i * 8, round % 2 ^ 1);
#pragma unroll
                for (int32_t q = 0; q < share_of(n) / EIGHT; q++) {
                    gpu_cp_async16_zero_stream(to + (i * (share_of(n) / EIGHT) + q) * EIGHT_BYTES,
                                               at + i * MMLA_PROJECT_STEP + q * EIGHT * stride,
                                               first + q * EIGHT < tile.n_tokens);
                }
                gpu_barrier_arrive_cp_async(smem->codes_full + i * 8);
            }
            at += AHEAD * MMLA_PROJECT_STEP;
        }
    }
    gpu_cp_async_wait_all();
}

/* The warp's tokens of a step, from codes to its own stage. */
DEVICE void
tokens_convert(const block_smem *smem, const int32_t step, int32_t table, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    const int32_t n_eights = warp_share_of(n) / EIGHT;
    const int32_t word = mmla_project_wg_matrix_word(lane), row = mmla_project_wg_matrix_row(lane);
    const int32_t first = gpu_cluster_rank() * share_of(n) + warp * warp_share_of(n);
    const uint32_t codes =
        smem->token_codes +
        (step % AHEAD * share_of(n) + warp * warp_share_of(n)) * MMLA_PROJECT_STEP +
        (uint32_t)mmla_project_wg_code_off(lane % EIGHT, lane / EIGHT);
    const uint16_t *exponents =
        (const uint16_t *)(smem->exponents +
                           (table * (ROWS + n) + ROWS + first + row) * MMLA_PROJECT_WG_SCALES +
                           2 * step);
    const uint32_t tile = smem->stages + (step * n + first) * MMLA_PROJECT_WG_ROW_BYTES;
    const uint32_t to = tile + (uint32_t)mmla_project_wg_pair_off(row, 0, 2 * word);
    uint32_t units[N_MAX / (PAIR * CONVERT_WARPS * EIGHT)][MMLA_PROJECT_STEP_UNITS];
    uint32_t scales[N_MAX / (PAIR * CONVERT_WARPS * EIGHT)];
#pragma unroll
    for (int32_t i = 0; i < n_eights; i++) {
        gpu_ldmatrix_x4(units[i], codes + i * EIGHT_BYTES);
        scales[i] = mmla_project_wg_scales_pair(exponents[i * EIGHT * MMLA_PROJECT_WG_SCALES / 2]);
    }
#pragma unroll
    for (int32_t i = 0; i < n_eights; i++) {
        uint32_t a[MMLA_PROJECT_STEP_UNITS], b[MMLA_PROJECT_STEP_UNITS];
#pragma unroll
        for (int32_t unit = 0; unit < MMLA_PROJECT_STEP_UNITS; unit++) {
            gpu_f16x4_from_e4m3x4(units[i][unit], &a[unit], &b[unit]);
            if (unit < MMLA_PROJECT_STEP_UNITS / 2) { /* a scale is that of two units */
                a[unit] = gpu_mul_f16x2_first(a[unit], scales[i]);
                b[unit] = gpu_mul_f16x2_first(b[unit], scales[i]);
            } else {
                a[unit] = gpu_mul_f16x2_second(a[unit], scales[i]);
                b[unit] = gpu_mul_f16x2_second(b[unit], scales[i]);
            }
        }
        const uint32_t at = to + i * EIGHT * MMLA_PROJECT_WG_ROW_BYTES;
        gpu_smem_store16(at, make_uint4(a[0], a[1], a[2], a[3]));
        gpu_smem_store16(at ^ 16u, make_uint4(b[0], b[1], b[2], b[3])); /* the next pair's chunk */
    }
}

/* What the converting warps do, from the first tile to the last. */
DEVICE void block_convert(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    const uint32_t bytes = warp_share_of(n) * MMLA_PROJECT_WG_ROW_BYTES;
    const uint32_t own = smem->stages +
                         gpu_cluster_rank() * (share_of(n) * MMLA_PROJECT_WG_ROW_BYTES) +
                         warp * bytes;
    const uint32_t other = gpu_cluster_address(own, gpu_cluster_rank() ^ 1);
    const uint32_t other_full = gpu_cluster_address(smem->full, gpu_cluster_rank() ^ 1);
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles; idx += gpu_n_clusters()) {
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            const int32_t table = segment % TABLES;
            gpu_barrier_wait(smem->table_full + table * 8, segment / TABLES % 2);
#pragma unroll
            for (int32_t step = 0; step < STEPS; step++) {
                const uint32_t stage = step * n * MMLA_PROJECT_WG_ROW_BYTES;
                gpu_barrier_wait(smem->codes_full + step % AHEAD * 8, step / AHEAD % 2);
                gpu_barrier_wait(smem->empty + step * 8, segment % 2 ^ 1);
                tokens_convert(smem, step, table, n);
                gpu_fence_async();
                __syncwarp();
                if (is_first_lane) {
                    gpu_barrier_arrive(smem->codes_empty + step % AHEAD * 8);
                    /* As much as comes from the other's warp of this number. */
                    gpu_barrier_arrive_expect(smem->full + step * 8, bytes);
                    gpu_cluster_copy(other + stage, own + stage, bytes, other_full + step * 8);
                }
            }
            if (is_first_lane) {
                gpu_barrier_arrive(smem->table_empty + table * 8);
            }
        }
    }
}

#endif
