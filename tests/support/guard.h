/* guard.h - buffers that notice stray writes: guard bytes before and behind, poison inside.
 *
 *     test_buffer b = test_buffer_create(bytes, 64);
 *     ... write through b.data ...
 *     assert_true(test_buffer_is_intact(&b));     (nothing before data or behind data + bytes)
 *     test_buffer_destroy(&b);
 */
#ifndef MMLA_TESTS_GUARD_H
#define MMLA_TESTS_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEST_POISON = 0xA5, TEST_GUARD = 0x5C, TEST_GUARD_BYTES = 256 };

typedef struct test_buffer {
    void *data; /* `bytes` bytes of TEST_POISON */
    size_t bytes;
    void *block; /* what was allocated */
} test_buffer;

/* data is a multiple of `alignment` (a power of two up to 256), but of no larger power of two when
 * alignment is below 256: code that needs more than it asks for fails here. */
test_buffer test_buffer_create(size_t bytes, size_t alignment);
void test_buffer_destroy(test_buffer *b);

/* Poison again. */
void test_buffer_poison(test_buffer *b);

/* No guard byte has changed. */
bool test_buffer_is_intact(const test_buffer *b);

/* Every byte of data[from .. to) still is poison. */
bool test_buffer_is_untouched(const test_buffer *b, size_t from, size_t to);

#endif
