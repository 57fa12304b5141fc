/* openblas.c - the only file that knows OpenBLAS: four names of its C interface, found by dlsym. */
#include "app/bench/openblas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <megamla/layout.h>

#include "app/check/check_buffer.h"

/* Values of the CBLAS enums. */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

/* dlsym gives an object pointer; ISO C has no cast from one to a function, POSIX has the copy. */
static void find(void *library, const char *name, void *function, size_t bytes) {
    void *const symbol = dlsym(library, name);
    memcpy(function, &symbol, bytes);
}

openblas openblas_open(int32_t n_threads) {
    openblas blas = {.library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL)};
    if (blas.library == NULL) {
        return blas;
    }
    find(blas.library, "cblas_sgemm", &blas.sgemm, sizeof blas.sgemm);
    find(blas.library, "openblas_set_num_threads", &blas.set_threads, sizeof blas.set_threads);
    if (blas.sgemm == NULL || blas.set_threads == NULL) {
        openblas_close(&blas);
        return blas;
    }
    blas.set_threads(n_threads);
    return blas;
}

void openblas_close(openblas *blas) {
    /* Not unloaded: its worker threads may be running its code. */
    *blas = (openblas){0};
}

/* A product c = a . b, or a . b^T, of row-major matrices. */
typedef struct product {
    int m, n, k;
    bool transposed; /* b is [n, k] */
    const float *a, *b;
    float *c;
} product;

typedef struct products {
    const openblas *blas;
    product each[2];
    int n_products;
    int64_t repeats;            /* of all of them in one call, each on its own b */
    int64_t b_stride, c_stride; /* elements between repeats */
} products;

static void run(void *job, int64_t i) {
    (void)i;
    const products *p = job;
    for (int64_t r = 0; r < p->repeats; r++) {
        for (int j = 0; j < p->n_products; j++) {
            const product *x = &p->each[j];
            p->blas->sgemm(ROW_MAJOR, AS_IS, x->transposed ? TRANSPOSED : AS_IS, x->m, x->n, x->k,
                           1.0f, x->a, x->k, x->b + r * p->b_stride, x->transposed ? x->k : x->n,
                           0.0f, x->c + r * p->c_stride, x->n);
        }
    }
}

static float *filled(int64_t n) {
    float *x = check_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(i % 17) / 16.0f - 0.5f;
    }
    return x;
}

static bench_timing measure(products *p, int64_t n_samples, double budget_s) {
    bench_settle();
    const bench_timing timing = bench_measure(run, p, n_samples, budget_s);
    bench_settle();
    return timing;
}

bench_timing openblas_measure_attend(
    const openblas *blas, int64_t n_heads, int64_t n_keys, int64_t n_samples, double budget_s) {
    if (blas->library == NULL) {
        return (bench_timing){0};
    }
    const int h = (int)n_heads, keys = (int)n_keys, d = MMLA_LATENT_DIM;
    float *q = filled(n_heads * d), *kv = filled(n_keys * d);
    float *s = filled(n_heads * n_keys), *o = filled(n_heads * d);
    products p = {.blas = blas,
                  .each = {{h, keys, d, true, q, kv, s}, {h, d, keys, false, s, kv, o}},
                  .n_products = 2,
                  .repeats = 1};
    const bench_timing timing = measure(&p, n_samples, budget_s);
    free(q);
    free(kv);
    free(s);
    free(o);
    return timing;
}

bench_timing openblas_measure_project(const openblas *blas,
                                      int64_t n_tokens,
                                      int64_t n_groups,
                                      int64_t rank,
                                      int64_t n_samples,
                                      double budget_s) {
    if (blas->library == NULL) {
        return (bench_timing){0};
    }
    const int t = (int)n_tokens, n = (int)rank, k = MMLA_GROUP_DIM;
    float *x = filled(n_tokens * k), *w = filled(n_groups * rank * k);
    float *z = filled(n_groups * n_tokens * rank);
    products p = {.blas = blas,
                  .each = {{t, n, k, true, x, w, z}},
                  .n_products = 1,
                  .repeats = n_groups,
                  .b_stride = rank * k,
                  .c_stride = n_tokens * rank};
    const bench_timing timing = measure(&p, n_samples, budget_s);
    free(x);
    free(w);
    free(z);
    return timing;
}
