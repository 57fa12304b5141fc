/* bench.h - what is measured, and what came out.
 *
 * Every row is one operation at one shape. Its inputs come from a seed, its caches are larger than
 * the processor's, and the output of the very calls that were timed, by separate steps too, is
 * compared with the reference before the row is printed.
 */
#ifndef APP_BENCH_BENCH_H
#define APP_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/megamla.h>

#include "app/bench/bench_device.h"
#include "app/bench/bench_harness.h"
#include "app/bench/cublas.h"
#include "app/bench/openblas.h"
#include "app/check/check_cache.h"

enum {
    BENCH_ROWS_MAX = 1024,
    BENCH_LIST_MAX = 16,    /* values of one option */
    BENCH_WINDOW = 128,     /* keys of the sliding window */
    BENCH_COMPRESSED = 512, /* keys picked from the compressed cache */
    BENCH_KEYS = BENCH_WINDOW + BENCH_COMPRESSED,
    BENCH_FLOP_PER_KEY = 2 * 2 * MMLA_LATENT_DIM, /* of a head: q . k and p v, multiply and add */
    BENCH_KEY_LARGEST = CHECK_KEY_LARGEST /* no element of a key exceeds it: the same draws */
};

/* Whose results to damage before they are verified: the test of the test. */
typedef enum bench_corrupt {
    BENCH_CORRUPT_NONE = 0,
    BENCH_CORRUPT_FUSED = 1,
    BENCH_CORRUPT_CHAIN = 2
} bench_corrupt;

/* Values of an option that takes several: 64,16,8. n 0: the default ones. */
typedef struct bench_list {
    int64_t values[BENCH_LIST_MAX];
    int n;
} bench_list;

/* Lengths of the lists that attention reads. */
typedef enum bench_lengths {
    BENCH_LENGTHS_FULL = 0,  /* every entry */
    BENCH_LENGTHS_MIXED = 1, /* each token's drawn: of the window 1 to all, of the rest 0 to all */
    BENCH_LENGTHS_SHORT = 2, /* an eighth */
    BENCH_LENGTHS_KEYS = 3   /* n_keys of every token */
} bench_lengths;

/* Record formats of a row. */
typedef struct bench_formats {
    const char *name; /* "528+288" */
    mmla_kv_format window, compressed;
} bench_formats;

struct bench_session;

typedef struct bench_options {
    uint64_t seed;
    bool quick;
    bool batch_invariant; /* attention on a GPU */
    bool warm;            /* every call of attend_paged has the same inputs */
    bench_corrupt corrupt;
    mmla_device device;
    bench_lengths lengths;      /* of attention */
    int32_t n_keys;             /* with BENCH_LENGTHS_KEYS: 1 .. BENCH_KEYS */
    int32_t padded_percent;     /* tokens without any key, of attention */
    int32_t page_tokens;        /* of the caches of attention; 0: 64 */
    int32_t n_layers;           /* whose pages take turns in them; 0: 1 */
    const char *op;             /* NULL: all */
    const char *formats;        /* NULL: the default ones */
    const char *implementation; /* NULL: the one a plan picks */
    bench_list heads, tokens;
    bench_list contexts; /* tokens of a request, of prefill */
    int32_t n_threads;   /* 0: every core */
    int64_t n_samples;
    void (*progress)(void *user, const char *what, int64_t done, int64_t total); /* may be NULL */
    void *progress_user;
    /* After each row, which is the session's last. May be NULL. */
    void (*finished)(void *user, const struct bench_session *s);
    void *finished_user;
} bench_options;

