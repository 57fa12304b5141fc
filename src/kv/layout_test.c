/* Sizes, addresses and refusals of the cache geometry. Numbers are written out here on purpose:
 * they are what engines and kernels elsewhere use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/layout.h"

static const struct {
    mmla_kv_format format;
    const char *name;
    int32_t dims;
    int64_t data_bytes, scale_bytes, alignment;
} rows[] = {
    {MMLA_KV_V4, "v4", 512, 576, 8, 576},
    {MMLA_KV_V41_FP8, "v41_fp8", 512, 512, 16, 512},
    {MMLA_KV_V41_FP4, "v41_fp4", 512, 256, 32, 512},
    {MMLA_KV_INDEX_FP8, "index_fp8", 128, 128, 4, 16},
    {MMLA_KV_INDEX_FP4, "index_fp4", 128, 64, 4, 16},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void layout_record_sizes_are_those_of_the_formats(void **state) {
    (void)state;
    static const int64_t records[N_ROWS] = {584, 528, 288, 132, 68};
    for (int i = 0; i < N_ROWS; i++) {
        assert_int_equal(mmla_kv_record_bytes(rows[i].format), records[i]);
        assert_int_equal(rows[i].data_bytes + rows[i].scale_bytes, records[i]);
        assert_int_equal(mmla_kv_dims(rows[i].format), rows[i].dims);
        assert_int_equal(mmla_kv_page_alignment(rows[i].format), rows[i].alignment);
    }
}

static void layout_unknown_formats_have_no_size(void **state) {
    (void)state;
    const int unknown[] = {0, -1, 6, 7, 1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        const mmla_kv_format format = (mmla_kv_format)unknown[i];
        assert_int_equal(mmla_kv_record_bytes(format), 0);
        assert_int_equal(mmla_kv_dims(format), 0);
        assert_int_equal(mmla_kv_page_alignment(format), 0);
        assert_int_equal(mmla_kv_page_bytes(format, 64), 0);
    }
    assert_string_equal(mmla_kv_format_name(MMLA_KV_NONE), "none");
    assert_string_equal(mmla_kv_format_name((mmla_kv_format)77), "unknown");
}

static void layout_pages_round_up_as_engines_do(void **state) {
    (void)state;
    static const struct {
        mmla_kv_format format;
        int32_t tokens;
        int64_t bytes;
    } pages[] = {
        {MMLA_KV_V41_FP8, 32, 16896},  {MMLA_KV_V41_FP8, 1, 1024},    {MMLA_KV_V41_FP8, 64, 33792},
        {MMLA_KV_V41_FP8, 61, 32256},  {MMLA_KV_V41_FP4, 128, 36864}, {MMLA_KV_V41_FP4, 64, 18432},
        {MMLA_KV_V41_FP4, 1, 512},     {MMLA_KV_V41_FP4, 8, 2560},    {MMLA_KV_V4, 64, 37440},
        {MMLA_KV_V4, 72, 42048},       {MMLA_KV_V4, 1, 1152},         {MMLA_KV_INDEX_FP8, 64, 8448},
        {MMLA_KV_INDEX_FP8, 1, 144},   {MMLA_KV_INDEX_FP4, 64, 4352}, {MMLA_KV_INDEX_FP4, 1, 80},
        {MMLA_KV_V4, 65536, 38273472},
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        assert_int_equal(mmla_kv_page_bytes(pages[i].format, pages[i].tokens), pages[i].bytes);
    }
    assert_int_equal(mmla_kv_page_bytes(MMLA_KV_V4, 0), 0);
    assert_int_equal(mmla_kv_page_bytes(MMLA_KV_V4, -1), 0);
    assert_int_equal(mmla_kv_page_bytes(MMLA_KV_V4, 65537), 0);
}

static void layout_every_page_size_holds_its_records_and_no_spare_unit(void **state) {
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        for (int32_t tokens = 1; tokens <= 300; tokens++) {
            const int64_t bytes = mmla_kv_page_bytes(rows[i].format, tokens);
            const int64_t records = tokens * mmla_kv_record_bytes(rows[i].format);
            assert_true(bytes >= records && bytes < records + rows[i].alignment);
            assert_int_equal(bytes % rows[i].alignment, 0);
        }
    }
}

static void layout_names_parse_back(void **state) {
    (void)state;
    mmla_kv_format format;
    for (int i = 0; i < N_ROWS; i++) {
        assert_string_equal(mmla_kv_format_name(rows[i].format), rows[i].name);
        assert_int_equal(mmla_kv_format_parse(rows[i].name, &format, NULL), MMLA_OK);
        assert_int_equal(format, rows[i].format);
    }
    assert_int_equal(mmla_kv_format_parse("none", &format, NULL), MMLA_OK);
    assert_int_equal(format, MMLA_KV_NONE);
}

static void layout_parse_refuses_what_is_no_name(void **state) {
    (void)state;
    mmla_error err;
    mmla_kv_format format = MMLA_KV_V4;
    const char *bad[] = {"", "V4", "v4 ", "v41", "fp8"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(mmla_kv_format_parse(bad[i], &format, &err), MMLA_E_FORMAT);
        assert_string_equal(err.argument, "format");
        assert_non_null(strstr(err.message, "must be v4, v41_fp8, v41_fp4, index_fp8"));
    }
    assert_int_equal(format, MMLA_KV_V4);
    assert_int_equal(mmla_kv_format_parse(NULL, &format, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "name: is NULL");
    assert_int_equal(mmla_kv_format_parse("v4", NULL, &err), MMLA_E_NULL);
    assert_string_equal(err.message, "format: is NULL");
}

static void layout_offsets_follow_the_drawing(void **state) {
    (void)state;
    static const int32_t page_tokens[] = {1, 2, 61, 64};
    for (int i = 0; i < N_ROWS; i++) {
        for (size_t t = 0; t < sizeof page_tokens / sizeof page_tokens[0]; t++) {
            const int64_t tokens = page_tokens[t], stride = 1000000 + 16 * (int64_t)t;
            const mmla_cache_desc desc = {rows[i].format, page_tokens[t], 5, stride};
            mmla_kv_view view;
            assert_int_equal(mmla_kv_view_init(&desc, "cache", &view, NULL), MMLA_OK);
            assert_int_equal(view.n_slots, 5 * tokens);
            for (int64_t slot = 0; slot < view.n_slots; slot++) {
                const int64_t page = slot / tokens * stride, record = slot % tokens;
                assert_int_equal(mmla_kv_data_offset(&view, slot),
                                 page + record * rows[i].data_bytes);
                assert_int_equal(mmla_kv_scale_offset(&view, slot),
                                 page + tokens * rows[i].data_bytes + record * rows[i].scale_bytes);
            }
        }
    }
}

static void layout_offsets_are_64_bit(void **state) {
    (void)state;
    const mmla_cache_desc desc = {MMLA_KV_V41_FP8, 1, INT32_MAX, INT64_C(1) << 32};
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&desc, "cache", &view, NULL), MMLA_OK);
    assert_true(mmla_kv_scale_offset(&view, INT32_MAX - 1) ==
                ((INT64_C(1) << 32) * (INT32_MAX - 1)) + 512);
}

/* Around the first and last slots of pages, where a quotient is nearest to the next. */
static void layout_page_is_the_quotient_at_every_page_size(void **state) {
    (void)state;
    for (int32_t page_tokens = 1; page_tokens <= MMLA_KV_PAGE_TOKENS_MAX; page_tokens++) {
        mmla_kv_view view = {.format = MMLA_KV_V41_FP8};
        mmla_kv_view_page_tokens_set(&view, page_tokens);
        const int64_t last_page = INT32_MAX / page_tokens;
        const int64_t pages[] = {0, 1, last_page / 3, last_page - 1, last_page};
        for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
            for (int64_t slot = pages[i] * page_tokens - 1; slot <= pages[i] * page_tokens + 1;
                 slot++) {
                if (slot >= 0 && slot <= INT32_MAX) {
                    assert_int_equal(mmla_kv_page(&view, slot), slot / page_tokens);
                }
            }
        }
        assert_int_equal(mmla_kv_page(&view, INT32_MAX), INT32_MAX / page_tokens);
    }
}

