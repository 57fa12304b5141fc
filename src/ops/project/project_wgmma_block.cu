/* project_wgmma_block.cu - the projection of many tokens on Hopper.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      A step of 64 columns of 128 rows and N tokens takes 4 N cycles of the matrix units: 512
 *            for N = 128. Beside it, in cycles for N = 128: shared memory at 128 bytes each, weight codes
 *            written and read, 128, the CTA's half of token codes, 64, its conversion written and copied to
 *            the other CTA, 128, the other's half, 64, and 256 for the tile's reading by each warpgroup;
 *            conversion, at 2 cycles for 64 codes, 384; L2, 64 (128 + N / 2) bytes, 24 a cycle: what all
 *            multiprocessors can get at once.
 *
 * MOVEMENT   w (L2) --cp.async--> codes (smem) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            x (L2) --cp.async--> codes (smem) --ldmatrix, convert--> stage (smem, fp16) --wgmma--> sums
 *                                                                       --bulk copy--> the other CTA's stage
 *            sums of 512 columns * factors --add--> total (registers) --stmatrix--> results --16 B--> z
 *
 * TILES      Of a cluster of two CTAs: 256 rows, 128 of each, x 64 or 128 tokens, of which each converts half for
 *            both; K in steps of 64. CTAs are as many as multiprocessors, and pairs take tiles in turns. Where
 *            the rank ends in the first 128 rows the second CTA converts for the first and has no results.
 *
 * ROLES      warps 0 .. 7     two warpgroups: 64 rows each, their conversion, products, results   192 regs
 *            warps 8 .. 11    tokens, from codes to fp16                                           48
 *            warp 12          tokens' codes                                                        80
 *            warps 13 .. 15   scales of both; they also bring codes into L2                        80
 *
 * BUDGET     smem   N 128: 4 * 32 KB stages, 32 KB results, 2 * 24.1 KB codes, 12 KB of scales, factors and
 *                   marks, twice each, 256 of barriers and flags: 225,792 B
 *                   Codes of weight wait in shared memory, not in registers, where the compiler would have them
 *                   come late; a warp reads what it copied itself, so that it needs no barrier for them.
 *            regs   of a multiplying thread: 64 sums, 64 of the total, 2 * 16 of a.
 *                   512 threads begin with 128 each, 2 * 192 + 48 + 80 = 4 * 128
 *
 * BARRIERS   full[stage]      4 converting warps -> multiplying ones: a line of tokens, two steps, is there. Each
 *                             arrives for its own and announces the bytes of its like in the other CTA, which
 *                             that one's copy adds.
 *            empty[stage]     8 multiplying warps of each CTA -> converting ones of both: its products are done
 *            codes_full[i]    32 lanes of the copying warp -> converting ones: a line of codes of each token
 *                             has landed. N 64 has four places of lines, 128 two.
 *            codes_empty[i]   4 converting warps -> copying one: it is converted
 *            table_full[i]    96 threads with scales -> multiplying and converting: table i has a segment's scales
 *                             and factors
 *            table_empty[i]   384 threads of those -> threads with scales: nobody reads them any more
 *                             A segment is four lines, one round of the stages and one or two of the codes, and a
 *                             tile four rounds of the tables, so that parities are those of line and segment.
 *            bar 3, 4         each multiplying warpgroup: its results are staged; they are stored
 *            cluster          barriers exist before the first arrival, and memory until the last one: a CTA
 *                             waits for the other at its end
 *            A stage has 8 + 8 arrivals in either CTA, and a CTA's copy into the other's stage follows all
 *            16 of its own: the other has then seen the phase of `full` before, and cannot be two phases behind.
 *            Marks of a tile are of its parity. Who has seen its last table sees them; when its segment 2
 *            is left, the tile before is stored, and the marks of the tile after may be written.
 *
 * ORDER      launched early (gpu/order.cuh)
 *
 * NUMERICS   project_wgmma_map.h. The same bits as project_wgmma_split.cu.
 *
 * LIMITS     Code for 9.0a, in clusters of two. Any rank that is a multiple of 8, any number of tokens; operands
 *            aligned to 16 bytes.
 */
#include "ops/project/project_wgmma_block_math.cuh"
#include "ops/project/project_wgmma_block_scales.cuh"
#include "ops/project/project_wgmma_block_tokens.cuh"

enum { MATH_REGISTERS = 192, CONVERT_REGISTERS = 48, TABLE_REGISTERS = 80 };

static_assert(MMLA_PROJECT_WG_BLOCK_SMEM(128) == 225792, "as the page above says");
static_assert(MMLA_PROJECT_WG_BLOCK_THREADS == 4 * GROUP &&
                  2 * MATH_REGISTERS + CONVERT_REGISTERS + TABLE_REGISTERS <= 65536 / GROUP,
              "registers that are given away suffice for those that are taken");

DEVICE void block_begin(const block_smem *smem) {
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < STAGES; i++) {
            gpu_barrier_init(smem->full + i * 8, CONVERT_WARPS);
            gpu_barrier_init(smem->empty + i * 8, PAIR * MATH_WARPS);
        }
        for (int32_t i = 0; i < LINES_MAX; i++) {
            gpu_barrier_init(smem->codes_full + i * 8, MMLA_PROJECT_WARP);
            gpu_barrier_init(smem->codes_empty + i * 8, CONVERT_WARPS);
        }
        for (int32_t i = 0; i < TABLES; i++) {
            gpu_barrier_init(smem->table_full + i * 8, TABLE_THREADS);
            gpu_barrier_init(smem->table_empty + i * 8,
                             MATH_THREADS + CONVERT_WARPS * MMLA_PROJECT_WARP);
        }
        gpu_barrier_inits_publish();
    }
    if (threadIdx.x < 2) {
        smem->any[threadIdx.x] = 0;
    }
    gpu_cluster_sync();
}

/* Elsewhere an empty kernel, which is never launched. No CTA ends before the other, which still writes to its
 * memory. */
#define KERNEL(tokens)                                                              \
    MMLA_KERNEL_BOUNDS(project_wgmma_block_sm90a_n##tokens, mmla_project_params,    \
                       MMLA_PROJECT_WG_BLOCK_THREADS, 1) {                          \
        if (!GPU_HAS_WGMMA) {                                                       \
            return;                                                                 \
        }                                                                           \
        extern __shared__ __align__(1024) uint8_t project_wgmma_block_shared[];     \
        const block_smem smem = block_smem_get(project_wgmma_block_shared, tokens); \
        const int32_t table_thread = threadIdx.x - 3 * GROUP - MMLA_PROJECT_WARP;   \
        block_begin(&smem);                                                         \
        gpu_begin(false);                                                           \
        if (threadIdx.x < MATH_THREADS) {                                           \
            GPU_REGISTERS_RAISE(MATH_REGISTERS);                                    \
            block_multiply(&p, &smem, tokens);                                      \
        } else if (threadIdx.x < MATH_THREADS + GROUP) {                            \
            GPU_REGISTERS_LOWER(CONVERT_REGISTERS);                                 \
            block_convert(&p, &smem, tokens);                                       \
        } else {                                                                    \
            GPU_REGISTERS_LOWER(TABLE_REGISTERS);                                   \
            if (table_thread < 0) {                                                 \
                block_copy(&p, &smem, tokens);                                      \
            } else {                                                                \
                block_tables(&p, &smem, table_thread, tokens);                      \
            }                                                                       \
        }                                                                           \
        __syncwarp();                                                               \
        gpu_cluster_sync();                                                         \
    }
MMLA_PROJECT_WG_BLOCK_KERNELS(KERNEL)
