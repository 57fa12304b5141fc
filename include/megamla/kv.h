/* kv.h - writing records into a paged cache, and reading them back as bf16 rows.
 *
 * mmla_kv_insert takes the rows a projection produced, [normalises,] rotates and quantises them,
 * and stores each at its slot. mmla_kv_gather is the other direction: rows of whole requests into a
 * bf16 workspace, for prefill.
 */
#ifndef MEGAMLA_KV_H
#define MEGAMLA_KV_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/context.h>
#include <megamla/layout.h>
#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the floor of a ue8m0 group scale is applied (two public writers differ; readers do not
 * care). Formats whose scales are not ue8m0 per group of e4m3 codes ignore it. */
typedef enum mmla_scale_floor {
    MMLA_SCALE_FLOOR_AMAX = 0, /* max(amax, 1e-4) / 448: smallest byte 105 */
    MMLA_SCALE_FLOOR_SCALE = 1 /* max(amax / 448, 1e-4): smallest byte 114 */
} mmla_scale_floor;

typedef struct mmla_kv_insert_desc {
    mmla_cache_desc cache; /* any format; D = mmla_kv_dims(format) */
    int64_t max_tokens;    /* the most rows of one call, 0 .. 2^31 - 1 */
    int64_t row_stride;    /* elements between rows, multiple of 8, at least D; 0: D */
    int32_t ratio;         /* rows are rotated at floor(position / ratio) * ratio; 1 or 2; 0: 1 */
    mmla_scale_floor scale_floor;
    int32_t norm;   /* not 0: RMSNorm with norm_weight before the rotation, rounded to bf16 */
    float norm_eps; /* > 0 and finite with norm; 1e-20 in the model; else ignored */
    int64_t rope_positions;     /* P: rows of cos_sin, at least 1 */
    const char *implementation; /* NULL: the best one */
} mmla_kv_insert_desc;

typedef struct mmla_kv_insert_args {
    int64_t n_rows;           /* T: 0 .. max_tokens */
    int64_t n_slots;          /* T': 0 .. T; rows past it are padding, skipped. 0: nothing */
    const uint16_t *rows;     /* [T, D] bf16, 16-byte aligned */
    const int64_t *positions; /* [T], the token's own position */
    const int64_t *slots;     /* [T'], negative: write nothing */
    const float *cos_sin;     /* [P, 64] */
    const float *norm_weight; /* [D], with norm */
    void *cache;              /* n_pages * page_stride_bytes, 16-byte aligned */
    int32_t *n_faults;        /* may be NULL: the number of refused rows is added to it */
    int32_t overlap;          /* not 0: may run at the same time as the call before it, below */
    mmla_error *error;        /* may be NULL, host memory */
} mmla_kv_insert_args;

typedef struct mmla_kv_insert_plan mmla_kv_insert_plan;

MMLA_API mmla_status mmla_kv_insert_plan_create(mmla_context *ctx,
                                                const mmla_kv_insert_desc *desc,
                                                mmla_kv_insert_plan **plan,
                                                mmla_error *err);
MMLA_API void mmla_kv_insert_plan_destroy(mmla_kv_insert_plan *plan);
MMLA_API const char *mmla_kv_insert_plan_implementation(const mmla_kv_insert_plan *plan);

/* 0 on the CPU. On a CUDA device 0 up to a max_tokens of 2048; beyond, 16 bytes, and 32 for every row
 * of max_tokens, or for every slot of the cache if those are fewer: a table in which the last of
 * several rows for a slot is found. */
MMLA_API size_t mmla_kv_insert_workspace_bytes(const mmla_kv_insert_plan *plan);

/* mmla_kv_insert_run - store rows.
 *
 * For every t < T' with slots[t] >= 0:
 *
 *     x      = rows[t]                                      or bf16(rmsnorm(rows[t]) * norm_weight)
 *     x'     = rotate(x, floor(positions[t] / ratio) * ratio), the last 64 dims, rounded to bf16
 *     record(slots[t]) = quantise(x')
 *
 * norm     x * (1 / sqrt(mean(x * x) + eps)) * norm_weight in fp32, docs/numerics.md has the order
 *          of the sum; rounded to bf16 once
 *
 * memory   only the addressed records' bytes change; the V4 pad byte is written 0. workspace:
 *          mmla_kv_insert_workspace_bytes(plan), 64-byte aligned, NULL when that is 0; its contents
 *          mean nothing before and after. On a CUDA device everything but error is device memory
 * stream   the CPU runs before it returns and takes NULL. CUDA enqueues on `stream` (a cudaStream_t)
 *          one kernel, or above 2048 slots two, and returns; it may be captured. A graph that is
 *          replayed reads the arrays anew: what is fixed is n_rows, n_slots and the pointers
 * overlap  CUDA, from capability 9.0 on; elsewhere it means nothing. Not 0: the call may begin while
 *          the launch before it on `stream` still runs. Of several such calls in a row all may run at
 *          the same time as the launch before the first; the next ordinary launch waits for all. The
 *          caller knows that none of these reads or writes what another writes, workspaces included
 *          (all may add to one n_faults), that the launch before the first is an ordinary one or a
 *          call of this library, and that no wait for an event lies between them. A call without
 *          rows (or tokens) launches nothing: the launch before the next is the one before it
 * threads  any number of calls at once, on different slots and each with its own workspace
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT, MMLA_E_SHAPE: nothing written
 *          MMLA_E_INDEX (CPU): a row that was to be written has a slot at or past the capacity, or a
 *          position whose line is not in cos_sin (negative ones included); such rows write nothing,
 *          all others are written, and the message names the first. CUDA does the same and counts
 *          them in n_faults, but has returned MMLA_OK before it knows
 *          MMLA_E_LAUNCH (CUDA): a launch was refused
 *
 * edges    T' = 0 touches nothing, and pointers may be NULL. A slot named twice holds the later
 *          row. The position of a row with a negative slot is not looked at. A NaN is stored as
 *          code 0x7F (e4m3), 0x7FFF (bf16), or as code 0 with the scale of its group NaN (e2m1:
 *          0x7F; index keys: 0xFF); it does not enter the group's maximum. An infinity makes a
 *          ue8m0 scale NaN and saturates under an e4m3 scale.
 *
 * source   docs/format.md, docs/numerics.md; definition: src/ops/kv_insert/kv_insert_ref.c
 * since    0.1
 */
