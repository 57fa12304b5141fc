/* error.h - filling mmla_error, for every layer of the library. */
#ifndef MMLA_BASE_ERROR_H
#define MMLA_BASE_ERROR_H

#include <megamla/status.h>

/* Fills *err (when not NULL) with status, argument and a formatted sentence, and returns status, so
 * that a check reads `return mmla_error_set(err, MMLA_E_SHAPE, "n_heads", "is %d, must be ...",
 * n)`. The argument's name and a colon are put before the sentence. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
mmla_status
mmla_error_set(mmla_error *err, mmla_status status, const char *argument, const char *format, ...);

#endif
