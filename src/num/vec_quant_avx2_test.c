/* vec_quant_avx2_test.c - vec_quant_test.inc with AVX2. */
#define VEC_TEST_NAME "vec_quant_avx2"
#define VEC_TEST_NEEDS MMLA_CPU_AVX2
#include "num/vec_quant_test.inc"
