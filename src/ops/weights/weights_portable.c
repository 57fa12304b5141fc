/* weights_portable.c - the five layouts on the CPU. Every map moves whole chunks, so each is a loop
 * of copies; the maps are in weights_map.h.
 */
#include <string.h>

#include "base/parallel.h"
#include "ops/weights/weights_map.h"

enum {
    UNIT_ROWS = 64,
    Q_CHUNK_DIM = 16 /* dims of a head that stay together in the fused order of q */
};

struct job {
    const mmla_weights_problem *p;
    const mmla_weights_args *args;
};

static void copy(void *out, int64_t to, const void *in, int64_t from, int64_t bytes) {
    memcpy((uint8_t *)out + to * bytes, (const uint8_t *)in + from * bytes, (size_t)bytes);
}

/* A row of wq_b, with its scales. */
static void move_wq_b_row(const struct job *job, int64_t row) {
    const mmla_weights_desc *d = &job->p->desc;
    const mmla_weights_args *a = job->args;
    const mmla_weights_move move = mmla_weights_row_move(d->kind, d->n_heads, row);
    copy(a->out, move.to, a->in, move.from, d->cols);
    if (a->scale_in != NULL) {
        copy(a->scale_out, move.to, a->scale_in, move.from, d->scale_cols);
    }
}

static void expand_scale_row(const struct job *job, int64_t row) {
    const mmla_weights_desc *d = &job->p->desc;
    const mmla_weights_move move = mmla_weights_row_move(d->kind, 0, row);
    copy(job->args->scale_out, move.to, job->args->scale_in, move.from, d->scale_cols);
}

/* The columns of one row of wo_a, chunk by chunk; a chunk's scale moves with it. */
static void move_wo_a_row(const struct job *job, int64_t row) {
    const mmla_weights_args *a = job->args;
    const uint8_t *in = (const uint8_t *)a->in + row * MMLA_GROUP_DIM;
    uint8_t *out = (uint8_t *)a->out + row * MMLA_GROUP_DIM;
    const int64_t first_scale = row * MMLA_WEIGHTS_GROUP_SCALES;
    for (int32_t column = 0; column < MMLA_GROUP_DIM; column += MMLA_OUT_CHUNK_DIM) {
        const mmla_weights_move move =
            mmla_weights_element_move(MMLA_WEIGHTS_PERMUTE_WO_A, MMLA_HEADS_PER_GROUP, column);
        memcpy(out + move.to, in + move.from, MMLA_OUT_CHUNK_DIM);
        if (a->scale_in != NULL) {
            a->scale_out[first_scale + move.to / MMLA_OUT_CHUNK_DIM] =
                a->scale_in[first_scale + move.from / MMLA_OUT_CHUNK_DIM];
        }
    }
}

/* One token's q, to the fused order or back from it. */
static void move_q_row(const struct job *job, int64_t row) {
    const mmla_weights_desc *d = &job->p->desc;
    const uint16_t *in = (const uint16_t *)job->args->in + row * d->cols;
    uint16_t *out = (uint16_t *)job->args->out + row * d->cols;
    for (int32_t element = 0; element < d->cols; element += Q_CHUNK_DIM) {
        const mmla_weights_move move = mmla_weights_element_move(d->kind, d->n_heads, element);
        memcpy(out + move.to, in + move.from, Q_CHUNK_DIM * sizeof *in);
    }
}

static void move_unit(void *context, int64_t unit, int32_t thread) {
    (void)thread;
    const struct job *job = context;
    const int64_t last = mmla_min_i64((unit + 1) * UNIT_ROWS, job->p->desc.rows);
    for (int64_t row = unit * UNIT_ROWS; row < last; row++) {
        switch (job->p->desc.kind) {
        case MMLA_WEIGHTS_PERMUTE_WQ_B:
            move_wq_b_row(job, row);
            break;
        case MMLA_WEIGHTS_PERMUTE_WO_A:
            move_wo_a_row(job, row);
            break;
        case MMLA_WEIGHTS_EXPAND_SCALES:
            expand_scale_row(job, row);
            break;
        case MMLA_WEIGHTS_Q_TO_FUSED:
        case MMLA_WEIGHTS_Q_TO_STANDARD:
            move_q_row(job, row);
            break;
        }
    }
}

mmla_status
mmla_weights_portable(const mmla_weights_problem *p, const mmla_weights_args *args, void *stream) {
    (void)stream;
    struct job job = {p, args};
    mmla_parallel_for(p->n_threads, (p->desc.rows + UNIT_ROWS - 1) / UNIT_ROWS, move_unit, &job);
    return MMLA_OK;
}
