/* vec_quant_test.c - vec_quant_test.inc as the compiler makes it without any extension. */
#define VEC_PORTABLE
#define VEC_TEST_NAME "vec_quant"
#define VEC_TEST_NEEDS 0
#include "num/vec_quant_test.inc"
