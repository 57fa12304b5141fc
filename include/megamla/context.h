/* context.h - the device, threads, allocator and log sink that plans belong to.
 *
 * A context holds everything that would otherwise be global. Two contexts never touch each other.
 * Creating a plan allocates through the context's allocator; running one never allocates.
 */
#ifndef MEGAMLA_CONTEXT_H
#define MEGAMLA_CONTEXT_H

#include <stddef.h> /* size_t */
#include <stdint.h> /* int32_t */

#include <megamla/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mmla_device_kind { MMLA_DEVICE_CPU = 0, MMLA_DEVICE_CUDA = 1 } mmla_device_kind;

typedef struct mmla_device {
    mmla_device_kind kind;
    int32_t index; /* 0 for the CPU */
} mmla_device;

#ifdef __cplusplus
#define MMLA_CPU (mmla_device{MMLA_DEVICE_CPU, 0})
#define MMLA_CUDA(i) (mmla_device{MMLA_DEVICE_CUDA, (i)})
#else
#define MMLA_CPU ((mmla_device){MMLA_DEVICE_CPU, 0})
#define MMLA_CUDA(i) ((mmla_device){MMLA_DEVICE_CUDA, (i)})
#endif

/* Host memory for contexts and plans. alloc returns memory aligned for any type, or NULL. */
typedef struct mmla_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory);
    void *user;
} mmla_allocator;

/* A sink for log lines (which implementation a plan took, and why not another). The text is valid
 * during the call only. May be called from any thread that creates plans. */
typedef void (*mmla_log_fn)(void *user, const char *line);

/* All zero is a good default: the CPU, every core this process may use, malloc, no log.
 *
 * On a CUDA device the pointers of a run lead to memory of that device, but for args->error and the
 * structs themselves; stream is a cudaStream_t of it, passed as void *, NULL is its default stream.
 * A run enqueues and returns: it neither waits nor allocates and may be captured into a CUDA graph.
 * Creating contexts and plans loads kernels, which is not legal during a capture. The calling
 * thread's current device is left as it was. docs/gpu.md says which GPUs there is code for.
 *
 * Threads are OpenMP's. Its runtime keeps them for the next call, lets them spin for a while when a
 * call ends, and ends the process when the system refuses it one (a limit on processes or memory). A
 * library built without OpenMP (MMLA_OPENMP=OFF) starts at most 64 in every call and does with fewer
 * when it must. One thread, n_threads 1, needs neither.
 */
typedef struct mmla_context_options {
    mmla_device device;
    int32_t n_threads;        /* CPU threads of one call, 1 .. 4096; 0: every core allowed; ignored
                               * on a CUDA device */
    mmla_allocator allocator; /* alloc NULL: malloc and free */
    mmla_log_fn log;          /* may be NULL */
    void *log_user;
} mmla_context_options;

typedef struct mmla_context mmla_context;

/* mmla_context_create - open a device.
 *
 * memory   *ctx is owned by the library until mmla_context_destroy; it must outlive its plans
 * threads  a context may be used by any number of threads at once
 * errors   MMLA_E_DEVICE  the device is missing or unsupported, or the library was built without
 *                         CUDA; the message says why
 *          MMLA_E_VALUE   n_threads or device.kind out of range, or half an allocator
 *          MMLA_E_MEMORY  the allocator failed.  On failure *ctx is NULL.
 * since    0.1
 */
MMLA_API mmla_status mmla_context_create(const mmla_context_options *options,
                                         mmla_context **ctx,
                                         mmla_error *err);

/* mmla_context_destroy - close it; NULL is allowed. */
MMLA_API void mmla_context_destroy(mmla_context *ctx);

MMLA_API mmla_device mmla_context_get_device(const mmla_context *ctx);
MMLA_API int32_t mmla_context_get_threads(const mmla_context *ctx);

/* One implementation of one operation, as this context sees it. */
typedef struct mmla_implementation {
    const char *op; /* "attend", "kv_insert", ... */
    const char
        *name; /* "reference", "portable", "avx2", ...; accepted by a desc's `implementation` */
    mmla_device_kind device;
    int32_t available;    /* 1 when plans of this context can use it */
    const char *reason;   /* why not; "" when available */
    int32_t by_name_only; /* not 0: plans take it only when asked by name */
} mmla_implementation;

/* mmla_implementation_count / _get - everything the library holds, available here or not. Those of
 * one operation stand together, in the order of preference: a plan that is not asked for a name
 * takes the first that is available, is not by_name_only and serves its description. Strings are
 * constant memory.
 * errors   MMLA_E_VALUE  idx is not in 0 .. count-1
 */
MMLA_API int32_t mmla_implementation_count(const mmla_context *ctx);
MMLA_API mmla_status mmla_implementation_get(const mmla_context *ctx,
                                             int32_t idx,
                                             mmla_implementation *out,
                                             mmla_error *err);

#ifdef __cplusplus
}
#endif

#endif
