/* vec_quant_neon_test.c - vec_quant_test.inc with NEON. */
#define VEC_TEST_NAME "vec_quant_neon"
#define VEC_TEST_NEEDS MMLA_CPU_NEON
#include "num/vec_quant_test.inc"
