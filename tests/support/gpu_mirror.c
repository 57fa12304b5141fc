#include "support/gpu_mirror.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ALIGNMENT = 256 };

static void check(mmla_status status, const mmla_error *err) {
    if (status != MMLA_OK) {
        fail_msg("%s", err->message);
    }
}

bool test_mirror_open(test_mirror *m) {
    mmla_error err;
    memset(m, 0, sizeof *m);
    if (mmla_gpu_count() == 0) {
        return false;
    }
    check(mmla_gpu_open(0, &m->gpu, &err), &err);
    check(mmla_gpu_stream_create(&m->gpu, &m->stream, &err), &err);
    return true;
}

void test_mirror_close(test_mirror *m) {
    for (int i = 0; i < m->n_blocks; i++) {
        mmla_gpu_free(&m->gpu, m->blocks[i].memory);
    }
    mmla_gpu_stream_destroy(&m->gpu, m->stream);
}

void test_mirror_add(test_mirror *m, void *host, size_t bytes) {
    mmla_error err;
    assert_true(m->n_blocks < TEST_MIRROR_BLOCKS_MAX);
    test_mirror_block *b = &m->blocks[m->n_blocks++];
    *b = (test_mirror_block){.host = host, .bytes = bytes};
    check(mmla_gpu_alloc(&m->gpu, bytes + ALIGNMENT, &b->memory, &err), &err);
    assert_int_equal((uintptr_t)b->memory % ALIGNMENT, 0);
    b->device = (char *)b->memory + (uintptr_t)host % ALIGNMENT;
    check(mmla_gpu_fill(&m->gpu, b->memory, TEST_POISON, bytes + ALIGNMENT, m->stream, &err), &err);
    check(mmla_gpu_stream_wait(&m->gpu, m->stream, &err), &err);
}

void test_mirror_add_buffer(test_mirror *m, const test_buffer *b) {
    test_mirror_add(m, (char *)b->data - TEST_GUARD_BYTES, b->bytes + 2 * TEST_GUARD_BYTES);
}

static const test_mirror_block *block_of(const test_mirror *m, const void *host) {
    for (int i = 0; i < m->n_blocks; i++) {
        const test_mirror_block *b = &m->blocks[i];
        const size_t bytes = b->bytes > 0 ? b->bytes : 1;
        if ((const char *)host >= b->host && (const char *)host < b->host + bytes) {
            return b;
        }
    }
    fail_msg("%p is in no array of the mirror", host);
    return NULL;
}

void *test_mirror_at(const test_mirror *m, const void *host) {
    if (host == NULL) {
        return NULL;
    }
    const test_mirror_block *b = block_of(m, host);
    return b->device + ((const char *)host - b->host);
}

void test_mirror_move(const test_mirror *m, void *args, const size_t *offsets, size_t n) {
    for (size_t i = 0; i < n; i++) {
        void *p;
        memcpy(&p, (char *)args + offsets[i], sizeof p);
        p = test_mirror_at(m, p);
        memcpy((char *)args + offsets[i], &p, sizeof p);
    }
}

void test_mirror_push(test_mirror *m) {
    mmla_error err;
    for (int i = 0; i < m->n_blocks; i++) {
        const test_mirror_block *b = &m->blocks[i];
        check(mmla_gpu_copy_in(&m->gpu, b->device, b->host, b->bytes, &err), &err);
    }
    /* The last bytes of a copy may still be on their way to the device when it returns, in a stream
     * that ours does not wait for. */
    check(mmla_gpu_stream_wait(&m->gpu, NULL, &err), &err);
}

void test_mirror_pull(test_mirror *m, const void *host) {
    mmla_error err;
    const test_mirror_block *b = block_of(m, host);
    check(mmla_gpu_stream_wait(&m->gpu, m->stream, &err), &err);
    check(mmla_gpu_copy_out(&m->gpu, b->host, b->device, b->bytes, &err), &err);
}
