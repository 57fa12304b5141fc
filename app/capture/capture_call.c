/* capture_call.c - one replay: its plan, its memory, its outputs. */
#include <stdlib.h>
#include <string.h>

#include "app/capture/capture.h"
#include "app/capture/capture_op.h"
#include "app/capture/capture_shape.h"
#include "app/capture/capture_words.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/error.h"

/* Outputs may be larger than the file (a 288-byte record becomes a row of 1 KiB, a list may be
 * wide), but not without bound: a short file with rows = 2147483647 asks for terabytes. */
enum { OUTPUT_FACTOR = 16, MEMORY_ALIGNMENT = 64, DEVICE_ALIGNMENT = 256 };
static const int64_t OUTPUT_BYTES_FREE = INT64_C(64) << 20;
/* A workspace also has a part for each thread; of 640 keys the chain keeps less than this. */
static const int64_t THREAD_BYTES_FREE = INT64_C(1) << 20;

const char *const capture_formats[] = {"v4", "v41_fp8", "v41_fp4", NULL};
_Static_assert(MMLA_KV_V4 == 1 && MMLA_KV_V41_FP8 == 2 && MMLA_KV_V41_FP4 == 3,
               "capture_formats lists the formats in the order of the enum");

mmla_cache_desc capture_cache(const capture *c, int input, int attr) {
    const safetensors_tensor *t = c->inputs[input];
    if (t == NULL) {
        return (mmla_cache_desc){0};
    }
    return (mmla_cache_desc){
        .format = (mmla_kv_format)(c->attrs[attr].integer + 1),
        .page_tokens = (int32_t)c->attrs[attr + 1].integer,
        .n_pages = t->shape[0],
        .page_stride_bytes = t->shape[1],
    };
}

mmla_status capture_cache_check(const capture *c, int input, mmla_error *err) {
    const safetensors_tensor *t = c->inputs[input];
    if (t == NULL) {
        return MMLA_OK;
    }
    /* The library takes a stride of 0 for its default one, and would look for whole pages. */
    int64_t bytes = 0;
    if ((t->shape[0] > 0 && t->shape[1] == 0) || !mmla_mul_i64(t->shape[0], t->shape[1], &bytes) ||
        bytes != t->n_bytes) {
        char text[CAPTURE_SHAPE_BYTES];
        capture_shape_format(t->rank, t->shape, text);
        return mmla_error_set(err, MMLA_E_SHAPE, c->op->inputs[input].name,
                              "has shape %s and %lld bytes: its pages have none", text,
                              (long long)t->n_bytes);
    }
    return MMLA_OK;
}

int64_t capture_pages_max(int64_t page_tokens) {
    return INT32_MAX / page_tokens;
}

/* Memory nobody has touched: what is not used of it is not resident. */
static void *memory_alloc(size_t bytes) {
    const size_t most = SIZE_MAX - MEMORY_ALIGNMENT;
    return bytes > most
               ? NULL
               : aligned_alloc(MEMORY_ALIGNMENT, (bytes / MEMORY_ALIGNMENT + 1) * MEMORY_ALIGNMENT);
}

