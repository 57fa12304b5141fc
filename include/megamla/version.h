/* version.h - version numbers and the promise behind them.
 *
 * Until 1.0 the binary interface may change with the minor number, so the shared library's SONAME
 * is libmegamla.so.MAJOR.MINOR; a patch release never changes it. A caller that loads the library
 * at run time compares MMLA_VERSION_HEX with mmla_version(): the first two bytes must agree.
 */
#ifndef MEGAMLA_VERSION_H
#define MEGAMLA_VERSION_H

#include <stdint.h> /* uint32_t */

#if defined(__GNUC__)
#define MMLA_API __attribute__((visibility("default")))
#else
#define MMLA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MMLA_VERSION_MAJOR 0
#define MMLA_VERSION_MINOR 1
#define MMLA_VERSION_PATCH 0
#define MMLA_VERSION_HEX 0x000100u /* MAJOR << 16 | MINOR << 8 | PATCH */
#define MMLA_VERSION_STRING "0.1.0"

/* mmla_version - MMLA_VERSION_HEX of the library in use, which may differ from the header's. */
MMLA_API uint32_t mmla_version(void);

/* mmla_version_string - the same as text, for example "0.1.0"; constant memory. */
MMLA_API const char *mmla_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
