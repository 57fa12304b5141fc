/* lists_prop.c - all seven builders against a plain oracle on random batches.
 *
 * Half of the batches are what an engine produces, the other half is hostile: lengths, positions,
 * pages, picks and spans drawn from a list of values that break careless arithmetic. Every array
 * has exactly its size, so that the address sanitizer and valgrind see a read past it. Where there is
 * a GPU, every batch is built there as well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/list.h>

#include "support/gpu_mirror.h"
#include "support/guard.h"
#include "support/list_pointers.h"
#include "support/rng.h"

enum { ROUNDS = 60, TOKENS_MAX = 700, REQUESTS_MAX = 6, WIDE = 1500, ROW_MAX = 4 * WIDE };

static uint64_t seed;

typedef struct batch {
    mmla_list_desc desc;
    mmla_list_args args;
    test_buffer list, lens, out_slots, out_left, out_right;
    void *arrays[16]; /* inputs, to be freed */
    size_t array_bytes[16];
    int n_arrays;
} batch;

/* --- the oracle ------------------------------------------------------------------------------- */

typedef struct row {
    int64_t entry[ROW_MAX];
    int64_t n;
} row;

static void push(row *r, int64_t entry) {
    if (entry >= 0) {
        r->entry[r->n++] = entry;
    }
}

static int64_t slot_of(const batch *b, int64_t q, int64_t pos) {
    const mmla_list_desc *d = &b->desc;
    const int64_t stride = d->table_stride != 0 ? d->table_stride : d->table_width;
    if (pos < 0 || pos / d->page_tokens >= d->table_width) {
        return -1;
    }
    const int64_t page = b->args.block_table[q * stride + pos / d->page_tokens];
    return page < 0 || page >= d->n_pages ? -1 : page * d->page_tokens + pos % d->page_tokens;
}

