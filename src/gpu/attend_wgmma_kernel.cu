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
 *     list --cp.async--> ring --> slot --ld 16 B--> registers --convert--> stage (bf16 tile)
 *     q (HBM) --cp.async--> tile, rotated in place --wgmma, with the stage--> S
 *     S (registers) --softmax--> prob (bf16 tile) --wgmma, with the stage--> O
 *     O (registers) --> out         or, with n_splits > 1, --> smem, where the stages were,
 *                                   --own and other CTAs' (distributed shared memory)--> out
 *
 * TILES      64 heads, 64 keys, 512 dims; 512 threads, one CTA a multiprocessor; CTAs on their own are as
 *            many as fit and take tasks in turns, a cluster has one
 *
 * ROLES      warps 0 .. 3      S, softmax, O of dims 0 .. 255               192 registers
 *            warps 4 .. 7      O of dims 256 .. 511, q of the next task     192
 *            warps 8 .. 15     records                                       64
 *
 * BUDGET     smem     64 KB q, 2 * 64 KB stages, 2 * 8 KB prob, state (attend_wgmma_tile.h)
 *            regs     128 sums and 32 scores a thread; 16 of a record. There is none to spare: what is
 *                     asked again, or kept in shared memory, is so for their sake.
 *
 * BARRIERS   full[stage]        loading -> first warpgroup: a block is converted
 *            prob_full[stage]   first -> both: its probabilities and the factors of O are written
 *            empty[stage]       both -> loading: O has it; what the first warpgroup writes for the
 *                               stage's next block comes after that too
 *            q_full             second -> both: q of a task, its logit factors, and what the task is
 *            parts_full         both, of all CTAs of the cluster: O and maxima lie where they are read
 *            parts_empty        both, of all CTAs -> all: they were read, stages may be filled and
 *                               maxima be overwritten
 *            bar 1              both: nobody multiplies any more; the factors of the parts are there
 *            bar 2              second: the next task is known; q is there and may be rotated
 *            bar 3              first: the parts of a CTA on its own are there
 *            Where one thread arrives for its warp, __syncwarp or an instruction that the warp executes
 *            together stands before it.
 *
 * NUMERICS   As attend_mma_kernel.cu, but that the maximum follows with a slack of 2^8
 *            (attend_wgmma_math.cuh). A token's result depends on n_splits and on nothing else of the
 *            batch.
 *
 * LIMITS     Code for 9.0a; n_splits 1, 2, 4 or 8, which is the size of the cluster, and with more than one
 *            a cluster a task: attend_wgmma_await_tasks counts by parity, and several tasks without
 *            keys before the first with some would let it lose count.
 * TRIED      src/ops/attend/README.md
 */
#include "gpu/attend_wgmma.h"
#include "gpu/attend_wgmma_direct.cuh"
#include "gpu/attend_wgmma_load.cuh"
#include "gpu/attend_wgmma_math.cuh"
#include "gpu/attend_wgmma_out.cuh"
#include "gpu/cluster.cuh"

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE void attend_wgmma_begin(const attend_mma_params *p, attend_wgmma_state *state) {
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < ATTEND_WGMMA_STAGES; i++) {
            gpu_barrier_init(gpu_smem_address(&state->full[i]), ATTEND_WGMMA_LOAD_THREADS);
            gpu_barrier_init(gpu_smem_address(&state->prob_full[i]), ATTEND_WGMMA_GROUP);
            gpu_barrier_init(gpu_smem_address(&state->empty[i]), ATTEND_WGMMA_MATH_WARPS);
        }
        gpu_barrier_init(gpu_smem_address(&state->q_full), ATTEND_WGMMA_GROUP);
        gpu_barrier_init(gpu_smem_address(&state->parts_full),
                         ATTEND_WGMMA_MATH_WARPS * gpu_cluster_size());
        gpu_barrier_init(gpu_smem_address(&state->parts_empty),
                         ATTEND_WGMMA_MATH_WARPS * gpu_cluster_size());
        gpu_barrier_inits_publish();
    }
    gpu_cluster_sync();
}

/* Number among all CTAs' of the n-th task of this one's cluster. */
GPU_DEVICE int32_t attend_wgmma_task_number(uint32_t n) {
    return (int32_t)(gpu_cluster_number() + n * gpu_n_clusters());
}

/* Finds out what task i is, by the second warpgroup: for both, and for its q. It has no heads when there is
 * none. */
GPU_DEVICE void attend_wgmma_next_task(const attend_mma_params *p,
                                       attend_wgmma_task *task,
                                       int32_t i,
                                       uint32_t turn) {
    if (threadIdx.x != ATTEND_WGMMA_GROUP) {
        return;
    }
    if (i < attend_wgmma_n_tasks(p)) {
        attend_mma_walk walk;
        *task = attend_wgmma_task_get(p, i, &walk);
        task->turn = turn;
        attend_wgmma_task_prefetch(p, i + gpu_n_clusters());
    } else {
        task->n_heads = 0;
    }
}

