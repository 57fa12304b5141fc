/* kv_gather_avx512.c - kv_gather_body.inc for AVX-512 F, BW, DQ and VL. */
#define KV_GATHER_RUN mmla_kv_gather_avx512
#include "ops/kv_gather/kv_gather_body.inc"