/* Request and position of t; q is -1 for padding. */
static void locate(const batch *b, int64_t t, int64_t *q, int64_t *pos) {
    *q = -1;
    *pos = -1;
    for (int64_t i = 0; i < b->args.n_requests; i++) {
        if (b->args.query_start[i] <= t && t < b->args.query_start[i + 1]) {
            *q = i;
            *pos = (int64_t)b->args.seq_lens[i] - b->args.query_start[i + 1] + t;
        }
    }
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* The first position of request q that is in the workspace: of its last gather_len, or of those that
 * the first of its queries sees, going back from there. */
static int64_t first_gathered(const batch *b, int64_t q) {
    const int64_t seq = b->args.seq_lens[q];
    if (b->args.gather_lens != NULL) {
        return seq - clamp(b->args.gather_lens[q], 0, seq);
    }
    int64_t first = seq - (b->args.query_start[q + 1] - b->args.query_start[q]);
    for (int64_t back = 1; first > 0 && back < b->desc.window; back++) {
        first--;
    }
    return first > 0 ? first : 0;
}

static void combined_row(const batch *b, int64_t t, int64_t q, int64_t pos, row *r) {
    const mmla_list_desc *d = &b->desc;
    const int64_t stride = d->topk_stride != 0 ? d->topk_stride : d->topk_width;
    const bool own = b->args.request_rows != 0;
    const int64_t m = own ? b->args.request_rows : d->request_rows;
    const int64_t n = own ? b->args.window_offset : d->window_offset;
    const int64_t base = q * m, seq = b->args.seq_lens[q];
    for (int64_t k = 0; d->ratio > 0 && k < d->topk && k < (pos + 1) / d->ratio; k++) {
        const int64_t v = b->args.topk[t * stride + k];
        push(r, v < n && v >= 0 && v < (pos + 1) / d->ratio ? base + v : -1);
    }
    int64_t left = 0, right = 0;
    if (d->image_tokens > 0) {
        left = clamp(b->args.left[t], 0, d->image_tokens - 1);
        right = clamp(b->args.right[t], 0, d->image_tokens);
    }
    int64_t start = pos - (d->window - 1);
    if (left > d->window - 1) {
        start = pos - left;
    }
    const int64_t first = first_gathered(b, q);
    for (int64_t p = start; p <= pos + right && r->n < d->width; p++) {
        if (p >= 0 && p >= first && p < seq && n + p - first < m) {
            push(r, base + n + p - first);
        }
    }
}

static void oracle_row(const batch *b, int64_t t, row *r) {
    const mmla_list_desc *d = &b->desc;
    int64_t q, pos;
    r->n = 0;
    if (b->args.valid != NULL && b->args.valid[t] == 0) {
        return;
    }
    if (d->kind == MMLA_LIST_COMPRESSED) {
        const int64_t stride = d->topk_stride != 0 ? d->topk_stride : d->topk_width;
        q = b->args.request[t];
        for (int64_t k = 0; q >= 0 && q < b->args.n_requests && k < d->topk_width; k++) {
            push(r, slot_of(b, q, b->args.topk[t * stride + k]));
        }
        return;
    }
    locate(b, t, &q, &pos);
    if (pos < 0) {
        return;
    }
    if (d->kind == MMLA_LIST_WINDOW) {
        for (int64_t back = d->window - 1; back >= 0; back--) {
            push(r, slot_of(b, q, pos - back));
        }
    } else if (d->kind == MMLA_LIST_DRAFT) {
        const int64_t seq = b->args.seq_lens[q];
        const int64_t prefix = seq - (b->args.query_start[q + 1] - b->args.query_start[q]);
        const int64_t start = prefix > d->window ? prefix - d->window : 0;
        for (int64_t k = 0; k < d->width && start + k < seq; k++) {
            push(r, slot_of(b, q, start + k));
        }
    } else {
        combined_row(b, t, q, pos, r);
    }
}

static int64_t oracle_slot(const batch *b, int64_t t) {
    const mmla_list_desc *d = &b->desc;
    const int64_t q = b->args.request[t], pos = b->args.positions[t];
    if (q < 0 || q >= b->args.n_requests || pos < 0 || b->args.slots[t] < 0) {
        return -1;
    }
    if (d->kind == MMLA_LIST_COMPRESSED_SLOTS) {
        return d->ratio == 2 && pos % 2 == 0 ? -1 : slot_of(b, q, pos / d->ratio);
    }
    const int64_t ring = b->args.ring_blocks[q];
    return ring < 1 || ring >= d->n_pages ? -1 : ring * d->page_tokens + pos % d->page_tokens;
}

static void oracle_reach(const batch *b, int64_t t, int64_t *left, int64_t *right) {
    int64_t q, pos;
    const int64_t most = b->desc.image_tokens;
    *left = *right = 0;
    locate(b, t, &q, &pos);
    if (pos < 0 || most == 0) {
        return;
    }
    for (int64_t i = b->args.span_start[q]; i < b->args.span_start[q + 1]; i++) {
        const int64_t a = b->args.spans[2 * i], z = b->args.spans[2 * i + 1];
        if (a <= pos && pos <= z) {
            *left = pos - a < most - 1 ? pos - a : most - 1;
            *right = z - pos < most ? z - pos : most;
            return;
        }
    }
}

/* --- random batches --------------------------------------------------------------------------- */

static void *array(batch *b, int64_t n, size_t size) {
    void *p = malloc((size_t)n * size + 1); /* + 1: never of size 0 */
    assert_non_null(p);
    assert_true(b->n_arrays < (int)(sizeof b->arrays / sizeof b->arrays[0]));
    b->array_bytes[b->n_arrays] = (size_t)n * size;
    return b->arrays[b->n_arrays++] = p;
}

static int32_t nasty(test_rng *rng) {
    static const int32_t values[] = {INT32_MIN,     -2,       -1, 0, 1, 2, 63, 127, 128, 129, 1000,
                                     INT32_MAX - 1, INT32_MAX};
    return values[test_rng_below(rng, sizeof values / sizeof values[0])];
}

/* A value of 0 .. n-1, in hostile batches now and then anything. */
static int32_t value(test_rng *rng, int hostile, int64_t n) {
    if (hostile && test_rng_below(rng, 3) == 0) {
        return nasty(rng);
    }
    return n > 0 ? (int32_t)test_rng_below(rng, n) : -1;
}

static int32_t *values(batch *b, test_rng *rng, int hostile, int64_t count, int64_t n) {
    int32_t *p = array(b, count, sizeof *p);
    for (int64_t i = 0; i < count; i++) {
        p[i] = value(rng, hostile, n);
    }
    return p;
}

/* starts [R + 1] over at most `total` things; empty requests are common. */
static int32_t *starts(batch *b, test_rng *rng, int64_t n_requests, int64_t total) {
    int32_t *p = array(b, n_requests + 1, sizeof *p);
    p[0] = 0;
    for (int64_t r = 0; r < n_requests; r++) {
        const int64_t left = total - p[r];
        const int64_t n = test_rng_below(rng, 4) == 0 ? 0 : test_rng_below(rng, left / 2 + 2);
        p[r + 1] = p[r] + (int32_t)(n < left ? n : left);
    }
    return p;
}

static void choose_shapes(batch *b, test_rng *rng, mmla_list_kind kind) {
    static const int32_t windows[] = {1, 2, 128, 37, 128, WIDE};
    static const int32_t pages[] = {1, 2, 61, 64};
    static const int32_t images[] = {0, 1, 5, 64, 300};
    mmla_list_desc *d = &b->desc;
    *d = (mmla_list_desc){.kind = kind, .max_tokens = TOKENS_MAX, .max_requests = REQUESTS_MAX};
    d->window = windows[test_rng_below(rng, 6)];
    d->page_tokens =
        kind == MMLA_LIST_RING_SLOTS ? 1 << test_rng_below(rng, 5) : pages[test_rng_below(rng, 4)];
    d->n_pages = test_rng_below(rng, 40);
    d->table_width = (int32_t)(1 + test_rng_below(rng, 2 * TOKENS_MAX / d->page_tokens + 1));
    d->table_stride = test_rng_below(rng, 2) * (d->table_width + test_rng_below(rng, 5));
    d->image_tokens = images[test_rng_below(rng, 5)];
    d->ratio = (int32_t)test_rng_below(rng, 3);
    if (kind == MMLA_LIST_COMPRESSED_SLOTS && d->ratio == 0) {
        d->ratio = 2;
    }
    d->topk_width = (int32_t)(1 + test_rng_below(rng, test_rng_below(rng, 5) == 0 ? WIDE : 40));
    d->topk_stride = test_rng_below(rng, 2) * (d->topk_width + test_rng_below(rng, 5));
    d->topk = d->ratio > 0 ? (int32_t)test_rng_below(rng, d->topk_width + 1) : 0;
    d->window_offset = test_rng_below(rng, 60);
    d->request_rows = d->window_offset + test_rng_below(rng, 2 * TOKENS_MAX);
    int32_t least = d->window;
    if (kind == MMLA_LIST_COMPRESSED) {
        least = d->topk_width;
    } else if (kind == MMLA_LIST_COMBINED) {
        least = d->topk + d->window + d->image_tokens;
    }
    d->width = least + (int32_t)test_rng_below(rng, 40);
    d->list_stride = test_rng_below(rng, 2) * (d->width + test_rng_below(rng, 5));
}

static void fill_batch(batch *b, test_rng *rng, int hostile) {
    const mmla_list_desc *d = &b->desc;
    const int64_t n = test_rng_below(rng, TOKENS_MAX), r = test_rng_below(rng, REQUESTS_MAX + 1);
    const int64_t table_stride = d->table_stride != 0 ? d->table_stride : d->table_width;
    const int64_t topk_stride = d->topk_stride != 0 ? d->topk_stride : d->topk_width;
    mmla_list_args *a = &b->args;
    a->n_tokens = n;
    a->n_requests = r;
    int32_t *query_start = starts(b, rng, r, n);
    a->query_start = query_start;
    int32_t *seq_lens = values(b, rng, hostile, r, 2 * TOKENS_MAX);
    for (int64_t i = 0; i < r && !hostile; i++) {
        seq_lens[i] += query_start[i + 1] - query_start[i]; /* prefix + query */
    }
    a->seq_lens = seq_lens;
    int32_t *gather_lens = values(b, rng, hostile, r, 2 * TOKENS_MAX);
    a->gather_lens = test_rng_below(rng, 2) == 0 ? NULL : gather_lens;
    a->window_offset = test_rng_below(rng, 60); /* of the call, or nothing if that has no rows */
    a->request_rows =
        test_rng_below(rng, 2) * (a->window_offset + test_rng_below(rng, 2 * TOKENS_MAX));
    a->block_table = values(b, rng, hostile, r * table_stride, d->n_pages);
    a->ring_blocks = values(b, rng, hostile, r, d->n_pages);
    a->request = values(b, rng, hostile, n, r);
    a->topk = values(b, rng, 1, n * topk_stride, TOKENS_MAX);
    a->left = values(b, rng, hostile, n, d->image_tokens);
    a->right = values(b, rng, hostile, n, d->image_tokens);
    int64_t *positions = array(b, n, sizeof *positions);
    int64_t *slots = array(b, n, sizeof *slots);
    uint8_t *valid = array(b, n, 1);
    for (int64_t t = 0; t < n; t++) {
        positions[t] = value(rng, hostile, 2 * TOKENS_MAX);
        if (hostile && test_rng_below(rng, 8) == 0) {
            positions[t] = test_rng_below(rng, 2) == 0 ? INT64_MAX : INT64_MIN;
        }
        slots[t] = test_rng_below(rng, 4) == 0 ? -1 - test_rng_below(rng, 3) : 7;
        valid[t] = (uint8_t)test_rng_below(rng, 4);
    }
    a->positions = positions;
    a->slots = slots;
    a->valid = test_rng_below(rng, 3) == 0 ? NULL : valid;
    a->span_start = starts(b, rng, r, 12);
    a->spans = values(b, rng, hostile, 2 * (int64_t)a->span_start[r], 3 * TOKENS_MAX);
    a->n_spans = a->span_start[r];
    if (a->n_spans == 0) { /* a GPU takes no spans whose number is not told */
        a->spans = NULL;
    }
}

static batch batch_create(test_rng *rng, mmla_list_kind kind) {
    batch b = {.n_arrays = 0};
    choose_shapes(&b, rng, kind);
    fill_batch(&b, rng, (int)test_rng_below(rng, 2));
    const size_t n = (size_t)b.args.n_tokens;
    const size_t stride = (size_t)(b.desc.list_stride != 0 ? b.desc.list_stride : b.desc.width);
    b.list = test_buffer_create(n * stride * 4, 4);
    b.lens = test_buffer_create(n * 4, 4);
    b.out_slots = test_buffer_create(n * 8, 8);
    b.out_left = test_buffer_create(n * 4, 4);
    b.out_right = test_buffer_create(n * 4, 4);
    b.args.list = b.list.data;
    b.args.lens = b.lens.data;
    b.args.out_slots = b.out_slots.data;
    b.args.out_left = b.out_left.data;
    b.args.out_right = b.out_right.data;
    return b;
}

static test_buffer *const *outputs_of(batch *b, size_t *n) {
    static test_buffer *outputs[5];
    outputs[0] = &b->list;
    outputs[1] = &b->lens;
    outputs[2] = &b->out_slots;
    outputs[3] = &b->out_left;
    outputs[4] = &b->out_right;
    *n = sizeof outputs / sizeof outputs[0];
    return outputs;
}

static void batch_destroy(batch *b) {
    size_t n;
    test_buffer *const *buffers = outputs_of(b, &n);
    for (size_t i = 0; i < n; i++) {
        assert_true(test_buffer_is_intact(buffers[i]));
        test_buffer_destroy(buffers[i]);
    }
    for (int i = 0; i < b->n_arrays; i++) {
        free(b->arrays[i]);
    }
}

/* --- comparison ------------------------------------------------------------------------------- */

static void check_rows(const batch *b) {
    const int64_t stride = b->desc.list_stride != 0 ? b->desc.list_stride : b->desc.width;
    static row want;
    for (int64_t t = 0; t < b->args.n_tokens; t++) {
        const int32_t *got = b->args.list + t * stride;
        oracle_row(b, t, &want);
        assert_int_equal(b->args.lens[t], want.n);
        for (int64_t k = 0; k < b->desc.width; k++) {
            assert_int_equal(got[k], k < want.n ? want.entry[k] : -1);
        }
        assert_true(test_buffer_is_untouched(&b->list, (size_t)(t * stride + b->desc.width) * 4,
                                             (size_t)((t + 1) * stride) * 4));
    }
}

static void check_batch(const batch *b) {
    if (b->desc.kind == MMLA_LIST_COMPRESSED_SLOTS || b->desc.kind == MMLA_LIST_RING_SLOTS) {
        for (int64_t t = 0; t < b->args.n_tokens; t++) {
            assert_int_equal(b->args.out_slots[t], oracle_slot(b, t));
        }
    } else if (b->desc.kind == MMLA_LIST_IMAGE_SPANS) {
        for (int64_t t = 0; t < b->args.n_tokens; t++) {
            int64_t left, right;
            oracle_reach(b, t, &left, &right);
            assert_int_equal(b->args.out_left[t], left);
            assert_int_equal(b->args.out_right[t], right);
        }
    } else {
        check_rows(b);
    }
}

static void poison(batch *b) {
    size_t n;
    test_buffer *const *buffers = outputs_of(b, &n);
    for (size_t i = 0; i < n; i++) {
        test_buffer_poison(buffers[i]);
    }
}

/* Builds a batch on the GPU and leaves its results in the batch. */
static void run_on_gpu(batch *b, mmla_context *ctx) {
    test_mirror m;
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < b->n_arrays; i++) {
        test_mirror_add(&m, b->arrays[i], b->array_bytes[i]);
    }
    size_t n_outputs;
    test_buffer *const *outputs = outputs_of(b, &n_outputs);
    for (size_t i = 0; i < n_outputs; i++) {
        test_mirror_add_buffer(&m, outputs[i]);
    }
    mmla_error err = {.status = MMLA_OK};
    mmla_list_args args = b->args;
    args.error = &err;
    test_mirror_move(&m, &args, test_list_pointers, TEST_LIST_POINTERS);
    test_mirror_push(&m);
    mmla_list_plan *plan;
    if (mmla_list_plan_create(ctx, &b->desc, &plan, &err) != MMLA_OK ||
        mmla_list_run(plan, &args, NULL, m.stream) != MMLA_OK) {
        fail_msg("on the GPU: %s", err.message);
    }
    for (size_t i = 0; i < n_outputs; i++) {
        test_mirror_pull(&m, (char *)outputs[i]->data - TEST_GUARD_BYTES);
    }
    mmla_list_plan_destroy(plan);
    test_mirror_close(&m);
}

