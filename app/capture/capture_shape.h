/* capture_shape.h - holding a tensor's shape against a pattern such as "T H 512". */
#ifndef APP_CAPTURE_SHAPE_H
#define APP_CAPTURE_SHAPE_H

#include "app/capture/capture.h"

enum { CAPTURE_SHAPE_BYTES = 96 };

/* True when shape fits pattern; letters seen for the first time take their values. */
bool capture_shape_match(const char *pattern,
                         int32_t rank,
                         const int64_t *shape,
                         int64_t letters[128]);

/* "[12, H, 512]": the pattern, with the values of the letters already known. */
void capture_shape_expected(const char *pattern,
                            const int64_t letters[128],
                            char out[CAPTURE_SHAPE_BYTES]);

/* "[12, 64, 512]" */
void capture_shape_format(int32_t rank, const int64_t *shape, char out[CAPTURE_SHAPE_BYTES]);

#endif
