/* attend_index_test.c - the index maps of q and of the permuted output, and the walk over keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv/attend_output.h"

static void fused_q_index_matches_its_formula(void **state) {
    (void)state;
    assert_int_equal(mmla_q_index(MMLA_Q_FUSED, 64, 3, 450), 28722);
    for (int32_t h = 0; h < 24; h++) {
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
            assert_int_equal(mmla_q_index(MMLA_Q_FUSED, 24, h, x), x / 16 * 384 + h * 16 + x % 16);
        }
    }
}

static void permuted_output_position_matches_its_formula(void **state) {
    (void)state;
    assert_int_equal(mmla_out_permuted_index(11, 70), MMLA_GROUP_DIM + 614);
    const mmla_out_scale_strides s = mmla_out_scale_strides_get(0, 0, 5);
    assert_int_equal(s.word, 8);
    assert_int_equal(s.group, 256);
    /* Chunk 2 of head 11 is index 19 of group 1: word 4, byte 3. */
    assert_int_equal(mmla_out_scale_offset(s, 2, 11, 2), 4 * (256 + 4 * 8 + 2) + 3);
}

static void permuted_output_covers_every_byte_once(void **state) {
    (void)state;
    static uint8_t seen[MMLA_HEADS_MAX * MMLA_LATENT_DIM];
    memset(seen, 0, sizeof seen);
    for (int32_t h = 0; h < MMLA_HEADS_MAX; h++) {
        for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
            seen[mmla_out_permuted_index(h, x)]++;
        }
    }
    for (size_t i = 0; i < sizeof seen; i++) {
        assert_int_equal(seen[i], 1);
    }
}

/* Window: 2 pages of 4; compressed: 1 page of 2. */
static void keys_are_checked_before_an_address_is_formed(void **state) {
    (void)state;
    mmla_attend_problem p = {
        .desc = {.list_width = 7, .list_stride = 7, .compressed_width = 3, .compressed_stride = 3}};
    const mmla_cache_desc window = {MMLA_KV_V41_FP8, 4, 2, 0};
    const mmla_cache_desc compressed = {MMLA_KV_V41_FP4, 2, 1, 0};
    assert_int_equal(mmla_kv_view_init(&window, "window", &p.window, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_view_init(&compressed, "compressed", &p.compressed, NULL), MMLA_OK);
    const uint8_t *base = (const uint8_t *)0x10000;
    const int32_t list[] = {8, 7, -1, INT32_MIN, 0, INT32_MAX, 1}, lens[] = {6};
    const int32_t compressed_list[] = {2, 1, 1};
    const mmla_attend_args args = {.list = list,
                                   .lens = lens,
                                   .window_cache = base,
                                   .compressed_cache = base,
                                   .compressed_list = compressed_list};
    for (int32_t max = 1; max <= 5; max++) { /* however the walk is cut, the keys are the same */
        mmla_key keys[8];
        int32_t n = 0;
        mmla_key_cursor cursor = {0};
        for (int32_t got; (got = mmla_keys_next(&p, &args, 0, &cursor, keys + n, max)) > 0;) {
            n += got;
        }
        assert_int_equal(n, 4); /* slots 7 and 0 (1 is past the length), then 1 twice */
        assert_ptr_equal(keys[0].data, base + mmla_kv_data_offset(&p.window, 7));
        assert_ptr_equal(keys[1].data, base);
        assert_ptr_equal(keys[2].data, base + mmla_kv_data_offset(&p.compressed, 1));
        assert_ptr_equal(keys[3].scale, base + mmla_kv_scale_offset(&p.compressed, 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_q_index_matches_its_formula),
        cmocka_unit_test(permuted_output_position_matches_its_formula),
        cmocka_unit_test(permuted_output_covers_every_byte_once),
        cmocka_unit_test(keys_are_checked_before_an_address_is_formed),
    };
    return cmocka_run_group_tests_name("attend_index", tests, NULL, NULL);
}
