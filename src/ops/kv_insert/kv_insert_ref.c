/* kv_insert_ref.c - the definition: row after row, through the scalar functions of src/num and the
 * scalar encoder. */
#include "kv/record.h"
#include "num/bf16.h"
#include "num/norm.h"
#include "num/rope.h"
#include "ops/kv_insert/kv_insert.h"

static void insert(const mmla_kv_insert_problem *p,
                   const mmla_kv_insert_args *args,
                   const uint16_t *row,
                   const float *cos_sin,
                   uint8_t *data,
                   uint8_t *scale) {
    float x[MMLA_LATENT_DIM];
    for (int i = 0; i < p->dims; i++) {
        x[i] = mmla_bf16_to_f32(row[i]);
    }
    if (p->desc.norm) {
        mmla_norm_rms(x, args->norm_weight, p->dims, p->desc.norm_eps);
    }
    float *rope = x + p->dims - MMLA_ROPE_DIM;
    for (int i = 0; i < MMLA_ROPE_DIM / 2; i++) {
        mmla_rope_rotate(cos_sin[i], cos_sin[MMLA_ROPE_DIM / 2 + i], &rope[2 * i],
                         &rope[2 * i + 1]);
    }
    for (int i = 0; i < MMLA_ROPE_DIM; i++) {
        rope[i] = mmla_bf16_round(rope[i]);
    }
    mmla_kv_record_encode(p->cache.format, x, p->desc.scale_floor == MMLA_SCALE_FLOOR_SCALE, data,
                          scale);
}

mmla_status mmla_kv_insert_reference(const mmla_kv_insert_problem *p,
                                     const mmla_kv_insert_args *args,
                                     void *workspace,
                                     void *stream) {
    (void)workspace;
    (void)stream;
    uint8_t *cache = args->cache;
    for (int64_t t = 0; t < args->n_slots; t++) {
        const mmla_kv_insert_place place = mmla_kv_insert_place_get(p, args, t);
        if (place.slot >= 0) {
            insert(p, args, args->rows + t * p->desc.row_stride,
                   args->cos_sin + place.position * MMLA_ROPE_DIM,
                   cache + mmla_kv_data_offset(&p->cache, place.slot),
                   cache + mmla_kv_scale_offset(&p->cache, place.slot));
        }
    }
    return mmla_kv_insert_report(p, args);
}
