/* capture_words.h - the library's messages in the words of the file.
 *
 * The library names the field of its description that is wrong: window.page_stride_bytes, n_heads,
 * request_rows. Whoever wrote the file knows tensors, their dimensions and attributes. */
#ifndef APP_CAPTURE_WORDS_H
#define APP_CAPTURE_WORDS_H

#include "app/capture/capture.h"

/* Renames what err is about; nothing when status is MMLA_OK, err is NULL or the name is the file's
 * own. */
void capture_words_apply(const capture_op *op, mmla_error *err, mmla_status status);

#endif
