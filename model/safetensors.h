/* safetensors.h - reading and writing safetensors files.
 *
 *     [0, 8)        n, the header's length, little-endian
 *     [8, 8 + n)    JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}, and
 *                   "__metadata__": string -> string
 *     [8 + n, end)  the tensors' bytes, one after the other in the header's order, without gaps
 *
 * A file is mapped, not read: a tensor is used where it lies, and copied only when an address of
 * it is not aligned for its use. Files are taken as hostile. Every number of the header is checked
 * before an address is formed from it, the header is at most SAFETENSORS_HEADER_MAX bytes, and
 * nothing else is allocated before a tensor is asked for; so a file costs at most its own size and
 * what Jansson needs for the header.
 */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <megamla/status.h>

enum { SAFETENSORS_HEADER_MAX = 1 << 20, SAFETENSORS_RANK_MAX = 8 };

/* Elements that occupy whole bytes; what else the format knows is refused by name. */
#define SAFETENSORS_DTYPE_MAP(X) \
    X(BOOL, 1)                   \
    X(U8, 1)                     \
    X(I8, 1)                     \
    X(F8_E4M3, 1)                \
    X(F8_E5M2, 1)                \
    X(U16, 2)                    \
    X(I16, 2)                    \
    X(F16, 2)                    \
    X(BF16, 2)                   \
    X(U32, 4)                    \
    X(I32, 4)                    \
    X(F32, 4)                    \
    X(U64, 8)                    \
    X(I64, 8)                    \
    X(F64, 8)

typedef enum safetensors_dtype {
#define SAFETENSORS_DTYPE_ENUM(name, bytes) SAFETENSORS_##name,
    SAFETENSORS_DTYPE_MAP(SAFETENSORS_DTYPE_ENUM)
#undef SAFETENSORS_DTYPE_ENUM
} safetensors_dtype;

const char *safetensors_dtype_name(safetensors_dtype dtype);
int64_t safetensors_dtype_bytes(safetensors_dtype dtype); /* of one element */

/* A tensor as the file describes it, or as a caller wants it written. */
typedef struct safetensors_tensor {
    const char *name;
    safetensors_dtype dtype;
    int32_t rank;
    int64_t shape[SAFETENSORS_RANK_MAX];
    int64_t n_bytes;
    const void *data; /* contiguous; of a file read, aligned for nothing */
} safetensors_tensor;

typedef struct safetensors_meta {
    const char *key;
    const char *value;
} safetensors_meta;

typedef struct safetensors_file safetensors_file;

/* safetensors_load - map a file and check all of its header.
 *
 * memory   *file is the caller's until safetensors_destroy; tensors and texts live as long
 * errors   MMLA_E_VALUE: the file cannot be opened or is not what the format says; the message
 *          names the place and the remedy, not the path. MMLA_E_MEMORY. On failure *file is NULL.
 */
mmla_status safetensors_load(const char *path, safetensors_file **file, mmla_error *err);

/* safetensors_parse - the same from memory, which must outlive the file. */
mmla_status
safetensors_parse(const void *bytes, size_t n_bytes, safetensors_file **file, mmla_error *err);

void safetensors_destroy(safetensors_file *file); /* NULL is allowed */

int64_t safetensors_bytes(const safetensors_file *file); /* of the whole file */

int32_t safetensors_count(const safetensors_file *file);
const safetensors_tensor *safetensors_get(const safetensors_file *file, int32_t idx);
const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name);

int32_t safetensors_meta_count(const safetensors_file *file);
safetensors_meta safetensors_meta_get(const safetensors_file *file, int32_t idx);
const char *safetensors_meta_find(const safetensors_file *file, const char *key); /* or NULL */

/* safetensors_align - make a tensor's address a multiple of `alignment` (a power of two, at most
 * 64). Returns the address, which replaces tensor->data; copies the bytes only when it must. NULL
 * when memory is short. */
const void *
safetensors_align(safetensors_file *file, const safetensors_tensor *tensor, size_t alignment);

/* safetensors_save - write a file.
 *
 * A regular file appears whole or not at all, as file_save has it. Names and texts are UTF-8.
 *
 * errors   MMLA_E_VALUE: cannot be written, the message has the system's reason;
 *          MMLA_E_MEMORY: the header could not be made, nothing is written
 */
mmla_status safetensors_save(const char *path,
                             const safetensors_tensor *tensors,
                             int32_t n_tensors,
                             const safetensors_meta *meta,
                             int32_t n_meta,
                             mmla_error *err);

#endif
