/* layout.h - cache geometry a caller needs: record and page sizes, alignment, formats.
 *
 * A cache is n_pages pages. A page holds page_tokens records in two regions: all data rows, then
 * all scale rows (docs/format.md draws them). A slot is page * page_tokens + record; every list and
 * slot mapping of the library speaks of slots. No caller needs a byte count of its own.
 */
#ifndef MEGAMLA_LAYOUT_H
#define MEGAMLA_LAYOUT_H

#include <stdint.h>

#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MMLA_LATENT_DIM = 512,    /* D: one row is both K and V */
    MMLA_ROPE_DIM = 64,       /* the last dims of a row that are rotated, in adjacent pairs */
    MMLA_INDEX_DIM = 128,     /* one index key */
    MMLA_HEADS_PER_GROUP = 8, /* heads that share one group of the output projection */
    MMLA_HEADS_MAX = 128,
    MMLA_GROUP_DIM = 4096,  /* MMLA_HEADS_PER_GROUP * MMLA_LATENT_DIM */
    MMLA_OUT_CHUNK_DIM = 32 /* dims under one output scale */
};

/* Record formats. NONE means "no cache" where one is optional. */
typedef enum mmla_kv_format {
    MMLA_KV_NONE = 0,
    MMLA_KV_V4 = 1,        /* 584 bytes: 448 e4m3 and 64 bf16 (RoPE); ue8m0 per 64 dims */
    MMLA_KV_V41_FP8 = 2,   /* 528 bytes: 512 e4m3; ue8m0 per 32 dims */
    MMLA_KV_V41_FP4 = 3,   /* 288 bytes: 512 e2m1; e4m3 per 16 dims */
    MMLA_KV_INDEX_FP8 = 4, /* 132 bytes: index key, 128 e4m3; one fp32 power of two */
    MMLA_KV_INDEX_FP4 = 5  /* 68 bytes: index key, 128 e2m1; ue8m0 per 32 dims */
} mmla_kv_format;

/* A paged cache, without its pointer. The base pointer must be 16-byte aligned. */
typedef struct mmla_cache_desc {
    mmla_kv_format format;
    int32_t page_tokens; /* records a page, 1 .. 65536 */
    int64_t n_pages;     /* 0 is legal; n_pages * page_tokens at most 2^31 - 1 */
    int64_t
        page_stride_bytes; /* multiple of 16, at least page_tokens records; 0: mmla_kv_page_bytes */
} mmla_cache_desc;

/* mmla_kv_record_bytes - data plus scale bytes of one record (584, 528, 288, 132, 68); 0 for NONE
 * and unknown formats. It sizes a cache; it is not the address stride of a record. */
MMLA_API int64_t mmla_kv_record_bytes(mmla_kv_format format);

/* mmla_kv_dims - elements of one record: 512, or 128 for index keys; 0 for NONE and unknown. */
MMLA_API int32_t mmla_kv_dims(mmla_kv_format format);

/* mmla_kv_page_bytes - page_tokens records, rounded up to the alignment engines use (576 for V4,
 * 512 for V4.1, 16 for index keys). 0 when format or page_tokens is not legal. */
MMLA_API int64_t mmla_kv_page_bytes(mmla_kv_format format, int32_t page_tokens);

/* mmla_kv_page_alignment - the number a default page is rounded up to; 0 for NONE and unknown. */
MMLA_API int64_t mmla_kv_page_alignment(mmla_kv_format format);

/* mmla_kv_format_name / _parse - "v4", "v41_fp8", "v41_fp4", "index_fp8", "index_fp4", "none".
 * errors   MMLA_E_FORMAT  parse: the name is unknown */
MMLA_API const char *mmla_kv_format_name(mmla_kv_format format);
MMLA_API mmla_status mmla_kv_format_parse(const char *name,
                                          mmla_kv_format *format,
                                          mmla_error *err);

#ifdef __cplusplus
}
#endif

#endif
