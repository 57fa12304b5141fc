/* list_plan_test.c - every field and pointer of the index builders is checked, and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/list.h>

static mmla_context *ctx;

static int open_context(void **state) {
    (void)state;
    return mmla_context_create(NULL, &ctx, NULL) == MMLA_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    mmla_context_destroy(ctx);
    return 0;
}

/* A description that is legal for every kind. */
static mmla_list_desc good_desc(mmla_list_kind kind) {
    return (mmla_list_desc){.kind = kind,
                            .max_tokens = 4,
                            .max_requests = 2,
                            .window = 8,
                            .page_tokens = 4,
                            .n_pages = 3,
                            .table_width = 2,
                            .width = 20,
                            .topk_width = 6,
                            .ratio = 2,
                            .topk = 5,
                            .request_rows = 40,
                            .window_offset = 10,
                            .image_tokens = 7};
}

#define OF(kind) (1u << MMLA_LIST_##kind)
enum {
    TABLE = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMPRESSED_SLOTS),
    LIST = OF(WINDOW) | OF(DRAFT) | OF(COMPRESSED) | OF(COMBINED),
    ALL = (1u << (MMLA_LIST_IMAGE_SPANS + 1)) - 1
};

/* Field by field: a value that the kinds of `refused_by` refuse and the others do not look at. */
static const struct bad_field {
    const char *argument;
    size_t offset;
    size_t bytes;
    int64_t value;
    mmla_status status;
    unsigned refused_by;
} bad_fields[] = {
#define FIELD(name) #name, offsetof(mmla_list_desc, name), sizeof(((mmla_list_desc *)0)->name)
    {FIELD(max_tokens), -1, MMLA_E_SHAPE, ALL},
    {FIELD(max_tokens), (int64_t)INT32_MAX + 1, MMLA_E_SHAPE, ALL},
    {FIELD(max_requests), -1, MMLA_E_SHAPE, ALL},
    {FIELD(max_requests), (int64_t)INT32_MAX + 1, MMLA_E_SHAPE, ALL},
    {FIELD(window), 0, MMLA_E_SHAPE, OF(WINDOW) | OF(DRAFT) | OF(COMBINED)},
    {FIELD(window), -3, MMLA_E_SHAPE, OF(WINDOW) | OF(DRAFT) | OF(COMBINED)},
    {FIELD(window), 65537, MMLA_E_SHAPE, OF(WINDOW) | OF(DRAFT) | OF(COMBINED)},
    {FIELD(page_tokens), 0, MMLA_E_SHAPE, TABLE | OF(RING_SLOTS)},
    {FIELD(page_tokens), 65537, MMLA_E_SHAPE, TABLE | OF(RING_SLOTS)},
    {FIELD(page_tokens), 6, MMLA_E_SHAPE, OF(RING_SLOTS)},
    {FIELD(n_pages), -1, MMLA_E_SHAPE, TABLE | OF(RING_SLOTS)},
    {FIELD(n_pages), INT32_MAX / 4 + 1, MMLA_E_SHAPE, TABLE | OF(RING_SLOTS)},
    {FIELD(table_width), 0, MMLA_E_SHAPE, TABLE},
    {FIELD(table_stride), 1, MMLA_E_STRIDE, TABLE},
    {FIELD(table_stride), -2, MMLA_E_STRIDE, TABLE},
    {FIELD(table_stride), INT64_MAX, MMLA_E_SIZE, TABLE},
    {FIELD(width), 5, MMLA_E_SHAPE, LIST},
    {FIELD(width), 7, MMLA_E_SHAPE, LIST & ~OF(COMPRESSED)},
    {FIELD(width), 19, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(list_stride), 19, MMLA_E_STRIDE, LIST},
    {FIELD(list_stride), INT64_MAX / 4, MMLA_E_SIZE, LIST},
    {FIELD(topk_width), -1, MMLA_E_SHAPE, OF(COMPRESSED) | OF(COMBINED)},
    {FIELD(topk_width), 0, MMLA_E_SHAPE, OF(COMPRESSED)},
    {FIELD(topk_stride), 5, MMLA_E_STRIDE, OF(COMPRESSED) | OF(COMBINED)},
    {FIELD(topk_stride), INT64_MAX / 4, MMLA_E_SIZE, OF(COMPRESSED) | OF(COMBINED)},
    {FIELD(ratio), 3, MMLA_E_VALUE, OF(COMBINED) | OF(COMPRESSED_SLOTS)},
    {FIELD(ratio), -1, MMLA_E_VALUE, OF(COMBINED) | OF(COMPRESSED_SLOTS)},
    {FIELD(ratio), 0, MMLA_E_VALUE, OF(COMPRESSED_SLOTS)},
    {FIELD(topk), 7, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(topk), -1, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(request_rows), -1, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(request_rows), INT32_MAX / 2 + 1, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(window_offset), 41, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(window_offset), -1, MMLA_E_SHAPE, OF(COMBINED)},
    {FIELD(image_tokens), -1, MMLA_E_SHAPE, OF(COMBINED) | OF(IMAGE_SPANS)},
#undef FIELD
};

