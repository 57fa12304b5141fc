/* attend_mma_kernel.cu - sparse attention over paged caches or bf16 rows, portable since sm_80.
 *
 * PROBLEM    For one token and 8 n_tiles heads: rotate q, s = q . k over the valid places of two lists,
 *            softmax, o = sum of p k, rotate back, cast (include/megamla/attend.h has formula and
 *            shapes). A CTA takes a token, a group of heads and a share of the keys.
 *
 * BOUND      A 528-byte key costs 2 * 2 * 512 flop a head: at 64 heads 131,072 flop, 248 flop/B, at
 *            the ridge of an H200; at 8 heads memory-bound. What binds here is shared memory: a key's
 *            bf16 row of 1 KiB is written once and read twice, its raw bytes are written and read,
 *            and q is read again for every 16 keys: 8 + 8 + 8 + 8 and 4 n_tiles cycles a key.
 *
 * MOVEMENT
 *     list --ld--> slot --cp.async--> stage (raw) --convert--> K (bf16) --ldmatrix--> scores, O
 *     q (HBM) --cp.async--> Q (bf16), rotated in place --ldmatrix--> scores
 *     scores (registers) --parts of the dims through smem--> p (bf16, smem) --ldmatrix--> O
 *     O (registers, f32) --> out       or, with n_splits > 1, --> workspace --> out
 *
 * TILES      keys 64 (32 where shared memory is small), heads 8 .. 64, dims 512; 256 threads;
 *            grid tokens * head tiles * splits, splits fastest
 *
 * ROLES      scores   keys / 16 groups of rows x parts of the dims, one warp each
 *            softmax  the warps of part 0
 *            O        64 dims a warp
 *
 * BUDGET     smem     attend_mma_tile.h computes it: 197 KB for 64 keys and 64 heads, 113 KB for 64
 *                     and 8, of 227 KB on an H200 (V4 records, the widest)
 *            regs     O takes 16 n_tiles a thread
 *
 * BARRIERS   __syncthreads, five a block of keys: records landed and O of the block before is done;
 *            K converted, stage free; parts written; maxima written; p and alpha written.
 *
 * NUMERICS   bf16 products, fp32 sums of the matrix instructions; the running maximum is exact; a
 *            probability is rounded to bf16 for O and not for the sum (docs/numerics.md). A token's
 *            result depends on n_splits and the keys of a block, and on nothing else of the batch.
 *
 * LIMITS     what attend_mma_launch_cuda.c gives it: n_splits <= 16.
 * TRIED      src/ops/attend/README.md
 */
#include "gpu/attend_mma.h"
#include "gpu/attend_mma_join.cuh"
#include "gpu/attend_mma_load.cuh"
#include "gpu/attend_mma_math.cuh"
#include "gpu/attend_mma_out.cuh"

#define GPU_DEVICE static __device__ __forceinline__

/* What is on its way: the block whose records are being fetched, the next one, whose entries are
 * known, and where the walk goes on. */
typedef struct attend_feed {
    attend_mma_walk walk;
    attend_mma_block now, next;
    int32_t slot;       /* of this thread's row of `now`, -1 when it is no key */
    int32_t next_entry; /* of its row of `next` */
} attend_feed;

/* Block number to task: splits are neighbours, then groups of heads, then tokens. */
GPU_DEVICE attend_mma_task attend_task(const attend_mma_params *p, const int32_t n_tiles) {
    attend_mma_task task;
    task.split = blockIdx.x % p->n_splits;
    task.group = blockIdx.x / p->n_splits;
    task.token = p->first_token + task.group / p->n_head_tiles;
    task.first_head = (int32_t)(task.group % p->n_head_tiles) * 8 * n_tiles;
    task.has_keys = 0;
    task.pairs = ATTEND_MMA_ALL_PAIRS;
    return task;
}

/* Everything before the walk: q in its tile, rotated; factors of the logits; maxima of no keys; the
 * first block's records on their way. The order is that of what waits for what: an entry of the list
 * is two loads behind the kernel's start, its record three. */
