/* early_test.c - calls whose kernels are launched early (gpu/order.cuh) run in stream order.
 *
 * Contract: calls enqueued in a row without a wait, over the same buffers, give the bits of the
 * same calls one by one. Inserts of the rows that a gather has read back, and gathers of the
 * records that an insert has written, in turns, against the CPU. Fused calls that all write into
 * the same codes and scales, each projected at once, some behind an insert into the cache they
 * read, against the same calls with a wait behind each. Enqueued, and from a graph, twice. Skipped
 * where there is no GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/gpu_memory.h"
#include "support/attend_fixture.h"
#include "support/gpu_mirror.h"
#include "support/insert_fixture.h"
#include "support/project_fixture.h"
#include "support/rng.h"

static uint64_t seed;

/* A buffer that calls change: what it holds before them, and after them one by one. */
typedef struct changed {
    test_buffer *now;
    test_buffer before, want;
} changed;

static changed changed_create(test_buffer *b) {
    changed c = {b, test_buffer_create(b->bytes, 16), test_buffer_create(b->bytes, 16)};
    memcpy(c.before.data, b->data, b->bytes);
    return c;
}

static void changed_destroy(changed *c) {
    test_buffer_destroy(&c->before);
    test_buffer_destroy(&c->want);
}

/* What it holds now is wanted; it would say nothing if it were as before. */
static void changed_keep(changed *c) {
    memcpy(c->want.data, c->now->data, c->now->bytes);
    assert_memory_not_equal(c->want.data, c->before.data, c->now->bytes);
}

static void begin_again(test_mirror *m, const changed *c, int n) {
    for (int i = 0; i < n; i++) {
        memcpy(c[i].now->data, c[i].before.data, c[i].now->bytes);
    }
    test_mirror_push(m);
}

static void bring(test_mirror *m, const changed *c, int n) {
    for (int i = 0; i < n; i++) {
        test_mirror_pull(m, c[i].now->data);
        assert_true(test_buffer_is_intact(c[i].now));
    }
}

typedef void (*enqueue_fn)(const void *calls, void *stream);

static mmla_gpu_graph *graph_create(test_mirror *m, enqueue_fn enqueue, const void *calls) {
    mmla_gpu_graph *graph;
    mmla_error err = {0};
    assert_int_equal(mmla_gpu_capture_begin(&m->gpu, m->stream, &err), MMLA_OK);
    enqueue(calls, m->stream);
    assert_int_equal(mmla_gpu_capture_end(&m->gpu, m->stream, &graph, &err), MMLA_OK);
    return graph;
}

/* The calls twice, each time on what there was before: enqueued, or from one graph. */
static void check(test_mirror *m,
                  enqueue_fn enqueue,
                  const void *calls,
                  const changed *c,
                  int n,
                  bool in_graph,
                  const char *what) {
    mmla_gpu_graph *graph = in_graph ? graph_create(m, enqueue, calls) : NULL;
    mmla_error err = {0};
    for (int round = 0; round < 2; round++) {
        begin_again(m, c, n);
        if (in_graph) {
            assert_int_equal(mmla_gpu_graph_launch(&m->gpu, graph, m->stream, &err), MMLA_OK);
        } else {
            enqueue(calls, m->stream);
        }
        bring(m, c, n);
        for (int i = 0; i < n; i++) {
            if (memcmp(c[i].now->data, c[i].want.data, c[i].now->bytes) != 0) {
                fail_msg("%s: buffer %d differs in round %d", what, i, round);
            }
        }
    }
    mmla_gpu_graph_destroy(&m->gpu, graph);
}

/* ---- inserts and gathers ---- */

enum { ROUNDS = 8, PAGE = 64 };

/* Of one device. */
typedef struct trip_calls {
    mmla_kv_insert_plan *insert;
    mmla_kv_gather_plan *gather;
    mmla_kv_insert_args insert_args; /* slots of the first round; those of the others lie behind */
    mmla_kv_gather_args gather_args;
    void *workspace;
} trip_calls;

typedef struct trip {
    insert_fixture f; /* its rows are what gathers write */
    test_buffer slots, pages, len, workspace;
    mmla_context *ctx;
    trip_calls cpu, gpu;
} trip;