void *capture_memory_create(size_t bytes) {
    void *memory = memory_alloc(bytes);
    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

static mmla_status out_of_memory(mmla_error *err, size_t bytes) {
    return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory: %zu bytes were refused", bytes);
}

mmla_status capture_output_add(capture_call *call,
                               const char *name,
                               safetensors_dtype dtype,
                               int32_t rank,
                               const int64_t *shape,
                               mmla_error *err) {
    safetensors_tensor t = {.name = name, .dtype = dtype, .rank = rank};
    int64_t n = safetensors_dtype_bytes(dtype);
    bool fits = true;
    for (int32_t i = 0; i < rank; i++) {
        t.shape[i] = shape[i];
        fits = fits && mmla_mul_i64(n, shape[i], &n);
    }
    const int64_t file_bytes = safetensors_bytes(call->capture->file);
    if (!fits || (n > OUTPUT_BYTES_FREE && n / OUTPUT_FACTOR > file_bytes)) {
        char text[CAPTURE_SHAPE_BYTES];
        capture_shape_format(rank, shape, text);
        return mmla_error_set(err, MMLA_E_VALUE, name,
                              "the attributes ask for an output of %s from a file of %lld bytes; "
                              "more than 64 MiB must be within %d times the file",
                              text, (long long)file_bytes, OUTPUT_FACTOR);
    }
    void *memory = capture_memory_create((size_t)n);
    if (memory == NULL) {
        return out_of_memory(err, (size_t)n);
    }
    t.n_bytes = n;
    t.data = memory;
    call->memory[call->n_outputs] = memory;
    call->outputs[call->n_outputs++] = t;
    return MMLA_OK;
}

mmla_status capture_state_create(capture_call *call, size_t bytes, mmla_error *err) {
    call->state = calloc(1, bytes);
    return call->state != NULL ? MMLA_OK : out_of_memory(err, bytes);
}

bool capture_workspace_is_in_proportion(const capture_call *call, size_t bytes) {
    const int64_t file_bytes = safetensors_bytes(call->capture->file);
    const int64_t free_bytes =
        OUTPUT_BYTES_FREE + mmla_context_get_threads(call->ctx) * THREAD_BYTES_FREE;
    return bytes <= (size_t)free_bytes || bytes / OUTPUT_FACTOR <= (size_t)file_bytes;
}

mmla_status capture_workspace_create(capture_call *call, size_t bytes, mmla_error *err) {
    call->workspace_memory = memory_alloc(bytes); /* no operation reads what it did not write */
    call->workspace = call->workspace_memory;
    device_stage_workspace(&call->stage, &call->workspace, bytes);
    return call->workspace != NULL ? MMLA_OK : out_of_memory(err, bytes);
}

/* The name of an operation's implementation when it is the only one listed for the device. */
static const char *only_implementation(const capture_op *op, const mmla_context *ctx) {
    const char *name = NULL;
    mmla_implementation impl;
    for (int32_t i = 0; i < mmla_implementation_count(ctx); i++) {
        if (mmla_implementation_get(ctx, i, &impl, NULL) == MMLA_OK &&
            impl.device == mmla_context_get_device(ctx).kind &&
            strcmp(impl.op, op->library_op) == 0) {
            if (name != NULL) {
                return NULL;
            }
            name = impl.name;
        }
    }
    return name;
}

const char *capture_only_implementation(const capture *c, const mmla_context *ctx) {
    return only_implementation(c->op, ctx);
}

static mmla_status create(const capture *c,
                          const capture_op *op,
                          mmla_context *ctx,
                          const char *implementation,
                          capture_call **out,
                          mmla_error *err) {
    *out = NULL;
    capture_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return out_of_memory(err, sizeof *call);
    }
    const char *only = only_implementation(op, ctx);
    *call = (capture_call){
        .capture = c, .ctx = ctx, .op = op, .implementation = only != NULL ? only : ""};
    /* Arrays lie as an engine's do, not as close to their limits as check puts them. */
    device_stage_init(&call->stage, ctx, &(device_options){.alignment = DEVICE_ALIGNMENT});
    mmla_status status = MMLA_OK;
    if (implementation != NULL && !op->takes_name && only != NULL &&
        strcmp(implementation, only) != 0) {
        status =
            mmla_error_set(err, MMLA_E_NO_IMPLEMENTATION, "implementation",
                           "is \"%.40s\", but %s has only one, %s", implementation, op->name, only);
    } else {
        status = op->create(call, implementation, err);
        capture_words_apply(c->op, err, status);
        status = status == MMLA_OK ? device_stage_upload(&call->stage, err) : status;
    }
    if (status != MMLA_OK) {
        capture_call_destroy(call);
        return status;
    }
    *out = call;
    return MMLA_OK;
}

mmla_status capture_call_create(const capture *c,
                                mmla_context *ctx,
                                const char *implementation,
                                capture_call **out,
                                mmla_error *err) {
    return create(c, c->op, ctx, implementation, out, err);
}

mmla_status
capture_chain_create(const capture *c, mmla_context *ctx, capture_call **out, mmla_error *err) {
    return create(c, &capture_op_chain, ctx, NULL, out, err);
}

mmla_status capture_call_run(capture_call *call, mmla_error *err) {
    const mmla_status status = call->op->run(call, err);
    capture_words_apply(call->capture->op, err, status);
    return status;
}

mmla_status capture_call_finish(capture_call *call, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(device_stage_download(&call->stage, err));
    if (call->stage.damage[0] != '\0') {
        return mmla_error_set(err, MMLA_E_LAUNCH, "", "%s wrote %s in device memory",
                              call->implementation, call->stage.damage);
    }
    if (call->n_faults > 0) { /* on the CPU run has named the first */
        return mmla_error_set(err, MMLA_E_INDEX, "",
                              "an index or a position lies outside its bound; a run with --device "
                              "cpu says which");
    }
    if (call->op->finish != NULL) {
        call->op->finish(call);
    }
    return MMLA_OK;
}

void capture_call_destroy(capture_call *call) {
    if (call == NULL) {
        return;
    }
    if (call->state != NULL) {
        call->op->destroy(call);
    }
    for (int32_t i = 0; i < call->n_outputs; i++) {
        free(call->memory[i]);
    }
    device_stage_deinit(&call->stage);
    free(call->workspace_memory);
    free(call->state);
    free(call);
}
