/* cublas.h - products in bf16 by cuBLAS, when the machine has it.
 *
 * The ceiling of matrix products, and the baseline of the projection. Like OpenBLAS it is loaded when
 * a benchmark asks for it: the project does not depend on it.
 */
#ifndef APP_BENCH_CUBLAS_H
#define APP_BENCH_CUBLAS_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/status.h>

#include "app/bench/bench_device.h"

typedef struct cublas {
    void *library; /* NULL: not there */
    void *handle;
    bench_arena workspace;
    int (*destroy)(void *);
    int (*gemm)(void *handle,
                int transpose_a,
                int transpose_b,
                int m,
                int n,
                int k,
                const void *alpha,
                const void *a,
                int a_type,
                int lda,
                long long a_stride,
                const void *b,
                int b_type,
                int ldb,
                long long b_stride,
                const void *beta,
                void *c,
                int c_type,
                int ldc,
                long long c_stride,
                int n_products,
                int compute_type,
                int algorithm);
} cublas;

/* Loads libcublas and makes it work in the device's stream. A machine without it, and the host in a
 * GPU's place, get a struct whose library is NULL. */
cublas cublas_open(bench_device *d);
void cublas_close(cublas *blas);

/* n_products of c = a . b^T in bf16 with sums in fp32: a [m, k], b [n, k], c [m, n], row-major, rows
 * of a and c a_stride and c_stride elements apart, matrices of one product after the other a_step,
 * b_step and c_step elements. */
typedef struct cublas_product {
    int64_t m, n, k;
    int64_t a_stride, c_stride;
    int64_t n_products, a_step, b_step, c_step;
    const void *a, *b;
    void *c;
} cublas_product;

/* Enqueues them. */
mmla_status cublas_run(const cublas *blas, const cublas_product *p, mmla_error *err);

#endif
