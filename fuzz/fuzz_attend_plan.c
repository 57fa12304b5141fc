/* fuzz_attend_plan.c - whatever a description holds, plan creation answers and does not crash.
 *
 * For every operation: a plan comes out exactly when the status is MMLA_OK; a refusal leaves the
 * plan NULL and a message; a plan that was made answers its queries. The first byte picks the
 * operation, the rest fill its description.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <megamla/megamla.h>

#include "take.h"

/* Says what went wrong before it stops: the replay has no debugger attached. */
static void require(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "fuzz_attend_plan: %s\n", what);
        abort();
    }
}

static void check_outcome(mmla_status status, const void *plan, const mmla_error *err) {
    require((status == MMLA_OK) == (plan != NULL), "status and plan disagree");
    if (status != MMLA_OK) {
        require(err->status == status, "the error holds another status");
        require(memchr(err->message, '\0', sizeof err->message) != NULL, "message without an end");
        require(memchr(err->argument, '\0', sizeof err->argument) != NULL, "argument likewise");
        require(err->message[0] != '\0', "a refusal without a message");
    }
}

static const char *take_implementation(struct take *t) {
    static const char *const names[] = {NULL,          NULL,       NULL,
                                        "reference",   "portable", "avx2",
                                        "avx512",      "",         "no such implementation",
                                        "%s%n%999999d"};
    return names[take_byte(t) % (sizeof names / sizeof names[0])];
}

static mmla_cache_desc take_cache(struct take *t) {
    mmla_cache_desc cache = {0};
    cache.format = (mmla_kv_format)take_enum(t, 6);
    cache.page_tokens = take_i32(t);
    cache.n_pages = take_i64(t);
    cache.page_stride_bytes = take_i64(t);
    return cache;
}

static mmla_attend_desc take_attend(struct take *t) {
    mmla_attend_desc d = {0};
    d.kind = (mmla_attend_kind)take_enum(t, 2);
    d.n_heads = take_i32(t);
    d.max_tokens = take_i64(t);
    d.scale = take_float(t);
    d.q_layout = (mmla_q_layout)take_enum(t, 2);
    d.out_form = (mmla_out_form)take_enum(t, 4);
    d.list_width = take_i32(t);
    d.rope_positions = take_i64(t);
    d.window = take_cache(t);
    d.compressed = take_cache(t);
    d.compressed_width = take_i32(t);
    d.max_rows = take_i64(t);
    d.implementation = take_implementation(t);
    d.batch_invariant = take_i32(t);
    d.q_norm = take_i32(t);
    d.q_norm_eps = take_float(t);
    d.q_token_stride = take_i64(t);
    d.out_scale_word_stride = take_i64(t);
    d.out_scale_group_stride = take_i64(t);
    d.list_stride = take_i64(t);
    d.compressed_stride = take_i64(t);
    d.kv_row_stride = take_i64(t);
    return d;
}

static void try_attend(mmla_context *ctx, struct take *t) {
    const mmla_attend_desc d = take_attend(t);
    mmla_error err = {0};
    mmla_attend_plan *plan = (mmla_attend_plan *)t; /* must become NULL on a refusal */
    const mmla_status status = mmla_attend_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        const size_t bound = (size_t)mmla_context_get_threads(ctx) << 20;
        require(mmla_attend_workspace_bytes(plan) <= bound, "workspace above 1 MiB a thread");
        require(mmla_attend_plan_implementation(plan) != NULL, "no implementation name");
        mmla_attend_plan_destroy(plan);
    }
}

static void try_chain(mmla_context *ctx, struct take *t) {
    const mmla_attend_desc d = take_attend(t);
    mmla_error err = {0};
    mmla_chain_plan *plan = (mmla_chain_plan *)t;
    const mmla_status status = mmla_chain_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        /* At least the two tensors that the header promises, so the product did not wrap. */
        const size_t row = (size_t)d.n_heads * MMLA_LATENT_DIM * 2;
        require(mmla_chain_workspace_bytes(plan) >= 2 * row * (size_t)d.max_tokens,
                "chain workspace is smaller than what it holds");
        mmla_chain_plan_destroy(plan);
    }
}

static void try_kv_insert(mmla_context *ctx, struct take *t) {
    mmla_kv_insert_desc d = {0};
    d.cache = take_cache(t);
    d.max_tokens = take_i64(t);
    d.rope_positions = take_i64(t);
    d.row_stride = take_i64(t);
    d.ratio = take_i32(t);
    d.scale_floor = (mmla_scale_floor)take_enum(t, 2);
    d.norm = take_i32(t);
    d.norm_eps = take_float(t);
    d.implementation = take_implementation(t);
    mmla_error err = {0};
    mmla_kv_insert_plan *plan = (mmla_kv_insert_plan *)t;
    const mmla_status status = mmla_kv_insert_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        require(mmla_kv_insert_workspace_bytes(plan) == 0, "insert wants a workspace on the CPU");
        require(mmla_kv_insert_plan_implementation(plan) != NULL, "no implementation name");
        mmla_kv_insert_plan_destroy(plan);
    }
}

static void try_kv_gather(mmla_context *ctx, struct take *t) {
    mmla_kv_gather_desc d = {0};
    d.cache = take_cache(t);
    d.max_requests = take_i64(t);
    d.table_width = take_i32(t);
    d.rows = take_i64(t);
    d.offset = take_i64(t);
    d.table_stride = take_i64(t);
    d.row_stride = take_i64(t);
    d.implementation = take_implementation(t);
    d.ratio = take_i32(t);
    d.window = take_i32(t);
    mmla_error err = {0};
    mmla_kv_gather_plan *plan = (mmla_kv_gather_plan *)t;
    const mmla_status status = mmla_kv_gather_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        require(mmla_kv_gather_workspace_bytes(plan) == 0, "gather wants a workspace on the CPU");
        require(mmla_kv_gather_plan_implementation(plan) != NULL, "no implementation name");
        mmla_kv_gather_plan_destroy(plan);
    }
}

