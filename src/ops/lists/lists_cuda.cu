/* lists_cuda.cu - the seven index builders on a GPU.
 *
 * PROBLEM    a row of `width` int32 a token, or a slot, or two numbers; which entries a row has is in
 *            lists_rule.h and in no other place. Valid entries are closed up in their order, the rest
 *            of the row is -1, and all of it is written.
 *
 * BOUND      bytes, and for a decode step latency. A row writes 4 * width, and reads 4 * topk_width
 *            (COMPRESSED, COMBINED) and a few lines of the block table, which stay in the caches.
 *            8192 tokens of prefill with 512 picks and a window of 128: 38 MB, 8 us at 4.8 TB/s.
 *            256 tokens of decode: 0.7 MB, nothing; what counts is the chain
 *                query_start (1 or 2 loads deep) -> seq_lens -> block_table -> store
 *                request, topk -> block_table -> store
 *            of loads that each wait for the one before.
 *
 * MOVEMENT   query_start --32 probes a step, a vote--> request
 *            candidates (picks, or positions) --block table--> entries, in registers
 *            entries --vote, prefix count--> row, closed up;  -1 behind
 *
 * TILES      narrow rows (width <= 256): one warp, all candidates at once, 8 a thread; 4 tokens a block
 *            wide rows: one block of 8 warps, tiles of 1024 candidates, 4 a thread
 *            slots: one thread a token; images: one warp a token, 32 spans a step
 *            Candidate i of a tile is held by warp i / (32 * n), thread i mod 32, as its number
 *            i / 32 mod n of n: loads are of 32 neighbours, and order is warp, number, thread.
 *
 * BUDGET     smem 64 B (wide); registers 64 a thread: it holds 8 entries and 8 votes
 *
 * BARRIERS   wide: one a tile, between the warps' counts and their sum. Counts of two tiles alternate,
 *            so a warp may write the next before the others have read the last.
 *
 * ORDER      every kernel lets the next launch begin at once, and waits for the one before at its end
 *
 * NUMERICS   integers; 64-bit offsets
 *
 * LIMITS     Array contents are not trusted. The search for a request narrows whatever it reads and
 *            what it ends at is checked; every index is compared with its bound before it is used.
 *            What a thread branches on is the same in all threads of a warp, or of a block around a
 *            barrier.
 */
#include "gpu/order.cuh"
#include "ops/lists/lists_cuda.h"

#include "ops/lists/lists_rule.h"

#define ALL_LANES 0xFFFFFFFFu
enum {
    ENTRIES_MAX = MMLA_LISTS_NARROW_ENTRIES,
    WIDE_THREADS = MMLA_LISTS_WIDE_WARPS * MMLA_LISTS_WARP,
    NARROW_THREADS = MMLA_LISTS_NARROW_WARPS * MMLA_LISTS_WARP,
    SLOT_THREADS = MMLA_LISTS_SLOT_THREADS
};
static_assert((int)MMLA_LISTS_PROBES == (int)MMLA_LISTS_WARP, "a probe a lane");
static_assert((int)MMLA_LISTS_WIDE_ENTRIES <= (int)ENTRIES_MAX, "entries fit their array");
static_assert(MMLA_LISTS_NARROW_WIDTH == 256, "as the page above says");

/* Warps' numbers of entries, of this tile and the one before. */
typedef struct wide_counts {
    int32_t of[2][MMLA_LISTS_WIDE_WARPS];
} wide_counts;
static_assert(sizeof(wide_counts) == 64, "as the page above says");

static __device__ __forceinline__ int32_t lane_idx(void) {
    return (int32_t)(threadIdx.x % MMLA_LISTS_WARP);
}

static __device__ __forceinline__ int32_t warp_idx(void) {
    return (int32_t)(threadIdx.x / MMLA_LISTS_WARP);
}

/* Called by whole warps, which get one answer. */
static __device__ __forceinline__ int64_t request_find(const mmla_list_args *args, int64_t t) {
    mmla_lists_search s = {0, args->n_requests};
    while (s.low < s.high) {
        const bool before = mmla_lists_search_probe(args, s, lane_idx(), t);
        const uint32_t votes = __ballot_sync(ALL_LANES, before);
        s = mmla_lists_search_narrow(s, __clz((int)__brev(~votes))); /* yes before the first no */
    }
    return s.low;
}

