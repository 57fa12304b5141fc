/* overlap_test.c - calls that may run at the same time as the one before them (args.overlap).
 *
 * Contract: with `overlap` the results are those without, and an ordinary call behind finds all of
 * them complete. An insert, of few rows or of many, and two builders of lists, of which the last two
 * overlap, the insert first or last; then a gather, which overlaps nothing, of all records that the
 * insert wrote. Enqueued one by one, in a graph, and in that graph again on other inputs. Then a
 * long call on a few multiprocessors, a short one that overlaps it, and a copy of what the long one
 * writes. Skipped where there is no GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/gpu_memory.h"
#include "support/gpu_mirror.h"
#include "support/insert_fixture.h"
#include "support/list_pointers.h"
#include "support/rng.h"

enum { REQUESTS = 40, WINDOW = 100, PAGE = 64, TABLE = 8, ROWS_MOST = 40000 };

static uint64_t seed;

/* A decode step of REQUESTS tokens; with everything a list reads, and both lists. */
typedef struct lists {
    int32_t query_start[REQUESTS + 1], seq_lens[REQUESTS], request[REQUESTS];
    int32_t block_table[REQUESTS][TABLE];
    int64_t positions[REQUESTS], slots[REQUESTS];
    int32_t list[REQUESTS][WINDOW], lens[REQUESTS];
    int64_t out_slots[REQUESTS];
} lists;

static lists in, want;

typedef struct step_plans {
    mmla_kv_insert_plan *insert;
    mmla_list_plan *window, *slots;
    mmla_kv_gather_plan *gather;
} step_plans;

typedef struct step {
    insert_fixture f;
    mmla_kv_gather_desc gather;
    test_buffer pages, len, rows, want_rows, want_cache, workspace;
    step_plans gpu, cpu;
    mmla_context *ctx;
    test_mirror m;
} step;

static void draw(step *s, test_rng *rng) {
    for (int r = 0; r < REQUESTS; r++) {
        in.query_start[r] = r;
        in.request[r] = r;
        in.seq_lens[r] = 1 + (int32_t)test_rng_below(rng, TABLE * PAGE);
        in.positions[r] = in.seq_lens[r] - 1;
        in.slots[r] = test_rng_below(rng, 5) - 1;
        for (int i = 0; i < TABLE; i++) {
            in.block_table[r][i] = (int32_t)test_rng_below(rng, 1000);
        }
    }
    in.query_start[REQUESTS] = REQUESTS;
    for (int64_t t = 0; t < s->f.args.n_slots; t++) { /* some slots twice, some not at all */
        insert_fixture_slots(&s->f)[t] = test_rng_below(rng, s->f.view.n_slots);
    }
}

static mmla_list_desc list_desc(mmla_list_kind kind) {
    return (mmla_list_desc){.kind = kind,
                            .max_tokens = REQUESTS,
                            .max_requests = REQUESTS,
                            .window = WINDOW,
                            .width = WINDOW,
                            .page_tokens = PAGE,
                            .n_pages = 1000,
                            .table_width = TABLE,
                            .ratio = 2};
}

/* Of a struct with the arrays of both kinds of list. */
#define LIST_ARGS(x, n)                                   \
    ((mmla_list_args){.n_tokens = (n),                    \
                      .n_requests = (n),                  \
                      .query_start = (x)->query_start,    \
                      .seq_lens = (x)->seq_lens,          \
                      .request = (x)->request,            \
                      .block_table = (x)->block_table[0], \
                      .positions = (x)->positions,        \
                      .slots = (x)->slots,                \
                      .list = (x)->list[0],               \
                      .lens = (x)->lens,                  \
                      .out_slots = (x)->out_slots})

