/* weights_map.h - where every byte of the layouts goes, for the CPU and for a GPU.
 *
 * The maps are those that attention reads q and writes its result with (mmla_q_index,
 * mmla_out_permuted_index); here they become moves from an input to an output. Below them is how a
 * GPU shares rows out to threads, in the same file because a test on the CPU walks both.
 */
#ifndef MMLA_OPS_WEIGHTS_MAP_H
#define MMLA_OPS_WEIGHTS_MAP_H

#include "base/checked.h"
#include "kv/attend_output.h"
#include "ops/weights/weights.h"

typedef struct mmla_weights_move {
    int64_t from;
    int64_t to;
} mmla_weights_move;

/* PERMUTE_WQ_B: row h * 512 + x of the input, and the row of the output that it becomes.
 * EXPAND_SCALES: the row of the input that row `row` of the output is. */
MMLA_INLINE mmla_weights_move mmla_weights_row_move(mmla_weights_kind kind,
                                                    int32_t n_heads,
                                                    int64_t row) {
    mmla_weights_move move = {row, row};
    if (kind == MMLA_WEIGHTS_EXPAND_SCALES) {
        move.from = row / MMLA_WEIGHTS_BLOCK_ROWS;
    } else {
        move.to = mmla_q_index(MMLA_Q_FUSED, n_heads, (int32_t)(row / MMLA_LATENT_DIM),
                               (int32_t)(row % MMLA_LATENT_DIM));
    }
    return move;
}

/* The other kinds: element h * 512 + x of a row in its standard order. Elements move in chunks, of 32
 * in wo_a and of 16 in q. */
MMLA_INLINE mmla_weights_move mmla_weights_element_move(mmla_weights_kind kind,
                                                        int32_t n_heads,
                                                        int32_t element) {
    const int32_t h = element / MMLA_LATENT_DIM, x = element % MMLA_LATENT_DIM;
    mmla_weights_move move = {element, 0};
    if (kind == MMLA_WEIGHTS_PERMUTE_WO_A) {
        move.to = mmla_out_permuted_index(h, x);
    } else {
        move.to = mmla_q_index(MMLA_Q_FUSED, n_heads, h, x);
        if (kind == MMLA_WEIGHTS_Q_TO_STANDARD) {
            move.from = move.to;
            move.to = element;
        }
    }
    return move;
}

/* --- threads of a GPU ------------------------------------------------------------------------- */

enum {
    MMLA_WEIGHTS_THREADS = 256, /* of a block */
    MMLA_WEIGHTS_UNITS = 4      /* that a thread moves at once; a unit is 16 bytes, or an element */
};

/* Rows that move as a whole: neighbouring threads share a row, and a block takes as many rows as it
 * has threads for; a row that is too long for a block is cut in parts. A block's work is an item:
 *
 *     item = group of rows * n_parts + part
 */
typedef struct mmla_weights_tiling {
    int64_t rows;
    int64_t row_units;
    int64_t n_parts;
    int64_t n_items;
    int32_t row_threads_log2; /* threads of a row */
} mmla_weights_tiling;

MMLA_INLINE mmla_weights_tiling mmla_weights_tiling_get(int64_t rows, int64_t row_units) {
    mmla_weights_tiling t = {rows, row_units, 1, 0, 0};
    int64_t row_threads = 1;
    while (row_threads < MMLA_WEIGHTS_THREADS && row_threads * MMLA_WEIGHTS_UNITS < row_units) {
        row_threads *= 2;
        t.row_threads_log2++;
    }
    const int64_t part_units = row_threads * MMLA_WEIGHTS_UNITS;
    const int64_t item_rows = MMLA_WEIGHTS_THREADS / row_threads;
    t.n_parts = (row_units + part_units - 1) / part_units;
    t.n_items = (rows + item_rows - 1) / item_rows * t.n_parts;
    return t;
}

/* Where a thread of an item begins: its row, none at or past rows, and the first of its UNITS units
 * there; the others follow row_threads apart, none at or past row_units. */
typedef struct mmla_weights_spot {
    int64_t row;
    int64_t unit;
} mmla_weights_spot;

MMLA_INLINE mmla_weights_spot mmla_weights_tiling_spot(const mmla_weights_tiling *t,
                                                       int64_t item,
                                                       int32_t thread) {
    const int64_t group = t->n_parts == 1 ? item : item / t->n_parts;
    const int64_t part = item - group * t->n_parts;
    const int32_t row_threads = 1 << t->row_threads_log2;
    mmla_weights_spot spot;
    spot.row = group * (MMLA_WEIGHTS_THREADS / row_threads) + (thread >> t->row_threads_log2);
    spot.unit = part * MMLA_WEIGHTS_UNITS * row_threads + (thread & (row_threads - 1));
    return spot;
}

#endif
