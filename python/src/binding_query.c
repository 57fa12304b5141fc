/* binding_query.c - questions without tensors of a device, and the functions' way out. */
#include "python/src/binding_functions.h"

#include <stdio.h>
#include <string.h>

#include "python/src/binding_call.h"

enum {
    ROPE_THETA,
    ROPE_YARN_FACTOR,
    ROPE_BETA_FAST,
    ROPE_BETA_SLOW,
    ROPE_ORIGINAL_TOKENS,
    ROPE_RATIO, /* not None: the model's settings of that ratio, and the others are ignored */
    ROPE_FIRST,
    ROPE_OUT,
    ROPE_END
};

int binding_rope_table(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    (void)result; /* stays None */
    if (!call_init(&c, self, argv, argc, ROPE_END, NULL)) {
        return -1;
    }
    c.has_device = true; /* the table is computed on the host */
    c.device_argument = "host memory";
    const array out = call_array(&c, ROPE_OUT, "out", ELEMENT_F32, 2, 2);
    call_dim(&c, &out, "out", 1, MMLA_ROPE_DIM, "32 cosines and 32 sines");
    call_contiguous(&c, &out, "out", 0);
    mmla_rope_desc desc = {.theta = call_real(&c, ROPE_THETA, "theta", 0.0),
                           .yarn_factor = call_real(&c, ROPE_YARN_FACTOR, "yarn_factor", 0.0),
                           .yarn_beta_fast = call_real(&c, ROPE_BETA_FAST, "yarn_beta_fast", 0.0),
                           .yarn_beta_slow = call_real(&c, ROPE_BETA_SLOW, "yarn_beta_slow", 0.0),
                           .yarn_original_tokens =
                               call_real(&c, ROPE_ORIGINAL_TOKENS, "yarn_original_tokens", 0.0)};
    const int64_t first = call_integer(&c, ROPE_FIRST, "first", INT64_MIN, INT64_MAX);
    mmla_error err = {.status = MMLA_OK};
    mmla_status status = MMLA_OK;
    if (!call_is_none(&c, ROPE_RATIO)) {
        const int64_t ratio = call_integer(&c, ROPE_RATIO, "ratio", INT32_MIN, INT32_MAX);
        status = mmla_rope_desc_for_ratio((int32_t)ratio, &desc, &err);
    }
    if (c.failed) {
        return -1;
    }
    if (status == MMLA_OK) {
        status = mmla_rope_table_fill(&desc, first, out.shape[0], out.data, &err);
    }
    return status == MMLA_OK ? 0 : call_fail_status(&c, status, &err);
}

enum { SIZES_FORMAT, SIZES_PAGE_TOKENS, SIZES_END };

/* Bytes of a record with page_tokens 0, else of a page. */
int binding_kv_sizes(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, SIZES_END, NULL)) {
        return -1;
    }
    const int64_t format = call_integer(&c, SIZES_FORMAT, "format", 0, MMLA_KV_INDEX_FP4);
    const int64_t tokens = call_integer(&c, SIZES_PAGE_TOKENS, "page_tokens", 0, 65536);
    if (c.failed) {
        return -1;
    }
    result_integer(result, tokens == 0
                               ? mmla_kv_record_bytes((mmla_kv_format)format)
                               : mmla_kv_page_bytes((mmla_kv_format)format, (int32_t)tokens));
    return 0;
}

enum { IMPLEMENTATION_DEVICE, IMPLEMENTATION_INDEX, IMPLEMENTATION_NUMBER, IMPLEMENTATION_END };

/* Number n as "op name available by_name_only reason", or None past the last. */
int binding_implementation(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, IMPLEMENTATION_END, NULL)) {
        return -1;
    }
    c.device.kind = (mmla_device_kind)call_integer(&c, IMPLEMENTATION_DEVICE, "device", 0, 1);
    c.device.index = (int32_t)call_integer(&c, IMPLEMENTATION_INDEX, "device", 0, INT32_MAX);
    const int64_t n = call_integer(&c, IMPLEMENTATION_NUMBER, "number", 0, INT32_MAX);
    mmla_context *ctx = call_context(&c);
    if (c.failed) {
        return -1;
    }
    mmla_implementation it;
    if (n >= mmla_implementation_count(ctx) ||
        mmla_implementation_get(ctx, (int32_t)n, &it, NULL) != MMLA_OK) {
        return 0;
    }
    char text[512];
    snprintf(text, sizeof text, "%s %s %d %d %s", it.op, it.name, it.available, it.by_name_only,
             it.reason);
    return result_text(result, text);
}

int binding_set_threads(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    (void)result; /* stays None */
    if (!call_init(&c, self, argv, argc, 1, NULL)) {
        return -1;
    }
    const int64_t n = call_integer(&c, 0, "n_threads", 0, 4096);
    if (c.failed) {
        return -1;
    }
    state_set_threads(c.state, (int32_t)n);
    return 0;
}

/* Plans kept * 2^32 + plans ever created. */
int binding_plan_counts(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, 0, NULL)) {
        return -1;
    }
    int64_t kept, created;
    plan_counts(c.state, &kept, &created);
    result_integer(result, (kept << 32) + (created & 0xffffffff));
    return 0;
}

int binding_version(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, 0, NULL)) {
        return -1;
    }
    return result_text(result, mmla_version_string());
}
