/* bench_gpu_attend.c - the fused call and the chain of separate steps on a GPU, and what one call
 * costs the host. */
#include <stdio.h>
#include <string.h>

#include "app/bench/bench_gpu_shape.h"
#include "app/bench/bench_replay.h"
#include "app/report/report_quantiles.h"
#include "app/term/term.h"

static const bench_formats paged_formats[] = {
    {"528+288", MMLA_KV_V41_FP8, MMLA_KV_V41_FP4},
    {"528+528", MMLA_KV_V41_FP8, MMLA_KV_V41_FP8},
    {"528", MMLA_KV_V41_FP8, MMLA_KV_NONE},
    {"584+584", MMLA_KV_V4, MMLA_KV_V4},
    {"584", MMLA_KV_V4, MMLA_KV_NONE},
};
static const bench_formats rows_formats = {"bf16", MMLA_KV_NONE, MMLA_KV_NONE};

enum { N_PAGED = sizeof paged_formats / sizeof paged_formats[0] };

static const char *op_of(const bench_formats *formats) {
    return bench_gpu_is_paged(formats) ? "attend_paged" : "attend_rows";
}

static mmla_status call_fused(void *job, int64_t i, void *stream, mmla_error *err) {
    const bench_gpu_shape *x = job;
    mmla_attend_args args = bench_gpu_shape_args(x, i);
    args.error = err;
    return mmla_attend_run(x->plan, &args, x->workspace, stream);
}

static mmla_status call_chain(void *job, int64_t i, void *stream, mmla_error *err) {
    const bench_gpu_shape *x = job;
    mmla_attend_args args = bench_gpu_shape_args(x, i);
    args.error = err;
    return mmla_chain_run(x->chain, &args, x->workspace, stream);
}

/* Times one way to the result, whose output is then that of call `last`. */
static bench_timing timing_of(bench_session *s, bench_gpu_shape *x, bench_enqueue_fn call) {
    bench_replay r = bench_replay_create(&s->device, call, x, x->n_sets);
    bench_gpu_shape_reset(x);
    const bench_timing t = bench_replay_measure(&r, s->options.n_samples, bench_gpu_budget_s(s));
    bench_replay_destroy(&r);
    return t;
}

/* Times and verifies the fused call. False, and the row says why, when it has no time. */
static bool measure_fused(bench_session *s, bench_gpu_shape *x, bench_row *row) {
    mmla_error err = {0};
    check_verdict verdict = {0};
    if (!bench_device_keep(&s->device, mmla_attend_plan_create(s->ctx, &x->c.desc, &x->plan, &err),
                           &err)) {
        return false;
    }
    snprintf(row->implementation, sizeof row->implementation, "%s",
             mmla_attend_plan_implementation(x->plan));
    x->workspace = bench_arena_add(&x->arena, (int64_t)mmla_attend_workspace_bytes(x->plan));
    row->fused = timing_of(s, x, call_fused);
    if (!bench_device_is_well(&s->device)) {
        return false;
    }
    bench_gpu_shape_verify(s, x, row->fused.last, row->implementation, false, &verdict);
    row->verified = !verdict.failed;
    snprintf(row->problem, sizeof row->problem, "%.159s", verdict.why);
    return row->verified;
}

/* The same by separate steps, where the device has them. */
static void measure_chain(bench_session *s, bench_gpu_shape *x, bench_row *row) {
    mmla_error err = {0};
    check_verdict verdict = {0};
    /* The chain has steps of its own; a name of attend's need not be one of them. */
    mmla_attend_desc desc = x->c.desc;
    desc.implementation = NULL;
    if (mmla_chain_plan_create(s->ctx, &desc, &x->chain, &err) != MMLA_OK) {
        return;
    }
    x->workspace = bench_arena_add(&x->arena, (int64_t)mmla_chain_workspace_bytes(x->chain));
    const bench_timing t = timing_of(s, x, call_chain);
    if (bench_device_is_well(&s->device)) {
        bench_gpu_shape_verify(s, x, t.last, "", true, &verdict);
        row->chain_us = verdict.failed ? 0.0 : t.median_us;
    }
    row->verified = !verdict.failed;
    snprintf(row->problem, sizeof row->problem, "%s%.140s", verdict.failed ? "chain: " : "",
             verdict.why);
}

static void describe(const bench_gpu_shape *x, bench_row *row) {
    const bench_formats *f = x->pool->formats;
    row->out_form = "fp8_permuted";
    row->window = bench_gpu_window(f);
    row->compressed = bench_gpu_compressed(f);
    row->keys = (double)x->n_keys / (double)row->tokens;
    row->flop = (double)(x->n_keys * row->heads) * BENCH_FLOP_PER_KEY;
    row->bytes = bench_gpu_bytes(x);
}

static void run_shape(bench_session *s, const bench_gpu_pool *p, int64_t heads, int64_t tokens) {
    bench_row *row = bench_gpu_row_begin(s, op_of(p->formats), p->formats->name, heads, tokens);
    if (row == NULL) {
        return;
    }
    bench_gpu_shape x = bench_gpu_shape_create(s, p, heads, tokens);
    describe(&x, row);
    if (measure_fused(s, &x, row)) {
        measure_chain(s, &x, row);
    }
    bench_gpu_row_finish(s, row);
    bench_gpu_shape_destroy(&x);
}

