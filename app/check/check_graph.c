/* check_graph.c - one graph of the fused call, launched with contents it was not recorded with.
 *
 * A case of the suite of attend is recorded as it is. Then its lengths become zero, the largest
 * there are, shorter; half of its tokens become padding; and all is restored. Every launch must give
 * the bits of a plain call on the same contents, in a workspace that holds what the run before left.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_attend_compare.h"
#include "app/check/check_attend_staged.h"

enum { POISON_A = 0x5A, POISON_B = 0xC3 };

enum change { ZERO, LONGEST, SHORTER, PADDED, RESTORED, CHANGES };

static const char *const words[CHANGES] = {
    "with every length zero", "with every length past the end", "with shorter lengths",
    "with half of it padding", "with the contents it was recorded with"};

/* The arrays that change, and what they were. */
typedef struct original {
    check_buffer *array;
    uint8_t *bytes;
} original;

enum { ARRAYS = 5 };

static void save(check_attend_case *c, original saved[ARRAYS]) {
    check_buffer *const arrays[ARRAYS] = {&c->q, &c->list, &c->lens, &c->compressed_list,
                                          &c->compressed_lens};
    for (int i = 0; i < ARRAYS; i++) {
        saved[i] = (original){arrays[i], check_alloc(arrays[i]->bytes)};
        if (arrays[i]->data != NULL) {
            memcpy(saved[i].bytes, arrays[i]->data, (size_t)arrays[i]->bytes);
        }
    }
}

static void restore(const original saved[ARRAYS]) {
    for (int i = 0; i < ARRAYS; i++) {
        if (saved[i].array->data != NULL) {
            memcpy(saved[i].array->data, saved[i].bytes, (size_t)saved[i].array->bytes);
        }
    }
}

/* A case without lengths gets full ones, so that they can change. */
static void add_lens(check_buffer *lens, const int32_t **arg, int64_t n_tokens, int32_t width) {
    if (lens->data == NULL && width > 0) {
        *lens = check_buffer_create(n_tokens * 4, 4, 0xFF);
        for (int64_t t = 0; t < n_tokens; t++) {
            ((int32_t *)lens->data)[t] = width;
        }
        *arg = (const int32_t *)lens->data;
    }
}

static int32_t changed_length(enum change change, int32_t length, int32_t width, check_rng *rng) {
    const int32_t most = length < 0 ? 0 : length < width ? length : width;
    switch (change) {
    case ZERO:
        return 0;
    case LONGEST:
        return INT32_MAX;
    case SHORTER:
        return (int32_t)check_rng_below(rng, most + 1);
    default:
        return length;
    }
}

static void fill(check_buffer *b, int64_t from_row, int64_t n_rows, uint8_t byte) {
    const int64_t from = n_rows > 0 ? b->bytes / n_rows * from_row : 0;
    if (b->data != NULL) {
        memset(b->data + from, byte, (size_t)(b->bytes - from));
    }
}

/* Changes what was restored. Padding is what an engine leaves in the rows of a graph's batch that
 * no request fills: NaN in q, absurd entries, length 0. */
static void apply(check_attend_case *c, enum change change, check_rng *rng) {
    const int64_t n = c->args.n_tokens;
    check_buffer *const lens[2] = {&c->lens, &c->compressed_lens};
    const int32_t widths[2] = {c->desc.list_width, c->desc.compressed_width};
    for (int list = 0; list < 2; list++) {
        int32_t *of_tokens = (int32_t *)lens[list]->data;
        for (int64_t t = 0; of_tokens != NULL && t < n; t++) {
            of_tokens[t] = changed_length(change, of_tokens[t], widths[list], rng);
        }
    }
    if (change == PADDED) {
        fill(&c->q, n / 2, n, 0xFF);
        fill(&c->list, n / 2, n, 0x7F);
        fill(&c->compressed_list, n / 2, n, 0x7F);
        fill(&c->lens, n / 2, n, 0);
        fill(&c->compressed_lens, n / 2, n, 0);
    }
}

