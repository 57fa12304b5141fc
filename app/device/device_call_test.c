/* The arrays of each operation: how many bytes a stage gives them, and that a call on copies of
 * exactly that size gives what a call on the caller's own arrays gives. That the sizes suffice for
 * every case of the matrix is check_copies_test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/device/device_call.h"

/* A pointer where nothing is followed. */
static void *const somewhere = (void *)64;

typedef struct extent {
    const char *name;
    int64_t bytes, alignment;
} extent;

static device_stage stage_create(mmla_context **ctx) {
    device_stage s;
    assert_int_equal(mmla_context_create(NULL, ctx, NULL), MMLA_OK);
    device_stage_init(&s, *ctx, &(device_options){.copies = true});
    return s;
}

/* The stage has these arrays, in this order, and no others. */
static void check_extents(device_stage *s, mmla_context *ctx, const extent *want, int n) {
    for (int i = 0; i < n && i < s->n_fields; i++) {
        assert_string_equal(s->fields[i].name, want[i].name);
        if (s->fields[i].bytes != want[i].bytes || s->fields[i].alignment != want[i].alignment) {
            fail_msg("%s has %lld bytes of alignment %lld, not %lld of %lld", want[i].name,
                     (long long)s->fields[i].bytes, (long long)s->fields[i].alignment,
                     (long long)want[i].bytes, (long long)want[i].alignment);
        }
    }
    assert_int_equal(s->n_fields, n);
    device_stage_deinit(s);
    mmla_context_destroy(ctx);
}

#define CHECK(stage, ctx, ...)                                                   \
    do {                                                                         \
        const extent want_[] = {__VA_ARGS__};                                    \
        check_extents(stage, ctx, want_, (int)(sizeof want_ / sizeof want_[0])); \
    } while (0)

static mmla_attend_args attend_args(int64_t n_tokens) {
    return (mmla_attend_args){.n_tokens = n_tokens,
                              .q = somewhere,
                              .positions = somewhere,
                              .cos_sin = somewhere,
                              .sink = somewhere,
                              .list = somewhere,
                              .lens = somewhere,
                              .window_cache = somewhere,
                              .compressed_cache = somewhere,
                              .compressed_list = somewhere,
                              .compressed_lens = somewhere,
                              .kv = somewhere,
                              .n_rows = 5,
                              .out = somewhere,
                              .out_scale = somewhere,
                              .lse = somewhere,
                              .max_logits = somewhere,
                              .n_faults = somewhere};
}

static void attend_paged_has_the_bytes_of_its_strides(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    const mmla_attend_desc d = {
        .n_heads = 16,
        .q_token_stride = 8200,
        .rope_positions = 7,
        .out_form = MMLA_OUT_FP8_PERMUTED,
        .out_scale_word_stride = 10,
        .out_scale_group_stride = 330,
        .list_width = 5,
        .list_stride = 9,
        .window = {.format = MMLA_KV_V4, .page_tokens = 3, .n_pages = 4, .page_stride_bytes = 2048},
        .compressed = {.format = MMLA_KV_V41_FP4, .page_tokens = 2, .n_pages = 3},
        .compressed_width = 6};
    mmla_attend_args a = attend_args(3);
    device_stage_attend(&s, &d, &a);
    CHECK(&s, ctx, {"q", (2 * 8200 + 8192) * 2, 16}, {"positions", 12, 4},
          {"cos_sin", 7 * 64 * 4, 4}, {"sink", 64, 4}, {"list", (2 * 9 + 5) * 4, 4},
          {"lens", 12, 4}, {"window_cache", 3 * 2048 + 3 * 584, 16},
          {"compressed_cache", 2 * 1024 + 2 * 288, 16}, {"compressed_list", 3 * 6 * 4, 4},
          {"compressed_lens", 12, 4}, {"out", 3 * 8192, 32},
          {"out_scale", (330 + 31 * 10 + 3) * 4, 4}, {"lse", 3 * 16 * 4, 4},
          {"max_logits", 3 * 16 * 4, 4}, {"n_faults", 4, 4});
}

