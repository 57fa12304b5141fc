/* prefill.h - attention of many tokens of few requests: straight from the caches, or by way of a
 * gathered bf16 workspace, whichever a model of the time says is sooner.
 *
 * There are two routes to the same numbers:
 *
 *     PAGED      lists of slots -> attend from both caches            3 launches, no rows of its own
 *     WORKSPACE  gather records, gather window rows, list of rows     4 launches, R * M rows of 1 KiB
 *                -> attend from bf16 rows
 *
 * Every token of the first converts its 640 records again; the second converts each record of a
 * request once, also those that no token has picked. So many tokens of short contexts go by the
 * workspace, and few tokens of long ones straight to the caches: docs/performance.md shows where they
 * cross. mmla_prefill_run takes the route that a model says is faster, whose times are an H200's.
 *
 * An engine that wants one route for good can as well enqueue its steps itself (list.h, kv.h,
 * attend.h; examples/03_prefill.c); mmla_prefill_chunk_next then divides requests into workspaces.
 */
#ifndef MEGAMLA_PREFILL_H
#define MEGAMLA_PREFILL_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/attend.h>
#include <megamla/context.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_prefill_route {
    MMLA_PREFILL_AUTO = 0,
    MMLA_PREFILL_PAGED = 1,
    MMLA_PREFILL_WORKSPACE = 2
} mmla_prefill_route;

typedef struct mmla_prefill_desc {
    /* Heads, tokens, scale, q, rope, output and both caches, as of a paged call. Its lists are made
     * here: kind, list_width, list_stride, compressed_width, compressed_stride, max_rows and
     * kv_row_stride must be 0. compressed.format NONE: a layer of ratio 0. */
    mmla_attend_desc attend;
    int64_t max_requests; /* 0 .. 2^31 - 1 */
    int32_t window;       /* W, 1 .. 65536; 128 in the model, counting self */
    int32_t ratio;        /* tokens a compressed record, 1 or 2; 0 without such a cache */
    int32_t topk_width;   /* compressed positions picked for a token; 0 without such a cache */
    int64_t topk_stride;  /* elements, at least topk_width; 0: topk_width */
    int32_t window_table_width;     /* block-table entries a request, at least 1 */
    int64_t window_table_stride;    /* elements, at least the width; 0: the width */
    int32_t compressed_table_width; /* likewise, with a compressed cache */
    int64_t compressed_table_stride;
    /* The most rows, of 1 KiB each, that WORKSPACE may gather at a time, 0 .. 2^31 - 1. A call that
     * needs more goes PAGED, or is refused when route is WORKSPACE; 0: every call goes PAGED */
    int64_t max_rows;
    mmla_prefill_route route; /* AUTO: decided for every call; PAGED with attend.batch_invariant and
                                 on the CPU, where it always wins */
} mmla_prefill_desc;

/* Pointers of one call: device memory of the context's device, but for the two that say host. */
typedef struct mmla_prefill_args {
    int64_t n_tokens;   /* T: 0 .. attend.max_tokens */
    int64_t n_requests; /* R: 0 .. max_requests */
    /* Host memory, what query_start and seq_lens say on the device. They decide the route and the
     * shape of the workspace; not read, and may be NULL, when every call goes PAGED. */
    const int32_t *host_query_lens; /* [R] */
    const int32_t *host_seq_lens;   /* [R] */
    const uint16_t *q;              /* as in mmla_attend_args */
    const int32_t *positions;       /* [T] */
    const float *cos_sin;           /* [P, 64] */
    const float *sink;              /* [H], may be NULL */
    const int32_t *query_start;     /* [R + 1], first token of a request; rises from 0 to [R] <= T.
                                       Tokens from there on have no key */
    const int32_t *seq_lens;        /* [R], prefix + query */
    const int32_t *request;         /* [T], with a compressed cache: the request of each token, as
                                       query_start has it; -1 for tokens of none */
    const int32_t *topk;         /* [T, topk_width], with a compressed cache: positions of records,
                                       those of token t, all below (its position + 1) / ratio, in
                                       front; then -1 */
    const int32_t *window_table; /* [R, window_table_width], page numbers */
    const int32_t *compressed_table; /* [R, compressed_table_width] */
    const void *window_cache;        /* with the rows of this call's tokens in it already */
    const void *compressed_cache;    /* likewise */
    void *out;                       /* results, as in mmla_attend_args */
    void *out_scale;
    float *lse;
    float *max_logits;
    int32_t *n_faults; /* may be NULL: the faults of every step are added to it */
    mmla_error *error; /* may be NULL, host memory */
} mmla_prefill_args;

typedef struct mmla_prefill_plan mmla_prefill_plan;

/* mmla_prefill_plan_create - check a description, make the plans of all steps.
 *
 * memory   *plan is the library's until mmla_prefill_plan_destroy; the context must outlive it
 * threads  any
 * errors   fields of mmla_prefill_desc and of its steps' descriptions; err names the field, the value
 *          found and the values accepted. On failure *plan is NULL
 * since    0.1
 */
MMLA_API mmla_status mmla_prefill_plan_create(mmla_context *ctx,
                                              const mmla_prefill_desc *desc,
                                              mmla_prefill_plan **plan,
                                              mmla_error *err);
