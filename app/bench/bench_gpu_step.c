/* bench_gpu_step.c - what a decode step does before attention on a GPU: rows into window records,
 * normalised and rotated, and the lists of both caches. As three calls that overlap, and as three
 * one after the other.
 */
#include <stdio.h>
#include <string.h>

#include "app/bench/bench_gpu.h"
#include "app/bench/bench_gpu_list.h"
#include "app/bench/bench_replay.h"
#include "app/check/check_near.h"
#include "app/check/check_rng.h"

enum { POSITIONS = 4096, PAGE_TOKENS = 64, PAGES_A_TOKEN = 4, POISON = 0x5A };

typedef struct job {
    bool overlap;
    mmla_kv_insert_plan *insert;
    mmla_kv_insert_args host, device;
    check_buffer rows, positions, slots, cos_sin, norm_weight, cache;
    void *workspace;
    bench_arena arena;
    bench_gpu_list *window, *compressed;
} job;

static mmla_kv_insert_desc insert_desc(int64_t n_tokens, const char *implementation) {
    return (mmla_kv_insert_desc){
        .cache = {.format = MMLA_KV_V41_FP8,
                  .page_tokens = PAGE_TOKENS,
                  .n_pages = n_tokens * PAGES_A_TOKEN},
        .max_tokens = n_tokens,
        .norm = 1,
        .norm_eps = 1e-20f,
        .rope_positions = POSITIONS,
        .implementation = implementation,
    };
}

/* A row a request, each into a page of its own. */
static void draw(job *j, bench_session *s, int64_t n_tokens) {
    check_rng rng = check_rng_at(s->options.seed, 12, (uint64_t)n_tokens);
    const int64_t page_bytes = mmla_kv_page_bytes(MMLA_KV_V41_FP8, PAGE_TOKENS);
    j->rows = check_buffer_create(n_tokens * 2 * MMLA_LATENT_DIM, 64, 0);
    j->positions = check_buffer_create(n_tokens * 8, 64, 0);
    j->slots = check_buffer_create(n_tokens * 8, 64, 0);
    j->norm_weight = check_buffer_create(4 * MMLA_LATENT_DIM, 64, 0);
    j->cache = check_buffer_create(n_tokens * PAGES_A_TOKEN * page_bytes, 64, POISON);
    j->cos_sin = check_cos_sin_create(POSITIONS, &rng);
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t page = t * PAGES_A_TOKEN + check_rng_below(&rng, PAGES_A_TOKEN);
        check_row_fill((uint16_t *)j->rows.data + t * MMLA_LATENT_DIM, MMLA_LATENT_DIM, false,
                       &rng);
        ((int64_t *)j->positions.data)[t] = check_rng_below(&rng, POSITIONS);
        ((int64_t *)j->slots.data)[t] = page * PAGE_TOKENS + check_rng_below(&rng, PAGE_TOKENS);
    }
    for (int d = 0; d < MMLA_LATENT_DIM; d++) {
        ((float *)j->norm_weight.data)[d] = check_rng_normal(&rng);
    }
    j->host = (mmla_kv_insert_args){.n_rows = n_tokens,
                                    .n_slots = n_tokens,
                                    .rows = (const uint16_t *)j->rows.data,
                                    .positions = (const int64_t *)j->positions.data,
                                    .slots = (const int64_t *)j->slots.data,
                                    .cos_sin = (const float *)j->cos_sin.data,
                                    .norm_weight = (const float *)j->norm_weight.data,
                                    .cache = j->cache.data};
    j->device = j->host;
    j->device.rows = bench_arena_copy(&j->arena, j->rows.data, j->rows.bytes);
    j->device.positions = bench_arena_copy(&j->arena, j->positions.data, j->positions.bytes);
    j->device.slots = bench_arena_copy(&j->arena, j->slots.data, j->slots.bytes);
    j->device.cos_sin = bench_arena_copy(&j->arena, j->cos_sin.data, j->cos_sin.bytes);
    j->device.norm_weight = bench_arena_copy(&j->arena, j->norm_weight.data, j->norm_weight.bytes);
    j->device.cache = bench_arena_copy(&j->arena, j->cache.data, j->cache.bytes);
}

static mmla_status call(void *user, int64_t i, void *stream, mmla_error *err) {
    (void)i;
    const job *j = user;
    mmla_kv_insert_args args = j->device;
    args.error = err;
    mmla_status status = mmla_kv_insert_run(j->insert, &args, j->workspace, stream);
    if (status == MMLA_OK) {
        status = bench_gpu_list_call(j->window, j->overlap, stream, err);
    }
    if (status == MMLA_OK) {
        status = bench_gpu_list_call(j->compressed, j->overlap, stream, err);
    }
    return status;
}

