/* Staging, with copies in host memory in place of a GPU's: the same code but for who copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/device/device_stage.h"

enum { LARGE = (1 << 20) + 12, SMALL = 52, FILL = 0x5A };

static const device_options copies = {.copies = true};

/* Two arrays, of which one is read and one written. */
typedef struct two {
    mmla_context *ctx;
    device_stage stage;
    int64_t bytes;
    uint8_t *host_in, *host_out;
    const uint8_t *in;
    uint16_t *out;
    uint8_t *none;
} two;

static void two_create(two *t, int64_t bytes, const device_options *options) {
    *t = (two){.bytes = bytes};
    assert_int_equal(mmla_context_create(NULL, &t->ctx, NULL), MMLA_OK);
    t->host_in = malloc((size_t)bytes);
    t->host_out = malloc((size_t)bytes);
    assert_true(t->host_in != NULL && t->host_out != NULL);
    for (int64_t i = 0; i < bytes; i++) {
        t->host_in[i] = (uint8_t)(i * 7);
    }
    memset(t->host_out, FILL, (size_t)bytes);
    t->in = t->host_in;
    t->out = (uint16_t *)(void *)t->host_out;
    device_stage_init(&t->stage, t->ctx, options);
    device_stage_add(&t->stage, "in", &t->in, bytes, 16, DEVICE_IN);
    device_stage_add(&t->stage, "none", &t->none, bytes, 16, DEVICE_IN);
    device_stage_add(&t->stage, "out", &t->out, bytes, 2, DEVICE_OUT);
    assert_int_equal(device_stage_upload(&t->stage, NULL), MMLA_OK);
}

static void two_destroy(two *t) {
    device_stage_deinit(&t->stage);
    mmla_context_destroy(t->ctx);
    free(t->host_in);
    free(t->host_out);
}

static void on_the_cpu_every_pointer_stays(void **state) {
    (void)state;
    two t;
    two_create(&t, SMALL, NULL);
    assert_ptr_equal(t.in, t.host_in);
    assert_ptr_equal(t.out, t.host_out);
    assert_null(t.none);
    assert_null(t.stage.stream);
    assert_int_equal(device_stage_download(&t.stage, NULL), MMLA_OK);
    assert_string_equal(t.stage.damage, "");
    two_destroy(&t);
}

static void results_come_back_and_the_rest_of_them_stays(void **state) {
    (void)state;
    for (int64_t bytes = SMALL; bytes <= LARGE; bytes += LARGE - SMALL) {
        two t;
        two_create(&t, bytes, &copies);
        assert_ptr_not_equal(t.in, t.host_in);
        assert_null(t.none);
        assert_memory_equal(t.in, t.host_in, bytes);
        t.out[3] = 0x1234;
        assert_int_equal(device_stage_download(&t.stage, NULL), MMLA_OK);
        assert_string_equal(t.stage.damage, "");
        for (int64_t i = 0; i < bytes; i++) {
            assert_int_equal(t.host_out[i], i == 6 ? 0x34 : i == 7 ? 0x12 : FILL);
        }
        two_destroy(&t);
    }
}

static void an_array_has_the_alignment_that_is_promised_and_no_more(void **state) {
    (void)state;
    const int64_t alignments[] = {1, 2, 4, 8, 16, 32, 64};
    mmla_context *ctx;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        uint8_t data[SMALL] = {0}, *small = data;
        device_stage s;
        device_stage_init(&s, ctx, &copies);
        device_stage_add(&s, "small", &small, SMALL, alignments[i], DEVICE_IN);
        assert_int_equal(device_stage_upload(&s, NULL), MMLA_OK);
        assert_int_equal((uintptr_t)small % (uintptr_t)(2 * alignments[i]), alignments[i]);
        device_stage_deinit(&s);
    }
    uint8_t data[SMALL] = {0}, *a = data, *b = data;
    device_stage s;
    device_stage_init(&s, ctx, &(device_options){.copies = true, .alignment = 256});
    device_stage_add(&s, "a", &a, SMALL, 16, DEVICE_IN);
    device_stage_add(&s, "b", &b, SMALL, 4, DEVICE_IN);
    assert_int_equal(device_stage_upload(&s, NULL), MMLA_OK);
    assert_true((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0);
    device_stage_deinit(&s);
    mmla_context_destroy(ctx);
}

