/* kv_insert_avx512.c - kv_insert_body.inc for AVX-512 F, BW, DQ and VL. */
#define KV_INSERT_RUN mmla_kv_insert_avx512
#include "ops/kv_insert/kv_insert_body.inc"
