/* bench_sample.c - cutting tokens out of a call's inputs and results. */
#include "app/bench/bench_sample.h"

#include <math.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/check/check_attend_compare.h"

enum {
    D = MMLA_LATENT_DIM,
    WORDS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM / 4 /* of a group's scales */
};

/* No lse of the inputs that are drawn comes near it, and poison is far above. A token without keys
 * has the lse +inf. */
static const float lse_most = 1e6f;

int64_t bench_sample_pick(int64_t n_tokens, int64_t tokens[BENCH_SAMPLE_MAX]) {
    const int64_t n = n_tokens < BENCH_SAMPLE_MAX ? n_tokens : BENCH_SAMPLE_MAX;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = n > 1 ? i * (n_tokens - 1) / (n - 1) : 0;
    }
    return n;
}

/* Rows of the sampled tokens, one behind the other. */
static check_buffer
rows_pick(const bench_sample *x, const void *rows, int64_t stride_bytes, int64_t bytes) {
    check_buffer b = check_buffer_create(x->n * bytes, 64, 0);
    for (int64_t i = 0; i < x->n; i++) {
        memcpy(b.data + i * bytes, (const uint8_t *)rows + x->tokens[i] * stride_bytes,
               (size_t)bytes);
    }
    return b;
}

/* The same of a list, with slots modulo a tile. */
static check_buffer list_pick(
    const bench_sample *x, const int32_t *list, int64_t stride, int64_t width, int64_t n_slots) {
    check_buffer b = rows_pick(x, list, stride * 4, width * 4);
    for (int64_t i = 0; i < x->n * width; i++) {
        int32_t *slot = (int32_t *)b.data + i;
        *slot = *slot >= 0 && n_slots > 0 ? (int32_t)(*slot % n_slots) : *slot;
    }
    return b;
}

static int64_t slots_of(const mmla_cache_desc *tile) {
    return tile->n_pages * tile->page_tokens;
}

bench_sample bench_sample_create(const check_attend_case *call,
                                 const mmla_cache_desc *window_tile,
                                 const mmla_cache_desc *compressed_tile,
                                 mmla_context *host,
                                 check_verdict *verdict) {
    bench_sample x = {0};
    x.n = bench_sample_pick(call->args.n_tokens, x.tokens);
    check_attend_case *c = &x.c;
    const mmla_attend_desc *d = &call->desc;
    const bool has_compressed = d->compressed.format != MMLA_KV_NONE;
    c->desc = *d;
    c->args = call->args;
    c->lse_tolerance = call->lse_tolerance;
    c->desc.implementation = NULL;
    c->desc.max_tokens = c->args.n_tokens = x.n;
    c->desc.q_token_stride = c->desc.list_stride = c->desc.compressed_stride = 0;
    c->desc.window = *window_tile;
    c->desc.compressed = *compressed_tile;
    const int64_t q_bytes = (int64_t)d->n_heads * D * 2;
    c->q = rows_pick(&x, call->args.q, d->q_token_stride * 2, q_bytes);
    c->positions = rows_pick(&x, call->args.positions, 4, 4);
    c->lens = rows_pick(&x, call->args.lens, 4, 4);
    c->list = list_pick(&x, call->args.list, d->list_stride, d->list_width, slots_of(window_tile));
    c->args.q = (const uint16_t *)c->q.data;
    c->args.positions = (const int32_t *)c->positions.data;
    c->args.lens = (const int32_t *)c->lens.data;
    c->args.list = (const int32_t *)c->list.data;
    if (has_compressed) {
        c->compressed_lens = rows_pick(&x, call->args.compressed_lens, 4, 4);
        c->compressed_list = list_pick(&x, call->args.compressed_list, d->compressed_stride,
                                       d->compressed_width, slots_of(compressed_tile));
        c->args.compressed_lens = (const int32_t *)c->compressed_lens.data;
        c->args.compressed_list = (const int32_t *)c->compressed_list.data;
    }
    c->tokens = check_alloc(x.n * (int64_t)sizeof *c->tokens);
    for (int64_t i = 0; i < x.n; i++) {
        c->tokens[i] = CHECK_TOKEN_PLAIN;
    }
    const check_attend_call run = {
        .ctx = host, .implementation = "reference", .n_tokens = x.n, .poison = BENCH_SAMPLE_POISON};
    check_attend_call_run(&run, c, &x.want, verdict);
    if (x.want.bytes == NULL) {
        check_verdict_fail(verdict, "the reference did not run");
    }
    return x;
}

void bench_sample_destroy(bench_sample *x) {
    check_attend_result_destroy(&x->want);
    check_attend_case_destroy(&x->c);
    *x = (bench_sample){0};
}

/* Results of the sampled tokens, as a call of those alone would have left them. */
static check_attend_buffers results_pick(const bench_sample *x,
                                         const check_attend_case *call,
                                         const check_attend_buffers *from) {
    const int64_t h = x->c.desc.n_heads, n = call->args.n_tokens;
    const int64_t words = (n + 3) / 4 * 4, words_to = (x->n + 3) / 4 * 4;
    check_attend_buffers to = check_attend_buffers_create(&x->c.desc, x->n, BENCH_SAMPLE_POISON);
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t t = x->tokens[i];
        memcpy(to.out.data + i * h * D, from->out.data + t * h * D, (size_t)(h * D));
        memcpy(to.lse.data + i * h * 4, from->lse.data + t * h * 4, (size_t)h * 4);
        memcpy(to.max_logits.data + i * h * 4, from->max_logits.data + t * h * 4, (size_t)h * 4);
        for (int64_t w = 0; w < h / MMLA_HEADS_PER_GROUP * WORDS; w++) {
            memcpy(to.out_scale.data + (w * words_to + i) * 4,
                   from->out_scale.data + (w * words + t) * 4, 4);
        }
    }
    return to;
}

static bool has_keys(const mmla_attend_args *args, int64_t t) {
    return args->lens[t] > 0 || (args->compressed_lens != NULL && args->compressed_lens[t] > 0);
}

static void
look_at_all(const check_attend_case *call, const check_attend_buffers *got, check_verdict *v) {
    const int64_t h = call->desc.n_heads;
    for (int64_t i = 0; i < call->args.n_tokens * h; i++) {
        const float lse = ((const float *)got->lse.data)[i];
        if (has_keys(&call->args, i / h) ? !(fabsf(lse) < lse_most) : lse != INFINITY) {
            check_verdict_fail(v, "lse of token %lld, head %lld is %g", (long long)(i / h),
                               (long long)(i % h), (double)lse);
            return;
        }
    }
}

void bench_sample_compare(bench_sample *x,
                          const check_attend_case *call,
                          const check_attend_buffers *got,
                          const char *implementation,
                          bool chain,
                          check_verdict *verdict) {
    if (x->want.bytes == NULL) {
        return;
    }
    check_attend_buffers_check(got, &call->desc, call->args.n_tokens, BENCH_SAMPLE_POISON, verdict);
    check_attend_buffers some = results_pick(x, call, got);
    check_attend_result result = check_attend_result_create(&some, &x->c.desc, x->n);
    x->c.out_tolerance = check_attend_out_tolerance(implementation, BENCH_KEY_LARGEST);
    if (chain) { /* to bf16 before it rotates back, and again before it casts */
        x->c.out_tolerance.add += 0x1p-8 * check_attend_largest(&x->c, &x->want);
    }
    check_attend_compare(&x->c, 0, &result, &x->want, verdict);
    look_at_all(call, got, verdict);
    check_attend_result_destroy(&result);
    check_attend_buffers_destroy(&some);
}