static void try_list(mmla_context *ctx, struct take *t) {
    mmla_list_desc d = {0};
    d.kind = (mmla_list_kind)take_enum(t, 7);
    d.max_tokens = take_i64(t);
    d.max_requests = take_i64(t);
    d.window = take_i32(t);
    d.page_tokens = take_i32(t);
    d.n_pages = take_i64(t);
    d.table_width = take_i32(t);
    d.width = take_i32(t);
    d.topk_width = take_i32(t);
    d.ratio = take_i32(t);
    d.topk = take_i32(t);
    d.request_rows = take_i64(t);
    d.window_offset = take_i64(t);
    d.image_tokens = take_i32(t);
    d.table_stride = take_i64(t);
    d.list_stride = take_i64(t);
    d.topk_stride = take_i64(t);
    mmla_error err = {0};
    mmla_list_plan *plan = (mmla_list_plan *)t;
    const mmla_status status = mmla_list_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        require(mmla_list_workspace_bytes(plan) == 0, "lists want a workspace on the CPU");
        mmla_list_plan_destroy(plan);
    }
}

static void try_weights(mmla_context *ctx, struct take *t) {
    mmla_weights_desc d = {0};
    d.kind = (mmla_weights_kind)take_enum(t, 5);
    d.n_heads = take_i32(t);
    d.rows = take_i64(t);
    d.cols = take_i64(t);
    d.scale_cols = take_i64(t);
    mmla_error err = {0};
    mmla_weights_plan *plan = (mmla_weights_plan *)t;
    const mmla_status status = mmla_weights_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        require(mmla_weights_workspace_bytes(plan) == 0, "weights want a workspace on the CPU");
        mmla_weights_plan_destroy(plan);
    }
}

static void try_project(mmla_context *ctx, struct take *t) {
    mmla_project_desc d = {0};
    d.n_groups = take_i32(t);
    d.max_tokens = take_i64(t);
    d.rank = take_i32(t);
    d.x_scale_layout = (mmla_scale_layout)take_enum(t, 2);
    d.x_scale_word_stride = take_i64(t);
    d.x_scale_group_stride = take_i64(t);
    d.implementation = take_implementation(t);
    mmla_error err = {0};
    mmla_project_plan *plan = (mmla_project_plan *)t;
    const mmla_status status = mmla_project_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        const size_t bound = (size_t)mmla_context_get_threads(ctx) << 20;
        require(mmla_project_workspace_bytes(plan) <= bound, "workspace above 1 MiB a thread");
        require(mmla_project_plan_implementation(plan) != NULL, "no implementation name");
        mmla_project_plan_destroy(plan);
    }
}

/* Its own fields first: those of attention are many, and most must be 0. */
static mmla_prefill_desc take_prefill(struct take *t) {
    mmla_prefill_desc d = {0};
    d.route = (mmla_prefill_route)take_enum(t, 3);
    d.max_requests = take_i64(t);
    d.window = take_i32(t);
    d.ratio = take_i32(t);
    d.topk_width = take_i32(t);
    d.topk_stride = take_i64(t);
    d.window_table_width = take_i32(t);
    d.window_table_stride = take_i64(t);
    d.compressed_table_width = take_i32(t);
    d.compressed_table_stride = take_i64(t);
    d.max_rows = take_i64(t);
    d.attend = take_attend(t);
    return d;
}

static void try_prefill(mmla_context *ctx, struct take *t) {
    const mmla_prefill_desc d = take_prefill(t);
    mmla_error err = {0};
    mmla_prefill_plan *plan = (mmla_prefill_plan *)t;
    const mmla_status status = mmla_prefill_plan_create(ctx, &d, &plan, &err);
    check_outcome(status, plan, &err);
    if (plan != NULL) {
        /* A list and its length for each token, and the rows, so no product did wrap. */
        const bool by_workspace = d.route == MMLA_PREFILL_WORKSPACE;
        const size_t lists = (size_t)d.attend.max_tokens * 4 * ((size_t)d.window + 1);
        const size_t picks = (size_t)d.attend.max_tokens * 4 * (size_t)d.topk_width;
        const size_t rows = by_workspace ? (size_t)d.max_rows * MMLA_LATENT_DIM * 2 : 0;
        require(mmla_prefill_workspace_bytes(plan) >= lists + picks + rows,
                "prefill workspace is smaller than what it holds");
        require(mmla_prefill_plan_implementation(plan, MMLA_PREFILL_PAGED) != NULL,
                "no implementation name");
        require((mmla_prefill_plan_implementation(plan, MMLA_PREFILL_WORKSPACE) != NULL) ==
                    by_workspace,
                "another route than the CPU takes");
        mmla_prefill_plan_destroy(plan);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const tries[])(mmla_context *, struct take *) = {
        try_attend, try_chain,   try_kv_insert, try_kv_gather,
        try_list,   try_weights, try_project,   try_prefill,
    };
    struct take t = {data, size};
    const size_t op = take_byte(&t) % (sizeof tries / sizeof tries[0]);
    mmla_context *ctx;
    mmla_error err;
    require(mmla_context_create(&(mmla_context_options){.n_threads = 2}, &ctx, &err) == MMLA_OK,
            "no context");
    tries[op](ctx, &t);
    mmla_context_destroy(ctx);
    return 0;
}
