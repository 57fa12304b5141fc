/* attend_wgmma_kernel.cu - sparse attention over paged caches or bf16 rows, for Hopper.
 *
 * PROBLEM    That of attend_mma_kernel.cu: for one token and up to 64 heads rotate q, s = q . k over
 *            the valid places of two lists, softmax, o = sum of p k, rotate back, cast. A task is a
 *            token and a group of heads; a cluster of n_splits CTAs shares its keys.
 *
 * BOUND      A key costs 2 * 2 * 512 * 64 flop, 32 cycles of a multiprocessor's matrix units, however
 *            many of the 64 heads there are; shared memory 8 cycles for the converted row, 16 for the
 *            scores (q and K are both read), 10 for O: 34; its conversion some 50 instructions of a
 *            warp, 12 cycles of the four schedulers.
 *
 * MOVEMENT
 *     list --ld--> slot --ld 16 B--> registers --convert--> stage (bf16 tile) --wgmma--> S, O
 *     q (HBM) --cp.async--> tile, rotated in place --wgmma--> S
 *     S (registers) --softmax--> prob (bf16 tile) --wgmma--> O
 *     O (registers) --> smem, where the stages were --own and other CTAs' (DSM)--> out
 *
 * TILES      64 heads, 64 keys, 512 dims; 512 threads, one CTA a multiprocessor; the grid is what fits,
 *            and clusters take tasks in turns
 *
 * ROLES      warps 0 .. 3      q, S, softmax                 96 registers
 *            warps 4 .. 11     O, half of the dims each four    160
 *            warps 12 .. 15    records                          96
 *
 * BUDGET     smem     64 KB q, 2 * 64 KB stages, 2 * 8 KB prob, state (attend_wgmma_tile.h)
 *            regs     128 sums a thread, 32 scores, 36 of a record
 *
 * BARRIERS   full[stage]        loading -> scores: a block is converted
 *            prob_full[stage]   scores -> sums: its probabilities and the factors of O are written
 *            empty[stage]       sums -> loading: O has it; what scores writes for the stage's next
 *                               block comes after that too
 *            parts_full         scores and sums of all CTAs of the cluster -> sums: O and maxima lie
 *                               where the others read them
 *            parts_empty        sums of all CTAs -> loading, scores: they were read, stages may be
 *                               filled and maxima be overwritten
 *            bar 1              sums: nobody multiplies any more; the factors of the parts are there
 *            bar 2              scores: the tile of q may be written, rotated, read
 *
 * NUMERICS   As attend_mma_kernel.cu, but that the maximum follows with a slack of 2^8
 *            (attend_wgmma_math.cuh). A token's result depends on n_splits and on nothing else of the
 *            batch.
 *
 * LIMITS     Code for 9.0a; n_splits 1, 2, 4 or 8, which is the size of the cluster.
 * TRIED      src/ops/attend/README.md
 */
#include "gpu/attend_wgmma.h"
#include "gpu/attend_wgmma_load.cuh"
#include "gpu/attend_wgmma_math.cuh"
#include "gpu/attend_wgmma_out.cuh"
#include "gpu/cluster.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* Arrivals a task at the barriers of the cluster: of the scores' warps and the sums'. */
enum { PART_WARPS = ATTEND_WGMMA_GROUP / 32 + ATTEND_WGMMA_SUM_WARPS };

GPU_DEVICE void attend_wgmma_begin(const attend_mma_params *p, attend_wgmma_state *state) {
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < ATTEND_WGMMA_STAGES; i++) {
            gpu_barrier_init(gpu_smem_address(&state->full[i]), ATTEND_WGMMA_GROUP);
            gpu_barrier_init(gpu_smem_address(&state->prob_full[i]), ATTEND_WGMMA_GROUP);
            gpu_barrier_init(gpu_smem_address(&state->empty[i]), ATTEND_WGMMA_SUM_WARPS);
        }
        gpu_barrier_init(gpu_smem_address(&state->parts_full), PART_WARPS * p->n_splits);
        gpu_barrier_init(gpu_smem_address(&state->parts_empty),
                         ATTEND_WGMMA_SUM_WARPS * p->n_splits);
        gpu_barrier_inits_publish();
    }
    gpu_cluster_sync();
}

