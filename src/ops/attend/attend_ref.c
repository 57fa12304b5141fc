/* attend_ref.c - the definition: double accumulators, two passes over the keys of a token.
 * Everything else is measured against this file. */
#include <math.h>

#include "base/parallel.h"
#include "kv/record.h"
#include "num/bf16.h"
#include "num/rope.h"
#include "ops/attend/attend.h"

enum { NOPE_DIM = MMLA_LATENT_DIM - MMLA_ROPE_DIM, PAIRS = MMLA_ROPE_DIM / 2 };

static void decode(mmla_key key, float *row) {
    if (key.format != MMLA_KV_NONE) {
        mmla_kv_record_decode(key.format, key.data, key.scale, row);
        return;
    }
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        row[x] = mmla_bf16_to_f32(((const uint16_t *)(const void *)key.data)[x]);
    }
}

/* Head h of a token's q, rotated and rounded to bf16; returns the factor of its logits, which is 1
 * without q_norm. */
static double load_q(const mmla_attend_problem *p,
                     const mmla_attend_args *args,
                     int64_t token,
                     int32_t h,
                     float *q) {
    const uint16_t *source = args->q + token * p->desc.q_token_stride;
    double sum = 0.0;
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        q[x] = mmla_bf16_to_f32(source[mmla_q_index(p->desc.q_layout, p->desc.n_heads, h, x)]);
        sum += (double)q[x] * (double)q[x];
    }
    const float *cos_sin = args->cos_sin + (int64_t)args->positions[token] * MMLA_ROPE_DIM;
    for (int32_t i = 0; i < PAIRS; i++) {
        float *pair = q + NOPE_DIM + 2 * i;
        mmla_rope_rotate(cos_sin[i], cos_sin[PAIRS + i], &pair[0], &pair[1]);
        pair[0] = mmla_bf16_round(pair[0]);
        pair[1] = mmla_bf16_round(pair[1]);
    }
    if (!p->desc.q_norm) {
        return 1.0;
    }
    return 1.0 / sqrt(sum / MMLA_LATENT_DIM + (double)p->desc.q_norm_eps);
}

static double dot(const float *a, const float *b) {
    double sum = 0.0;
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        sum += (double)a[x] * (double)b[x];
    }
    return sum;
}

/* 1 / (z + exp(sink - m)), 0 when there is nothing. */
static double inverse_denominator(double z, double m, const float *sink, int32_t h) {
    if (z == 0.0) {
        return 0.0;
    }
    return 1.0 / (z + (sink != NULL ? exp((double)sink[h] - m) : 0.0));
}

/* Heads of one group share the walk over the keys, so that a row is decoded once for all of them.
 */
struct head {
    float q[MMLA_LATENT_DIM];
    double scale;
    double m, z; /* maximum, and sum of exp(s - m) */
    double o[MMLA_LATENT_DIM];
};

enum { GROUP = MMLA_HEADS_PER_GROUP };

/* The result of a finished head. m is finite or, when a logit was, infinite. */
static void finish_head(const mmla_attend_problem *p,
                        const mmla_attend_args *args,
                        int64_t token,
                        int32_t h,
                        const struct head *head) {
    const double shift = head->m == -INFINITY ? 0.0 : head->m;
    const double inverse = inverse_denominator(head->z, shift, args->sink, h);
    const float *cos_sin = args->cos_sin + (int64_t)args->positions[token] * MMLA_ROPE_DIM;
    float result[MMLA_LATENT_DIM];
    for (int32_t x = 0; x < NOPE_DIM; x++) {
        result[x] = (float)(head->o[x] * inverse);
    }
    for (int32_t i = 0; i < PAIRS; i++) {
        const int32_t x = NOPE_DIM + 2 * i;
        const double c = (double)cos_sin[i], s = (double)cos_sin[PAIRS + i];
        const double even = head->o[x] * inverse, odd = head->o[x + 1] * inverse;
        result[x] = (float)(even * c + odd * s + 0.0); /* minus zero becomes zero */
        result[x + 1] = (float)(odd * c - even * s + 0.0);
    }
    mmla_attend_store_head(p, args, token, h, result, 1.0f);
    const int64_t index = token * p->desc.n_heads + h;
    if (args->lse != NULL) {
        args->lse[index] = head->z == 0.0 ? INFINITY : (float)(shift + log(head->z));
    }
    if (args->max_logits != NULL) {
        args->max_logits[index] = isnan(head->z) ? NAN : (float)head->m;
    }
}

struct job {
    const mmla_attend_problem *p;
    const mmla_attend_args *args;
};

/* One unit: eight heads of one token. */
static void attend_group(void *arg, int64_t unit, int32_t thread) {
    (void)thread;
    const mmla_attend_problem *p = ((struct job *)arg)->p;
    const mmla_attend_args *args = ((struct job *)arg)->args;
    const int64_t n_groups = p->desc.n_heads / GROUP, token = unit / n_groups;
    const int32_t first = (int32_t)(unit % n_groups) * GROUP;
    if (!mmla_attend_position_is_legal(p, args, token)) {
        mmla_attend_store_nan(p, args, token, first, GROUP);
        return;
    }
    struct head heads[GROUP] = {0};
    float row[MMLA_LATENT_DIM];
    mmla_key key;
    for (int32_t i = 0; i < GROUP; i++) {
        heads[i].scale = (double)p->desc.scale * load_q(p, args, token, first + i, heads[i].q);
        heads[i].m = -INFINITY;
    }
    for (mmla_key_cursor c = {0}; mmla_keys_next(p, args, token, &c, &key, 1) == 1;) {
        decode(key, row);
        for (struct head *head = heads; head < heads + GROUP; head++) {
            head->m = fmax(head->m, head->scale * dot(head->q, row)); /* ignores NaN; z does not */
        }
    }
    for (mmla_key_cursor c = {0}; mmla_keys_next(p, args, token, &c, &key, 1) == 1;) {
        decode(key, row);
        for (struct head *head = heads; head < heads + GROUP; head++) {
            const double shift = head->m == -INFINITY ? 0.0 : head->m;
            const double e = exp(head->scale * dot(head->q, row) - shift);
            head->z += e;
            for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
                head->o[x] += e * (double)row[x];
            }
        }
    }
    /* Keys whose scores are all -inf are not "no key". */
    mmla_key_cursor start = {0};
    const bool has_keys = mmla_keys_next(p, args, token, &start, &key, 1) == 1;
    for (int32_t i = 0; i < GROUP; i++) {
        heads[i].z = has_keys && heads[i].z == 0.0 ? (double)NAN : heads[i].z;
        finish_head(p, args, token, first + i, &heads[i]);
    }
}

size_t mmla_attend_reference_workspace_bytes(const mmla_attend_problem *p) {
    (void)p;
    return 0;
}

mmla_status mmla_attend_reference(const mmla_attend_problem *p,
                                  const mmla_attend_args *args,
                                  void *workspace,
                                  void *stream) {
    (void)workspace;
    (void)stream;
    struct job job = {p, args};
    mmla_parallel_for(p->n_threads, args->n_tokens * (p->desc.n_heads / GROUP), attend_group, &job);
    return mmla_attend_report_positions(p, args);
}
