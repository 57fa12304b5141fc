/* check_kv_insert.c - every implementation of kv_insert stores the reference's bytes and no others.
 *
 * The whole cache is compared, padding and neighbours included, over two different fillings: bytes
 * that nobody may write must keep either. The last cases are large: one has more rows than 16 bits
 * count, one pages that begin beyond 2^31 bytes, of which only the pages' records are looked at.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_cache.h"
#include "app/check/check_near.h"
#include "app/check/check_num.h"
#include "app/check/check_rng.h"

enum { POSITIONS = 96, FAULTS_BEFORE = 7, FAR_PAGES_MAX = 5 };
enum { CASES_QUICK = 100, CASES_DRAWN = 1500, CASE_MANY = CASES_DRAWN, CASE_FAR, CASES_FULL };

typedef struct insert_case {
    mmla_kv_insert_desc desc;
    mmla_kv_insert_args args;
    check_buffer rows, positions, slots, cos_sin, norm_weight;
    int32_t n_faults;
    int64_t n_written; /* distinct slots that get a record */
    int64_t cache_bytes;
    device_part parts[FAR_PAGES_MAX]; /* what is looked at of a cache with far pages */
    int64_t n_parts;                  /* 0: all of it */
    char shape[CHECK_TEXT_BYTES];
} insert_case;

static float any_finite(check_rng *rng) {
    const uint16_t bits = (uint16_t)check_rng_next(rng);
    const float x = check_bf16_to_f32(bits);
    return isfinite(x) ? x : 0.0f;
}

/* One element of a row of a kind: what the quantisers find hard. */
static float draw_element(int kind, int d, float unit, check_rng *rng) {
    switch (kind) {
    case 0: /* zeros of both signs */
        return check_rng_chance(rng, 0.5) ? -0.0f : 0.0f;
    case 1: /* the largest is exactly 448 times a power of two, the others lie on code ties */
        return d % 16 == 0 ? 448.0f * unit : (float)(check_rng_below(rng, 63) - 31) * unit / 2;
    case 2: /* the same, 6 times, for e2m1 */
        return d % 16 == 0 ? 6.0f * unit : (float)(check_rng_below(rng, 25) - 12) * unit / 2;
    case 3: /* one bf16 step above 448 times a power of two */
        return d % 16 == 3 ? 450.0f * unit : check_rng_normal(rng) * unit;
    case 4: /* any exponent at all */
        return any_finite(rng);
    case 5: /* subnormal in bf16 */
        return ldexpf((float)(check_rng_below(rng, 255) - 127), -133);
    case 6: /* a NaN here and there */
        return check_rng_chance(rng, 0.02) ? NAN : check_rng_normal(rng);
    case 7: /* an infinity here and there */
        return check_rng_chance(rng, 0.01) ? -INFINITY : check_rng_normal(rng);
    case 8: /* around the floors of the scales */
        return check_rng_normal(rng) * ldexpf(1.0f, -10 - (int)(d / 64));
    default:
        return check_rng_normal(rng) * unit;
    }
}

static void draw_rows(insert_case *c, check_rng *rng) {
    const int dims = mmla_kv_dims(c->desc.cache.format);
    c->rows = check_buffer_create(c->args.n_rows * c->desc.row_stride * 2, 16, 0xFF);
    for (int64_t t = 0; t < c->args.n_rows; t++) {
        uint16_t *row = (uint16_t *)c->rows.data + t * c->desc.row_stride;
        const int kind = (int)check_rng_below(rng, 12);
        const float unit = ldexpf(1.0f, (int)check_rng_below(rng, 24) - 16);
        for (int d = 0; d < dims; d++) {
            row[d] = check_bf16_of_f32(draw_element(kind, d, unit, rng));
        }
    }
    c->args.rows = (const uint16_t *)c->rows.data;
    if (c->desc.norm != 0) {
        c->norm_weight = check_buffer_create(dims * 4, 4, 0xFF);
        for (int d = 0; d < dims; d++) {
            ((float *)c->norm_weight.data)[d] = 1.0f + 0.2f * check_rng_normal(rng);
        }
        c->args.norm_weight = (const float *)c->norm_weight.data;
    }
}