/* Adds the illegal entries of starts [n + 1] to *n_faults. All threads of the grid share them out. */
static __device__ __forceinline__ void
faults_count(const int32_t *starts, int64_t n, int64_t most, int32_t *n_faults) {
    const int64_t n_threads = (int64_t)gridDim.x * blockDim.x;
    int32_t n_bad = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i <= n; i += n_threads) {
        n_bad += mmla_lists_start_is_legal(starts, i, most) ? 0 : 1;
    }
    if (n_bad > 0) {
        atomicAdd(n_faults, n_bad);
    }
}

static __device__ __forceinline__ void query_faults_count(const mmla_list_args *args) {
    if (args->n_faults != NULL && args->n_requests > 0) {
        faults_count(args->query_start, args->n_requests, args->n_tokens, args->n_faults);
    }
}

/* Writes the entries of a row's candidates to list, closed up; their number. Called by all threads of
 * the team that owns the row: n_warps warps with n_entries entries a thread. counts is NULL for a
 * team of one warp. */
static __device__ __forceinline__ int64_t close_up(const mmla_list_kind kind,
                                                   const mmla_lists_problem *p,
                                                   const mmla_lists_row *row,
                                                   int32_t *list,
                                                   const int n_warps,
                                                   const int n_entries,
                                                   wide_counts *counts) {
    const int32_t lane = lane_idx(), warp = n_warps > 1 ? warp_idx() : 0;
    const uint32_t lanes_below = (1u << lane) - 1;
    int64_t n = 0;
    int32_t parity = 0;
    for (int64_t tile = 0; tile < row->n; tile += n_warps * n_entries * MMLA_LISTS_WARP) {
        const int64_t first = tile + warp * n_entries * MMLA_LISTS_WARP + lane;
        /* Candidates before entries: the loads of a step do not wait for each other. */
        int32_t entry[ENTRIES_MAX];
#pragma unroll
        for (int k = 0; k < n_entries; k++) {
            const int64_t i = first + k * MMLA_LISTS_WARP;
            entry[k] = i < row->n ? mmla_lists_candidate(kind, row, i) : -1;
        }
        uint32_t votes[ENTRIES_MAX];
        int32_t count = 0;
#pragma unroll
        for (int k = 0; k < n_entries; k++) {
            entry[k] = mmla_lists_entry(kind, p, row, entry[k]);
        }
#pragma unroll
        for (int k = 0; k < n_entries; k++) {
            votes[k] = __ballot_sync(ALL_LANES, entry[k] >= 0);
            count += __popc(votes[k]);
        }
        int64_t at = n; /* of the warp's first entry */
        int32_t total = count;
        if (n_warps > 1) {
            if (lane == 0) {
                counts->of[parity][warp] = count;
            }
            __syncthreads();
            total = 0;
            for (int w = 0; w < n_warps; w++) {
                at += w < warp ? counts->of[parity][w] : 0;
                total += counts->of[parity][w];
            }
            parity ^= 1;
        }
#pragma unroll
        for (int k = 0; k < n_entries; k++) {
            if (entry[k] >= 0) {
                list[at + __popc(votes[k] & lanes_below)] = entry[k];
            }
            at += __popc(votes[k]);
        }
        n += total;
    }
    return n;
}

/* Everything token t owns, by its team. */
static __device__ __forceinline__ void row_write(const mmla_lists_params *params,
                                                 const mmla_list_kind kind,
                                                 int64_t t,
                                                 const int n_warps,
                                                 const int n_entries,
                                                 wide_counts *counts) {
    const mmla_lists_problem *p = &params->problem;
    const mmla_list_args *args = &params->args;
    const bool masked = args->valid != NULL && args->valid[t] == 0;
    mmla_lists_token token;
    const bool known = mmla_lists_kind_has_query(kind)
                           ? mmla_lists_token_of_query(args, request_find(args, t), t, &token)
                           : mmla_lists_token_of_request(kind, args, t, &token);
    int32_t *list = args->list + t * p->desc.list_stride;
    int64_t n = 0;
    mmla_lists_run run = {0, 0};
    if (known && !masked) {
        const mmla_lists_row row = mmla_lists_row_get(kind, p, args, &token);
        n = close_up(kind, p, &row, list, n_warps, n_entries, counts);
        if (kind == MMLA_LIST_COMBINED) {
            run = mmla_lists_window_run(p, args, &token, n);
        }
    }
    const int32_t thread = n_warps > 1 ? (int32_t)threadIdx.x : lane_idx();
    for (int64_t k = n + thread; k < p->desc.width; k += n_warps * MMLA_LISTS_WARP) {
        list[k] = k - n < run.n ? (int32_t)(run.first + (k - n)) : -1;
    }
    if (thread == 0) {
        args->lens[t] = (int32_t)(n + run.n);
    }
}