static void attend_rows_has_no_cache_and_bf16_no_scales(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    const mmla_attend_desc d = {.kind = MMLA_ATTEND_ROWS,
                                .n_heads = 8,
                                .rope_positions = 1,
                                .out_form = MMLA_OUT_BF16,
                                .list_width = 1,
                                .max_rows = 9,
                                .kv_row_stride = 520};
    mmla_attend_args a = attend_args(2);
    a.sink = NULL;
    a.lens = NULL;
    a.n_faults = NULL;
    device_stage_attend(&s, &d, &a);
    CHECK(&s, ctx, {"q", 2 * 8192, 16}, {"positions", 8, 4}, {"cos_sin", 256, 4}, {"list", 8, 4},
          {"kv", (4 * 520 + 512) * 2, 16}, {"out", 2 * 8192, 32}, {"lse", 64, 4},
          {"max_logits", 64, 4});
}

static void scales_of_the_other_forms_are_contiguous(void **state) {
    (void)state;
    const struct {
        mmla_attend_merge_args args;
        int64_t out_bytes, scale_bytes;
    } cases[] = {{{.out_form = MMLA_OUT_FP8}, 3 * 8 * 512, 3 * 8 * 16},
                 {{.out_form = MMLA_OUT_FP8_128}, 3 * 8 * 512, 3 * 8 * 4 * 4},
                 /* The default word stride is 3 tokens rounded up to 4. */
                 {{.out_form = MMLA_OUT_FP8_PERMUTED}, 3 * 8 * 512, (31 * 4 + 3) * 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_context *ctx;
        device_stage s = stage_create(&ctx);
        mmla_attend_merge_args a = cases[i].args;
        a.n_tokens = 3;
        a.n_heads = 8;
        a.out_a = a.out_b = somewhere;
        a.lse_a = a.lse_b = somewhere;
        a.out = a.out_scale = a.lse = somewhere;
        device_stage_merge(&s, &a);
        CHECK(&s, ctx, {"out_a", 3 * 8192, 16}, {"lse_a", 96, 4}, {"out_b", 3 * 8192, 16},
              {"lse_b", 96, 4}, {"out", cases[i].out_bytes, 32},
              {"out_scale", cases[i].scale_bytes, 4}, {"lse", 96, 4});
    }
}

static void kv_insert_and_kv_gather_have_the_bytes_of_their_strides(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    const mmla_kv_insert_desc d = {.cache = {.format = MMLA_KV_INDEX_FP8,
                                             .page_tokens = 5,
                                             .n_pages = 2,
                                             .page_stride_bytes = 800},
                                   .row_stride = 136,
                                   .norm = 1,
                                   .rope_positions = 2};
    mmla_kv_insert_args a = {.n_rows = 4,
                             .n_slots = 3,
                             .rows = somewhere,
                             .positions = somewhere,
                             .slots = somewhere,
                             .cos_sin = somewhere,
                             .norm_weight = somewhere,
                             .cache = somewhere,
                             .n_faults = somewhere};
    device_stage_kv_insert(&s, &d, &a);
    CHECK(&s, ctx, {"rows", (3 * 136 + 128) * 2, 16}, {"positions", 32, 8}, {"slots", 24, 8},
          {"cos_sin", 512, 4}, {"norm_weight", 512, 4}, {"the cache", 800 + 5 * 132, 16},
          {"n_faults", 4, 4});
    s = stage_create(&ctx);
    const mmla_kv_gather_desc gather = {
        .cache = {.format = MMLA_KV_V41_FP8, .page_tokens = 2, .n_pages = 1},
        .table_width = 3,
        .table_stride = 4,
        .rows = 6,
        .row_stride = 520};
    mmla_kv_gather_args g = {.n_requests = 2,
                             .block_table = somewhere,
                             .seq_lens = somewhere,
                             .cache = somewhere,
                             .out = somewhere};
    device_stage_kv_gather(&s, &gather, &g);
    CHECK(&s, ctx, {"block_table", (4 + 3) * 4, 4}, {"seq_lens", 8, 4}, {"the cache", 2 * 528, 16},
          {"out", (11 * 520 + 512) * 2, 16});
}

static void kv_gather_has_the_rows_of_the_call_and_queries_for_its_window(void **state) {
    (void)state;
    mmla_kv_gather_desc d = {.cache = {.format = MMLA_KV_V41_FP4, .page_tokens = 2, .n_pages = 1},
                             .table_width = 3,
                             .rows = 6,
                             .window = 4};
    const mmla_kv_gather_args all = {.n_requests = 2,
                                     .block_table = somewhere,
                                     .seq_lens = somewhere,
                                     .query_start = somewhere,
                                     .rows = 7,
                                     .offset = 5,
                                     .cache = somewhere,
                                     .out = somewhere};
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    mmla_kv_gather_args a = all;
    device_stage_kv_gather(&s, &d, &a);
    CHECK(&s, ctx, {"block_table", 24, 4}, {"seq_lens", 8, 4}, {"query_start", 12, 4},
          {"the cache", 2 * 288, 16}, {"out", 14 * 512 * 2, 16});
    s = stage_create(&ctx);
    a = all;
    a.gather_lens = somewhere; /* then lengths do not come of queries */
    a.rows = 0;
    device_stage_kv_gather(&s, &d, &a);
    CHECK(&s, ctx, {"block_table", 24, 4}, {"seq_lens", 8, 4}, {"gather_lens", 8, 4},
          {"the cache", 2 * 288, 16}, {"out", 12 * 512 * 2, 16});
    s = stage_create(&ctx);
    a = all;
    d.window = 0;
    device_stage_kv_gather(&s, &d, &a);
    CHECK(&s, ctx, {"block_table", 24, 4}, {"seq_lens", 8, 4}, {"the cache", 2 * 288, 16},
          {"out", 14 * 512 * 2, 16});
}

/* Every pointer set; what the kind does not use is not staged. */
static mmla_list_args list_args(const int32_t *span_start) {
    return (mmla_list_args){.n_tokens = 5,
                            .n_requests = 2,
                            .query_start = somewhere,
                            .seq_lens = somewhere,
                            .gather_lens = somewhere,
                            .block_table = somewhere,
                            .ring_blocks = somewhere,
                            .request = somewhere,
                            .topk = somewhere,
                            .positions = somewhere,
                            .slots = somewhere,
                            .valid = somewhere,
                            .left = somewhere,
                            .right = somewhere,
                            .span_start = span_start,
                            .spans = somewhere,
                            .n_faults = somewhere,
                            .list = somewhere,
                            .lens = somewhere,
                            .out_slots = somewhere,
                            .out_left = somewhere,
                            .out_right = somewhere};
}

static void each_list_has_the_arrays_of_its_kind(void **state) {
    (void)state;
    const int32_t span_start[] = {0, 1, 3};
    mmla_list_desc d = {.table_width = 3,
                        .table_stride = 4,
                        .width = 6,
                        .list_stride = 8,
                        .topk_width = 2,
                        .topk_stride = 3,
                        .image_tokens = 1};
    const int64_t table = (4 + 3) * 4, list = (4 * 8 + 6) * 4, topk = (4 * 3 + 2) * 4;
    mmla_context *ctx;
    for (int draft = 0; draft < 2; draft++) {
        device_stage s = stage_create(&ctx);
        mmla_list_args a = list_args(span_start);
        d.kind = draft ? MMLA_LIST_DRAFT : MMLA_LIST_WINDOW;
        device_stage_list(&s, &d, &a);
        CHECK(&s, ctx, {"query_start", 12, 4}, {"seq_lens", 8, 4}, {"block_table", table, 4},
              {"valid", 5, 1}, {"list", list, 4}, {"lens", 20, 4}, {"n_faults", 4, 4});
    }
    device_stage s = stage_create(&ctx);
    mmla_list_args a = list_args(span_start);
    d.kind = MMLA_LIST_COMPRESSED;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"block_table", table, 4}, {"request", 20, 4}, {"topk", topk, 4},
          {"valid", 5, 1}, {"list", list, 4}, {"lens", 20, 4}, {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a = list_args(span_start);
    d.kind = MMLA_LIST_COMBINED;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"query_start", 12, 4}, {"seq_lens", 8, 4}, {"gather_lens", 8, 4},
          {"topk", topk, 4}, {"valid", 5, 1}, {"left", 20, 4}, {"right", 20, 4}, {"list", list, 4},
          {"lens", 20, 4}, {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a = list_args(span_start);
    a.gather_lens = NULL;
    a.request_rows = 50; /* of a workspace that is not there yet */
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"query_start", 12, 4}, {"seq_lens", 8, 4}, {"topk", topk, 4}, {"valid", 5, 1},
          {"left", 20, 4}, {"right", 20, 4}, {"list", list, 4}, {"lens", 20, 4},
          {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a = list_args(span_start);
    d.kind = MMLA_LIST_COMPRESSED_SLOTS;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"block_table", table, 4}, {"request", 20, 4}, {"positions", 40, 8},
          {"slots", 40, 8}, {"out_slots", 40, 8}, {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a = list_args(span_start);
    d.kind = MMLA_LIST_RING_SLOTS;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"ring_blocks", 8, 4}, {"request", 20, 4}, {"positions", 40, 8},
          {"slots", 40, 8}, {"out_slots", 40, 8}, {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a = list_args(span_start);
    d.kind = MMLA_LIST_IMAGE_SPANS;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"query_start", 12, 4}, {"seq_lens", 8, 4}, {"span_start", 12, 4},
          {"spans", 24, 4}, {"out_left", 20, 4}, {"out_right", 20, 4}, {"n_faults", 4, 4});
    s = stage_create(&ctx);
    a.n_spans = 7; /* told, so nobody looks at span_start */
    a.span_start = somewhere;
    device_stage_list(&s, &d, &a);
    CHECK(&s, ctx, {"query_start", 12, 4}, {"seq_lens", 8, 4}, {"span_start", 12, 4},
          {"spans", 56, 4}, {"out_left", 20, 4}, {"out_right", 20, 4}, {"n_faults", 4, 4});
}

