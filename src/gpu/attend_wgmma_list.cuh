/* attend_wgmma_list.cuh - the tasks of the Hopper kernels, and the warp that reads the lists for
 * all.
 *
 *     list entry --cp.async--> entries --> is it a key, and where --> sources, for loading warps
 *                                                             \--> the record's bytes to L2
 *
 * A lane has a key or two of a block; what is the same for all, all write, for predicates are
 * scarce. Entries are on their way for three blocks, and addresses are there for up to four of each
 * group of loading warps before a record is loaded: time for it to come from memory to L2. The walk
 * goes on from a task into the next.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_LIST_CUH
#define MMLA_GPU_ATTEND_WGMMA_LIST_CUH

#include "gpu/attend_mma_load.cuh"
#include "gpu/attend_wgmma_tile.h"
#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE int32_t attend_wgmma_n_tasks(const attend_mma_params *p) {
    return (int32_t)p->n_tokens * p->n_head_tiles;
}

GPU_DEVICE int32_t attend_wgmma_n_blocks(int32_t places) {
    return (max(places, 0) + ATTEND_WGMMA_KEYS - 1) / ATTEND_WGMMA_KEYS;
}

/* Task i, and its places. */
GPU_DEVICE attend_wgmma_task attend_wgmma_task_get(const attend_mma_params *p,
                                                   int32_t i,
                                                   attend_mma_walk *walk) {
    attend_wgmma_task task;
    task.token = p->first_token + (uint32_t)i / (uint32_t)p->n_head_tiles;
    task.first_head = (int32_t)((uint32_t)i % (uint32_t)p->n_head_tiles) * p->tile_heads;
    task.n_heads = min(p->n_heads - task.first_head, p->tile_heads);
    const int32_t position = p->positions[task.token];
    task.position = position >= 0 && position < p->rope_positions ? position : -1;
    *walk = attend_mma_walk_get(p, task.token, gpu_cluster_rank());
    if (task.position < 0) {
        walk->end = walk->end1 = 0;
    }
    task.turn = 0; /* known to whoever counts */
    task.n_blocks = attend_wgmma_n_blocks(walk->end - walk->place) +
                    attend_wgmma_n_blocks(walk->end1 - walk->begin1);
    return task;
}

/* Counts a position that is not in the table, once a token, by the multiplying warps of all its
 * CTAs. */
GPU_DEVICE void attend_wgmma_count_fault(const attend_mma_params *p,
                                         const attend_wgmma_task *task) {
    if (threadIdx.x == 0 && task->position < 0 && task->first_head == 0 &&
        gpu_cluster_rank() == 0 && p->rotate && p->n_faults != NULL) {
        atomicAdd(p->n_faults, 1);
    }
}

/* Brings near what attend_wgmma_task_get will read of task i. */
GPU_DEVICE void attend_wgmma_task_prefetch(const attend_mma_params *p, int32_t i) {
    if (i >= attend_wgmma_n_tasks(p)) {
        return;
    }
    const int64_t token = p->first_token + (uint32_t)i / (uint32_t)p->n_head_tiles;
    gpu_prefetch_l1(p->positions + token);
    for (int32_t k = 0; k < 2; k++) {
        if (p->lists[k].lens != NULL) {
            gpu_prefetch_l1(p->lists[k].lens + token);
        }
    }
}

/* What one prefetch brings. */
enum { ATTEND_WGMMA_L2_STEP = 128 };

/* Where the walk over all tasks of a CTA is: the rest of a list of task i, and what comes after. */
typedef struct attend_wgmma_feed {
    int32_t i;
    int64_t token;
    attend_mma_walk walk;
    bool ends; /* the end of the task has not been told yet */
} attend_wgmma_feed;

/* Whether the end of a task has a stage like a block: not in a cluster, whose CTAs have one task
 * each and all stages for its sums. */
GPU_DEVICE bool attend_wgmma_has_ends(void) {
    return ATTEND_WGMMA_FEW && gpu_cluster_size() == 1;
}

/* Moves on to the next place of a list, in the next task if there is none. Gives the list, or
 * ATTEND_WGMMA_END, or ATTEND_WGMMA_NO_BLOCK. */
GPU_DEVICE int32_t attend_wgmma_feed_next(const attend_mma_params *p, attend_wgmma_feed *f) {
    while (f->walk.place >= f->walk.end) {
        if (f->walk.list == 0) {
            f->walk.list = 1;
            f->walk.place = f->walk.begin1;
            f->walk.end = f->walk.end1;
            continue;
        }
        if (ATTEND_WGMMA_FEW && f->ends) {
            f->ends = false;
            return ATTEND_WGMMA_END;
        }
        f->i += gpu_n_clusters();
        if (f->i >= attend_wgmma_n_tasks(p)) {
            return ATTEND_WGMMA_NO_BLOCK;
        }
        f->ends = attend_wgmma_has_ends();
        f->token = attend_wgmma_task_get(p, f->i, &f->walk).token;
        attend_wgmma_task_prefetch(p, f->i + gpu_n_clusters());
    }
    return f->walk.list;
}

