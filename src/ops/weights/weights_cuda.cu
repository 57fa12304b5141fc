/* weights_cuda.cu - the five layouts on a GPU: bytes that move.
 *
 * PROBLEM    rows by mmla_weights_row_move (wq_b, its scales, expanded scales), or chunks of 32 bytes
 *            inside rows by mmla_weights_element_move (wo_a with its scales, q)
 *
 * BOUND      bytes, each read once and written once; of expanded scales a 32nd is read.
 *            wq_b of 128 heads and 1536 inputs: 2 * 101 MB, 42 us at 4.8 TB/s; with 7168: 196 us.
 *            q of 256 tokens and 64 heads: 2 * 17 MB, 7 us.
 *
 * MOVEMENT   in --16 B a thread, 4 under way--> registers --> out
 *            Rows: both sides in order. Chunks: one side in order, and the other in runs of 32 B, a
 *            sector of memory, whose neighbours the same block moves: nothing is fetched twice, and
 *            staging through shared memory would save nothing but tags.
 *
 * TILES      256 threads; an item of a block is 4 units a thread: 16 KB
 *            rows:   2^n threads a row, 2^(8-n) rows an item; rows beyond 16 KB in parts
 *            chunks: 4 steps of 256 neighbouring units, each inside one row
 *
 * BUDGET     no shared memory; 16 registers of data a thread; at least 5 blocks a multiprocessor, which
 *            have 80 KB under way, where 30 would do (4.8 TB/s for 0.8 us, over 132)
 *
 * NUMERICS   none
 *
 * LIMITS     Pointers have the alignment of their elements, rows of wq_b and of scales any length.
 *            Where 16 B do not divide what has to be moved it goes by elements, which is slow and
 *            right.
 *            Items are strided over the grid, since there may be more of them than blocks.
 */
#include "ops/weights/weights_cuda.h"

enum { THREADS = MMLA_WEIGHTS_THREADS, UNITS = MMLA_WEIGHTS_UNITS };
static_assert(MMLA_OUT_CHUNK_DIM == 32 && MMLA_GROUP_DIM % THREADS == 0, "steps inside a row");

static __device__ __forceinline__ uint4 unit_load(const uint8_t *at, const int bytes) {
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (bytes == 16) {
        unit = *(const uint4 *)at;
    } else if (bytes == 2) {
        unit.x = *(const uint16_t *)at;
    } else {
        unit.x = *at;
    }
    return unit;
}

static __device__ __forceinline__ void unit_store(uint8_t *at, uint4 unit, const int bytes) {
    if (bytes == 16) {
        *(uint4 *)at = unit;
    } else if (bytes == 2) {
        *(uint16_t *)at = (uint16_t)unit.x;
    } else {
        *at = (uint8_t)unit.x;
    }
}

static __device__ __forceinline__ void rows_body(const mmla_weights_rows *p, const int bytes) {
    const mmla_weights_tiling *t = &p->tiling;
    for (int64_t item = blockIdx.x; item < t->n_items; item += gridDim.x) {
        const mmla_weights_spot spot = mmla_weights_tiling_spot(t, item, (int32_t)threadIdx.x);
        if (spot.row >= t->rows || spot.unit >= t->row_units) {
            continue;
        }
        const mmla_weights_move move = mmla_weights_row_move(p->kind, p->n_heads, spot.row);
        const uint8_t *in = p->in + (move.from * t->row_units + spot.unit) * bytes;
        uint8_t *out = p->out + (move.to * t->row_units + spot.unit) * bytes;
        const int64_t n_units = t->row_units - spot.unit; /* from the thread's first on */
        uint4 unit[UNITS];
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int32_t u = k << t->row_threads_log2;
            if (u < n_units) {
                unit[k] = unit_load(in + u * bytes, bytes);
            }
        }
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int32_t u = k << t->row_threads_log2;
            if (u < n_units) {
                unit_store(out + u * bytes, unit[k], bytes);
            }
        }
    }
}

/* element_bytes: of the row's elements. A chunk's scale goes with its first unit. */
static __device__ __forceinline__ void chunks_body(const mmla_weights_chunks *p,
                                                   const mmla_weights_kind kind,
                                                   const int bytes,
                                                   const int element_bytes) {
    const int32_t unit_elements = bytes / element_bytes;
    const int32_t row_steps = p->cols / (THREADS * unit_elements);
    const int64_t n_items = mmla_weights_chunk_items(p->rows, p->cols / unit_elements);
    for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        int64_t row = item * UNITS / row_steps;
        int32_t step = (int32_t)(item * UNITS - row * row_steps);
        uint4 unit[UNITS];
        uint8_t scale[UNITS];
        int64_t to[UNITS], scale_to[UNITS]; /* -1: nothing to move */
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            to[k] = -1;
            scale_to[k] = -1;
            if (row < p->rows) {
                const int32_t element = (step * THREADS + (int32_t)threadIdx.x) * unit_elements;
                const mmla_weights_move move = mmla_weights_element_move(kind, p->n_heads, element);
                to[k] = row * p->cols + move.to;
                unit[k] = unit_load(p->in + (row * p->cols + move.from) * element_bytes, bytes);
                if (kind == MMLA_WEIGHTS_PERMUTE_WO_A && p->scale_in != NULL &&
                    element % MMLA_OUT_CHUNK_DIM == 0) {
                    const int64_t first = row * MMLA_WEIGHTS_GROUP_SCALES;
                    scale[k] = p->scale_in[first + move.from / MMLA_OUT_CHUNK_DIM];
                    scale_to[k] = first + move.to / MMLA_OUT_CHUNK_DIM;
                }
            }
            step++;
            if (step == row_steps) {
                step = 0;
                row++;
            }
        }
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            if (to[k] >= 0) {
                unit_store(p->out + to[k] * element_bytes, unit[k], bytes);
            }
            if (scale_to[k] >= 0) {
                p->scale_out[scale_to[k]] = scale[k];
            }
        }
    }
}

#define ROWS_KERNEL(bytes)                                                           \
    MMLA_KERNEL_BOUNDS(mmla_weights_rows_by##bytes, mmla_weights_rows, THREADS, 6) { \
        rows_body(&p, bytes);                                                        \
    }
ROWS_KERNEL(16)
ROWS_KERNEL(1)
#undef ROWS_KERNEL

#define CHUNKS_KERNEL(name, kind, bytes, element_bytes)                                    \
    MMLA_KERNEL_BOUNDS(mmla_weights_##name##_by##bytes, mmla_weights_chunks, THREADS, 5) { \
        chunks_body(&p, kind, bytes, element_bytes);                                       \
    }
CHUNKS_KERNEL(wo_a, MMLA_WEIGHTS_PERMUTE_WO_A, 16, 1)
CHUNKS_KERNEL(wo_a, MMLA_WEIGHTS_PERMUTE_WO_A, 1, 1)
CHUNKS_KERNEL(q_to_fused, MMLA_WEIGHTS_Q_TO_FUSED, 16, 2)
CHUNKS_KERNEL(q_to_fused, MMLA_WEIGHTS_Q_TO_FUSED, 2, 2)
CHUNKS_KERNEL(q_to_standard, MMLA_WEIGHTS_Q_TO_STANDARD, 16, 2)
CHUNKS_KERNEL(q_to_standard, MMLA_WEIGHTS_Q_TO_STANDARD, 2, 2)
#undef CHUNKS_KERNEL
