/* concurrency_test.c - host threads that run the same plans at once.
 *
 * Contract: a plan may be used by any number of threads at once, each with its own workspace and
 * outputs. First every operation runs on one thread alone and its outputs are kept. Then four
 * threads run all operations, each beginning with another, several times over; every result must
 * have the bits of the lone run. Inputs are shared, and for kv_insert the cache is too: each caller
 * has slots of its own, every fourth one, so that neighbouring records belong to different threads.
 *
 * Under the thread sanitizer this is also the test that nothing behind a plan is written to.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/attend_fixture.h"
#include "support/gather_fixture.h"
#include "support/insert_fixture.h"

enum { CALLERS = 4, ROUNDS = 3, OUTPUTS = 4, THREADS_A_CALL = 2, ALIGNMENT = 64 };

/* What open() says a caller needs: its workspace, and its outputs (0: no more of them). */
struct needs {
    size_t workspace_bytes;
    size_t out_bytes[OUTPUTS];
};

struct operation {
    const char *name;
    struct needs (*open)(void);
    mmla_status (*run)(int caller, void *workspace, const test_buffer *out);
    void (*close)(void);
};

/* attend and chain: one call, two plans. */
static attend_fixture attend;
static mmla_attend_plan *attend_plan;
static mmla_chain_plan *chain_plan;

static void open_attend_fixture(void) {
    attend = attend_fixture_paged(THREADS_A_CALL);
    attend.n_tokens = 5;
    attend.desc.n_heads = 16;
    attend_fixture_fill(&attend, 1);
}

static struct needs attend_needs(size_t workspace_bytes) {
    return (struct needs){
        workspace_bytes,
        {attend.out.bytes, attend.out_scale.bytes, attend.lse.bytes, attend.max_logits.bytes}};
}

static mmla_attend_args attend_args(const test_buffer *out) {
    mmla_attend_args args = attend.args;
    args.out = out[0].data;
    args.out_scale = out[1].data;
    args.lse = out[2].data;
    args.max_logits = out[3].data;
    return args;
}

static struct needs open_attend(void) {
    open_attend_fixture();
    assert_int_equal(mmla_attend_plan_create(attend.ctx, &attend.desc, &attend_plan, NULL),
                     MMLA_OK);
    return attend_needs(mmla_attend_workspace_bytes(attend_plan));
}

static mmla_status run_attend(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    const mmla_attend_args args = attend_args(out);
    return mmla_attend_run(attend_plan, &args, workspace, NULL);
}

static void close_attend(void) {
    mmla_attend_plan_destroy(attend_plan);
}

static struct needs open_chain(void) {
    assert_int_equal(mmla_chain_plan_create(attend.ctx, &attend.desc, &chain_plan, NULL), MMLA_OK);
    return attend_needs(mmla_chain_workspace_bytes(chain_plan));
}

static mmla_status run_chain(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    const mmla_attend_args args = attend_args(out);
    return mmla_chain_run(chain_plan, &args, workspace, NULL);
}

static void close_chain(void) {
    mmla_chain_plan_destroy(chain_plan);
    attend_fixture_destroy(&attend);
}

/* prefill of attend's tokens, those of two requests, by the workspace: the route with most steps. The
 * requests of each caller have other lengths, so that rows in the wrong workspace are other keys. */
enum { PREFILL_REQUESTS = 2, PREFILL_TOPK = 3, PREFILL_TABLE = 2 };
static mmla_prefill_plan *prefill_plan;

static struct needs open_prefill(void) {
    mmla_prefill_desc desc = {.attend = attend.desc,
                              .max_requests = PREFILL_REQUESTS,
                              .window = 8,
                              .ratio = 2,
                              .topk_width = PREFILL_TOPK,
                              .window_table_width = PREFILL_TABLE,
                              .compressed_table_width = PREFILL_TABLE,
                              .max_rows = 100,
                              .route = MMLA_PREFILL_WORKSPACE};
    desc.attend.list_width = desc.attend.compressed_width = 0;
    assert_int_equal(mmla_prefill_plan_create(attend.ctx, &desc, &prefill_plan, NULL), MMLA_OK);
    return attend_needs(mmla_prefill_workspace_bytes(prefill_plan));
}