static void layout_slots_are_legal_from_zero_to_capacity(void **state) {
    (void)state;
    const mmla_cache_desc desc = {MMLA_KV_V4, 61, 3, 0};
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&desc, "cache", &view, NULL), MMLA_OK);
    assert_int_equal(view.page_stride_bytes, mmla_kv_page_bytes(MMLA_KV_V4, 61));
    assert_true(mmla_kv_slot_is_legal(&view, 0));
    assert_true(mmla_kv_slot_is_legal(&view, 182));
    assert_false(mmla_kv_slot_is_legal(&view, 183));
    assert_false(mmla_kv_slot_is_legal(&view, -1));
    assert_false(mmla_kv_slot_is_legal(&view, INT64_MIN));
    assert_false(mmla_kv_slot_is_legal(&view, INT64_MAX));
    assert_false(mmla_kv_slot_is_legal(&view, INT64_C(1) << 32)); /* 0 when cut to 32 bits */
}

static void layout_empty_and_absent_caches_have_no_slot(void **state) {
    (void)state;
    const mmla_cache_desc empty = {MMLA_KV_V4, 64, 0, 0}, none = {0};
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&empty, "cache", &view, NULL), MMLA_OK);
    assert_false(mmla_kv_slot_is_legal(&view, 0));
    assert_int_equal(mmla_kv_view_init(&none, "cache", &view, NULL), MMLA_OK);
    assert_false(mmla_kv_slot_is_legal(&view, 0));
}

