/* project_wgmma_block_tokens.cuh - tokens of project_wgmma_block.cu: a warp copies codes of the CTA's share, a
 * warpgroup converts them, for both CTAs of the pair.
 *
 *     x (L2) --cp.async--> codes (smem) --ldmatrix, convert--> stage (smem, fp16)
 *                                                                --bulk copy--> the other's stage
 *
 * Codes are copied by a warp that does nothing else, because what makes conversions visible to matrix
 * instructions may wait for the copies that the same thread has under way, and because they come late when it
 * has more to do.
 */
#ifndef MMLA_OPS_PROJECT_WGMMA_BLOCK_TOKENS_CUH
#define MMLA_OPS_PROJECT_WGMMA_BLOCK_TOKENS_CUH

#include "ops/project/project_wgmma_block.cuh"

enum { COPY_ROWS = MMLA_PROJECT_WG_COPY_ROWS };

/* What the copying warp does, from the first tile to the last: lines_of(n) lines ahead of those that convert, across
 * tiles. */
DEVICE void block_copy(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t row = mmla_project_wg_copy_row(lane), unit = mmla_project_wg_copy_unit(lane);
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
        for (int32_t round = 0; round < MMLA_PROJECT_STEPS / ahead_of(n); round++) {
#pragma unroll
            for (int32_t i = 0; i < lines_of(n); i++) {
                gpu_barrier_wait(smem->codes_empty + i * 8, round % 2 ^ 1);
#pragma unroll
                for (int32_t q = 0; q < share_of(n) / COPY_ROWS; q++) {
                    gpu_cp_async16_zero_stream((to ^ q % 2 * MMLA_PROJECT_WG_COPY_TURN) +
                                                   (i * share_of(n) + q * COPY_ROWS) * LINE,
                                               at + i * LINE + q * COPY_ROWS * stride,
                                               first + q * COPY_ROWS < tile.n_tokens);
                }
                gpu_barrier_arrive_cp_async(smem->codes_full + i * 8);
            }
            at += lines_of(n) * LINE;
        }
    }
    gpu_cp_async_wait_all();
}

/* First of the warp's tokens among the tile's. */
DEVICE int32_t warp_token(const int32_t n) {
    return gpu_cluster_rank() * share_of(n) +
           threadIdx.x % GROUP / MMLA_PROJECT_WARP * warp_share_of(n);
}

/* Eight tokens of a step to the stage: a lane's words of the four units, and the two scales of its token. */
DEVICE void
eight_convert(uint32_t to, const uint32_t units[MMLA_PROJECT_STEP_UNITS], uint32_t exponents) {
    const uint32_t scales = mmla_project_wg_scales_pair(exponents);
    uint32_t a[MMLA_PROJECT_STEP_UNITS], b[MMLA_PROJECT_STEP_UNITS];
#pragma unroll
    for (int32_t unit = 0; unit < MMLA_PROJECT_STEP_UNITS; unit++) {
        gpu_f16x4_from_e4m3x4(units[unit], &a[unit], &b[unit]);
        if (unit < MMLA_PROJECT_STEP_UNITS / 2) { /* a scale is that of two units */
            a[unit] = gpu_mul_f16x2_first(a[unit], scales);
            b[unit] = gpu_mul_f16x2_first(b[unit], scales);
        } else {
            a[unit] = gpu_mul_f16x2_second(a[unit], scales);
            b[unit] = gpu_mul_f16x2_second(b[unit], scales);
        }
    }
    gpu_smem_store16(to, make_uint4(a[0], a[1], a[2], a[3]));
    gpu_smem_store16(to ^ 16u, make_uint4(b[0], b[1], b[2], b[3])); /* the next pair's chunk */
}

/* A line of the warp's tokens, from codes to its own stage. All is loaded first: a warp is alone with its
 * scheduler's conversions, and what it waits for, it waits for once. */