static void trip_enqueue(const void *calls, void *stream) {
    const trip_calls *c = calls;
    mmla_kv_insert_args insert = c->insert_args;
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(mmla_kv_insert_run(c->insert, &insert, c->workspace, stream), MMLA_OK);
        assert_int_equal(mmla_kv_gather_run(c->gather, &c->gather_args, NULL, stream), MMLA_OK);
        insert.slots += insert.n_slots;
    }
}

/* Every round has its own slots, so that rows move; one in four is drawn, some of them twice. */
static void fill_slots(int64_t *slots, int64_t n, test_rng *rng) {
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t shift = test_rng_below(rng, n);
        for (int64_t t = 0; t < n; t++) {
            const bool is_drawn = test_rng_below(rng, 4) == 0;
            slots[round * n + t] = is_drawn ? test_rng_below(rng, n) : (t + shift) % n;
        }
    }
}

static trip_calls trip_calls_create(mmla_context *ctx, const trip *t) {
    const mmla_kv_gather_desc gather = {.cache = t->f.desc.cache,
                                        .max_requests = 1,
                                        .table_width = (int32_t)t->f.desc.cache.n_pages,
                                        .rows = t->f.args.n_rows};
    trip_calls c = {.insert_args = t->f.args,
                    .gather_args = {.n_requests = 1,
                                    .block_table = t->pages.data,
                                    .seq_lens = t->len.data,
                                    .cache = t->f.cache.data,
                                    .out = t->f.rows.data}};
    c.insert_args.slots = t->slots.data;
    c.insert_args.norm_weight = NULL;
    c.insert_args.n_faults = NULL;
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &t->f.desc, &c.insert, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &gather, &c.gather, NULL), MMLA_OK);
    return c;
}

static void trip_calls_destroy(trip_calls *c) {
    mmla_kv_insert_plan_destroy(c->insert);
    mmla_kv_gather_plan_destroy(c->gather);
}

static trip trip_create(int64_t n_rows) {
    trip t = {.f = insert_fixture_create(MMLA_KV_V41_FP8)};
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    test_rng rng = {seed};
    t.f.desc.max_tokens = t.f.args.n_rows = t.f.args.n_slots = n_rows;
    t.f.desc.cache.page_tokens = PAGE;
    t.f.desc.cache.n_pages = (n_rows + PAGE - 1) / PAGE;
    insert_fixture_fill(&t.f, 2, seed);
    t.slots = test_buffer_create((size_t)(ROUNDS * n_rows) * sizeof(int64_t), 8);
    t.pages = test_buffer_create((size_t)t.f.desc.cache.n_pages * sizeof(int32_t), 4);
    t.len = test_buffer_create(sizeof(int32_t), 4);
    fill_slots(t.slots.data, n_rows, &rng);
    for (int64_t i = 0; i < t.f.desc.cache.n_pages; i++) {
        ((int32_t *)t.pages.data)[i] = (int32_t)i;
    }
    *(int32_t *)t.len.data = (int32_t)n_rows;
    assert_int_equal(mmla_context_create(&options, &t.ctx, NULL), MMLA_OK);
    t.cpu = trip_calls_create(t.f.ctx, &t);
    t.gpu = trip_calls_create(t.ctx, &t);
    t.workspace = test_buffer_create(mmla_kv_insert_workspace_bytes(t.gpu.insert), 64);
    return t;
}

static void trip_destroy(trip *t) {
    trip_calls_destroy(&t->cpu);
    trip_calls_destroy(&t->gpu);
    mmla_context_destroy(t->ctx);
    test_buffer_destroy(&t->slots);
    test_buffer_destroy(&t->pages);
    test_buffer_destroy(&t->len);
    test_buffer_destroy(&t->workspace);
    insert_fixture_destroy(&t->f);
}

/* Gives the GPU's calls their addresses. */
static void trip_move(trip *t, test_mirror *m) {
    const test_buffer *const all[] = {&t->f.rows, &t->f.positions, &t->f.cos_sin, &t->f.cache,
                                      &t->slots,  &t->pages,       &t->len,       &t->workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_mirror_add_buffer(m, all[i]);
    }
    trip_calls *c = &t->gpu;
    c->workspace = test_mirror_at(m, t->workspace.data);
    c->insert_args.rows = c->gather_args.out = test_mirror_at(m, t->f.rows.data);
    c->insert_args.cache = test_mirror_at(m, t->f.cache.data);
    c->gather_args.cache = c->insert_args.cache;
    c->insert_args.positions = test_mirror_at(m, t->f.positions.data);
    c->insert_args.slots = test_mirror_at(m, t->slots.data);
    c->insert_args.cos_sin = test_mirror_at(m, t->f.cos_sin.data);
    c->gather_args.block_table = test_mirror_at(m, t->pages.data);
    c->gather_args.seq_lens = test_mirror_at(m, t->len.data);
}

