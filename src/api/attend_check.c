#include "api/attend_check.h"

#include "api/shape_check.h"
#include "base/check.h"
#include "base/context.h"
#include "base/error.h"

/* Times log2(e) it must stay finite. */
#define SCALE_MAX 1e30f

enum { Q_ALIGNMENT = 16, OUT_ALIGNMENT = 32, N_OUT_FORMS = MMLA_OUT_BF16 + 1 };

static mmla_status resolve_list(mmla_error *err,
                                const char *width_name,
                                int32_t width,
                                const char *stride_name,
                                int64_t tokens,
                                int64_t *stride) {
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, width_name, width, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, stride_name, *stride, width, 1, stride));
    return mmla_check_extent(err, stride_name, tokens, *stride, sizeof(int32_t));
}

/* Legal pairs: any single format, a format with itself, fp8 window with fp4 compressed. */
static mmla_status
resolve_caches(const mmla_attend_desc *desc, mmla_attend_problem *p, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_kv_view_init(&desc->window, "window", &p->window, err));
    MMLA_RETURN_IF_FAILED(mmla_kv_view_init(&desc->compressed, "compressed", &p->compressed, err));
    const mmla_kv_format window = desc->window.format, compressed = desc->compressed.format;
    if (mmla_kv_dims(window) != MMLA_LATENT_DIM) {
        return mmla_error_set(err, MMLA_E_FORMAT, "window.format",
                              "is %s, must be v4, v41_fp8 or v41_fp4", mmla_kv_format_name(window));
    }
    const bool pair = compressed == MMLA_KV_NONE || compressed == window ||
                      (window == MMLA_KV_V41_FP8 && compressed == MMLA_KV_V41_FP4);
    if (!pair) {
        return mmla_error_set(err, MMLA_E_FORMAT, "compressed.format",
                              "is %s beside a %s window, must be none, the window's format, or "
                              "v41_fp4 beside v41_fp8",
                              mmla_kv_format_name(compressed), mmla_kv_format_name(window));
    }
    if (compressed == MMLA_KV_NONE) {
        return MMLA_OK;
    }
    return resolve_list(err, "compressed_width", desc->compressed_width, "compressed_stride",
                        desc->max_tokens, &p->desc.compressed_stride);
}

mmla_status mmla_attend_problem_init(const mmla_context *ctx,
                                     const mmla_attend_desc *desc,
                                     mmla_attend_problem *p,
                                     mmla_error *err) {
    *p = (mmla_attend_problem){.desc = *desc, .n_threads = ctx->n_threads, .gpu = ctx->gpu};
    p->desc.implementation = NULL; /* the caller's string need not outlive the call */
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "kind", (int)desc->kind, 2));
    MMLA_RETURN_IF_FAILED(mmla_heads_check(err, desc->n_heads));
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_tokens", desc->max_tokens, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_positive(err, "scale", desc->scale));
    if (desc->scale > SCALE_MAX) {
        return mmla_error_set(err, MMLA_E_VALUE, "scale", "is %g, must be at most %g",
                              (double)desc->scale, (double)SCALE_MAX);
    }
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "q_layout", (int)desc->q_layout, 2));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "q_token_stride", desc->q_token_stride,
                                            (int64_t)desc->n_heads * MMLA_LATENT_DIM, 8,
                                            &p->desc.q_token_stride));
    MMLA_RETURN_IF_FAILED(
        mmla_check_extent(err, "q_token_stride", desc->max_tokens, p->desc.q_token_stride, 2));
    if (desc->q_norm) {
        MMLA_RETURN_IF_FAILED(mmla_check_positive(err, "q_norm_eps", desc->q_norm_eps));
    }
    MMLA_RETURN_IF_FAILED(
        mmla_check_range(err, "rope_positions", desc->rope_positions, 1, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_enum(err, "out_form", (int)desc->out_form, N_OUT_FORMS));
    if (desc->out_form == MMLA_OUT_FP8_PERMUTED) {
        MMLA_RETURN_IF_FAILED(mmla_out_scale_strides_check(err, desc->out_scale_word_stride,
                                                           desc->out_scale_group_stride,
                                                           desc->max_tokens, desc->n_heads));
    }
    MMLA_RETURN_IF_FAILED(resolve_list(err, "list_width", desc->list_width, "list_stride",
                                       desc->max_tokens, &p->desc.list_stride));
    if (desc->kind == MMLA_ATTEND_PAGED) {
        return resolve_caches(desc, p, err);
    }
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "max_rows", desc->max_rows, 0, INT32_MAX));
    MMLA_RETURN_IF_FAILED(mmla_check_stride(err, "kv_row_stride", desc->kv_row_stride,
                                            MMLA_LATENT_DIM, 8, &p->desc.kv_row_stride));
    return mmla_check_extent(err, "kv_row_stride", desc->max_rows, p->desc.kv_row_stride, 2);
}

