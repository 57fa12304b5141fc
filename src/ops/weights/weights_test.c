/* weights_test.c - the five layouts, against places counted by hand and against their inverses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/weights.h>

#include "support/guard.h"
#include "support/rng.h"

static uint64_t seed;

/* Runs once on n_threads threads; fails the test on any error. */
static void run(const mmla_weights_desc *desc, const mmla_weights_args *args, int32_t n_threads) {
    mmla_context *ctx;
    mmla_weights_plan *plan;
    mmla_error err;
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &ctx, NULL), MMLA_OK);
    if (mmla_weights_plan_create(ctx, desc, &plan, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(mmla_weights_run(plan, args, NULL, NULL), MMLA_OK);
    mmla_weights_plan_destroy(plan);
    mmla_context_destroy(ctx);
}

static void fill(test_rng *rng, void *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)p)[i] = (uint8_t)test_rng_next(rng);
    }
}

/* Input and output of one run, guarded. */
typedef struct buffers {
    test_buffer in, out, scale_in, scale_out;
} buffers;

static buffers buffers_create(size_t bytes, size_t scale_in, size_t scale_out, size_t alignment) {
    buffers b = {test_buffer_create(bytes, alignment), test_buffer_create(bytes, alignment),
                 test_buffer_create(scale_in, 1), test_buffer_create(scale_out, 1)};
    test_rng rng = {seed};
    fill(&rng, b.in.data, bytes);
    fill(&rng, b.scale_in.data, scale_in);
    return b;
}

static mmla_weights_args args_of(const buffers *b) {
    return (mmla_weights_args){.in = b->in.data,
                               .out = b->out.data,
                               .scale_in = b->scale_in.data,
                               .scale_out = b->scale_out.data};
}

static void buffers_destroy(buffers *b) {
    test_buffer *const all[] = {&b->in, &b->out, &b->scale_in, &b->scale_out};
    for (int i = 0; i < 4; i++) {
        assert_true(test_buffer_is_intact(all[i]));
        test_buffer_destroy(all[i]);
    }
}

/* The fused order, counted: chunks of 16 dims, inside a chunk the heads in turn. */
static void wq_b_rows_and_scales_move_together_for_every_head_count(void **state) {
    (void)state;
    enum { K = 7, S = 3 };
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        const size_t rows = (size_t)heads * 512;
        buffers b = buffers_create(rows * K, rows * S, rows * S, 1);
        const mmla_weights_desc desc = {
            .kind = MMLA_WEIGHTS_PERMUTE_WQ_B, .n_heads = heads, .cols = K, .scale_cols = S};
        const mmla_weights_args args = args_of(&b);
        run(&desc, &args, 1 + heads % 3);
        const uint8_t *out = b.out.data, *scale_out = b.scale_out.data;
        for (int32_t chunk = 0; chunk < 32; chunk++) {
            for (int32_t h = 0; h < heads; h++) {
                for (int32_t i = 0; i < 16; i++) {
                    const size_t row = (size_t)h * 512 + (size_t)chunk * 16 + (size_t)i;
                    assert_memory_equal(out, (uint8_t *)b.in.data + row * K, K);
                    assert_memory_equal(scale_out, (uint8_t *)b.scale_in.data + row * S, S);
                    out += K;
                    scale_out += S;
                }
            }
        }
        buffers_destroy(&b);
    }
}

static void dim_450_of_head_3_of_64_is_row_28722(void **state) {
    (void)state;
    static uint16_t in[64 * 512], out[64 * 512];
    memset(in, 0, sizeof in);
    in[3 * 512 + 450] = 0x3F80;
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_Q_TO_FUSED, .n_heads = 64, .rows = 1};
    const mmla_weights_args args = {.in = in, .out = out};
    run(&desc, &args, 1);
    for (int i = 0; i < 64 * 512; i++) {
        assert_int_equal(out[i], i == 28722 ? 0x3F80 : 0);
    }
}

static void scales_of_the_permutations_may_be_left_out(void **state) {
    (void)state;
    enum { ROWS = 8 * 512 };
    buffers b = buffers_create(ROWS, 0, 0, 1);
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WQ_B, .n_heads = 8, .cols = 1};
    const mmla_weights_args args = {.in = b.in.data, .out = b.out.data};
    run(&desc, &args, 1);
    assert_int_equal(((uint8_t *)b.out.data)[16], ((uint8_t *)b.in.data)[512]);
    buffers_destroy(&b);
}

/* Inside a group of 8 heads: chunks of 32 dims, inside a chunk the heads in turn. */
static void wo_a_columns_and_scales_move_together(void **state) {
    (void)state;
    const int64_t row_counts[] = {1, 63, 64, 65, 130};
    for (size_t n = 0; n < sizeof row_counts / sizeof row_counts[0]; n++) {
        const size_t rows = (size_t)row_counts[n];
        buffers b = buffers_create(rows * 4096, rows * 128, rows * 128, 1);
        const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = row_counts[n]};
        const mmla_weights_args args = args_of(&b);
        run(&desc, &args, (int32_t)(1 + n % 3));
        const uint8_t *out = b.out.data, *scale_out = b.scale_out.data;
        for (size_t row = 0; row < rows; row++) {
            for (size_t c = 0; c < 16; c++) {
                for (size_t h = 0; h < 8; h++) {
                    const size_t column = h * 512 + c * 32;
                    assert_memory_equal(out, (uint8_t *)b.in.data + row * 4096 + column, 32);
                    assert_int_equal(*scale_out,
                                     ((uint8_t *)b.scale_in.data)[row * 128 + h * 16 + c]);
                    out += 32;
                    scale_out++;
                }
            }
        }
        buffers_destroy(&b);
    }
}