/* Above 2048 rows an insert is two launches. */
static void check_trips(bool in_graph) {
    static const int64_t n_rows[] = {1, 64, 2048, 2049, 5000};
    for (size_t i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++) {
        test_mirror m;
        if (!test_mirror_open(&m)) {
            skip();
        }
        trip t = trip_create(n_rows[i]);
        changed c[] = {changed_create(&t.f.rows), changed_create(&t.f.cache)};
        char what[32];
        snprintf(what, sizeof what, "%d rows", (int)n_rows[i]);
        trip_enqueue(&t.cpu, NULL);
        changed_keep(&c[0]);
        changed_keep(&c[1]);
        trip_move(&t, &m);
        check(&m, trip_enqueue, &t.gpu, c, 2, in_graph, what);
        changed_destroy(&c[0]);
        changed_destroy(&c[1]);
        trip_destroy(&t);
        test_mirror_close(&m);
    }
}

static void inserts_and_gathers_in_a_row_give_the_bytes_of_the_cpu(void **state) {
    (void)state;
    check_trips(false);
}

static void inserts_and_gathers_in_a_graph_give_the_bytes_of_the_cpu(void **state) {
    (void)state;
    check_trips(true);
}

/* ---- fused calls and what projects their results ---- */

enum { PAIRS = 6, D = MMLA_LATENT_DIM };

/* With addresses on the GPU, of the first q and z; those of the other pairs lie behind. */
typedef struct pair_calls {
    mmla_kv_insert_plan *insert;
    mmla_attend_plan *attend;
    mmla_project_plan *project;
    mmla_kv_insert_args insert_args;
    mmla_attend_args attend_args;
    mmla_project_args project_args;
    void *workspace, *wide; /* of attend; the wide weight, or NULL */
    int64_t q_size, z_size; /* elements of a pair */
    const mmla_gpu *gpu;
    bool is_apart; /* a wait is behind every call */
} pair_calls;

typedef struct pairs {
    attend_fixture attend;
    project_fixture project; /* of which x and z are not used */
    test_buffer q, z, slots, positions, wide, workspace;
    mmla_context *ctx;
    pair_calls calls;
} pairs;

static void end_call(const pair_calls *c, mmla_status status, void *stream) {
    mmla_error err = {0};
    assert_int_equal(status, MMLA_OK);
    if (c->is_apart) {
        assert_int_equal(mmla_gpu_stream_wait(c->gpu, stream, &err), MMLA_OK);
    }
}

/* Half of the fused calls are right behind the project before, which reads what they write. The
 * others have an insert in front of them, of rows of their q, into the cache that the fused call
 * before that project has read. */
static void pairs_enqueue(const void *calls, void *stream) {
    const pair_calls *c = calls;
    mmla_kv_insert_args insert = c->insert_args;
    mmla_attend_args attend = c->attend_args;
    mmla_project_args project = c->project_args;
    if (c->wide != NULL) {
        const mmla_project_widen_args widen = {
            .weight = project.weight, .weight_scale = project.weight_scale, .wide = c->wide};
        project.weight_wide = c->wide;
        end_call(c, mmla_project_widen(c->project, &widen, stream), stream);
    }
    for (int i = 0; i < PAIRS; i++) {
        if (i % 2 == 1) {
            insert.rows = attend.q;
            end_call(c, mmla_kv_insert_run(c->insert, &insert, NULL, stream), stream);
        }
        end_call(c, mmla_attend_run(c->attend, &attend, c->workspace, stream), stream);
        end_call(c, mmla_project_run(c->project, &project, NULL, stream), stream);
        attend.q += c->q_size;
        project.z += c->z_size;
    }
}

/* Numbers of both signs between 1 / 8 and 2. */
static void fill_q(test_buffer *q, test_rng *rng) {
    for (size_t i = 0; i < q->bytes / 2; i++) {
        ((uint16_t *)q->data)[i] = (uint16_t)((test_rng_next(rng) & 0x81FF) | 0x3E00);
    }
}

