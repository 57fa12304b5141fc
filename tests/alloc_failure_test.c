/* alloc_failure_test.c - memory that runs out at any moment of creating anything.
 *
 * For every public function that creates something, the n-th allocation fails, for n = 1, 2, ...
 * until creation succeeds. Each failure must be MMLA_E_MEMORY with a message, leave the result NULL
 * and give back whatever had been allocated before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/megamla.h>

/* Fails once, at allocation number fail_at (1 is the first; 0 never), and counts. */
struct heap {
    int64_t fail_at;
    int64_t n_allocs;
    int64_t n_live;
};

static void *heap_alloc(void *user, size_t bytes) {
    struct heap *heap = user;
    heap->n_allocs++;
    if (heap->n_allocs == heap->fail_at) {
        return NULL;
    }
    heap->n_live++;
    void *memory = malloc(bytes);
    assert_non_null(memory);
    memset(memory, 0xA5, bytes); /* nobody may count on zeroes */
    return memory;
}

static void heap_free(void *user, void *memory) {
    struct heap *heap = user;
    assert_non_null(memory);
    heap->n_live--;
    free(memory);
}

static mmla_context_options options_of(struct heap *heap) {
    return (mmla_context_options){.n_threads = 2, .allocator = {heap_alloc, heap_free, heap}};
}

/* One creation: fills *made, or leaves the failure in err. */
typedef mmla_status (*create_fn)(mmla_context *ctx, void **made, mmla_error *err);

static const mmla_cache_desc fp8_cache = {MMLA_KV_V41_FP8, 64, 100, 0};
static const mmla_cache_desc fp4_cache = {MMLA_KV_V41_FP4, 64, 100, 0};

static mmla_attend_desc attend_desc(void) {
    return (mmla_attend_desc){
        .n_heads = 64,
        .max_tokens = 16,
        .scale = 0.044f,
        .rope_positions = 1024,
        .list_width = 128,
        .window = fp8_cache,
        .compressed = fp4_cache,
        .compressed_width = 512,
    };
}

/* By the workspace, which takes the plans of both routes. */
static mmla_prefill_desc prefill_desc(void) {
    mmla_prefill_desc d = {
        .attend = attend_desc(),
        .max_requests = 4,
        .window = 128,
        .ratio = 2,
        .topk_width = 512,
        .window_table_width = 8,
        .compressed_table_width = 8,
        .max_rows = 1024,
        .route = MMLA_PREFILL_WORKSPACE,
    };
    d.attend.list_width = d.attend.compressed_width = 0;
    return d;
}

/* Casting a plan's pointer to void * needs a variable of its own type in between. */
#define CREATE(op, ...)                                                               \
    static mmla_status op##_create(mmla_context *ctx, void **made, mmla_error *err) { \
        const mmla_##op##_desc desc = __VA_ARGS__;                                    \
        mmla_##op##_plan *plan = *made;                                               \
        const mmla_status status = mmla_##op##_plan_create(ctx, &desc, &plan, err);   \
        *made = plan;                                                                 \
        return status;                                                                \
    }                                                                                 \
    static void op##_destroy(void *made) {                                            \
        mmla_##op##_plan_destroy(made);                                               \
    }

typedef mmla_attend_desc mmla_chain_desc; /* the chain takes the fused call's description */

CREATE(attend, attend_desc())
CREATE(chain, attend_desc())
CREATE(kv_insert, {.cache = fp8_cache, .max_tokens = 16, .rope_positions = 1024})
CREATE(kv_gather, {.cache = fp8_cache, .max_requests = 4, .table_width = 8, .rows = 512})
CREATE(list,
       {.kind = MMLA_LIST_WINDOW,
        .max_tokens = 16,
        .max_requests = 4,
        .window = 128,
        .page_tokens = 64,
        .n_pages = 100,
        .table_width = 8,
        .width = 128})
CREATE(weights, {.kind = MMLA_WEIGHTS_PERMUTE_WO_A, .rows = 64})
CREATE(project, {.n_groups = 8, .max_tokens = 16})
CREATE(prefill, prefill_desc())
#undef CREATE

static void check_every_failure(create_fn create, void (*destroy)(void *)) {
    struct heap heap = {0};
    const mmla_context_options options = options_of(&heap);
    mmla_context *ctx;
    assert_int_equal(mmla_context_create(&options, &ctx, NULL), MMLA_OK);
    const int64_t n_before = heap.n_live;

    mmla_status status = MMLA_E_MEMORY;
    int n_failures = 0;
    while (status != MMLA_OK) {
        heap.n_allocs = 0;
        heap.fail_at = n_failures + 1;
        mmla_error err = {0};
        void *made = &heap; /* not NULL, so that creation has to reset it */
        status = create(ctx, &made, &err);
        if (status == MMLA_OK) {
            assert_non_null(made);
            destroy(made);
        } else {
            n_failures++;
            assert_int_equal(status, MMLA_E_MEMORY);
            assert_int_equal(err.status, MMLA_E_MEMORY);
            assert_true(strlen(err.message) > 0);
            assert_null(made);
            assert_true(n_failures < 100);
        }
        assert_int_equal(heap.n_live, n_before);
    }
    assert_true(n_failures > 0); /* the plan went through the context's allocator */
    mmla_context_destroy(ctx);
    assert_int_equal(heap.n_live, 0);
}

#define TEST(op)                                                                   \
    static void op##_plan_create_fails_cleanly_at_every_allocation(void **state) { \
        (void)state;                                                               \
        check_every_failure(op##_create, op##_destroy);                            \
    }
TEST(attend)
TEST(chain)
TEST(kv_insert)
TEST(kv_gather)
TEST(list)
TEST(weights)
TEST(project)
TEST(prefill)
#undef TEST

static void context_create_fails_cleanly_at_its_allocation(void **state) {
    (void)state;
    struct heap heap = {.fail_at = 1};
    const mmla_context_options options = options_of(&heap);
    mmla_error err = {0};
    mmla_context *ctx = (mmla_context *)&heap;
    assert_int_equal(mmla_context_create(&options, &ctx, &err), MMLA_E_MEMORY);
    assert_int_equal(err.status, MMLA_E_MEMORY);
    assert_true(strlen(err.message) > 0);
    assert_null(ctx);
    assert_int_equal(heap.n_live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_create_fails_cleanly_at_its_allocation),
#define TEST(op) cmocka_unit_test(op##_plan_create_fails_cleanly_at_every_allocation)
        TEST(attend),
        TEST(chain),
        TEST(kv_insert),
        TEST(kv_gather),
        TEST(list),
        TEST(weights),
        TEST(project),
        TEST(prefill),
#undef TEST
    };
    return cmocka_run_group_tests_name("alloc_failure", tests, NULL, NULL);
}
