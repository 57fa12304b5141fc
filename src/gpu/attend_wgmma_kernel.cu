/* attend_wgmma_kernel.cu - sparse attention over paged caches or bf16 rows, for Hopper.
 *
 * PROBLEM    That of attend_mma_kernel.cu: for one token and up to 64 heads rotate q, s = q . k
 *            over the valid places of two lists, softmax, o = sum of p k, rotate back, cast. A task
 *            is a token and a group of heads; a cluster of n_splits CTAs shares its keys.
 *
 * BOUND      A key costs 2 * 2 * 512 * 64 flop, 32 cycles of a multiprocessor's matrix units,
 *            however many of the 64 heads there are; shared memory 8 cycles for the converted row,
 *            18 for the scores (q and K are both read), 12 for O: 38; its conversion some 55
 *            instructions of a warp, 14 cycles of the four schedulers.
 *
 * MOVEMENT
 *     list --cp.async--> entries --> sources (addresses), and the records' bytes to L2
 *     records, sources --ld 16 B--> registers --convert--> stage (bf16 tile)
 *     bf16 rows, and the bf16 dims of V4 --cp.async--> stage
 *     q (HBM) --cp.async--> tile, rotated in place --wgmma, with the stage--> S
 *     S (registers) --softmax--> prob (bf16 tile) --wgmma, with the stage--> O
 *     O (registers) --> out         or, with n_splits > 1, --> smem, where the stages were,
 *                                   --own and other CTAs' (distributed shared memory)--> out
 *
 * TILES      64 heads, 48 keys, 512 dims; 512 threads, one CTA a multiprocessor; CTAs on their own
 *            are as many as fit and take tasks in turns, a cluster has one
 *
 * ROLES      warps 0 .. 3      S, softmax, O of dims 0 .. 255        192 registers
 *            warps 4 .. 7      O of dims 256 .. 511                  192
 *            warps 8 .. 13     records                                64
 *            warp 14           lists                                  64
 *            warp 15           q, and what the next task is           64
 *
 * BUDGET     smem     64 KB q, 3 * 48 KB stages, 2 * 6 KB prob, state: all but 600 bytes
 *            regs     128 sums and 24 scores a thread, of those that load 10 for two loads. Who
 *                     multiplies has none to spare, nor a predicate: what is asked again, or
 *                     written by all of a warp, is so for their sake.
 *
 * BARRIERS   sources_full[ring]    lists -> loading: where a block's records are
 *            sources_empty[ring]   loading -> lists: that was read
 *            full[stage]           loading -> first warpgroup: a block is converted
 *            empty[stage]          both -> loading, and first: O has it, its probabilities are read
 *            prob_full[prob]       first -> both: a block's probabilities, and the factors of O
 *            q_full                q -> both: q of a task, its logit factors, what the task is
 *            q_rotated             second -> first: q is rotated, and before that the results of
 *                                  the task before are out
 *            q_empty               both -> q: the first has no more scores to make of it, and the
 *                                  second has seen q_full, which it must not miss, and rotated q
 *            factor_full, _empty   first -> second, and back: the factors of O at a task's end
 *            weights_full          both: the parts' weights are there
 *            both                  both: nobody multiplies any more
 *            cluster               both, of all CTAs: O and maxima lie where they are read; they
 *                                  were read. All other warps leave without.
 *            Both is a barrier of warps, the others lie in shared memory, where every thread
 *            arrives for itself.
 *
 * ORDER      launched early (gpu/order.cuh)
 *
 * NUMERICS   As attend_mma_kernel.cu, but that the maximum follows with a slack of 2^8
 *            (attend_wgmma_math.cuh), and that the factor of O is as accurate as the hardware's 2^x
 *            and 1 / x are. A token's result depends on n_splits and on nothing else of the batch.
 *
 * LIMITS     Code for 9.0a; n_splits 1, 2, 4 or 8, which is the size of the cluster, and with more
 *            than one a cluster a task: its stages hold the sums at the end. A CTA's blocks are
 *            counted in 32 bits, of which a launch would take an hour.
 * TRIED      src/ops/attend/README.md
 */
