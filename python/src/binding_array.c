/* binding_array.c - tensors among the arguments of a call. */
#include <inttypes.h>
#include <stdio.h>

#include "python/src/binding_call.h"

typedef struct dtype_rule {
    const char *accepted; /* as the message says it */
    int32_t bits;
    uint32_t codes; /* bit k: DLPack's type code k */
} dtype_rule;

#define CODE(k) (1u << (k))
#define INTEGERS (CODE(kDLInt) | CODE(kDLUInt))

static const dtype_rule rules[] = {
    [ELEMENT_BF16] = {"bfloat16, or uint16 or int16 of its bits", 16, CODE(kDLBfloat) | INTEGERS},
    [ELEMENT_F32] = {"float32", 32, CODE(kDLFloat)},
    [ELEMENT_I32] = {"int32", 32, INTEGERS},
    [ELEMENT_I64] = {"int64", 64, INTEGERS},
    [ELEMENT_FLAG] = {"bool, uint8 or int8", 8, CODE(kDLBool) | INTEGERS},
    [ELEMENT_E4M3] = {"float8_e4m3fn, or uint8 or int8 of its bits", 8,
                      CODE(kDLFloat8_e4m3fn) | INTEGERS},
    [ELEMENT_UE8M0] = {"uint8, int8 or float8_e8m0fnu", 8, CODE(kDLFloat8_e8m0fnu) | INTEGERS},
    [ELEMENT_BYTE] = {"a type of one byte, such as uint8", 8,
                      INTEGERS | CODE(kDLFloat8_e4m3fn) | CODE(kDLFloat8_e8m0fnu)},
};

static void dtype_text(DLDataType dtype, char *text, size_t bytes) {
    static const char *const names[] = {[kDLInt] = "int",
                                        [kDLUInt] = "uint",
                                        [kDLFloat] = "float",
                                        [kDLBfloat] = "bfloat",
                                        [kDLComplex] = "complex",
                                        [kDLBool] = "bool",
                                        [kDLFloat8_e4m3fn] = "float8_e4m3fn as ",
                                        [kDLFloat8_e5m2] = "float8_e5m2 as ",
                                        [kDLFloat8_e8m0fnu] = "float8_e8m0fnu as "};
    const char *name = NULL;
    if (dtype.code < sizeof names / sizeof names[0]) {
        name = names[dtype.code];
    }
    snprintf(text, bytes, "%s%d", name != NULL ? name : "another type of bits ", dtype.bits);
}

static const char *device_text(mmla_device device, char *text, size_t bytes) {
    if (device.kind == MMLA_DEVICE_CPU) {
        return "cpu";
    }
    snprintf(text, bytes, "cuda:%d", device.index);
    return text;
}

/* Pinned host memory is memory of the CPU; managed memory counts as the GPU's. */
static bool device_from(DLDevice from, mmla_device *to) {
    switch (from.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
        *to = MMLA_CPU;
        return true;
    case kDLCUDA:
    case kDLCUDAManaged:
        *to = MMLA_CUDA(from.device_id);
        return true;
    default:
        return false;
    }
}

static void check_device(call *c, const char *name, DLDevice from) {
    mmla_device device;
    if (!device_from(from, &device)) {
        call_fail(c, name,
                  "is on a device of DLPack's type %d, must be on the CPU or a CUDA device",
                  (int)from.device_type);
    } else if (!c->has_device) {
        c->has_device = true;
        c->device = device;
        c->device_argument = name;
    } else if (device.kind != c->device.kind || device.index != c->device.index) {
        char here[24], there[24];
        call_fail(c, name, "is on %s, must be on %s as %s is",
                  device_text(device, here, sizeof here),
                  device_text(c->device, there, sizeof there), c->device_argument);
    }
}

static const DLTensor *tensor_of(const TVMFFIAny *value) {
    if (value->type_index == kTVMFFITensor) {
        return (const DLTensor *)((const char *)value->v_ptr + sizeof(TVMFFIObject));
    }
    return value->type_index == kTVMFFIDLTensorPtr ? value->v_ptr : NULL;
}

