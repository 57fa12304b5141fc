/* attend_portable.c - attend_body.inc for one instruction set (cmake/flags.cmake). */
#include "num/vec.h"

#define ATTEND_NAME portable
#include "ops/attend/attend_body.inc"
