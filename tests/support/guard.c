#include "support/guard.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_ALIGNMENT = 256 };

test_buffer test_buffer_create(size_t bytes, size_t alignment) {
    test_buffer b = {.bytes = bytes};
    const size_t shift = alignment < BLOCK_ALIGNMENT ? alignment : 0;
    size_t total = TEST_GUARD_BYTES + shift + bytes + TEST_GUARD_BYTES;
    total = (total + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    b.block = aligned_alloc(BLOCK_ALIGNMENT, total);
    if (b.block == NULL) {
        abort(); /* the test's own fault: it asked for too much */
    }
    b.data = (uint8_t *)b.block + TEST_GUARD_BYTES + shift;
    memset((uint8_t *)b.data - TEST_GUARD_BYTES, TEST_GUARD, TEST_GUARD_BYTES);
    memset((uint8_t *)b.data + bytes, TEST_GUARD, TEST_GUARD_BYTES);
    test_buffer_poison(&b);
    return b;
}

void test_buffer_destroy(test_buffer *b) {
    free(b->block);
    *b = (test_buffer){0};
}

void test_buffer_poison(test_buffer *b) {
    memset(b->data, TEST_POISON, b->bytes);
}

static bool all_equal(const uint8_t *p, size_t n, uint8_t value) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != value) {
            return false;
        }
    }
    return true;
}

bool test_buffer_is_intact(const test_buffer *b) {
    const uint8_t *data = b->data;
    return all_equal(data - TEST_GUARD_BYTES, TEST_GUARD_BYTES, TEST_GUARD) &&
           all_equal(data + b->bytes, TEST_GUARD_BYTES, TEST_GUARD);
}

bool test_buffer_is_untouched(const test_buffer *b, size_t from, size_t to) {
    return all_equal((const uint8_t *)b->data + from, to - from, TEST_POISON);
}