static void dim_70_of_the_fourth_head_of_a_group_is_column_614(void **state) {
    (void)state;
    static uint8_t in[4096], out[4096], scale_in[128], scale_out[128];
    in[3 * 512 + 70] = 0x38;
    scale_in[3 * 16 + 70 / 32] = 119;
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = 1};
    const mmla_weights_args args = {
        .in = in, .out = out, .scale_in = scale_in, .scale_out = scale_out};
    run(&desc, &args, 1);
    assert_int_equal(out[614], 0x38);
    assert_int_equal(scale_out[4 * 4 + 3], 119); /* word 4, byte 3 once packed */
    for (int i = 0; i < 4096; i++) {
        assert_int_equal(out[i], i == 614 ? 0x38 : 0);
    }
}

/* The permutation is its own bookkeeping: undoing it with the map of the header restores both. */
static void permuted_wo_a_can_be_restored(void **state) {
    (void)state;
    enum { ROWS = 5 };
    buffers b = buffers_create(ROWS * 4096, ROWS * 128, ROWS * 128, 1);
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = ROWS};
    const mmla_weights_args args = args_of(&b);
    run(&desc, &args, 1);
    static uint8_t back[ROWS * 4096], scale_back[ROWS * 128];
    for (int row = 0; row < ROWS; row++) {
        for (int place = 0; place < 4096; place++) {
            const int h = place / 32 % 8, c = place / 256, i = place % 32;
            back[row * 4096 + h * 512 + c * 32 + i] = ((uint8_t *)b.out.data)[row * 4096 + place];
            scale_back[row * 128 + h * 16 + c] =
                ((uint8_t *)b.scale_out.data)[row * 128 + place / 32];
        }
    }
    assert_memory_equal(back, b.in.data, sizeof back);
    assert_memory_equal(scale_back, b.scale_in.data, sizeof scale_back);
    buffers_destroy(&b);
}

static void block_scales_expand_to_rows_that_are_no_multiple_of_32(void **state) {
    (void)state;
    const int64_t row_counts[] = {1, 31, 32, 33, 64, 65, 1000};
    enum { S = 5 };
    for (size_t n = 0; n < sizeof row_counts / sizeof row_counts[0]; n++) {
        const size_t rows = (size_t)row_counts[n];
        buffers b = buffers_create(0, (rows + 31) / 32 * S, rows * S, 1);
        const mmla_weights_desc desc = {
            .kind = MMLA_WEIGHTS_EXPAND_SCALES, .rows = row_counts[n], .scale_cols = S};
        const mmla_weights_args args = {.scale_in = b.scale_in.data, .scale_out = b.scale_out.data};
        run(&desc, &args, 3);
        for (size_t row = 0; row < rows; row++) {
            assert_memory_equal((uint8_t *)b.scale_out.data + row * S,
                                (uint8_t *)b.scale_in.data + row / 32 * S, S);
        }
        buffers_destroy(&b);
    }
}

/* A permuted wq_b emits what Q_TO_FUSED makes of the standard q: two bytes a row stand for q. */
static void q_round_trips_and_agrees_with_wq_b_for_every_head_count(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= 128; heads += 8) {
        const int64_t tokens = heads == 64 ? 70 : 3;
        const size_t token_bytes = (size_t)heads * 512 * 2;
        buffers b = buffers_create((size_t)tokens * token_bytes, 0, 0, 2);
        test_buffer back = test_buffer_create((size_t)tokens * token_bytes, 2);
        mmla_weights_desc desc = {
            .kind = MMLA_WEIGHTS_Q_TO_FUSED, .n_heads = heads, .rows = tokens};
        mmla_weights_args args = {.in = b.in.data, .out = b.out.data};
        run(&desc, &args, 2);
        desc.kind = MMLA_WEIGHTS_Q_TO_STANDARD;
        args = (mmla_weights_args){.in = b.out.data, .out = back.data};
        run(&desc, &args, 1);
        assert_memory_equal(back.data, b.in.data, back.bytes);

        const mmla_weights_desc rows = {
            .kind = MMLA_WEIGHTS_PERMUTE_WQ_B, .n_heads = heads, .cols = 2};
        args = (mmla_weights_args){.in = b.in.data, .out = back.data};
        run(&rows, &args, 1);
        assert_memory_equal(back.data, b.out.data, token_bytes);
        assert_true(test_buffer_is_intact(&back));
        test_buffer_destroy(&back);
        buffers_destroy(&b);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wq_b_rows_and_scales_move_together_for_every_head_count),
        cmocka_unit_test(dim_450_of_head_3_of_64_is_row_28722),
        cmocka_unit_test(scales_of_the_permutations_may_be_left_out),
        cmocka_unit_test(wo_a_columns_and_scales_move_together),
        cmocka_unit_test(dim_70_of_the_fourth_head_of_a_group_is_column_614),
        cmocka_unit_test(permuted_wo_a_can_be_restored),
        cmocka_unit_test(block_scales_expand_to_rows_that_are_no_multiple_of_32),
        cmocka_unit_test(q_round_trips_and_agrees_with_wq_b_for_every_head_count),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