/* All records and all lists. */
static void verify(bench_session *s, job *j, int64_t n_tokens, bench_row *row) {
    mmla_error err = {0};
    mmla_kv_insert_plan *plan = NULL;
    const mmla_kv_insert_desc desc = insert_desc(n_tokens, "reference");
    mmla_status status = mmla_kv_insert_plan_create(s->host, &desc, &plan, &err);
    if (status == MMLA_OK) {
        mmla_kv_insert_args args = j->host;
        args.error = &err;
        status = mmla_kv_insert_run(plan, &args, NULL, NULL);
    }
    mmla_kv_insert_plan_destroy(plan);
    row->verified = bench_device_keep(&s->device, status, &err);
    check_buffer got = check_buffer_create(j->cache.bytes, 64, 0);
    bench_device_read(&s->device, got.data, j->device.cache, got.bytes);
    got.data[0] ^= s->options.corrupt == BENCH_CORRUPT_FUSED;
    const int64_t at = check_bytes_compare(got.data, j->cache.data, got.bytes);
    if (row->verified && at >= 0) {
        row->verified = false;
        snprintf(row->problem, sizeof row->problem, "byte %lld of the cache differs",
                 (long long)at);
    }
    check_buffer_destroy(&got);
    if (row->verified) {
        bench_gpu_list_verify(s, j->window, row);
    }
    if (row->verified) {
        bench_gpu_list_verify(s, j->compressed, row);
    }
}

static void job_destroy(job *j) {
    check_buffer *const all[] = {&j->rows,    &j->positions,   &j->slots,
                                 &j->cos_sin, &j->norm_weight, &j->cache};
    for (int i = 0; i < 6; i++) {
        check_buffer_destroy(all[i]);
    }
    mmla_kv_insert_plan_destroy(j->insert);
    bench_gpu_list_destroy(j->window);
    bench_gpu_list_destroy(j->compressed);
    bench_arena_destroy(&j->arena);
}

static void run_shape(bench_session *s, const char *op, bool overlap, int64_t n_tokens) {
    bench_row *row = bench_gpu_row_begin(s, op, "528", 0, n_tokens);
    if (row == NULL) {
        return;
    }
    job j = {.overlap = overlap, .arena = {.device = &s->device}};
    const mmla_kv_insert_desc desc = insert_desc(n_tokens, s->options.implementation);
    mmla_error err = {0};
    draw(&j, s, n_tokens);
    j.window = bench_gpu_list_create(s, MMLA_LIST_WINDOW, n_tokens);
    j.compressed = bench_gpu_list_create(s, MMLA_LIST_COMPRESSED, n_tokens);
    row->bytes =
        (double)n_tokens * (2 * MMLA_LATENT_DIM + (double)mmla_kv_record_bytes(MMLA_KV_V41_FP8)) +
        bench_gpu_list_bytes(j.window) + bench_gpu_list_bytes(j.compressed);
    if (bench_device_keep(&s->device, mmla_kv_insert_plan_create(s->ctx, &desc, &j.insert, &err),
                          &err)) {
        snprintf(row->implementation, sizeof row->implementation, "%s",
                 mmla_kv_insert_plan_implementation(j.insert));
        j.workspace = bench_arena_add(&j.arena, (int64_t)mmla_kv_insert_workspace_bytes(j.insert));
        bench_replay r = bench_replay_create(&s->device, call, &j, 1);
        row->fused = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
        bench_replay_destroy(&r);
        verify(s, &j, n_tokens, row);
    }
    bench_gpu_row_finish(s, row);
    job_destroy(&j);
}

void bench_gpu_step_run(bench_session *s) {
    static const int64_t decode[] = {1, 64, 256};
    static const struct {
        const char *op;
        bool overlap;
    } ops[] = {{"step", true}, {"step_apart", false}};
    if (s->options.heads.n > 0 && s->options.op == NULL) {
        return; /* asked about operations that have heads */
    }
    const bench_list tokens = bench_list_or(&s->options.tokens, decode, s->options.quick ? 1 : 3);
    for (int i = 0; i < tokens.n && bench_wants_formats(s, "528"); i++) {
        for (int k = 0; k < 2; k++) {
            if (bench_wants_op(s, ops[k].op)) {
                run_shape(s, ops[k].op, ops[k].overlap, tokens.values[i]);
            }
        }
    }
}