MMLA_API mmla_status mmla_kv_insert_run(const mmla_kv_insert_plan *plan,
                                        const mmla_kv_insert_args *args,
                                        void *workspace,
                                        void *stream);

typedef struct mmla_kv_gather_desc {
    mmla_cache_desc cache; /* V4, V41_FP8 or V41_FP4 */
    int64_t max_requests;  /* 0 .. 2^31 - 1 */
    int32_t table_width;   /* B: block-table entries a request, at least 1 */
    int64_t table_stride;  /* elements, at least B; 0: B */
    int64_t rows;          /* M: workspace rows a request, at least 1 */
    int64_t offset;        /* first workspace row written of each request, 0 .. M; default 0 */
    int64_t row_stride; /* elements between workspace rows, multiple of 8, at least 512; 0: 512 */
    int32_t ratio;      /* tokens a record stands for, 1 or 2; 0: 1 */
    /* W: without gather_lens, only the query's records and those of the W - 1 tokens before it, which
     * is what a window of W shows it; ratio 1 only. 0: all */
    int32_t window;
    const char *implementation;
} mmla_kv_gather_desc;

typedef struct mmla_kv_gather_args {
    int64_t n_requests;         /* R */
    const int32_t *block_table; /* [R, B], page numbers */
    const int32_t *seq_lens;    /* [R] tokens of the request, prefix + query, which at ratio 1
                                   are records; negative counts as 0 */
    const int32_t *gather_lens; /* [R] records, clamped to those there are; NULL: see below */
    const int32_t *query_start; /* [R + 1], first query token of each request; with a window and
                                   without gather_lens */
    int64_t rows;   /* M of this call, 1 .. 2^31 - 1, with its offset; 0: both are desc's */
    int64_t offset; /* with rows: 0 .. rows */
    const void *cache;
    uint16_t *out;     /* [R * M, 512] bf16, 16-byte aligned */
    int32_t *n_faults; /* may be NULL: requests whose rows did not fit are added */
    mmla_error *error;
} mmla_kv_gather_args;

typedef struct mmla_kv_gather_plan mmla_kv_gather_plan;

MMLA_API mmla_status mmla_kv_gather_plan_create(mmla_context *ctx,
                                                const mmla_kv_gather_desc *desc,
                                                mmla_kv_gather_plan **plan,
                                                mmla_error *err);
MMLA_API void mmla_kv_gather_plan_destroy(mmla_kv_gather_plan *plan);
MMLA_API size_t mmla_kv_gather_workspace_bytes(const mmla_kv_gather_plan *plan); /* 0 */
MMLA_API const char *mmla_kv_gather_plan_implementation(const mmla_kv_gather_plan *plan);

/* mmla_kv_gather_run - dequantise the last g records of every request.
 *
 *     for r < R, i < g:
 *         p = floor(seq_lens[r] / ratio) - g + i
 *         out[r * M + offset + i] = record(block_table[r][p / page_tokens], p mod page_tokens)
 *
 *     g = gather_lens[r]; without gather_lens all floor(seq_lens[r] / ratio) records, or with a window
 *     those of the query and of the window - 1 tokens before it: n + min(seq_lens[r] - n, window - 1)
 *     where n = query_start[r + 1] - query_start[r], clamped to 0 .. seq_lens[r]
 *
 * Every value is code * scale in fp32, rounded to bf16; the bf16 part of a V4 record is copied.
 *
 * memory   rows outside these are not touched. On a CUDA device everything but error is device memory
 * stream   the CPU runs before it returns and takes NULL. CUDA enqueues one kernel on `stream` (a
 *          cudaStream_t) and returns; it may be captured. A graph that is replayed reads the arrays
 *          anew: what is fixed is n_requests and the pointers. Its work is that of the rows that the
 *          lengths name then, not of the R * M there is room for
 * threads  any number of calls at once, into different workspaces
 * errors   MMLA_E_NULL, MMLA_E_ALIGNMENT, MMLA_E_SHAPE: nothing written
 *          MMLA_E_INDEX (CPU): offset + g > M for some request; its first M - offset rows are
 *          written, the rest is not, all other requests are complete, and the message names the
 *          first. CUDA does the same and counts such requests in n_faults, but has returned MMLA_OK
 *          before it knows
 *          MMLA_E_LAUNCH (CUDA): the launch was refused
 *
 * edges    R = 0 touches nothing, and pointers may be NULL. A position past the block table, or a
 *          page outside the cache, gives a row of +0.
 *
 * source   docs/format.md; definition: src/ops/kv_gather/kv_gather_ref.c
 * since    0.1
 */
MMLA_API mmla_status mmla_kv_gather_run(const mmla_kv_gather_plan *plan,
                                        const mmla_kv_gather_args *args,
                                        void *workspace,
                                        void *stream);

#ifdef __cplusplus
}
#endif

#endif
