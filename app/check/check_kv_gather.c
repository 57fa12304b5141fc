/* check_kv_gather.c - every implementation of kv_gather gives the reference's rows and no others.
 *
 * The reference is asked for the same call in plain words: how many records each request has and takes
 * is worked out here, so that it is no opinion of the library what a ratio, a window or rows of the call
 * mean.
 *
 * Caches hold random bytes: every code under every scale, NaN codes and NaN scales among them. The
 * last cases are large: more requests than 16 bits count, and pages that begin beyond 2^31 bytes.
 */
#include <stdio.h>

#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_cache.h"
#include "app/check/check_rng.h"

enum { D = MMLA_LATENT_DIM, FAULTS_BEFORE = 7, PAGES_MAX = 5 };
enum { CASES_QUICK = 100, CASES_DRAWN = 1500, CASE_MANY = CASES_DRAWN, CASE_FAR, CASES_FULL };

typedef struct gather_case {
    mmla_kv_gather_desc desc;
    mmla_kv_gather_args args;
    check_buffer cache, table, seq_lens, gather_lens, query_start;
    check_buffer has, takes; /* [R] records of each request, and how many of them are wanted */
    int32_t n_faults;
    int64_t out_elements;
    device_part parts[PAGES_MAX]; /* the pages' records */
    int64_t n_parts;
    char shape[CHECK_TEXT_BYTES];
} gather_case;

/* M and offset of the call. */
static int64_t rows_of(const gather_case *c) {
    return c->args.rows > 0 ? c->args.rows : c->desc.rows;
}

static int64_t offset_of(const gather_case *c) {
    return c->args.rows > 0 ? c->args.offset : c->desc.offset;
}

static int64_t clamp(int64_t x, int64_t most) {
    return x < 0 ? 0 : x < most ? x : most;
}

/* How many of its `has` records request r takes: the last gather_lens, all, or those from the first
 * position on that a query of the call sees. */
static int64_t wanted_of(const gather_case *c, int64_t r, int64_t has) {
    if (c->args.gather_lens != NULL) {
        return clamp(c->args.gather_lens[r], has);
    }
    if (c->desc.window == 0) {
        return has;
    }
    const int32_t *start = c->args.query_start + r;
    const int64_t first_query = has - clamp((int64_t)start[1] - start[0], has);
    return has - clamp(first_query - c->desc.window + 1, has);
}

static void draw_queries(gather_case *c, check_rng *rng) {
    const int64_t n = c->args.n_requests;
    const int32_t wild[] = {INT32_MIN, -1, 0, INT32_MAX};
    c->query_start = check_buffer_create((n + 1) * 4, 4, 0xFF);
    int32_t *starts = (int32_t *)c->query_start.data, start = (int32_t)check_rng_below(rng, 9);
    for (int64_t r = 0; r <= n; r++) {
        starts[r] = check_rng_chance(rng, 0.05) ? wild[check_rng_below(rng, 4)] : start;
        start += (int32_t)check_rng_below(rng, check_rng_chance(rng, 0.5) ? 3 : 200);
    }
    c->args.query_start = starts;
}

