/* weights_portable.c - the five layouts on the CPU. Every map moves whole chunks, so each is a loop
 * of copies; the maps themselves are those that attention reads and writes with.
 */
#include <string.h>

#include "base/checked.h"
#include "base/parallel.h"
#include "kv/attend_output.h"
#include "ops/weights/weights.h"

enum {
    UNIT_ROWS = 64,
    Q_CHUNK_DIM = 16 /* dims of a head that stay together in the fused order of q */
};

struct job {
    const mmla_weights_problem *p;
    const mmla_weights_args *args;
};

/* Row `row` of wq_b, which is dim x of head h, to its place in the fused order. */
static void move_wq_b_row(const struct job *job, int64_t row) {
    const mmla_weights_desc *d = &job->p->desc;
    const mmla_weights_args *a = job->args;
    const int32_t h = (int32_t)(row / MMLA_LATENT_DIM), x = (int32_t)(row % MMLA_LATENT_DIM);
    const int64_t place = mmla_q_index(MMLA_Q_FUSED, d->n_heads, h, x);
    memcpy((uint8_t *)a->out + place * d->cols, (const uint8_t *)a->in + row * d->cols,
           (size_t)d->cols);
    if (a->scale_in != NULL) {
        memcpy(a->scale_out + place * d->scale_cols, a->scale_in + row * d->scale_cols,
               (size_t)d->scale_cols);
    }
}

/* The columns of one row of wo_a, chunk by chunk; a chunk's scale moves with it. */
static void move_wo_a_row(const struct job *job, int64_t row) {
    const mmla_weights_args *a = job->args;
    const uint8_t *in = (const uint8_t *)a->in + row * MMLA_GROUP_DIM;
    uint8_t *out = (uint8_t *)a->out + row * MMLA_GROUP_DIM;
    for (int32_t chunk = 0; chunk < MMLA_WEIGHTS_GROUP_SCALES; chunk++) {
        const int32_t column = chunk * MMLA_OUT_CHUNK_DIM;
        const int64_t place =
            mmla_out_permuted_index(column / MMLA_LATENT_DIM, column % MMLA_LATENT_DIM);
        memcpy(out + place, in + column, MMLA_OUT_CHUNK_DIM);
        if (a->scale_in != NULL) {
            a->scale_out[row * MMLA_WEIGHTS_GROUP_SCALES + place / MMLA_OUT_CHUNK_DIM] =
                a->scale_in[row * MMLA_WEIGHTS_GROUP_SCALES + chunk];
        }
    }
}

static void expand_scale_row(const struct job *job, int64_t row) {
    const int64_t cols = job->p->desc.scale_cols;
    memcpy(job->args->scale_out + row * cols,
           job->args->scale_in + row / MMLA_WEIGHTS_BLOCK_ROWS * cols, (size_t)cols);
}

/* One token's q, to the fused order or back from it. */
static void move_q_row(const struct job *job, int64_t row, bool to_fused) {
    const mmla_weights_desc *d = &job->p->desc;
    const uint16_t *in = (const uint16_t *)job->args->in + row * d->cols;
    uint16_t *out = (uint16_t *)job->args->out + row * d->cols;
    for (int32_t h = 0; h < d->n_heads; h++) {
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x += Q_CHUNK_DIM) {
            const int64_t standard = mmla_q_index(MMLA_Q_STANDARD, d->n_heads, h, x);
            const int64_t fused = mmla_q_index(MMLA_Q_FUSED, d->n_heads, h, x);
            memcpy(out + (to_fused ? fused : standard), in + (to_fused ? standard : fused),
                   Q_CHUNK_DIM * sizeof *in);
        }
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
            move_q_row(job, row, true);
            break;
        case MMLA_WEIGHTS_Q_TO_STANDARD:
            move_q_row(job, row, false);
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
