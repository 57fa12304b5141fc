/* project_wide_few.cu - the projection of few tiles on Hopper, from weight that was made fp16 before.
 *
 * PROBLEM    That of project_wide.cu, where tiles of 64 tokens and 32 or 64 rows are about as many as multiprocessors, or
 *            fewer: 17 to 256 tokens of one group.
 *
 * BOUND      What a multiprocessor gets: some 47 bytes a cycle, by clock reads, of the 12 KB of a step of 64 rows; 260
 *            cycles, of which products need 128. So 64 steps of K in two CTAs are 8,200 cycles, 4.1 us. And latency: a
 *            warp has some 600 instructions to do before the first product and after the last, most of which wait for
 *            the one before.
 *
 * MOVEMENT   x (L2) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            w (memory) --bulk copy--> stage (smem, fp16) --wgmma--> sums
 *            sums (fp32) * factors of tokens --> smem of the CTA, by rows --add the parts of its warpgroups-->
 *                --> smem of the CTA of the cluster that has their tokens --add parts in order, factors of rows--> z
 *
 * TILES      64 tokens x N = 32 or 64 rows; K is cut into 4 or 8 parts: four warpgroups of each of one or two CTAs, whose
 *            cluster has one tile. Steps of 64 columns, lines of two steps, one of codes in registers.
 *
 * ROLES      All warpgroups do the same. The first thread of each asks for its weight; at first every warp for a stage.
 *
 * BUDGET     smem   N 64: 16 * 8 KB stages, later 18 KB of sums; 48 KB of sums of the CTA, 9 KB of exponents, 1 KB of
 *                   marks of tokens, 512 bytes of factors and marks of rows, barriers: 191,232 B
 *            regs   128 of a thread: N / 2 sums, 16 of a, 16 of codes
 *
 * BARRIERS   full[stage]      bytes of a step's weight
 *            empty[stage]     4 warps -> the one that asks for the stage's next step: its products are done
 *            CTA              barriers and tables exist; sums are left; in a CTA on its own, sums of all parts are there
 *            cluster          both CTAs have read their stages; sums of all parts are there
 *
 * ORDER      launched early (gpu/order.cuh); nothing but addresses comes before the launch before has ended
 *
 * NUMERICS   Operands and products as in project_wgmma_map.h, scales of weight as in project_wide.h; those of tokens are
 *            relative to the largest of the part of K. A sum is 4 or 8 chains of 64 or 32 instructions: those of a CTA
 *            are added from that of the rows' own warpgroup on, those of two CTAs then in order.
 *
 * LIMITS     As project_wide.cu.
 */
#include "ops/project/project_wide_few_join.cuh"

static_assert(MMLA_PROJECT_FEW_SMEM(64) == 191232, "as the page above says");

DEVICE void few_run(const mmla_project_few_params *p, const few_smem *smem, const int32_t n) {
    const few_place at = few_place_get(p);
    const mmla_project_tile tile = few_tile_get(p, n);
    few_token token[HALVES];
    few_state m;
    float sums[ROWS_MAX / 2], own[ROWS_MAX / 2 / PARTS];
    few_ask(p, smem, &tile, &at, token, &m, n);
    few_multiply(p, smem, &tile, &at, &m, sums, n);
    gpu_cluster_sync_begin_read(); /* the stages */
#pragma unroll
    for (int32_t i = 0; i < n / 2; i++) {
        sums[i] *= token[i / 2 % HALVES].factor;
    }
    const bool is_odd = threadIdx.x < n && smem->row_marks[threadIdx.x] != 0;
    const bool some_row_odd = sums_join(smem, &at, sums, own, is_odd, n);
    gpu_cluster_sync_end();
    sums_send(p, smem, &at, own, n);
    if (p->splits_log2 == 0) { /* 0.3 us less than a cluster's barrier */
        __syncthreads();
    } else {
        gpu_cluster_sync();
    }
    few_store(p, smem, &tile, some_row_odd, n);
}

/* Elsewhere an empty kernel, which is never launched. */
#define KERNEL(rows)                                                                          \
    MMLA_KERNEL_BOUNDS(project_wide_few_sm90a_n##rows, mmla_project_few_params, THREADS, 1) { \
        if (!GPU_HAS_WGMMA) {                                                                 \
            return;                                                                           \
        }                                                                                     \
        extern __shared__ __align__(1024) uint8_t project_few_shared[];                       \
        const few_smem smem = few_smem_get(project_few_shared, rows);                         \
        few_run(&p, &smem, rows);                                                             \
    }
MMLA_PROJECT_FEW_KERNELS(KERNEL)