static void draw_requests(gather_case *c, bool with_gather_lens, check_rng *rng) {
    const mmla_kv_gather_desc *d = &c->desc;
    const int64_t n = c->args.n_requests, room = rows_of(c) - offset_of(c);
    const int64_t reach = (int64_t)d->table_width * d->cache.page_tokens;
    const int32_t wild[] = {INT32_MIN, -1, 0, INT32_MAX};
    c->table = check_buffer_create(n * d->table_stride * 4, 4, 0xFF);
    c->seq_lens = check_buffer_create(n * 4, 4, 0xFF);
    c->has = check_buffer_create(n * 4, 4, 0xFF);
    c->takes = check_buffer_create(n * 4, 4, 0xFF);
    c->gather_lens = with_gather_lens ? check_buffer_create(n * 4, 4, 0xFF) : (check_buffer){0};
    c->args.block_table = (const int32_t *)c->table.data;
    c->args.seq_lens = (const int32_t *)c->seq_lens.data;
    c->args.gather_lens = (const int32_t *)c->gather_lens.data;
    if (d->window > 0 && !with_gather_lens) {
        draw_queries(c, rng);
    }
    for (int64_t r = 0; r < n; r++) {
        int32_t *table = (int32_t *)c->table.data + r * d->table_stride;
        for (int64_t k = 0; k < d->table_stride; k++) {
            table[k] = check_rng_chance(rng, 0.15)
                           ? check_rng_bad_index(rng, d->cache.n_pages)
                           : (int32_t)check_rng_below(rng, d->cache.n_pages);
        }
        /* Some sequences reach past the block table. */
        const int32_t most = (int32_t)(reach + reach / 4 + 2) * (d->ratio == 2 ? 2 : 1);
        int32_t seq = (int32_t)check_rng_below(rng, most);
        int32_t wanted = (int32_t)check_rng_below(rng, room + 3);
        seq = check_rng_chance(rng, 0.15) ? wild[check_rng_below(rng, 4)] : seq;
        wanted = check_rng_chance(rng, 0.1) ? wild[check_rng_below(rng, 4)] : wanted;
        ((int32_t *)c->seq_lens.data)[r] = seq;
        if (with_gather_lens) {
            ((int32_t *)c->gather_lens.data)[r] = wanted;
        }
        const int64_t has = clamp(d->ratio == 2 ? seq / 2 : seq, INT32_MAX);
        const int64_t takes = wanted_of(c, r, has);
        ((int32_t *)c->has.data)[r] = (int32_t)has;
        ((int32_t *)c->takes.data)[r] = (int32_t)takes;
        c->n_faults += takes > room;
    }
}

/* The same call without a ratio, a window or rows of its own; it owns nothing. */
static gather_case plain_case(const gather_case *c) {
    gather_case plain = *c;
    plain.desc.ratio = 0;
    plain.desc.window = 0;
    plain.desc.rows = rows_of(c);
    plain.desc.offset = offset_of(c);
    plain.args.rows = 0;
    plain.args.seq_lens = (const int32_t *)c->has.data;
    plain.args.gather_lens = (const int32_t *)c->takes.data;
    plain.args.query_start = NULL;
    return plain;
}

static void draw_form(gather_case *c, bool many, check_rng *rng) {
    static const int32_t windows[] = {1, 2, 63, 128, 129, INT32_MAX};
    mmla_kv_gather_desc *d = &c->desc;
    d->rows = 1 + check_rng_below(rng, many ? 2 : 150);
    d->offset = check_rng_below(rng, d->rows + 1) / (1 + check_rng_below(rng, 3));
    if (check_rng_chance(rng, 0.4)) {
        c->args.rows = 1 + check_rng_below(rng, many ? 2 : 200);
        c->args.offset = check_rng_below(rng, c->args.rows + 1) / (1 + check_rng_below(rng, 3));
    }
    d->ratio = (int32_t)check_rng_below(rng, 3);
    if (d->ratio != 2 && check_rng_chance(rng, 0.6)) {
        d->window = windows[check_rng_below(rng, 6)];
    }
}

