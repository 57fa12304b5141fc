/* kv_insert_avx2.c - kv_insert_body.inc for AVX2, FMA and F16C. */
#define KV_INSERT_RUN mmla_kv_insert_avx2
#include "ops/kv_insert/kv_insert_body.inc"
