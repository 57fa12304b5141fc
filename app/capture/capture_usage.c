/* capture_usage.c - how many keys a captured call attends to, and how many bytes they are. */
#include <stdlib.h>

#include "app/capture/capture_attend.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

typedef struct list {
    const int32_t *entries; /* [T, width]; NULL: no list */
    const int32_t *lens;    /* may be NULL */
    int64_t width;
    int64_t n_slots; /* entries at or past it are no keys */
    uint8_t *seen;   /* a bit a slot */
} list;

static mmla_status list_init(list *l,
                             const void *entries,
                             const void *lens,
                             int64_t width,
                             int64_t n_slots,
                             mmla_error *err) {
    *l = (list){entries, lens, width, n_slots, calloc((size_t)(n_slots / 8 + 1), 1)};
    return l->seen != NULL ? MMLA_OK
                           : mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory for counting");
}

/* Adds token t's keys and returns their number. */
static int64_t list_count(const list *l, int64_t t, capture_keys *keys) {
    if (l->entries == NULL) {
        return 0;
    }
    const int64_t len = l->lens != NULL ? mmla_clamp_i64(l->lens[t], 0, l->width) : l->width;
    int64_t n = 0;
    for (int64_t k = 0; k < len; k++) {
        const int64_t slot = l->entries[t * l->width + k];
        if (slot < 0 || slot >= l->n_slots) {
            continue;
        }
        n++;
        uint8_t *byte = &l->seen[slot / 8];
        const uint8_t bit = (uint8_t)(1u << (slot % 8));
        keys->distinct += (*byte & bit) == 0;
        *byte |= bit;
    }
    keys->n += n;
    return n;
}

mmla_status capture_usage_count(const capture *c, capture_usage *usage, mmla_error *err) {
    const mmla_attend_desc desc = capture_attend_desc(c);
    const bool paged = desc.kind == MMLA_ATTEND_PAGED;
    *usage = (capture_usage){
        .n_tokens = desc.max_tokens,
        .window_record_bytes = paged ? mmla_kv_record_bytes(desc.window.format)
                                     : MMLA_LATENT_DIM * (int64_t)sizeof(uint16_t),
        .compressed_record_bytes = mmla_kv_record_bytes(desc.compressed.format),
    };
    /* The plan was created, so pages * page_tokens fit in an int32. */
    list window = {0}, compressed = {0};
    mmla_status status =
        list_init(&window, c->data[CAPTURE_IN_LIST], c->data[CAPTURE_IN_LENS], desc.list_width,
                  paged ? desc.window.n_pages * desc.window.page_tokens : desc.max_rows, err);
    if (status == MMLA_OK && paged) {
        status = list_init(&compressed, c->data[CAPTURE_IN_COMPRESSED_LIST],
                           c->data[CAPTURE_IN_COMPRESSED_LENS], desc.compressed_width,
                           desc.compressed.n_pages * desc.compressed.page_tokens, err);
    }
    for (int64_t t = 0; t < usage->n_tokens && status == MMLA_OK; t++) {
        const int64_t n =
            list_count(&window, t, &usage->window) + list_count(&compressed, t, &usage->compressed);
        usage->n_empty += n == 0;
        usage->most = mmla_max_i64(usage->most, n);
        if (n > 0 && (usage->least == 0 || n < usage->least)) {
            usage->least = n;
        }
    }
    free(window.seen);
    free(compressed.seen);
    return status;
}
