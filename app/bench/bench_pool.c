/* bench_pool.c - few random rows, inserted many times over. */
#include "app/bench/bench_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum {
    DISTINCT_ROWS = 2048, /* different records of a cache; random numbers cost more than inserts */
    SETS_MAX = 256,
    LISTS_BYTES = 1 << 30
};

static check_buffer random_rows(int64_t n, check_rng *rng) {
    check_buffer rows = check_buffer_create(n * MMLA_LATENT_DIM * 2, 64, 0);
    for (int64_t i = 0; i < n * MMLA_LATENT_DIM; i++) {
        ((uint16_t *)rows.data)[i] = check_bf16_of_f32(check_rng_normal(rng));
    }
    return rows;
}

static mmla_status
fill(bench_session *s, bench_cache *c, const check_buffer *rows, mmla_error *err) {
    const mmla_kv_insert_desc desc = {
        .cache = c->desc, .max_tokens = DISTINCT_ROWS, .rope_positions = 1};
    float table[MMLA_ROPE_DIM];
    int64_t positions[DISTINCT_ROWS] = {0}, slots[DISTINCT_ROWS];
    for (int i = 0; i < MMLA_ROPE_DIM; i++) {
        table[i] = i < MMLA_ROPE_DIM / 2 ? 1.0f : 0.0f; /* angle 0 */
    }
    mmla_kv_insert_plan *plan;
    mmla_status status = mmla_kv_insert_plan_create(s->host, &desc, &plan, err);
    for (int64_t first = 0; first < c->n_slots && status == MMLA_OK; first += DISTINCT_ROWS) {
        const int64_t n = c->n_slots - first < DISTINCT_ROWS ? c->n_slots - first : DISTINCT_ROWS;
        for (int64_t i = 0; i < n; i++) {
            slots[i] = first + i;
        }
        const mmla_kv_insert_args args = {.n_rows = n,
                                          .n_slots = n,
                                          .rows = (const uint16_t *)rows->data,
                                          .positions = positions,
                                          .slots = slots,
                                          .cos_sin = table,
                                          .cache = c->memory.data,
                                          .error = err};
        status = mmla_kv_insert_run(plan, &args, NULL, NULL);
    }
    mmla_kv_insert_plan_destroy(plan);
    return status;
}

bench_cache
bench_cache_create(bench_session *s, mmla_kv_format format, int64_t bytes, uint64_t stream) {
    check_rng rng = check_rng_at(s->options.seed, stream, 0);
    const int32_t n_layers = bench_layers(&s->options);
    bench_cache c = {.desc = {.format = format, .page_tokens = bench_page_tokens(&s->options)}};
    if (format == MMLA_KV_NONE) {
        c.n_slots = bytes / (MMLA_LATENT_DIM * 2);
        c.memory = random_rows(c.n_slots, &rng);
        return c;
    }
    const int64_t page_bytes = mmla_kv_page_bytes(format, c.desc.page_tokens);
    c.desc.n_pages = bytes / page_bytes + 1;
    c.desc.page_stride_bytes = n_layers * page_bytes;
    c.n_slots = c.desc.n_pages * c.desc.page_tokens;
    const int64_t total = c.desc.n_pages * c.desc.page_stride_bytes;
    c.memory = n_layers > 1 ? check_buffer_create_sparse(total) : check_buffer_create(total, 64, 0);
    check_buffer rows = random_rows(DISTINCT_ROWS, &rng);
    mmla_error err = {0};
    if (fill(s, &c, &rows, &err) != MMLA_OK) {
        fprintf(stderr, "megamla: filling a cache failed: %s\n", err.message);
        exit(1);
    }
    check_buffer_destroy(&rows);
    return c;
}

void bench_cache_destroy(bench_cache *c) {
    check_buffer_destroy(&c->memory);
    *c = (bench_cache){0};
}

int64_t bench_sets_count(int64_t n_slots, int64_t slots_per_call) {
    const int64_t n = n_slots / slots_per_call;
    return n < 2 ? 2 : n < SETS_MAX ? n : SETS_MAX;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t bench_lists_limit(int64_t n_sets, int64_t n_tokens) {
    const int64_t most = LISTS_BYTES / (n_tokens * BENCH_KEYS * 4);
    return n_sets < most ? n_sets : most < 2 ? 2 : most;
}

check_buffer bench_lists_create(const bench_cache *cache,
                                int64_t n_sets,
                                int64_t n_tokens,
                                int64_t width,
                                int64_t run,
                                const int32_t *lens) {
    const int64_t n_lists = n_sets * n_tokens, n_runs = cache->n_slots / run;
    /* Steps of about 0.618 of all runs, without a common divisor, reach each of them once. */
    int64_t step = n_runs * 618 / 1000 + 1;
    while (common_divisor(step, n_runs) != 1) {
        step++;
    }
    check_buffer lists = check_buffer_create(n_lists * width * 4, 64, 0);
    int64_t n_keys = 0; /* of the lists before */
    for (int64_t i = 0; i < n_lists; i++) {
        int32_t *list = (int32_t *)lists.data + i * width;
        for (int64_t k = n_keys; k < n_keys + width; k++) {
            *list++ = (int32_t)(k / run * step % n_runs * run + k % run);
        }
        n_keys += lens != NULL ? lens[i % n_tokens] : width;
    }
    return lists;
}