/* Tokens first .. have no key: zeros, +inf and -inf, unless their position is bad. */
static void check_empty(const check_attend_case *c,
                        int64_t first,
                        const check_attend_result *r,
                        check_verdict *verdict) {
    const int64_t h_count = c->desc.n_heads, width = h_count * MMLA_LATENT_DIM;
    for (int64_t t = first; t < r->n_tokens; t++) {
        bool is_empty = true;
        for (int64_t i = 0; i < width; i++) {
            is_empty = is_empty && r->out[t * width + i] == 0.0f;
        }
        for (int64_t h = t * h_count; h < (t + 1) * h_count; h++) {
            is_empty = is_empty && r->lse[h] == INFINITY && r->max_logits[h] == -INFINITY;
        }
        if (!is_empty && c->tokens[t] != CHECK_TOKEN_FAULT) {
            check_verdict_fail(verdict, "token %lld has length 0, but its result is not empty",
                               (long long)t);
        }
    }
}

/* One change: launched, and run plainly. */
static void compare_launch(check_attend_staged *staged,
                           const device_graph *graph,
                           enum change change,
                           bool corrupt,
                           check_verdict *verdict) {
    char launched[64], plain[64];
    snprintf(launched, sizeof launched, "a launch %s", words[change]);
    snprintf(plain, sizeof plain, "a plain call %s", words[change]);
    mmla_status status = check_attend_staged_upload(staged, POISON_A);
    status = status == MMLA_OK ? device_graph_launch(graph, &staged->err) : status;
    check_attend_result got = check_attend_staged_result(staged, status, launched, verdict);
    status = check_attend_staged_upload(staged, POISON_B);
    status = status == MMLA_OK
                 ? check_attend_staged_run(staged, staged->workspace, staged->stage.stream)
                 : status;
    check_attend_result want = check_attend_staged_result(staged, status, plain, verdict);
    if (got.bytes != NULL && want.bytes != NULL) {
        got.bytes[got.n_tokens * got.token_bytes / 2] ^= corrupt ? 1 : 0;
        check_attend_same(&want, 0, &got, got.token_bytes, launched, verdict);
        const int64_t n = got.n_tokens;
        check_empty(staged->c, change == ZERO ? 0 : change == PADDED ? n / 2 : n, &got, verdict);
    }
    check_attend_result_destroy(&got);
    check_attend_result_destroy(&want);
}

static void run_graph(check_session *s,
                      check_attend_case *c,
                      const original saved[ARRAYS],
                      const char *name,
                      int64_t idx) {
    check_rng rng = check_rng_at(s->options.seed, 0x67726170, (uint64_t)idx);
    check_verdict verdict = {0};
    check_attend_staged staged;
    device_graph graph = {0};
    restore(saved);
    if (check_attend_staged_create(&staged, s->many, c, name, check_session_staging(s, false, idx),
                                   &verdict)) {
        mmla_status status = check_attend_staged_upload(&staged, POISON_A);
        if (status == MMLA_OK) {
            status = device_graph_record(&graph, &staged.stage, check_attend_staged_run, &staged,
                                         staged.workspace, &staged.err);
        }
        if (status != MMLA_OK) {
            check_verdict_fail(&verdict, "recording: %s: %s", mmla_status_name(status),
                               staged.err.message);
        }
        for (int change = 0; change < CHANGES && status == MMLA_OK; change++) {
            restore(saved);
            apply(c, (enum change)change, &rng);
            compare_launch(&staged, &graph, (enum change)change, s->options.corrupt, &verdict);
        }
        check_session_record(s, "graph", name, true, idx, c->shape, &verdict);
    } else if (verdict.failed) {
        check_session_record(s, "graph", name, true, idx, c->shape, &verdict);
    } else {
        check_session_refuse(s, "graph", name);
    }
    device_graph_destroy(&graph);
    check_attend_staged_destroy(&staged);
}

static void run_case(check_session *s, int64_t idx) {
    const char *names[CHECK_IMPLEMENTATIONS_MAX];
    const int n = check_session_implementations(s, "attend", names);
    check_attend_case c = check_attend_case_create(s, idx);
    original saved[ARRAYS];
    add_lens(&c.lens, &c.args.lens, c.args.n_tokens, c.desc.list_width);
    add_lens(&c.compressed_lens, &c.args.compressed_lens, c.args.n_tokens,
             c.desc.compressed.format != MMLA_KV_NONE ? c.desc.compressed_width : 0);
    save(&c, saved);
    for (int i = 0; i < n; i++) {
        run_graph(s, &c, saved, names[i], idx);
    }
    for (int i = 0; i < ARRAYS; i++) {
        free(saved[i].bytes);
    }
    check_attend_case_destroy(&c);
}

const check_suite check_suite_graph = {.name = "graph",
                                       .op = "attend",
                                       .n_quick = 20,
                                       .n_full = 100,
                                       .run = run_case,
                                       .gpu_only = true};
