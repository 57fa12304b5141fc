/* project_wide_few.cu - the projection of few tiles on Hopper, from weight that was made fp16 before.
 *
 * PROBLEM    That of project_wide.cu, where the tiles of 64 tokens and 64 rows are about as many as multiprocessors, or
 *            fewer: 64 to 256 tokens of one group.
 *
 * BOUND      What a multiprocessor gets: some 47 bytes a cycle, by clock reads, of the 12 KB of a step; 260 cycles, of
 *            which products need 128. So 64 steps of K in two CTAs are 8,200 cycles, 4.1 us. And latency: a warp has some
 *            600 instructions to do before the first product and after the last, most of which wait for the one before.
 *
 * MOVEMENT   x (L2) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            w (memory) --bulk copy--> stage (smem, fp16) --wgmma--> sums
 *            sums (fp32) * factors of tokens --> smem of the CTA, by rows --add the parts of its warpgroups-->
 *                --> smem of the CTA of the cluster that has their tokens --add parts in order, factors of rows--> z
 *
 * TILES      64 tokens x 64 rows; K is cut into 4, 8 or 16 parts: four warpgroups of each of 1, 2 or 4 CTAs, whose cluster
 *            has one tile. Steps of 64 columns, lines of two steps, one of codes in registers.
 *
 * ROLES      All warpgroups do the same. The first thread of each asks for its weight; at first every warp for a stage.
 *
 * BUDGET     smem   16 * 8 KB stages, later 18 KB of sums; 48 KB of sums of the CTA, 9 KB of exponents, 1 KB of marks of
 *                   tokens, 512 bytes of factors and marks of rows, barriers: 191,232 B
 *            regs   128 of a thread: 32 sums, 16 of a, 16 of codes
 *
 * BARRIERS   full[stage]      bytes of a step's weight
 *            empty[stage]     4 warps -> the one that asks for the stage's next step: its products are done
 *            CTA              barriers and tables exist; sums are left; in a CTA on its own, sums of all parts are there
 *            cluster          all CTAs have read their stages; sums of all parts are there
 *
 * ORDER      launched early (gpu/order.cuh); nothing but addresses comes before the launch before has ended
 *
 * NUMERICS   Operands and products as in project_wgmma_map.h, scales of weight as in project_wide.h; those of tokens are
 *            relative to the largest of the part of K. A sum is 4, 8 or 16 chains of 64, 32 or 16 instructions: of a CTA
 *            added from that of the rows' own warpgroup on, and those of CTAs in order.
 *
 * LIMITS     As project_wide.cu.
 */
#include "ops/project/project_wide_few_join.cuh"

static_assert((int)MMLA_PROJECT_FEW_SMEM == 191232, "as the page above says");

/* Elsewhere an empty kernel, which is never launched. */
MMLA_KERNEL_BOUNDS(project_wide_few_sm90a, mmla_project_few_params, THREADS, 1) {
    if (!GPU_HAS_WGMMA) {
        return;
    }
    extern __shared__ __align__(1024) uint8_t project_few_shared[];
    const few_smem smem = few_smem_get(project_few_shared);
    const few_place at = few_place_get(&p);
    const mmla_project_tile tile = few_tile_get(&p);
    few_token token[HALVES];
    few_state m;
    float sums[ROWS / 2], own[SHARE];
    few_ask(&p, &smem, &tile, &at, token, &m);
    few_multiply(&p, &smem, &tile, &at, &m, sums);
    gpu_cluster_sync_begin_read(); /* the stages */
#pragma unroll
    for (int32_t i = 0; i < ROWS / 2; i++) {
        sums[i] *= token[i / 2 % HALVES].factor;
    }
    const bool is_odd = threadIdx.x < ROWS && smem.row_marks[threadIdx.x] != 0;
    const bool some_row_odd = sums_join(&smem, &at, sums, own, is_odd);
    gpu_cluster_sync_end();
    sums_send(&p, &smem, &at, own);
    if (p.splits_log2 == 0) { /* 0.3 us less than a cluster's barrier */
        __syncthreads();
    } else {
        gpu_cluster_sync();
    }
    few_store(&p, &smem, &tile, some_row_odd);
}
