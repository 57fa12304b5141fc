/* project_wide_few.cu - the projection of few tiles on Hopper, from weight that was made fp16 before.
 *
 * PROBLEM    That of project_wide.cu, where tiles of 64 or 128 tokens and 32 to 128 rows are about as many as
 *            multiprocessors, or fewer: 17 to 2,048 tokens of one group, 256 of eight.
 *
 * BOUND      Shared memory, at 128 bytes a cycle: of a step of 64 tokens x 64 rows weight is written and read, 64 cycles
 *            each, codes are too, 32 each: 192 cycles, of which products need 128. 64 tokens x 128 rows: 320 of 256.
 *            128 x 128: 512 of 512. L2, which gives all multiprocessors 47 bytes a cycle each, has 8 KB of 64 x 64 to give
 *            where two CTAs share weight, 174 cycles; 12 KB, 260, where they do not. And latency: 3,000 cycles until
 *            the first product, 2,000 behind the last.
 *
 * MOVEMENT   x (L2) --cp.async--> place of the thread (smem) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            w (memory) --bulk copy, to all sharers--> stage (smem, fp16) --wgmma--> sums
 *            sums (fp32) * factors of tokens --> smem of the CTA, by rows --add the parts of its warpgroups, factors of
 *                rows--> z, two at once
 *            with parts of K in other CTAs, or odd rows:
 *                --> smem of the CTA of the cluster that has their tokens --add parts in order, factors of rows--> z
 *
 * TILES      M x N: 64 tokens x 32, 64 or 128 rows, or 128 x 128. A warpgroup has 64 of the tokens and a part of K: K is cut
 *            into 4 parts with 64 tokens, 2 with 128; twice as many where the two CTAs of a cluster share a tile
 *            (splits). Or its two CTAs have two tiles of tokens and share weight (sharers), or it is one CTA. Steps of 64
 *            columns, lines of two.
 *
 * ROLES      warpgroups 0 .. 3     codes, products, results                                      112 regs
 *            warpgroup 4           its first thread asks for weight; the rest is there because      32
 *                                  registers are given away by warpgroups
 *            The first steps of weight the others ask for, behind what they need before it.
 *
 * BUDGET     smem   N 64: 16 * 8 KB stages, 64 KB codes, where later sums lie, 48 KB that warpgroups leave for each other
 *                   and 18 KB of all; 9 KB of exponents and factors, 1 KB of marks of tokens, 512 bytes of factors and
 *                   marks of rows, barriers: 207,616 B. 128 x 128: 216,192 B
 *            regs   N / 2 sums, 16 of a. 640 threads begin with 96 each: 4 * 112 + 32 = 5 * 96
 *
 * BARRIERS   full[stage]      bytes of a step's weight
 *            empty[stage]     warps of all that read the stage -> the CTA that asks for its next step
 *            bar 1            math warps: stages are read, sums are left; sums of all parts are there, in a CTA on its own
 *            cluster          barriers exist; both CTAs have read their stages; with splits: sums of all parts are there
 *
 * ORDER      launched early (gpu/order.cuh); nothing but addresses comes before the launch before has ended
 *
 * NUMERICS   Operands and products as in project_wgmma_map.h, scales of weight as in project_wide.h; those of tokens are
 *            relative to the largest of the part of K. A sum is 2, 4 or 8 chains of 128, 64 or 32 instructions: those of a
 *            CTA are added from that of the rows' own warpgroup on, those of two CTAs then in order.
 *
 * LIMITS     As project_wide.cu.
 */
#include "ops/project/project_wide_few_join.cuh"

static_assert(MMLA_PROJECT_FEW_SMEM(64, 64) == 207616 && MMLA_PROJECT_FEW_SMEM(128, 128) == 216192,
              "as the page above says");
static_assert(4 * REGISTERS_MATH + REGISTERS_FEED <= 5 * 96, "as many as they begin with");

/* Sums of all K, and results, from those of the thread's part of K. */
DEVICE void few_end(const mmla_project_few_params *p,
                    const few_smem *smem,
                    const mmla_project_tile *tile,
                    const few_place *at,
                    const float *sums,
                    const few_shape k) {
    const bool has_splits = p->splits_log2 != 0, has_sharers = p->sharers_log2 != 0;
    float own[ROWS_MAX / 4];
    if (has_splits || has_sharers) {
        gpu_cluster_sync_begin_read(); /* the stages */
    }
    const bool some_row_odd = gpu_warps_sync_any(
        BAR_MATH, MATH_THREADS, threadIdx.x < k.rows && smem->row_marks[threadIdx.x] != 0);
    const bool some_odd =
        sums_join(smem, at, sums, own, some_row_odd || words_mark_get(smem, at, k) != 0, k);
    if (!has_splits && !some_odd && p->p.z_in_pairs) {
        pairs_store(p, smem, tile, at, own, k);
    } else {
        if (has_splits) {
            gpu_cluster_sync_end();
        }
        sums_send(p, smem, at, own, k);
        if (has_splits) {
            gpu_cluster_sync();
        } else { /* 0.3 us less than a cluster's barrier */
            gpu_warps_sync(BAR_MATH, MATH_THREADS);
        }
        few_store(p, smem, tile, some_row_odd, k);
    }
    if (has_sharers && !has_splits) {
        gpu_cluster_sync_end(); /* what this CTA has asked for has come to the other, too */
    }
}

DEVICE void few_run(const mmla_project_few_params *p, const few_smem *smem, const few_shape k) {
    const mmla_project_tile tile = few_tile_get(p, k);
    if (threadIdx.x >= MATH_THREADS) {
        GPU_REGISTERS_LOWER(REGISTERS_FEED);
        few_feed(p, smem, &tile, k);
        return;
    }
    GPU_REGISTERS_RAISE(REGISTERS_MATH);
    const few_place at = few_place_get(p, k);
    const few_codes codes = codes_get(p, smem, &tile, &at);
    float sums[ROWS_MAX / 2];
    few_ask(p, smem, &tile, &at, &codes, k);
    few_loop loop = loop_get(p, smem, &at, &codes, k);
    few_multiply(&loop, sums, k);
    const float factors[HALVES] = {words_factor_get(smem, &at, 0, k),
                                   words_factor_get(smem, &at, 1, k)};
#pragma unroll
    for (int32_t i = 0; i < k.rows / 2; i++) {
        sums[i] *= factors[i / 2 % HALVES];
    }
    few_end(p, smem, &tile, &at, sums, k);
}

/* Elsewhere an empty kernel, which is never launched. */
#define KERNEL(tokens, rows)                                                               \
    MMLA_KERNEL_BOUNDS(project_wide_few_sm90a_m##tokens##n##rows, mmla_project_few_params, \
                       MMLA_PROJECT_FEW_THREADS, 1) {                                      \
        if (!GPU_HAS_WGMMA) {                                                              \
            return;                                                                        \
        }                                                                                  \
        extern __shared__ __align__(1024) uint8_t project_few_shared[];                    \
        const few_shape k = {tokens, rows};                                                \
        const few_smem smem = few_smem_get(project_few_shared, k);                         \
        few_run(&p, &smem, k);                                                             \
    }
MMLA_PROJECT_FEW_KERNELS(KERNEL)
