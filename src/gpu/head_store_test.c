/* head_store_test.c - threads of a warp have every dim of a head once, and scale bytes gathered by a
 * block go where the scalar store puts them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "gpu/head_store.h"

enum { CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM };

static void threads_of_a_warp_have_every_dim_once(void **state) {
    (void)state;
    int seen[MMLA_LATENT_DIM] = {0};
    for (int32_t lane = 0; lane < 32; lane++) {
        for (int32_t i = 0; i < 16; i++) {
            seen[gpu_head_dim(lane, i)]++;
        }
        for (int32_t half = 0; half < 16; half += 8) { /* a chunk is four neighbours' half */
            const int32_t first = gpu_head_dim(lane, half), last = gpu_head_dim(lane, half + 7);
            assert_int_equal(last, first + 7);
            assert_int_equal(first / MMLA_OUT_CHUNK_DIM,
                             gpu_head_dim(lane & ~3, half) / MMLA_OUT_CHUNK_DIM);
            assert_int_equal(first / MMLA_OUT_WIDE_DIM,
                             gpu_head_dim(lane & ~15, half) / MMLA_OUT_WIDE_DIM);
        }
    }
    for (int32_t x = 0; x < MMLA_LATENT_DIM; x++) {
        assert_int_equal(seen[x], 1);
    }
}

static void scale_bytes_go_where_the_scalar_store_puts_them(void **state) {
    (void)state;
    enum { HEADS = 24 };
    for (int form = MMLA_OUT_FP8_PERMUTED; form <= MMLA_OUT_FP8; form++) {
        const gpu_head_out to = {.form = (mmla_out_form)form,
                                 .n_heads = HEADS,
                                 .strides = {.word = 1009, .group = 40009}};
        for (int64_t token = 0; token < 1000; token += 333) {
            for (int32_t head = 0; head < HEADS; head++) {
                for (int32_t chunk = 0; chunk < CHUNKS; chunk++) {
                    const int32_t place = gpu_head_scale_place(to.form, head, chunk);
                    assert_true(place >= 0 && place < GPU_HEAD_SCALES);
                    const int64_t got = gpu_head_scale_word_off(
                                            &to, token, head / MMLA_HEADS_PER_GROUP, place / 4) +
                                        place % 4;
                    const int64_t want = to.form == MMLA_OUT_FP8_PERMUTED
                                             ? mmla_out_scale_offset(to.strides, token, head, chunk)
                                             : (token * HEADS + head) * CHUNKS + chunk;
                    assert_true(got == want);
                }
            }
        }
    }
}

static void offsets_of_scales_are_64_bit(void **state) {
    (void)state;
    const gpu_head_out packed = {.form = MMLA_OUT_FP8_PERMUTED,
                                 .n_heads = 128,
                                 .strides = {.word = (int64_t)1 << 31, .group = (int64_t)1 << 36}};
    assert_true(gpu_head_scale_word_off(&packed, 7, 15, 31) ==
                4 * (15 * ((int64_t)1 << 36) + 31 * ((int64_t)1 << 31) + 7));
    const gpu_head_out plain = {.form = MMLA_OUT_FP8, .n_heads = 128};
    assert_true(gpu_head_scale_word_off(&plain, INT32_MAX, 15, 31) ==
                ((int64_t)INT32_MAX * 16 + 15) * 128 + 124);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_warp_have_every_dim_once),
        cmocka_unit_test(scale_bytes_go_where_the_scalar_store_puts_them),
        cmocka_unit_test(offsets_of_scales_are_64_bit),
    };
    return cmocka_run_group_tests_name("head_store", tests, NULL, NULL);
}
