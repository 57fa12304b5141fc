/* project_wide_few_feed.cuh - how weight comes to the stages of project_wide_few.cu: barriers, what is asked for at first,
 * and the steps behind that.
 *
 * PROBLEM    A part of K has a ring of stages, of which step s takes slot s % ahead. Where CTAs share weight, one of them
 *            asks for a step and all get it, so it waits until all have read what was there; each says to its own
 *            barrier how many bytes come. They take turns by slots and parts.
 *
 * LIMITS     No CTA ends before all that share weight with it have multiplied: until then copies that it has asked for
 *            may be on their way.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_FEED_CUH
#define MMLA_OPS_PROJECT_WIDE_FEW_FEED_CUH

#include "ops/project/project_wide_few.cuh"

/* Weight of step `step` of K, of 64. */
DEVICE const uint8_t *
weight_at(const mmla_project_few_params *p, const mmla_project_tile *tile, int32_t step) {
    return p->codes + mmla_project_wide_off(p->p.rank, tile->g, tile->row, step);
}

/* Which of the CTAs that share weight asks for what goes to a part's slot. */
DEVICE int32_t asker_get(const mmla_project_few_params *p, int32_t part, int32_t slot) {
    return (part + slot) & ((1 << p->sharers_log2) - 1);
}

/* All of them, a bit each; there are one or two. */
DEVICE uint16_t sharers_get(const mmla_project_few_params *p) {
    const uint32_t second = p->sharers_log2 == 0 ? 0 : 1u << (1 << p->splits_log2);
    return (uint16_t)((1 | second) << split_get(p));
}

/* Barriers of a stage, by a warp, and that its first bytes will come. Before a barrier of the cluster. */
DEVICE void
barriers_begin(const mmla_project_few_params *p, const few_smem *smem, const few_shape k) {
    const int32_t stage = (int32_t)(threadIdx.x / MMLA_PROJECT_WARP);
    if (threadIdx.x % MMLA_PROJECT_WARP == 0 && stage < MMLA_PROJECT_FEW_STAGES(k.rows)) {
        gpu_barrier_init(smem->full + stage * 8, 1);
        gpu_barrier_init(smem->empty + stage * 8,
                         k.tokens / GROUP_TOKENS * GROUP_WARPS << p->sharers_log2);
        gpu_barrier_inits_publish();
        gpu_barrier_arrive_expect(smem->full + stage * 8, (uint32_t)stage_bytes_of(k));
    }
    __syncwarp();
}

/* Asks for weight to a stage of all that share it, by one thread. */
DEVICE void stage_ask(const few_smem *smem,
                      const uint8_t *weight,
                      int32_t stage,
                      uint16_t sharers,
                      const few_shape k) {
    gpu_bulk_load_shared(smem->stages + (uint32_t)(stage * stage_bytes_of(k)), weight,
                         (uint32_t)stage_bytes_of(k), smem->full + stage * 8, sharers);
}

/* The stage that a warp asks for at the beginning, and what goes there. */
typedef struct few_first {
    const uint8_t *weight;
    int32_t stage;
    uint16_t sharers;
    bool asks; /* this thread */
} few_first;

DEVICE few_first first_get(const mmla_project_few_params *p,
                           const mmla_project_tile *tile,
                           const few_shape k) {
    few_first f;
    f.stage = (int32_t)(threadIdx.x / MMLA_PROJECT_WARP);
    const int32_t step = f.stage / parts_of(k), part = f.stage % parts_of(k);
    f.weight = weight_at(p, tile, first_line_get(p, part, k) * LINE_STEPS + step);
    f.asks = threadIdx.x % MMLA_PROJECT_WARP == 0 && f.stage < MMLA_PROJECT_FEW_STAGES(k.rows) &&
             asker_get(p, part, step) == sharer_get(p);
    f.sharers = sharers_get(p);
    return f;
}

/* Fills a stage again, by one thread of each CTA; `parity` is that of the phases in which its last step came and was
 * read. Who does not ask waits until that has come. */
DEVICE void stage_refill(const few_smem *smem,
                         const uint8_t *weight,
                         int32_t stage,
                         uint32_t parity,
                         uint16_t sharers,
                         bool asks,
                         const few_shape k) {
    const uint32_t full = smem->full + (uint32_t)stage * 8;
    gpu_barrier_wait(asks ? smem->empty + (uint32_t)stage * 8 : full, parity);
    gpu_barrier_arrive_expect(full, (uint32_t)stage_bytes_of(k));
    if (asks) {
        stage_ask(smem, weight, stage, sharers, k);
    }
}

/* What the warpgroup does that has no part of K: all weight behind what was asked for at first. */
DEVICE void few_feed(const mmla_project_few_params *p,
                     const few_smem *smem,
                     const mmla_project_tile *tile,
                     const few_shape k) {
    const int32_t ahead = ahead_of(k), n_steps = p->n_lines * LINE_STEPS;
    const int32_t sharer = sharer_get(p);
    const uint16_t sharers = sharers_get(p);
    const uint8_t *weight[MMLA_PROJECT_FEW_GROUPS];
#pragma unroll
    for (int32_t part = 0; part < parts_of(k); part++) {
        weight[part] = weight_at(p, tile, first_line_get(p, part, k) * LINE_STEPS + ahead);
    }
    gpu_cluster_sync_begin_read(); /* barriers exist */
    gpu_cluster_sync_end();
    gpu_begin(false);
    if (threadIdx.x != MATH_THREADS) {
        return;
    }
    int32_t slot = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int32_t step = ahead; step < n_steps; step++) {
#pragma unroll
        for (int32_t part = 0; part < parts_of(k); part++) {
            stage_refill(smem, weight[part], slot * parts_of(k) + part, parity, sharers,
                         asker_get(p, part, slot) == sharer, k);
            weight[part] += MMLA_PROJECT_WIDE_STEP_BYTES;
        }
        slot = slot == ahead - 1 ? 0 : slot + 1;
        parity ^= slot == 0;
    }
}

#endif