/* The blocks of a task; the CTA's number of the first is `turn`. next is the task after it, without
 * heads when there is none. */
GPU_DEVICE void attend_wgmma_blocks(const attend_mma_params *p,
                                    attend_wgmma_state *state,
                                    uint8_t *smem,
                                    const attend_wgmma_task *next,
                                    uint32_t turn,
                                    int32_t n_blocks,
                                    attend_wgmma_softmax *sm,
                                    float o[ATTEND_WGMMA_SUMS]) {
    const bool is_first = threadIdx.x < ATTEND_WGMMA_GROUP;
    const int32_t head = attend_wgmma_sum_row(threadIdx.x % ATTEND_WGMMA_GROUP, 0);
    const uint32_t tiles = gpu_smem_address(smem);
#pragma unroll 1
    for (int32_t b = 0; b < n_blocks; b++, turn++) {
        const int32_t stage = turn % ATTEND_WGMMA_STAGES;
        const uint32_t phase = turn / ATTEND_WGMMA_STAGES & 1;
        const uint32_t k_tile = tiles + ATTEND_WGMMA_AT_STAGES + stage * ATTEND_WGMMA_TILE_BYTES;
        const uint32_t prob = tiles + ATTEND_WGMMA_AT_PROB + stage * ATTEND_WGMMA_COLUMN_BYTES;
        if (is_first) {
            gpu_barrier_wait(gpu_smem_address(&state->full[stage]), phase);
            attend_wgmma_probabilities(state, tiles + ATTEND_WGMMA_AT_Q, k_tile, prob, stage, sm);
        }
        gpu_barrier_wait(gpu_smem_address(&state->prob_full[stage]), phase);
        if (!is_first && b == n_blocks - 1 && next->n_heads > 0) { /* nobody reads q any more */
            attend_wgmma_fetch_q(p, next, tiles + ATTEND_WGMMA_AT_Q);
        }
        attend_wgmma_rescale(o, state->alpha[stage][head], state->alpha[stage][head + 8]);
        attend_wgmma_accumulate(o, prob, k_tile, threadIdx.x / ATTEND_WGMMA_GROUP);
        if (threadIdx.x % 32 == 0) {
            gpu_barrier_arrive(gpu_smem_address(&state->empty[stage]));
        }
    }
    if (!is_first && n_blocks > 0 && next->n_heads > 0) {
        attend_wgmma_finish_q(p, next, state, smem + ATTEND_WGMMA_AT_Q);
    }
}

/* Joins what the CTAs of a cluster found, and stores this one's share. */
GPU_DEVICE void attend_wgmma_joined_end(const attend_mma_params *p,
                                        const attend_wgmma_task *task,
                                        attend_wgmma_state *state,
                                        uint8_t *smem,
                                        uint32_t phase,
                                        const float o[ATTEND_WGMMA_SUMS]) {
    const uint32_t sums = gpu_smem_address(smem) + ATTEND_WGMMA_AT_STAGES;
    gpu_warps_sync(1, ATTEND_WGMMA_MATH_THREADS); /* nobody multiplies from the stages */
    if (task->n_blocks > 0) {
        attend_wgmma_leave_sums(o, smem + ATTEND_WGMMA_AT_STAGES);
    }
    attend_wgmma_arrive_all(&state->parts_full, gpu_cluster_size());
    const float sink = attend_wgmma_sink(p, task, threadIdx.x);
    gpu_barrier_wait_cluster(gpu_smem_address(&state->parts_full), phase);
    attend_wgmma_finish_heads(p, task, state, sink, threadIdx.x);
    gpu_warps_sync(1, ATTEND_WGMMA_MATH_THREADS);
    switch (gpu_cluster_size()) {
    case 2:
        attend_wgmma_joined_store(p, task, state, 2, sums);
        break;
    case 4:
        attend_wgmma_joined_store(p, task, state, 4, sums);
        break;
    default:
        attend_wgmma_joined_store(p, task, state, ATTEND_WGMMA_SPLITS_MAX, sums);
        break;
    }
}

/* The end of a task. */
GPU_DEVICE void attend_wgmma_end(const attend_mma_params *p,
                                 const attend_wgmma_task *task,
                                 attend_wgmma_state *state,
                                 uint8_t *smem,
                                 uint32_t phase,
                                 const attend_wgmma_softmax *sm,
                                 float o[ATTEND_WGMMA_SUMS]) {
    const bool is_first = threadIdx.x < ATTEND_WGMMA_GROUP;
    if (threadIdx.x == 0 && task->position < 0 && task->first_head == 0 &&
        gpu_cluster_rank() == 0 && p->rotate && p->n_faults != NULL) {
        atomicAdd(p->n_faults, 1);
    }
    gpu_barrier_wait(gpu_smem_address(&state->parts_empty), phase ^ 1);
    if (is_first) {
        attend_wgmma_tell(sm, state, gpu_cluster_rank(), gpu_cluster_size());
    }
    if (gpu_cluster_size() > 1) {
        attend_wgmma_joined_end(p, task, state, smem, phase, o);
        return;
    }
    if (is_first) { /* there is nothing to wait for */
        const float sink = attend_wgmma_sink(p, task, threadIdx.x);
        gpu_warps_sync(3, ATTEND_WGMMA_GROUP);
        attend_wgmma_finish_heads(p, task, state, sink, threadIdx.x);
    }
    attend_wgmma_arrive_all(&state->parts_full, 1);
    gpu_barrier_wait(gpu_smem_address(&state->parts_full), phase);
    attend_wgmma_direct_store(p, task, state->factor, o);
}

