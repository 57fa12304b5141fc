/* lists_cuda_wide_test.c - many tokens and wide rows on a GPU, byte for byte as the CPU makes them.
 * Skipped where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/list.h>

#include "support/gpu_mirror.h"
#include "support/list_pointers.h"
#include "support/rng.h"

static uint64_t seed;
static mmla_context *cpu, *gpu; /* gpu is NULL where there is none */

static int open_contexts(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    if (mmla_gpu_count() > 0 && mmla_context_create(&options, &gpu, NULL) != MMLA_OK) {
        return -1;
    }
    return mmla_context_create(NULL, &cpu, NULL) == MMLA_OK ? 0 : -1;
}

static int close_contexts(void **state) {
    (void)state;
    mmla_context_destroy(gpu);
    mmla_context_destroy(cpu);
    return 0;
}

/* CPU and GPU on the same arrays; outputs of `rows` rows of width ints and their lengths, or of
 * 64-bit slots (width 0). */
static void compare(const mmla_list_desc *desc, mmla_list_args args, test_mirror *m) {
    const size_t n = (size_t)args.n_tokens, width = desc->width > 0 ? (size_t)desc->width : 2;
    test_buffer want = test_buffer_create(n * width * 4, 8),
                got = test_buffer_create(want.bytes, 8);
    test_buffer want_lens = test_buffer_create(n * 4, 4), got_lens = test_buffer_create(n * 4, 4);
    mmla_list_plan *plan;
    mmla_error err;
    args.error = &err;
    args.list = want.data;
    args.out_slots = want.data;
    args.lens = want_lens.data;
    assert_int_equal(mmla_list_plan_create(cpu, desc, &plan, NULL), MMLA_OK);
    assert_int_equal(mmla_list_run(plan, &args, NULL, NULL), MMLA_OK);
    mmla_list_plan_destroy(plan);

    test_mirror_add_buffer(m, &got);
    test_mirror_add_buffer(m, &got_lens);
    args.list = got.data;
    args.out_slots = got.data;
    args.lens = got_lens.data;
    test_mirror_move(m, &args, test_list_pointers, TEST_LIST_POINTERS);
    test_mirror_push(m);
    assert_int_equal(mmla_list_plan_create(gpu, desc, &plan, &err), MMLA_OK);
    if (mmla_list_run(plan, &args, NULL, m->stream) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    test_mirror_pull(m, got.data);
    test_mirror_pull(m, got_lens.data);
    mmla_list_plan_destroy(plan);
    assert_memory_equal(got.data, want.data, want.bytes);
    if (desc->width > 0) {
        assert_memory_equal(got_lens.data, want_lens.data, want_lens.bytes);
    }
    assert_true(test_buffer_is_intact(&got) && test_buffer_is_intact(&got_lens));
    test_buffer_destroy(&want);
    test_buffer_destroy(&got);
    test_buffer_destroy(&want_lens);
    test_buffer_destroy(&got_lens);
}

static void more_than_65535_tokens_are_legal_on_a_gpu(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    enum { MANY = 70000, PAGES = 70000 / 64 + 1 };
    static int32_t request[MANY], topk[MANY], query_start[2] = {0, MANY - 5}, seq_lens[1] = {MANY};
    static int32_t pages[PAGES];
    static int64_t positions[MANY], slots[MANY];
    for (int t = 0; t < MANY; t++) {
        topk[t] = MANY - t;
        positions[t] = t;
    }
    for (int i = 0; i < PAGES; i++) {
        pages[i] = PAGES - i; /* the first is past the cache */
    }
    mmla_list_desc desc = {.max_tokens = MANY,
                           .max_requests = 1,
                           .window = 5,
                           .page_tokens = 64,
                           .n_pages = PAGES,
                           .table_width = PAGES,
                           .topk_width = 1,
                           .ratio = 1};
    const mmla_list_args args = {.n_tokens = MANY,
                                 .n_requests = 1,
                                 .query_start = query_start,
                                 .seq_lens = seq_lens,
                                 .block_table = pages,
                                 .request = request,
                                 .topk = topk,
                                 .positions = positions,
                                 .slots = slots};
    static const struct {
        mmla_list_kind kind;
        int32_t width;
    } cases[] = {{MMLA_LIST_WINDOW, 6},
                 {MMLA_LIST_WINDOW, 257},
                 {MMLA_LIST_COMPRESSED, 2},
                 {MMLA_LIST_COMPRESSED_SLOTS, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_mirror m;
        assert_true(test_mirror_open(&m));
        test_mirror_add(&m, request, sizeof request);
        test_mirror_add(&m, topk, sizeof topk);
        test_mirror_add(&m, query_start, sizeof query_start);
        test_mirror_add(&m, seq_lens, sizeof seq_lens);
        test_mirror_add(&m, pages, sizeof pages);
        test_mirror_add(&m, positions, sizeof positions);
        test_mirror_add(&m, slots, sizeof slots);
        desc.kind = cases[i].kind;
        desc.width = cases[i].width;
        compare(&desc, args, &m);
        test_mirror_close(&m);
    }
}

static void the_widest_rows_are_whole(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    enum { N = 3, W = 65536, K = 2048, ALL = W + K + 17, PAGES = 1100, RECORDS = 40000 };
    static int32_t topk[N][K], pages[PAGES], query_start[2] = {0, N}, seq_lens[1] = {70001};
    static int32_t gather_lens[1] = {70000};
    test_rng rng = {seed + 3};
    for (int i = 0; i < N * K; i++) {
        topk[i / K][i % K] = (int32_t)test_rng_below(&rng, RECORDS + 5000) - 1000;
    }
    for (int i = 0; i < PAGES; i++) {
        pages[i] = (int32_t)test_rng_below(&rng, PAGES + 50) - 20;
    }
    const mmla_list_args args = {.n_tokens = N,
                                 .n_requests = 1,
                                 .query_start = query_start,
                                 .seq_lens = seq_lens,
                                 .gather_lens = gather_lens,
                                 .block_table = pages,
                                 .topk = topk[0]};
    const mmla_list_kind kinds[] = {MMLA_LIST_WINDOW, MMLA_LIST_DRAFT, MMLA_LIST_COMBINED};
    for (int i = 0; i < 3; i++) {
        const mmla_list_desc desc = {.kind = kinds[i],
                                     .max_tokens = N,
                                     .max_requests = 1,
                                     .window = W,
                                     .page_tokens = 64,
                                     .n_pages = PAGES,
                                     .table_width = PAGES,
                                     .width = ALL,
                                     .topk_width = K,
                                     .ratio = 1,
                                     .topk = K,
                                     .request_rows = RECORDS + 70000,
                                     .window_offset = RECORDS};
        test_mirror m;
        assert_true(test_mirror_open(&m));
        test_mirror_add(&m, topk, sizeof topk);
        test_mirror_add(&m, pages, sizeof pages);
        test_mirror_add(&m, query_start, sizeof query_start);
        test_mirror_add(&m, seq_lens, sizeof seq_lens);
        test_mirror_add(&m, gather_lens, sizeof gather_lens);
        compare(&desc, args, &m);
        test_mirror_close(&m);
    }
}

static void without_requests_every_row_is_padding_on_a_gpu(void **state) {
    (void)state;
    if (gpu == NULL) {
        skip();
    }
    const int32_t widths[] = {4, 700};
    for (int i = 0; i < 2; i++) {
        test_mirror m;
        assert_true(test_mirror_open(&m));
        const mmla_list_desc desc = {.kind = MMLA_LIST_WINDOW,
                                     .max_tokens = 3,
                                     .max_requests = 4,
                                     .window = 4,
                                     .page_tokens = 2,
                                     .n_pages = 4,
                                     .table_width = 4,
                                     .width = widths[i]};
        compare(&desc, (mmla_list_args){.n_tokens = 3}, &m);
        test_mirror_close(&m);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_65535_tokens_are_legal_on_a_gpu),
        cmocka_unit_test(the_widest_rows_are_whole),
        cmocka_unit_test(without_requests_every_row_is_padding_on_a_gpu),
    };
    return cmocka_run_group_tests_name("lists_cuda_wide", tests, open_contexts, close_contexts);
}
