#include "app/capture/capture_words.h"

#include <stdio.h>
#include <string.h>

/* What the library calls `field`, an operation's files call `name`; `part` says which part of the
 * tensor, "" for an attribute or a whole tensor. */
typedef struct word {
    const char *op; /* NULL: every operation */
    const char *field, *name, *part;
} word;

/* The first that fits counts. */
static const word words[] = {
    /* Caches: two attributes and two dimensions each. */
    {"attend_paged", "window.page_stride_bytes", "window_cache",
     "page stride (its second dimension, bytes)"},
    {"attend_paged", "window.n_pages", "window_cache", "number of pages (its first dimension)"},
    {"attend_paged", "window.page_tokens", "window_cache.page_tokens", ""},
    {"attend_paged", "window.format", "window_cache.format", ""},
    {"attend_paged", "compressed.page_stride_bytes", "compressed_cache",
     "page stride (its second dimension, bytes)"},
    {"attend_paged", "compressed.n_pages", "compressed_cache",
     "number of pages (its first dimension)"},
    {"attend_paged", "compressed.page_tokens", "compressed_cache.page_tokens", ""},
    {"attend_paged", "compressed.format", "compressed_cache.format", ""},
    {NULL, "cache.page_stride_bytes", "cache", "page stride (its second dimension, bytes)"},
    {NULL, "cache.n_pages", "cache", "number of pages (its first dimension)"},
    /* attend */
    {"attend_paged", "list_width", "window_list", "width (its second dimension)"},
    {"attend_paged", "list", "window_list", ""},
    {"attend_paged", "lens", "window_lens", ""},
    {"attend_rows", "list_width", "list", "width (its second dimension)"},
    {NULL, "compressed_width", "compressed_list", "width (its second dimension)"},
    {NULL, "n_heads", "q", "number of heads (its second dimension)"},
    {NULL, "max_rows", "kv", "number of rows (its first dimension)"},
    {NULL, "rope_positions", "cos_sin", "number of positions (its first dimension)"},
    {"attend_paged", "max_tokens", "q", "number of tokens (its first dimension)"},
    {"attend_rows", "max_tokens", "q", "number of tokens (its first dimension)"},
    /* kv_insert and kv_gather; rows is an attribute of kv_gather */
    {"kv_insert", "max_tokens", "rows", "number of rows (its first dimension)"},
    {"kv_gather", "max_requests", "block_table", "number of requests (its first dimension)"},
    /* the index builders */
    {NULL, "table_width", "block_table", "width (its second dimension)"},
    {NULL, "topk_width", "topk", "width (its second dimension)"},
    {"combined_list", "request_rows", "M", ""},
    {"combined_list", "window_offset", "N", ""},
    {"combined_list", "width", "topk", "the width of list it gives with window and image_tokens"},
    {"combined_list", "max_requests", "seq_lens", "number of requests (its first dimension)"},
    {NULL, "max_requests", "block_table", "number of requests (its first dimension)"},
    {"window_list", "max_tokens", "query_start", "number of tokens"},
    {"project", "max_tokens", "x", "number of tokens (its first dimension)"},
    {"compressed_list", "max_tokens", "topk", "number of tokens (its first dimension)"},
    /* weights and project */
    {"permute_wq_b", "rows", "weight", "number of rows (its first dimension)"},
    {"permute_wo_a", "rows", "weight", "number of rows (its first dimension)"},
    {NULL, "cols", "weight", "width (its second dimension)"},
    {NULL, "scale_cols", "scale", "width (its second dimension)"},
    {NULL, "n_groups", "x", "number of groups (its second dimension)"},
};

void capture_words_apply(const capture_op *op, mmla_error *err, mmla_status status) {
    if (status == MMLA_OK || err == NULL || err->argument[0] == '\0') {
        return;
    }
    const size_t n = strlen(err->argument);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const word *w = &words[i];
        if ((w->op != NULL && strcmp(w->op, op->name) != 0) ||
            strcmp(w->field, err->argument) != 0 || strncmp(err->message, w->field, n) != 0 ||
            strncmp(err->message + n, ": ", 2) != 0) {
            continue;
        }
        char message[sizeof err->message];
        snprintf(message, sizeof message, "%s: %s%s%s", w->name, w->part,
                 w->part[0] != '\0' ? " " : "", err->message + n + 2);
        memcpy(err->message, message, sizeof message);
        snprintf(err->argument, sizeof err->argument, "%s", w->name);
        return;
    }
}
