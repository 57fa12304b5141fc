/* vec_quant_avx512_test.c - vec_quant_test.inc with AVX-512. */
#define VEC_TEST_NAME "vec_quant_avx512"
#define VEC_TEST_NEEDS MMLA_CPU_AVX512
#include "num/vec_quant_test.inc"
