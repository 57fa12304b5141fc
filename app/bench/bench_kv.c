/* bench_kv.c - insert and gather: rows to records, records to rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/bench/bench_pool.h"
#include "app/check/check_cache.h"
#include "app/check/check_near.h"
#include "app/check/check_num.h"

enum { POSITIONS = 4096, REQUESTS = 8, ROWS = 4096, ROW_BYTES = 2 * MMLA_LATENT_DIM };

static const bench_formats formats[] = {
    {"584", MMLA_KV_V4, MMLA_KV_NONE},
    {"528", MMLA_KV_V41_FP8, MMLA_KV_NONE},
    {"288", MMLA_KV_V41_FP4, MMLA_KV_NONE},
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* Inputs of both operations over one cache. Call i works on pages first_page(i) .. */
typedef struct job {
    bench_cache cache;
    int64_t n_rows, n_pages; /* of one call */
    int64_t n_sets;
    check_buffer rows, cos_sin, table;
    int64_t *positions, *slots;
    int32_t seq_lens[REQUESTS];
    mmla_kv_insert_plan *insert;
    mmla_kv_gather_plan *gather;
    mmla_status status;
} job;

static int64_t first_page(const job *j, int64_t i) {
    return i % j->n_sets * j->n_pages;
}

static job job_create(bench_session *s, const bench_formats *f, int64_t n_rows) {
    job j = {.cache = bench_cache_create(s, f->window, bench_cold_bytes(s), 5)};
    const int64_t page_tokens = j.cache.desc.page_tokens;
    check_rng rng = check_rng_at(s->options.seed, 6, 0);
    /* Whole pages, and as many for each request. */
    const int64_t unit = REQUESTS * page_tokens;
    j.n_rows = (n_rows + unit - 1) / unit * unit;
    j.n_rows = j.n_rows < j.cache.n_slots / unit * unit ? j.n_rows : j.cache.n_slots / unit * unit;
    j.n_pages = j.n_rows / page_tokens;
    j.n_sets = j.cache.desc.n_pages / j.n_pages;
    j.rows = check_buffer_create(j.n_rows * ROW_BYTES, 64, 0);
    j.cos_sin = check_cos_sin_create(POSITIONS, &rng);
    j.positions = check_alloc(j.n_rows * 8);
    j.slots = check_alloc(j.n_sets * j.n_rows * 8);
    for (int64_t i = 0; i < j.n_rows; i++) {
        check_row_fill((uint16_t *)j.rows.data + i * MMLA_LATENT_DIM, MMLA_LATENT_DIM, false, &rng);
        j.positions[i] = check_rng_below(&rng, POSITIONS);
    }
    for (int64_t i = 0; i < j.n_sets * j.n_rows; i++) {
        j.slots[i] = i;
    }
    j.table = check_buffer_create(j.n_sets * j.n_pages * 4, 64, 0);
    for (int64_t i = 0; i < j.n_sets * j.n_pages; i++) {
        ((int32_t *)j.table.data)[i] = (int32_t)i;
    }
    for (int r = 0; r < REQUESTS; r++) {
        j.seq_lens[r] = (int32_t)(j.n_rows / REQUESTS);
    }
    return j;
}

static void job_destroy(job *j) {
    mmla_kv_insert_plan_destroy(j->insert);
    mmla_kv_gather_plan_destroy(j->gather);
    bench_cache_destroy(&j->cache);
    check_buffer_destroy(&j->rows);
    check_buffer_destroy(&j->cos_sin);
    check_buffer_destroy(&j->table);
    free(j->positions);
    free(j->slots);
}

static mmla_kv_insert_args insert_args(const job *j, int64_t first_slot_idx) {
    return (mmla_kv_insert_args){.n_rows = j->n_rows,
                                 .n_slots = j->n_rows,
                                 .rows = (const uint16_t *)j->rows.data,
                                 .positions = j->positions,
                                 .slots = j->slots + first_slot_idx,
                                 .cos_sin = (const float *)j->cos_sin.data};
}

static void call_insert(void *user, int64_t i) {
    job *j = user;
    mmla_kv_insert_args args = insert_args(j, i % j->n_sets * j->n_rows);
    args.cache = j->cache.memory.data;
    const mmla_status status = mmla_kv_insert_run(j->insert, &args, NULL, NULL);
    j->status = status != MMLA_OK ? status : j->status;
}

static void call_gather(void *user, int64_t i) {
    job *j = user;
    const mmla_kv_gather_args args = {.n_requests = REQUESTS,
                                      .block_table =
                                          (const int32_t *)j->table.data + first_page(j, i),
                                      .seq_lens = j->seq_lens,
                                      .cache = j->cache.memory.data,
                                      .out = (uint16_t *)j->rows.data};
    const mmla_status status = mmla_kv_gather_run(j->gather, &args, NULL, NULL);
    j->status = status != MMLA_OK ? status : j->status;
}