#include "gpu/attend_wgmma.h"
#include "gpu/attend_wgmma_direct.cuh"
#include "gpu/attend_wgmma_load.cuh"
#include "gpu/attend_wgmma_math.cuh"
#include "gpu/attend_wgmma_out.cuh"
#include "gpu/attend_wgmma_q.cuh"
#include "gpu/cluster.cuh"
#include "gpu/order.cuh"

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE void attend_wgmma_begin(attend_wgmma_state *state) {
    if (threadIdx.x == 32) { /* not 0, whose predicate would be kept for what thread 0 does later */
        for (int32_t i = 0; i < ATTEND_WGMMA_STAGES; i++) {
            gpu_barrier_init(gpu_smem_address(&state->full[i]), ATTEND_WGMMA_LOAD_THREADS);
            gpu_barrier_init(gpu_smem_address(&state->empty[i]), ATTEND_WGMMA_MATH_THREADS);
        }
        for (int32_t i = 0; i < ATTEND_WGMMA_PROBS; i++) {
            gpu_barrier_init(gpu_smem_address(&state->prob_full[i]), ATTEND_WGMMA_GROUP);
        }
        for (int32_t i = 0; i < ATTEND_WGMMA_RING; i++) {
            gpu_barrier_init(gpu_smem_address(&state->sources_full[i]), 32);
            gpu_barrier_init(gpu_smem_address(&state->sources_empty[i]), ATTEND_WGMMA_LOAD_THREADS);
        }
        gpu_barrier_init(gpu_smem_address(&state->q_full), 32);
        gpu_barrier_init(gpu_smem_address(&state->q_rotated), ATTEND_WGMMA_GROUP);
        gpu_barrier_init(gpu_smem_address(&state->q_empty), ATTEND_WGMMA_MATH_THREADS);
        gpu_barrier_init(gpu_smem_address(&state->weights_full), ATTEND_WGMMA_MATH_THREADS);
        gpu_barrier_init(gpu_smem_address(&state->factor_full), ATTEND_WGMMA_GROUP);
        gpu_barrier_init(gpu_smem_address(&state->factor_empty), ATTEND_WGMMA_GROUP);
        gpu_barrier_inits_publish();
    }
    gpu_cluster_sync();
}

/* The factors of O of a task whose keys this CTA had alone, for the second warpgroup: the first has
 * found them. */
GPU_DEVICE void
attend_wgmma_factors_take(attend_wgmma_state *state, uint32_t n_done, float factor[2]) {
    const int32_t head = attend_wgmma_sum_row(threadIdx.x % ATTEND_WGMMA_GROUP, 0);
    gpu_barrier_wait(gpu_smem_address(&state->factor_full), n_done & 1);
    factor[0] = state->factor[head];
    factor[1] = state->factor[head + 8];
    gpu_barrier_arrive(gpu_smem_address(&state->factor_empty));
}

/* The end of a task whose keys a cluster shared: its only one. */
GPU_DEVICE void attend_wgmma_joined_end(const attend_mma_params *p,
                                        const attend_wgmma_task *task,
                                        uint8_t *smem,
                                        const attend_wgmma_part part[2],
                                        const float o[ATTEND_WGMMA_SUMS]) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const float sink = attend_wgmma_sink(p, task, threadIdx.x);
    if (threadIdx.x < ATTEND_WGMMA_GROUP) {
        attend_wgmma_tell(part, state);
    }
    gpu_warps_sync(ATTEND_WGMMA_BAR_BOTH,
                   ATTEND_WGMMA_MATH_THREADS); /* nobody multiplies from the stages */
    if (task->n_blocks > 0) {
        attend_wgmma_leave_sums(o, smem + ATTEND_WGMMA_AT_STAGES);
    }
    attend_wgmma_join_cluster(p, task, smem, sink);
}