static void weights_and_project_have_the_bytes_of_their_sizes(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    const mmla_weights_args all = {
        .in = somewhere, .out = somewhere, .scale_in = somewhere, .scale_out = somewhere};
    mmla_weights_args a = all;
    mmla_weights_desc d = {
        .kind = MMLA_WEIGHTS_PERMUTE_WQ_B, .n_heads = 8, .cols = 3, .scale_cols = 2};
    device_stage_weights(&s, &d, &a);
    CHECK(&s, ctx, {"in", 4096 * 3, 1}, {"out", 4096 * 3, 1}, {"scale_in", 8192, 1},
          {"scale_out", 8192, 1});
    s = stage_create(&ctx);
    a = all;
    d = (mmla_weights_desc){.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = 3};
    device_stage_weights(&s, &d, &a);
    CHECK(&s, ctx, {"in", 3 * 4096, 1}, {"out", 3 * 4096, 1}, {"scale_in", 384, 1},
          {"scale_out", 384, 1});
    s = stage_create(&ctx);
    a = all;
    d = (mmla_weights_desc){.kind = MMLA_WEIGHTS_EXPAND_SCALES, .rows = 33, .scale_cols = 5};
    device_stage_weights(&s, &d, &a);
    CHECK(&s, ctx, {"scale_in", 10, 1}, {"scale_out", 165, 1});
    s = stage_create(&ctx);
    a = all;
    d = (mmla_weights_desc){.kind = MMLA_WEIGHTS_Q_TO_STANDARD, .n_heads = 8, .rows = 2};
    device_stage_weights(&s, &d, &a);
    CHECK(&s, ctx, {"in", 2 * 8192, 2}, {"out", 2 * 8192, 2});

    const mmla_project_args operands = {.n_tokens = 3,
                                        .x = somewhere,
                                        .x_scale = somewhere,
                                        .weight = somewhere,
                                        .weight_scale = somewhere,
                                        .z = somewhere};
    s = stage_create(&ctx);
    mmla_project_args p = operands;
    device_stage_project(&s, &(mmla_project_desc){.n_groups = 2, .rank = 8}, &p);
    CHECK(&s, ctx, {"x", 6 * 4096, 16}, {"x_scale", (32 * 4 + 31 * 4 + 3) * 4, 4},
          {"weight", 16 * 4096, 16}, {"weight_scale", 16 * 128, 1}, {"z", 3 * 2 * 8 * 2, 2});
    s = stage_create(&ctx);
    p = operands;
    device_stage_project(
        &s, &(mmla_project_desc){.n_groups = 1, .x_scale_layout = MMLA_SCALE_BYTES}, &p);
    CHECK(&s, ctx, {"x", 3 * 4096, 16}, {"x_scale", 3 * 128, 1}, {"weight", 1024 * 4096, 16},
          {"weight_scale", 1024 * 128, 1}, {"z", 3 * 1024 * 2, 2});
}