static mmla_kv_insert_desc insert_desc(const job *j, const char *implementation) {
    return (mmla_kv_insert_desc){.cache = j->cache.desc,
                                 .max_tokens = j->n_rows,
                                 .rope_positions = POSITIONS,
                                 .implementation = implementation};
}

static mmla_kv_gather_desc gather_desc(const job *j, const char *implementation) {
    return (mmla_kv_gather_desc){.cache = j->cache.desc,
                                 .max_requests = REQUESTS,
                                 .table_width = (int32_t)(j->n_pages / REQUESTS),
                                 .rows = j->n_rows / REQUESTS,
                                 .implementation = implementation};
}

/* The pages of the last timed call hold what the reference writes into a cache of just those. */
static void verify_insert(bench_session *s, job *j, int64_t last, bench_row *row) {
    const int64_t page_bytes = mmla_kv_page_bytes(j->cache.desc.format, j->cache.desc.page_tokens);
    check_buffer want = check_buffer_create(j->n_pages * page_bytes, 64, 0);
    mmla_kv_insert_desc desc = insert_desc(j, "reference");
    desc.cache.n_pages = j->n_pages;
    mmla_kv_insert_args args = insert_args(j, 0);
    args.cache = want.data;
    mmla_kv_insert_plan *plan;
    row->verified =
        j->status == MMLA_OK && mmla_kv_insert_plan_create(s->ctx, &desc, &plan, NULL) == MMLA_OK;
    if (row->verified) {
        row->verified = mmla_kv_insert_run(plan, &args, NULL, NULL) == MMLA_OK &&
                        check_bytes_compare(j->cache.memory.data + first_page(j, last) * page_bytes,
                                            want.data, want.bytes) < 0;
        mmla_kv_insert_plan_destroy(plan);
    }
    if (!row->verified) {
        snprintf(row->problem, sizeof row->problem, "the cache differs from the reference's");
    }
    check_buffer_destroy(&want);
}

static void verify_gather(bench_session *s, job *j, int64_t last, bench_row *row) {
    check_buffer got = j->rows;
    j->rows = check_buffer_create(got.bytes, 64, 0x5A);
    const mmla_kv_gather_desc desc = gather_desc(j, "reference");
    mmla_kv_gather_plan_destroy(j->gather);
    row->verified = mmla_kv_gather_plan_create(s->ctx, &desc, &j->gather, NULL) == MMLA_OK;
    if (row->verified) {
        call_gather(j, last);
        row->verified = j->status == MMLA_OK && check_buffer_is_intact(&got) &&
                        check_bytes_compare(got.data, j->rows.data, got.bytes) < 0;
    }
    if (!row->verified) {
        snprintf(row->problem, sizeof row->problem, "the rows differ from the reference's");
    }
    check_buffer_destroy(&got);
}

static void measure(bench_session *s, job *j, const bench_formats *f, bool insert) {
    bench_row *row = bench_row_add(s, insert ? "kv_insert" : "kv_gather", f->name);
    if (row == NULL) {
        return;
    }
    const double budget_s = s->options.quick ? 0.1 : 0.4;
    const char *name = s->options.implementation;
    mmla_error err = {0};
    row->tokens = j->n_rows;
    row->bytes = (double)(j->n_rows * (ROW_BYTES + mmla_kv_record_bytes(f->window)));
    const mmla_kv_insert_desc to = insert_desc(j, name);
    const mmla_kv_gather_desc from = gather_desc(j, name);
    const mmla_status status = insert ? mmla_kv_insert_plan_create(s->ctx, &to, &j->insert, &err)
                                      : mmla_kv_gather_plan_create(s->ctx, &from, &j->gather, &err);
    if (status != MMLA_OK) {
        snprintf(row->problem, sizeof row->problem, "%.159s", err.message);
        return;
    }
    snprintf(row->implementation, sizeof row->implementation, "%s",
             insert ? mmla_kv_insert_plan_implementation(j->insert)
                    : mmla_kv_gather_plan_implementation(j->gather));
    row->fused =
        bench_measure(insert ? call_insert : call_gather, j, s->options.n_samples, budget_s);
    if (insert) {
        verify_insert(s, j, row->fused.last, row);
    } else {
        verify_gather(s, j, row->fused.last, row);
    }
    row->floor_us = bench_floor_us(s, row);
}

void bench_kv_run(bench_session *s) {
    static const int64_t rows_default[] = {ROWS};
    if (s->options.heads.n > 0 && s->options.op == NULL) {
        return; /* asked about operations that have heads */
    }
    const bench_list rows = bench_list_or(&s->options.tokens, rows_default, 1);
    for (int pass = 0; pass < 2; pass++) {
        const bool insert = pass == 0;
        for (int i = 0; i < N_FORMATS && bench_wants_op(s, insert ? "kv_insert" : "kv_gather");
             i++) {
            for (int k = 0; k < rows.n && bench_wants_formats(s, formats[i].name); k++) {
                job j = job_create(s, &formats[i], rows.values[k]);
                measure(s, &j, &formats[i], insert);
                bench_row_finish(s);
                job_destroy(&j);
            }
        }
    }
}