static void pairs_plan(pairs *p) {
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    const mmla_cache_desc *window = &p->attend.desc.window;
    const int64_t n = p->attend.n_tokens, n_slots = window->n_pages * window->page_tokens;
    pair_calls *c = &p->calls;
    const mmla_kv_insert_desc insert = {.cache = *window,
                                        .max_tokens = n < n_slots ? n : n_slots,
                                        .row_stride = (int64_t)p->attend.desc.n_heads * D,
                                        .rope_positions = p->attend.desc.rope_positions};
    assert_int_equal(mmla_context_create(&options, &p->ctx, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_insert_plan_create(p->ctx, &insert, &c->insert, NULL), MMLA_OK);
    assert_int_equal(mmla_attend_plan_create(p->ctx, &p->attend.desc, &c->attend, NULL), MMLA_OK);
    assert_int_equal(mmla_project_plan_create(p->ctx, &p->project.desc, &c->project, NULL),
                     MMLA_OK);
    c->insert_args.n_rows = c->insert_args.n_slots = insert.max_tokens;
}

/* What there is besides the fixtures. */
static void pairs_fill(pairs *p) {
    pair_calls *c = &p->calls;
    const mmla_cache_desc *window = &p->attend.desc.window;
    const int64_t n_rows = c->insert_args.n_rows;
    test_rng rng = {seed};
    p->q = test_buffer_create(PAIRS * p->attend.q.bytes, 16);
    p->z = test_buffer_create(PAIRS * p->project.z.bytes, 16);
    p->slots = test_buffer_create((size_t)n_rows * sizeof(int64_t), 8);
    p->positions = test_buffer_create((size_t)n_rows * sizeof(int64_t), 8);
    p->wide = test_buffer_create(mmla_project_wide_bytes(c->project), 128);
    p->workspace = test_buffer_create(mmla_attend_workspace_bytes(c->attend), 64);
    fill_q(&p->q, &rng);
    for (int64_t t = 0; t < n_rows; t++) {
        ((int64_t *)p->slots.data)[t] = test_rng_below(&rng, window->n_pages * window->page_tokens);
        ((int64_t *)p->positions.data)[t] = test_rng_below(&rng, p->attend.desc.rope_positions);
    }
    c->q_size = (int64_t)(p->attend.q.bytes / 2);
    c->z_size = (int64_t)(p->project.z.bytes / 2);
}

static pairs pairs_create(int32_t n_heads, int64_t n_tokens) {
    const mmla_project_desc project = {.n_groups = n_heads / 8, .max_tokens = n_tokens};
    pairs p = {.attend = attend_fixture_paged(1)};
    p.attend.n_tokens = n_tokens;
    p.attend.desc.n_heads = n_heads;
    p.attend.desc.list_width = 128;
    p.attend.desc.compressed_width = 512;
    attend_fixture_fill(&p.attend, seed);
    p.project = project_fixture_create_aligned(project, n_tokens, 1);
    project_fixture_fill(&p.project, seed, 112, 120, 110, 122);
    pairs_plan(&p);
    pairs_fill(&p);
    return p;
}

static void pairs_destroy(pairs *p) {
    test_buffer *const all[] = {&p->q, &p->z, &p->slots, &p->positions, &p->wide, &p->workspace};
    mmla_kv_insert_plan_destroy(p->calls.insert);
    mmla_attend_plan_destroy(p->calls.attend);
    mmla_project_plan_destroy(p->calls.project);
    mmla_context_destroy(p->ctx);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_buffer_destroy(all[i]);
    }
    attend_fixture_destroy(&p->attend);
    project_fixture_destroy(&p->project);
}

