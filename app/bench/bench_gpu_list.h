/* bench_gpu_list.h - a builder of lists with its inputs, for rows of its own and for a decode step. */
#ifndef APP_BENCH_BENCH_GPU_LIST_H
#define APP_BENCH_BENCH_GPU_LIST_H

#include "app/bench/bench_gpu.h"

typedef struct bench_gpu_list bench_gpu_list;

/* WINDOW, COMPRESSED or COMPRESSED_SLOTS of n_tokens requests of a token, or COMBINED of a few; no
 * other kind. The device keeps a failure. */
bench_gpu_list *bench_gpu_list_create(bench_session *s, mmla_list_kind kind, int64_t n_tokens);
void bench_gpu_list_destroy(bench_gpu_list *x);

/* Bytes of all arrays, those read and those written. */
double bench_gpu_list_bytes(const bench_gpu_list *x);

/* Enqueues the call; overlap as in mmla_list_args. */
mmla_status
bench_gpu_list_call(const bench_gpu_list *x, bool overlap, void *stream, mmla_error *err);

/* Compares all lists with the CPU's, and says in the row what differs. */
void bench_gpu_list_verify(bench_session *s, bench_gpu_list *x, bench_row *row);

#endif