GPU_DEVICE attend_feed attend_begin(const attend_mma_params *p,
                                    uint8_t *smem,
                                    const int32_t keys,
                                    const int32_t n_tiles) {
    enum { PAIRS = MMLA_ROPE_DIM / 2 };
    const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
    const attend_mma_state state_at = attend_mma_state_get(keys, n_tiles);
    const int32_t threads_a_key = ATTEND_MMA_THREADS / keys;
    const int32_t row = threadIdx.x / threads_a_key, lane = threadIdx.x % threads_a_key;
    const bool rows = p->lists[0].view.format == MMLA_KV_NONE;
    float *state = (float *)(smem + at.state);

    attend_mma_task task = attend_task(p, n_tiles);
    attend_mma_fetch_q(p, task.token, task.first_head, gpu_smem_address(smem + at.q), n_tiles);
    gpu_cp_async_commit();
    const int64_t position = p->positions[task.token];
    attend_feed feed;
    feed.walk = attend_mma_walk_get(p, task.token, task.split);
    task.position = position >= 0 && position < p->rope_positions ? position : -1;
    if (task.position < 0) {
        feed.walk.end = feed.walk.end1 = 0;
    }
    feed.now = attend_mma_next(&feed.walk, keys);
    const int32_t entry = attend_mma_entry(p, task.token, feed.now, row);
    feed.next = attend_mma_next(&feed.walk, keys);
    feed.next_entry = attend_mma_entry(p, task.token, feed.next, row);
    float c = 0.0f, s = 0.0f;
    if (p->rotate && task.position >= 0) {
        const float *cos_sin = p->cos_sin + task.position * MMLA_ROPE_DIM;
        c = cos_sin[threadIdx.x % PAIRS];
        s = cos_sin[PAIRS + threadIdx.x % PAIRS];
    }
    feed.slot = attend_mma_slot(p, feed.now, entry);
    attend_mma_fetch(p, feed.now, feed.slot, gpu_smem_address(smem + (rows ? at.k : at.stage)), row,
                     lane, threads_a_key);
    gpu_cp_async_commit();

    if (threadIdx.x == 0) {
        *(attend_mma_task *)(state + state_at.task) = task;
        if (task.position < 0 && task.first_head == 0 && task.split == 0 && p->rotate &&
            p->n_faults != NULL) {
            atomicAdd(p->n_faults, 1);
        }
    }
    for (int32_t h = threadIdx.x; h < 8 * n_tiles; h += ATTEND_MMA_THREADS) {
        state[state_at.running + h] = -INFINITY;
    }
    attend_mma_logit_factors(p, task.token, task.first_head, state + state_at.logit, n_tiles);
    gpu_cp_async_wait(1); /* q, and not the records */
    __syncthreads();
    if (p->rotate && task.position >= 0) {
        attend_mma_rotate_q(smem + at.q, c, s, n_tiles);
    }
    __syncthreads();
    return feed;
}

/* The walk over the CTA's keys. task->has_keys says whether there was one, the result which
 * state.running holds the maxima. */
