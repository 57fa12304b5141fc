/* bench_gpu_prefill.c - mmla_prefill_run by both of its routes: a call of many tokens at the end of one
 * request, with all that it takes: lists, or rows gathered into a workspace.
 *
 * A record for every token (ratio 1). Each token sees its window and picks that are spread over all
 * records before it. Calls differ by the pages of the request; in all of them the same place is the
 * same record of the tile that fills the cache, so that one list tells the reference of any call.
 */
#include <stdio.h>
#include <string.h>

#include "app/bench/bench_gpu_shape.h"
#include "app/bench/bench_replay.h"

enum { RATIO = 1 };

static const bench_formats formats = {"528+288", MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};

static const struct {
    const char *op;
    mmla_prefill_route route;
} routes[] = {{"prefill_paged", MMLA_PREFILL_PAGED}, {"prefill_workspace", MMLA_PREFILL_WORKSPACE}};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

/* One request of `context` tokens, the last n_tokens of which are queries. */
typedef struct job {
    const bench_gpu_pool *pool;
    int64_t n_tokens, n_pages, n_sets; /* pages of the request */
    int32_t query_len, seq_len;
    int32_t query_start[2];
    check_buffer request, topk, window_table, compressed_table; /* tables of every set */
    bench_gpu_shape x;
    bench_arena arena;
    mmla_prefill_desc desc;
    mmla_prefill_args args; /* of set 0, on the device */
    mmla_prefill_plan *plan;
    void *workspace;
} job;

static double bytes_of(const job *j) {
    const int64_t records = j->seq_len / RATIO, reach = j->query_len + BENCH_WINDOW - 1;
    const int64_t window = reach < j->seq_len ? reach : j->seq_len;
    return (double)(records * mmla_kv_record_bytes(formats.compressed) +
                    window * mmla_kv_record_bytes(formats.window));
}

/* Pages of every set, one behind the other, each set's from a whole tile on. */
static check_buffer tables(const bench_gpu_cache *cache, const job *j) {
    const int64_t tile = cache->tile.desc.n_pages, step = (j->n_pages + tile - 1) / tile * tile;
    check_buffer b = check_buffer_create(j->n_sets * j->n_pages * 4, 64, 0);
    for (int64_t i = 0; i < j->n_sets * j->n_pages; i++) {
        const int64_t set = i / j->n_pages, page = i % j->n_pages;
        ((int32_t *)b.data)[i] = (int32_t)((set * step + page) % cache->desc.n_pages);
    }
    return b;
}

static void draw_picks(job *j) {
    j->request = check_buffer_create(j->n_tokens * 4, 64, 0);
    j->topk = check_buffer_create(j->n_tokens * BENCH_COMPRESSED * 4, 64, 0xFF);
    for (int64_t t = 0; t < j->n_tokens; t++) {
        const int64_t visible = (j->seq_len - j->query_len + t + 1) / RATIO;
        const int64_t n = visible < BENCH_COMPRESSED ? visible : BENCH_COMPRESSED;
        int32_t *picks = (int32_t *)j->topk.data + t * BENCH_COMPRESSED;
        for (int64_t k = 0; k < n; k++) { /* different ones: their distance is 1 at least */
            picks[k] = (int32_t)((t * (visible * 618 / 1000) + k * visible / n) % visible);
        }
    }
}

static mmla_list_desc
list_desc(const job *j, mmla_list_kind kind, const bench_gpu_cache *cache, int32_t width) {
    return (mmla_list_desc){.kind = kind,
                            .max_tokens = j->n_tokens,
                            .max_requests = 1,
                            .window = BENCH_WINDOW,
                            .page_tokens = cache->desc.page_tokens,
                            .n_pages = cache->desc.n_pages,
                            .table_width = (int32_t)j->n_pages,
                            .width = width,
                            .topk_width = BENCH_COMPRESSED};
}

