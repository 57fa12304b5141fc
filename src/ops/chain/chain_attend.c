/* chain_attend.c - the second step: rows to bf16, scores, softmax, weighted sum, result to bf16.
 *
 *     listed records --dequantise--> rows bf16 [n, 512]
 *     q . rows ---------------------> scores [8, n]      one group of heads at a time
 *     softmax ----------------------> scores [8, n]      e = exp(s - m), in place
 *     scores . rows / (z + sink) ---> o bf16 [T, H, 512]
 *
 * Plain loops over whole buffers, in fp32, with no instruction set named: the compiler vectorises
 * them for whatever it builds for. Every sum has a fixed order.
 */
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "num/bf16.h"
#include "num/vec.h"
#include "kv/attend_output.h"
#include "kv/vec_record.h"
#include "ops/chain/chain.h"

enum { D = MMLA_LATENT_DIM, GROUP = MMLA_HEADS_PER_GROUP, PARTS = 16, ROWS_A_UNIT = 16, KEYS = 4 };

struct job {
    const mmla_attend_problem *p;
    const mmla_chain_layout *layout;
    const mmla_attend_args *args;
    void *workspace;
    const uint16_t *q;
    uint16_t *o;
};

/* One token's keys, dequantised. */
struct rows {
    const struct job *job;
    int64_t token;
    int64_t n;
    const mmla_key *keys;
    uint16_t *values; /* [n, 512] */
};

/* Lists the valid keys of a token in a thread's scratch; their rows come later. */
static struct rows find_rows(const struct job *job, int64_t token, int32_t thread) {
    mmla_key *keys = mmla_chain_keys(job->layout, job->workspace, thread);
    mmla_key_cursor cursor = {0};
    int64_t n = 0, found;
    do {
        const int64_t room = job->layout->max_keys - n;
        const int32_t at_most = room < INT32_MAX ? (int32_t)room : INT32_MAX;
        found = mmla_keys_next(job->p, job->args, token, &cursor, keys + n, at_most);
        n += found;
    } while (found > 0);
    return (struct rows){job, token, n, keys, mmla_chain_rows(job->layout, job->workspace, thread)};
}

static void dequantise(const struct rows *rows, int64_t first, int64_t end) {
    for (int64_t j = first; j < end; j++) {
        float row[D];
        vec_key_decode(rows->keys[j], row);
        for (int x = 0; x < D; x++) {
            rows->values[j * D + x] = mmla_bf16_from_f32(row[x]);
        }
    }
}

static void row_to_f32(const uint16_t *codes, float *row) {
    for (int x = 0; x < D; x++) {
        row[x] = mmla_bf16_to_f32(codes[x]);
    }
}

/* 16 sums side by side, joined in pairs: an order the compiler may vectorise as it is written. */
static float dot(const float *a, const float *b) {
    float part[PARTS] = {0};
    for (int x = 0; x < D; x += PARTS) {
        for (int i = 0; i < PARTS; i++) {
            part[i] += a[x + i] * b[x + i];
        }
    }
    for (int n = PARTS / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            part[i] += part[i + n];
        }
    }
    return part[0];
}

/* The factor of a head's logits: the scale, and with q_norm that of the head's q before rotation.
 */
static float logit_scale(const struct job *job, int64_t token, int32_t h) {
    const mmla_attend_desc *d = &job->p->desc;
    if (!d->q_norm) {
        return d->scale;
    }
    const uint16_t *q = job->args->q + token * d->q_token_stride;
    float x[D];
    for (int32_t i = 0; i < D; i++) {
        x[i] = mmla_bf16_to_f32(q[mmla_q_index(d->q_layout, d->n_heads, h, i)]);
    }
    return d->scale / sqrtf(dot(x, x) / (float)D + d->q_norm_eps);
}

/* Scores to exp(s - m) in place. A NaN score is no maximum, but reaches z. */
static void softmax(float *scores, int64_t n, float *m, float *z) {
    *m = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        *m = scores[j] > *m ? scores[j] : *m;
    }
    const float shift = *m == -INFINITY ? 0.0f : *m;
    *z = 0.0f;
    for (int64_t j = 0; j < n; j++) {
        scores[j] = expf(scores[j] - shift);
        *z += scores[j];
    }
}

/* What softmax left of head h of a token: lse, max_logits, and the factor of its weighted sum. */
static float finish_softmax(const struct job *job, int64_t token, int32_t h, float m, float z) {
    const mmla_attend_args *args = job->args;
    const int64_t index = token * job->p->desc.n_heads + h;
    const float shift = m == -INFINITY ? 0.0f : m;
    if (args->lse != NULL) {
        args->lse[index] = z == 0.0f ? INFINITY : shift + logf(z);
    }
    if (args->max_logits != NULL) {
        args->max_logits[index] = isnan(z) ? NAN : m;
    }
    if (z == 0.0f) {
        return 0.0f;
    }
    return 1.0f / (z + (args->sink != NULL ? expf(args->sink[h] - shift) : 0.0f));
}

/* o += e[k] * values[k], four rows to one sweep over o where there are four: o is read and written
 * for every sweep, which otherwise costs more than the arithmetic. */
