/* capture_op.h - the operations a capture can hold, and what their files share. */
#ifndef APP_CAPTURE_OP_H
#define APP_CAPTURE_OP_H

#include <megamla/layout.h>

#include "app/capture/capture.h"

/* Every operation, by name in the file. */
#define CAPTURE_OP_MAP(X) \
    X(kv_insert)          \
    X(kv_gather)          \
    X(attend_paged)       \
    X(attend_rows)        \
    X(window_list)        \
    X(compressed_list)    \
    X(combined_list)      \
    X(compressed_slots)   \
    X(permute_wq_b)       \
    X(permute_wo_a)       \
    X(project)

#define CAPTURE_OP_DECLARE(name) extern const capture_op capture_op_##name;
CAPTURE_OP_MAP(CAPTURE_OP_DECLARE)
#undef CAPTURE_OP_DECLARE

/* The unfused chain, on an attend capture; not a name of a file. */
extern const capture_op capture_op_chain;

/* Records a cache's format attribute accepts; place + 1 is the mmla_kv_format. */
extern const char *const capture_formats[];

/* "<cache>.format" and "<cache>.page_tokens"; `input` as in capture_attr. */
#define CAPTURE_CACHE_ATTRS(cache, input)                                    \
    {cache ".format", CAPTURE_CHOICE, NULL, input, 0, 0, capture_formats}, { \
        cache ".page_tokens", CAPTURE_INT, NULL, input, 1, INT32_MAX, NULL   \
    }

/* The library's description of a cache input whose attributes stand at `attr` and the place after;
 * all zero when the input is absent. */
mmla_cache_desc capture_cache(const capture *c, int input, int attr);

/* A cache with pages has bytes in them; an absent one passes. Before anything is planned. */
mmla_status capture_cache_check(const capture *c, int input, mmla_error *err);

/* Pages a block table may name when the capture has no cache: every page whose slots are int32. */
int64_t capture_pages_max(int64_t page_tokens);

/* Adds an output of zeros. */
mmla_status capture_output_add(capture_call *call,
                               const char *name,
                               safetensors_dtype dtype,
                               int32_t rank,
                               const int64_t *shape,
                               mmla_error *err);

/* The operation's state, zeroed; and a workspace of that many bytes, which hold anything, staged. */
mmla_status capture_state_create(capture_call *call, size_t bytes, mmla_error *err);
mmla_status capture_workspace_create(capture_call *call, size_t bytes, mmla_error *err);

/* False when a workspace is larger than 16 times the file, and than small ones may always be. */
bool capture_workspace_is_in_proportion(const capture_call *call, size_t bytes);

/* Memory that vector code may use: 64-byte aligned, zeroed, never NULL for want of bytes. */
void *capture_memory_create(size_t bytes);

#endif