static void every_bad_field_is_named_and_other_kinds_ignore_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_fields / sizeof bad_fields[0]; i++) {
        const struct bad_field *f = &bad_fields[i];
        for (int kind = MMLA_LIST_WINDOW; kind <= MMLA_LIST_IMAGE_SPANS; kind++) {
            mmla_list_desc desc = good_desc((mmla_list_kind)kind);
            const int32_t narrow = (int32_t)f->value;
            memcpy((char *)&desc + f->offset,
                   f->bytes == sizeof narrow ? (const void *)&narrow : (const void *)&f->value,
                   f->bytes);
            /* topk_width 0 is legal for COMBINED together with topk 0 */
            if (kind == MMLA_LIST_COMBINED && f->status == MMLA_E_SHAPE && desc.topk_width == 0) {
                desc.topk = 0;
            }
            mmla_error err = {.status = MMLA_OK};
            mmla_list_plan *plan = NULL;
            const mmla_status status = mmla_list_plan_create(ctx, &desc, &plan, &err);
            if ((f->refused_by & (1u << kind)) == 0) {
                if (status != MMLA_OK) {
                    fail_msg("kind %d refuses %s = %lld: %s", kind, f->argument,
                             (long long)f->value, err.message);
                }
                mmla_list_plan_destroy(plan);
                continue;
            }
            if (status != f->status) {
                fail_msg("kind %d, %s = %lld: status %d", kind, f->argument, (long long)f->value,
                         (int)status);
            }
            assert_null(plan);
            assert_string_equal(err.argument, f->argument);
            assert_non_null(strstr(err.message, f->argument));
        }
    }
}

static void an_unknown_kind_is_refused(void **state) {
    (void)state;
    for (int kind = -1; kind <= 7; kind += 8) {
        const mmla_list_desc desc = good_desc((mmla_list_kind)kind);
        mmla_error err;
        mmla_list_plan *plan;
        assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, &err), MMLA_E_VALUE);
        assert_string_equal(err.argument, "kind");
    }
}

static void slots_reach_the_last_int32(void **state) {
    (void)state;
    mmla_list_desc desc = good_desc(MMLA_LIST_COMPRESSED_SLOTS);
    desc.page_tokens = 65536;
    desc.n_pages = INT32_MAX / 65536;
    desc.ratio = 1;
    mmla_list_plan *plan;
    assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    const int32_t pages[] = {INT32_MAX / 65536 - 1, 0}, request[] = {0};
    const int64_t positions[] = {65535}, slots[] = {0};
    int64_t out[1];
    const mmla_list_args args = {.n_tokens = 1,
                                 .n_requests = 1,
                                 .block_table = pages,
                                 .request = request,
                                 .positions = positions,
                                 .slots = slots,
                                 .out_slots = out};
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_OK);
    assert_int_equal(out[0], (int64_t)(INT32_MAX / 65536) * 65536 - 1);
    mmla_list_plan_destroy(plan);
}

/* Every pointer that the table in list.h gives a kind, taken away and shifted by one byte. */
enum role { NEEDED, OPTIONAL, WRITTEN };
static const struct pointer {
    const char *argument;
    size_t offset;
    unsigned used_by;
    enum role role;
} pointers[] = {
#define POINTER(name) #name, offsetof(mmla_list_args, name)
    {POINTER(query_start), OF(WINDOW) | OF(DRAFT) | OF(COMBINED) | OF(IMAGE_SPANS), NEEDED},
    {POINTER(seq_lens), OF(WINDOW) | OF(DRAFT) | OF(COMBINED) | OF(IMAGE_SPANS), NEEDED},
    {POINTER(gather_lens), OF(COMBINED), OPTIONAL},
    {POINTER(block_table), TABLE, NEEDED},
    {POINTER(ring_blocks), OF(RING_SLOTS), NEEDED},
    {POINTER(request), OF(COMPRESSED) | OF(COMPRESSED_SLOTS) | OF(RING_SLOTS), NEEDED},
    {POINTER(topk), OF(COMPRESSED) | OF(COMBINED), NEEDED},
    {POINTER(positions), OF(COMPRESSED_SLOTS) | OF(RING_SLOTS), NEEDED},
    {POINTER(slots), OF(COMPRESSED_SLOTS) | OF(RING_SLOTS), NEEDED},
    {POINTER(left), OF(COMBINED), NEEDED},
    {POINTER(right), OF(COMBINED), NEEDED},
    {POINTER(span_start), OF(IMAGE_SPANS), NEEDED},
    {POINTER(list), LIST, WRITTEN},
    {POINTER(lens), LIST, WRITTEN},
    {POINTER(out_slots), OF(COMPRESSED_SLOTS) | OF(RING_SLOTS), WRITTEN},
    {POINTER(out_left), OF(IMAGE_SPANS), WRITTEN},
    {POINTER(out_right), OF(IMAGE_SPANS), WRITTEN},
#undef POINTER
};
#undef OF