/* What the multiplying warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_math(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const uint32_t tiles = gpu_smem_address(smem);
    const bool is_first = threadIdx.x < ATTEND_WGMMA_GROUP;
    uint32_t n_done = 0;
#pragma unroll 1
    for (int32_t i = gpu_cluster_number(); i < attend_wgmma_n_tasks(p);
         i += gpu_n_clusters(), n_done++) {
        const attend_wgmma_task *task = &state->tasks[n_done % ATTEND_WGMMA_TASKS];
        gpu_barrier_wait(gpu_smem_address(&state->q_full), n_done & 1);
        float o[ATTEND_WGMMA_SUMS];
#pragma unroll
        for (int32_t k = 0; k < ATTEND_WGMMA_SUMS; k++) {
            o[k] = 0.0f;
        }
        /* Reductions tell the compiler that all threads have the same numbers, so that descriptors
         * of tiles are made in uniform registers. */
        const int32_t n_blocks = __reduce_max_sync(~0u, task->n_blocks);
        const uint32_t turn = __reduce_max_sync(~0u, task->turn);
        attend_wgmma_softmax sm = {.reference = {-INFINITY, -INFINITY},
                                   .maximum = {-INFINITY, -INFINITY}};
        attend_wgmma_part part[2];
        float factor[2];
        if (is_first) {
            const int32_t head = attend_wgmma_sum_row(threadIdx.x, 0);
            sm.logit[0] = state->logit[head];
            sm.logit[1] = state->logit[head + 8];
            const float sink[2] = {attend_wgmma_sink(p, task, head),
                                   attend_wgmma_sink(p, task, head + 8)};
            gpu_barrier_wait(gpu_smem_address(&state->factor_empty), (n_done & 1) ^ 1);
            gpu_barrier_wait(gpu_smem_address(&state->q_rotated), n_done & 1);
            if (n_blocks > 0) {
                attend_wgmma_first_blocks(state, tiles, turn, n_blocks, &sm, o);
                /* Beside the last sums; in a cluster for nothing, for want of a condition. */
                attend_wgmma_factors_give(task, &sm, sink, state, part, factor);
                attend_wgmma_first_blocks_end(state, turn + n_blocks - 1, o);
            } else {
                gpu_barrier_arrive(gpu_smem_address(&state->q_empty));
                attend_wgmma_factors_give(task, &sm, sink, state, part, factor);
            }
        } else {
            if (p->rotate && n_blocks > 0) {
                attend_wgmma_q_rotate(state->rope[n_done % ATTEND_WGMMA_TASKS], task->n_heads,
                                      smem + ATTEND_WGMMA_AT_Q, ATTEND_WGMMA_GROUP / 32);
                gpu_fence_async();
            }
            gpu_barrier_arrive(gpu_smem_address(&state->q_rotated));
            /* Or q_full might go on twice before it is seen. */
            gpu_barrier_arrive(gpu_smem_address(&state->q_empty));
            attend_wgmma_second_blocks(state, tiles, turn, n_blocks, o);
        }
        attend_wgmma_count_fault(p, task);
        attend_wgmma_sums_in_order(o);
        if (gpu_cluster_size() > 1) {
            attend_wgmma_joined_end(p, task, smem, part, o);
            continue;
        }
        if (is_first) {
            attend_wgmma_report_own(p, task, part);
        } else {
            if (p->rotate) {
                attend_wgmma_rotate_back(o, state->rope[n_done % ATTEND_WGMMA_TASKS]);
            }
            attend_wgmma_factors_take(state, n_done, factor);
        }
        attend_wgmma_direct_store(p, task, factor, o);
    }
}

const attend_wgmma_shape attend_wgmma_shape_64 = {ATTEND_WGMMA_HEADS, ATTEND_WGMMA_THREADS,
                                                  ATTEND_WGMMA_SMEM_BYTES};

/* Elsewhere an empty kernel, which is never launched. */
MMLA_KERNEL_BOUNDS(attend_wgmma_bf16_sm90a, attend_mma_params, ATTEND_WGMMA_THREADS, 1) {
    if (!GPU_HAS_WGMMA) {
        return;
    }
    extern __shared__ __align__(1024) uint8_t smem[];
    attend_wgmma_begin((attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE));
    gpu_begin(false);
    if (threadIdx.x < ATTEND_WGMMA_MATH_THREADS) {
        GPU_REGISTERS_RAISE(ATTEND_WGMMA_MATH_REGISTERS);
        attend_wgmma_math(&p, smem);
        return;
    }
    GPU_REGISTERS_LOWER(ATTEND_WGMMA_LOAD_REGISTERS);
    switch (threadIdx.x / 32) {
    case ATTEND_WGMMA_LIST_WARP:
        attend_wgmma_read_lists(&p, smem);
        break;
    case ATTEND_WGMMA_Q_WARP:
        attend_wgmma_bring_q(&p, smem);
        break;
    default:
        attend_wgmma_load(smem);
        break;
    }
}