static void draw_places(insert_case *c, check_rng *rng) {
    const int64_t outside[] = {-1, POSITIONS, INT64_MIN, INT64_MAX, (int64_t)1 << 32};
    const int64_t n_slots = c->desc.cache.n_pages * c->desc.cache.page_tokens;
    const int64_t refused[] = {n_slots, n_slots + 1, INT32_MAX, (int64_t)1 << 40, INT64_MAX};
    const int64_t negative[] = {-1, -123456, INT32_MIN, INT64_MIN};
    uint8_t *seen = check_alloc(n_slots);
    memset(seen, 0, (size_t)n_slots);
    c->positions = check_buffer_create(c->args.n_rows * 8, 8, 0xFF);
    c->slots = check_buffer_create(c->args.n_slots * 8, 8, 0xFF);
    int64_t *positions = (int64_t *)c->positions.data, *slots = (int64_t *)c->slots.data;
    for (int64_t t = 0; t < c->args.n_rows; t++) {
        positions[t] = check_rng_chance(rng, 0.06) ? outside[check_rng_below(rng, 5)]
                                                   : check_rng_below(rng, POSITIONS);
        if (t >= c->args.n_slots) {
            continue;
        }
        const double which = check_rng_uniform(rng);
        slots[t] = which < 0.08   ? negative[check_rng_below(rng, 4)]
                   : which < 0.13 ? refused[check_rng_below(rng, 5)]
                                  : check_rng_below(rng, n_slots);
        const bool is_good = positions[t] >= 0 && positions[t] < POSITIONS;
        if (slots[t] >= 0 && (slots[t] >= n_slots || !is_good)) {
            c->n_faults++;
        } else if (slots[t] >= 0) {
            c->n_written += seen[slots[t]] == 0;
            seen[slots[t]] = 1;
        }
    }
    free(seen);
    c->cos_sin = check_cos_sin_create(POSITIONS, rng);
    c->args.positions = positions;
    c->args.slots = slots;
    c->args.cos_sin = (const float *)c->cos_sin.data;
}

static insert_case insert_case_create(const check_session *s, int64_t idx) {
    static const int32_t pages[] = {1, 2, 16, 61, 64, 128, 256};
    const uint64_t seed = s->options.seed;
    check_rng rng = check_rng_at(seed, 0x696E73, (uint64_t)idx);
    const mmla_kv_format format = (mmla_kv_format)(MMLA_KV_V4 + check_draw(seed, 30, idx, 5));
    const int32_t page_tokens = idx >= CASES_DRAWN ? 64 : pages[check_draw(seed, 31, idx, 7)];
    const int stride = idx >= CASES_DRAWN ? 0 : check_draw(seed, 32, idx, CHECK_STRIDES);
    insert_case c = {.desc = {.cache = {.format = format,
                                        .page_tokens = page_tokens,
                                        .n_pages = 1 + check_rng_below(&rng, 3)},
                              .ratio = check_draw(seed, 33, idx, 3),
                              .scale_floor = (mmla_scale_floor)check_draw(seed, 34, idx, 2),
                              .norm = check_draw(seed, 35, idx, 3) == 0,
                              .norm_eps = 1e-20f,
                              .rope_positions = POSITIONS}};
    const int64_t records = page_tokens * mmla_kv_record_bytes(format);
    if (idx == CASE_MANY) {
        c.desc.cache.n_pages = 1500;
    }
    const int64_t more[] = {0, 0, 16 * (1 + check_rng_below(&rng, 97)), 1 << 20};
    c.desc.cache.page_stride_bytes = stride == 0 ? 0 : (records + 15) / 16 * 16 + more[stride];
    if (idx == CASE_FAR) {
        c.desc.cache.n_pages = FAR_PAGES_MAX;
        c.desc.cache.page_stride_bytes = ((int64_t)1 << 31) / (FAR_PAGES_MAX - 1) + 16;
        for (int64_t i = 0; i < FAR_PAGES_MAX; i++) {
            c.parts[c.n_parts++] = (device_part){i * c.desc.cache.page_stride_bytes, records};
        }
    }
    c.cache_bytes = c.desc.cache.n_pages * (c.desc.cache.page_stride_bytes != 0
                                                ? c.desc.cache.page_stride_bytes
                                                : mmla_kv_page_bytes(format, page_tokens));
    c.args.n_rows = idx == CASE_MANY ? 70000 : check_rng_below(&rng, 41);
    c.args.n_slots = c.args.n_rows - check_rng_below(&rng, c.args.n_rows / 2 + 1);
    c.desc.max_tokens = c.args.n_rows + check_rng_below(&rng, 3);
    c.desc.row_stride = mmla_kv_dims(format) + 8 * check_rng_below(&rng, 3);
    draw_rows(&c, &rng);
    draw_places(&c, &rng);
    snprintf(c.shape, sizeof c.shape,
             "%s pages=%lldx%d page_stride=%lld rows=%lld slots=%lld ratio=%d floor=%d%s%s",
             mmla_kv_format_name(format), (long long)c.desc.cache.n_pages, page_tokens,
             (long long)c.desc.cache.page_stride_bytes, (long long)c.args.n_rows,
             (long long)c.args.n_slots, c.desc.ratio, (int)c.desc.scale_floor,
             c.desc.norm != 0 ? " norm" : "", c.n_faults > 0 ? " faults" : "");
    return c;
}

