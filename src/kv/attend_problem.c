#include "kv/attend_problem.h"

#include "base/checked.h"
#include "base/error.h"

/* A length read from an array that may be absent: the whole width then, and never outside it. */
static int32_t length_of(const int32_t *lens, int64_t token, int32_t width) {
    return lens == NULL ? width : (int32_t)mmla_clamp_i64(lens[token], 0, width);
}

mmla_kv_view mmla_attend_rows_view(const mmla_attend_problem *p, const mmla_attend_args *args) {
    mmla_kv_view view = {
        .format = MMLA_KV_NONE,
        .data_bytes = MMLA_LATENT_DIM * sizeof(uint16_t),
        .page_stride_bytes = p->desc.kv_row_stride * (int64_t)sizeof(uint16_t),
        .n_slots = args->n_rows,
    };
    mmla_kv_view_page_tokens_set(&view, 1);
    return view;
}

/* A token's list with the pool its entries name. */
struct named_keys {
    mmla_kv_view view;
    const uint8_t *pool;
    const int32_t *list;
    int32_t len;
};

static struct named_keys named_keys_of(const mmla_attend_problem *p,
                                       const mmla_attend_args *args,
                                       int64_t token,
                                       int32_t list) {
    const mmla_attend_desc *d = &p->desc;
    if (list == 1) {
        if (p->compressed.format == MMLA_KV_NONE) {
            return (struct named_keys){.len = 0};
        }
        return (struct named_keys){
            p->compressed,
            args->compressed_cache,
            args->compressed_list + token * d->compressed_stride,
            length_of(args->compressed_lens, token, d->compressed_width),
        };
    }
    const bool rows = d->kind == MMLA_ATTEND_ROWS;
    return (struct named_keys){
        rows ? mmla_attend_rows_view(p, args) : p->window,
        rows ? (const void *)args->kv : args->window_cache,
        args->list + token * d->list_stride,
        length_of(args->lens, token, d->list_width),
    };
}

int32_t mmla_keys_next(const mmla_attend_problem *p,
                       const mmla_attend_args *args,
                       int64_t token,
                       mmla_key_cursor *cursor,
                       mmla_key *keys,
                       int32_t max) {
    int32_t n = 0;
    while (cursor->list < 2) {
        const struct named_keys from = named_keys_of(p, args, token, cursor->list);
        for (; cursor->place < from.len; cursor->place++) {
            if (n == max) {
                return n;
            }
            const int64_t slot = from.list[cursor->place];
            if (mmla_kv_slot_is_legal(&from.view, slot)) {
                keys[n++] = (mmla_key){from.pool + mmla_kv_data_offset(&from.view, slot),
                                       from.pool + mmla_kv_scale_offset(&from.view, slot),
                                       from.view.format};
            }
        }
        *cursor = (mmla_key_cursor){cursor->list + 1, 0};
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
        *args->n_faults = mmla_add_count(*args->n_faults, n_faults);
    }
    return status;
}