static void bytes_around_an_array_are_watched(void **state) {
    (void)state;
    static const char *const words[2][2] = {{"bytes before out", "bytes behind out"},
                                            {"bytes before in", "bytes behind in"}};
    for (int64_t bytes = SMALL; bytes <= LARGE; bytes += LARGE - SMALL) {
        for (int input = 0; input < 2; input++) {
            for (int behind = 0; behind < 2; behind++) {
                for (int far = 0; far < 2; far++) {
                    two t;
                    two_create(&t, bytes, &copies);
                    uint8_t *array = input ? (uint8_t *)(uintptr_t)t.in : (uint8_t *)t.out;
                    const int64_t reach = far ? DEVICE_ZONE_BYTES - 1 : 0;
                    array[behind ? bytes + reach : -1 - reach] ^= 1;
                    assert_int_equal(device_stage_download(&t.stage, NULL), MMLA_OK);
                    assert_string_equal(t.stage.damage, words[input][behind]);
                    /* The next upload mends it. */
                    assert_int_equal(device_stage_upload(&t.stage, NULL), MMLA_OK);
                    assert_int_equal(device_stage_download(&t.stage, NULL), MMLA_OK);
                    assert_string_equal(t.stage.damage, "");
                    two_destroy(&t);
                }
            }
        }
    }
}

static void a_changed_input_is_damage(void **state) {
    (void)state;
    two t;
    two_create(&t, SMALL, &copies);
    ((uint8_t *)(uintptr_t)t.in)[SMALL - 1] ^= 0x80;
    assert_int_equal(device_stage_download(&t.stage, NULL), MMLA_OK);
    assert_string_equal(t.stage.damage, "bytes of the input in");
    assert_int_equal(t.host_in[SMALL - 1], (uint8_t)((SMALL - 1) * 7));
    two_destroy(&t);
}

static void another_upload_brings_other_contents_to_the_same_place(void **state) {
    (void)state;
    two t;
    two_create(&t, SMALL, &copies);
    const uint8_t *in = t.in;
    const uint16_t *out = t.out;
    t.out[0] = 0;
    t.host_in[5] = 99;
    memset(t.host_out, FILL + 1, SMALL);
    assert_int_equal(device_stage_upload(&t.stage, NULL), MMLA_OK);
    assert_ptr_equal(t.in, in);
    assert_ptr_equal(t.out, out);
    assert_int_equal(t.in[5], 99);
    assert_int_equal(((uint8_t *)t.out)[0], FILL + 1);
    two_destroy(&t);
}