static void insert_case_destroy(insert_case *c) {
    check_buffer_destroy(&c->rows);
    check_buffer_destroy(&c->positions);
    check_buffer_destroy(&c->slots);
    check_buffer_destroy(&c->cos_sin);
    check_buffer_destroy(&c->norm_weight);
}

/* One run into a cache filled with `fill`. False when the plan is refused. */
static bool insert_run(const insert_case *c,
                       mmla_context *ctx,
                       const device_options *staging,
                       const char *name,
                       uint8_t fill,
                       check_buffer *cache,
                       check_verdict *verdict) {
    mmla_kv_insert_desc desc = c->desc;
    desc.implementation = name;
    mmla_error err = {0};
    mmla_kv_insert_plan *plan;
    const mmla_status planned = mmla_kv_insert_plan_create(ctx, &desc, &plan, &err);
    *cache = (check_buffer){0};
    if (planned != MMLA_OK) {
        if (planned != MMLA_E_NO_IMPLEMENTATION) {
            check_verdict_fail(verdict, "the plan was refused: %s", err.message);
        }
        return planned != MMLA_E_NO_IMPLEMENTATION;
    }
    *cache = c->n_parts > 0 ? check_buffer_create_sparse(c->cache_bytes)
                            : check_buffer_create(c->cache_bytes, 16, fill);
    int32_t n_faults = FAULTS_BEFORE;
    mmla_kv_insert_args args = c->args;
    args.cache = cache->data;
    args.n_faults = &n_faults;
    args.error = &err;
    device_call call = {
        .ctx = ctx, .options = staging, .workspace_bytes = mmla_kv_insert_workspace_bytes(plan)};
    const mmla_status status = device_call_kv_insert(&call, plan, &desc, &args);
    const mmla_status wanted = check_status_wanted(ctx, c->n_faults > 0);
    check_verdict_damage(verdict, &call);
    if (status != wanted || n_faults - FAULTS_BEFORE != c->n_faults) {
        check_verdict_fail(verdict, "run returned %s and %d faults, not %s and %d: %s",
                           mmla_status_name(status), n_faults - FAULTS_BEFORE,
                           mmla_status_name(wanted), c->n_faults, err.message);
    }
    if (!check_buffer_is_intact(cache)) {
        check_verdict_fail(verdict, "bytes before or behind the cache were written");
    }
    mmla_kv_insert_plan_destroy(plan);
    return true;
}

