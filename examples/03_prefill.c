/* 03_prefill.c - prefill: gather quantised caches into a bf16 workspace, then attend from it.
 *
 * Two requests of a layer of ratio 2. The first has 40 tokens, all new. The second has 150, of
 * which 10 are new: it finds the rest in its caches. The steps, as an engine takes them:
 *
 *     insert rows and records -> chunk of requests -> gather records, gather window rows
 *     -> combined lists -> attention over the workspace
 *
 * Then the same in one call, mmla_prefill_run, which knows these steps and a shorter way round them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <megamla/megamla.h>

enum {
    R = 2, /* requests */
    FIRST = 40,
    SECOND = 150,
    ALL = FIRST + SECOND,
    NEW = FIRST + 10, /* query tokens */
    H = 8,
    W = 128,
    RATIO = 2,
    TOPK = 512,
    WINDOW_PAGE = 32,
    RECORD_PAGE = 64,
    B = 5, /* block-table entries of a request */
    PAGES = R * B,
    D = MMLA_LATENT_DIM
};

static mmla_error err; /* every call below reports into it */

static void check(mmla_status status, const char *what) {
    if (status != MMLA_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, mmla_status_name(status), err.message);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* n bf16 of about -1 .. 1. */
static uint16_t *made_up_rows(size_t n, uint32_t seed) {
    uint16_t *rows = allocate(n * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = (float)(seed >> 8) * 0x1p-23f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        rows[i] = (uint16_t)(bits >> 16);
    }
    return rows;
}

static void
insert(mmla_context *ctx, mmla_cache_desc cache, int32_t ratio, mmla_kv_insert_args args) {
    const mmla_kv_insert_desc desc = {
        .cache = cache, .max_tokens = ALL, .ratio = ratio, .rope_positions = SECOND};
    mmla_kv_insert_plan *plan;
    args.n_rows = args.n_slots = ALL;
    args.error = &err;
    CHECK(mmla_kv_insert_plan_create(ctx, &desc, &plan, &err));
    CHECK(mmla_kv_insert_run(plan, &args, NULL, NULL));
    mmla_kv_insert_plan_destroy(plan);
}

static void gather(mmla_context *ctx, mmla_kv_gather_desc desc, mmla_kv_gather_args args) {
    mmla_kv_gather_plan *plan;
    desc.max_requests = args.n_requests = R;
    desc.table_width = B;
    args.error = &err;
    CHECK(mmla_kv_gather_plan_create(ctx, &desc, &plan, &err));
    CHECK(mmla_kv_gather_run(plan, &args, NULL, NULL));
    mmla_kv_gather_plan_destroy(plan);
}

static void build(mmla_context *ctx, mmla_list_desc desc, mmla_list_args args) {
    mmla_list_plan *plan;
    desc.max_tokens = ALL;
    desc.max_requests = args.n_requests = R;
    args.error = &err;
    CHECK(mmla_list_plan_create(ctx, &desc, &plan, &err));
    CHECK(mmla_list_run(plan, &args, NULL, NULL));
    mmla_list_plan_destroy(plan);
}

static void prefill(mmla_context *ctx, mmla_prefill_desc desc, mmla_prefill_args args) {
    mmla_prefill_plan *plan;
    args.error = &err;
    CHECK(mmla_prefill_plan_create(ctx, &desc, &plan, &err));
    void *workspace = allocate(mmla_prefill_workspace_bytes(plan));
    CHECK(mmla_prefill_run(plan, &args, workspace, NULL));
    mmla_prefill_plan_destroy(plan);
    free(workspace);
}

/* Row t of a tensor of bf16, as doubles; the last 64 dims are turned, pair by pair, by the angles of
 * a position. */
static void
turned_row(const uint16_t *rows, int64_t t, const float *cos_sin, int64_t position, double *x) {
    const float *c = cos_sin + position * MMLA_ROPE_DIM, *s = c + MMLA_ROPE_DIM / 2;
    for (int i = 0; i < D; i++) {
        const uint32_t bits = (uint32_t)rows[t * D + i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        x[i] = (double)value;
    }
    for (int i = 0; i < MMLA_ROPE_DIM / 2; i++) {
        double *pair = x + D - MMLA_ROPE_DIM + 2 * i;
        const double even = pair[0], odd = pair[1];
        pair[0] = even * (double)c[i] - odd * (double)s[i];
        pair[1] = odd * (double)c[i] + even * (double)s[i];
    }
}

/* What a query sees of one tensor: e += exp(logit), o += exp(logit) * key, on unquantised keys. */
struct sums {
    double query[D], e, o[D];
    int n_keys;
};

static void add_key(
    struct sums *sums, const uint16_t *rows, int64_t t, const float *cos_sin, int64_t position) {
    double key[D], dot = 0.0;
    turned_row(rows, t, cos_sin, position, key);
    for (int i = 0; i < D; i++) {
        dot += sums->query[i] * key[i];
    }
    const double e = exp(dot / sqrt(D));
    sums->e += e;
    sums->n_keys++;
    for (int i = 0; i < D; i++) {
        sums->o[i] += e * key[i];
    }
}

/* e4m3 code times 2^(scale byte - 127). */
static double decode(uint8_t code, uint8_t scale) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude =
        exponent > 0 ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return ldexp(code & 0x80 ? -magnitude : magnitude, scale - 127);
}

int main(void) {
    mmla_context *ctx;
    CHECK(mmla_context_create(NULL, &ctx, &err));
    static float cos_sin[SECOND * MMLA_ROPE_DIM];
    mmla_rope_desc rope;
    CHECK(mmla_rope_desc_for_ratio(RATIO, &rope, &err));
    CHECK(mmla_rope_table_fill(&rope, 0, SECOND, cos_sin, &err));

    /* The caches, filled with everything that has been seen so far: a row a token, and a record
     * for each pair of tokens that is complete. COMPRESSED_SLOTS says which tokens those are. */
    const mmla_cache_desc window = {MMLA_KV_V41_FP8, WINDOW_PAGE, PAGES, 0};
    const mmla_cache_desc records = {MMLA_KV_V41_FP4, RECORD_PAGE, PAGES, 0};
    const int32_t table[R * B] = {9, 4, -1, -1, -1, 0, 8, 3, 1, 5};
    void *window_cache = allocate((size_t)(PAGES * mmla_kv_page_bytes(window.format, WINDOW_PAGE)));
    void *record_cache =
        allocate((size_t)(PAGES * mmla_kv_page_bytes(records.format, RECORD_PAGE)));
    static int64_t positions[ALL], slots[ALL], record_slots[ALL];
    static int32_t request[ALL];
    for (int t = 0; t < ALL; t++) {
        request[t] = t >= FIRST;
        positions[t] = t < FIRST ? t : t - FIRST;
        slots[t] = (int64_t)table[request[t] * B + positions[t] / WINDOW_PAGE] * WINDOW_PAGE +
                   positions[t] % WINDOW_PAGE;
    }
    build(ctx,
          (mmla_list_desc){.kind = MMLA_LIST_COMPRESSED_SLOTS,
                           .page_tokens = RECORD_PAGE,
                           .n_pages = PAGES,
                           .table_width = B,
                           .ratio = RATIO},
          (mmla_list_args){.n_tokens = ALL,
                           .positions = positions,
                           .slots = slots,
                           .request = request,
                           .block_table = table,
                           .out_slots = record_slots});
    uint16_t *rows = made_up_rows(ALL * D, 1), *latents = made_up_rows(ALL * D, 2);
    insert(ctx, window, 1,
           (mmla_kv_insert_args){.rows = rows,
                                 .positions = positions,
                                 .slots = slots,
                                 .cos_sin = cos_sin,
                                 .cache = window_cache});
    insert(ctx, records, RATIO,
           (mmla_kv_insert_args){.rows = latents,
                                 .positions = positions,
                                 .slots = record_slots,
                                 .cos_sin = cos_sin,
                                 .cache = record_cache});

    /* One chunk holds both requests: N record rows and M rows in all for each of them. */
    const int32_t query_lens[R] = {FIRST, NEW - FIRST}, seq_lens[R] = {FIRST, SECOND};
    const mmla_prefill_chunk_desc chunks = {
        .window = W, .ratio = RATIO, .max_model_tokens = 4096, .max_batch_tokens = 512};
    mmla_prefill_chunk chunk;
    CHECK(mmla_prefill_chunk_next(&chunks, query_lens, seq_lens, R, 0, &chunk, &err));
    printf("requests %d .. %d share a workspace of %d x %d rows, %d of them records\n",
           (int)chunk.first, (int)chunk.last - 1, R, (int)chunk.m, (int)chunk.n);

    uint16_t *workspace_rows = allocate(sizeof(uint16_t) * (size_t)(R * chunk.m) * D);
    const int32_t query_start[R + 1] = {0, FIRST, NEW};
    gather(ctx, (mmla_kv_gather_desc){.cache = records, .rows = chunk.m, .ratio = RATIO},
           (mmla_kv_gather_args){.block_table = table,
                                 .seq_lens = seq_lens,
                                 .cache = record_cache,
                                 .out = workspace_rows});
    gather(ctx,
           (mmla_kv_gather_desc){.cache = window, .rows = chunk.m, .offset = chunk.n, .window = W},
           (mmla_kv_gather_args){.block_table = table,
                                 .seq_lens = seq_lens,
                                 .query_start = query_start,
                                 .cache = window_cache,
                                 .out = workspace_rows});

    /* An indexer would pick; in a context this short every record that a token sees is picked. */
    enum { WIDTH = TOPK + W };
    int32_t *topk = allocate(sizeof *topk * NEW * TOPK),
            *list = allocate(sizeof *list * NEW * WIDTH);
    static int32_t lens[NEW], query_positions[NEW], query_request[NEW];
    for (int t = 0; t < NEW; t++) {
        query_request[t] = t >= FIRST;
        query_positions[t] = t < FIRST ? t : SECOND - NEW + t;
        for (int k = 0; k < TOPK; k++) {
            topk[t * TOPK + k] = k < (query_positions[t] + 1) / RATIO ? k : -1;
        }
    }
    build(ctx,
          (mmla_list_desc){.kind = MMLA_LIST_COMBINED,
                           .window = W,
                           .width = WIDTH,
                           .topk_width = TOPK,
                           .topk = TOPK,
                           .ratio = RATIO,
                           .request_rows = chunk.m,
                           .window_offset = chunk.n},
          (mmla_list_args){.n_tokens = NEW,
                           .query_start = query_start,
                           .seq_lens = seq_lens,
                           .topk = topk,
                           .list = list,
                           .lens = lens});

    const mmla_attend_desc desc = {.kind = MMLA_ATTEND_ROWS,
                                   .n_heads = H,
                                   .max_tokens = NEW,
                                   .scale = 1.0f / sqrtf(D),
                                   .rope_positions = SECOND,
                                   .out_form = MMLA_OUT_FP8,
                                   .list_width = WIDTH,
                                   .max_rows = R * chunk.m};
    mmla_attend_plan *attend;
    CHECK(mmla_attend_plan_create(ctx, &desc, &attend, &err));
    void *scratch = allocate(mmla_attend_workspace_bytes(attend));
    uint16_t *q = made_up_rows(NEW * H * D, 3);
    uint8_t *out = allocate(NEW * H * D), *out_scale = allocate(NEW * H * 16);
    static float lse[NEW * H];
    CHECK(mmla_attend_run(attend,
                          &(mmla_attend_args){.n_tokens = NEW,
                                              .q = q,
                                              .positions = query_positions,
                                              .cos_sin = cos_sin,
                                              .list = list,
                                              .lens = lens,
                                              .kv = workspace_rows,
                                              .n_rows = R * chunk.m,
                                              .out = out,
                                              .out_scale = out_scale,
                                              .lse = lse,
                                              .error = &err},
                          scratch, NULL));
    const int shown[] = {0, 1, FIRST - 1, FIRST, NEW - 1};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const int t = shown[i];
        printf("request %d, position %3d: %3d keys, lse of head 0 %.4f\n", t >= FIRST,
               query_positions[t], lens[t], lse[t * H]);
    }

    /* Are they right? Each query of head 0 once more from the rows themselves: the records of the
     * pairs before it, rotated at the pair's first position, and the window. FP4 keys, a third of
     * all, are off by up to a sixth either way, so a mean of n keys has a deviation of about
     * 0.06 / sqrt(n), and their logits one of half that: five of those, and a sixteenth for the FP8
     * result. The dims that are rotated back are left out. */
    int wrong = 0;
    for (int t = 0; t < NEW; t++) {
        struct sums sums = {.n_keys = 0};
        const int64_t first_row = t < FIRST ? 0 : FIRST, position = query_positions[t];
        turned_row(q, (int64_t)t * H, cos_sin, position, sums.query);
        for (int64_t p = RATIO - 1; p <= position; p += RATIO) {
            add_key(&sums, latents, first_row + p, cos_sin, p / RATIO * RATIO);
        }
        for (int64_t p = position < W ? 0 : position - W + 1; p <= position; p++) {
            add_key(&sums, rows, first_row + p, cos_sin, p);
        }
        wrong += lens[t] != sums.n_keys;
        wrong += !(fabs(log(sums.e) - (double)lse[t * H]) < 0.16 / sqrt(sums.n_keys));
        for (int i = 0; i < D - MMLA_ROPE_DIM; i++) {
            const double got = decode(out[t * H * D + i], out_scale[t * H * 16 + i / 32]);
            const double want = sums.o[i] / sums.e;
            wrong += !(fabs(want - got) < 0.3 / sqrt(sums.n_keys) + fabs(want) / 16);
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "%d numbers differ from plain attention\n", wrong);
    }

    /* Once more, by one call that builds its lists itself. On the CPU it reads straight from the
     * caches, which hold the same numbers as the workspace: only the order of sums differs. */
    static float lse_again[NEW * H];
    prefill(ctx,
            (mmla_prefill_desc){.attend = {.n_heads = H,
                                           .max_tokens = NEW,
                                           .scale = desc.scale,
                                           .rope_positions = SECOND,
                                           .out_form = MMLA_OUT_FP8,
                                           .window = window,
                                           .compressed = records},
                                .max_requests = R,
                                .window = W,
                                .ratio = RATIO,
                                .topk_width = TOPK,
                                .window_table_width = B,
                                .compressed_table_width = B,
                                .max_rows = R * chunk.m},
            (mmla_prefill_args){.n_tokens = NEW,
                                .n_requests = R,
                                .host_query_lens = query_lens,
                                .host_seq_lens = seq_lens,
                                .q = q,
                                .positions = query_positions,
                                .cos_sin = cos_sin,
                                .query_start = query_start,
                                .seq_lens = seq_lens,
                                .request = query_request,
                                .topk = topk,
                                .window_table = table,
                                .compressed_table = table,
                                .window_cache = window_cache,
                                .compressed_cache = record_cache,
                                .out = out,
                                .out_scale = out_scale,
                                .lse = lse_again});
    int changed = 0;
    for (int i = 0; i < NEW * H; i++) {
        const double before = (double)lse[i], now = (double)lse_again[i];
        changed += !(fabs(now - before) <= 1e-4 * fmax(fabs(before), 1.0));
    }
    if (changed > 0) {
        fprintf(stderr, "%d lse of mmla_prefill_run differ from those of its steps\n", changed);
    }

    mmla_attend_plan_destroy(attend);
    mmla_context_destroy(ctx);
    void *const all[] = {window_cache, record_cache, rows, latents, workspace_rows, topk,
                         list,         scratch,      q,    out,     out_scale};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    return wrong > 0 || changed > 0;
}
