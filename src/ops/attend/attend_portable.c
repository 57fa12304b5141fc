/* attend_portable.c - attend_body.inc for any processor, products in fp32. */
#define VEC_PORTABLE
#include "num/vec.h"

#define ATTEND_NAME portable
#define ATTEND_PRODUCTS "ops/attend/attend_products_f32.inc"
#include "ops/attend/attend_body.inc"
