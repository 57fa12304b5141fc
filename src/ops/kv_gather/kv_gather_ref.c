/* kv_gather_ref.c - the definition: row by row, through the scalar decoder. */
#include "kv/record.h"
#include "num/bits.h"
#include "ops/kv_gather/kv_gather.h"

static void gather(const mmla_kv_gather_problem *p,
                   const mmla_kv_gather_args *args,
                   int64_t slot,
                   uint16_t *out) {
    const uint8_t *cache = args->cache;
    float x[MMLA_LATENT_DIM] = {0}; /* what a position without a record gives */
    if (slot >= 0) {
        mmla_kv_record_decode(p->cache.format, cache + mmla_kv_data_offset(&p->cache, slot),
                              cache + mmla_kv_scale_offset(&p->cache, slot), x);
    }
    for (int i = 0; i < MMLA_LATENT_DIM; i++) {
        out[i] = (uint16_t)(mmla_bits_of_f32(x[i]) >> 16); /* x is bf16 already */
    }
}

mmla_status mmla_kv_gather_reference(const mmla_kv_gather_problem *p,
                                     const mmla_kv_gather_args *args,
                                     void *stream) {
    (void)stream;
    for (int64_t r = 0; r < args->n_requests; r++) {
        const mmla_kv_gather_span span = mmla_kv_gather_span_get(p, args, r);
        uint16_t *out = args->out + (r * p->desc.rows + p->desc.offset) * p->desc.row_stride;
        for (int64_t i = 0; i < span.n; i++) {
            gather(p, args, mmla_kv_gather_slot(p, args, r, span.first + i),
                   out + i * p->desc.row_stride);
        }
    }
    return mmla_kv_gather_report(p, args);
}
