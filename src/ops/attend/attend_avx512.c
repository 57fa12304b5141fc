/* attend_avx512.c - attend_body.inc for one instruction set (cmake/flags.cmake). */
#include "num/vec.h"

#define ATTEND_NAME avx512
#include "ops/attend/attend_body.inc"