static void layout_view_refuses_and_says_why(void **state) {
    (void)state;
    static const struct {
        mmla_cache_desc desc;
        mmla_status status;
        const char *argument, *message;
    } cases[] = {
        {{(mmla_kv_format)9, 64, 1, 0},
         MMLA_E_FORMAT,
         "window.format",
         "window.format: is 9, which no format has"},
        {{(mmla_kv_format)-1, 64, 1, 0},
         MMLA_E_FORMAT,
         "window.format",
         "window.format: is -1, which no format has"},
        {{MMLA_KV_V4, 0, 1, 0},
         MMLA_E_SHAPE,
         "window.page_tokens",
         "window.page_tokens: is 0, must be 1 .. 65536"},
        {{MMLA_KV_V4, 65537, 1, 0},
         MMLA_E_SHAPE,
         "window.page_tokens",
         "window.page_tokens: is 65537, must be 1 .. 65536"},
        {{MMLA_KV_V4, 64, -1, 0},
         MMLA_E_SHAPE,
         "window.n_pages",
         "window.n_pages: is -1, must be 0 .. 33554431: slots of 64-record pages are int32"},
        {{MMLA_KV_V4, 64, 33554432, 0},
         MMLA_E_SHAPE,
         "window.n_pages",
         "window.n_pages: is 33554432, must be 0 .. 33554431: slots of 64-record pages are int32"},
        {{MMLA_KV_V41_FP8, 32, 1, 16880},
         MMLA_E_STRIDE,
         "window.page_stride_bytes",
         "window.page_stride_bytes: is 16880, must be at least the 16896 bytes of a page's "
         "records"},
        {{MMLA_KV_V41_FP8, 32, 1, -16},
         MMLA_E_STRIDE,
         "window.page_stride_bytes",
         "window.page_stride_bytes: is -16, must be at least the 16896 bytes of a page's records"},
        {{MMLA_KV_V41_FP8, 32, 1, 16904},
         MMLA_E_ALIGNMENT,
         "window.page_stride_bytes",
         "window.page_stride_bytes: is 16904, must be a multiple of 16"},
        {{MMLA_KV_V41_FP8, 1, 2, INT64_MAX - 15},
         MMLA_E_SIZE,
         "window.page_stride_bytes",
         "window.page_stride_bytes: is 9223372036854775792, 2 such pages exceed 2^63 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mmla_kv_view view;
        mmla_error err;
        assert_int_equal(mmla_kv_view_init(&cases[i].desc, "window", &view, &err), cases[i].status);
        assert_int_equal(err.status, cases[i].status);
        assert_string_equal(err.argument, cases[i].argument);
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(mmla_kv_view_init(&cases[i].desc, "window", &view, NULL), cases[i].status);
        assert_int_equal(view.n_slots, 0);
    }
}

static void layout_view_takes_every_stride_that_holds_the_page(void **state) {
    (void)state;
    mmla_kv_view view;
    const mmla_cache_desc tight = {MMLA_KV_INDEX_FP4, 4, 3, 272};
    assert_int_equal(mmla_kv_view_init(&tight, "cache", &view, NULL), MMLA_OK);
    assert_int_equal(view.page_stride_bytes, 272);
    const mmla_cache_desc largest = {MMLA_KV_V4, 1, 1, INT64_MAX - 15};
    assert_int_equal(mmla_kv_view_init(&largest, "cache", &view, NULL), MMLA_OK);
    assert_true(view.page_stride_bytes == INT64_MAX - 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_record_sizes_are_those_of_the_formats),
        cmocka_unit_test(layout_unknown_formats_have_no_size),
        cmocka_unit_test(layout_pages_round_up_as_engines_do),
        cmocka_unit_test(layout_every_page_size_holds_its_records_and_no_spare_unit),
        cmocka_unit_test(layout_names_parse_back),
        cmocka_unit_test(layout_parse_refuses_what_is_no_name),
        cmocka_unit_test(layout_offsets_follow_the_drawing),
        cmocka_unit_test(layout_offsets_are_64_bit),
        cmocka_unit_test(layout_page_is_the_quotient_at_every_page_size),
        cmocka_unit_test(layout_slots_are_legal_from_zero_to_capacity),
        cmocka_unit_test(layout_empty_and_absent_caches_have_no_slot),
        cmocka_unit_test(layout_view_refuses_and_says_why),
        cmocka_unit_test(layout_view_takes_every_stride_that_holds_the_page),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