/* Bytes that keep either filling were not written: their number is known. */
static void check_untouched(const insert_case *c,
                            const check_buffer *a,
                            const check_buffer *b,
                            check_verdict *verdict) {
    int64_t written = 0;
    if (c->n_parts > 0) { /* which has one filling */
        return;
    }
    for (int64_t i = 0; i < a->bytes && b->data != NULL; i++) {
        written += a->data[i] == b->data[i];
    }
    const int64_t wanted = c->n_written * mmla_kv_record_bytes(c->desc.cache.format);
    if (written != wanted) {
        check_verdict_fail(verdict, "%lld bytes were written, %lld records have %lld",
                           (long long)written, (long long)c->n_written, (long long)wanted);
    }
}

static void compare(const insert_case *c,
                    const check_buffer *got,
                    const check_buffer *want,
                    check_verdict *verdict) {
    if (got->data == NULL || want->data == NULL) {
        check_verdict_fail(verdict, "there is nothing to compare: the reference failed");
        return;
    }
    const device_part whole = {0, got->bytes}, *parts = c->n_parts > 0 ? c->parts : &whole;
    for (int64_t i = 0; i < (c->n_parts > 0 ? c->n_parts : 1); i++) {
        const int64_t off = parts[i].off;
        const int64_t at = check_bytes_compare(got->data + off, want->data + off, parts[i].bytes);
        if (at >= 0) {
            check_verdict_fail(verdict, "cache byte %lld is 0x%02X, reference 0x%02X",
                               (long long)(off + at), got->data[off + at], want->data[off + at]);
        }
    }
}

static void run_case(check_session *s, int64_t idx) {
    enum { FILL_A = 0x5A, FILL_B = 0xC3 };
    if (s->options.copies && idx == CASE_FAR) {
        return; /* copies in host memory would take gigabytes of it */
    }
    insert_case c = insert_case_create(s, idx);
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    check_buffer a[CHECK_IMPLEMENTATIONS_MAX] = {0}, b[CHECK_IMPLEMENTATIONS_MAX] = {0};
    check_verdict verdicts[CHECK_IMPLEMENTATIONS_MAX] = {0}, reference = {0};
    bool ran[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "kv_insert", names);
    const device_options staging = check_session_staging(s, false, idx);
    const device_options other = check_session_staging(s, true, idx);
    for (int i = 0; i < n; i++) {
        ran[i] = insert_run(&c, s->many, &staging, names[i], FILL_A, &a[i], &verdicts[i]) &&
                 insert_run(&c, s->other, &other, names[i], FILL_B, &b[i], &verdicts[i]);
    }
    check_buffer want_a, want_b;
    insert_run(&c, s->host, NULL, "reference", FILL_A, &want_a, &reference);
    insert_run(&c, s->host, NULL, "reference", FILL_B, &want_b, &reference);
    for (int i = 0; i < n; i++) {
        if (!ran[i]) {
            check_session_refuse(s, "kv_insert", names[i]);
            continue;
        }
        check_session_corrupt(s, a[i].data, c.n_parts > 0 ? c.parts[0].bytes : a[i].bytes);
        compare(&c, &a[i], &want_a, &verdicts[i]);
        compare(&c, &b[i], &want_b, &verdicts[i]);
        check_untouched(&c, &a[i], &b[i], &verdicts[i]);
        check_session_record(s, "kv_insert", names[i], true, idx, c.shape, &verdicts[i]);
    }
    for (int i = 0; i < n; i++) {
        check_buffer_destroy(&a[i]);
        check_buffer_destroy(&b[i]);
    }
    check_buffer_destroy(&want_a);
    check_buffer_destroy(&want_b);
    insert_case_destroy(&c);
}

const check_suite check_suite_kv_insert = {"kv_insert", "kv_insert", CASES_QUICK,
                                           CASES_FULL,  run_case,    false};
