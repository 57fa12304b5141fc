#include "support/gather_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/record.h"
#include "num/bf16.h"
#include "support/gpu_graph.h"
#include "support/implementation_walk.h"

gather_fixture gather_fixture_create(mmla_kv_format format) {
    return (gather_fixture){
        .desc = {.cache = {.format = format, .page_tokens = 5, .n_pages = 8},
                 .max_requests = 3,
                 .table_width = 4,
                 .rows = 24,
                 .offset = 2},
        .args = {.n_requests = 3},
    };
}

static int64_t or_least(int64_t stride, int64_t least) {
    return stride != 0 ? stride : least;
}

static int64_t row_stride(const gather_fixture *f) {
    return or_least(f->desc.row_stride, MMLA_LATENT_DIM);
}

int32_t *gather_fixture_table(gather_fixture *f, int64_t r) {
    return (int32_t *)f->block_table.data + r * or_least(f->desc.table_stride, f->desc.table_width);
}

int32_t *gather_fixture_seq_lens(gather_fixture *f) {
    return f->seq_lens.data;
}

int32_t *gather_fixture_gather_lens(gather_fixture *f) {
    return f->gather_lens.data;
}

int32_t *gather_fixture_query_start(gather_fixture *f) {
    return f->query_start.data;
}

int64_t gather_fixture_rows(const gather_fixture *f) {
    return f->args.rows != 0 ? f->args.rows : f->desc.rows;
}

int64_t gather_fixture_offset(const gather_fixture *f) {
    return f->args.rows != 0 ? f->args.offset : f->desc.offset;
}

uint8_t *gather_fixture_data(gather_fixture *f, int64_t slot) {
    return (uint8_t *)f->cache.data + mmla_kv_data_offset(&f->view, slot);
}

uint8_t *gather_fixture_scale(gather_fixture *f, int64_t slot) {
    return (uint8_t *)f->cache.data + mmla_kv_scale_offset(&f->view, slot);
}

const uint16_t *gather_fixture_out(const gather_fixture *f, int64_t r, int64_t row) {
    return (const uint16_t *)f->out.data + (r * gather_fixture_rows(f) + row) * row_stride(f);
}

static void fill_records(gather_fixture *f, test_rng *rng) {
    memset(f->cache.data, 0xFF, f->cache.bytes);
    for (int64_t slot = 0; slot < f->view.n_slots; slot++) {
        float x[MMLA_LATENT_DIM];
        for (int i = 0; i < MMLA_LATENT_DIM; i++) {
            x[i] = mmla_bf16_round(test_rng_normal(rng) * (float)(1 + slot % 9));
        }
        mmla_kv_record_encode(f->view.format, x, 0, gather_fixture_data(f, slot),
                              gather_fixture_scale(f, slot));
    }
}

void gather_fixture_fill(gather_fixture *f, int32_t n_threads, uint64_t seed) {
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &f->ctx, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_view_init(&f->desc.cache, "cache", &f->view, NULL), MMLA_OK);
    const size_t n = (size_t)f->args.n_requests;
    const int64_t room = gather_fixture_rows(f) - gather_fixture_offset(f);
    const int64_t reach = (int64_t)f->desc.table_width * f->desc.cache.page_tokens;
    test_rng rng = {seed};

    f->block_table = test_buffer_create(
        n * (size_t)or_least(f->desc.table_stride, f->desc.table_width) * sizeof(int32_t), 4);
    f->seq_lens = test_buffer_create(n * sizeof(int32_t), 4);
    f->gather_lens = test_buffer_create(n * sizeof(int32_t), 4);
    f->query_start = test_buffer_create((n + 1) * sizeof(int32_t), 4);
    f->cache = test_buffer_create((size_t)(f->desc.cache.n_pages * f->view.page_stride_bytes), 16);
    f->out = test_buffer_create(
        n * (size_t)gather_fixture_rows(f) * (size_t)row_stride(f) * sizeof(uint16_t), 16);

    fill_records(f, &rng);
    for (int64_t r = 0; r < f->args.n_requests; r++) {
        for (int32_t i = 0; i < f->desc.table_width; i++) {
            gather_fixture_table(f, r)[i] =
                f->desc.cache.n_pages > 0 ? (int32_t)test_rng_below(&rng, f->desc.cache.n_pages)
                                          : 0;
        }
        const int64_t seq = test_rng_below(&rng, reach + 1);
        const int64_t most = seq < room ? seq : room;
        gather_fixture_seq_lens(f)[r] = (int32_t)seq;
        gather_fixture_gather_lens(f)[r] = (int32_t)test_rng_below(&rng, most + 1);
    }
    gather_fixture_query_start(f)[0] = 0;
    for (int64_t r = 0; r < f->args.n_requests; r++) {
        gather_fixture_query_start(f)[r + 1] =
            gather_fixture_query_start(f)[r] +
            (int32_t)test_rng_below(&rng, (int64_t)gather_fixture_seq_lens(f)[r] + 1);
    }
    f->args.block_table = f->block_table.data;
    f->args.seq_lens = f->seq_lens.data;
    f->args.gather_lens = f->gather_lens.data;
    f->args.query_start = f->query_start.data;
    f->args.cache = f->cache.data;
    f->args.out = f->out.data;
    f->args.n_faults = &f->n_faults;
}

void gather_fixture_destroy(gather_fixture *f) {
    mmla_context_destroy(f->ctx);
    test_buffer_destroy(&f->block_table);
    test_buffer_destroy(&f->seq_lens);
    test_buffer_destroy(&f->gather_lens);
    test_buffer_destroy(&f->query_start);
    test_buffer_destroy(&f->cache);
    test_buffer_destroy(&f->out);
}

