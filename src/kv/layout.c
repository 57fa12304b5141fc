/* layout.c - the geometry table and the checks of a cache description. */
#include "kv/layout.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

static const mmla_kv_geometry geometries[] = {
    [MMLA_KV_NONE] = {"none", 0, 0, 0, 0},
    [MMLA_KV_V4] = {"v4", MMLA_LATENT_DIM, MMLA_KV_V4_DATA_BYTES, MMLA_KV_V4_SCALE_BYTES, 576},
    [MMLA_KV_V41_FP8] = {"v41_fp8", MMLA_LATENT_DIM, MMLA_KV_FP8_DATA_BYTES,
                         MMLA_KV_FP8_SCALE_BYTES, 512},
    [MMLA_KV_V41_FP4] = {"v41_fp4", MMLA_LATENT_DIM, MMLA_KV_FP4_DATA_BYTES,
                         MMLA_KV_FP4_SCALE_BYTES, 512},
    [MMLA_KV_INDEX_FP8] = {"index_fp8", MMLA_INDEX_DIM, MMLA_KV_INDEX_FP8_DATA_BYTES,
                           MMLA_KV_INDEX_FP8_SCALE_BYTES, 16},
    [MMLA_KV_INDEX_FP4] = {"index_fp4", MMLA_INDEX_DIM, MMLA_KV_INDEX_FP4_DATA_BYTES,
                           MMLA_KV_INDEX_FP4_SCALE_BYTES, 16},
};

enum { N_FORMATS = sizeof geometries / sizeof geometries[0] };

const mmla_kv_geometry *mmla_kv_geometry_get(mmla_kv_format format) {
    return (unsigned)format < N_FORMATS ? &geometries[format] : NULL;
}

int64_t mmla_kv_record_bytes(mmla_kv_format format) {
    const mmla_kv_geometry *g = mmla_kv_geometry_get(format);
    return g == NULL ? 0 : g->data_bytes + g->scale_bytes;
}

int32_t mmla_kv_dims(mmla_kv_format format) {
    const mmla_kv_geometry *g = mmla_kv_geometry_get(format);
    return g == NULL ? 0 : g->dims;
}

int64_t mmla_kv_page_alignment(mmla_kv_format format) {
    const mmla_kv_geometry *g = mmla_kv_geometry_get(format);
    return g == NULL ? 0 : g->page_alignment;
}

int64_t mmla_kv_page_bytes(mmla_kv_format format, int32_t page_tokens) {
    const int64_t record = mmla_kv_record_bytes(format);
    if (record == 0 || page_tokens < 1 || page_tokens > MMLA_KV_PAGE_TOKENS_MAX) {
        return 0;
    }
    return mmla_round_up_i64(record * page_tokens, mmla_kv_page_alignment(format));
}

const char *mmla_kv_format_name(mmla_kv_format format) {
    const mmla_kv_geometry *g = mmla_kv_geometry_get(format);
    return g == NULL ? "unknown" : g->name;
}

mmla_status mmla_kv_format_parse(const char *name, mmla_kv_format *format, mmla_error *err) {
    if (name == NULL || format == NULL) {
        return mmla_error_set(err, MMLA_E_NULL, name == NULL ? "name" : "format", "is NULL");
    }
    for (int i = 0; i < N_FORMATS; i++) {
        if (strcmp(name, geometries[i].name) == 0) {
            *format = (mmla_kv_format)i;
            return MMLA_OK;
        }
    }
    return mmla_error_set(
        err, MMLA_E_FORMAT, "format",
        "is \"%.40s\", must be v4, v41_fp8, v41_fp4, index_fp8, index_fp4 or none", name);
}

mmla_status mmla_kv_view_init(const mmla_cache_desc *desc,
                              const char *argument,
                              mmla_kv_view *view,
                              mmla_error *err) {
    char field[MMLA_ERROR_ARGUMENT_BYTES];
    const mmla_kv_geometry *g = mmla_kv_geometry_get(desc->format);
    *view = (mmla_kv_view){.format = desc->format};
    mmla_kv_view_page_tokens_set(view, 1);
    if (g == NULL) {
        snprintf(field, sizeof field, "%s.format", argument);
        return mmla_error_set(err, MMLA_E_FORMAT, field, "is %d, which no format has",
                              (int)desc->format);
    }
    if (desc->format == MMLA_KV_NONE) {
        return MMLA_OK;
    }
    if (desc->page_tokens < 1 || desc->page_tokens > MMLA_KV_PAGE_TOKENS_MAX) {
        snprintf(field, sizeof field, "%s.page_tokens", argument);
        return mmla_error_set(err, MMLA_E_SHAPE, field, "is %d, must be 1 .. %d",
                              (int)desc->page_tokens, MMLA_KV_PAGE_TOKENS_MAX);
    }
    if (desc->n_pages < 0 || desc->n_pages > INT32_MAX / desc->page_tokens) {
        snprintf(field, sizeof field, "%s.n_pages", argument);
        return mmla_error_set(err, MMLA_E_SHAPE, field,
                              "is %lld, must be 0 .. %d: slots of %d-record pages are int32",
                              (long long)desc->n_pages, INT32_MAX / (int)desc->page_tokens,
                              (int)desc->page_tokens);
    }
    const int64_t records = (int64_t)desc->page_tokens * (g->data_bytes + g->scale_bytes);
    const int64_t stride = desc->page_stride_bytes != 0
                               ? desc->page_stride_bytes
                               : mmla_kv_page_bytes(desc->format, desc->page_tokens);
    int64_t total;
    snprintf(field, sizeof field, "%s.page_stride_bytes", argument);
    if (stride < records) {
        return mmla_error_set(err, MMLA_E_STRIDE, field,
                              "is %lld, must be at least the %lld bytes of a page's records",
                              (long long)stride, (long long)records);
    }
    if (stride % MMLA_KV_BASE_ALIGNMENT != 0) {
        return mmla_error_set(err, MMLA_E_ALIGNMENT, field, "is %lld, must be a multiple of %d",
                              (long long)stride, MMLA_KV_BASE_ALIGNMENT);
    }
    if (!mmla_mul_i64(desc->n_pages, stride, &total)) {
        return mmla_error_set(err, MMLA_E_SIZE, field, "is %lld, %lld such pages exceed 2^63 bytes",
                              (long long)stride, (long long)desc->n_pages);
    }
    mmla_kv_view_page_tokens_set(view, desc->page_tokens);
    view->data_bytes = g->data_bytes;
    view->scale_bytes = g->scale_bytes;
    view->page_stride_bytes = stride;
    view->n_slots = desc->n_pages * desc->page_tokens;
    return MMLA_OK;
}
