/* format_example_test.c - the worked example of docs/format.md: the same bytes, from the encoder,
 * and the same text, in the document.
 *
 * The expected bytes were computed once by a separate NumPy program from the document's rules alone
 * and agreed with the encoder's in every byte; they are not to be regenerated from the encoder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/layout.h"
#include "kv/record.h"
#include "num/bf16.h"

enum { PAGE_TOKENS = 2, N_PAGES = 2, SLOT = 3, LINE_BYTES = 16, DUMP_BYTES = 8192 };

/* The example's cache, as hexdump -C shows it without its right column. A star stands for lines
 * equal to the one above. */
static const char fp8_dump[] = /* v41_fp8 */
    "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000800  5c e4 69 ec 6f f1 72 f4  75 f7 78 f9 7a fa 7b fc\n"
    "00000810  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000820  78 f8 70 01 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000830  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000840  7e 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000850  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000860  00 76 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000870  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "000009f0  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 fa\n"
    "00000a00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000a10  79 77 78 79 69 69 69 69  69 69 69 69 69 69 69 71\n"
    "00000a20  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000c00\n";

static const char fp4_dump[] = /* v41_fp4 */
    "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000500  91 b2 c4 d5 e5 e6 f6 f7  00 00 00 00 00 00 00 00\n"
    "00000510  f7 05 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000520  07 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000530  70 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000540  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "000005f0  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 f0\n"
    "00000600  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000620  38 01 23 01 31 01 31 01  01 01 01 01 01 01 01 01\n"
    "00000630  01 01 01 01 01 01 01 01  01 01 01 01 01 01 01 02\n"
    "00000640  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000800\n";

static const char v4_dump[] = /* v4 */
    "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000900  5c e4 69 ec 6f f1 72 f4  75 f7 78 f9 7a fa 7b fc\n"
    "00000910  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000920  68 e8 60 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000930  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000940  76 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000950  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000960  00 76 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "00000970  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000b30  00 00 00 00 00 00 00 00  00 00 00 00 00 00 a4 bc\n"
    "00000b40  00 00 00 00 00 00 00 00  79 79 69 69 69 69 69 00\n"
    "00000b50  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00\n"
    "*\n"
    "00000d80\n";

/* The row of the example; every value is a bf16. */
static void fill_row(float *x) {
    memset(x, 0, MMLA_LATENT_DIM * sizeof *x);
    for (int i = 0; i < 16; i++) {
        x[i] = mmla_bf16_round((float)((i % 2 == 0 ? 0.37 : -0.37) * (i + 1)));
    }
    x[32] = 1.0f;
    x[33] = -1.0f;
    x[34] = 0.5f;
    x[35] = 0x1p-17f;
    x[64] = 3.5f;
    x[97] = 3.515625f; /* the next bf16 */
    x[511] = mmla_bf16_round(-0.02f);
}

static void dump(const uint8_t *bytes, size_t n, char *text) {
    int in_star = 0;
    for (size_t at = 0; at < n; at += LINE_BYTES) {
        if (at > 0 && memcmp(bytes + at, bytes + at - LINE_BYTES, LINE_BYTES) == 0) {
            text += in_star ? 0 : sprintf(text, "*\n");
            in_star = 1;
            continue;
        }
        in_star = 0;
        text += sprintf(text, "%08zx ", at);
        for (size_t i = 0; i < LINE_BYTES; i++) {
            text += sprintf(text, i == LINE_BYTES / 2 ? "  %02x" : " %02x", bytes[at + i]);
        }
        text += sprintf(text, "\n");
    }
    sprintf(text, "%08zx\n", n);
}

/* A fresh cache of zero bytes with the example's row in the last record of its last page. */
static void check_cache(mmla_kv_format format, const char *want) {
    const mmla_cache_desc desc = {.format = format, .page_tokens = PAGE_TOKENS, .n_pages = N_PAGES};
    mmla_kv_view view;
    assert_int_equal(mmla_kv_view_init(&desc, "cache", &view, NULL), MMLA_OK);
    const size_t n = (size_t)(N_PAGES * view.page_stride_bytes);
    uint8_t *cache = calloc(n, 1);
    float x[MMLA_LATENT_DIM];
    char text[DUMP_BYTES];
    assert_non_null(cache);
    fill_row(x);
    mmla_kv_record_encode(format, x, 0, cache + mmla_kv_data_offset(&view, SLOT),
                          cache + mmla_kv_scale_offset(&view, SLOT));
    dump(cache, n, text);
    assert_string_equal(text, want);
    free(cache);
}

