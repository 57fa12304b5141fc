/* bench_gpu_shape.h - inputs of attention on a GPU: many calls that differ in what they read. */
#ifndef APP_BENCH_BENCH_GPU_SHAPE_H
#define APP_BENCH_BENCH_GPU_SHAPE_H

#include "app/bench/bench_gpu.h"
#include "app/bench/bench_sample.h"

/* Caches and numbers that all rows of one pair of formats share. */
typedef struct bench_gpu_pool {
    const bench_formats *formats;
    bench_gpu_cache window, compressed; /* the first holds the rows of prefill */
    int64_t n_workspaces;               /* of prefill, one behind the other in window.memory */
    bench_tile q;
    check_buffer cos_sin;
    bench_arena arena;
} bench_gpu_pool;

bench_gpu_pool bench_gpu_pool_create(bench_session *s, const bench_formats *formats);
void bench_gpu_pool_destroy(bench_gpu_pool *p);

/* One shape: inputs of n_sets calls, results of one. */
typedef struct bench_gpu_shape {
    const bench_gpu_pool *pool;
    check_attend_case c;                  /* of set 0, in host memory, its caches the tiles */
    check_buffer lists, compressed_lists; /* of every set */
    int64_t n_sets;
    int64_t n_keys;        /* of a call */
    mmla_attend_args args; /* of set 0, on the device */
    bench_arena arena;
    void *workspace;
    mmla_attend_plan *plan;
    mmla_chain_plan *chain;
} bench_gpu_shape;

/* Window and compressed keys of a token; a format alone has all in the first. */
bool bench_gpu_is_paged(const bench_formats *formats);
int32_t bench_gpu_window(const bench_formats *formats);
int32_t bench_gpu_compressed(const bench_formats *formats);

/* Bytes of a call that come from caches; of prefill, where tokens share rows, those of each row
 * once. */
double bench_gpu_bytes(const bench_gpu_shape *x);

bench_gpu_shape
bench_gpu_shape_create(bench_session *s, const bench_gpu_pool *p, int64_t heads, int64_t tokens);

/* The same of a paged call over lists that the caller made, which become the shape's. */
typedef struct bench_gpu_lists {
    check_buffer list, lens, compressed_list, compressed_lens;
} bench_gpu_lists;

bench_gpu_shape bench_gpu_shape_create_with(bench_session *s,
                                            const bench_gpu_pool *p,
                                            int64_t heads,
                                            int64_t tokens,
                                            const bench_gpu_lists *lists);
void bench_gpu_shape_destroy(bench_gpu_shape *x);

/* Arguments of call i on the device; and the case of call i on the host. */
mmla_attend_args bench_gpu_shape_args(const bench_gpu_shape *x, int64_t i);
check_attend_case bench_gpu_shape_case(const bench_gpu_shape *x, int64_t i);

/* Poison in all results. */
void bench_gpu_shape_reset(bench_gpu_shape *x);

/* The results, in host memory. */
check_attend_buffers bench_gpu_shape_results(bench_gpu_shape *x);

/* Holds them against the reference as those of call `last`, by `implementation` or by the chain. */
void bench_gpu_shape_verify(bench_session *s,
                            bench_gpu_shape *x,
                            int64_t last,
                            const char *implementation,
                            bool chain,
                            check_verdict *verdict);

/* Lists of prefill, [T, 640]: picks all over the first rows of a workspace, then a window that moves on
 * by one row a token. */
check_buffer bench_gpu_prefill_lists(int64_t n_tokens);

#endif
