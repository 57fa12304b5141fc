/* kv_gather_portable.c - kv_gather_body.inc without any extension. */
#define VEC_PORTABLE
#define KV_GATHER_RUN mmla_kv_gather_portable
#include "ops/kv_gather/kv_gather_body.inc"