static void a_blank_upload_keeps_results_and_another_keeps_scratch(void **state) {
    (void)state;
    for (int64_t bytes = SMALL; bytes <= LARGE; bytes += LARGE - SMALL) {
        mmla_context *ctx;
        device_stage s;
        uint8_t *host = malloc((size_t)bytes), *in = host, *out = host, *scratch = host;
        assert_non_null(host);
        memset(host, 7, (size_t)bytes);
        assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
        device_stage_init(&s, ctx, &copies);
        device_stage_add(&s, "in", &in, bytes, 16, DEVICE_IN);
        device_stage_add(&s, "out", &out, bytes, 16, DEVICE_OUT);
        device_stage_add(&s, "scratch", &scratch, bytes, 16, DEVICE_SCRATCH);
        assert_int_equal(device_stage_upload_blank(&s, 0xFE, NULL), MMLA_OK);
        assert_true(in[0] == 0xFE && in[bytes - 1] == 0xFE);
        assert_true(out[0] == 7 && scratch[bytes - 1] == 7);
        scratch[bytes - 1] = 1;
        out[0] = 1;
        out[-1] ^= 1;
        assert_int_equal(device_stage_look(&s, NULL), MMLA_OK);
        assert_int_equal(host[0], 7);
        assert_int_equal(device_stage_upload_again(&s, NULL), MMLA_OK);
        assert_true(in[0] == 7 && in[bytes - 1] == 7 && out[0] == 7);
        assert_int_equal(scratch[bytes - 1], 1);
        assert_string_equal(s.damage, "bytes before out");
        assert_int_equal(device_stage_upload(&s, NULL), MMLA_OK);
        assert_int_equal(scratch[bytes - 1], 7);
        assert_int_equal(device_stage_download(&s, NULL), MMLA_OK);
        assert_string_equal(s.damage, "");
        device_stage_deinit(&s);
        mmla_context_destroy(ctx);
        free(host);
    }
}

static void of_a_sparse_array_only_the_parts_are_copied(void **state) {
    (void)state;
    enum { BYTES = 100000 };
    const device_part parts[] = {{0, 3}, {50000, 16}, {BYTES - 2, 9}}; /* the last ends with it */
    uint8_t *host = malloc(BYTES), *in = host, *out = host;
    assert_non_null(host);
    memset(host, 7, BYTES);
    const device_options options = {.copies = true,
                                    .sparse = {{.host = host, .parts = parts, .n_parts = 3}}};
    mmla_context *ctx;
    device_stage s;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    device_stage_init(&s, ctx, &options);
    device_stage_add(&s, "in", &in, BYTES, 16, DEVICE_IN);
    device_stage_add(&s, "out", &out, BYTES, 16, DEVICE_OUT);
    assert_int_equal(device_stage_upload(&s, NULL), MMLA_OK);
    for (int64_t i = 0; i < BYTES; i++) {
        const bool is_part = i < 3 || (i >= 50000 && i < 50016) || i >= BYTES - 2;
        assert_int_equal(in[i], is_part ? 7 : 0xFF);
    }
    out[50001] = 1;
    out[60000] = 1; /* no part: nobody looks */
    assert_int_equal(device_stage_download(&s, NULL), MMLA_OK);
    assert_string_equal(s.damage, "");
    assert_int_equal(host[50001], 1);
    assert_int_equal(host[60000], 7);
    device_stage_deinit(&s);
    mmla_context_destroy(ctx);
    free(host);
}

static void a_stage_without_arrays_is_fine(void **state) {
    (void)state;
    mmla_context *ctx;
    device_stage s;
    assert_int_equal(mmla_context_create(NULL, &ctx, NULL), MMLA_OK);
    device_stage_init(&s, ctx, &copies);
    assert_int_equal(device_stage_upload(&s, NULL), MMLA_OK);
    assert_int_equal(device_stage_download(&s, NULL), MMLA_OK);
    assert_string_equal(s.damage, "");
    device_stage_deinit(&s);
    assert_false(device_is_lost(ctx));
    mmla_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu_every_pointer_stays),
        cmocka_unit_test(results_come_back_and_the_rest_of_them_stays),
        cmocka_unit_test(an_array_has_the_alignment_that_is_promised_and_no_more),
        cmocka_unit_test(bytes_around_an_array_are_watched),
        cmocka_unit_test(a_changed_input_is_damage),
        cmocka_unit_test(another_upload_brings_other_contents_to_the_same_place),
        cmocka_unit_test(a_blank_upload_keeps_results_and_another_keeps_scratch),
        cmocka_unit_test(of_a_sparse_array_only_the_parts_are_copied),
        cmocka_unit_test(a_stage_without_arrays_is_fine),
    };
    return cmocka_run_group_tests_name("device_stage", tests, NULL, NULL);
}