static step_plans plans_create(mmla_context *ctx, const step *s) {
    step_plans p;
    const mmla_list_desc window = list_desc(MMLA_LIST_WINDOW);
    const mmla_list_desc slots = list_desc(MMLA_LIST_COMPRESSED_SLOTS);
    assert_int_equal(mmla_kv_insert_plan_create(ctx, &s->f.desc, &p.insert, NULL), MMLA_OK);
    assert_int_equal(mmla_list_plan_create(ctx, &window, &p.window, NULL), MMLA_OK);
    assert_int_equal(mmla_list_plan_create(ctx, &slots, &p.slots, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_gather_plan_create(ctx, &s->gather, &p.gather, NULL), MMLA_OK);
    return p;
}

static void plans_destroy(step_plans *p) {
    mmla_kv_insert_plan_destroy(p->insert);
    mmla_list_plan_destroy(p->window);
    mmla_list_plan_destroy(p->slots);
    mmla_kv_gather_plan_destroy(p->gather);
}

/* The four calls. On the GPU when there is a mirror, whose addresses they then get. */
static void run(const step_plans *p, step *s, bool insert_first, test_mirror *m, void *stream) {
    mmla_kv_insert_args insert = s->f.args;
    mmla_list_args list = LIST_ARGS(m == NULL ? &want : &in, REQUESTS);
    mmla_kv_gather_args gather = {.n_requests = 1,
                                  .block_table = s->pages.data,
                                  .seq_lens = s->len.data,
                                  .cache = s->f.cache.data,
                                  .out = m == NULL ? s->want_rows.data : s->rows.data};
    insert.n_faults = NULL;
    if (m != NULL) {
        insert.rows = test_mirror_at(m, insert.rows);
        insert.positions = test_mirror_at(m, insert.positions);
        insert.slots = test_mirror_at(m, insert.slots);
        insert.cos_sin = test_mirror_at(m, insert.cos_sin);
        insert.norm_weight = NULL;
        insert.cache = test_mirror_at(m, insert.cache);
        test_mirror_move(m, &list, test_list_pointers, TEST_LIST_POINTERS);
        gather.block_table = test_mirror_at(m, gather.block_table);
        gather.seq_lens = test_mirror_at(m, gather.seq_lens);
        gather.cache = insert.cache;
        gather.out = test_mirror_at(m, gather.out);
    }
    void *workspace = m == NULL ? NULL : test_mirror_at(m, s->workspace.data);
    for (int i = 0; i < 3; i++) { /* the first overlaps nothing */
        const int which = insert_first ? i : 2 - i;
        insert.overlap = list.overlap = i > 0;
        if (which == 0) {
            assert_int_equal(mmla_kv_insert_run(p->insert, &insert, workspace, stream), MMLA_OK);
        } else {
            assert_int_equal(mmla_list_run(which == 1 ? p->window : p->slots, &list, NULL, stream),
                             MMLA_OK);
        }
    }
    assert_int_equal(mmla_kv_gather_run(p->gather, &gather, NULL, stream), MMLA_OK);
}

static step step_create(int64_t n_rows, test_rng *rng) {
    step s = {.f = insert_fixture_create(MMLA_KV_V41_FP8)};
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    s.f.desc.max_tokens = s.f.args.n_rows = s.f.args.n_slots = n_rows;
    s.f.desc.cache.page_tokens = PAGE;
    s.f.desc.cache.n_pages = (n_rows + PAGE - 1) / PAGE;
    insert_fixture_fill(&s.f, 2, seed);
    s.gather = (mmla_kv_gather_desc){.cache = s.f.desc.cache,
                                     .max_requests = 1,
                                     .table_width = (int32_t)s.f.desc.cache.n_pages,
                                     .rows = n_rows};
    s.pages = test_buffer_create((size_t)s.f.desc.cache.n_pages * 4, 4);
    s.len = test_buffer_create(4, 4);
    s.rows = test_buffer_create((size_t)n_rows * MMLA_LATENT_DIM * 2, 16);
    s.want_rows = test_buffer_create((size_t)n_rows * MMLA_LATENT_DIM * 2, 16);
    s.want_cache = test_buffer_create(s.f.cache.bytes, 16);
    for (int64_t i = 0; i < s.f.desc.cache.n_pages; i++) {
        ((int32_t *)s.pages.data)[i] = (int32_t)i;
    }
    *(int32_t *)s.len.data = (int32_t)n_rows;
    assert_int_equal(mmla_context_create(&options, &s.ctx, NULL), MMLA_OK);
    s.gpu = plans_create(s.ctx, &s);
    s.cpu = plans_create(s.f.ctx, &s);
    s.workspace = test_buffer_create(mmla_kv_insert_workspace_bytes(s.gpu.insert) + 64, 64);
    draw(&s, rng);
    return s;
}

static void step_destroy(step *s) {
    test_buffer *const all[] = {&s->pages,     &s->len,        &s->rows,
                                &s->want_rows, &s->want_cache, &s->workspace};
    plans_destroy(&s->gpu);
    plans_destroy(&s->cpu);
    mmla_context_destroy(s->ctx);
    for (int i = 0; i < 6; i++) {
        test_buffer_destroy(all[i]);
    }
    insert_fixture_destroy(&s->f);
}

/* What the CPU makes of the inputs, and that the GPU made the same, from poison. */
static void expect(step *s) {
    want = in;
    test_buffer_poison(&s->f.cache);
    run(&s->cpu, s, true, NULL, NULL);
    memcpy(s->want_cache.data, s->f.cache.data, s->f.cache.bytes);
    test_buffer_poison(&s->f.cache);
    test_buffer_poison(&s->rows);
    memset(in.list, 0x5A, sizeof in.list);
    memset(in.lens, 0x5A, sizeof in.lens);
    memset(in.out_slots, 0x5A, sizeof in.out_slots);
    test_mirror_push(&s->m);
}

static void compare(step *s) {
    test_mirror_pull(&s->m, &in);
    test_mirror_pull(&s->m, s->f.cache.data);
    test_mirror_pull(&s->m, s->rows.data);
    assert_memory_equal(&in, &want, sizeof in);
    assert_memory_equal(s->f.cache.data, s->want_cache.data, s->f.cache.bytes);
    assert_memory_equal(s->rows.data, s->want_rows.data, s->rows.bytes);
}

static void overlapping_calls_are_complete_before_an_ordinary_one(void **state) {
    (void)state;
    static const int64_t n_rows[] = {1, 64, 2048, 2049, ROWS_MOST};
    test_rng rng = {seed};
    for (size_t i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++) {
        test_mirror m;
        if (!test_mirror_open(&m)) {
            skip();
        }
        step s = step_create(n_rows[i], &rng);
        s.m = m;
        const test_buffer *const all[] = {&s.f.rows,    &s.f.positions, &s.f.slots,
                                          &s.f.cos_sin, &s.f.cache,     &s.workspace,
                                          &s.pages,     &s.len,         &s.rows};
        for (int k = 0; k < 9; k++) {
            test_mirror_add_buffer(&s.m, all[k]);
        }
        test_mirror_add(&s.m, &in, sizeof in);
        for (int round = 0; round < 4; round++) {
            expect(&s);
            run(&s.gpu, &s, round % 2 == 0, &s.m, s.m.stream);
            compare(&s);
            draw(&s, &rng);
        }
        mmla_gpu_graph *graph;
        mmla_error err = {0};
        assert_int_equal(mmla_gpu_capture_begin(&s.m.gpu, s.m.stream, &err), MMLA_OK);
        run(&s.gpu, &s, i % 2 == 0, &s.m, s.m.stream);
        assert_int_equal(mmla_gpu_capture_end(&s.m.gpu, s.m.stream, &graph, &err), MMLA_OK);
        for (int round = 0; round < 5; round++) {
            expect(&s);
            assert_int_equal(mmla_gpu_graph_launch(&s.m.gpu, graph, s.m.stream, &err), MMLA_OK);
            compare(&s);
            draw(&s, &rng);
        }
        mmla_gpu_graph_destroy(&s.m.gpu, graph);
        step_destroy(&s);
        test_mirror_close(&s.m);
    }
}

/* Four rows as wide as they can be take four blocks a hundred microseconds. */
enum { LONG = 4, LONG_WIDTH = 65536, LONG_TABLE = LONG_WIDTH / PAGE };

typedef struct long_list {
    int32_t query_start[LONG + 1], seq_lens[LONG], request[LONG], block_table[LONG][LONG_TABLE];
    int64_t positions[LONG], slots[LONG], out_slots[LONG];
    int32_t lens[LONG], list[LONG][LONG_WIDTH];
} long_list;

static long_list wide, wide_want;
static int32_t copy[LONG][LONG_WIDTH];

static void wide_run(mmla_list_plan *const plan[2], long_list *x, const test_mirror *m) {
    mmla_list_args args = LIST_ARGS(x, LONG);
    void *stream = m == NULL ? NULL : m->stream;
    if (m != NULL) {
        test_mirror_move(m, &args, test_list_pointers, TEST_LIST_POINTERS);
    }
    assert_int_equal(mmla_list_run(plan[0], &args, NULL, stream), MMLA_OK);
    args.overlap = 1;
    assert_int_equal(mmla_list_run(plan[1], &args, NULL, stream), MMLA_OK);
    if (m != NULL) {
        assert_int_equal(
            mmla_gpu_copy(&m->gpu, test_mirror_at(m, copy), args.list, sizeof copy, stream, NULL),
            MMLA_OK);
    }
}

static void a_short_call_does_not_end_before_the_long_one_it_overlaps(void **state) {
    (void)state;
    test_mirror m;
    if (!test_mirror_open(&m)) {
        skip();
    }
    test_rng rng = {seed};
    mmla_list_desc desc[2] = {list_desc(MMLA_LIST_WINDOW), list_desc(MMLA_LIST_COMPRESSED_SLOTS)};
    const mmla_context_options options[2] = {{.device = MMLA_CPU}, {.device = MMLA_CUDA(0)}};
    mmla_context *ctx[2];
    mmla_list_plan *plan[2][2];
    for (int i = 0; i < 2; i++) {
        desc[i].window = desc[i].width = LONG_WIDTH;
        desc[i].table_width = LONG_TABLE;
    }
    for (int on = 0; on < 2; on++) {
        assert_int_equal(mmla_context_create(&options[on], &ctx[on], NULL), MMLA_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mmla_list_plan_create(ctx[on], &desc[i], &plan[on][i], NULL), MMLA_OK);
        }
    }
    for (int r = 0; r < LONG; r++) {
        wide.query_start[r + 1] = r + 1;
        wide.request[r] = r;
        wide.seq_lens[r] = LONG_WIDTH;
        wide.positions[r] = LONG_WIDTH - 1;
        for (int i = 0; i < LONG_TABLE; i++) {
            wide.block_table[r][i] = (int32_t)test_rng_below(&rng, 1000);
        }
    }
    wide_want = wide;
    wide_run(plan[0], &wide_want, NULL);
    test_mirror_add(&m, &wide, sizeof wide);
    test_mirror_add(&m, copy, sizeof copy);
    mmla_gpu_graph *graph;
    mmla_error err = {0};
    assert_int_equal(mmla_gpu_capture_begin(&m.gpu, m.stream, &err), MMLA_OK);
    wide_run(plan[1], &wide, &m);
    assert_int_equal(mmla_gpu_capture_end(&m.gpu, m.stream, &graph, &err), MMLA_OK);
    for (int round = 0; round < 20; round++) {
        memset(copy, 0x5A, sizeof copy);
        memset(wide.list, 0x5A, sizeof wide.list);
        test_mirror_push(&m);
        if (round % 2 == 0) {
            wide_run(plan[1], &wide, &m);
        } else {
            assert_int_equal(mmla_gpu_graph_launch(&m.gpu, graph, m.stream, &err), MMLA_OK);
        }
        test_mirror_pull(&m, copy);
        test_mirror_pull(&m, &wide);
        assert_memory_equal(copy, wide_want.list, sizeof copy);
        assert_memory_equal(&wide, &wide_want, sizeof wide);
    }
    mmla_gpu_graph_destroy(&m.gpu, graph);
    for (int on = 0; on < 2; on++) {
        mmla_list_plan_destroy(plan[on][0]);
        mmla_list_plan_destroy(plan[on][1]);
        mmla_context_destroy(ctx[on]);
    }
    test_mirror_close(&m);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_calls_are_complete_before_an_ordinary_one),
        cmocka_unit_test(a_short_call_does_not_end_before_the_long_one_it_overlaps),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
