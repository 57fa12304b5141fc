/* gpu_mirror.h - copies of a test's arrays in the memory of GPU 0, and their addresses there.
 *
 *     test_mirror m;
 *     if (!test_mirror_open(&m)) {
 *         skip();                                       no GPU, or no CUDA in the library
 *     }
 *     test_mirror_add(&m, in, sizeof in);
 *     test_mirror_add_buffer(&m, &out);                 with its guard bytes
 *     args.in = test_mirror_at(&m, in);
 *     args.out = test_mirror_at(&m, out.data);
 *     test_mirror_push(&m);
 *     ... mmla_.._run(plan, &args, NULL, m.stream) ...
 *     test_mirror_pull(&m, out.data);                   waits
 *     test_mirror_close(&m);
 *
 * A copy is aligned as its original is, up to 256. Whatever goes wrong on the way fails the test.
 */
#ifndef MMLA_TESTS_GPU_MIRROR_H
#define MMLA_TESTS_GPU_MIRROR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/gpu_memory.h"
#include "support/guard.h"

enum { TEST_MIRROR_BLOCKS_MAX = 32 };

typedef struct test_mirror_block {
    char *host;
    size_t bytes;
    void *memory; /* what was allocated */
    char *device;
} test_mirror_block;

typedef struct test_mirror {
    mmla_gpu gpu;
    void *stream;
    int n_blocks;
    test_mirror_block blocks[TEST_MIRROR_BLOCKS_MAX];
} test_mirror;

/* False when there is no GPU to test on. */
bool test_mirror_open(test_mirror *m);
void test_mirror_close(test_mirror *m);

/* Gives an array room on the GPU; what it holds there is poison until a push. */
void test_mirror_add(test_mirror *m, void *host, size_t bytes);
void test_mirror_add_buffer(test_mirror *m, const test_buffer *b);

/* Where the copy of a host address lies; NULL for NULL. Fails the test when it is in no array. */
void *test_mirror_at(const test_mirror *m, const void *host);

/* The same for pointers in a struct, which it changes: n of them, at offsets from args. */
void test_mirror_move(const test_mirror *m, void *args, const size_t *offsets, size_t n);

/* Everything to the GPU; and, after the stream's work, the array that `host` is in from there. */
void test_mirror_push(test_mirror *m);
void test_mirror_pull(test_mirror *m, const void *host);

#endif