static void run_on_cpu(batch *b, mmla_context *ctx) {
    mmla_list_plan *plan;
    mmla_error err = {.status = MMLA_OK};
    b->args.error = &err;
    if (mmla_list_plan_create(ctx, &b->desc, &plan, &err) != MMLA_OK ||
        mmla_list_run(plan, &b->args, NULL, NULL) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    mmla_list_plan_destroy(plan);
}

static void run_kind(mmla_list_kind kind) {
    test_rng rng = {seed + (uint64_t)kind};
    const mmla_context_options options[] = {
        {.n_threads = 1}, {.n_threads = 3}, {.device = MMLA_CUDA(0)}};
    const int n = mmla_gpu_count() > 0 ? 3 : 2;
    mmla_context *contexts[3];
    for (int i = 0; i < n; i++) {
        assert_int_equal(mmla_context_create(&options[i], &contexts[i], NULL), MMLA_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        batch b = batch_create(&rng, kind);
        for (int i = 0; i < n; i++) {
            poison(&b);
            (i == 2 ? run_on_gpu : run_on_cpu)(&b, contexts[i]);
            check_batch(&b);
        }
        batch_destroy(&b);
    }
    for (int i = 0; i < n; i++) {
        mmla_context_destroy(contexts[i]);
    }
}

#define KIND_TEST(name, kind)        \
    static void name(void **state) { \
        (void)state;                 \
        run_kind(MMLA_LIST_##kind);  \
    }
KIND_TEST(window_lists_equal_the_oracle_on_any_thread_count, WINDOW)
KIND_TEST(draft_lists_equal_the_oracle_on_any_thread_count, DRAFT)
KIND_TEST(compressed_lists_equal_the_oracle_on_any_thread_count, COMPRESSED)
KIND_TEST(combined_lists_equal_the_oracle_on_any_thread_count, COMBINED)
KIND_TEST(compressed_slots_equal_the_oracle_on_any_thread_count, COMPRESSED_SLOTS)
KIND_TEST(ring_slots_equal_the_oracle_on_any_thread_count, RING_SLOTS)
KIND_TEST(image_reaches_equal_the_oracle_on_any_thread_count, IMAGE_SPANS)
#undef KIND_TEST

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_lists_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(draft_lists_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(compressed_lists_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(combined_lists_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(compressed_slots_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(ring_slots_equal_the_oracle_on_any_thread_count),
        cmocka_unit_test(image_reaches_equal_the_oracle_on_any_thread_count),
    };
    return cmocka_run_group_tests_name("lists_prop", tests, NULL, NULL);
}
