/* bench_gpu_kv.c - insert and gather on a GPU: rows to records, records to rows.
 *
 * Row t holds what row t modulo TILE_ROWS does, at the same position, so the reference works on one
 * tile, and every byte that the timed call wrote is compared with it. A call of more rows than a tile
 * has is one of whole tiles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench_gpu.h"
#include "app/bench/bench_replay.h"
#include "app/check/check_near.h"
#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum {
    POSITIONS = 4096,
    ROW_BYTES = 2 * MMLA_LATENT_DIM,
    PAGE_TOKENS = 64,
    TILE_PAGES = 32,
    TILE_ROWS = TILE_PAGES * PAGE_TOKENS,
    REQUESTS_MAX = 8, /* of a gather */
    SETS_MAX = 256,
    POISON = 0x5A
};

static const bench_formats formats[] = {
    {"584", MMLA_KV_V4, MMLA_KV_NONE},
    {"528", MMLA_KV_V41_FP8, MMLA_KV_NONE},
    {"288", MMLA_KV_V41_FP4, MMLA_KV_NONE},
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* Inputs of both operations. A set is n_pages pages and n_rows rows of its own. */
typedef struct job {
    mmla_kv_format format;
    int64_t n_rows, n_tile_rows; /* the second TILE_ROWS at most */
    int64_t n_pages, page_bytes, n_sets, n_requests;
    check_buffer rows, records, gathered; /* one tile, by the reference; gathered are bf16 rows */
    bench_arena arena;
    uint8_t *device_rows, *device_cache; /* of every set */
    const int64_t *positions, *slots;    /* slots of a set's own cache */
    const int32_t *table, *seq_lens;     /* pages of a set's own cache */
    const float *cos_sin;
    void *workspace;
    mmla_kv_insert_plan *insert;
    mmla_kv_gather_plan *gather;
} job;

static mmla_kv_insert_desc insert_desc(const job *j, int64_t n_rows, const char *implementation) {
    return (mmla_kv_insert_desc){.cache = {.format = j->format,
                                           .page_tokens = PAGE_TOKENS,
                                           .n_pages = (n_rows + PAGE_TOKENS - 1) / PAGE_TOKENS},
                                 .max_tokens = n_rows,
                                 .rope_positions = POSITIONS,
                                 .implementation = implementation};
}

static mmla_kv_gather_desc
gather_desc(const job *j, int64_t n_requests, int64_t n_rows, const char *implementation) {
    const int64_t each = n_rows / n_requests;
    return (mmla_kv_gather_desc){.cache = {.format = j->format,
                                           .page_tokens = PAGE_TOKENS,
                                           .n_pages = (n_rows + PAGE_TOKENS - 1) / PAGE_TOKENS},
                                 .max_requests = n_requests,
                                 .table_width = (int32_t)((each + PAGE_TOKENS - 1) / PAGE_TOKENS),
                                 .rows = each,
                                 .implementation = implementation};
}

/* Records of one tile of rows, or of all when there are fewer, and the rows those give back, by the
 * reference. */
static mmla_status reference(
    bench_session *s, job *j, const int64_t *positions, const float *cos_sin, mmla_error *err) {
    int64_t slots[TILE_ROWS];
    int32_t table[TILE_PAGES];
    const int32_t seq_len = (int32_t)j->n_tile_rows;
    for (int i = 0; i < TILE_ROWS; i++) {
        slots[i] = i;
    }
    for (int i = 0; i < TILE_PAGES; i++) {
        table[i] = i;
    }
    mmla_kv_insert_plan *insert = NULL;
    mmla_kv_gather_plan *gather = NULL;
    const mmla_kv_insert_desc to = insert_desc(j, j->n_tile_rows, "reference");
    const mmla_kv_gather_desc from = gather_desc(j, 1, j->n_tile_rows, "reference");
    mmla_status status = mmla_kv_insert_plan_create(s->host, &to, &insert, err);
    if (status == MMLA_OK) {
        const mmla_kv_insert_args args = {.n_rows = j->n_tile_rows,
                                          .n_slots = j->n_tile_rows,
                                          .rows = (const uint16_t *)j->rows.data,
                                          .positions = positions,
                                          .slots = slots,
                                          .cos_sin = cos_sin,
                                          .cache = j->records.data,
                                          .error = err};
        status = mmla_kv_insert_run(insert, &args, NULL, NULL);
    }
    if (status == MMLA_OK) {
        status = mmla_kv_gather_plan_create(s->host, &from, &gather, err);
    }
    if (status == MMLA_OK) {
        const mmla_kv_gather_args args = {.n_requests = 1,
                                          .block_table = table,
                                          .seq_lens = &seq_len,
                                          .cache = j->records.data,
                                          .out = (uint16_t *)j->gathered.data,
                                          .error = err};
        status = mmla_kv_gather_run(gather, &args, NULL, NULL);
    }
    mmla_kv_insert_plan_destroy(insert);
    mmla_kv_gather_plan_destroy(gather);
    return status;
}

/* Index arrays of a set, on the device. */
static void indices_create(job *j, const int64_t *tile_positions) {
    const int64_t per_request = j->n_pages / j->n_requests;
    int64_t *positions = check_alloc(j->n_rows * 8), *slots = check_alloc(j->n_rows * 8);
    int32_t *table = check_alloc(j->n_pages * 4), seq_lens[REQUESTS_MAX];
    for (int64_t i = 0; i < j->n_rows; i++) {
        positions[i] = tile_positions[i % TILE_ROWS];
        slots[i] = i;
    }
    for (int64_t i = 0; i < j->n_pages; i++) {
        table[i] = (int32_t)i;
    }
    for (int64_t r = 0; r < j->n_requests; r++) {
        seq_lens[r] = (int32_t)(j->n_requests == 1 ? j->n_rows : per_request * PAGE_TOKENS);
    }
    j->positions = bench_arena_copy(&j->arena, positions, j->n_rows * 8);
    j->slots = bench_arena_copy(&j->arena, slots, j->n_rows * 8);
    j->table = bench_arena_copy(&j->arena, table, j->n_pages * 4);
    j->seq_lens = bench_arena_copy(&j->arena, seq_lens, j->n_requests * 4);
    free(positions);
    free(slots);
    free(table);
}

static job job_create(bench_session *s, const bench_formats *f, int64_t n_rows) {
    const int64_t unit = REQUESTS_MAX * PAGE_TOKENS;
    job j = {.format = f->window,
             .n_rows = n_rows,
             .n_tile_rows = n_rows < TILE_ROWS ? n_rows : TILE_ROWS,
             .n_pages = (n_rows + PAGE_TOKENS - 1) / PAGE_TOKENS,
             .page_bytes = mmla_kv_page_bytes(f->window, PAGE_TOKENS),
             .n_requests = n_rows % unit == 0 ? REQUESTS_MAX : 1,
             .arena = {.device = &s->device}};
    int64_t positions[TILE_ROWS];
    mmla_error err = {0};
    check_rng rng = check_rng_at(s->options.seed, 6, 0);
    check_buffer cos_sin = check_cos_sin_create(POSITIONS, &rng);
    j.rows = check_buffer_create(TILE_ROWS * ROW_BYTES, 64, 0);
    j.records = check_buffer_create(TILE_PAGES * j.page_bytes, 64, 0);
    j.gathered = check_buffer_create(TILE_ROWS * ROW_BYTES, 64, POISON);
    for (int64_t i = 0; i < TILE_ROWS; i++) {
        check_row_fill((uint16_t *)j.rows.data + i * MMLA_LATENT_DIM, MMLA_LATENT_DIM, false, &rng);
        positions[i] = check_rng_below(&rng, POSITIONS);
    }
    bench_device_keep(&s->device, reference(s, &j, positions, (const float *)cos_sin.data, &err),
                      &err);
    const int64_t sets =
        bench_gpu_sets_count(s, (double)(n_rows * (ROW_BYTES + mmla_kv_record_bytes(f->window))));
    j.n_sets = sets < SETS_MAX ? sets : SETS_MAX;
    indices_create(&j, positions);
    j.cos_sin = bench_arena_copy(&j.arena, cos_sin.data, cos_sin.bytes);
    check_buffer_destroy(&cos_sin);
    return j;
}

/* Rows and caches of every set: inputs hold the tile over and over, each set from its beginning;
 * results hold zeros (a page's padding is nobody's), or poison. */
static void memory_create(job *j, bool insert) {
    const int64_t cache_bytes = j->n_pages * j->page_bytes, row_bytes = j->n_rows * ROW_BYTES;
    j->device_rows = bench_arena_add(&j->arena, j->n_sets * row_bytes);
    j->device_cache = bench_arena_add(&j->arena, j->n_sets * cache_bytes);
    bench_device *d = j->arena.device;
    if (!bench_device_is_well(d)) {
        return;
    }
    const check_buffer *tile = insert ? &j->rows : &j->records;
    uint8_t *const to = insert ? j->device_rows : j->device_cache;
    const int64_t bytes = insert ? row_bytes : cache_bytes;
    for (int64_t at = 0; at < bytes; at += tile->bytes) {
        bench_device_write(d, to + at, tile->data,
                           bytes - at < tile->bytes ? bytes - at : tile->bytes);
    }
    for (int64_t set = 1; set < j->n_sets; set++) {
        bench_device_copy(d, to + set * bytes, to, bytes);
    }
}

static void results_reset(job *j, bool insert) {
    bench_device_fill(j->arena.device, insert ? j->device_cache : j->device_rows,
                      insert ? 0 : POISON,
                      j->n_sets * (insert ? j->n_pages * j->page_bytes : j->n_rows * ROW_BYTES));
}

static void job_destroy(job *j) {
    mmla_kv_insert_plan_destroy(j->insert);
    mmla_kv_gather_plan_destroy(j->gather);
    check_buffer_destroy(&j->rows);
    check_buffer_destroy(&j->records);
    check_buffer_destroy(&j->gathered);
    bench_arena_destroy(&j->arena);
}

static mmla_status call_insert(void *user, int64_t i, void *stream, mmla_error *err) {
    const job *j = user;
    const int64_t set = i % j->n_sets;
    const mmla_kv_insert_args args = {
        .n_rows = j->n_rows,
        .n_slots = j->n_rows,
        .rows = (const uint16_t *)(j->device_rows + set * j->n_rows * ROW_BYTES),
        .positions = j->positions,
        .slots = j->slots,
        .cos_sin = j->cos_sin,
        .cache = j->device_cache + set * j->n_pages * j->page_bytes,
        .error = err};
    return mmla_kv_insert_run(j->insert, &args, j->workspace, stream);
}

static mmla_status call_gather(void *user, int64_t i, void *stream, mmla_error *err) {
    const job *j = user;
    const int64_t set = i % j->n_sets;
    const mmla_kv_gather_args args = {
        .n_requests = j->n_requests,
        .block_table = j->table,
        .seq_lens = j->seq_lens,
        .cache = j->device_cache + set * j->n_pages * j->page_bytes,
        .out = (uint16_t *)(j->device_rows + set * j->n_rows * ROW_BYTES),
        .error = err};
    return mmla_kv_gather_run(j->gather, &args, j->workspace, stream);
}

/* Every byte of the set that the last timed call worked on. */
static void verify(bench_session *s, const job *j, bool insert, int64_t last, bench_row *row) {
    const int64_t set = last % j->n_sets;
    const int64_t bytes = insert ? j->n_pages * j->page_bytes : j->n_rows * ROW_BYTES;
    const check_buffer *want = insert ? &j->records : &j->gathered;
    const uint8_t *from = insert ? j->device_cache + set * j->n_pages * j->page_bytes
                                 : j->device_rows + set * j->n_rows * ROW_BYTES;
    check_buffer got = check_buffer_create(bytes, 64, 0);
    bench_device_read(&s->device, got.data, from, bytes);
    if (s->options.corrupt == BENCH_CORRUPT_FUSED && bytes > 0) {
        got.data[bytes / 2] ^= 1;
    }
    row->verified = bench_device_is_well(&s->device);
    for (int64_t at = 0; at < bytes && row->verified; at += want->bytes) {
        const int64_t n = bytes - at < want->bytes ? bytes - at : want->bytes;
        const int64_t other = check_bytes_compare(got.data + at, want->data, n);
        if (other >= 0) {
            row->verified = false;
            snprintf(row->problem, sizeof row->problem,
                     "byte %lld of the %s is 0x%02X, the reference's 0x%02X",
                     (long long)(at + other), insert ? "cache" : "rows", got.data[at + other],
                     want->data[other]);
        }
    }
    check_buffer_destroy(&got);
}

/* The plan of the operation. False, and the device keeps it, when it was refused. */
static bool plan_create(bench_session *s, job *j, bool insert, bench_row *row) {
    const char *name = s->options.implementation;
    mmla_error err = {0};
    const mmla_kv_insert_desc to = insert_desc(j, j->n_rows, name);
    const mmla_kv_gather_desc from = gather_desc(j, j->n_requests, j->n_rows, name);
    const mmla_status status = insert ? mmla_kv_insert_plan_create(s->ctx, &to, &j->insert, &err)
                                      : mmla_kv_gather_plan_create(s->ctx, &from, &j->gather, &err);
    if (!bench_device_keep(&s->device, status, &err)) {
        return false;
    }
    snprintf(row->implementation, sizeof row->implementation, "%s",
             insert ? mmla_kv_insert_plan_implementation(j->insert)
                    : mmla_kv_gather_plan_implementation(j->gather));
    const size_t bytes = insert ? mmla_kv_insert_workspace_bytes(j->insert)
                                : mmla_kv_gather_workspace_bytes(j->gather);
    j->workspace = bench_arena_add(&j->arena, (int64_t)bytes);
    return true;
}

static void run_shape(bench_session *s, const bench_formats *f, int64_t n_asked, bool insert) {
    const int64_t n_rows =
        n_asked <= TILE_ROWS ? n_asked : (n_asked + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    bench_row *row = bench_gpu_row_begin(s, insert ? "kv_insert" : "kv_gather", f->name, 0, n_rows);
    if (row == NULL) {
        return;
    }
    row->bytes = (double)(n_rows * (ROW_BYTES + mmla_kv_record_bytes(f->window)));
    job j = job_create(s, f, n_rows);
    if (plan_create(s, &j, insert, row)) {
        memory_create(&j, insert);
        bench_replay r =
            bench_replay_create(&s->device, insert ? call_insert : call_gather, &j, j.n_sets);
        results_reset(&j, insert);
        row->fused = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
        bench_replay_destroy(&r);
        verify(s, &j, insert, row->fused.last, row);
    }
    bench_gpu_row_finish(s, row);
    job_destroy(&j);
}

void bench_gpu_kv_run(bench_session *s) {
    /* A decode step, a large one, and 24 to 200 MiB read and written. */
    static const int64_t insert_rows[] = {1, 64, 1024, 16384, 131072};
    static const int64_t gather_rows[] = {1024, 16384, 131072};
    if (s->options.heads.n > 0 && s->options.op == NULL) {
        return; /* asked about operations that have heads */
    }
    const bool quick = s->options.quick;
    for (int pass = 0; pass < 2; pass++) {
        const bool insert = pass == 0;
        const int64_t *all = insert ? insert_rows : gather_rows;
        const int n = insert ? 5 : 3;
        const bench_list rows = quick ? bench_list_or(&s->options.tokens, &all[n - 1], 1)
                                      : bench_list_or(&s->options.tokens, all, n);
        for (int i = 0; i < N_FORMATS && bench_wants_op(s, insert ? "kv_insert" : "kv_gather");
             i++) {
            for (int k = 0; k < rows.n && bench_wants_formats(s, formats[i].name); k++) {
                run_shape(s, &formats[i], rows.values[k], insert);
            }
        }
    }
}