/* The list of one cache, made on the host. */
static void define_list(bench_session *s,
                        const job *j,
                        const mmla_list_desc *desc,
                        const check_buffer *table,
                        check_buffer *list,
                        check_buffer *lens) {
    mmla_error err = {0};
    mmla_list_plan *plan;
    *list = check_buffer_create(j->n_tokens * desc->width * 4, 64, 0);
    *lens = check_buffer_create(j->n_tokens * 4, 64, 0);
    const mmla_list_args args = {.n_tokens = j->n_tokens,
                                 .n_requests = 1,
                                 .query_start = j->query_start,
                                 .seq_lens = &j->seq_len,
                                 .block_table = (const int32_t *)table->data,
                                 .request = (const int32_t *)j->request.data,
                                 .topk = (const int32_t *)j->topk.data,
                                 .list = (int32_t *)list->data,
                                 .lens = (int32_t *)lens->data,
                                 .error = &err};
    mmla_status status = mmla_list_plan_create(s->host, desc, &plan, &err);
    status = status != MMLA_OK ? status : mmla_list_run(plan, &args, NULL, NULL);
    bench_device_keep(&s->device, status, &err);
    mmla_list_plan_destroy(plan);
}

static void draw(job *j, bench_session *s, int64_t heads) {
    const bench_gpu_pool *p = j->pool;
    bench_gpu_lists lists;
    draw_picks(j);
    j->window_table = tables(&p->window, j);
    j->compressed_table = tables(&p->compressed, j);
    const mmla_list_desc window = list_desc(j, MMLA_LIST_WINDOW, &p->window, BENCH_WINDOW);
    const mmla_list_desc compressed =
        list_desc(j, MMLA_LIST_COMPRESSED, &p->compressed, BENCH_COMPRESSED);
    define_list(s, j, &window, &j->window_table, &lists.list, &lists.lens);
    define_list(s, j, &compressed, &j->compressed_table, &lists.compressed_list,
                &lists.compressed_lens);
    j->x = bench_gpu_shape_create_with(s, p, heads, j->n_tokens, &lists);
}

static void describe(job *j) {
    const mmla_attend_args *a = &j->x.args;
    j->desc = (mmla_prefill_desc){.attend = j->x.c.desc,
                                  .max_requests = 1,
                                  .window = BENCH_WINDOW,
                                  .ratio = RATIO,
                                  .topk_width = BENCH_COMPRESSED,
                                  .window_table_width = (int32_t)j->n_pages,
                                  .compressed_table_width = (int32_t)j->n_pages,
                                  .max_rows = j->seq_len / RATIO + j->query_len + BENCH_WINDOW};
    j->desc.attend.list_width = j->desc.attend.compressed_width = 0;
    j->desc.attend.list_stride = j->desc.attend.compressed_stride = 0;
    j->args = (mmla_prefill_args){
        .n_tokens = j->n_tokens,
        .n_requests = 1,
        .host_query_lens = &j->query_len,
        .host_seq_lens = &j->seq_len,
        .q = a->q,
        .positions = a->positions,
        .cos_sin = a->cos_sin,
        .sink = a->sink,
        .query_start = bench_arena_copy(&j->arena, j->query_start, sizeof j->query_start),
        .seq_lens = bench_arena_copy(&j->arena, &j->seq_len, sizeof j->seq_len),
        .request = bench_arena_copy(&j->arena, j->request.data, j->request.bytes),
        .topk = bench_arena_copy(&j->arena, j->topk.data, j->topk.bytes),
        .window_table = bench_arena_copy(&j->arena, j->window_table.data, j->window_table.bytes),
        .compressed_table =
            bench_arena_copy(&j->arena, j->compressed_table.data, j->compressed_table.bytes),
        .window_cache = a->window_cache,
        .compressed_cache = a->compressed_cache,
        .out = a->out,
        .out_scale = a->out_scale,
        .lse = a->lse,
        .max_logits = a->max_logits};
}

static mmla_status call(void *arg, int64_t i, void *stream, mmla_error *err) {
    const job *j = arg;
    mmla_prefill_args args = j->args;
    args.window_table += i % j->n_sets * j->n_pages;
    args.compressed_table += i % j->n_sets * j->n_pages;
    args.error = err;
    return mmla_prefill_run(j->plan, &args, j->workspace, stream);
}