enum { FAULTS_BEFORE = 1000 }; /* what the counter on a GPU begins with: faults are added */

typedef struct gpu_call {
    const mmla_kv_gather_plan *plan;
    mmla_kv_gather_args args; /* pointers into the mirror */
} gpu_call;

static mmla_status enqueue(const void *call, void *stream) {
    const gpu_call *c = call;
    return mmla_kv_gather_run(c->plan, &c->args, NULL, stream);
}

/* Runs a plan of a context on GPU 0 on copies of all arrays: from a graph, and plainly; both must do
 * the same. */
static mmla_status run_on_gpu(gather_fixture *f, const mmla_kv_gather_plan *plan) {
    static const size_t pointers[] = {
        offsetof(mmla_kv_gather_args, block_table), offsetof(mmla_kv_gather_args, seq_lens),
        offsetof(mmla_kv_gather_args, gather_lens), offsetof(mmla_kv_gather_args, query_start),
        offsetof(mmla_kv_gather_args, cache),       offsetof(mmla_kv_gather_args, out),
        offsetof(mmla_kv_gather_args, n_faults)};
    const test_buffer *const all[] = {&f->block_table, &f->seq_lens, &f->gather_lens,
                                      &f->query_start, &f->cache,    &f->out};
    enum { N = sizeof all / sizeof all[0] };
    gpu_call call = {.plan = plan, .args = f->args};
    int32_t n_faults[2];
    uint8_t *out = malloc(f->out.bytes + 1);
    test_mirror m;
    assert_non_null(out);
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < N; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_add(&m, &f->n_faults, sizeof f->n_faults);
    test_mirror_move(&m, &call.args, pointers, sizeof pointers / sizeof pointers[0]);
    mmla_status status = MMLA_OK;
    for (int run = 0; run < 2 && status == MMLA_OK; run++) {
        f->n_faults = FAULTS_BEFORE;
        test_buffer_poison(&f->out);
        if (run == 0) {
            status = test_graph_run(&m, enqueue, &call);
        } else {
            test_mirror_push(&m);
            status = enqueue(&call, m.stream);
        }
        for (int i = 0; i < N; i++) {
            test_mirror_pull(&m, (char *)all[i]->data - TEST_GUARD_BYTES);
        }
        test_mirror_pull(&m, &f->n_faults);
        n_faults[run] = f->n_faults -= FAULTS_BEFORE;
        if (run == 0) {
            memcpy(out, f->out.data, f->out.bytes);
        }
    }
    if (status == MMLA_OK) {
        assert_int_equal(n_faults[0], n_faults[1]);
        assert_memory_equal(out, f->out.data, f->out.bytes);
        status = f->n_faults > 0 ? MMLA_E_INDEX : MMLA_OK;
    }
    test_mirror_close(&m);
    for (int i = 0; i < N; i++) {
        assert_true(test_buffer_is_intact(all[i]));
    }
    free(out);
    return status;
}

mmla_status gather_fixture_run(gather_fixture *f, const char *implementation) {
    mmla_kv_gather_plan *plan;
    mmla_kv_gather_desc desc = f->desc;
    desc.implementation = implementation;
    const bool is_cuda = test_implementation_is_cuda(implementation);
    mmla_context *gpu = NULL;
    if (is_cuda) {
        const mmla_context_options options = {.device = MMLA_CUDA(0)};
        assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    }
    if (mmla_kv_gather_plan_create(is_cuda ? gpu : f->ctx, &desc, &plan, &f->error) != MMLA_OK) {
        fail_msg("%s: %s", implementation, f->error.message);
    }
    assert_string_equal(mmla_kv_gather_plan_implementation(plan), implementation);
    assert_int_equal(mmla_kv_gather_workspace_bytes(plan), 0);
    f->n_faults = 0;
    if (f->args.n_faults != NULL) { /* a fixture may have moved since it was filled */
        f->args.n_faults = &f->n_faults;
    }
    f->error = (mmla_error){0};
    f->args.error = &f->error;
    test_buffer_poison(&f->out);
    const mmla_status status =
        is_cuda ? run_on_gpu(f, plan) : mmla_kv_gather_run(plan, &f->args, NULL, NULL);
    mmla_kv_gather_plan_destroy(plan);
    mmla_context_destroy(gpu);
    assert_true(test_buffer_is_intact(&f->out));
    return status;
}

void gather_fixture_assert_row(gather_fixture *f, int64_t r, int64_t row, int64_t slot) {
    float x[MMLA_LATENT_DIM] = {0};
    if (slot >= 0) {
        mmla_kv_record_decode(f->view.format, gather_fixture_data(f, slot),
                              gather_fixture_scale(f, slot), x);
    }
    const uint16_t *got = gather_fixture_out(f, r, row);
    for (int i = 0; i < MMLA_LATENT_DIM; i++) {
        if (got[i] != mmla_bits_of_f32(x[i]) >> 16) {
            fail_msg("request %lld, row %lld, dim %d is %04X, record %lld has %04X", (long long)r,
                     (long long)row, i, got[i], (long long)slot, mmla_bits_of_f32(x[i]) >> 16);
        }
    }
}

void gather_fixture_assert_untouched(const gather_fixture *f, int64_t r, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        const size_t at =
            (size_t)((const uint8_t *)gather_fixture_out(f, r, row) - (uint8_t *)f->out.data);
        if (!test_buffer_is_untouched(&f->out, at, at + (size_t)row_stride(f) * sizeof(uint16_t))) {
            fail_msg("row %lld of request %lld changed", (long long)row, (long long)r);
        }
    }
}