static void check_dims(call *c, const char *name, int32_t ndim, int min_ndim, int max_ndim) {
    if (ndim >= min_ndim && ndim <= max_ndim) {
        return;
    }
    if (min_ndim == max_ndim) {
        call_fail(c, name, "has %d dimensions, must have %d", ndim, min_ndim);
    } else {
        call_fail(c, name, "has %d dimensions, must have %d to %d", ndim, min_ndim, max_ndim);
    }
}

static const int64_t ones[CALL_DIMS_MAX] = {1, 1, 1, 1}, zeros[CALL_DIMS_MAX] = {0};
static const array nothing = {.shape = ones, .strides = zeros};

static void check_dtype(call *c, const char *name, DLDataType dtype, element kind) {
    const dtype_rule *rule = &rules[kind];
    if (dtype.bits != rule->bits || dtype.lanes != 1 || dtype.code > 31 ||
        (rule->codes & CODE(dtype.code)) == 0) {
        char text[40];
        dtype_text(dtype, text, sizeof text);
        call_fail(c, name, "holds %s, must hold %s", text, rule->accepted);
    }
}

/* DLPack before 1.2 leaves the strides of a tensor out when its elements lie closely. */
static const int64_t *strides_of(const DLTensor *t, int64_t *strides) {
    if (t->strides != NULL) {
        return t->strides;
    }
    int64_t closely = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        strides[d] = closely;
        closely *= t->shape[d];
    }
    return strides;
}

static array
read_array(call *c, int i, const char *name, element kind, int min_ndim, int max_ndim) {
    const DLTensor *t = tensor_of(&c->args[i]);
    if (t == NULL) {
        call_fail(c, name, "is not a tensor (an array with __dlpack__)");
        return nothing;
    }
    check_device(c, name, t->device);
    check_dims(c, name, t->ndim, min_ndim, max_ndim);
    check_dtype(c, name, t->dtype, kind);
    if (c->failed) {
        return nothing;
    }
    return (array){.data = t->data == NULL ? NULL : (char *)t->data + t->byte_offset,
                   .shape = t->shape,
                   .strides = strides_of(t, c->closely[i]),
                   .ndim = t->ndim,
                   .given = true};
}

array call_array(call *c, int i, const char *name, element kind, int min_ndim, int max_ndim) {
    if (c->failed) {
        return nothing;
    }
    if (call_is_none(c, i)) {
        call_fail(c, name, "is None, must be a tensor");
        return nothing;
    }
    return read_array(c, i, name, kind, min_ndim, max_ndim);
}

array call_optional(call *c, int i, const char *name, element kind, int min_ndim, int max_ndim) {
    return c->failed || call_is_none(c, i) ? nothing
                                           : read_array(c, i, name, kind, min_ndim, max_ndim);
}

void call_dim(call *c, const array *a, const char *name, int axis, int64_t want, const char *what) {
    if (!c->failed && a->given && a->shape[axis] != want) {
        call_fail(c, name, "has %" PRId64 " in dimension %d, must have %" PRId64 ", %s",
                  a->shape[axis], axis, want, what);
    }
}

/* Whether the tensor has elements: strides of one without mean nothing. */
static bool is_empty(const array *a) {
    for (int d = 0; d < a->ndim; d++) {
        if (a->shape[d] == 0) {
            return true;
        }
    }
    return false;
}

void call_contiguous(call *c, const array *a, const char *name, int axis) {
    if (c->failed || !a->given || is_empty(a)) {
        return;
    }
    int64_t closely = 1;
    for (int d = a->ndim - 1; d >= axis; d--) {
        if (a->shape[d] > 1 && a->strides[d] != closely) {
            call_fail(c, name,
                      "has a stride of %" PRId64 " in dimension %d, must have %" PRId64
                      ": it has to be contiguous%s",
                      a->strides[d], d, closely, axis > 0 ? " inside dimension 0" : "");
            return;
        }
        closely *= a->shape[d];
    }
}

