/* take.h - turns a fuzzer's bytes into the fields of descriptions.
 *
 * A description filled with raw bytes is refused at its first field, and nothing behind it is ever
 * reached. So each field takes one byte that says where its value comes from: mostly a small table
 * of values that are legal or just outside, else bytes of the input as they are. Past the end of
 * the input everything is 0.
 */
#ifndef MMLA_FUZZ_TAKE_H
#define MMLA_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct take {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t take_byte(struct take *t) {
    if (t->size == 0) {
        return 0;
    }
    t->size--;
    return *t->data++;
}

static inline void take_bytes(struct take *t, void *out, size_t n) {
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = take_byte(t);
    }
}

static inline int64_t take_i64(struct take *t) {
    static const int64_t values[] = {
        0,
        1,
        2,
        8,
        16,
        32,
        61,
        64,
        127,
        128,
        129,
        512,
        1024,
        4096,
        65535,
        65536,
        65537,
        INT32_MAX,
        -1,
        -8,
        1000,
        32768,
        1 << 24,
        (int64_t)INT32_MAX + 1,
        INT32_MIN,
        INT64_MAX,
        INT64_MIN,
        INT64_MAX - 15,
        INT64_MAX / 2,
        (int64_t)1 << 40,
    };
    enum { N_VALUES = sizeof values / sizeof values[0], RAW = 0xFF };
    const uint8_t source = take_byte(t);
    if (source == RAW) {
        int64_t raw;
        take_bytes(t, &raw, sizeof raw);
        return raw;
    }
    return values[source % N_VALUES];
}

static inline int32_t take_i32(struct take *t) {
    const int64_t value = take_i64(t);
    int32_t low;
    memcpy(&low, &value, sizeof low);
    return low;
}

/* Mostly one of 0 .. n-1, now and then a neighbour or anything at all. */
static inline int take_enum(struct take *t, int n) {
    const uint8_t source = take_byte(t);
    return source < 0xF0 ? source % (n + 1) : take_i32(t);
}

static inline float take_float(struct take *t) {
    static const uint32_t bits[] = {
        0x3F800000, 0x3D3504F3, 0x358637BD, 0x00000000, 0x80000000, 0x00000001,
        0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF,
    };
    const uint8_t source = take_byte(t);
    uint32_t chosen = bits[source % (sizeof bits / sizeof bits[0])];
    if (source == 0xFF) {
        take_bytes(t, &chosen, sizeof chosen);
    }
    float value;
    memcpy(&value, &chosen, sizeof value);
    return value;
}

#endif
