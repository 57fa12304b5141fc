#include "kv/attend_problem.h"

#include "base/checked.h"
#include "base/error.h"

/* A length read from an array that may be absent: the whole width then, and never outside it. */
static int32_t length_of(const int32_t *lens, int64_t token, int32_t width) {
    return lens == NULL ? width : (int32_t)mmla_clamp_i64(lens[token], 0, width);
}

/* Keys of one list, from `place` on. */
static int32_t next_of_cache(const mmla_kv_view *view,
                             const uint8_t *cache,
                             const int32_t *list,
                             int32_t len,
                             int32_t *place,
                             mmla_key *keys,
                             int32_t max) {
    int32_t n = 0;
    int32_t i = *place;
    for (; i < len && n < max; i++) {
        if (mmla_kv_slot_is_legal(view, list[i])) {
            keys[n++] = (mmla_key){cache + mmla_kv_data_offset(view, list[i]),
                                   cache + mmla_kv_scale_offset(view, list[i]), view->format};
        }
    }
    *place = i;
    return n;
}

static int32_t next_of_rows(const mmla_attend_problem *p,
                            const mmla_attend_args *args,
                            const int32_t *list,
                            int32_t len,
                            int32_t *place,
                            mmla_key *keys,
                            int32_t max) {
    int32_t n = 0;
    int32_t i = *place;
    for (; i < len && n < max; i++) {
        if (list[i] >= 0 && list[i] < args->n_rows) {
            const uint16_t *row = args->kv + list[i] * p->desc.kv_row_stride;
            keys[n++] = (mmla_key){(const uint8_t *)row, NULL, MMLA_KV_NONE};
        }
    }
    *place = i;
    return n;
}

int32_t mmla_keys_next(const mmla_attend_problem *p,
                       const mmla_attend_args *args,
                       int64_t token,
                       mmla_key_cursor *cursor,
                       mmla_key *keys,
                       int32_t max) {
    const mmla_attend_desc *d = &p->desc;
    int32_t n = 0;
    while (cursor->list < 2 && n < max) {
        int32_t len;
        if (cursor->list == 0) {
            const int32_t *list = args->list + token * d->list_stride;
            len = length_of(args->lens, token, d->list_width);
            n += d->kind == MMLA_ATTEND_ROWS
                     ? next_of_rows(p, args, list, len, &cursor->place, keys + n, max - n)
                     : next_of_cache(&p->window, args->window_cache, list, len, &cursor->place,
                                     keys + n, max - n);
        } else if (p->compressed.format == MMLA_KV_NONE) {
            len = 0;
        } else {
            len = length_of(args->compressed_lens, token, d->compressed_width);
            n += next_of_cache(&p->compressed, args->compressed_cache,
                               args->compressed_list + token * d->compressed_stride, len,
                               &cursor->place, keys + n, max - n);
        }
        if (cursor->place >= len) {
            *cursor = (mmla_key_cursor){cursor->list + 1, 0};
        }
    }
    return n;
}

mmla_status mmla_attend_report_positions(const mmla_attend_problem *p,
                                         const mmla_attend_args *args) {
    int32_t n_faults = 0;
    mmla_status status = MMLA_OK;
    for (int64_t t = 0; t < args->n_tokens; t++) {
        if (!mmla_attend_position_is_legal(p, args, t) && n_faults++ == 0) {
            status = mmla_error_set(args->error, MMLA_E_INDEX, "positions",
                                    "of token %lld is %d, must be 0 .. %lld", (long long)t,
                                    (int)args->positions[t], (long long)p->desc.rope_positions - 1);
        }
    }
    if (n_faults > 0 && args->n_faults != NULL) {
        *args->n_faults += n_faults;
    }
    return status;
}

mmla_out_scale_strides
mmla_out_scale_strides_get(int64_t word_stride, int64_t group_stride, int64_t n_tokens) {
    const int64_t word = word_stride != 0 ? word_stride : mmla_round_up_i64(n_tokens, 4);
    const int64_t words = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4;
    return (mmla_out_scale_strides){word, group_stride != 0 ? group_stride : words * word};
}
