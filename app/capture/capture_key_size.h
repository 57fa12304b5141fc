/* capture_key_size.h - how large the keys of a captured attention call are. */
#ifndef APP_CAPTURE_KEY_SIZE_H
#define APP_CAPTURE_KEY_SIZE_H

#include "app/capture/capture.h"

/* The largest finite magnitude of an element of a key that a list names; 0 when there is none, when
 * the capture is not of attention and when memory is short: then nothing is allowed for it. */
double capture_key_largest(const capture *c);

#endif