static mmla_status run_prefill(int caller, void *workspace, const test_buffer *out) {
    static const int32_t query_start[] = {0, 2, 5}, query_lens[] = {2, 3};
    static const int32_t request[5] = {0, 0, 1, 1, 1};
    const int32_t seq_lens[] = {17 + caller, 28 + caller};
    static const int32_t topk[5 * PREFILL_TOPK] = {7, 0, 3, 1, 2, 5, 0, 12, 6, 9, 4, 8, 3, 2, 11};
    static const int32_t table[PREFILL_REQUESTS * PREFILL_TABLE] = {2, 0, 1, 2};
    const mmla_attend_args a = attend_args(out);
    const mmla_prefill_args args = {.n_tokens = a.n_tokens,
                                    .n_requests = PREFILL_REQUESTS,
                                    .host_query_lens = query_lens,
                                    .host_seq_lens = seq_lens,
                                    .q = a.q,
                                    .positions = a.positions,
                                    .cos_sin = a.cos_sin,
                                    .sink = a.sink,
                                    .query_start = query_start,
                                    .seq_lens = seq_lens,
                                    .request = request,
                                    .topk = topk,
                                    .window_table = table,
                                    .compressed_table = table,
                                    .window_cache = a.window_cache,
                                    .compressed_cache = a.compressed_cache,
                                    .out = a.out,
                                    .out_scale = a.out_scale,
                                    .lse = a.lse,
                                    .max_logits = a.max_logits};
    return mmla_prefill_run(prefill_plan, &args, workspace, NULL);
}

static void close_prefill(void) {
    mmla_prefill_plan_destroy(prefill_plan);
}

static gather_fixture gathered;
static mmla_kv_gather_plan *gather_plan;

static struct needs open_gather(void) {
    gathered = gather_fixture_create(MMLA_KV_V4);
    gather_fixture_fill(&gathered, THREADS_A_CALL, 2);
    assert_int_equal(mmla_kv_gather_plan_create(gathered.ctx, &gathered.desc, &gather_plan, NULL),
                     MMLA_OK);
    return (struct needs){mmla_kv_gather_workspace_bytes(gather_plan), {gathered.out.bytes}};
}

static mmla_status run_gather(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    mmla_kv_gather_args args = gathered.args;
    args.out = out[0].data;
    args.n_faults = NULL;
    return mmla_kv_gather_run(gather_plan, &args, workspace, NULL);
}

static void close_gather(void) {
    mmla_kv_gather_plan_destroy(gather_plan);
    gather_fixture_destroy(&gathered);
}

/* Every caller inserts the same rows, at its own slots: caller, caller + 4, caller + 8, ... */
enum { INSERT_ROWS = 50, INSERT_PAGE = 7 };
static insert_fixture inserted;
static mmla_kv_insert_plan *insert_plan;
static int64_t insert_slots[CALLERS][INSERT_ROWS];

static struct needs open_insert(void) {
    inserted = insert_fixture_create(MMLA_KV_V41_FP8);
    inserted.desc.max_tokens = inserted.args.n_rows = inserted.args.n_slots = INSERT_ROWS;
    inserted.desc.cache.n_pages = (CALLERS * INSERT_ROWS + INSERT_PAGE - 1) / INSERT_PAGE;
    assert_int_equal(inserted.desc.cache.page_tokens, INSERT_PAGE);
    insert_fixture_fill(&inserted, THREADS_A_CALL, 3);
    for (int c = 0; c < CALLERS; c++) {
        for (int t = 0; t < INSERT_ROWS; t++) {
            insert_slots[c][t] = c + CALLERS * t;
        }
    }
    assert_int_equal(mmla_kv_insert_plan_create(inserted.ctx, &inserted.desc, &insert_plan, NULL),
                     MMLA_OK);
    const size_t rows = INSERT_ROWS;
    return (struct needs){
        mmla_kv_insert_workspace_bytes(insert_plan),
        {rows * (size_t)inserted.view.data_bytes, rows * (size_t)inserted.view.scale_bytes}};
}

/* The caller's records are cleared, inserted, and copied out of the cache. */
static mmla_status run_insert(int caller, void *workspace, const test_buffer *out) {
    mmla_kv_insert_args args = inserted.args;
    args.slots = insert_slots[caller];
    args.n_faults = NULL;
    const size_t data = (size_t)inserted.view.data_bytes, scale = (size_t)inserted.view.scale_bytes;
    uint8_t *cache = inserted.cache.data;
    for (int t = 0; t < INSERT_ROWS; t++) {
        memset(cache + mmla_kv_data_offset(&inserted.view, args.slots[t]), 0xFF, data);
        memset(cache + mmla_kv_scale_offset(&inserted.view, args.slots[t]), 0xFF, scale);
    }
    const mmla_status status = mmla_kv_insert_run(insert_plan, &args, workspace, NULL);
    for (int t = 0; t < INSERT_ROWS; t++) {
        memcpy((uint8_t *)out[0].data + (size_t)t * data,
               insert_fixture_data(&inserted, args.slots[t]), data);
        memcpy((uint8_t *)out[1].data + (size_t)t * scale,
               insert_fixture_scale(&inserted, args.slots[t]), scale);
    }
    return status;
}

