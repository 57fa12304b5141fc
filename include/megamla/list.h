/* list.h - index builders: which slots a token attends to, and where its records go.
 *
 * Seven small operations share one description, one plan and one run; `kind` says which is meant
 * and the table below which fields it reads; the others are ignored. A plan depends on shapes only.
 * Every builder writes every entry of every row it owns on every call: valid entries first, then
 * -1, and length 0 with an all -1 row for tokens whose `valid` byte is 0 (padding of a captured
 * graph).
 *
 *  kind              reads (args)                                          writes
 *  WINDOW            query_start seq_lens block_table [valid]              list lens
 *  DRAFT             query_start seq_lens block_table [valid]              list lens
 *  COMPRESSED        topk request block_table [valid]                      list lens
 *  COMBINED          topk query_start seq_lens [gather_lens valid]         list lens
 *                    [left right]
 *  COMPRESSED_SLOTS  positions slots request block_table                   out_slots
 *  RING_SLOTS        positions slots request ring_blocks                   out_slots
 *  IMAGE_SPANS       query_start seq_lens span_start spans                 out_left out_right
 */
#ifndef MEGAMLA_LIST_H
#define MEGAMLA_LIST_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>
#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_list_kind {
    MMLA_LIST_WINDOW = 0,
    MMLA_LIST_DRAFT = 1,
    MMLA_LIST_COMPRESSED = 2,
    MMLA_LIST_COMBINED = 3,
    MMLA_LIST_COMPRESSED_SLOTS = 4,
    MMLA_LIST_RING_SLOTS = 5,
    MMLA_LIST_IMAGE_SPANS = 6
} mmla_list_kind;

typedef struct mmla_list_desc {
    mmla_list_kind kind;
    int64_t max_tokens;   /* 0 .. 2^31 - 1 */
    int64_t max_requests; /* 0 .. 2^31 - 1 */
    int32_t window;       /* WINDOW, DRAFT, COMBINED: W, 1 .. 65536; 128 in the model, counting self
                             (DRAFT: W prefix tokens beside the block) */
    int32_t page_tokens;  /* all with a block_table: records a page, 1 .. 65536. RING_SLOTS: rows of
                             a ring, a power of two */
    int64_t n_pages;      /* all with a block_table: pages of the cache; an entry of block_table
                             outside 0 .. n_pages-1 gives -1. RING_SLOTS: rings, block 0 is null */
    int32_t table_width;  /* B: block-table entries a request, at least 1; past it: -1 */
    int64_t table_stride; /* elements, at least B; 0: B */
    int32_t width;        /* of list: WINDOW at least window, DRAFT at least window, COMPRESSED at
                             least topk_width, COMBINED at least topk + window + image_tokens */
    int64_t list_stride;  /* elements, at least width; 0: width */
    int32_t topk_width;   /* COMPRESSED, COMBINED: columns of topk; COMBINED may have 0 (ratio 0) */
    int64_t topk_stride;  /* elements, at least topk_width; 0: topk_width */
    int32_t ratio;        /* COMBINED 0, 1, 2 (0: no compressed part); COMPRESSED_SLOTS 1, 2 */
    int32_t topk;         /* COMBINED: the most compressed entries a token takes, 0 .. topk_width */
    int64_t request_rows; /* COMBINED: M, workspace rows a request */
    int64_t window_offset; /* COMBINED: N, first window row of a request, 0 .. M */
    int32_t image_tokens;  /* COMBINED, IMAGE_SPANS: I, most tokens of an image; 0: causal only */
} mmla_list_desc;

typedef struct mmla_list_args {
    int64_t n_tokens;           /* T: 0 .. max_tokens */
    int64_t n_requests;         /* R: 0 .. max_requests */
    const int32_t *query_start; /* [R + 1], first token of a request; rises from 0 to [R] <= T */
    const int32_t *seq_lens;    /* [R], prefix + query */
    const int32_t *gather_lens; /* [R], window rows gathered for the request; NULL: those that
                                   kv_gather takes with a window */
    int64_t request_rows;  /* COMBINED: M of this call, R * M at most 2^31 - 1, with its N; 0: both
                              are desc's */
    int64_t window_offset; /* COMBINED, with request_rows: N of this call, 0 .. M */
    const int32_t *block_table; /* [R, B], page numbers */
    const int32_t *ring_blocks; /* [R], ring of the request; 0: none */
    const int32_t *request; /* [T], request of each token; outside 0 .. R-1 gives an invalid row */
    const int32_t *topk;    /* [T, topk_width] compressed positions; negative: none */
    const int64_t *positions;  /* [T]; negative gives -1 */
    const int64_t *slots;      /* [T], the token's window slot; negative: padding, gives -1 */
    const uint8_t *valid;      /* [T], may be NULL: all valid */
    const int32_t *left;       /* [T], with image_tokens > 0: tokens of the image before this one */
    const int32_t *right;      /* [T], likewise after it */
    const int32_t *span_start; /* [R + 1], first span of each request; rises; [0] is 0 */
    const int32_t *spans;      /* [n_spans, 2], first and last position, inclusive */
    int64_t n_spans;           /* rows that spans has, at least span_start[R]; 0: not told, which a
                                  CUDA device does not accept together with spans */
    int32_t *list;             /* [T, width] */
    int32_t *lens;             /* [T] */
    int64_t *out_slots;        /* [T] */
    int32_t *out_left;         /* [T] */
    int32_t *out_right;        /* [T] */
    int32_t *n_faults;         /* may be NULL: illegal entries of query_start and span_start are
                                  added to it */
    int32_t overlap;           /* not 0: may run at the same time as the call before it, below */
    mmla_error *error;         /* may be NULL, host memory */
} mmla_list_args;