DEVICE void
line_convert(const block_smem *smem, const int32_t line, int32_t table, const int32_t n) {
    enum { EIGHTS_MAX = N_MAX / (PAIR * CONVERT_WARPS * EIGHT) };
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP, step = line * LINE_STEPS;
    const int32_t warp = threadIdx.x % GROUP / MMLA_PROJECT_WARP;
    const int32_t word = mmla_project_wg_matrix_word(lane), row = mmla_project_wg_matrix_row(lane);
    const uint32_t codes = smem->token_codes + token_place(step, n) +
                           warp * warp_share_of(n) * LINE +
                           (uint32_t)mmla_project_wg_code_off(lane % EIGHT, lane / EIGHT);
    const uint32_t *exponents =
        (const uint32_t *)(smem->exponents + (table * (ROWS + n) + ROWS + warp_token(n) + row) *
                                                 MMLA_PROJECT_WG_SCALES) +
        line;
    const uint32_t to = smem->stages + stage_place(step, n) +
                        warp_token(n) * LINE_STEPS * MMLA_PROJECT_WG_ROW_BYTES +
                        (uint32_t)mmla_project_wg_pair_off(row, 0, 2 * word);
    uint32_t units[EIGHTS_MAX][LINE_STEPS][MMLA_PROJECT_STEP_UNITS], scales[EIGHTS_MAX];
#pragma unroll
    for (int32_t i = 0; i < warp_share_of(n) / EIGHT; i++) {
        scales[i] = exponents[i * EIGHT * MMLA_PROJECT_WG_SCALES / 4];
#pragma unroll
        for (int32_t s = 0; s < LINE_STEPS; s++) { /* the second step's units are the other half */
            gpu_ldmatrix_x4(units[i][s], (codes ^ s * MMLA_PROJECT_STEP) + i * EIGHT * LINE);
        }
    }
#pragma unroll
    for (int32_t i = 0; i < warp_share_of(n) / EIGHT; i++) {
#pragma unroll
        for (int32_t s = 0; s < LINE_STEPS; s++) {
            eight_convert(to + i * MMLA_PROJECT_WG_EIGHTS_APART + step_place(s), units[i][s],
                          scales[i] >> 16 * s & 0xFFFFu);
        }
    }
}

/* What the converting warps do, from the first tile to the last. */
DEVICE void block_convert(const mmla_project_params *p, const block_smem *smem, const int32_t n) {
    const uint32_t n_tiles = n_tiles_get(p, n);
    const bool is_first_lane = threadIdx.x % MMLA_PROJECT_WARP == 0;
    const uint32_t bytes = warp_share_of(n) * LINE_STEPS * MMLA_PROJECT_WG_ROW_BYTES;
    const uint32_t own = smem->stages + warp_token(n) * LINE_STEPS * MMLA_PROJECT_WG_ROW_BYTES;
    const uint32_t other = gpu_cluster_address(own, gpu_cluster_rank() ^ 1);
    const uint32_t other_full = gpu_cluster_address(smem->full, gpu_cluster_rank() ^ 1);
#pragma unroll 1
    for (uint32_t idx = gpu_cluster_number(); idx < n_tiles; idx += gpu_n_clusters()) {
#pragma unroll 1
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            const int32_t table = segment % TABLES;
            gpu_barrier_wait(smem->table_full + table * 8, segment / TABLES % 2);
#pragma unroll
            for (int32_t line = 0; line < STAGES; line++) {
                const uint32_t codes = line % lines_of(n) * 8;
                gpu_barrier_wait(smem->codes_full + codes,
                                 (segment * STAGES + line) / lines_of(n) % 2);
                gpu_barrier_wait(smem->empty + line * 8, segment % 2 ^ 1);
                line_convert(smem, line, table, n);
                gpu_fence_async();
                __syncwarp();
                if (is_first_lane) {
                    const uint32_t stage = stage_place(line * LINE_STEPS, n);
                    gpu_barrier_arrive(smem->codes_empty + codes);
                    /* As much as comes from the other's warp of this number. */
                    gpu_barrier_arrive_expect(smem->full + line * 8, bytes);
                    gpu_cluster_copy(other + stage, own + stage, bytes, other_full + line * 8);
                }
            }
            gpu_barrier_arrive(smem->table_empty + table * 8);
        }
    }
}

#endif
