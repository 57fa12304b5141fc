/* check_buffer.c - red zones, and sparse memory that reads as NaN. */
#include "app/check/check_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ZONE_BYTES = 4096,
    TILE_BYTES = 2 << 20 /* of the one piece of NaN that sparse memory repeats */
};

static void out_of_memory(int64_t bytes) {
    fprintf(stderr, "megamla: out of memory: %lld bytes were refused\n", (long long)bytes);
    exit(2);
}

void *check_alloc(int64_t bytes) {
    void *memory = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (memory == NULL) {
        out_of_memory(bytes);
    }
    return memory;
}

/* What a red zone holds at an address. Around inputs it is NaN and -1, like what is not to be read
 * inside them; around results it is not constant, so that a shifted copy shows too. */
static uint8_t zone_byte(const check_buffer *b, const uint8_t *p) {
    return b->is_input ? 0xFF : (uint8_t)(0xA5u ^ ((uintptr_t)p * 37u));
}

static void zones_fill(const check_buffer *b) {
    for (uint8_t *p = b->data - ZONE_BYTES; p < b->data; p++) {
        *p = zone_byte(b, p);
    }
    for (uint8_t *p = b->data + b->bytes; p < b->data + b->bytes + ZONE_BYTES; p++) {
        *p = zone_byte(b, p);
    }
}

check_buffer check_buffer_create(int64_t bytes, int64_t alignment, uint8_t fill) {
    check_buffer b = {
        .bytes = bytes, .base_bytes = bytes + 2 * ZONE_BYTES + 3 * 4096, .is_input = fill == 0xFF};
    b.base = check_alloc(b.base_bytes);
    const uintptr_t page = ((uintptr_t)b.base + ZONE_BYTES + 4095) & ~(uintptr_t)4095;
    b.data = b.base + (page - (uintptr_t)b.base) + alignment % 4096;
    memset(b.data, fill, (size_t)bytes);
    zones_fill(&b);
    return b;
}

check_buffer check_buffer_create_sparse(int64_t bytes) {
    check_buffer b = {.bytes = bytes, .is_mapped = true, .is_input = true};
    b.base_bytes = (bytes + 2 * ZONE_BYTES + TILE_BYTES) / TILE_BYTES * TILE_BYTES;
    b.base = mmap(NULL, (size_t)b.base_bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int tile = memfd_create("megamla-check", 0);
    uint8_t *nan = tile < 0 || ftruncate(tile, TILE_BYTES) != 0
                       ? MAP_FAILED
                       : mmap(NULL, TILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, tile, 0);
    if (b.base == MAP_FAILED || nan == MAP_FAILED) {
        out_of_memory(b.base_bytes);
    }
    memset(nan, 0xFF, TILE_BYTES);
    munmap(nan, TILE_BYTES);
    /* Private mappings of one tile: a page that is written becomes a copy, all others stay it. */
    for (int64_t at = 0; at < b.base_bytes; at += TILE_BYTES) {
        if (mmap(b.base + at, TILE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, tile, 0) == MAP_FAILED) {
            out_of_memory(b.base_bytes);
        }
    }
    close(tile);
    b.data = b.base + ZONE_BYTES + 16;
    zones_fill(&b);
    return b;
}

void check_buffer_destroy(check_buffer *b) {
    if (b->is_mapped) {
        munmap(b->base, (size_t)b->base_bytes);
    } else {
        free(b->base);
    }
    *b = (check_buffer){0};
}

bool check_buffer_is_intact(const check_buffer *b) {
    if (b->data == NULL) {
        return true;
    }
    for (const uint8_t *p = b->data - ZONE_BYTES; p < b->data; p++) {
        if (*p != zone_byte(b, p)) {
            return false;
        }
    }
    for (const uint8_t *p = b->data + b->bytes; p < b->data + b->bytes + ZONE_BYTES; p++) {
        if (*p != zone_byte(b, p)) {
            return false;
        }
    }
    return true;
}