/* A pool that did not fit makes rows that say so: the device keeps it until a row begins. */
static void run_formats(bench_session *s,
                        const bench_formats *formats,
                        const bench_list *heads,
                        const bench_list *tokens) {
    bench_device_forget(&s->device);
    bench_gpu_pool p = bench_gpu_pool_create(s, formats);
    const mmla_error failure = s->device.error;
    for (int i = 0; i < heads->n; i++) {
        for (int j = 0; j < tokens->n; j++) {
            if (failure.status == MMLA_OK) {
                run_shape(s, &p, heads->values[i], tokens->values[j]);
                continue;
            }
            bench_row *row = bench_gpu_row_begin(s, op_of(formats), formats->name, heads->values[i],
                                                 tokens->values[j]);
            if (row != NULL) {
                bench_device_keep(&s->device, failure.status, &failure);
                bench_gpu_row_finish(s, row);
            }
        }
    }
    bench_gpu_pool_destroy(&p);
}

static void run_paged(bench_session *s, int idx) {
    static const int64_t all_heads[] = {64, 32, 16, 8, 128}, few_heads[] = {64, 16, 128};
    static const int64_t all_tokens[] = {1, 16, 64, 256, 1024}, few_tokens[] = {1, 64, 1024};
    const bool quick = s->options.quick, few = idx > 0 && s->options.formats == NULL;
    const bench_list heads = few || quick
                                 ? bench_list_or(&s->options.heads, few_heads, quick ? 2 : 3)
                                 : bench_list_or(&s->options.heads, all_heads, 5);
    const bench_list tokens = few || quick ? bench_list_or(&s->options.tokens, few_tokens, 3)
                                           : bench_list_or(&s->options.tokens, all_tokens, 5);
    run_formats(s, &paged_formats[idx], &heads, &tokens);
}

static void run_rows(bench_session *s) {
    static const int64_t heads_default[] = {64, 16, 128}, tokens_default[] = {2123, 184, 4096};
    const bool quick = s->options.quick;
    const bench_list heads = bench_list_or(&s->options.heads, heads_default, quick ? 1 : 3);
    const bench_list tokens = bench_list_or(&s->options.tokens, tokens_default, quick ? 1 : 3);
    run_formats(s, &rows_formats, &heads, &tokens);
}

/* Enqueues calls and times the host alone, in bursts that the queue to the device holds, so that the
 * host never waits for room in it. */
static bench_timing host_timing(bench_session *s, bench_gpu_shape *x) {
    enum { BURSTS = 40, BURST_CALLS = 250 };
    const int64_t n_bursts = s->options.quick ? BURSTS / 4 : BURSTS;
    const int64_t n_calls = s->device.gpu != NULL ? BURST_CALLS : 4; /* the host's own are long */
    double us[BURSTS] = {0};
    mmla_error err = {0};
    int64_t calls = 0;
    for (int64_t b = -1; b < n_bursts && bench_device_is_well(&s->device);
         b++) { /* one to warm up */
        const double before = term_now();
        for (int64_t i = 0; i < n_calls; i++) {
            bench_device_keep(&s->device, call_fused(x, calls++, s->device.stream, &err), &err);
        }
        us[b > 0 ? b : 0] = 1e6 * (term_now() - before) / (double)n_calls;
        bench_device_wait(&s->device);
    }
    const report_quantiles q = report_quantiles_of(us, n_bursts);
    return (bench_timing){.median_us = q.median,
                          .p10_us = q.p10,
                          .p90_us = q.p90,
                          .n_samples = n_bursts,
                          .last = calls - 1};
}

static void run_host_cost(bench_session *s) {
    enum { HEADS = 16, TOKENS = 1 };
    bench_row *row = bench_gpu_row_begin(s, "host_cost", paged_formats[0].name, HEADS, TOKENS);
    if (row == NULL) {
        return;
    }
    bench_gpu_pool p = bench_gpu_pool_create(s, &paged_formats[0]);
    bench_gpu_shape x = bench_gpu_shape_create(s, &p, HEADS, TOKENS);
    mmla_error err = {0};
    check_verdict verdict = {0};
    row->window = bench_gpu_window(p.formats);
    row->compressed = bench_gpu_compressed(p.formats);
    if (bench_device_keep(&s->device, mmla_attend_plan_create(s->ctx, &x.c.desc, &x.plan, &err),
                          &err)) {
        snprintf(row->implementation, sizeof row->implementation, "%s",
                 mmla_attend_plan_implementation(x.plan));
        x.workspace = bench_arena_add(&x.arena, (int64_t)mmla_attend_workspace_bytes(x.plan));
        bench_gpu_shape_reset(&x);
        row->fused = host_timing(s, &x);
        if (bench_device_is_well(&s->device)) {
            bench_gpu_shape_verify(s, &x, row->fused.last, row->implementation, false, &verdict);
            row->verified = !verdict.failed;
            snprintf(row->problem, sizeof row->problem, "%.159s", verdict.why);
        }
    }
    bench_gpu_row_finish(s, row);
    bench_gpu_shape_destroy(&x);
    bench_gpu_pool_destroy(&p);
}

void bench_gpu_attend_run(bench_session *s) {
    for (int i = 0; i < N_PAGED && bench_wants_op(s, "attend_paged"); i++) {
        const bool asked = s->options.formats != NULL;
        if (bench_wants_formats(s, paged_formats[i].name) &&
            (i == 0 || asked || !s->options.quick)) {
            run_paged(s, i);
        }
    }
    if (bench_wants_op(s, "attend_rows") && bench_wants_formats(s, rows_formats.name)) {
        run_rows(s);
    }
    if (bench_wants_op(s, "host_cost") && s->options.formats == NULL &&
        (s->options.op != NULL || (s->options.heads.n == 0 && s->options.tokens.n == 0))) {
        run_host_cost(s);
    }
}