typedef struct mmla_list_plan mmla_list_plan;

MMLA_API mmla_status mmla_list_plan_create(mmla_context *ctx,
                                           const mmla_list_desc *desc,
                                           mmla_list_plan **plan,
                                           mmla_error *err);
MMLA_API void mmla_list_plan_destroy(mmla_list_plan *plan);
MMLA_API size_t mmla_list_workspace_bytes(const mmla_list_plan *plan); /* 0 */

/* mmla_list_run - build one list.
 *
 * For token t of request q:  pos = seq_lens[q] - len_q + (t - query_start[q]),  len_q tokens being
 * its query; slot(p) is block_table[q][p / page_tokens] * page_tokens + p mod page_tokens, or -1
 * where the table does not lead to a page of the cache. Lists hold the slots that are not -1,
 * closed up in the order given, and `lens` is their count.
 *
 * WINDOW
 *     slot(p) for p = max(pos - (window - 1), 0) .. pos         oldest first, self last
 * DRAFT
 *     slot(p) for p = start .. seq_len - 1, start = max(seq_len - len_q - window, 0), the first
 *     `width` of them: every token of a request sees the same keys, the whole block included
 * COMPRESSED
 *     slot(topk[t][k]) of every topk >= 0, in order
 * COMBINED, rows of the gathered workspace of request q, which begin at q * M
 *     q * M + topk[t][k] for k < min((pos + 1) / ratio, topk), of the topk that are records the token
 *     sees, 0 .. (pos + 1) / ratio - 1, and the workspace holds, 0 .. N-1, then
 *     q * M + N + p - (seq_len - gather_len) for p = start .. end, of the p that were gathered and
 *     whose row lies below (q + 1) * M;  end = min(pos + right, seq_len - 1),
 *     start = max(pos - (window-1) - max(left - (window-1), 0), 0)
 *     (gather_len is len_q + min(seq_len - len_q, window - 1) where gather_lens is NULL; it is
 *     clamped to 0 .. seq_len, left to 0 .. I-1, right to 0 .. I; what is more than
 *     `width` entries is cut off at the end)
 * COMPRESSED_SLOTS
 *     slot(pos / ratio) where ratio divides pos + 1 and slots[t] >= 0, else -1
 * RING_SLOTS
 *     ring * page_tokens + pos mod page_tokens where slots[t] >= 0 and the request's ring is in
 *     1 .. n_pages-1, else -1
 * IMAGE_SPANS
 *     left = min(pos - a, I - 1), right = min(z - pos, I) for pos inside [a, z], the first such
 *     span of its request, else 0 and 0
 *
 * Invalid rows (all -1, length 0; slot -1; reach 0 and 0) go to: a `valid` byte of 0, tokens at and
 * past query_start[R], a request outside 0 .. R-1, a negative pos.
 *
 * Illegal entries, which n_faults counts once a call each: query_start[0] and span_start[0] that are
 * not 0, entries of both below the one before them, of query_start above T, of span_start above
 * n_spans (when that is told; above 0 when spans is NULL).
 *
 * memory   outputs are written whole, rows 0 .. T-1 and columns 0 .. width-1, and nothing else; they
 *          overlap nothing that is read. With R = 0 the arrays of requests may be NULL; topk may be
 *          NULL when no column of it is used, spans when there is none. On a CUDA device everything
 *          but error is device memory
 * stream   the CPU runs before it returns and takes NULL. CUDA enqueues one kernel on `stream` (a
 *          cudaStream_t) and returns; it may be captured. A graph that is replayed reads the arrays
 *          anew: what is fixed is T, R, n_spans and the pointers
 * overlap  as of mmla_kv_insert_run (kv.h), with all it asks for: from capability 9.0 on the call may
 *          begin while the launch before it on `stream` still runs, and all such calls in a row at
 *          the same time; none may read or write what another writes
 * threads  any number at once on one plan, each with its own outputs
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT, MMLA_E_SHAPE: nothing written
 *          MMLA_E_INDEX (CPU): an illegal entry; MMLA_E_NULL (CPU): span_start ends above 0 and spans
 *          is NULL. Nothing is written but n_faults
 *          MMLA_E_LAUNCH (CUDA): the launch was refused
 *          CUDA learns of illegal entries too late to return them and does what it can: a token gets
 *          the row of a request q with 0 <= query_start[q] <= t < query_start[q+1] <= T, or where the
 *          search for one finds none, which can happen although there is one, an invalid row; a
 *          request without 0 <= span_start[q] <= span_start[q+1] <= n_spans has no spans. The result
 *          is the same from run to run. Whatever the arrays hold, only the outputs and n_faults are
 *          written, and only inside the shapes above is anything read
 * edges    T = 0 touches nothing
 * source   docs/format.md, src/ops/lists/README.md; definition: src/ops/lists/
 * since    0.1
 */
MMLA_API mmla_status mmla_list_run(const mmla_list_plan *plan,
                                   const mmla_list_args *args,
                                   void *workspace,
                                   void *stream);

#ifdef __cplusplus
}
#endif

#endif