MMLA_API void mmla_prefill_plan_destroy(mmla_prefill_plan *plan); /* NULL is allowed */

/* Lists, workspaces of attention, and max_rows rows of 1 KiB; 64-byte aligned, contents arbitrary
 * before and after. */
MMLA_API size_t mmla_prefill_workspace_bytes(const mmla_prefill_plan *plan);

/* mmla_prefill_plan_implementation - of attention on the route PAGED or WORKSPACE; NULL when the plan
 * never takes it. Constant memory. */
MMLA_API const char *mmla_prefill_plan_implementation(const mmla_prefill_plan *plan,
                                                      mmla_prefill_route route);

/* mmla_prefill_route_get - the route a call will take: PAGED or WORKSPACE.
 *
 * Reads n_tokens, n_requests, host_query_lens and host_seq_lens of args and nothing else. Without
 * tokens or requests it is PAGED.
 *
 * errors   MMLA_E_NULL, MMLA_E_SHAPE: a count or a pointer of these
 *          MMLA_E_INDEX: a length that is negative, or a query longer than its sequence
 *          MMLA_E_SHAPE: WORKSPACE was asked for, and max_rows are too few
 *          On failure *route is as it was
 * since    0.1
 */
MMLA_API mmla_status mmla_prefill_route_get(const mmla_prefill_plan *plan,
                                            const mmla_prefill_args *args,
                                            mmla_prefill_route *route);

/* mmla_prefill_run - attention of T query tokens of R requests.
 *
 * Token t of request r, at pos = seq_lens[r] - n + (t - query_start[r]) where n is the length of its
 * query, attends to the window rows of positions max(pos - (W - 1), 0) .. pos and to the compressed
 * records topk[t] names; what comes out is what mmla_attend_run gives for these keys. Both routes
 * read the same numbers and add them up in another order, so they differ in the last bits.
 *
 * An entry of a block table that is not a page of its cache makes no key of its positions on the way
 * PAGED. On the way WORKSPACE the rows of such positions are zeros, and are keys.
 *
 * memory   workspace: mmla_prefill_workspace_bytes(plan), 64-byte aligned; outputs must not overlap
 *          inputs (not checked)
 * stream   as mmla_attend_run, with 3 launches or 4, one fewer without a compressed cache, and more
 *          where attention takes several. It may be captured: route and workspace are
 *          then those of the host's lengths when it was, so replays want lengths no greater
 * threads  any number at once on one plan, each with its own workspace and outputs
 * errors   those of mmla_prefill_route_get; MMLA_E_NULL, MMLA_E_ALIGNMENT: a pointer of args. Nothing
 *          has been enqueued then. What the contents can tell is as in the steps: mmla_list_run,
 *          mmla_kv_gather_run, mmla_attend_run; on the CPU a fault of the first two leaves the results
 *          as they were
 * edges    T = 0 touches nothing. R = 0: no token has a key. On the way WORKSPACE, where a
 *          sequence is longer on the device than any is on the host, records from N on and window
 *          rows that do not fit are no keys; nobody counts the records
 * source   src/layer/README.md
 * since    0.1
 */
MMLA_API mmla_status mmla_prefill_run(const mmla_prefill_plan *plan,
                                      const mmla_prefill_args *args,
                                      void *workspace,
                                      void *stream);

/* A run of prefill requests that share one gathered workspace. */
typedef struct mmla_prefill_chunk {
    int64_t first, last; /* requests first .. last-1 */
    int64_t n;           /* N: compressed rows of every request */
    int64_t m;           /* M: rows of every request */
} mmla_prefill_chunk;

typedef struct mmla_prefill_chunk_desc {
    int32_t window;           /* W, at least 1 */
    int32_t ratio;            /* 0, 1 or 2 */
    int64_t max_model_tokens; /* longest sequence served, 0 .. 2^31 - 1 */
    int64_t max_batch_tokens; /* most query tokens of a step, 0 .. 2^31 - 1 */
} mmla_prefill_chunk_desc;

/* mmla_prefill_chunk_next - the next chunk of requests, in order, host memory only.
 *
 * A request gathers len + min(seq_len - len, window - 1) window rows; N is the most compressed
 * records of a request of the chunk, M = N + the most gathered rows. The chunk grows while
 * count * M <= 4 * (ceil(max_model_tokens / ratio) + window + max_batch_tokens) (the first term 0
 * for ratio 0); it holds at least one request.
 *
 * shapes   query_lens, seq_lens [n_requests]; first: where to start
 * errors   MMLA_E_NULL; MMLA_E_VALUE: a field of desc
 *          MMLA_E_INDEX: first is not in 0 .. n_requests-1, or a length that is looked at is
 *          negative, or a query longer than its sequence.  On failure *chunk is as it was
 * since    0.1
 */
MMLA_API mmla_status mmla_prefill_chunk_next(const mmla_prefill_chunk_desc *desc,
                                             const int32_t *query_lens,
                                             const int32_t *seq_lens,
                                             int64_t n_requests,
                                             int64_t first,
                                             mmla_prefill_chunk *chunk,
                                             mmla_error *err);

#ifdef __cplusplus
}
#endif

#endif
