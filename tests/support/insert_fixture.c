#include "support/insert_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "support/gpu_graph.h"
#include "support/implementation_walk.h"

insert_fixture insert_fixture_create(mmla_kv_format format) {
    return (insert_fixture){
        .desc = {.cache = {.format = format, .page_tokens = 7, .n_pages = 3},
                 .max_tokens = 8,
                 .norm_eps = 1e-20f,
                 .rope_positions = 64},
        .args = {.n_rows = 8, .n_slots = 8},
    };
}

static int64_t row_stride(const insert_fixture *f) {
    return f->desc.row_stride != 0 ? f->desc.row_stride : mmla_kv_dims(f->desc.cache.format);
}

uint16_t *insert_fixture_row(insert_fixture *f, int64_t t) {
    return (uint16_t *)f->rows.data + t * row_stride(f);
}

int64_t *insert_fixture_positions(insert_fixture *f) {
    return f->positions.data;
}

int64_t *insert_fixture_slots(insert_fixture *f) {
    return f->slots.data;
}

float *insert_fixture_cos_sin(insert_fixture *f) {
    return f->cos_sin.data;
}

const uint8_t *insert_fixture_data(const insert_fixture *f, int64_t slot) {
    return (const uint8_t *)f->cache.data + mmla_kv_data_offset(&f->view, slot);
}

const uint8_t *insert_fixture_scale(const insert_fixture *f, int64_t slot) {
    return (const uint8_t *)f->cache.data + mmla_kv_scale_offset(&f->view, slot);
}

/* A row of magnitudes between 2^-12 and 2^8, and now and then a zero. */
static void fill_row(test_rng *rng, uint16_t *row, int dims) {
    const int level = (int)test_rng_below(rng, 16) - 8;
    for (int i = 0; i < dims; i++) {
        const int spread = (int)test_rng_below(rng, 5) - 4;
        row[i] = test_rng_below(rng, 50) == 0
                     ? (uint16_t)(0x8000 * test_rng_below(rng, 2))
                     : mmla_bf16_from_f32(ldexpf(test_rng_normal(rng), level + spread));
    }
}

static void fill_slots(test_rng *rng, int64_t *slots, int64_t n, int64_t n_slots) {
    const int64_t start = n_slots > 0 ? test_rng_below(rng, n_slots) : 0;
    int64_t step = 1;
    if (n_slots % 5 != 0) {
        step = 5; /* coprime, so that all are visited */
    }
    for (int64_t t = 0; t < n; t++) {
        slots[t] = t < n_slots ? (start + t * step) % n_slots : -1;
    }
}

void insert_fixture_fill(insert_fixture *f, int32_t n_threads, uint64_t seed) {
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &f->ctx, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_view_init(&f->desc.cache, "cache", &f->view, NULL), MMLA_OK);
    const int dims = mmla_kv_dims(f->desc.cache.format);
    const size_t n = (size_t)f->args.n_rows, p = (size_t)f->desc.rope_positions;
    test_rng rng = {seed};

    f->rows = test_buffer_create(n * (size_t)row_stride(f) * sizeof(uint16_t), 16);
    f->positions = test_buffer_create(n * sizeof(int64_t), 8);
    f->slots = test_buffer_create((size_t)f->args.n_slots * sizeof(int64_t), 8);
    f->cos_sin = test_buffer_create(p * MMLA_ROPE_DIM * sizeof(float), 4);
    f->norm_weight = test_buffer_create((size_t)dims * sizeof(float), 4);
    f->cache = test_buffer_create((size_t)(f->desc.cache.n_pages * f->view.page_stride_bytes), 16);

    for (int64_t t = 0; t < f->args.n_rows; t++) {
        fill_row(&rng, insert_fixture_row(f, t), dims);
        insert_fixture_positions(f)[t] = test_rng_below(&rng, f->desc.rope_positions);
    }
    fill_slots(&rng, insert_fixture_slots(f), f->args.n_slots, f->view.n_slots);
    for (size_t i = 0; i < p * MMLA_ROPE_DIM; i++) {
        insert_fixture_cos_sin(f)[i] = test_rng_uniform(&rng, -1.0f, 1.0f);
    }
    for (int i = 0; i < dims; i++) {
        ((float *)f->norm_weight.data)[i] = test_rng_uniform(&rng, -2.0f, 2.0f);
    }
    f->args.rows = f->rows.data;
    f->args.positions = f->positions.data;
    f->args.slots = f->slots.data;
    f->args.cos_sin = f->cos_sin.data;
    f->args.norm_weight = f->norm_weight.data;
    f->args.cache = f->cache.data;
    f->args.n_faults = &f->n_faults;
}

void insert_fixture_destroy(insert_fixture *f) {
    mmla_context_destroy(f->ctx);
    test_buffer_destroy(&f->rows);
    test_buffer_destroy(&f->positions);
    test_buffer_destroy(&f->slots);
    test_buffer_destroy(&f->cos_sin);
    test_buffer_destroy(&f->norm_weight);
    test_buffer_destroy(&f->cache);
}

enum { N_INPUTS = 5 };

/* A hash of every input (FNV-1a); run may write neither those nor their guard bytes. */
static uint64_t hash_of_inputs(const insert_fixture *f) {
    const test_buffer *const inputs[N_INPUTS] = {&f->rows, &f->positions, &f->slots, &f->cos_sin,
                                                 &f->norm_weight};
    uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < N_INPUTS; i++) {
        assert_true(test_buffer_is_intact(inputs[i]));
        for (size_t at = 0; at < inputs[i]->bytes; at++) {
            hash = (hash ^ ((const uint8_t *)inputs[i]->data)[at]) * 0x100000001B3u;
        }
    }
    return hash;
}

