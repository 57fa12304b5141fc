/* kv_gather_avx2.c - kv_gather_body.inc for AVX2, FMA and F16C. */
#define KV_GATHER_RUN mmla_kv_gather_avx2
#include "ops/kv_gather/kv_gather_body.inc"
