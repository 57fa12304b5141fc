/* project_wide.cu - the projection of many tokens on Hopper, from weight that was made fp16 before.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of either side; 4096
 *            columns, G such products (project.h has the shapes). w comes as project_widen.cu leaves it.
 *
 * BOUND      A step of 64 columns of 128 tokens and N rows takes 4 N cycles of the matrix units: 1024 for N = 256.
 *            Beside it, in cycles for N = 256: shared memory at 128 bytes each, weight written, 256, token codes
 *            written and read, 128, and 512 for the tile's reading by each warpgroup; conversion, at 2 cycles for
 *            64 codes, 256; L2, 64 (128 + N) bytes, 24 a cycle, where two CTAs share weight.
 *
 * MOVEMENT   x (L2) --cp.async--> codes (smem) --ld 16 B, convert--> a (registers) --wgmma--> sums
 *            w (L2) --bulk copy, to all sharers--> stage (smem, fp16) --wgmma--> sums
 *            sums * factors --stmatrix--> a warp's piece (smem) --16 B--> z
 *
 * TILES      128 tokens x N = 128 or 256 rows; K in steps of 64. A cluster has two tiles of tokens with the same
 *            rows (sharers), or one. Clusters take tiles in turns.
 *
 * ROLES      warps 0 .. 7     two warpgroups: 64 tokens each, their conversion, products, results   216 regs
 *            warp 8           one thread that asks for weight                                      72
 *            warps 9 .. 11    scales of tokens, factors and marks of weight                        72
 *
 * BUDGET     smem   N 256: 4 * 32 KB stages, 2 * 16.1 KB codes, 16 KB results, 2 * 16.5 KB of scales, 6 KB of factors and
 *                   marks, 256 of barriers and flags: 220,672 B
 *                   N 128 has 8 stages of 16 KB.
 *            regs   of a multiplying thread: N / 2 sums, 2 * 16 of a, 8 of codes.
 *                   384 threads begin with 168 each, 2 * 216 + 72 = 3 * 168
 *
 * BARRIERS   full[stage]      bytes of all sharers' copies: a step of weight is there
 *            empty[stage]     8 multiplying warps of each sharer -> those that ask: its products are done
 *            table_full[i]    96 threads with scales -> multiplying: a tile's are there. Of the first tile's tokens each
 *                             multiplying warp makes its own scales, because it would wait for nothing else.
 *            table_empty[i]   256 multiplying threads -> those: its results are stored
 *            asked            8 multiplying warps -> the one that asks for weight: those scales are asked for
 *            bar 1            the threads with scales: marks of the tile before are forgotten
 *            cluster          barriers exist before the first arrival, and memory until the last one
 *
 * ORDER      launched early (gpu/order.cuh); nothing but addresses comes before the launch before has ended
 *
 * NUMERICS   Operands and products as in project_wgmma_map.h, scales as in project_wide.h. A sum is one chain of 256
 *            instructions.
 *
 * LIMITS     Code for 9.0a. Any rank that is a multiple of 8, any number of tokens; operands aligned to 16 bytes, wide
 *            weight to 128.
 */
#include "ops/project/project_wide_load.cuh"
#include "ops/project/project_wide_math.cuh"

enum { MATH_REGISTERS = 216, LOAD_REGISTERS = 72 };

static_assert(MMLA_PROJECT_WIDE_SMEM(256) == 220672, "as the page above says");
static_assert(2 * MATH_REGISTERS + LOAD_REGISTERS <= 3 * 168,
              "registers that are given away suffice for those that are taken");

DEVICE void wide_begin(const mmla_project_wide_params *p, const wide_smem *smem, const int32_t n) {
    if (threadIdx.x < TABLES * FLAGS) {
        smem->any[threadIdx.x] = 0;
    }
    const int32_t i = threadIdx.x; /* one after the other by one thread would be felt */
    if (i < stages_of(n)) {
        gpu_barrier_init(smem->full + i * 8, 1);
        gpu_barrier_init(smem->empty + i * 8, (uint32_t)(p->sharers * MATH_WARPS));
        if (i < TABLES) {
            gpu_barrier_init(smem->table_full + i * 8, TABLE_THREADS);
            gpu_barrier_init(smem->table_empty + i * 8, MATH_THREADS);
        }
        if (i == TABLES) {
            gpu_barrier_init(smem->asked, MATH_WARPS);
        }
        gpu_barrier_inits_publish();
    }
    gpu_cluster_sync_begin();
}

/* Elsewhere an empty kernel, which is never launched. No CTA ends before the others of its cluster, which still write to
 * its memory, or read it. */
#define KERNEL(rows)                                                                    \
    MMLA_KERNEL_BOUNDS(project_wide_sm90a_n##rows, mmla_project_wide_params,            \
                       MMLA_PROJECT_WIDE_THREADS, 1) {                                  \
        if (!GPU_HAS_WGMMA) {                                                           \
            return;                                                                     \
        }                                                                               \
        extern __shared__ __align__(1024) uint8_t project_wide_shared[];                \
        const wide_smem smem = wide_smem_get(project_wide_shared, rows);                \
        const int32_t thread = (int32_t)threadIdx.x - MATH_THREADS - MMLA_PROJECT_WARP; \
        wide_begin(&p, &smem, rows);                                                    \
        if (threadIdx.x < MATH_THREADS) {                                               \
            GPU_REGISTERS_RAISE(MATH_REGISTERS);                                        \
            wide_multiply(&p, &smem, rows);                                             \
        } else {                                                                        \
            GPU_REGISTERS_LOWER(LOAD_REGISTERS);                                        \
            gpu_cluster_sync_end();                                                     \
            if (thread >= 0) {                                                          \
                wide_tables(&p, &smem, thread, rows);                                   \
            } else if (threadIdx.x % MMLA_PROJECT_WARP == 0) {                          \
                wide_load(&p, &smem, rows);                                             \
            }                                                                           \
        }                                                                               \
        __syncwarp();                                                                   \
        gpu_cluster_sync();                                                             \
    }
MMLA_PROJECT_WIDE_KERNELS(KERNEL)