static void fp8_page_has_the_documented_bytes(void **state) {
    (void)state;
    check_cache(MMLA_KV_V41_FP8, fp8_dump);
}

static void fp4_page_has_the_documented_bytes(void **state) {
    (void)state;
    check_cache(MMLA_KV_V41_FP4, fp4_dump);
}

static void v4_page_has_the_documented_bytes(void **state) {
    (void)state;
    check_cache(MMLA_KV_V4, v4_dump);
}

/* An index key that is 1 in dim 0 and -2 in dim 33. */
static void index_keys_have_the_documented_bytes(void **state) {
    (void)state;
    float x[MMLA_INDEX_DIM] = {[0] = 1.0f, [33] = -2.0f};
    uint8_t data[MMLA_INDEX_DIM], scale[4];
    mmla_kv_record_encode(MMLA_KV_INDEX_FP8, x, 0, data, scale);
    assert_int_equal(data[0], 0x70);
    assert_int_equal(data[33], 0xF8);
    assert_memory_equal(scale, ((const uint8_t[]){0x00, 0x00, 0x00, 0x3C}), 4);
    mmla_kv_record_encode(MMLA_KV_INDEX_FP4, x, 0, data, scale);
    assert_int_equal(data[0], 0x06);
    assert_int_equal(data[16], 0xE0);
    assert_memory_equal(scale, ((const uint8_t[]){0x7D, 0x7E, 0x01, 0x01}), 4);
}

/* What a reader makes of the bytes, as the document's last table says. */
static void records_read_back_as_documented(void **state) {
    (void)state;
    static const struct {
        int dim;
        float fp8, fp4, v4;
    } values[] = {
        {0, 0.375f, 0.5f, 0.375f},  {15, -6.0f, -6.0f, -6.0f},
        {32, 1.0f, 1.03125f, 1.0f}, {34, 0.5f, 0.515625f, 0.5f},
        {35, 0x1p-17f, 0.0f, 0.0f}, {64, 3.5f, 3.375f, 3.5f},
        {97, 3.5f, 3.375f, 3.5f},   {511, -0.01953125f, -0.0234375f, -0.02001953125f},
    };
    const mmla_kv_format formats[] = {MMLA_KV_V41_FP8, MMLA_KV_V41_FP4, MMLA_KV_V4};
    float x[MMLA_LATENT_DIM], got[3][MMLA_LATENT_DIM];
    fill_row(x);
    for (int f = 0; f < 3; f++) {
        uint8_t data[1024], scale[64];
        mmla_kv_record_encode(formats[f], x, 0, data, scale);
        mmla_kv_record_decode(formats[f], data, scale, got[f]);
    }
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_true(got[0][values[i].dim] == values[i].fp8);
        assert_true(got[1][values[i].dim] == values[i].fp4);
        assert_true(got[2][values[i].dim] == values[i].v4);
    }
}

/* docs/format.md, found from this file's own place. */
static char *read_document(void) {
    static const char document[] = "docs/format.md";
    char path[4096];
    const char *here = strstr(__FILE__, "tests/golden");
    assert_non_null(here);
    snprintf(path, sizeof path, "%.*s%s", (int)(here - __FILE__), __FILE__, document);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("cannot open %s", path);
    }
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long n = ftell(file);
    assert_true(n > 0);
    rewind(file);
    char *text = calloc((size_t)n + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, file), (size_t)n);
    fclose(file);
    return text;
}

static void the_document_shows_these_bytes(void **state) {
    (void)state;
    char *text = read_document();
    assert_non_null(strstr(text, fp8_dump));
    assert_non_null(strstr(text, fp4_dump));
    assert_non_null(strstr(text, v4_dump));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_page_has_the_documented_bytes),
        cmocka_unit_test(fp4_page_has_the_documented_bytes),
        cmocka_unit_test(v4_page_has_the_documented_bytes),
        cmocka_unit_test(index_keys_have_the_documented_bytes),
        cmocka_unit_test(records_read_back_as_documented),
        cmocka_unit_test(the_document_shows_these_bytes),
    };
    return cmocka_run_group_tests_name("format_example", tests, NULL, NULL);
}