static void every_missing_or_crooked_pointer_is_named(void **state) {
    (void)state;
    static int64_t memory[64]; /* zero: query_start and span_start are legal */
    for (int kind = MMLA_LIST_WINDOW; kind <= MMLA_LIST_IMAGE_SPANS; kind++) {
        const mmla_list_desc desc = good_desc((mmla_list_kind)kind);
        mmla_list_plan *plan;
        assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
        assert_int_equal(mmla_list_workspace_bytes(plan), 0);
        for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
            for (int crooked = 0; crooked < 2; crooked++) {
                mmla_error err = {.status = MMLA_OK};
                mmla_list_args args = {.n_tokens = 1, .n_requests = 1, .error = &err};
                static int64_t sink[64];
                for (size_t j = 0; j < sizeof pointers / sizeof pointers[0]; j++) {
                    const void *p = pointers[j].role == WRITTEN ? sink : memory;
                    if (j == i) {
                        p = crooked ? (const char *)p + 1 : NULL;
                    }
                    memcpy((char *)&args + pointers[j].offset, &p, sizeof p);
                }
                const mmla_status status = mmla_list_run(plan, &args, NULL, NULL);
                if ((pointers[i].used_by & (1u << kind)) == 0 ||
                    (pointers[i].role == OPTIONAL && !crooked)) {
                    assert_int_equal(status, MMLA_OK);
                } else {
                    assert_int_equal(status, crooked ? MMLA_E_ALIGNMENT : MMLA_E_NULL);
                    assert_string_equal(err.argument, pointers[i].argument);
                }
            }
        }
        mmla_list_plan_destroy(plan);
    }
}

static void a_crooked_fault_count_and_a_negative_span_count_are_refused(void **state) {
    (void)state;
    static int64_t memory[64];
    const mmla_list_desc desc = good_desc(MMLA_LIST_IMAGE_SPANS);
    mmla_list_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    mmla_list_args args = {.n_tokens = 1,
                           .n_requests = 1,
                           .query_start = (int32_t *)memory,
                           .seq_lens = (int32_t *)memory,
                           .span_start = (int32_t *)memory,
                           .out_left = (int32_t *)memory + 2,
                           .out_right = (int32_t *)memory + 3,
                           .n_faults = (int32_t *)((char *)memory + 1),
                           .error = &err};
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_E_ALIGNMENT);
    assert_string_equal(err.argument, "n_faults");
    args.n_faults = NULL;
    const int64_t counts[] = {-1, (int64_t)INT32_MAX + 1};
    for (int i = 0; i < 2; i++) {
        args.n_spans = counts[i];
        assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_E_SHAPE);
        assert_string_equal(err.argument, "n_spans");
    }
    args.n_spans = INT32_MAX;
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_OK);
    mmla_list_plan_destroy(plan);
}

/* M and N of a call, where R is that call's and not the most of the plan. */
static void rows_of_a_call_are_checked_and_other_kinds_ignore_them(void **state) {
    (void)state;
    static const struct {
        int64_t n_requests, m, n;
        const char *argument; /* NULL: legal */
    } cases[] = {
        {1, -1, 0, "request_rows"},
        {2, INT32_MAX / 2, INT32_MAX / 2, NULL},
        {2, INT32_MAX / 2 + 1, 0, "request_rows"},
        {1, INT32_MAX / 2 + 1, 0, NULL},
        {1, INT32_MAX, INT32_MAX, NULL},
        {1, (int64_t)INT32_MAX + 1, 0, "request_rows"},
        {0, INT32_MAX, 0, NULL},
        {0, (int64_t)INT32_MAX + 1, 0, "request_rows"},
        {1, INT64_MIN, 0, "request_rows"},
        {1, 7, 8, "window_offset"},
        {1, 7, -1, "window_offset"},
        {1, 7, 7, NULL},
        {1, 0, 99, NULL}, /* no rows: the offset is not looked at */
        {1, 0, -1, NULL},
    };
    static int64_t memory[64], sink[64];
    for (int kind = MMLA_LIST_WINDOW; kind <= MMLA_LIST_IMAGE_SPANS; kind++) {
        const mmla_list_desc desc = good_desc((mmla_list_kind)kind);
        mmla_list_plan *plan;
        assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            mmla_error err = {.status = MMLA_OK};
            mmla_list_args args = {.n_tokens = 1,
                                   .n_requests = cases[i].n_requests,
                                   .request_rows = cases[i].m,
                                   .window_offset = cases[i].n,
                                   .error = &err};
            for (size_t j = 0; j < sizeof pointers / sizeof pointers[0]; j++) {
                const void *p = pointers[j].role == WRITTEN ? sink : memory;
                memcpy((char *)&args + pointers[j].offset, &p, sizeof p);
            }
            sink[0] = 77;
            const mmla_status status = mmla_list_run(plan, &args, NULL, NULL);
            if (kind == MMLA_LIST_COMBINED && cases[i].argument != NULL) {
                assert_int_equal(status, MMLA_E_SHAPE);
                assert_string_equal(err.argument, cases[i].argument);
                assert_int_equal(sink[0], 77); /* nothing is written */
                args.n_tokens = 0;             /* touches nothing, whatever the rest says */
                assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_OK);
            } else if (status != MMLA_OK) {
                fail_msg("kind %d, case %zu: %s", kind, i, err.message);
            }
        }
        mmla_list_plan_destroy(plan);
    }
}

