/* 01_insert_and_attend.c - store the keys of one request in a paged cache, then attend to them.
 *
 * One sequence of 300 tokens, 16 heads. All rows go into a window cache of 528-byte records; the
 * last four tokens then ask, each over its window of 128.
 *
 *     cc 01_insert_and_attend.c $(pkg-config --cflags --libs megamla) -lm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <megamla/megamla.h>

enum { TOKENS = 300, QUERY = 4, H = 16, W = 128, PAGE = 32, PAGES = 12, B = 10 };
enum { D = MMLA_LATENT_DIM };

static mmla_error err; /* every call below reports into it */

static void check(mmla_status status, const char *what) {
    if (status != MMLA_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, mmla_status_name(status), err.message);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

/* Numbers in place of a model's: bf16, the upper half of an fp32, of about -1 .. 1. */
static void make_up(uint16_t *rows, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = (float)(seed >> 8) * 0x1p-23f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        rows[i] = (uint16_t)(bits >> 16);
    }
}

static float to_float(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Turns the last 64 dims, pair by pair, by the angles of a position;
 * backwards with direction -1. */
static void rotate(double *x, const float *cos_sin, int position, int direction) {
    const float *c = cos_sin + position * MMLA_ROPE_DIM, *s = c + MMLA_ROPE_DIM / 2;
    for (int i = 0; i < MMLA_ROPE_DIM / 2; i++) {
        double *pair = x + D - MMLA_ROPE_DIM + 2 * i;
        const double even = pair[0], odd = pair[1], sine = direction * (double)s[i];
        pair[0] = even * (double)c[i] - odd * sine;
        pair[1] = odd * (double)c[i] + even * sine;
    }
}

/* Head 0 of the token at `position`, as a textbook has it, over rows that were never quantised. */
static double attend_plainly(
    const uint16_t *rows, const uint16_t *q, const float *cos_sin, int position, double *o) {
    double turned[D], key[D], z = 0.0;
    for (int x = 0; x < D; x++) {
        turned[x] = (double)to_float(q[x]);
        o[x] = 0.0;
    }
    rotate(turned, cos_sin, position, 1);
    for (int p = position - W + 1; p <= position; p++) {
        double dot = 0.0;
        for (int x = 0; x < D; x++) {
            key[x] = (double)to_float(rows[p * D + x]);
        }
        rotate(key, cos_sin, p, 1);
        for (int x = 0; x < D; x++) {
            dot += turned[x] * key[x];
        }
        const double e = exp(dot / sqrt(D)); /* |dot / sqrt(D)| is small: no maximum to subtract */
        z += e;
        for (int x = 0; x < D; x++) {
            o[x] += e * key[x];
        }
    }
    for (int x = 0; x < D; x++) {
        o[x] /= z;
    }
    rotate(o, cos_sin, position, -1);
    return log(z);
}

int main(void) {
    static _Alignas(64) uint16_t rows[TOKENS * D], q[QUERY * H * D], out[QUERY * H * D];
    static float cos_sin[TOKENS * MMLA_ROPE_DIM], lse[QUERY * H];
    static int64_t positions[TOKENS], slots[TOKENS];
    static int32_t list[QUERY * W], lens[QUERY];
    make_up(rows, TOKENS * D, 1);
    make_up(q, QUERY * H * D, 2);

    mmla_context *ctx;
    CHECK(mmla_context_create(NULL, &ctx, &err)); /* the CPU, all cores */

    /* Cosines and sines of this layer's positions; ratio 0 is a layer with a window only. */
    mmla_rope_desc rope;
    CHECK(mmla_rope_desc_for_ratio(0, &rope, &err));
    CHECK(mmla_rope_table_fill(&rope, 0, TOKENS, cos_sin, &err));

    /* A pool of pages; this request owns ten of them, in any order. */
    const mmla_cache_desc pool = {MMLA_KV_V41_FP8, PAGE, PAGES, 0};
    void *cache = aligned_alloc(64, (size_t)(PAGES * mmla_kv_page_bytes(pool.format, PAGE)));
    const int32_t pages[B] = {7, 2, 11, 0, 5, 4, 9, 1, 3, 8};
    for (int t = 0; t < TOKENS; t++) {
        positions[t] = t;
        slots[t] = (int64_t)pages[t / PAGE] * PAGE + t % PAGE;
    }

    /* Store every token's row at its slot; insert rotates and quantises. */
    const mmla_kv_insert_desc insert_desc = {
        .cache = pool, .max_tokens = TOKENS, .rope_positions = TOKENS};
    const mmla_kv_insert_args insert_args = {.n_rows = TOKENS,
                                             .n_slots = TOKENS,
                                             .rows = rows,
                                             .positions = positions,
                                             .slots = slots,
                                             .cos_sin = cos_sin,
                                             .cache = cache,
                                             .error = &err};
    mmla_kv_insert_plan *insert;
    CHECK(mmla_kv_insert_plan_create(ctx, &insert_desc, &insert, &err));
    CHECK(mmla_kv_insert_run(insert, &insert_args, NULL, NULL));

    /* Which slots does each of the last four tokens see? */
    const mmla_list_desc list_desc = {.kind = MMLA_LIST_WINDOW,
                                      .max_tokens = QUERY,
                                      .max_requests = 1,
                                      .window = W,
                                      .page_tokens = PAGE,
                                      .n_pages = PAGES,
                                      .table_width = B,
                                      .width = W};
    const int32_t query_start[] = {0, QUERY}, seq_lens[] = {TOKENS};
    const mmla_list_args list_args = {.n_tokens = QUERY,
                                      .n_requests = 1,
                                      .query_start = query_start,
                                      .seq_lens = seq_lens,
                                      .block_table = pages,
                                      .list = list,
                                      .lens = lens,
                                      .error = &err};
    mmla_list_plan *lists;
    CHECK(mmla_list_plan_create(ctx, &list_desc, &lists, &err));
    CHECK(mmla_list_run(lists, &list_args, NULL, NULL));

    /* The fused call. bf16 results, to look at; a model takes FP8 (example 02). */
    const mmla_attend_desc attend_desc = {.kind = MMLA_ATTEND_PAGED,
                                          .n_heads = H,
                                          .max_tokens = QUERY,
                                          .scale = 1.0f / sqrtf(D),
                                          .rope_positions = TOKENS,
                                          .out_form = MMLA_OUT_BF16,
                                          .list_width = W,
                                          .window = pool};
    const int32_t asked[QUERY] = {TOKENS - 4, TOKENS - 3, TOKENS - 2, TOKENS - 1};
    const mmla_attend_args attend_args = {.n_tokens = QUERY,
                                          .q = q,
                                          .positions = asked,
                                          .cos_sin = cos_sin,
                                          .list = list,
                                          .lens = lens,
                                          .window_cache = cache,
                                          .out = out,
                                          .lse = lse,
                                          .error = &err};
    mmla_attend_plan *attend;
    CHECK(mmla_attend_plan_create(ctx, &attend_desc, &attend, &err));
    void *workspace = aligned_alloc(64, (mmla_attend_workspace_bytes(attend) + 63) / 64 * 64);
    CHECK(mmla_attend_run(attend, &attend_args, workspace, NULL));

    printf("taken: %s\n", mmla_attend_plan_implementation(attend));
    for (int t = 0; t < QUERY; t++) {
        const uint16_t *o = out + t * H * D;
        printf("position %d: %d keys, head 0: lse %.4f, out %.4f %.4f %.4f ...\n", asked[t],
               lens[t], lse[t * H], to_float(o[0]), to_float(o[1]), to_float(o[2]));
    }

    /* Are they right? FP8 keys move lse and the mean of 128 rows by less than a hundredth. */
    int wrong = 0;
    for (int t = 0; t < QUERY; t++) {
        double o[D];
        wrong += lens[t] != W;
        wrong += !(fabs(attend_plainly(rows, q + t * H * D, cos_sin, asked[t], o) -
                        (double)lse[t * H]) < 0.01);
        for (int x = 0; x < D; x++) {
            wrong += !(fabs(o[x] - (double)to_float(out[t * H * D + x])) < 0.01);
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "%d numbers differ from plain attention\n", wrong);
    }

    mmla_attend_plan_destroy(attend);
    mmla_list_plan_destroy(lists);
    mmla_kv_insert_plan_destroy(insert);
    mmla_context_destroy(ctx);
    free(workspace);
    free(cache);
    return wrong > 0;
}