GPU_DEVICE int32_t attend_keys(const attend_mma_params *p,
                               attend_mma_task *task,
                               attend_feed feed,
                               uint8_t *smem,
                               attend_mma_softmax *sm,
                               attend_mma_output *out,
                               const int32_t keys,
                               const int32_t n_tiles) {
    const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
    const attend_mma_state state_at = attend_mma_state_get(keys, n_tiles);
    const int32_t threads_a_key = ATTEND_MMA_THREADS / keys;
    const int32_t row = threadIdx.x / threads_a_key, lane = threadIdx.x % threads_a_key;
    const int32_t warp = threadIdx.x / 32;
    const bool rows = p->lists[0].view.format == MMLA_KV_NONE;
    float *state = (float *)(smem + at.state);
    int32_t *valid = (int32_t *)(state + state_at.valid); /* [2][keys] */
    bool any = false;
    int32_t turn = 0;
    for (; feed.now.n > 0; turn ^= 1) {
        uint8_t *k_tile = smem + (rows && turn != 0 ? at.stage : at.k);
        int32_t *now_valid = valid + turn * keys;
        if (lane == 0) {
            now_valid[row] = feed.slot >= 0;
        }
        any |= feed.slot >= 0;
        gpu_cp_async_wait(0);
        __syncthreads();
        const mmla_kv_format format = p->lists[feed.now.list].view.format;
        if (!rows) {
            switch (format) {
            case MMLA_KV_V4:
                attend_mma_convert_block(MMLA_KV_V4, smem + at.stage, k_tile, now_valid, keys);
                break;
            case MMLA_KV_V41_FP8:
                attend_mma_convert_block(MMLA_KV_V41_FP8, smem + at.stage, k_tile, now_valid, keys);
                break;
            default:
                attend_mma_convert_block(MMLA_KV_V41_FP4, smem + at.stage, k_tile, now_valid, keys);
                break;
            }
            __syncthreads();
        }
        feed.now = feed.next;
        feed.slot = attend_mma_slot(p, feed.next, feed.next_entry);
        attend_mma_fetch(p, feed.now, feed.slot,
                         gpu_smem_address(smem + (rows && turn != 0 ? at.k : at.stage)), row, lane,
                         threads_a_key);
        gpu_cp_async_commit();
        feed.next = attend_mma_next(&feed.walk, keys);
        feed.next_entry = attend_mma_entry(p, task->token, feed.next, row);

        float s[ATTEND_MMA_TILES_MAX][4];
        attend_mma_scores(s, gpu_smem_address(k_tile), gpu_smem_address(smem + at.q), keys,
                          n_tiles);
        attend_mma_add_parts(s, (float4 *)(smem + at.part), keys, n_tiles);
        if (warp < keys / 16) {
            attend_mma_maxima(s, now_valid, attend_mma_tile_scale(format), state, keys, n_tiles);
        }
        __syncthreads();
        if (warp < keys / 16) {
            attend_mma_probabilities(s, sm, now_valid, turn, attend_mma_tile_scale(format), state,
                                     smem + at.prob, keys, n_tiles);
        }
        __syncthreads();
        attend_mma_accumulate(out, gpu_smem_address(k_tile), gpu_smem_address(smem + at.prob),
                              state + state_at.alpha, keys, n_tiles);
    }
    const bool has_keys = __syncthreads_or(any) != 0;
    if (threadIdx.x == 0) {
        task->has_keys = has_keys; /* read after the barriers of attend_mma_collect */
    }
    return turn;
}

GPU_DEVICE void attend_body(const attend_mma_params *p, const int32_t keys, const int32_t n_tiles) {
    extern __shared__ __align__(128) uint8_t smem[];
    const attend_mma_smem at = attend_mma_smem_get(keys, n_tiles);
    float *state = (float *)(smem + at.state);
    attend_mma_task *task = (attend_mma_task *)(state + attend_mma_state_get(keys, n_tiles).task);
    const attend_feed feed = attend_begin(p, smem, keys, n_tiles);

    attend_mma_softmax sm;
    attend_mma_output out;
#pragma unroll
    for (int32_t t = 0; t < n_tiles; t++) {
        sm.l[t][0] = sm.l[t][1] = 0.0f;
#pragma unroll
        for (int32_t b = 0; b < ATTEND_MMA_WARP_BLOCKS; b++) {
#pragma unroll
            for (int32_t i = 0; i < 4; i++) {
                out.o[b][t][i] = 0.0f;
            }
        }
    }
    const int32_t turn = attend_keys(p, task, feed, smem, &sm, &out, keys, n_tiles);
    attend_mma_collect(&sm, turn, state, keys, n_tiles);
    if (p->n_splits > 1 && !attend_mma_join(p, task, &out, state, keys, n_tiles)) {
        return;
    }
    attend_mma_finish_heads(p, task, state, keys, n_tiles);
    attend_mma_store(p, task, &out, smem, keys, n_tiles);
}

/* A GPU whose shared memory a kernel does not fit gets an empty one, which is never launched there
 * (attend_mma_launch_cuda.c); and one CTA a multiprocessor is all that fits where there is little. */
#if defined(__CUDA_ARCH__)
#define CAPABILITY (__CUDA_ARCH__ / 10)
#define BLOCKS(n) ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200 ? 1 : (n))
#else
#define CAPABILITY 80
#define BLOCKS(n) (n)
#endif

#define KERNEL(keys, tiles, blocks)                                              \
    MMLA_KERNEL_BOUNDS(attend_bf16_sm80_k##keys##_h8x##tiles, attend_mma_params, \
                       ATTEND_MMA_THREADS, BLOCKS(blocks)) {                     \
        if (attend_mma_smem_bytes(keys, tiles, ATTEND_MMA_FP4_PITCH) <=          \
            attend_mma_smem_limit(CAPABILITY)) {                                 \
            attend_body(&p, keys, tiles);                                        \
        }                                                                        \
    }
#include "gpu/attend_mma_kernels.inc"
#undef KERNEL
#undef BLOCKS
#undef CAPABILITY