/* Copies on the GPU, and the calls' addresses there. */
static void pairs_move(pairs *p, test_mirror *m) {
    attend_fixture *a = &p->attend;
    const test_buffer *const all[] = {
        &a->positions, &a->cos_sin,    &a->sink,
        &a->list,      &a->lens,       &a->compressed_list,
        &a->window,    &a->compressed, &a->compressed_lens,
        &a->out,       &a->out_scale,  &p->project.weight,
        &p->q,         &p->z,          &p->project.weight_scale,
        &p->slots,     &p->positions,  &p->wide,
        &p->workspace,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_mirror_add_buffer(m, all[i]);
    }
    static const size_t attend_pointers[] = {
#define POINTER(name) offsetof(mmla_attend_args, name)
        POINTER(q),    POINTER(positions),    POINTER(cos_sin),          POINTER(sink),
        POINTER(list), POINTER(lens),         POINTER(compressed_list),  POINTER(compressed_lens),
        POINTER(out),  POINTER(window_cache), POINTER(compressed_cache), POINTER(out_scale),
#undef POINTER
    };
    pair_calls *c = &p->calls;
    c->gpu = &m->gpu;
    c->workspace = test_mirror_at(m, p->workspace.data);
    c->attend_args = a->args;
    c->attend_args.q = p->q.data;
    c->attend_args.lse = c->attend_args.max_logits = NULL;
    test_mirror_move(m, &c->attend_args, attend_pointers,
                     sizeof attend_pointers / sizeof attend_pointers[0]);
    c->insert_args.positions = test_mirror_at(m, p->positions.data);
    c->insert_args.slots = test_mirror_at(m, p->slots.data);
    c->insert_args.cos_sin = c->attend_args.cos_sin;
    c->insert_args.cache = test_mirror_at(m, a->window.data);
    c->project_args = (mmla_project_args){
        .n_tokens = a->n_tokens,
        .x = c->attend_args.out,
        .x_scale = c->attend_args.out_scale,
        .weight = test_mirror_at(m, p->project.weight.data),
        .weight_scale = test_mirror_at(m, p->project.weight_scale.data),
        .z = test_mirror_at(m, p->z.data),
    };
}

/* The calls one by one. Were two pairs' z the same, their order could not be seen. */
static void run_apart(pairs *p, test_mirror *m, changed c[2]) {
    begin_again(m, c, 2);
    p->calls.is_apart = true;
    pairs_enqueue(&p->calls, m->stream);
    p->calls.is_apart = false;
    bring(m, c, 2);
    changed_keep(&c[0]);
    changed_keep(&c[1]);
    for (int64_t i = 0; i + 1 < PAIRS; i++) {
        const uint16_t *z = (const uint16_t *)p->z.data + i * p->calls.z_size;
        assert_memory_not_equal(z, z + p->calls.z_size, p->project.z.bytes);
    }
}

/* Without a wide weight, and with one where there is a use for it. */
static void check_pairs_of(pairs *p, test_mirror *m, bool in_graph) {
    changed c[] = {changed_create(&p->z), changed_create(&p->attend.window)};
    pairs_move(p, m);
    for (int is_wide = 0; is_wide < 1 + (p->wide.bytes > 0); is_wide++) {
        char what[64];
        snprintf(what, sizeof what, "%d heads, %d tokens, wide %d", (int)p->attend.desc.n_heads,
                 (int)p->attend.n_tokens, is_wide);
        p->calls.wide = is_wide ? test_mirror_at(m, p->wide.data) : NULL;
        run_apart(p, m, c);
        check(m, pairs_enqueue, &p->calls, c, 2, in_graph, what);
    }
    changed_destroy(&c[0]);
    changed_destroy(&c[1]);
}

static void check_pairs(bool in_graph) {
    /* Of project on Hopper: a split kernel, which is not early, for 3 tokens, and without a wide
     * weight for 201 of 16 heads; else block and wide kernels, of 600 tokens in fewer blocks than
     * there are multiprocessors (project_wgmma_cuda.c). */
    static const struct {
        int32_t n_heads;
        int64_t n_tokens;
    } shapes[] = {{64, 3}, {64, 201}, {16, 3}, {16, 201}, {16, 600}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        test_mirror m;
        if (!test_mirror_open(&m)) {
            skip();
        }
        pairs p = pairs_create(shapes[i].n_heads, shapes[i].n_tokens);
        check_pairs_of(&p, &m, in_graph);
        pairs_destroy(&p);
        test_mirror_close(&m);
    }
}

static void attend_and_project_in_a_row_give_the_bits_of_calls_apart(void **state) {
    (void)state;
    check_pairs(false);
}

static void attend_and_project_in_a_graph_give_the_bits_of_calls_apart(void **state) {
    (void)state;
    check_pairs(true);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inserts_and_gathers_in_a_row_give_the_bytes_of_the_cpu),
        cmocka_unit_test(inserts_and_gathers_in_a_graph_give_the_bytes_of_the_cpu),
        cmocka_unit_test(attend_and_project_in_a_row_give_the_bits_of_calls_apart),
        cmocka_unit_test(attend_and_project_in_a_graph_give_the_bits_of_calls_apart),
    };
    return cmocka_run_group_tests_name("early", tests, NULL, NULL);
}