static void rows_of_a_call_are_that_calls_alone(void **state) {
    (void)state;
    const mmla_list_desc desc = good_desc(MMLA_LIST_COMBINED); /* M = 40, N = 10 */
    const int32_t query_start[] = {0, 0, 1}, seq_lens[] = {0, 1}, zero[] = {0, 0, 0, 0, 0, 0};
    int32_t list[20], lens[1];
    mmla_list_plan *plan;
    assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    mmla_list_args args = {.n_tokens = 1,
                           .n_requests = 2,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .topk = zero,
                           .left = zero,
                           .right = zero,
                           .list = list,
                           .lens = lens};
    mmla_list_args own = args;
    own.request_rows = 100;
    own.window_offset = 3;
    assert_int_equal(mmla_list_run(plan, &own, NULL, NULL), MMLA_OK);
    assert_int_equal(list[0], 103);
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_OK);
    assert_int_equal(list[0], 50);
    assert_int_equal(lens[0], 1);
    mmla_list_plan_destroy(plan);
}

static void counts_past_the_plan_are_refused(void **state) {
    (void)state;
    const mmla_list_desc desc = good_desc(MMLA_LIST_WINDOW);
    mmla_list_plan *plan;
    mmla_error err;
    assert_int_equal(mmla_list_plan_create(ctx, &desc, &plan, NULL), MMLA_OK);
    mmla_list_args args = {.n_tokens = 5, .n_requests = 2, .error = &err};
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_E_SHAPE);
    assert_string_equal(err.argument, "n_tokens");
    args.n_tokens = 4;
    args.n_requests = 3;
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_E_SHAPE);
    assert_string_equal(err.argument, "n_requests");
    args.n_requests = -1;
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_E_SHAPE);
    assert_int_equal(mmla_list_run(NULL, &args, NULL, NULL), MMLA_E_NULL);
    assert_int_equal(mmla_list_run(plan, NULL, NULL, NULL), MMLA_E_NULL);
    mmla_list_plan_destroy(plan);
    mmla_list_plan_destroy(NULL);
}

static void missing_arguments_leave_no_plan(void **state) {
    (void)state;
    const mmla_list_desc desc = good_desc(MMLA_LIST_WINDOW);
    mmla_error err;
    mmla_list_plan *plan = (mmla_list_plan *)&err;
    assert_int_equal(mmla_list_plan_create(NULL, &desc, &plan, &err), MMLA_E_NULL);
    assert_null(plan);
    assert_string_equal(err.argument, "ctx");
    assert_int_equal(mmla_list_plan_create(ctx, NULL, &plan, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "desc");
    assert_int_equal(mmla_list_plan_create(ctx, &desc, NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.argument, "plan");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bad_field_is_named_and_other_kinds_ignore_it),
        cmocka_unit_test(an_unknown_kind_is_refused),
        cmocka_unit_test(slots_reach_the_last_int32),
        cmocka_unit_test(every_missing_or_crooked_pointer_is_named),
        cmocka_unit_test(a_crooked_fault_count_and_a_negative_span_count_are_refused),
        cmocka_unit_test(rows_of_a_call_are_checked_and_other_kinds_ignore_them),
        cmocka_unit_test(rows_of_a_call_are_that_calls_alone),
        cmocka_unit_test(counts_past_the_plan_are_refused),
        cmocka_unit_test(missing_arguments_leave_no_plan),
    };
    return cmocka_run_group_tests_name("list_plan", tests, open_context, close_context);
}