mmla_status mmla_out_scale_strides_check(
    mmla_error *err, int64_t word_stride, int64_t group_stride, int64_t n_tokens, int32_t n_heads) {
    const mmla_packed_scales scales = {.word_name = "out_scale_word_stride",
                                       .group_name = "out_scale_group_stride",
                                       .word_stride = word_stride,
                                       .group_stride = group_stride,
                                       .n_tokens = n_tokens,
                                       .n_groups = n_heads / MMLA_HEADS_PER_GROUP};
    return mmla_packed_scales_check(err, &scales);
}

mmla_status mmla_out_pointers_check(mmla_error *err,
                                    mmla_out_form form,
                                    const void *out,
                                    const void *out_scale) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "out", out, OUT_ALIGNMENT));
    if (form == MMLA_OUT_BF16) {
        return MMLA_OK;
    }
    return mmla_check_pointer(err, "out_scale", out_scale, sizeof(int32_t));
}

/* Pointers to keys: the lists always, a pool only when it has an entry that could be named. */
static mmla_status
check_key_pointers(const mmla_attend_problem *p, const mmla_attend_args *args, mmla_error *err) {
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "list", args->list, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "lens", args->lens, 4));
    if (p->desc.kind == MMLA_ATTEND_ROWS) {
        MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_rows", args->n_rows, 0, p->desc.max_rows));
        return args->n_rows == 0 ? MMLA_OK : mmla_check_pointer(err, "kv", args->kv, Q_ALIGNMENT);
    }
    if (p->window.n_slots > 0) {
        MMLA_RETURN_IF_FAILED(
            mmla_check_pointer(err, "window_cache", args->window_cache, MMLA_KV_BASE_ALIGNMENT));
    }
    if (p->compressed.format == MMLA_KV_NONE) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "compressed_list", args->compressed_list, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "compressed_lens", args->compressed_lens, 4));
    if (p->compressed.n_slots > 0) {
        return mmla_check_pointer(err, "compressed_cache", args->compressed_cache,
                                  MMLA_KV_BASE_ALIGNMENT);
    }
    return MMLA_OK;
}

mmla_status mmla_attend_args_check(const mmla_attend_problem *p, const mmla_attend_args *args) {
    mmla_error *err = args->error;
    MMLA_RETURN_IF_FAILED(mmla_check_range(err, "n_tokens", args->n_tokens, 0, p->desc.max_tokens));
    if (args->n_tokens == 0) {
        return MMLA_OK;
    }
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "q", args->q, Q_ALIGNMENT));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "positions", args->positions, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_pointer(err, "cos_sin", args->cos_sin, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "sink", args->sink, 4));
    MMLA_RETURN_IF_FAILED(check_key_pointers(p, args, err));
    MMLA_RETURN_IF_FAILED(
        mmla_out_pointers_check(err, p->desc.out_form, args->out, args->out_scale));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "lse", args->lse, 4));
    MMLA_RETURN_IF_FAILED(mmla_check_optional(err, "max_logits", args->max_logits, 4));
    return mmla_check_optional(err, "n_faults", args->n_faults, 4);
}
