/* check_buffer.h - memory that notices being written where it should not be.
 *
 * A buffer lies between two red zones; its data can be put at an odd multiple of an alignment, so
 * that code which assumes more than the contract promises faults or gives wrong results. Inputs are
 * filled with 0xFF first: NaN in bf16, fp32, e4m3 and ue8m0, -1 as an index.
 */
#ifndef APP_CHECK_BUFFER_H
#define APP_CHECK_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct check_buffer {
    uint8_t *data; /* NULL when it was never created */
    int64_t bytes;
    uint8_t *base;
    int64_t base_bytes;
    bool is_mapped;
    bool is_input; /* filled with 0xFF, and its red zones too */
} check_buffer;

/* Data filled with `fill`, aligned to `alignment` (a power of two up to 4096) and to no more. Ends
 * the program with status 2 when memory is out: a check without memory says nothing. */
check_buffer check_buffer_create(int64_t bytes, int64_t alignment, uint8_t fill);

/* The same, every byte 0xFF, aligned to 16; what is not written costs no memory. For caches of many
 * gigabytes of which a few pages are used. */
check_buffer check_buffer_create_sparse(int64_t bytes);

void check_buffer_destroy(check_buffer *buffer);

/* True while both red zones hold what create put there. */
bool check_buffer_is_intact(const check_buffer *buffer);

/* malloc that ends the program with status 2 when memory is out. */
void *check_alloc(int64_t bytes);

#endif