int64_t call_row_stride(call *c, const array *a, const char *name) {
    if (c->failed || !a->given || a->shape[0] <= 1 || is_empty(a)) {
        return 0;
    }
    if (a->strides[0] <= 0) { /* a desc would take 0 for the default */
        call_fail(c, name, "has a stride of %" PRId64 " in dimension 0, must have one above 0",
                  a->strides[0]);
    }
    return a->strides[0];
}

static mmla_kv_format format_of_bytes(int64_t bytes, bool index_keys) {
    for (mmla_kv_format f = MMLA_KV_V4; f <= MMLA_KV_INDEX_FP4; f++) {
        if (mmla_kv_record_bytes(f) == bytes &&
            (index_keys || mmla_kv_dims(f) == MMLA_LATENT_DIM)) {
            return f;
        }
    }
    return MMLA_KV_NONE;
}

/* Pages as rows of bytes: nothing in the shape tells what is in them. */
static mmla_cache_desc
told_cache(call *c, const array *a, const char *name, int64_t format, int64_t page_tokens) {
    if (format == MMLA_KV_NONE || page_tokens == 0) {
        call_fail(
            c, name,
            "is [pages, bytes of a page], which needs its format and page_tokens told; or give "
            "it as [pages, page tokens, record bytes]");
        return (mmla_cache_desc){0};
    }
    const int64_t records = page_tokens * mmla_kv_record_bytes((mmla_kv_format)format);
    if (a->shape[1] < records) {
        call_fail(c, name,
                  "has pages of %" PRId64 " bytes, %" PRId64 " records of %s take %" PRId64,
                  a->shape[1], page_tokens, mmla_kv_format_name((mmla_kv_format)format), records);
    }
    call_contiguous(c, a, name, 1);
    return (mmla_cache_desc){.format = (mmla_kv_format)format,
                             .page_tokens = (int32_t)page_tokens,
                             .n_pages = a->shape[0],
                             .page_stride_bytes = call_row_stride(c, a, name)};
}

mmla_cache_desc call_cache(
    call *c, const array *a, const char *name, int i_format, int i_page_tokens, bool index_keys) {
    const int64_t format = call_integer(c, i_format, name, MMLA_KV_NONE, MMLA_KV_INDEX_FP4);
    const int64_t page_tokens = call_integer(c, i_page_tokens, "page_tokens", 0, 65536);
    if (c->failed || !a->given) {
        return (mmla_cache_desc){0};
    }
    if (a->ndim == 2) {
        return told_cache(c, a, name, format, page_tokens);
    }
    const int64_t bytes = a->shape[a->ndim - 1];
    const mmla_kv_format found = format_of_bytes(bytes, index_keys);
    if (a->ndim == 4) {
        call_dim(c, a, name, 2, 1, "the one head that all heads share");
    }
    if (found == MMLA_KV_NONE) {
        call_fail(c, name,
                  "has records of %" PRId64 " bytes, must have 584 (v4), 528 (v41_fp8) or 288 "
                  "(v41_fp4)%s",
                  bytes, index_keys ? ", 132 or 68 (index keys)" : "");
    } else if (format != MMLA_KV_NONE && found != (mmla_kv_format)format) {
        call_fail(c, name, "has records of %" PRId64 " bytes, its format was told to be %s", bytes,
                  mmla_kv_format_name((mmla_kv_format)format));
    } else if (page_tokens != 0 && page_tokens != a->shape[1]) {
        call_fail(c, name, "has pages of %" PRId64 " tokens, was told to have %" PRId64,
                  a->shape[1], page_tokens);
    } else if (a->shape[1] < 1 || a->shape[1] > 65536) {
        call_fail(c, name, "has pages of %" PRId64 " tokens, must have 1 .. 65536", a->shape[1]);
    }
    call_contiguous(c, a, name, 1);
    return (mmla_cache_desc){.format = found,
                             .page_tokens = (int32_t)a->shape[1],
                             .n_pages = a->shape[0],
                             .page_stride_bytes = call_row_stride(c, a, name)};
}
