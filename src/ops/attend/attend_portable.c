/* attend_portable.c - attend_body.inc for one instruction set (cmake/flags.cmake), products in
 * fp32. */
#include "num/vec.h"

#define ATTEND_NAME portable
#define ATTEND_PRODUCTS "ops/attend/attend_products_f32.inc"
#include "ops/attend/attend_body.inc"