enum { FAULTS_BEFORE = 1000 }; /* what the counter on a GPU begins with: faults are added */

typedef struct gpu_call {
    const mmla_kv_insert_plan *plan;
    mmla_kv_insert_args args; /* pointers into the mirror */
    void *workspace;
} gpu_call;

static mmla_status enqueue(const void *call, void *stream) {
    const gpu_call *c = call;
    return mmla_kv_insert_run(c->plan, &c->args, c->workspace, stream);
}

/* Runs a plan of a context on GPU 0 on copies of all arrays: from a graph, and plainly; both must do
 * the same. */
static mmla_status run_on_gpu(insert_fixture *f, const mmla_kv_insert_plan *plan) {
    static const size_t pointers[] = {
        offsetof(mmla_kv_insert_args, rows),        offsetof(mmla_kv_insert_args, positions),
        offsetof(mmla_kv_insert_args, slots),       offsetof(mmla_kv_insert_args, cos_sin),
        offsetof(mmla_kv_insert_args, norm_weight), offsetof(mmla_kv_insert_args, cache),
        offsetof(mmla_kv_insert_args, n_faults)};
    test_buffer work = test_buffer_create(mmla_kv_insert_workspace_bytes(plan), 64);
    const test_buffer *const all[] = {&f->rows,        &f->positions, &f->slots, &f->cos_sin,
                                      &f->norm_weight, &f->cache,     &work};
    enum { N = sizeof all / sizeof all[0] };
    gpu_call call = {.plan = plan, .args = f->args};
    int32_t n_faults[2];
    uint8_t *cache = malloc(f->cache.bytes + 1);
    test_mirror m;
    assert_non_null(cache);
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < N; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_add(&m, &f->n_faults, sizeof f->n_faults);
    test_mirror_move(&m, &call.args, pointers, sizeof pointers / sizeof pointers[0]);
    call.workspace = test_mirror_at(&m, work.data);
    mmla_status status = MMLA_OK;
    for (int run = 0; run < 2 && status == MMLA_OK; run++) {
        f->n_faults = FAULTS_BEFORE;
        test_buffer_poison(&f->cache);
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
            memcpy(cache, f->cache.data, f->cache.bytes);
        }
    }
    if (status == MMLA_OK) {
        assert_int_equal(n_faults[0], n_faults[1]);
        assert_memory_equal(cache, f->cache.data, f->cache.bytes);
        status = f->n_faults > 0 ? MMLA_E_INDEX : MMLA_OK;
    }
    test_mirror_close(&m);
    assert_true(test_buffer_is_intact(&work));
    test_buffer_destroy(&work);
    free(cache);
    return status;
}

mmla_status insert_fixture_run(insert_fixture *f, const char *implementation) {
    mmla_kv_insert_plan *plan;
    mmla_kv_insert_desc desc = f->desc;
    desc.implementation = implementation;
    const bool is_cuda = test_implementation_is_cuda(implementation);
    mmla_context *gpu = NULL;
    if (is_cuda) {
        const mmla_context_options options = {.device = MMLA_CUDA(0)};
        assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    }
    if (mmla_kv_insert_plan_create(is_cuda ? gpu : f->ctx, &desc, &plan, &f->error) != MMLA_OK) {
        fail_msg("%s: %s", implementation, f->error.message);
    }
    assert_string_equal(mmla_kv_insert_plan_implementation(plan), implementation);
    assert_true(is_cuda || mmla_kv_insert_workspace_bytes(plan) == 0);
    f->n_faults = 0;
    if (f->args.n_faults != NULL) { /* a fixture may have moved since it was filled */
        f->args.n_faults = &f->n_faults;
    }
    f->error = (mmla_error){0};
    f->args.error = &f->error;
    test_buffer_poison(&f->cache);
    const uint64_t inputs = hash_of_inputs(f);
    const mmla_status status =
        is_cuda ? run_on_gpu(f, plan) : mmla_kv_insert_run(plan, &f->args, NULL, NULL);
    mmla_kv_insert_plan_destroy(plan);
    mmla_context_destroy(gpu);
    assert_true(test_buffer_is_intact(&f->cache));
    assert_true(hash_of_inputs(f) == inputs);
    return status;
}

void insert_fixture_assert_only(const insert_fixture *f, const int64_t *slots, int64_t n) {
    uint8_t *addressed = calloc(f->cache.bytes + 1, 1);
    assert_non_null(addressed);
    for (int64_t i = 0; i < n; i++) {
        memset(addressed + mmla_kv_data_offset(&f->view, slots[i]), 1, (size_t)f->view.data_bytes);
        memset(addressed + mmla_kv_scale_offset(&f->view, slots[i]), 1,
               (size_t)f->view.scale_bytes);
    }
    for (size_t i = 0; i < f->cache.bytes; i++) {
        if (!addressed[i] && !test_buffer_is_untouched(&f->cache, i, i + 1)) {
            fail_msg("byte %zu of the cache belongs to no written record but changed", i);
        }
    }
    for (int64_t i = 0; i < n; i++) { /* a record of poison alone was not written */
        const size_t at = (size_t)mmla_kv_data_offset(&f->view, slots[i]);
        assert_false(test_buffer_is_untouched(&f->cache, at, at + (size_t)f->view.data_bytes));
    }
    free(addressed);
}