static gather_case gather_case_create(const check_session *s, int64_t idx) {
    static const int32_t pages[] = {1, 2, 16, 61, 64, 128, 256};
    const uint64_t seed = s->options.seed;
    check_rng rng = check_rng_at(seed, 0x676174, (uint64_t)idx);
    const mmla_kv_format format = (mmla_kv_format)(MMLA_KV_V4 + check_draw(seed, 40, idx, 3));
    const int32_t page_tokens = idx >= CASES_DRAWN ? 64 : pages[check_draw(seed, 41, idx, 7)];
    const int stride = idx >= CASES_DRAWN ? 0 : check_draw(seed, 42, idx, CHECK_STRIDES);
    gather_case c = {.desc = {.cache = {.format = format,
                                        .page_tokens = page_tokens,
                                        .n_pages = 1 + check_rng_below(&rng, 4)}}};
    const int64_t records = page_tokens * mmla_kv_record_bytes(format);
    const int64_t more[] = {0, 0, 16 * (1 + check_rng_below(&rng, 97)), 1 << 20};
    c.desc.cache.page_stride_bytes = stride == 0 ? 0 : (records + 15) / 16 * 16 + more[stride];
    if (idx == CASE_FAR) {
        c.desc.cache.n_pages = PAGES_MAX;
        c.desc.cache.page_stride_bytes = ((int64_t)1 << 31) / (PAGES_MAX - 1) + 16;
    }
    const int64_t page_bytes = c.desc.cache.page_stride_bytes == 0
                                   ? mmla_kv_page_bytes(format, page_tokens)
                                   : c.desc.cache.page_stride_bytes;
    const int64_t cache_bytes = c.desc.cache.n_pages * page_bytes;
    c.cache = idx == CASE_FAR ? check_buffer_create_sparse(cache_bytes)
                              : check_buffer_create(cache_bytes, 16, 0);
    for (int64_t page = 0; page < c.desc.cache.n_pages; page++) {
        c.parts[c.n_parts++] = (device_part){page * page_bytes, records};
        for (int64_t i = 0; i < records; i++) {
            c.cache.data[page * page_bytes + i] = (uint8_t)(check_rng_next(&rng) >> 32);
        }
    }
    c.args.cache = c.cache.data;
    c.args.n_requests = idx == CASE_MANY ? 70000 : check_rng_below(&rng, 6);
    c.desc.max_requests = c.args.n_requests + check_rng_below(&rng, 2);
    c.desc.table_width = 1 + (int32_t)check_rng_below(&rng, 5);
    c.desc.table_stride = c.desc.table_width + check_rng_below(&rng, 3);
    draw_form(&c, idx == CASE_MANY, &rng);
    c.desc.row_stride = D + 8 * check_rng_below(&rng, 3);
    c.out_elements = c.args.n_requests * rows_of(&c) * c.desc.row_stride;
    draw_requests(&c, check_rng_chance(&rng, 0.6), &rng);
    snprintf(c.shape, sizeof c.shape,
             "%s pages=%lldx%d page_stride=%lld requests=%lld table=%d rows=%lld offset=%lld%s "
             "ratio=%d window=%d%s%s",
             mmla_kv_format_name(format), (long long)c.desc.cache.n_pages, page_tokens,
             (long long)c.desc.cache.page_stride_bytes, (long long)c.args.n_requests,
             c.desc.table_width, (long long)rows_of(&c), (long long)offset_of(&c),
             c.args.rows > 0 ? " of the call" : "", c.desc.ratio, c.desc.window,
             c.args.gather_lens != NULL ? " gather_lens" : "", c.n_faults > 0 ? " faults" : "");
    return c;
}

static void gather_case_destroy(gather_case *c) {
    check_buffer_destroy(&c->cache);
    check_buffer_destroy(&c->table);
    check_buffer_destroy(&c->seq_lens);
    check_buffer_destroy(&c->gather_lens);
    check_buffer_destroy(&c->query_start);
    check_buffer_destroy(&c->has);
    check_buffer_destroy(&c->takes);
}