GPU_DEVICE void attend_wgmma_score_role(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const int32_t split = blockIdx.x % p->n_splits;
    const int32_t head = attend_wgmma_sum_row(threadIdx.x, 0);
    uint32_t turn = 0, n_done = 0;
    for (int32_t i = blockIdx.x / p->n_splits; i < attend_wgmma_n_tasks(p);
         i += gridDim.x / p->n_splits, n_done++) {
        const attend_wgmma_task task = attend_wgmma_task_get(p, i);
        if (threadIdx.x == 0 && task.position < 0 && task.first_head == 0 && split == 0 &&
            p->rotate && p->n_faults != NULL) {
            atomicAdd(p->n_faults, 1);
        }
        gpu_warps_sync(2, ATTEND_WGMMA_GROUP); /* nobody reads the last task's q */
        attend_wgmma_load_q(p, &task, smem + ATTEND_WGMMA_AT_Q, state->logit);
        attend_wgmma_softmax sm = {.logit = {state->logit[head], state->logit[head + 8]},
                                   .reference = {-INFINITY, -INFINITY},
                                   .maximum = {-INFINITY, -INFINITY},
                                   .l = {0.0f, 0.0f},
                                   .has_keys = false};
        attend_wgmma_probabilities(state, smem, turn, task.n_blocks, &sm);
        turn += task.n_blocks;
        gpu_barrier_wait_cluster(gpu_smem_address(&state->parts_empty), n_done & 1 ^ 1);
        attend_wgmma_tell(&sm, state, split, p->n_splits);
        attend_wgmma_arrive_all(&state->parts_full, p->n_splits);
    }
}

GPU_DEVICE void attend_wgmma_sum_role(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    uint8_t *sums = smem + ATTEND_WGMMA_AT_STAGES;
    uint32_t turn = 0, n_done = 0;
    for (int32_t i = blockIdx.x / p->n_splits; i < attend_wgmma_n_tasks(p);
         i += gridDim.x / p->n_splits, n_done++) {
        float o[ATTEND_WGMMA_SUMS];
#pragma unroll
        for (int32_t k = 0; k < ATTEND_WGMMA_SUMS; k++) {
            o[k] = 0.0f;
        }
        const int32_t n_blocks = attend_wgmma_task_get(p, i).n_blocks;
        attend_wgmma_sum(state, smem, turn, n_blocks, o);
        turn += n_blocks;
        gpu_warps_sync(1, ATTEND_WGMMA_SUM_THREADS); /* nobody multiplies from the stages */
        if (n_blocks > 0) {
            attend_wgmma_leave_sums(o, sums);
        }
        attend_wgmma_arrive_all(&state->parts_full, p->n_splits);
        gpu_barrier_wait_cluster(gpu_smem_address(&state->parts_full), n_done & 1);
        const attend_wgmma_task task = attend_wgmma_task_get(p, i);
        const int32_t thread = threadIdx.x - ATTEND_WGMMA_SUM_FIRST;
        if (thread < task.n_heads) {
            attend_wgmma_finish_head(p, &task, state, thread);
        }
        gpu_warps_sync(1, ATTEND_WGMMA_SUM_THREADS);
        attend_wgmma_store(p, &task, state, gpu_smem_address(sums));
        attend_wgmma_arrive_all(&state->parts_empty, p->n_splits);
    }
    if (n_done > 0) { /* another CTA may still read from this one */
        gpu_barrier_wait_cluster(gpu_smem_address(&state->parts_empty), (n_done - 1) & 1);
    }
}

MMLA_KERNEL_BOUNDS(attend_wgmma_bf16_sm90a, attend_mma_params, ATTEND_WGMMA_THREADS, 1) {
#if GPU_HAS_WGMMA
    extern __shared__ __align__(1024) uint8_t smem[];
    attend_wgmma_begin(&p, (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE));
    if (threadIdx.x < ATTEND_WGMMA_SUM_FIRST) {
        GPU_REGISTERS_LOWER(ATTEND_WGMMA_SCORE_REGISTERS);
        attend_wgmma_score_role(&p, smem);
    } else if (threadIdx.x < ATTEND_WGMMA_LOAD_FIRST) {
        GPU_REGISTERS_RAISE(ATTEND_WGMMA_SUM_REGISTERS);
        attend_wgmma_sum_role(&p, smem);
    } else {
        GPU_REGISTERS_LOWER(ATTEND_WGMMA_LOAD_REGISTERS);
        attend_wgmma_load(&p, smem);
    }
#endif
}