/* One line of the table. A number that does not apply is 0. */
typedef struct bench_row {
    const char *op, *formats, *out_form;
    char implementation[32];
    int64_t heads, tokens, window, compressed;
    int64_t context; /* of prefill: tokens of the request, those of the call among them */
    bench_timing fused;
    double chain_us;  /* the same by separate steps */
    double sgemm_us;  /* the same products in fp32 by OpenBLAS; 0 when its times spread widely */
    double cublas_us; /* on a GPU: in bf16 by cuBLAS */
    double keys;      /* of attention: keys of a token on average */
    double floor_us;  /* see docs/performance.md */
    double flop;      /* of one call */
    double bytes;     /* of one call: records or rows read, or rows written */
    bool verified;
    char problem[160]; /* why not */
} bench_row;

typedef struct bench_session {
    bench_options options;
    mmla_context *ctx;  /* of the device that is measured */
    mmla_context *host; /* of the CPU, for inputs and references; the same one on the CPU */
    openblas blas;
    double read_gbps, copy_gbps; /* ceilings, in this run */
    int64_t cache_bytes;         /* what the L2 cache, or on a CPU the L3 cache, can hold */
    double sgemm_gflops;         /* OpenBLAS on the two products of 64 heads; 0 without it */
    /* Of a GPU. */
    bool on_gpu; /* rows of a GPU: bench_gpu.h */
    bench_device device;
    cublas gpu_blas;
    double gemm_tflops; /* cuBLAS on a large product in bf16, or what is known of Hopper; else 0 */
    bool has_gemm_tflops; /* measured */
    double node_us;       /* an empty kernel as a node of a graph */
    int64_t cold_bytes, pool_bytes;
    bench_row rows[BENCH_ROWS_MAX];
    int n_rows;
} bench_session;

/* Opens the context and measures the ceilings. On failure err says why; deinit is still needed. */
mmla_status bench_session_init(bench_session *s, const bench_options *options, mmla_error *err);
void bench_session_deinit(bench_session *s);

/* Each measures its operation's shapes, as far as the options select them, and adds rows. */
void bench_attend_run(bench_session *s);
void bench_project_run(bench_session *s);
void bench_kv_run(bench_session *s);

/* An operation of this benchmark: the library's operation it runs, and its record formats. */
enum { BENCH_FORMATS_MAX = 6 };

typedef struct bench_op {
    const char *name, *library_op;
    const char *formats[BENCH_FORMATS_MAX]; /* NULL ends them; none: it has no records */
} bench_op;

/* What there is to measure on a CPU or a GPU; a NULL name ends it. */
const bench_op *bench_ops(mmla_device_kind kind);

/* True when the options select an operation (which has the implementation they ask for), formats.
 */
bool bench_wants_op(const bench_session *s, const char *op);
bool bench_wants_formats(const bench_session *s, const char *formats);

/* The values of an option, or n of `values` when it was not given. */
bench_list bench_list_or(const bench_list *given, const int64_t *values, int n);

/* How the caches of attention lie. */
int32_t bench_page_tokens(const bench_options *o);
int32_t bench_layers(const bench_options *o);

/* A row with the description's part filled in; NULL when the table is full. */
bench_row *bench_row_add(bench_session *s, const char *op, const char *formats);

/* Says that a row is complete. */
void bench_row_finish(bench_session *s);

/* Whether samples spread so far that something else was running: p90 over twice p10. */
bool bench_is_wide(const bench_timing *t);

/* The median, 0 when the samples are no baseline because they are wide. */
double bench_baseline_us(bench_timing t);

/* Microseconds below which a call cannot be: its bytes at the read ceiling and, on a CPU, its flop
 * at the rate of OpenBLAS (when there is one); on a GPU, its flop at the rate of the large product,
 * and one launch. Of warm calls only the bytes that the cache cannot hold are counted. */
double bench_floor_us(const bench_session *s, const bench_row *row);

/* OpenBLAS on the two products of one token; all zero without OpenBLAS. Measured anew beside every
 * row: on a shared machine a figure of a minute ago is no baseline. */
bench_timing bench_sgemm_attend(const bench_session *s, int64_t n_heads);

/* Bytes that caches must exceed so that no call finds what the one before it left. */
int64_t bench_cold_bytes(const bench_session *s);

#endif