static void measure(bench_session *s, job *j, mmla_prefill_route route, bench_row *row) {
    mmla_error err = {0};
    check_verdict verdict = {0};
    j->desc.route = route;
    if (!bench_device_keep(&s->device, mmla_prefill_plan_create(s->ctx, &j->desc, &j->plan, &err),
                           &err)) {
        return;
    }
    snprintf(row->implementation, sizeof row->implementation, "%s",
             mmla_prefill_plan_implementation(j->plan, route));
    j->workspace = bench_arena_add(&j->arena, (int64_t)mmla_prefill_workspace_bytes(j->plan));
    bench_replay r = bench_replay_create(&s->device, call, j, j->n_sets);
    bench_gpu_shape_reset(&j->x);
    row->fused = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
    bench_replay_destroy(&r);
    if (bench_device_is_well(&s->device)) {
        bench_gpu_shape_verify(s, &j->x, 0, row->implementation, false, &verdict);
        row->verified = !verdict.failed;
        snprintf(row->problem, sizeof row->problem, "%.159s", verdict.why);
    }
}

static void job_destroy(job *j) {
    mmla_prefill_plan_destroy(j->plan);
    bench_gpu_shape_destroy(&j->x);
    check_buffer_destroy(&j->request);
    check_buffer_destroy(&j->topk);
    check_buffer_destroy(&j->window_table);
    check_buffer_destroy(&j->compressed_table);
    bench_arena_destroy(&j->arena);
}

static void measure_shape(
    bench_session *s, const bench_gpu_pool *p, int route, int64_t context, bench_row *row) {
    const int32_t page_tokens = p->window.desc.page_tokens;
    const int64_t tokens = row->tokens;
    job j = {.pool = p,
             .n_tokens = tokens,
             .n_pages = (context + page_tokens - 1) / page_tokens,
             .query_len = (int32_t)tokens,
             .seq_len = (int32_t)context,
             .query_start = {0, (int32_t)tokens},
             .arena = {.device = &s->device}};
    j.n_sets = bench_gpu_sets_count(s, bytes_of(&j));
    draw(&j, s, row->heads);
    describe(&j);
    row->out_form = "fp8_permuted";
    row->window = BENCH_WINDOW;
    row->compressed = BENCH_COMPRESSED;
    row->keys = (double)j.x.n_keys / (double)tokens;
    row->flop = (double)(j.x.n_keys * row->heads) * BENCH_FLOP_PER_KEY;
    row->bytes = bytes_of(&j);
    measure(s, &j, routes[route].route, row);
    job_destroy(&j);
}

/* A pool that did not fit makes rows that say so. */
static void run_shape(bench_session *s,
                      const bench_gpu_pool *p,
                      const mmla_error *failure,
                      int route,
                      int64_t heads,
                      int64_t context,
                      int64_t tokens) {
    bench_row *row = bench_gpu_row_begin(s, routes[route].op, formats.name, heads, tokens);
    if (row == NULL) {
        return;
    }
    row->context = context;
    if (failure->status == MMLA_OK) {
        measure_shape(s, p, route, context, row);
    } else {
        bench_device_keep(&s->device, failure->status, failure);
    }
    bench_gpu_row_finish(s, row);
}

void bench_gpu_prefill_run(bench_session *s) {
    static const int64_t all_heads[] = {64, 16, 128, 8}, all_tokens[] = {256, 1024, 4096};
    static const int64_t all_contexts[] = {4096, 32768, 131072, 524288};
    const bool quick = s->options.quick;
    const bench_list heads = bench_list_or(&s->options.heads, all_heads, quick ? 1 : 4);
    const bench_list contexts = bench_list_or(&s->options.contexts, all_contexts, quick ? 1 : 4);
    const bench_list tokens = bench_list_or(&s->options.tokens, all_tokens, quick ? 1 : 3);
    bool wanted = false;
    for (int i = 0; i < N_ROUTES; i++) {
        wanted = wanted || bench_wants_op(s, routes[i].op);
    }
    if (!wanted || !bench_wants_formats(s, formats.name)) {
        return;
    }
    bench_device_forget(&s->device);
    bench_gpu_pool p = bench_gpu_pool_create(s, &formats);
    const mmla_error failure = s->device.error;
    for (int h = 0; h < heads.n; h++) {
        for (int c = 0; c < contexts.n; c++) {
            for (int t = 0; t < tokens.n; t++) {
                for (int i = 0; i < N_ROUTES; i++) {
                    if (bench_wants_op(s, routes[i].op) && tokens.values[t] <= contexts.values[c]) {
                        run_shape(s, &p, &failure, i, heads.values[h], contexts.values[c],
                                  tokens.values[t]);
                    }
                }
            }
        }
    }
    bench_gpu_pool_destroy(&p);
}
