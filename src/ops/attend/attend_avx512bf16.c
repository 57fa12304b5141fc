/* attend_avx512bf16.c - attend_body.inc with the bf16 dot products of AVX-512: twice the numbers a
 * register, exact for q and keys, probabilities rounded to bf16. */
#include "num/vec.h"

#define ATTEND_NAME avx512bf16
#define ATTEND_PRODUCTS "ops/attend/attend_products_bf16.inc"
#include "ops/attend/attend_body.inc"