static void close_insert(void) {
    mmla_kv_insert_plan_destroy(insert_plan);
    insert_fixture_destroy(&inserted);
}

/* The operations without a fixture share a context, and a block of bytes for their inputs. */
static mmla_context *ctx;
static uint8_t bytes[1 << 18] __attribute__((aligned(ALIGNMENT)));

enum { LIST_TOKENS = 60, LIST_PAGE = 16, LIST_TABLE = 8, LIST_WINDOW = 32 };
static mmla_list_plan *list_plan;

static struct needs open_list(void) {
    const mmla_list_desc desc = {.kind = MMLA_LIST_WINDOW,
                                 .max_tokens = LIST_TOKENS,
                                 .max_requests = 2,
                                 .window = LIST_WINDOW,
                                 .page_tokens = LIST_PAGE,
                                 .n_pages = 20,
                                 .table_width = LIST_TABLE,
                                 .width = LIST_WINDOW};
    assert_int_equal(mmla_list_plan_create(ctx, &desc, &list_plan, NULL), MMLA_OK);
    return (struct needs){
        mmla_list_workspace_bytes(list_plan),
        {LIST_TOKENS * LIST_WINDOW * sizeof(int32_t), LIST_TOKENS * sizeof(int32_t)}};
}

static mmla_status run_list(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    static const int32_t query_start[] = {0, 20, LIST_TOKENS}, seq_lens[] = {100, 128};
    static const int32_t table[2 * LIST_TABLE] = {3, 1, 4, 15, 9, 2, 6, 5, 19, 7, -1, 8, 0, 11, 10};
    const mmla_list_args args = {.n_tokens = LIST_TOKENS,
                                 .n_requests = 2,
                                 .query_start = query_start,
                                 .seq_lens = seq_lens,
                                 .block_table = table,
                                 .list = out[0].data,
                                 .lens = out[1].data};
    return mmla_list_run(list_plan, &args, workspace, NULL);
}

static void close_list(void) {
    mmla_list_plan_destroy(list_plan);
}

enum { WEIGHT_ROWS = 8, WEIGHT_SCALES = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM };
static mmla_weights_plan *weights_plan;

static struct needs open_weights(void) {
    const mmla_weights_desc desc = {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = WEIGHT_ROWS};
    assert_int_equal(mmla_weights_plan_create(ctx, &desc, &weights_plan, NULL), MMLA_OK);
    return (struct needs){mmla_weights_workspace_bytes(weights_plan),
                          {WEIGHT_ROWS * MMLA_GROUP_DIM, WEIGHT_ROWS * WEIGHT_SCALES}};
}

static mmla_status run_weights(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    const mmla_weights_args args = {.in = bytes,
                                    .out = out[0].data,
                                    .scale_in = bytes + sizeof bytes / 2,
                                    .scale_out = out[1].data};
    return mmla_weights_run(weights_plan, &args, workspace, NULL);
}

static void close_weights(void) {
    mmla_weights_plan_destroy(weights_plan);
}

enum { PROJECT_TOKENS = 5, PROJECT_RANK = 24 };
static mmla_project_plan *project_plan;

static struct needs open_project(void) {
    const mmla_project_desc desc = {.n_groups = 1,
                                    .max_tokens = PROJECT_TOKENS,
                                    .rank = PROJECT_RANK,
                                    .x_scale_layout = MMLA_SCALE_BYTES};
    assert_int_equal(mmla_project_plan_create(ctx, &desc, &project_plan, NULL), MMLA_OK);
    return (struct needs){mmla_project_workspace_bytes(project_plan),
                          {PROJECT_TOKENS * PROJECT_RANK * sizeof(uint16_t)}};
}

static mmla_status run_project(int caller, void *workspace, const test_buffer *out) {
    (void)caller;
    const mmla_project_args args = {.n_tokens = PROJECT_TOKENS,
                                    .x = bytes,
                                    .x_scale = bytes + sizeof bytes / 2,
                                    .weight = bytes + PROJECT_TOKENS * MMLA_GROUP_DIM,
                                    .weight_scale = bytes + sizeof bytes / 2 + 1024,
                                    .z = out[0].data};
    return mmla_project_run(project_plan, &args, workspace, NULL);
}

static void close_project(void) {
    mmla_project_plan_destroy(project_plan);
}

