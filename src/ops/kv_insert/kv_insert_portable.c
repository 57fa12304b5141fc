/* kv_insert_portable.c - kv_insert_body.inc without any extension. */
#define VEC_PORTABLE
#define KV_INSERT_RUN mmla_kv_insert_portable
#include "ops/kv_insert/kv_insert_body.inc"
