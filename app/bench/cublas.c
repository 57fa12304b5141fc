/* cublas.c - the only file that knows cuBLAS: five names of its C interface, found by dlsym. */
#include "app/bench/cublas.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "base/gpu_probe.h"

/* Values of its enums, and of the CUDA types. */
enum { AS_IS = 0, TRANSPOSED = 1, BF16 = 14, SUMS_FP32 = 68, ALGORITHM_DEFAULT = -1 };

enum { WORKSPACE_BYTES = 64 << 20 /* twice what its documentation advises for Hopper */ };

/* The versions whose names and enums are the ones above. */
static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                    "/usr/local/cuda/lib64/libcublas.so.13",
                                    "/usr/local/cuda/lib64/libcublas.so.12"};

/* dlsym gives an object pointer; ISO C has no cast from one to a function, POSIX has the copy. */
static bool find(void *library, const char *name, void *function, size_t bytes) {
    void *const symbol = dlsym(library, name);
    memcpy(function, &symbol, bytes);
    return symbol != NULL;
}

static bool start(cublas *blas, bench_device *d) {
    int (*create)(void **), (*set_stream)(void *, void *);
    int (*set_workspace)(void *, void *, size_t);
    return find(blas->library, "cublasCreate_v2", &create, sizeof create) &&
           find(blas->library, "cublasDestroy_v2", &blas->destroy, sizeof blas->destroy) &&
           find(blas->library, "cublasSetStream_v2", &set_stream, sizeof set_stream) &&
           find(blas->library, "cublasSetWorkspace_v2", &set_workspace, sizeof set_workspace) &&
           find(blas->library, "cublasGemmStridedBatchedEx", &blas->gemm, sizeof blas->gemm) &&
           mmla_gpu_probe_select(d->gpu, NULL) == MMLA_OK && create(&blas->handle) == 0 &&
           set_stream(blas->handle, d->stream) == 0 &&
           /* Memory of its own it would allocate, which is not legal while a graph is recorded. */
           set_workspace(blas->handle, bench_arena_add(&blas->workspace, WORKSPACE_BYTES),
                         WORKSPACE_BYTES) == 0;
}

cublas cublas_open(bench_device *d) {
    cublas blas = {.workspace = {.device = d}};
    const bool usable = d->gpu != NULL && bench_device_is_well(d);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && usable; i++) {
        blas.library =
            blas.library != NULL ? blas.library : dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (blas.library != NULL && !start(&blas, d)) {
        cublas_close(&blas);
        bench_device_forget(d); /* a device without room for it has figures all the same */
    }
    return blas;
}

void cublas_close(cublas *blas) {
    if (blas->handle != NULL) {
        blas->destroy(blas->handle);
    }
    if (blas->workspace.device != NULL) {
        bench_arena_destroy(&blas->workspace);
    }
    /* Not unloaded: the driver may know of its kernels. */
    *blas = (cublas){0};
}

mmla_status cublas_run(const cublas *blas, const cublas_product *p, mmla_error *err) {
    const float one = 1.0f, zero = 0.0f;
    /* Its matrices are column-major: what it calls c is c^T, the product of b as it lies, transposed,
     * and of a. */
    const int status = blas->gemm(blas->handle, TRANSPOSED, AS_IS, (int)p->n, (int)p->m, (int)p->k,
                                  &one, p->b, BF16, (int)p->k, p->b_step, p->a, BF16,
                                  (int)p->a_stride, p->a_step, &zero, p->c, BF16, (int)p->c_stride,
                                  p->c_step, (int)p->n_products, SUMS_FP32, ALGORITHM_DEFAULT);
    return status == 0
               ? MMLA_OK
               : mmla_error_set(err, MMLA_E_LAUNCH, "", "cuBLAS returned status %d", status);
}
