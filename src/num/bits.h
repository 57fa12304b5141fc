/* bits.h - a float seen as its bits, and back. */
#ifndef MMLA_NUM_BITS_H
#define MMLA_NUM_BITS_H

#include <stdint.h>
#include <string.h>

#include "base/inline.h"

MMLA_INLINE uint32_t mmla_bits_of_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

MMLA_INLINE float mmla_f32_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