static __device__ __forceinline__ void narrow_body(const mmla_lists_params *params,
                                                   const mmla_list_kind kind) {
    const int64_t t = (int64_t)blockIdx.x * MMLA_LISTS_NARROW_WARPS + warp_idx();
    if (t < params->args.n_tokens) {
        row_write(params, kind, t, 1, MMLA_LISTS_NARROW_ENTRIES, NULL);
    }
    if (mmla_lists_kind_has_query(kind)) {
        query_faults_count(&params->args);
    }
}

static __device__ __forceinline__ void wide_body(const mmla_lists_params *params,
                                                 const mmla_list_kind kind) {
    __shared__ wide_counts counts;
    row_write(params, kind, blockIdx.x, MMLA_LISTS_WIDE_WARPS, MMLA_LISTS_WIDE_ENTRIES, &counts);
    if (mmla_lists_kind_has_query(kind)) {
        query_faults_count(&params->args);
    }
}

static __device__ __forceinline__ void slot_body(const mmla_lists_params *params,
                                                 const mmla_list_kind kind) {
    const mmla_list_args *args = &params->args;
    const int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= args->n_tokens) {
        return;
    }
    mmla_lists_token token;
    const bool known = mmla_lists_token_of_request(kind, args, t, &token);
    args->out_slots[t] = known ? mmla_lists_slot(kind, &params->problem, args, &token) : -1;
}

/* The reach of token t, found by a warp and known to all of it. */
static __device__ __forceinline__ mmla_lists_reach reach_find(const mmla_lists_params *params,
                                                              int64_t t) {
    const mmla_list_args *args = &params->args;
    mmla_lists_reach reach = {0, 0};
    mmla_lists_token token;
    if (!mmla_lists_token_of_query(args, request_find(args, t), t, &token)) {
        return reach;
    }
    const mmla_lists_spans spans = mmla_lists_spans_get(&params->problem, args, token.request);
    for (int64_t i = spans.first; i < spans.stop; i += MMLA_LISTS_WARP) {
        const int64_t mine = i + lane_idx();
        const bool holds = mine < spans.stop && mmla_lists_span_holds(args, mine, token.pos);
        const uint32_t votes = __ballot_sync(ALL_LANES, holds);
        if (votes != 0) { /* the first span decides */
            return mmla_lists_reach_get(&params->problem, args, i + __ffs((int)votes) - 1,
                                        token.pos);
        }
    }
    return reach;
}

static __device__ __forceinline__ void image_body(const mmla_lists_params *params) {
    const mmla_list_args *args = &params->args;
    const int64_t t = (int64_t)blockIdx.x * MMLA_LISTS_NARROW_WARPS + warp_idx();
    if (t < args->n_tokens) {
        const mmla_lists_reach reach = reach_find(params, t);
        if (lane_idx() == 0) {
            args->out_left[t] = reach.left;
            args->out_right[t] = reach.right;
        }
    }
    query_faults_count(args);
    if (args->n_faults != NULL && args->n_requests > 0) {
        faults_count(args->span_start, args->n_requests, mmla_lists_spans_most(args),
                     args->n_faults);
    }
}

/* A kernel that may overlap its neighbours in the stream: it lets the next begin, and ends after the one
 * before. */
#define KERNEL(name, threads, blocks, body)                                     \
    MMLA_KERNEL_BOUNDS(mmla_lists_##name, mmla_lists_params, threads, blocks) { \
        gpu_let_next_begin();                                                   \
        body;                                                                   \
        gpu_wait_for_before();                                                  \
    }
#define ROW_KERNELS(name, kind)                                     \
    KERNEL(name##_narrow, NARROW_THREADS, 8, narrow_body(&p, kind)) \
    KERNEL(name##_wide, WIDE_THREADS, 4, wide_body(&p, kind))
ROW_KERNELS(window, MMLA_LIST_WINDOW)
ROW_KERNELS(draft, MMLA_LIST_DRAFT)
ROW_KERNELS(compressed, MMLA_LIST_COMPRESSED)
ROW_KERNELS(combined, MMLA_LIST_COMBINED)
KERNEL(compressed_slots, SLOT_THREADS, 8, slot_body(&p, MMLA_LIST_COMPRESSED_SLOTS))
KERNEL(ring_slots, SLOT_THREADS, 8, slot_body(&p, MMLA_LIST_RING_SLOTS))
KERNEL(image_spans, NARROW_THREADS, 8, image_body(&p))
#undef ROW_KERNELS
#undef KERNEL
