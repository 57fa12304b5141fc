/* kv_gather_ref.c - the definition: row by row, through the scalar decoder. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "kv/record.h"
#include "num/bf16.h"
#include "ops/kv_gather/kv_gather.h"

mmla_kv_gather_span mmla_kv_gather_span_get(const mmla_kv_gather_problem *p,
                                            const mmla_kv_gather_args *args,
                                            int64_t r) {
    const int64_t seq = mmla_max_i64(args->seq_lens[r], 0);
    const int64_t wanted =
        args->gather_lens == NULL ? seq : mmla_clamp_i64(args->gather_lens[r], 0, seq);
    const int64_t room = p->desc.rows - p->desc.offset;
    return (mmla_kv_gather_span){seq - wanted, mmla_min_i64(wanted, room), wanted <= room};
}

int64_t mmla_kv_gather_slot(const mmla_kv_gather_problem *p,
                            const mmla_kv_gather_args *args,
                            int64_t r,
                            int64_t pos) {
    const int64_t place = pos / p->cache.page_tokens;
    if (place >= p->desc.table_width) {
        return -1;
    }
    const int64_t page = args->block_table[r * p->desc.table_stride + place];
    if (page < 0 || page >= p->desc.cache.n_pages) {
        return -1;
    }
    return page * p->cache.page_tokens + pos % p->cache.page_tokens;
}

mmla_status mmla_kv_gather_reference(const mmla_kv_gather_problem *p,
                                     const mmla_kv_gather_args *args,
                                     void *stream) {
    (void)stream;
    mmla_status status = MMLA_OK;
    int32_t n_faults = 0;
    const uint8_t *cache = args->cache;
    for (int64_t r = 0; r < args->n_requests; r++) {
        const mmla_kv_gather_span span = mmla_kv_gather_span_get(p, args, r);
        if (!span.fits && n_faults++ == 0) {
            status = mmla_error_set(args->error, MMLA_E_INDEX, "gather_lens",
                                    "of request %lld does not fit the %lld rows past offset",
                                    (long long)r, (long long)(p->desc.rows - p->desc.offset));
        }
        for (int64_t i = 0; i < span.n; i++) {
            float x[MMLA_LATENT_DIM] = {0};
            uint16_t *out =
                args->out + (r * p->desc.rows + p->desc.offset + i) * p->desc.row_stride;
            const int64_t slot = mmla_kv_gather_slot(p, args, r, span.first + i);
            if (slot >= 0) {
                mmla_kv_record_decode(p->cache.format, cache + mmla_kv_data_offset(&p->cache, slot),
                                      cache + mmla_kv_scale_offset(&p->cache, slot), x);
            }
            for (int d = 0; d < MMLA_LATENT_DIM; d++) {
                out[d] = mmla_bf16_from_f32(x[d]);
            }
        }
    }
    if (n_faults > 0 && args->n_faults != NULL) {
        *args->n_faults += n_faults;
    }
    return status;
}