static void a_call_without_work_stages_nothing(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s = stage_create(&ctx);
    mmla_attend_args attend = attend_args(0);
    mmla_list_args list = list_args(NULL);
    mmla_weights_args weights = {.in = somewhere, .out = somewhere};
    list.n_tokens = 0;
    device_stage_attend(&s, &(mmla_attend_desc){.n_heads = 8}, &attend);
    device_stage_merge(&s, &(mmla_attend_merge_args){.n_heads = 8, .out = somewhere});
    device_stage_kv_insert(&s, &(mmla_kv_insert_desc){.cache.format = MMLA_KV_V4},
                           &(mmla_kv_insert_args){.n_rows = 2, .rows = somewhere});
    device_stage_kv_gather(&s, &(mmla_kv_gather_desc){.cache.format = MMLA_KV_V4},
                           &(mmla_kv_gather_args){.seq_lens = somewhere});
    device_stage_list(&s, &(mmla_list_desc){0}, &list);
    device_stage_weights(&s, &(mmla_weights_desc){.kind = MMLA_WEIGHTS_PERMUTE_WO_A}, &weights);
    device_stage_project(&s, &(mmla_project_desc){.n_groups = 1},
                         &(mmla_project_args){.x = somewhere});
    assert_int_equal(s.n_fields, 0);
    assert_ptr_equal(attend.q, somewhere);
    device_stage_deinit(&s);
    mmla_context_destroy(ctx);
}

