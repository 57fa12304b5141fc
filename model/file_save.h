/* file_save.h - a whole file or none.
 *
 * A regular file appears whole or not at all: the bytes go to a temporary file beside `path`, which
 * is renamed when everything was written; behind a symbolic link, what it points to is replaced.
 * Anything else that stands at `path` (a device, a pipe) is written to directly.
 */
#ifndef MODEL_FILE_SAVE_H
#define MODEL_FILE_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/status.h>

typedef struct file_part {
    const void *data;
    size_t n_bytes;
} file_part;

/* file_save - write the parts one after the other. MMLA_E_VALUE when they cannot be written; the
 * message has the system's reason, not the path. */
mmla_status file_save(const char *path, const file_part *parts, int32_t n_parts, mmla_error *err);

#endif