/* What the multiplying warps do, from the first task to the last. */
GPU_DEVICE void attend_wgmma_math(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    const bool is_first = threadIdx.x < ATTEND_WGMMA_GROUP;
    const int32_t head = attend_wgmma_sum_row(threadIdx.x % ATTEND_WGMMA_GROUP, 0);
    uint32_t n_done = 0;
    if (!is_first) {
        attend_wgmma_next_task(p, &state->tasks[0], gpu_cluster_number(), 0);
        gpu_warps_sync(2, ATTEND_WGMMA_GROUP);
        attend_wgmma_fetch_q(p, &state->tasks[0], gpu_smem_address(smem + ATTEND_WGMMA_AT_Q));
        attend_wgmma_finish_q(p, &state->tasks[0], state, smem + ATTEND_WGMMA_AT_Q);
    }
#pragma unroll 1
    for (; attend_wgmma_task_number(n_done) < attend_wgmma_n_tasks(p); n_done++) {
        const uint32_t phase = n_done & 1;
        const attend_wgmma_task *task = &state->tasks[n_done % 4];
        /* One warpgroup may be a task ahead of the other, so a place is used anew after four. */
        const attend_wgmma_task *next = &state->tasks[(n_done + 1) % 4];
        gpu_barrier_wait(gpu_smem_address(&state->q_full), phase);
        if (!is_first) {
            attend_wgmma_next_task(p, &state->tasks[(n_done + 1) % 4],
                                   attend_wgmma_task_number(n_done + 1),
                                   task->turn + task->n_blocks);
            gpu_warps_sync(2, ATTEND_WGMMA_GROUP);
        }
        float o[ATTEND_WGMMA_SUMS];
#pragma unroll
        for (int32_t k = 0; k < ATTEND_WGMMA_SUMS; k++) {
            o[k] = 0.0f;
        }
        attend_wgmma_softmax sm = {.reference = {-INFINITY, -INFINITY}};
        if (is_first) {
            if (threadIdx.x % 4 == 0) {
                state->maximum[head] = state->maximum[head + 8] = -INFINITY;
            }
            if (threadIdx.x % 32 == 0) {
                state->has_keys[threadIdx.x / 32] = 0.0f;
            }
            sm.logit[0] = state->logit[head];
            sm.logit[1] = state->logit[head + 8];
        }
        /* Reductions tell the compiler that all threads have the same numbers, so that descriptors of
         * tiles are made in uniform registers. */
        const int32_t n_blocks = __reduce_max_sync(~0u, task->n_blocks);
        const uint32_t turn = __reduce_max_sync(~0u, task->turn);
        attend_wgmma_blocks(p, state, smem, next, turn, n_blocks, &sm, o);
        attend_wgmma_end(p, task, state, smem, phase, &sm, o);
        const bool has_no_keys = task->n_blocks == 0;
        attend_wgmma_arrive_all(&state->parts_empty, gpu_cluster_size());
        if (!is_first && has_no_keys &&
            next->n_heads > 0) { /* its factors of the logits were read */
            attend_wgmma_fetch_q(p, next, gpu_smem_address(smem + ATTEND_WGMMA_AT_Q));
            attend_wgmma_finish_q(p, next, state, smem + ATTEND_WGMMA_AT_Q);
        }
    }
    if (n_done > 0) { /* another CTA may still read from this one */
        gpu_barrier_wait(gpu_smem_address(&state->parts_empty), (n_done - 1) & 1);
    }
}

/* Elsewhere an empty kernel, which is never launched. */
MMLA_KERNEL_BOUNDS(attend_wgmma_bf16_sm90a, attend_mma_params, ATTEND_WGMMA_THREADS, 1) {
    if (!GPU_HAS_WGMMA) {
        return;
    }
    extern __shared__ __align__(1024) uint8_t smem[];
    attend_wgmma_begin(&p, (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE));
    if (threadIdx.x < ATTEND_WGMMA_MATH_THREADS) {
        GPU_REGISTERS_RAISE(ATTEND_WGMMA_MATH_REGISTERS);
        attend_wgmma_math(&p, smem);
    } else {
        GPU_REGISTERS_LOWER(ATTEND_WGMMA_LOAD_REGISTERS);
        attend_wgmma_load(&p, smem);
    }
}
