/* capture_attend.h - what summaries and comparisons need to know of an attend capture. */
#ifndef APP_CAPTURE_ATTEND_H
#define APP_CAPTURE_ATTEND_H

#include <megamla/attend.h>

#include "app/capture/capture.h"

/* Places of the inputs. LIST and LENS are the first list of both operations. */
enum {
    CAPTURE_IN_Q,
    CAPTURE_IN_POSITIONS,
    CAPTURE_IN_COS_SIN,
    CAPTURE_IN_SINK,
    CAPTURE_IN_WINDOW_CACHE,
    CAPTURE_IN_KV = CAPTURE_IN_WINDOW_CACHE, /* attend_rows */
    CAPTURE_IN_LIST,
    CAPTURE_IN_LENS,
    CAPTURE_IN_COMPRESSED_CACHE,
    CAPTURE_IN_COMPRESSED_LIST,
    CAPTURE_IN_COMPRESSED_LENS
};

enum { CAPTURE_WIDE_CHUNK_DIM = 128 }; /* dims under one scale of MMLA_OUT_FP8_128 */

/* The description the capture plans, with default strides. */
mmla_attend_desc capture_attend_desc(const capture *c);

mmla_out_form capture_attend_form(const capture *c);
const char *capture_attend_form_name(const capture *c);
const char *capture_attend_layout_name(const capture *c);

/* Keys of one list, as the operation counts them: entries within the length and inside the pool. */
typedef struct capture_keys {
    int64_t n;        /* over all tokens; what is read */
    int64_t distinct; /* different slots among them; what is stored */
} capture_keys;

typedef struct capture_usage {
    int64_t n_tokens;
    int64_t n_empty;                 /* tokens without a key: padding */
    int64_t least, most;             /* keys of a token that has any; 0 when none has */
    capture_keys window, compressed; /* attend_rows: window only */
    int64_t window_record_bytes, compressed_record_bytes;
} capture_usage;

mmla_status capture_usage_count(const capture *c, capture_usage *usage, mmla_error *err);

#endif
