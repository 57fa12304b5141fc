/* kv_insert_neon.c - kv_insert_body.inc for 64-bit Arm. */
#define KV_INSERT_RUN mmla_kv_insert_neon
#include "ops/kv_insert/kv_insert_body.inc"
