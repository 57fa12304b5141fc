/* kv_gather_neon.c - kv_gather_body.inc for 64-bit Arm. */
#define KV_GATHER_RUN mmla_kv_gather_neon
#include "ops/kv_gather/kv_gather_body.inc"