static void add_rows(float *o, const float *e, float (*values)[D], int n_keys) {
    if (n_keys == KEYS) {
        for (int x = 0; x < D; x++) {
            o[x] += (e[0] * values[0][x] + e[1] * values[1][x]) +
                    (e[2] * values[2][x] + e[3] * values[3][x]);
        }
        return;
    }
    for (int k = 0; k < n_keys; k++) {
        for (int x = 0; x < D; x++) {
            o[x] += e[k] * values[k][x];
        }
    }
}

/* Eight heads of a token over its rows. scores is [8, n]. */
static void attend_group(const struct rows *rows, int32_t first_head, float *scores) {
    const struct job *job = rows->job;
    const int64_t n = rows->n;
    const int64_t offset = (rows->token * job->p->desc.n_heads + first_head) * D;
    float q[GROUP][D], o[GROUP][D], row[D], scale[GROUP];
    for (int h = 0; h < GROUP; h++) {
        row_to_f32(job->q + offset + h * D, q[h]);
        scale[h] = logit_scale(job, rows->token, first_head + h);
    }
    for (int64_t j = 0; j < n; j++) {
        row_to_f32(rows->values + j * D, row);
        for (int h = 0; h < GROUP; h++) {
            scores[h * n + j] = scale[h] * dot(q[h], row);
        }
    }
    for (int h = 0; h < GROUP; h++) {
        float m, z;
        softmax(scores + h * n, n, &m, &z);
        /* Keys whose scores are all -inf are not "no key". */
        scale[h] =
            finish_softmax(job, rows->token, first_head + h, m, n > 0 && z == 0.0f ? NAN : z);
    }
    memset(o, 0, sizeof o);
    for (int64_t j = 0; j < n; j += KEYS) {
        float values[KEYS][D];
        const int n_keys = n - j < KEYS ? (int)(n - j) : KEYS;
        for (int k = 0; k < n_keys; k++) {
            row_to_f32(rows->values + (j + k) * D, values[k]);
        }
        for (int h = 0; h < GROUP; h++) {
            add_rows(o[h], scores + h * n + j, values, n_keys);
        }
    }
    for (int h = 0; h < GROUP; h++) {
        for (int x = 0; x < D; x++) {
            job->o[offset + h * D + x] = mmla_bf16_from_f32(o[h][x] * scale[h]);
        }
    }
}

/* NaN in every result of a token whose position is not in the table. */
static void store_nan(const struct job *job, int64_t token) {
    const int64_t n_heads = job->p->desc.n_heads;
    for (int64_t i = token * n_heads * D; i < (token + 1) * n_heads * D; i++) {
        job->o[i] = MMLA_BF16_NAN;
    }
    mmla_attend_store_nan_logits(job->p, job->args, token, 0, job->p->desc.n_heads);
}

/* A whole token on one thread. */
static void attend_token(void *arg, int64_t token, int32_t thread) {
    const struct job *job = arg;
    if (!mmla_attend_position_is_legal(job->p, job->args, token)) {
        store_nan(job, token);
        return;
    }
    const struct rows rows = find_rows(job, token, thread);
    dequantise(&rows, 0, rows.n);
    for (int32_t h = 0; h < job->p->desc.n_heads; h += GROUP) {
        attend_group(&rows, h, mmla_chain_scores(job->layout, job->workspace, thread));
    }
}

static void dequantise_unit(void *arg, int64_t unit, int32_t thread) {
    (void)thread;
    const struct rows *rows = arg;
    const int64_t end = (unit + 1) * ROWS_A_UNIT;
    dequantise(rows, unit * ROWS_A_UNIT, end < rows->n ? end : rows->n);
}

static void attend_group_unit(void *arg, int64_t unit, int32_t thread) {
    const struct rows *rows = arg;
    attend_group(rows, (int32_t)unit * GROUP,
                 mmla_chain_scores(rows->job->layout, rows->job->workspace, thread));
}

/* Tokens side by side when there are enough of them; else the threads share the rows, then the
 * heads, of one token after the other. Neither changes the order of any sum. */
void mmla_chain_attend(const mmla_attend_problem *p,
                       const mmla_chain_layout *layout,
                       const mmla_attend_args *args,
                       void *workspace) {
    struct job job = {p,
                      layout,
                      args,
                      workspace,
                      mmla_chain_q(layout, workspace),
                      mmla_chain_o(layout, workspace)};
    if (args->n_tokens >= p->n_threads) {
        mmla_parallel_for(p->n_threads, args->n_tokens, attend_token, &job);
        return;
    }
    for (int64_t token = 0; token < args->n_tokens; token++) {
        if (!mmla_attend_position_is_legal(p, args, token)) {
            store_nan(&job, token);
            continue;
        }
        struct rows rows = find_rows(&job, token, 0);
        mmla_parallel_for(p->n_threads, (rows.n + ROWS_A_UNIT - 1) / ROWS_A_UNIT, dequantise_unit,
                          &rows);
        mmla_parallel_for(p->n_threads, p->desc.n_heads / GROUP, attend_group_unit, &rows);
    }
}