/* One whole call, on the caller's arrays and on copies: q of 16-bit elements 0 .. 8191 moved. */
static void a_call_on_copies_gives_the_same_result(void **state) {
    (void)state;
    enum { N = 2 * 8 * 512 };
    static uint16_t q[N], direct[N], copied[N];
    for (int i = 0; i < N; i++) {
        q[i] = (uint16_t)i;
    }
    const device_options options[] = {
        {0}, {.copies = true}, {.copies = true, .graph = true, .blank = 0x7F}};
    const mmla_weights_desc d = {.kind = MMLA_WEIGHTS_Q_TO_FUSED, .n_heads = 8, .rows = 2};
    mmla_context *ctx;
    mmla_weights_plan *plan;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    assert_int_equal(mmla_weights_plan_create(ctx, &d, &plan, NULL), MMLA_OK);
    for (int i = 0; i < 3; i++) {
        /* A workspace nobody asked for is there all the same, and freed. */
        device_call call = {.ctx = ctx, .options = &options[i], .workspace_bytes = 100};
        const mmla_weights_args a = {.in = q, .out = i > 0 ? copied : direct};
        assert_int_equal(device_call_weights(&call, plan, &d, &a), MMLA_OK);
        assert_string_equal(call.damage, "");
        assert_true(i == 0 || memcmp(direct, copied, sizeof direct) == 0);
        memset(copied, 0, sizeof copied);
    }
    assert_int_equal(direct[128], q[16]);
    mmla_weights_plan_destroy(plan);
    mmla_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attend_paged_has_the_bytes_of_its_strides),
        cmocka_unit_test(attend_rows_has_no_cache_and_bf16_no_scales),
        cmocka_unit_test(scales_of_the_other_forms_are_contiguous),
        cmocka_unit_test(kv_insert_and_kv_gather_have_the_bytes_of_their_strides),
        cmocka_unit_test(kv_gather_has_the_rows_of_the_call_and_queries_for_its_window),
        cmocka_unit_test(each_list_has_the_arrays_of_its_kind),
        cmocka_unit_test(weights_and_project_have_the_bytes_of_their_sizes),
        cmocka_unit_test(a_call_without_work_stages_nothing),
        cmocka_unit_test(a_call_on_copies_gives_the_same_result),
    };
    return cmocka_run_group_tests_name("device_call", tests, NULL, NULL);
}