/* Starts fetching the list entries of the next block, which has keys of one list. */
GPU_DEVICE void attend_wgmma_entries_fetch(const attend_mma_params *p,
                                           attend_wgmma_feed *f,
                                           attend_wgmma_entries *block) {
    const int32_t lane = threadIdx.x % 32;
    const int32_t of_list = attend_wgmma_feed_next(p, f);
    const bool is_second = f->walk.list == 1;
    const int32_t *entries = (is_second ? p->lists[1].entries : p->lists[0].entries) +
                             f->token * (is_second ? p->lists[1].stride : p->lists[0].stride) +
                             f->walk.place;
    const int32_t n = of_list < 0 ? 0 : min(ATTEND_WGMMA_KEYS, f->walk.end - f->walk.place);
#pragma unroll
    for (int32_t k = 0; k < ATTEND_WGMMA_KEYS; k += 32) {
        const int32_t key = k + lane;
        if (key < n) {
            gpu_cp_async4(gpu_smem_address(&block->entries[key]), entries + key);
        } else if (key < ATTEND_WGMMA_KEYS) {
            block->entries[key] = -1;
        }
    }
    block->list = of_list;
    f->walk.place += n;
    gpu_cp_async_commit();
}

/* What is read in the place of a record that is no key. */
static __device__ const uint4 attend_wgmma_zeros[MMLA_LATENT_DIM * 2 / sizeof(uint4)] = {};

/* Where the records of a block of a list are, and their bytes to L2. All of a lane's keys are found
 * side by side and without a condition: one warp does it for all. */
GPU_DEVICE void attend_wgmma_sources_find(const attend_mma_list *list,
                                          const attend_wgmma_entries *block,
                                          attend_wgmma_sources *to) {
    enum { LANE_KEYS = (ATTEND_WGMMA_KEYS + 31) / 32 };
    const int32_t lane = threadIdx.x % 32;
    const bool exists = block->list >= 0, has_scales = list->view.format != MMLA_KV_NONE;
    const uint8_t *data[LANE_KEYS];
    int32_t to_scale[LANE_KEYS];
    uint64_t valid = 0;
#pragma unroll
    for (int32_t k = 0; k < LANE_KEYS; k++) {
        const int32_t key = 32 * k + lane;
        const int32_t entry = key < ATTEND_WGMMA_KEYS ? block->entries[key] : -1;
        const bool is_key = exists && mmla_kv_slot_is_legal(&list->view, entry);
        const int32_t slot = is_key ? entry : 0;
        const int64_t at = mmla_kv_data_offset(&list->view, slot);
        const int64_t scale_at = mmla_kv_scale_offset(&list->view, slot);
        data[k] = is_key ? list->pool + at : (const uint8_t *)attend_wgmma_zeros;
        to_scale[k] = is_key && has_scales ? (int32_t)(scale_at - at) : 0;
        valid |= (uint64_t)__ballot_sync(~0u, is_key) << 32 * k;
        if (key < ATTEND_WGMMA_KEYS) {
            to->data[key] = data[k];
            to->to_scale[key] = to_scale[k];
        }
    }
#pragma unroll 1
    for (int32_t byte = 0; byte < list->view.data_bytes; byte += ATTEND_WGMMA_L2_STEP) {
#pragma unroll
        for (int32_t k = 0; k < LANE_KEYS; k++) {
            gpu_prefetch_l2_line(data[k] + byte);
        }
    }
#pragma unroll
    for (int32_t k = 0; k < LANE_KEYS; k++) {
        gpu_prefetch_l2_line(data[k] + to_scale[k]);
    }
    to->valid = valid;
    to->format = exists ? (int32_t)list->view.format : block->list;
}

/* What the list warp does, from the first task to the last. */
GPU_DEVICE void attend_wgmma_read_lists(const attend_mma_params *p, uint8_t *smem) {
    attend_wgmma_state *state = (attend_wgmma_state *)(smem + ATTEND_WGMMA_AT_STATE);
    /* It begins behind all lists of a task before the first, so that the first step finds that. */
    attend_wgmma_feed feed = {.i = (int32_t)gpu_cluster_number() - (int32_t)gpu_n_clusters(),
                              .walk = {.list = 1}};
    for (uint32_t n = 0; n < ATTEND_WGMMA_AHEAD; n++) {
        attend_wgmma_entries_fetch(p, &feed, &state->entries[n]);
    }
    /* Every group of loading warps is told that there is no block any more. */
    int32_t n_told = 0;
    for (uint32_t n = 0; n_told < ATTEND_WGMMA_LOAD_GROUPS; n++) {
        const uint32_t i = n % ATTEND_WGMMA_RING;
        attend_wgmma_entries_fetch(p, &feed,
                                   &state->entries[(n + ATTEND_WGMMA_AHEAD) % ATTEND_WGMMA_RING]);
        gpu_cp_async_wait(ATTEND_WGMMA_AHEAD);
        __syncwarp();
        n_told += state->entries[i].list == ATTEND_WGMMA_NO_BLOCK;
        gpu_barrier_wait(gpu_smem_address(&state->sources_empty[i]),
                         (n / ATTEND_WGMMA_RING & 1) ^ 1);
        if (state->entries[i].list == 1) { /* a list that the compiler knows is read faster */
            attend_wgmma_sources_find(&p->lists[1], &state->entries[i], &state->sources[i]);
        } else {
            attend_wgmma_sources_find(&p->lists[0], &state->entries[i], &state->sources[i]);
        }
        gpu_barrier_arrive(gpu_smem_address(&state->sources_full[i]));
        __syncwarp(); /* all have read the entries */
    }
    gpu_cp_async_wait_all();
}

#undef GPU_DEVICE

#endif