/* chain and prefill use attend's inputs, which chain gives back. */
static const struct operation operations[] = {
    {"attend", open_attend, run_attend, close_attend},
    {"prefill", open_prefill, run_prefill, close_prefill},
    {"chain", open_chain, run_chain, close_chain},
    {"kv_gather", open_gather, run_gather, close_gather},
    {"kv_insert", open_insert, run_insert, close_insert},
    {"list", open_list, run_list, close_list},
    {"weights", open_weights, run_weights, close_weights},
    {"project", open_project, run_project, close_project},
};
enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* A caller's own memory for one operation. */
struct own {
    test_buffer workspace;
    test_buffer out[OUTPUTS];  /* what it writes */
    test_buffer want[OUTPUTS]; /* what it wrote when alone */
};

struct caller {
    int number;
    struct own own[OPERATIONS];
    const char *wrong; /* the first operation with another status, another bit, a stray write */
};

static struct caller callers[CALLERS];
static pthread_barrier_t start;

static bool out_is_right(const struct own *own) {
    bool right = test_buffer_is_intact(&own->workspace);
    for (int i = 0; i < OUTPUTS; i++) {
        right = right && test_buffer_is_intact(&own->out[i]) &&
                memcmp(own->out[i].data, own->want[i].data, own->out[i].bytes) == 0;
    }
    return right;
}

static void *call_all(void *arg) {
    struct caller *c = arg;
    pthread_barrier_wait(&start);
    for (int n = 0; n < ROUNDS * OPERATIONS; n++) {
        const int op = (n + 2 * c->number) % OPERATIONS;
        struct own *own = &c->own[op];
        for (int i = 0; i < OUTPUTS; i++) {
            test_buffer_poison(&own->out[i]);
        }
        const mmla_status status = operations[op].run(c->number, own->workspace.data, own->out);
        if (c->wrong == NULL && (status != MMLA_OK || !out_is_right(own))) {
            c->wrong = operations[op].name;
        }
    }
    return NULL;
}

static int open_all(void **state) {
    (void)state;
    const mmla_context_options options = {.n_threads = THREADS_A_CALL};
    assert_int_equal(mmla_context_create(&options, &ctx, NULL), MMLA_OK);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i < sizeof bytes / 2 ? i * 7 % 0x7F : 110 + i * 5 % 16);
    }
    for (int op = 0; op < OPERATIONS; op++) {
        const struct needs needs = operations[op].open();
        for (int c = 0; c < CALLERS; c++) {
            struct own *own = &callers[c].own[op];
            callers[c].number = c;
            own->workspace = test_buffer_create(needs.workspace_bytes, ALIGNMENT);
            for (int i = 0; i < OUTPUTS; i++) {
                own->out[i] = test_buffer_create(needs.out_bytes[i], ALIGNMENT);
                own->want[i] = test_buffer_create(needs.out_bytes[i], ALIGNMENT);
            }
        }
    }
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (int op = 0; op < OPERATIONS; op++) {
        operations[op].close();
        for (int c = 0; c < CALLERS; c++) {
            struct own *own = &callers[c].own[op];
            test_buffer_destroy(&own->workspace);
            for (int i = 0; i < OUTPUTS; i++) {
                test_buffer_destroy(&own->out[i]);
                test_buffer_destroy(&own->want[i]);
            }
        }
    }
    mmla_context_destroy(ctx);
    return 0;
}

static void four_threads_get_the_bits_of_one(void **state) {
    (void)state;
    for (int op = 0; op < OPERATIONS; op++) {
        for (int c = 0; c < CALLERS; c++) {
            struct own *own = &callers[c].own[op];
            assert_int_equal(operations[op].run(c, own->workspace.data, own->want), MMLA_OK);
            /* Something was written: equal outputs would prove nothing otherwise. */
            assert_false(test_buffer_is_untouched(&own->want[0], 0, own->want[0].bytes));
        }
    }
    pthread_t ids[CALLERS];
    assert_int_equal(pthread_barrier_init(&start, NULL, CALLERS), 0);
    for (int c = 0; c < CALLERS; c++) {
        assert_int_equal(pthread_create(&ids[c], NULL, call_all, &callers[c]), 0);
    }
    for (int c = 0; c < CALLERS; c++) {
        pthread_join(ids[c], NULL);
    }
    pthread_barrier_destroy(&start);
    for (int c = 0; c < CALLERS; c++) {
        if (callers[c].wrong != NULL) {
            fail_msg("caller %d: %s has other results than alone", c, callers[c].wrong);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_threads_get_the_bits_of_one),
    };
    return cmocka_run_group_tests_name("concurrency", tests, open_all, close_all);
}