static bool gather_run(const gather_case *c,
                       mmla_context *ctx,
                       const device_options *staging,
                       const char *name,
                       uint8_t poison,
                       check_buffer *out,
                       check_verdict *verdict) {
    mmla_kv_gather_desc desc = c->desc;
    desc.implementation = name;
    mmla_error err = {0};
    mmla_kv_gather_plan *plan;
    const mmla_status planned = mmla_kv_gather_plan_create(ctx, &desc, &plan, &err);
    *out = (check_buffer){0};
    if (planned != MMLA_OK) {
        if (planned != MMLA_E_NO_IMPLEMENTATION) {
            check_verdict_fail(verdict, "the plan was refused: %s", err.message);
        }
        return planned != MMLA_E_NO_IMPLEMENTATION;
    }
    *out = check_buffer_create(c->out_elements * 2, 16, poison);
    int32_t n_faults = FAULTS_BEFORE;
    mmla_kv_gather_args args = c->args;
    args.out = (uint16_t *)out->data;
    args.n_faults = &n_faults;
    args.error = &err;
    device_call call = {
        .ctx = ctx, .options = staging, .workspace_bytes = mmla_kv_gather_workspace_bytes(plan)};
    const mmla_status status = device_call_kv_gather(&call, plan, &desc, &args);
    const mmla_status wanted = check_status_wanted(ctx, c->n_faults > 0);
    check_verdict_damage(verdict, &call);
    if (status != wanted || n_faults - FAULTS_BEFORE != c->n_faults) {
        check_verdict_fail(verdict, "run returned %s and %d faults, not %s and %d: %s",
                           mmla_status_name(status), n_faults - FAULTS_BEFORE,
                           mmla_status_name(wanted), c->n_faults, err.message);
    }
    if (!check_buffer_is_intact(out)) {
        check_verdict_fail(verdict, "bytes before or behind the rows were written");
    }
    mmla_kv_gather_plan_destroy(plan);
    return true;
}

/* Equal bits, or NaN on both sides: its sign and payload are nobody's promise. Poison counts as
 * bits, so a row that is not to be written shows. */
static void compare(const check_buffer *got, const check_buffer *want, check_verdict *verdict) {
    if (got->data == NULL || want->data == NULL) {
        check_verdict_fail(verdict, "there is nothing to compare: the reference failed");
        return;
    }
    const uint16_t *a = (const uint16_t *)got->data, *b = (const uint16_t *)want->data;
    for (int64_t i = 0; i < got->bytes / 2; i++) {
        const bool nan = (a[i] & 0x7FFF) > 0x7F80 && (b[i] & 0x7FFF) > 0x7F80;
        if (a[i] != b[i] && !nan) {
            check_verdict_fail(verdict, "element %lld of the workspace is 0x%04X, reference 0x%04X",
                               (long long)i, a[i], b[i]);
            return;
        }
    }
}

static void run_case(check_session *s, int64_t idx) {
    /* Neither is NaN in bf16, twice over. */
    enum { POISON_A = 0x5A, POISON_B = 0xC3 };
    if (s->options.copies && idx == CASE_FAR) {
        return; /* copies in host memory would take gigabytes of it */
    }
    gather_case c = gather_case_create(s, idx);
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    check_buffer a[CHECK_IMPLEMENTATIONS_MAX] = {0}, b[CHECK_IMPLEMENTATIONS_MAX] = {0};
    check_verdict verdicts[CHECK_IMPLEMENTATIONS_MAX] = {0}, reference = {0};
    bool ran[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "kv_gather", names);
    const device_options staging = check_session_staging(s, false, idx);
    const device_options other = check_session_staging(s, true, idx);
    for (int i = 0; i < n; i++) {
        ran[i] = gather_run(&c, s->many, &staging, names[i], POISON_A, &a[i], &verdicts[i]) &&
                 gather_run(&c, s->other, &other, names[i], POISON_B, &b[i], &verdicts[i]);
    }
    const gather_case plain = plain_case(&c);
    check_buffer want_a, want_b;
    gather_run(&plain, s->host, NULL, "reference", POISON_A, &want_a, &reference);
    gather_run(&plain, s->host, NULL, "reference", POISON_B, &want_b, &reference);
    for (int i = 0; i < n; i++) {
        if (ran[i]) {
            check_session_corrupt(s, a[i].data, a[i].bytes);
            compare(&a[i], &want_a, &verdicts[i]);
            compare(&b[i], &want_b, &verdicts[i]);
            check_session_record(s, "kv_gather", names[i], true, idx, c.shape, &verdicts[i]);
        } else {
            check_session_refuse(s, "kv_gather", names[i]);
        }
        check_buffer_destroy(&a[i]);
        check_buffer_destroy(&b[i]);
    }
    check_buffer_destroy(&want_a);
    check_buffer_destroy(&want_b);
    gather_case_destroy(&c);
}

const check_suite check_suite_kv_gather = {"kv_gather", "kv_gather", CASES_QUICK,
                                           CASES_FULL,  run_case,    false};
